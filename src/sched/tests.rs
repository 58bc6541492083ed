//! The scheduler's promises, one test each. Random runs with faults are `sim::faults`.

mod admission;
mod cache;
mod pressure;
mod shares;
mod steps;

use super::*;

/// A scheduler with room for everything.
fn roomy() -> Config {
    Config {
        pages: 1_000,
        slots: 16,
        step_tokens: 2_048,
        chunk_tokens: None,
        context_tokens: 4_096,
        queue_max: 10_000,
        queue_tokens_max: 1_000_000,
        policy: Policy::Slo,
        itl_slo_nanos: None,
        prefix_caching: true,
        cache_generated: true,
        logit_rows: 64,
    }
}

fn request(id: RequestId, prompt: Vec<u32>, max_tokens: u32) -> NewRequest {
    NewRequest { id, prompt, max_tokens, priority: 0, tenant: 0, salt: [7; 32] }
}

/// `count` ids that no other `seed` gives.
fn ids(seed: u32, count: u32) -> Vec<u32> {
    (0..count).map(|at| seed * 10_000 + at).collect()
}

/// Applies a step; each row that yields a token yields its position.
fn apply(scheduler: &mut Scheduler, step: &Step) -> Applied {
    let yielding = step.rows.iter().filter(|rows| rows.last);
    let results: Vec<_> = yielding.map(|rows| (rows.id, rows.from + rows.tokens)).collect();
    let applied = scheduler.apply(step.n, &results);
    scheduler.check();
    applied
}

/// Plans and applies one step.
fn step(scheduler: &mut Scheduler) -> Step {
    let step = scheduler.plan().expect("a step");
    scheduler.check();
    apply(scheduler, &step);
    step
}

/// Runs until nothing is left; returns the steps.
fn run(scheduler: &mut Scheduler) -> Vec<Step> {
    let mut steps = Vec::new();
    while !scheduler.idle() {
        steps.push(step(scheduler));
        assert!(steps.len() < 100_000, "no end");
    }
    steps
}

/// (id, kind, from, tokens) of each row.
fn rows(step: &Step) -> Vec<(RequestId, RowKind, u32, u32)> {
    step.rows.iter().map(|rows| (rows.id, rows.kind, rows.from, rows.tokens)).collect()
}
