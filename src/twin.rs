//! The CPU player of recordings: the same commands, the same numbers, no adapter.
