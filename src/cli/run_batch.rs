//! `run-batch`: a file of requests through the whole engine at once, a file of responses in the same order.
//!
//! ```text
//! lines ──▶ pass (server::openai reads bodies, the engine answers, server::openai writes bodies) ──▶ rows
//! ```

mod lines;
mod pass;
mod rows;

use super::figures::{rate, tokens_per_second};
use super::load;
use super::progress::{Progress, Unit};
use super::run_batch_args::{RunBatchArgs, RunBatchOptions};
use super::sampling_args::{SamplingArgs, random_seed};
use super::say;
use super::serving;
use crate::clock::{Clock, unix_seconds};
use crate::engine::sampling::SamplingParams;
use crate::error::{Error, Result};
use crate::format::model_files::Description;
use crate::server::openai::Host;
use crate::text::chat::ChatTemplate;
use crate::text::tokenizer::Tokenizer;
use lines::Lines;
use pass::{Naming, Pass, Tally};
use rows::{Kept, Rows};

/// Runs the command.
///
/// # Errors
/// Files that cannot be read or written, an output to resume that is not this input's, whatever keeps the model from running;
/// `Cancelled` when Ctrl-C cut it short. A request that fails is no error: its row says so.
pub(super) fn run_batch(args: &RunBatchArgs) -> Result<()> {
    let options = RunBatchOptions::new(args)?;
    let mut lines = Lines::open(&options.input)?;
    if options.passes > 1 && !lines.is_file() {
        return Err(Error::Usage("--passes: expected an input that can be read again, got no plain file".into()));
    }
    let mut rows = Rows::open(&options.output)?;
    let total = lines.count()?;
    let kept = if options.resume { rows.kept(&mut lines)? } else { Kept::default() };
    if total == Some(kept.rows) {
        rows.begin(&kept)?;
        say(&format!("nothing to do: all {} requests are answered", kept.rows));
        return Ok(());
    }
    let files = load::files(&options.model)?;
    let tokenizer = Tokenizer::new(&files.description, options.model.tokenizer.as_deref())?;
    let template = template(&files.description);
    let defaults = defaults(&files.description);
    let mut serving = serving::open(&files, &options.model, &options.batch, None)?;
    drop(files);
    rows.begin(&kept)?;
    let host = Host {
        model: &serving.model,
        tokenizer: &tokenizer,
        template: template.as_ref(),
        defaults: &defaults,
        context_tokens: serving.context_tokens,
        vocab: serving.vocab,
    };
    let seed = options.model.seed.unwrap_or_else(random_seed);
    let naming = Naming { seed, run: unix_seconds() };
    let waiting_max = options.batch.slots as usize;
    for number in 1..=options.passes {
        let is_last = number == options.passes;
        let clock = Clock::start();
        let mut pass = Pass::new(&mut serving.engine, host, naming, waiting_max, kept.rows);
        let bar = bar(number, options.passes, total);
        let done = pass.run(&mut lines, is_last.then_some(&mut rows), |done| bar.set(done, total.unwrap_or(done)));
        drop(bar);
        let tally = pass.tally();
        say(&figures_line(tally, clock.nanos(), &serving.adapter, serving.tier.name()));
        if is_last && tally.drew_seeds && options.model.seed.is_none() {
            say(&format!("seeds that no request named were drawn: --seed {seed} draws the same"));
        }
        if let Err(error) = done {
            return Err(interrupted(error, &options, kept.rows + if is_last { tally.written } else { 0 }));
        }
        if !is_last {
            lines = Lines::open(&options.input)?;
        }
    }
    Ok(())
}

/// Says what there is when a run ends early.
fn interrupted(error: Error, options: &RunBatchOptions, rows: u64) -> Error {
    say(&format!("{rows} answers are in {}: --resume goes on behind them", options.output.display()));
    error
}

fn bar(pass: u32, passes: u32, total: Option<u64>) -> Progress {
    let what = if passes == 1 { "run-batch".to_owned() } else { format!("pass {pass} of {passes}") };
    match total {
        Some(total) => Progress::bar(&what, total, Unit::Requests),
        None => Progress::spinner(&what),
    }
}

/// The model's template; chats fail one by one where there is none that works.
pub(super) fn template(description: &Description) -> Option<ChatTemplate> {
    ChatTemplate::new(description).unwrap_or_else(|error| {
        tracing::warn!(%error, "requests for chats will fail");
        None
    })
}

/// Sampling as the model's files ask for it.
pub(super) fn defaults(description: &Description) -> SamplingParams {
    let mut params = SamplingParams::default();
    SamplingArgs::default().complete(&mut params, description);
    params.seed = None;
    params
}

fn figures_line(tally: &Tally, nanos: u64, adapter: &str, tier: &str) -> String {
    let speed = tokens_per_second(tally.completion_tokens, nanos).map_or("-".to_owned(), rate);
    let cached = if tally.cached_tokens > 0 { format!(" ({} cached)", tally.cached_tokens) } else { String::new() };
    format!(
        "{} answered, {} failed | {} prompt tokens{cached} | {} answer tokens at {speed} | {adapter} | {tier}",
        tally.answered, tally.failed, tally.prompt_tokens, tally.completion_tokens
    )
}
