//! Traces: the engine's events as JSON Lines, back from there, and what people look at.
//!
//! ```text
//! writer    event -> line, appended and flushed; a disk that fails ends the trace, never the serving
//! reader    line -> event; a torn last line and unknown kinds are passed over, anything else is named by its line
//! tokens    which rows yield tokens
//! chrome    the JSON of Perfetto and chrome://tracing, event by event
//! convert   events -> that JSON: a track a request, a track of steps, counters
//! summary   events -> figures
//! ```
//!
//! This layer knows events and files. It knows no scheduler and no clock.

mod chrome;
mod convert;
mod reader;
mod summary;
mod tokens;
mod writer;

pub use convert::{Converted, convert, convert_file};
pub use reader::{Reader, read};
pub use summary::Summary;
pub use tokens::Tokens;
pub use writer::Writer;
