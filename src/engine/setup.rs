//! From a loaded model to an engine: what every program that serves one sets up alike.

use sha2::{Digest, Sha256};

use super::event::Event;
use super::executor::ModelExecutor;
use super::fit;
use super::scorer::chunk_tokens_default;
use super::serving::{Engine, EngineConfig};
use crate::clock::{Clock, unix_seconds};
use crate::limits;
use crate::model::Model;
use crate::sched::{self, Policy};

/// What a person chooses of how requests share the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choices {
    /// Largest prefill chunk; `None` is what suits the device.
    pub chunk_tokens: Option<u32>,
    /// Requests that may wait.
    pub queue_max: usize,
    /// Who goes first.
    pub policy: Policy,
    /// Gap between tokens that chunks keep within; `None` is auto.
    pub itl_slo_nanos: Option<u64>,
    /// Whether full pages are kept for prompts to come.
    pub prefix_caching: bool,
}

impl EngineConfig {
    /// The set-up for `model`, which is called `name`.
    #[must_use]
    pub fn of(model: &Model, name: &str, choices: &Choices) -> Self {
        let plan = model.plan();
        let sched = sched::Config {
            pages: model.pages(),
            slots: model.slots(),
            step_tokens: model.step_rows_max(),
            chunk_tokens: choices.chunk_tokens,
            context_tokens: model.context_tokens(),
            queue_max: choices.queue_max,
            queue_tokens_max: limits::QUEUE_TOKENS_MAX,
            policy: choices.policy,
            itl_slo_nanos: choices.itl_slo_nanos,
            prefix_caching: choices.prefix_caching,
            cache_generated: !plan.by_phase(),
            logit_rows: model.logit_rows_max(),
        };
        let mut config = Self::new(sched, model.vocab(), digest(model, name));
        let chunk = choices.chunk_tokens.unwrap_or(chunk_tokens_default(plan));
        config.prior = fit::prior(chunk.min(model.step_rows_max()));
        if plan.software {
            // The twin computes while it is asked to begin. A software driver has its cores full: recording the next step beside
            // the one that runs takes a core away from it (lavapipe, two cores: 22 tokens/s against 24).
            config.steps_ahead = 0;
        }
        config
    }
}

/// An idle engine over `executor`'s model by `clock`, and the first event of its trace.
#[must_use]
pub fn engine(executor: ModelExecutor, name: &str, adapter: &str, choices: &Choices, clock: Clock) -> (Engine, Event) {
    let config = EngineConfig::of(executor.model(), name, choices);
    let (pages, tier) = (executor.model().pages(), executor.model().plan().tier);
    let engine = Engine::with_clock(config, Box::new(executor), Box::new(move || clock.nanos()));
    let unix = u64::try_from(unix_seconds()).unwrap_or(0).saturating_mul(1_000_000_000);
    let meta = Event::Meta {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        model: name.to_owned(),
        adapter: adapter.to_owned(),
        tier: tier.name().to_owned(),
        page_tokens: limits::PAGE_TOKENS,
        pages,
        policy: choices.policy.name().to_owned(),
        unix_ns: unix.saturating_sub(engine.now_nanos()),
    };
    (engine, meta)
}

/// What tells this model's K and V from another's, in one process.
fn digest(model: &Model, name: &str) -> [u8; 32] {
    let type_name = model.type_name();
    let mut hash = Sha256::new();
    for part in [name, &type_name, model.kv().name(), model.plan().activations.name()] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}
