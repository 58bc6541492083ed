//! The timeline: a row a request, the steps and counters under it.
//!
//! ```text
//! view      which stretch of time is seen: pan, zoom, follow, animation
//! spans     a request and a view -> what is drawn of it, no more of it than there are pixels
//! ruler     round times to write on
//! command   what can be done, with its keys
//! layout    where the parts lie
//! texts     what is written about requests, steps and times
//! paint     spans, steps and counters -> one mesh a layer
//! svg       the same as a file
//! panel     all of it on the screen, with pointer and keys
//! ```
//!
//! It knows a run and a view. It knows no engine and no file.

mod command;
mod layout;
mod paint;
mod panel;
mod ruler;
mod spans;
mod svg;
mod texts;
mod view;

pub use command::{COMMANDS, Command};
pub use panel::{Hover, Timeline};
pub use ruler::{Tick, ticks};
pub use spans::{Kind, Span, spans};
pub use svg::svg;
pub use texts::short;
pub use view::View;
