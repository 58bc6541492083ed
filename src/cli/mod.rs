//! The command line.

pub mod fetch;
