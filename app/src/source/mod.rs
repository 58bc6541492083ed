//! Where events come from: a trace file, a running server, the simulator. All give the same events.

mod file;
// Browsers cut their streams themselves.
#[cfg(any(test, not(target_arch = "wasm32")))]
mod lines;
mod picked;
mod recipe;
mod scenario;
mod server;
mod workload;
mod workload_file;

pub use file::{Opening, Said};
pub(crate) use picked::task;
pub use picked::{PAGE_FILE_BYTES_MAX, Picked, Picks, refusal};
pub use recipe::{Kind, Recipe};
pub use scenario::{Play, Scenario, machine_of, measured};
pub use server::address;
pub use workload::{Ask, BUILT_IN, Make, PromptOf, Requests, Workload};
