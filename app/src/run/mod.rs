//! A run as the app holds it: the events of a trace, put where drawing and figures find them.
//!
//! ```text
//! store     events -> steps in their order, requests with their rows; the oldest folded when there are too many
//! request   one request: its rows, what befell it, its figures
//! rows      what each step computed for a request, in runs
//! levels    steps in groups of 16, 256, ...: what a pixel shows of many
//! selection the statistics of a stretch of time
//! overview  the figures of a whole run, and of two of them
//! strokes   what each stroke did in how much time
//! ```
//!
//! It knows events, times and counts. It knows no screen, no engine and no clock.

mod levels;
mod overview;
mod request;
mod rows;
mod selection;
mod store;
mod strokes;

pub use levels::{Level, Levels};
pub use overview::{Difference, Overview};
pub(crate) use request::ms;
pub use request::{Figures, Mark, MarkKind, Request, State};
pub use rows::{Row, Rows, Sum};
pub use selection::{Selection, Split};
pub use store::{Step, Store};
pub use strokes::{Stroke, Strokes};
