//! Where events come from: a trace file, or the simulator. All give the same events.

mod file;
mod scenario;

pub use file::{Opening, Said};
pub use scenario::{Ask, Scenario};
