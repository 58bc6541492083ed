//! The server: what clients speak, the engine's thread, and HTTP between them.
//!
//! ```text
//! openai    bodies to plain requests and tokens to plain responses; knows neither sockets nor how the engine is driven
//! driver    the engine on its own thread, behind mailboxes
//! http      routes, keys, limits, the way up and down
//! ```
//!
//! `openai` serves whoever owns an engine (`run-batch` too). This layer knows no files and no flags: `cli` loads the model
//! and hands it over.

#[cfg(feature = "cli")]
pub mod driver;
#[cfg(feature = "cli")]
pub mod http;
pub mod openai;
