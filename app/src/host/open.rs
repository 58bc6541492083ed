//! From a choice of model and settings to an engine.

use std::rc::Rc;
use std::sync::Arc;

use twostroke::clock::Clock;
use twostroke::engine::event::Event;
use twostroke::engine::executor::ModelExecutor;
use twostroke::engine::serving::Engine;
use twostroke::engine::setup;
use twostroke::error::{Error, Result};
use twostroke::format::model_files::ModelFiles;
use twostroke::gpu::{GpuPlayer, Options, TierChoice, adapters};
use twostroke::kernels::plan::Plan;
use twostroke::kernels::{Kernel, Tier};
use twostroke::model::{Model, toy};
use twostroke::recording::Player;
use twostroke::text::chat::ChatTemplate;
use twostroke::text::tokenizer::Tokenizer;
use twostroke::twin::{self, Twin};

use super::{AdapterFacts, Facts, Said, Says, Source};
use crate::settings::{Device, Settings};

/// A model that is served.
pub(super) struct Opened {
    pub(super) engine: Engine,
    /// The first event of its trace.
    pub(super) meta: Event,
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) template: Option<ChatTemplate>,
    pub(super) facts: Facts,
}

/// What computes, before an engine is over it.
struct Loaded {
    executor: ModelExecutor,
    adapter: String,
    is_software: bool,
    bytes: u64,
}

/// Opens a model by `clock`, which the engine goes by from then on.
pub(super) async fn open(source: &Source, settings: &Settings, clock: Clock, says: &Rc<Says>) -> Result<Opened> {
    let files = files(source, says).await?;
    let tokenizer = Arc::new(Tokenizer::new(&files.description, None)?);
    let template = ChatTemplate::new(&files.description)?;
    let Loaded { executor, adapter, is_software, bytes } = load(&files, settings, says).await?;
    let model = executor.model();
    let facts = Facts {
        model: files.name.clone(),
        kind: model.type_name(),
        adapter: adapter.clone(),
        tier: model.plan().tier.name(),
        is_software,
        context_tokens: model.context_tokens(),
        context_tokens_made_for: model.context_tokens_made_for(),
        vocab: model.vocab(),
        page_bytes: model.page_bytes(),
        work: model.work(),
        bytes,
        has_template: template.is_some(),
    };
    let (engine, meta) = setup::engine(executor, &files.name, &adapter, &settings.choices(), clock);
    Ok(Opened { engine, meta, tokenizer, template, facts })
}

/// The same model on a device that is opened anew.
pub(super) async fn reload(source: &Source, settings: &Settings, says: &Rc<Says>) -> Result<ModelExecutor> {
    let files = files(source, says).await?;
    Ok(load(&files, settings, says).await?.executor)
}

/// The adapters of this machine, and those that were left out.
pub(super) async fn list() -> Said {
    let listing = adapters::list().await;
    let facts = |adapter: &adapters::Adapter| AdapterFacts {
        title: adapter.capabilities.title(),
        tier: adapter.capabilities.tier.name(),
        is_software: adapter.capabilities.software(),
    };
    Said::Adapters(listing.adapters.iter().map(facts).collect(), listing.skipped)
}

/// Measures an adapter on the tier it is used with.
#[cfg(not(target_arch = "wasm32"))]
pub(super) async fn measure(settings: &Settings, says: &Rc<Says>) -> Result<Said> {
    use twostroke::kernels::probe::Probe;

    says.say(Said::Busy { what: "measuring the adapter", done: 0, total: 0, is_bytes: false });
    let wanted = match settings.device {
        Device::Twin => {
            return Err(Error::Request("the processor without a driver has no limits to be measured".into()));
        }
        Device::Best => None,
        Device::Adapter(at) => Some(at.to_string()),
    };
    let listing = adapters::list().await;
    let (adapter, _) = listing.choose(wanted.as_deref())?;
    let mut player: GpuPlayer<Probe> = GpuPlayer::open(adapter, options(settings)).await?;
    let f16 = player.plan().tier >= Tier::Subgroup && player.capabilities().features.contains(&"shader-f16");
    Ok(Said::Measured(twostroke::gpu::measure(&mut player, f16)?))
}

fn options(settings: &Settings) -> Options {
    let tier = if settings.base_tier { TierChoice::Only(Tier::Base) } else { TierChoice::Auto };
    Options { tier, ..Options::default() }
}

async fn files(source: &Source, says: &Rc<Says>) -> Result<ModelFiles> {
    match source {
        Source::Toy => toy::files(),
        Source::Bytes { name, bytes } => ModelFiles::from_gguf_bytes(name, std::sync::Arc::clone(bytes)),
        Source::Named(name) => named(name.as_deref(), says).await,
    }
}

async fn load(files: &ModelFiles, settings: &Settings, says: &Rc<Says>) -> Result<Loaded> {
    says.say(Said::Busy { what: "opening the adapter", done: 0, total: 0, is_bytes: false });
    let Place { mut player, plan, name: adapter, key } = place(settings).await?;
    let plan = Plan { activations: settings.activations(), ..plan };
    let options = settings.load_options();
    let needs = Model::needs(files, player.as_ref(), plan, &options)?;
    let mut model = Model::load(files, player.as_mut(), plan, &options, &mut |done, total| {
        says.say(Said::Busy { what: "loading", done, total, is_bytes: true });
        if says.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    })?;
    let bytes = needs.weight_bytes + needs.kv_bytes + needs.work_bytes;
    let tuner = tuner(&mut model, player.as_mut(), key, says)?;
    let executor = match tuner {
        Some(tuner) => ModelExecutor::tuned(model, player, tuner),
        None => ModelExecutor::unchecked(model, player),
    };
    Ok(Loaded { executor, adapter, is_software: plan.software, bytes })
}

/// A player and what is known of it.
struct Place {
    player: Box<dyn Player<Kernel>>,
    plan: Plan,
    name: String,
    /// What was found of its kernels lies under this.
    key: Option<String>,
}

async fn place(settings: &Settings) -> Result<Place> {
    let wanted = match settings.device {
        Device::Twin => {
            let (player, name) = (Box::new(Twin::<Kernel>::new()), twin::NAME.to_owned());
            return Ok(Place { player, plan: Plan::TWIN, name, key: None });
        }
        Device::Best => None,
        Device::Adapter(at) => Some(at.to_string()),
    };
    let listing = adapters::list().await;
    let (adapter, _) = listing.choose(wanted.as_deref())?;
    let player = GpuPlayer::open(adapter, options(settings)).await?;
    let name = adapter.capabilities.name.clone();
    let name = if name.is_empty() { "this browser's GPU".to_owned() } else { name };
    let (plan, key) = (player.plan(), key(&player));
    Ok(Place { player: Box::new(player), plan, name, key })
}

#[cfg(not(target_arch = "wasm32"))]
fn key(player: &GpuPlayer) -> Option<String> {
    Some(twostroke::cli::tune_file::key_of(player, false))
}

#[cfg(target_arch = "wasm32")]
fn key(_player: &GpuPlayer) -> Option<String> {
    None
}

/// Builds and checks what a first request launches.
#[cfg(not(target_arch = "wasm32"))]
fn tuner(
    model: &mut Model,
    player: &mut dyn Player<Kernel>,
    key: Option<String>,
    says: &Rc<Says>,
) -> Result<Option<twostroke::engine::tune::Tuner>> {
    use twostroke::cli::tune_file::TuneFile;
    use twostroke::engine::tune::{Level, Tuner};
    use twostroke::model::Extent;

    let Some(key) = key else { return Ok(None) };
    let (file, memory) = TuneFile::open(&key);
    if let Some(pipelines) = file.pipelines() {
        player.restore_compiled(&pipelines)?;
    }
    let mut tuner = Tuner::new(Level::Fast, memory, Box::new(file), model);
    tuner.build(model, player, Extent::First, &mut |done, total| {
        says.say(Said::Busy { what: "building kernels", done: done as u64, total: total as u64, is_bytes: false });
        if says.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    })?;
    Ok(Some(tuner))
}

/// A page cannot wait for the outcome of a check; its kernels are those of the base tier, compiled when they are needed.
#[cfg(target_arch = "wasm32")]
fn tuner(
    _model: &mut Model,
    _player: &mut dyn Player<Kernel>,
    _key: Option<String>,
    _says: &Rc<Says>,
) -> Result<Option<twostroke::engine::tune::Tuner>> {
    Ok(None)
}

/// The files of a model by name; fetched when they are not on this machine.
#[cfg(not(target_arch = "wasm32"))]
#[expect(clippy::unused_async, reason = "a page waits for its server")]
async fn named(name: Option<&str>, says: &Rc<Says>) -> Result<ModelFiles> {
    use twostroke::cli::fetch::{ModelSource, resolve};

    match resolve(name) {
        Ok(ModelSource::Toy) => toy::files(),
        Ok(ModelSource::Random(size)) => twostroke::model::random::files(&size),
        Ok(ModelSource::Path(path)) => ModelFiles::open(&path),
        // It is known, and not here.
        Err(Error::Request(_)) => ModelFiles::open(&super::native::fetch(name, says)?),
        Err(error) => Err(error),
    }
}

/// The model that the page's server holds.
#[cfg(target_arch = "wasm32")]
async fn named(name: Option<&str>, says: &Rc<Says>) -> Result<ModelFiles> {
    let name = name.unwrap_or("model.gguf");
    let bytes = super::page::fetch(name, says).await?;
    ModelFiles::from_gguf_bytes(name, bytes)
}
