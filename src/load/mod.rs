//! Workloads: what is asked and when, how it is played against a target, and the figures that come of it.
//!
//! ```text
//! random, exact      numbers that are the same on every machine
//! dataset            prompts and lengths: random, prefix_repetition, sharegpt, mooncake
//! arrivals           when each request comes
//! replay             plays a workload against a `Target`: the engine, a virtual clock, a server
//! spread             mean, median, deviation and percentiles of a sample
//! goodput, report    what is asked of an answer; the result's fields (`report_text`: for people)
//! engine_target      the engine as a target, whatever its clock and its device are
//! remote             a server of OpenAI's API as one
//! ```
//!
//! The loop knows neither engine nor scheduler nor network: those are behind [`replay::Target`]. Names, defaults and
//! arithmetic are those of vLLM's serve bench, so that figures can be laid side by side.

pub mod arrivals;
pub mod dataset;
pub mod engine_target;
mod exact;
pub mod goodput;
pub mod random;
#[cfg(feature = "cli")]
pub mod remote;
pub mod replay;
pub mod report;
mod report_text;
pub mod spread;
