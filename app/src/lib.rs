//! Twostroke's app: both strokes of every request.
//!
//! ```text
//! run        events of a trace -> steps, requests, figures, statistics
//! source     where events come from: a file, the simulator
//! host       the engine inside, on a thread or as a task of the page
//! settings   how a model is served
//! engine     what is known of it: models, adapters, settings
//! chat       conversations with it
//! timeline   a run and a view of time -> what is drawn
//! figures    distributions, table, differences of two runs
//! theme      colours, from one file
//! window     eframe's; web  the page's
//! app        what is open, and the panels around the timeline
//! ```
//! It knows only the engine's public face.

#![cfg_attr(test, allow(clippy::cast_possible_truncation, reason = "numbers of tests are small"))]

mod app;
pub mod chat;
pub mod engine;
pub mod figures;
pub mod host;
pub mod run;
pub mod settings;
pub mod source;
pub mod theme;
pub mod timeline;
#[cfg(target_arch = "wasm32")]
pub mod web;
mod window;

pub use app::{App, Shown};
pub use window::Window;
#[cfg(not(target_arch = "wasm32"))]
pub use window::{Errand, Slot};
