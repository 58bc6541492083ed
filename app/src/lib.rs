//! Twostroke's app: both strokes of every request.
//!
//! ```text
//! run        events of a trace -> steps, requests, figures, statistics
//! source     where events come from: a file, the simulator
//! timeline   a run and a view of time -> what is drawn
//! theme      colours, from one file
//! app        what is open, and the panels around the timeline
//! ```
//! It knows only the engine's public face.

#![cfg_attr(test, allow(clippy::cast_possible_truncation, reason = "numbers of tests are small"))]

mod app;
pub mod run;
pub mod source;
pub mod theme;
pub mod timeline;

pub use app::App;
