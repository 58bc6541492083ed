//! From flags to an engine: adapter, model, pool and trace.

use super::adapter::{self, Opened};
use super::batch_args::BatchOptions;
use super::load;
use super::options::ModelOptions;
use crate::clock::Clock;
use crate::engine::chunk_tokens_default;
use crate::engine::event::Event;
use crate::engine::executor::ModelExecutor;
use crate::engine::serving::Engine;
use crate::engine::setup::{self, Choices};
use crate::error::Result;
use crate::format::model_files::ModelFiles;
use crate::gpu::Adapter;
use crate::kernels::Tier;
use crate::limits;
use crate::model::{LoadOptions, TokenWork};
use crate::trace;

/// An engine over a loaded model, and what results say about it.
pub(super) struct Serving {
    /// The engine, idle.
    pub(super) engine: Engine,
    /// Name of the model.
    pub(super) model: String,
    /// Name of the adapter.
    pub(super) adapter: String,
    /// Name of the API that reaches it.
    pub(super) backend: String,
    /// The adapter itself; `None` for the twin.
    pub(super) device: Option<Adapter>,
    /// Tier of the shaders.
    pub(super) tier: Tier,
    /// Architecture, size and format, as llama-bench prints them.
    pub(super) type_name: String,
    /// Bytes of the tensors in the file.
    pub(super) file_bytes: u64,
    /// Parameters.
    pub(super) params: u64,
    /// What a token takes.
    pub(super) work: TokenWork,
    /// Context that the pool holds.
    pub(super) context_tokens: u32,
    /// Context that the model was made for.
    pub(super) context_tokens_made_for: u32,
    /// Pages of the KV pool.
    pub(super) pages: u32,
    /// Bytes of a KV page in all layers.
    pub(super) page_bytes: u64,
    /// Size of the vocabulary.
    pub(super) vocab: u32,
    /// Width of the residual stream.
    pub(super) width: u32,
    /// Prompt tokens of a usual chunk, for progress bars.
    pub(super) chunk_tokens: u32,
}

/// Opens the adapter, loads the model and begins the trace. `context_tokens` replaces the model's own context where the user
/// chose none.
///
/// # Errors
/// As [`load::model`], and a trace that cannot be written.
pub(super) fn open(
    files: &ModelFiles,
    options: &ModelOptions,
    batch: &BatchOptions,
    context_tokens: Option<u32>,
) -> Result<Serving> {
    let trace = batch.trace.as_deref().map(trace::Writer::create).transpose()?;
    let clock = Clock::start();
    let (mut serving, meta) = open_by(files, options, batch, context_tokens, clock)?;
    if let Some(mut trace) = trace {
        trace.write(&meta);
        serving.engine.observe(Box::new(move |event| trace.write(event)));
    }
    Ok(serving)
}

/// As [`open`], by a clock of the caller's and without a trace; with the trace's first event.
///
/// # Errors
/// As [`load::model`].
pub(super) fn open_by(
    files: &ModelFiles,
    options: &ModelOptions,
    batch: &BatchOptions,
    context_tokens: Option<u32>,
    clock: Clock,
) -> Result<(Serving, Event)> {
    let made = make(files, options, batch, context_tokens)?;
    let Made { executor, adapter, backend, device, chunk_tokens } = made;
    let model = executor.model();
    let pages = model.pages();
    let facts = (model.type_name(), model.file_bytes(), model.params(), model.work());
    let (type_name, file_bytes, params, work) = facts;
    let (context_tokens, vocab, width) = (model.context_tokens(), model.vocab(), model.width());
    let (context_tokens_made_for, page_bytes) = (model.context_tokens_made_for(), model.page_bytes());
    let choices = Choices {
        chunk_tokens: options.chunk_tokens,
        queue_max: batch.queue_max,
        policy: batch.policy,
        itl_slo_nanos: batch.itl_slo_nanos,
        prefix_caching: batch.prefix_caching,
    };
    let tier = model.plan().tier;
    let (engine, meta) = setup::engine(executor, &files.name, &adapter, &choices, clock);
    let serving = Serving {
        engine,
        model: files.name.clone(),
        adapter,
        backend,
        device,
        tier,
        type_name,
        file_bytes,
        params,
        work,
        context_tokens,
        context_tokens_made_for,
        pages,
        page_bytes,
        vocab,
        width,
        chunk_tokens,
    };
    Ok((serving, meta))
}

/// A model on an adapter.
pub(super) struct Made {
    /// Computes steps.
    pub(super) executor: ModelExecutor,
    adapter: String,
    backend: String,
    device: Option<Adapter>,
    chunk_tokens: u32,
}

/// Opens the adapter and loads the model onto it.
///
/// # Errors
/// As [`load::model`].
pub(super) fn make(
    files: &ModelFiles,
    options: &ModelOptions,
    batch: &BatchOptions,
    context_tokens: Option<u32>,
) -> Result<Made> {
    let Opened { mut player, plan, name, backend, adapter: device, host_memory, key } = adapter::open_for(options)?;
    let chunk = options.chunk_tokens.unwrap_or(chunk_tokens_default(plan)).min(options.step_tokens);
    let alone = batch.slots == 1;
    let wanted = LoadOptions {
        context_tokens: options.context_tokens.or(context_tokens),
        // A request that runs alone gets no step larger than a chunk.
        step_rows: if alone { chunk } else { options.step_tokens },
        slots: batch.slots,
        kv: options.kv,
        kv_bytes: options.kv_bytes,
        quantize: options.quantize,
        sampled_rows: batch.slots.min(limits::SAMPLED_ROWS_MAX),
    };
    let mut model = load::model(files, player.as_mut(), plan, &wanted, &name, host_memory)?;
    let tuner = load::kernels(&mut model, player.as_mut(), options, key.as_deref(), batch.kernels)?;
    let executor = match tuner {
        Some(tuner) => ModelExecutor::tuned(model, player, tuner),
        None => ModelExecutor::new(model, player)?,
    };
    let executor = executor.with_max_submit_nanos(options.max_submit_nanos);
    Ok(Made { executor, adapter: name, backend, device, chunk_tokens: chunk })
}
