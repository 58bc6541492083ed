//! What planning a step costs at 256 running requests and 10,000 waiting ones.
//!
//! usage: `cargo bench --bench sched_plan`
//!
//! ```text
//! plan     the step alone: rows, chunks, admissions, pages
//! step     plan, then apply of its ids: all that the scheduler does for a step
//! ```
//! A scheduler is brought to the load, and goes on from step to step: each sample is another step of the same run.

#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "figures for people")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use twostroke::sched::{Config, CostModel, NewRequest, Policy, Scheduler, Step};

const RUNNING: u64 = 256;
const WAITING: u64 = 10_000;
/// Steps before the load is built anew, untimed: none of the 256 has ended by then.
const STEPS: u64 = 400;

struct Load {
    name: &'static str,
    config: Config,
    /// Prompt of a waiting request, its tenant, by its id.
    waiting: fn(u64) -> (Vec<u32>, u64),
    /// The next step is planned while one is in flight.
    ahead: bool,
}

fn config() -> Config {
    Config {
        pages: 40_000,
        slots: RUNNING as u32,
        step_tokens: 2048,
        chunk_tokens: None,
        context_tokens: 4096,
        queue_max: 20_000,
        queue_tokens_max: 1 << 40,
        policy: Policy::Slo,
        itl_slo_nanos: None,
        prefix_caching: true,
        cache_generated: true,
        logit_rows: 512,
    }
}

/// A prompt that shares nothing with one of another seed.
fn ids(seed: u64, tokens: u32) -> Vec<u32> {
    (0..tokens).map(|i| seed as u32 * 100_000 + i).collect()
}

fn loads() -> Vec<Load> {
    let roomy = Config { slots: 512, pages: 200_000, ..config() };
    vec![
        Load { name: "slots full", config: config(), waiting: |id| (ids(id, 100), id % 100), ahead: false },
        Load { name: "slots full, one ahead", config: config(), waiting: |id| (ids(id, 100), id % 100), ahead: true },
        Load { name: "admitting", config: roomy.clone(), waiting: |id| (ids(id, 1000), id % 100), ahead: true },
        Load {
            name: "head waits for pages",
            config: Config { slots: 512, pages: 10_000, ..config() },
            waiting: |id| (ids(id, 3000), id % 100),
            ahead: true,
        },
        Load {
            name: "prefix being computed",
            config: roomy,
            waiting: |id| (ids(7777, 1000 + (id % 5) as u32), id % 100),
            ahead: true,
        },
        Load {
            name: "10,000 tenants",
            config: Config { slots: 300, pages: 200_000, ..config() },
            waiting: |id| (ids(id, 100), id),
            ahead: true,
        },
    ]
}

/// A scheduler under load, and the step in flight.
struct Running {
    sched: Scheduler,
    flying: Option<Step>,
    ahead: bool,
    next: u64,
    steps: u64,
    waiting: fn(u64) -> (Vec<u32>, u64),
}

impl Running {
    fn new(load: &Load) -> Self {
        let mut running = Self {
            sched: Scheduler::new(load.config.clone()),
            flying: None,
            ahead: false,
            next: 0,
            steps: 0,
            waiting: load.waiting,
        };
        for _ in 0..RUNNING {
            let seed = running.next;
            running.submit(ids(seed, 100), seed % 40, 3500);
        }
        while running.sched.counters().running < RUNNING as usize {
            running.step();
        }
        for _ in 0..20 {
            running.step();
        }
        running.sched.set_cost(CostModel { a: 1 << 30, b: 1 << 30, c: 1 << 20, d: 1 << 8 });
        running.top_up();
        running.steps = 0;
        running.ahead = load.ahead;
        running
    }

    fn submit(&mut self, prompt: Vec<u32>, tenant: u64, max_tokens: u32) {
        let id = self.next;
        self.next += 1;
        let request = NewRequest { id, prompt, max_tokens, priority: (id % 3) as i32, tenant, salt: [1; 32] };
        self.sched.submit(request).expect("the queue has room");
    }

    /// Waiting requests up to their number.
    fn top_up(&mut self) {
        while self.sched.counters().waiting < WAITING as usize {
            let (prompt, tenant) = (self.waiting)(self.next);
            self.submit(prompt, tenant, 50);
        }
    }

    /// One step; how long its plan took, and plan and apply together.
    fn step(&mut self) -> (Duration, Duration) {
        self.steps += 1;
        let start = Instant::now();
        let step = black_box(self.sched.plan());
        let plan = start.elapsed();
        let done = match (step, self.ahead) {
            (Some(step), true) => self.flying.replace(step),
            (Some(step), false) => Some(step),
            (None, _) => self.flying.take(),
        };
        let start = Instant::now();
        if let Some(step) = done {
            let ids: Vec<(u64, u32)> = step.rows.iter().filter(|row| row.last).map(|row| (row.id, row.from)).collect();
            black_box(self.sched.apply(step.n, &ids));
        }
        (plan, plan + start.elapsed())
    }
}

fn plan(criterion: &mut Criterion) {
    for load in loads() {
        for (name, whole) in [("plan", false), ("step", true)] {
            let mut running = Running::new(&load);
            criterion.bench_function(&format!("{name}, {}", load.name), |bencher| {
                bencher.iter_custom(|steps| {
                    let mut sum = Duration::ZERO;
                    for _ in 0..steps {
                        let (plan, step) = running.step();
                        sum += if whole { step } else { plan };
                        if running.steps == STEPS {
                            running = Running::new(&load);
                        }
                        running.top_up();
                    }
                    sum
                });
            });
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(50).warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(2));
    targets = plan
}
criterion_main!(benches);
