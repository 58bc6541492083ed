//! A workload played against an engine or a server and its figures printed: what `replay` and `sim` share.

use super::interrupt;
use super::output::Output;
use super::progress::{Progress, Unit};
use super::replay_args::WorkloadOptions;
use super::say;
use crate::error::{Error, Result};
use crate::load::dataset::{Dataset, Workload};
use crate::load::replay::{self, Outcome, Run, Target};
use crate::load::report::{Report, Settings};

/// What the result says of itself.
pub(super) struct Origin {
    /// When it was made; a simulation has no date.
    pub(super) date: Option<String>,
    /// What was asked.
    pub(super) backend: &'static str,
    /// The model.
    pub(super) model: String,
    /// What made prompts of texts, or texts of ids.
    pub(super) tokenizer: Option<String>,
    /// Where it ran, for people.
    pub(super) place: String,
}

/// Plays `workload` and prints the figures; after Ctrl-C those of what was done by then.
///
/// # Errors
/// The target's; `Cancelled` after Ctrl-C; `Request` when no request at all was answered.
pub(super) fn play<T: Target>(
    target: &mut T,
    workload: &Workload,
    options: &WorkloadOptions,
    origin: Origin,
) -> Result<()> {
    let bar = Progress::bar("replaying", workload.planned.len() as u64, Unit::Requests);
    let run = replay::run(target, workload, options.replay, &mut |progress| {
        bar.set((progress.done + progress.failed) as u64, progress.total as u64);
        !interrupt::is_pressed()
    });
    drop(bar);
    let run = run?;
    let settings = Settings {
        date: origin.date,
        backend: origin.backend.into(),
        model_id: origin.model,
        tokenizer_id: origin.tokenizer,
        arrivals: options.spec.arrivals,
        max_concurrency: options.replay.max_concurrency,
        goodput: options.goodput,
        percentiles: options.percentiles.clone(),
        detailed: options.detailed,
    };
    let report = Report::new(&run, &settings);
    let mut out = Output::stdout();
    if options.json {
        out.json(&report.json())?
    } else {
        out.text(&report.text())?
    }
    say(&origin.place);
    verdict(&run)
}

/// Tells of requests that failed; an error when there is nothing else.
fn verdict(run: &Run) -> Result<()> {
    let mut failures = run.answers.iter().filter_map(|answer| match &answer.outcome {
        Outcome::Failed(reason) => Some(reason),
        _ => None,
    });
    if run.stopped {
        return Err(Error::Cancelled);
    }
    let Some(first) = failures.next() else { return Ok(()) };
    let count = 1 + failures.count();
    let message = format!("{count} of {} requests failed, the first one: {first}", run.answers.len());
    if count == run.answers.len() {
        return Err(Error::Request(message));
    }
    say(&message);
    Ok(())
}

impl WorkloadOptions {
    /// Whether prompts are texts.
    pub(super) fn is_text(&self) -> bool {
        matches!(self.spec.dataset, Dataset::ShareGpt { .. })
    }
}
