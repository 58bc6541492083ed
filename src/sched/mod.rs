//! The scheduler: which rows of which requests go into the next step, in which pages. Integers in, integers out.
//!
//! This layer knows no clock, no float, no text, no device and no hash order: the same calls give the same steps, on any
//! machine. The engine fits the cost model and hands it over as fixed-point integers; `sim` drives the very same code.
//!
//! ```text
//! submit -> queue -> plan: admit, pages, rows -> Step n -> (the device) -> apply n: ids, sealed pages -> ...
//!              ^         |                          |
//!              +- preempt (out of pages) -----------+- fail n (nothing was computed)
//! ```
//!
//! What was decided where the design is silent:
//! - **Importance.** Running requests stand in the order (priority, arrival), `fcfs` by arrival alone. Pages go to the front
//!   of that order and are taken from its end, so the most important request always gets on and nothing can lock.
//!   A request at the end that lacks a page waits with what it holds; it is never preempted for its own sake.
//! - **Preemption and steps in flight.** Who has rows in flight cannot be preempted. It is marked instead: it gets no more
//!   rows, and it goes when its last step is applied, unless the pages came back in between.
//! - **Admission** wants pages for the whole prompt and one token, beside what half-done prompts still need and what
//!   decoders take in a step; it is closed in a step that lacks pages, and never jumps over the head of the queue for room.
//! - **A prefix being computed is waited for.** When the next page of a waiting prompt is just being computed by a running
//!   one (of no lower priority), it stays in the queue, a few later ones may pass it, and then it hits.
//! - **Fair shares** count computed tokens a tenant, cached ones and those computed again after preemption not. A tenant that
//!   comes (back) starts no lower than the tenant admitted last: idling earns no credit, newcomers cannot lock others out.
//! - **A tile that runs in any case** (under `slo`, where nothing fits) is a tile of the step's matmuls: a chunk fills the one that
//!   decode rows have begun. Beside four of them 4 tokens run, where 8 would have begun another tile; beside seven, 9 run.
//! - **Logit rows.** When more requests decode than a step may have logits, they take turns, and one row (of logits, and one
//!   tile of tokens) is kept for a prompt that could end.
//! - **A duplicate page** (two requests computed the same page at the same time) stays private; the first one is the cache's.
//! - With the cache off, an admission tells no reason for its miss.

mod apply;
mod check;
mod cost;
mod mutant;
mod pages;
mod plan;
mod prefill;
mod prefix;
mod queue;
mod scheduler;
mod sequence;
mod tenants;
mod types;

pub use cost::{Before, CostModel, UNITS_A_NANO};
#[cfg(test)]
pub(crate) use mutant::Mutant;
pub use scheduler::Scheduler;
pub use types::{
    Admitted, Applied, Config, Counters, Miss, MissReason, NewRequest, Policy, Refusal, RequestId, RowKind, Step,
    StepRows,
};

#[cfg(test)]
mod tests;
