//! From flags to a scorer: find the files, open the adapter, say what is needed and what there is, load.

use super::adapter::{self, Opened};
use super::fetch::{self, ModelSource};
use super::figures::size;
use super::interrupt;
use super::options::ModelOptions;
use super::progress::{Progress, Unit};
use super::say;
use super::tune_file::TuneFile;
use crate::clock::{Clock, millis_from_nanos};
use crate::engine::tune::Tuner;
use crate::engine::{Scorer, chunk_tokens_default};
use crate::error::Result;
use crate::format::model_files::ModelFiles;
use crate::kernels::plan::Plan;
use crate::kernels::{Kernel, Tier};
use crate::model::{Extent, LoadOptions, Model, Needs, random, toy};
use crate::recording::Player;

/// Opens the model's files; reads headers only.
///
/// # Errors
/// When there is no such model, or its files are broken.
pub(super) fn files(options: &ModelOptions) -> Result<ModelFiles> {
    match fetch::resolve(options.model.as_deref())? {
        ModelSource::Toy => toy::files(),
        ModelSource::Random(size) => random::files(&size),
        ModelSource::Path(path) => ModelFiles::open(&path),
    }
}

/// The model's file, where it is one.
pub(super) fn file(options: &ModelOptions) -> Option<std::path::PathBuf> {
    match fetch::resolve(options.model.as_deref()) {
        Ok(ModelSource::Path(path)) if path.is_file() => Some(path),
        _ => None,
    }
}

/// Opens the adapter and loads the model onto it. `context_tokens` replaces the model's own context where the user chose none.
///
/// # Errors
/// No adapter, a model that is not what it must be, too little memory, `Cancelled` by Ctrl-C.
pub(super) fn load(files: &ModelFiles, options: &ModelOptions, context_tokens: Option<u32>) -> Result<Scorer> {
    let Opened { mut player, plan, name, host_memory, key, .. } = adapter::open_for(options)?;
    let chunk = options.chunk_tokens.unwrap_or(chunk_tokens_default(plan)).min(options.step_tokens);
    let wanted = LoadOptions {
        context_tokens: options.context_tokens.or(context_tokens),
        // One sequence runs alone, so that no step is larger than a chunk.
        step_rows: chunk,
        slots: 1,
        kv: options.kv,
        kv_bytes: options.kv_bytes,
        quantize: options.quantize,
        sampled_rows: 0,
    };
    let mut model = model(files, player.as_mut(), plan, &wanted, &name, host_memory)?;
    kernels(&mut model, player.as_mut(), options, key.as_deref(), Extent::All)?;
    Ok(Scorer::new(model, player, Some(chunk))?.with_max_submit_nanos(options.max_submit_nanos))
}

/// Builds the model's kernels as far as `extent` says and checks those that have a choice against the CPU; where it says all, times what
/// `--tune` says. What builds the others when they are needed; `None` for the twin, which needs nothing of it.
///
/// # Errors
/// No variant of a kernel that is right; a lost device; `Cancelled` by Ctrl-C.
pub(super) fn kernels(
    model: &mut Model,
    player: &mut dyn Player<Kernel>,
    options: &ModelOptions,
    key: Option<&str>,
    extent: Extent,
) -> Result<Option<Tuner>> {
    // The twin is what others are checked against.
    let Some(key) = key else { return Ok(None) };
    let clock = Clock::start();
    let (file, memory) = TuneFile::open(key);
    if let Some(pipelines) = file.pipelines() {
        player.restore_compiled(&pipelines)?;
    }
    let mut tuner = Tuner::new(options.tune, memory, Box::new(file), model);
    let bar = Progress::bar("building kernels", 0, Unit::Kernels);
    let mut progress = |built: usize, of: usize| {
        bar.set(built as u64, of as u64);
        interrupt::check()
    };
    match extent {
        Extent::First => tuner.build(model, player, extent, &mut progress)?,
        Extent::All => tuner.settle(model, player, &mut progress)?,
    }
    drop(bar);
    tracing::info!(ms = millis_from_nanos(clock.nanos()), "kernels are built and checked");
    interrupt::check()?;
    Ok(Some(tuner))
}

/// Says what is needed and what there is, and loads the model.
///
/// # Errors
/// A model that is not what it must be, too little memory, `Cancelled` by Ctrl-C.
pub(super) fn model(
    files: &ModelFiles,
    player: &mut dyn Player<Kernel>,
    plan: Plan,
    wanted: &LoadOptions,
    adapter: &str,
    host_memory: bool,
) -> Result<Model> {
    let needs = Model::needs(files, player, plan, wanted)?;
    say_needs(files, &needs, adapter, plan.tier, host_memory);
    if let Some(quantize) = wanted.quantize {
        let (name, file, device) = (quantize.name(), size(needs.file_bytes), size(needs.weight_bytes));
        say(&format!("quantized to {name} while loading: {file} of weights in the file, {device} on the device"));
    }
    let clock = Clock::start();
    let bar = Progress::bar("loading", needs.weight_bytes, Unit::Bytes);
    let model = Model::load(files, player, plan, wanted, &mut |done, total| {
        bar.set(done, total);
        interrupt::check()
    })?;
    drop(bar);
    tracing::info!(ms = millis_from_nanos(clock.nanos()), model = model.type_name(), "weights are loaded");
    Ok(model)
}

fn say_needs(files: &ModelFiles, needs: &Needs, adapter: &str, tier: Tier, host_memory: bool) {
    let total = needs.weight_bytes + needs.kv_bytes + needs.work_bytes;
    let available = if host_memory { memory_available() } else { None };
    let there =
        available.map_or_else(|| "the driver tells no free memory".to_owned(), |b| format!("{} available", size(b)));
    say(&format!(
        "{} on {adapter} ({}): needs {}, {there}; context {} tokens",
        files.name,
        tier.name(),
        size(total),
        needs.context_tokens
    ));
    tracing::info!(
        weights = size(needs.weight_bytes),
        kv = size(needs.kv_bytes),
        work = size(needs.work_bytes),
        context_tokens = needs.context_tokens,
        pages = needs.pages,
        tensors = files.table.tensors.len(),
        "memory needed"
    );
    if available.is_some_and(|bytes| total > bytes) {
        tracing::warn!("more is needed than there is: a smaller --max-model-len or --kv-memory needs less");
    }
}

/// Memory that the system can hand out without swapping, where it tells.
fn memory_available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}
