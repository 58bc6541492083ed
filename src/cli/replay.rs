//! `replay`: a workload of many requests against the engine in this process.

use std::time::Duration;

use super::args::ReplayArgs;
use super::options::ModelOptions;
use super::play::{self, Origin};
use super::replay_args::WorkloadOptions;
use super::{later, load, serving};
use crate::clock::unix_seconds;
use crate::error::Result;
use crate::format::model_files::ModelFiles;
use crate::load::dataset::Vocabulary;
use crate::load::engine_target::{Decode, EngineTarget};
use crate::model::Outline;
use crate::text::tokenizer::Tokenizer;

/// Longest sleep between two looks at Ctrl-C.
const NAP_NANOS_MAX: u64 = 50_000_000;

/// Runs the command.
///
/// # Errors
/// Wrong flags or files, whatever keeps the model from being loaded, and those of [`play::play`].
pub(super) fn replay(args: &ReplayArgs) -> Result<()> {
    if args.url.is_some() {
        return Err(later::error("replay --url"));
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
        model: serving.model.clone(),
        place: format!("{} | {}", serving.adapter, serving.tier.name()),
    };
    let mut nap = |now: u64, until: u64| {
        std::thread::sleep(Duration::from_nanos(until.saturating_sub(now).min(NAP_NANOS_MAX)));
    };
    let target = EngineTarget::new(&mut serving.engine, ends.iter().copied().collect(), &mut nap, decode);
    play::play(target, &workload, &options, origin)
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
