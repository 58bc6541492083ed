//! Sessions over a model and a player: one conversation whose KV grows from turn to turn.
//!
//! This layer decides which tokens go into which step. It knows neither files nor text nor what an adapter is.
//!
//! ```text
//! ids     0 ........ ids.len()              what the KV holds; a turn appends behind it, `truncate` cuts it
//! pages   0 | 1 | 2 | ...                   page p holds positions 16 p .. 16 p + 16; one sequence owns them all, in order
//! prefill [chunk][chunk][rest -> argmax]    chunks bound the time between two looks at Ctrl-C, not the result
//! ```

mod session;

pub use session::{Session, chunk_tokens_default};
