//! `replay`: a workload of many requests against the engine in this process, or a server.

use std::time::Duration;

use super::args::ReplayArgs;
use super::options::ModelOptions;
use super::play::{self, Origin};
use super::replay_args::WorkloadOptions;
use super::{load, say, serving};
use crate::clock::unix_seconds;
use crate::error::{Error, Result};
use crate::format::model_files::ModelFiles;
use crate::limits::SILENCE_SECONDS;
use crate::load::dataset::Vocabulary;
use crate::load::engine_target::{Decode, EngineTarget};
use crate::load::remote::{Counted, Endpoint, Place, RemoteTarget};
use crate::model::Outline;
use crate::text::tokenizer::Tokenizer;

/// Where the key of a server is looked for, as OpenAI's clients do.
const KEY_VARIABLE: &str = "OPENAI_API_KEY";
/// What is asked when nobody says.
const ENDPOINT: &str = "/v1/completions";
/// Longest sleep between two looks at Ctrl-C.
const NAP_NANOS_MAX: u64 = 50_000_000;

/// Runs the command.
///
/// # Errors
/// Wrong flags or files, a server that is not there, whatever keeps the model from being loaded, and those of [`play::play`].
pub(super) fn replay(args: &ReplayArgs) -> Result<()> {
    match &args.url {
        None => embedded(args),
        Some(url) => remote(args, url),
    }
}

fn embedded(args: &ReplayArgs) -> Result<()> {
    if args.endpoint.is_some() || args.served_model_name.is_some() || args.silence.is_some() {
        return Err(Error::Usage("--endpoint, --served-model-name, --silence: expected with --url".into()));
    }
    let model = ModelOptions::new(&args.model)?;
    let options = args.workload.meant(model.seed.unwrap_or(0))?;
    let batch = args.batch.meant(model.trace.clone())?;
    let files = load::files(&model)?;
    let outline = Outline::read(&files)?;
    let tokenizer = tokenizer(&files, &model, &options)?;
    let special = tokenizer.as_ref().map(Tokenizer::special_tokens).unwrap_or_default();
    let vocabulary = Vocabulary::new(outline.vocab, &special)?;
    let encode = |text: &str| match &tokenizer {
        Some(tokenizer) => tokenizer.encode_raw(text),
        None => unreachable!("a workload of texts has a tokenizer"),
    };
    let workload = options.spec.make(&vocabulary, &encode)?;
    // Told before a driver is asked for anything; the pool may hold less.
    workload.check_context(model.context_tokens.unwrap_or(u32::MAX).min(outline.context_tokens))?;
    let mut serving = serving::open(&files, &model, &batch, None)?;
    drop(files);
    workload.check_context(serving.context_tokens)?;
    let ends = tokenizer.as_ref().filter(|_| !options.ignore_eos).map_or(&[][..], Tokenizer::end_tokens);
    let decode = |ids: &[u32]| tokenizer.as_ref().and_then(|tokenizer| tokenizer.decode(ids).ok());
    let decode: Option<Decode<'_>> = if options.detailed { Some(&decode) } else { None };
    let origin = Origin {
        date: date(),
        backend: "twostroke",
        model: serving.model.clone(),
        tokenizer: Some(serving.model.clone()),
        place: format!("{} | {}", serving.adapter, serving.tier.name()),
    };
    let mut nap = |now: u64, until: u64| {
        std::thread::sleep(Duration::from_nanos(until.saturating_sub(now).min(NAP_NANOS_MAX)));
    };
    let mut target = EngineTarget::new(&mut serving.engine, ends.iter().copied().collect(), &mut nap, decode);
    play::play(&mut target, &workload, &options, origin)
}

/// The model is needed for its vocabulary and tokenizer alone: the server computes.
fn remote(args: &ReplayArgs, url: &str) -> Result<()> {
    let model = ModelOptions::new(&args.model)?;
    let options = args.workload.meant(model.seed.unwrap_or(0))?;
    if model.trace.is_some() {
        return Err(Error::Usage("--trace: expected without --url: a server writes its own".into()));
    }
    let key = std::env::var(KEY_VARIABLE).ok();
    let place = Place::new(url, args.endpoint.as_deref().unwrap_or(ENDPOINT), key, options.ignore_eos)?
        .with_silence(Duration::from_secs(args.silence.unwrap_or(SILENCE_SECONDS)));
    let (target, served) = RemoteTarget::connect(&place, args.served_model_name.as_deref())?;
    let files = load::files(&model)?;
    let tokenizer = Tokenizer::new(&files.description, model.tokenizer.as_deref())?;
    let vocabulary = Vocabulary::new(Outline::read(&files)?.vocab, &tokenizer.special_tokens())?;
    let workload = options.spec.make(&vocabulary, &|text| tokenizer.encode_raw(text))?;
    if let Some(context_tokens) = served.context_tokens {
        workload.check_context(context_tokens)?;
    }
    let decode = |ids: &[u32]| tokenizer.decode(ids);
    let count = |text: &str| u32::try_from(tokenizer.encode_raw(text).ok()?.len()).ok();
    let mut target = target.with_tokenizer(&decode, &count).with_texts(options.detailed);
    let backend = match place.endpoint() {
        Endpoint::Completions => "openai",
        Endpoint::Chat => "openai-chat",
    };
    let origin = Origin {
        date: date(),
        backend,
        model: served.model,
        tokenizer: Some(files.name.clone()),
        place: place.to_string(),
    };
    let played = play::play(&mut target, &workload, &options, origin);
    for (counted, answers) in target.counted() {
        let how = match counted {
            Counted::Usage => continue,
            Counted::Tokenizer => format!("their texts were tokenised with {}", files.name),
            Counted::Chunks => "one was counted a chunk".into(),
        };
        say(&format!("{answers} answers came without usage: {how}"));
    }
    played
}

/// The model's tokenizer. Made-up prompts that go on after end tokens need none.
fn tokenizer(files: &ModelFiles, model: &ModelOptions, options: &WorkloadOptions) -> Result<Option<Tokenizer>> {
    match Tokenizer::new(&files.description, model.tokenizer.as_deref()) {
        Ok(tokenizer) => Ok(Some(tokenizer)),
        Err(error) if options.ignore_eos && !options.is_text() => {
            tracing::info!(%error, "no tokenizer: special tokens may be in made-up prompts");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Now, in UTC, as vLLM writes it.
fn date() -> Option<String> {
    let now = jiff::Timestamp::from_second(unix_seconds()).ok()?;
    Some(now.strftime("%Y%m%d-%H%M%S").to_string())
}
