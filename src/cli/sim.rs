//! `sim`: the workloads of `replay` in virtual time.

use super::args::SimArgs;
use super::batch_args::BatchOptions;
use super::options::ModelOptions;
use super::play::{self, Origin};
use super::replay_args::WorkloadOptions;
use super::{load, say};
use crate::engine::event::Event;
use crate::error::Result;
use crate::limits::PAGE_TOKENS;
use crate::load::dataset::Vocabulary;
use crate::load::engine_target::EngineTarget;
use crate::sim::{self, Asked, BYTES_A_TOKEN, CostFile, Machine};
use crate::text::tokenizer::Tokenizer;
use crate::trace;

/// Runs the command.
///
/// # Errors
/// Wrong flags or files, and those of [`play::play`].
pub(super) fn sim(args: &SimArgs) -> Result<()> {
    let model = ModelOptions::new(&args.model)?;
    let options = args.workload.meant(model.seed.unwrap_or(0))?;
    let batch = args.batch.meant(model.trace.clone())?;
    let file = CostFile::read(&args.cost_model)?;
    let mut machine = Machine::new(&file, &asked(&model, &batch, args.num_gpu_blocks_override))?;
    let tokenizer = tokenizer(&model, &options)?;
    let encode = |text: &str| match &tokenizer {
        Some(tokenizer) => tokenizer.encode_raw(text),
        None => Ok(sim::ids_from_text(text, file.vocab)),
    };
    let workload = options.spec.make(&Vocabulary::new(file.vocab, &[])?, &encode)?;
    workload.check_context(machine.context_tokens)?;
    if let Some(path) = &batch.trace {
        record(&mut machine, trace::Writer::create(path)?, &file, &batch);
    }
    let place = format!("virtual time: {} on {} | {}", file.model, file.adapter, file.tier);
    let origin = Origin {
        date: None,
        backend: "twostroke",
        model: file.model.clone(),
        tokenizer: Some(file.model.clone()),
        place,
    };
    let clock = machine.clock.clone();
    let mut pass = |_, until| clock.advance_to(until);
    // The device's tokens are no words: none ends an answer.
    let mut target = EngineTarget::new(&mut machine.engine, [].into(), &mut pass, None);
    play::play(&mut target, &workload, &options, origin)
}

fn asked(model: &ModelOptions, batch: &BatchOptions, pages: Option<u32>) -> Asked {
    Asked {
        context_tokens: model.context_tokens,
        step_tokens: model.step_tokens,
        chunk_tokens: model.chunk_tokens,
        slots: batch.slots,
        kv_bytes: model.kv_bytes,
        pages,
        prefix_caching: batch.prefix_caching,
        policy: batch.policy,
        itl_slo_nanos: batch.itl_slo_nanos,
    }
}

/// The tokenizer that texts are encoded with, where the user names one.
fn tokenizer(model: &ModelOptions, options: &WorkloadOptions) -> Result<Option<Tokenizer>> {
    if !options.is_text() {
        return Ok(None);
    }
    if model.model.is_none() && model.tokenizer.is_none() {
        say(&format!("no --model to encode texts with: {BYTES_A_TOKEN} bytes count as a token"));
        return Ok(None);
    }
    let files = load::files(model)?;
    Tokenizer::new(&files.description, model.tokenizer.as_deref()).map(Some)
}

/// Begins the trace. It has no date: the same seed gives the same bytes.
fn record(machine: &mut Machine, mut trace: trace::Writer, file: &CostFile, batch: &BatchOptions) {
    trace.write(&Event::Meta {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        model: file.model.clone(),
        adapter: file.adapter.clone(),
        tier: file.tier.clone(),
        page_tokens: PAGE_TOKENS,
        pages: machine.pages,
        policy: batch.policy.name().to_owned(),
        unix_ns: 0,
    });
    machine.engine.observe(Box::new(move |event| trace.write(event)));
}
