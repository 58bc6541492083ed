//! Simulation: the very same scheduler and engine loop under a clock and a device that are not real. This layer never touches
//! a GPU, and needs no model.
//!
//! ```text
//! cost_file    what `bench --fit` measured of a machine: how long steps last, how large pages are
//! machine      from there, and what the user asks for, to the scheduler's set-up
//! clock        time that passes when it is told to
//! executor     a device whose steps last what the cost model says
//! text         ids of a text where there is no tokenizer
//! faults       tests: random arrivals, cancels, tiny pools, devices that fail; checkers after every step
//! ```
//!
//! No wall clock, no hash order, no arithmetic but integers: the same input gives the same bytes.

mod clock;
mod cost_file;
mod executor;
#[cfg(test)]
mod faults;
mod machine;
mod text;

pub use clock::VirtualClock;
pub use cost_file::CostFile;
pub use executor::VirtualExecutor;
pub use machine::{Asked, Machine};
pub use text::{BYTES_A_TOKEN, ids_from_text};
