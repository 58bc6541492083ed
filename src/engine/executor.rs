//! What computes steps: a model on a player (a GPU or the CPU twin), or in tests anything.

use std::collections::HashMap;

use super::tune::Tuner;
use crate::clock::{Clock, millis_from_nanos};
use crate::error::Result;
use crate::kernels::sample::Sampled;
use crate::kernels::{Kernel, Tape};
use crate::limits;
use crate::model::{Extent, Model, ServingAnswer, ServingRows};
use crate::recording::{Played, Player, Ticket};

/// What a step yielded.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StepOutput {
    /// A token for each sequence with a `sample`, in their order.
    pub sampled: Vec<Sampled>,
    /// For each sequence with `pool`, in their order, the last hidden state of each of its rows.
    pub pooled: Vec<Vec<Vec<f32>>>,
    /// Time on the device, where it can tell.
    pub gpu_nanos: Option<u64>,
}

/// Computes steps in the order in which they are submitted.
pub trait Executor {
    /// What the step that is submitted next is predicted to last.
    fn expect(&mut self, _nanos: u64) {}

    /// Begins a step and returns at once.
    ///
    /// # Errors
    /// The device's; then none of the steps in flight yields anything.
    fn submit(&mut self, rows: &[ServingRows<'_>]) -> Result<Ticket>;

    /// The result of a step if it is there. Each ticket is answered once.
    ///
    /// # Errors
    /// As [`Executor::submit`].
    fn poll(&mut self, ticket: Ticket) -> Result<Option<StepOutput>>;

    /// Waits for the result. Not callable in a page.
    ///
    /// # Errors
    /// As [`Executor::submit`].
    fn wait(&mut self, ticket: Ticket) -> Result<StepOutput>;

    /// What the step that was submitted last waited for kernels that no step had used before: no part of what such steps take.
    fn building_nanos(&self) -> u64 {
        0
    }

    /// Does a piece of the work that nobody waits for, while nothing else is to be done; `false` when none is left.
    ///
    /// # Errors
    /// As [`Executor::submit`].
    fn work_ahead(&mut self, _extent: Extent) -> Result<bool> {
        Ok(false)
    }
}

/// A model and the player that holds it.
pub struct ModelExecutor {
    model: Model,
    player: Box<dyn Player<Kernel>>,
    /// Builds kernels when steps need them; without one they were all built before.
    tuner: Option<Tuner>,
    building_nanos: u64,
    tape: Tape,
    pending: HashMap<Ticket, ServingAnswer>,
    /// Longest that one submit should keep the device.
    max_submit_nanos: u64,
    /// What the next step is predicted to last.
    expected_nanos: u64,
}

impl ModelExecutor {
    /// Builds all kernels that the model uses, unchecked. The model was loaded to sample.
    ///
    /// # Errors
    /// A kernel that the driver refuses, or a lost device.
    pub fn new(model: Model, mut player: Box<dyn Player<Kernel>>) -> Result<Self> {
        let (kernels, clock) = (model.kernels(Extent::All), Clock::start());
        player.prepare(&kernels)?;
        let ms = millis_from_nanos(clock.nanos());
        tracing::info!(kernels = kernels.len(), ms, "kernels are built");
        Ok(Self::over(model, player, None))
    }

    /// Kernels are compiled, unchecked, when the first step needs them: for a page, where no check can be waited for.
    #[must_use]
    pub fn unchecked(model: Model, player: Box<dyn Player<Kernel>>) -> Self {
        Self::over(model, player, None)
    }

    /// Builds and checks kernels by `tuner`, before the first step that launches them, as far as they are not built yet.
    #[must_use]
    pub fn tuned(model: Model, player: Box<dyn Player<Kernel>>, tuner: Tuner) -> Self {
        Self::over(model, player, Some(tuner))
    }

    fn over(model: Model, player: Box<dyn Player<Kernel>>, tuner: Option<Tuner>) -> Self {
        let (tape, pending) = (Tape::new(), HashMap::new());
        let max_submit_nanos = limits::MAX_SUBMIT_MS * 1_000_000;
        Self { model, player, tuner, building_nanos: 0, tape, pending, max_submit_nanos, expected_nanos: 0 }
    }

    /// Another bound for one submit: steps that are predicted to last longer become several.
    #[must_use]
    pub fn with_max_submit_nanos(self, nanos: u64) -> Self {
        Self { max_submit_nanos: nanos, ..self }
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The player.
    #[must_use]
    pub fn player(&self) -> &dyn Player<Kernel> {
        self.player.as_ref()
    }

    fn record(&mut self, rows: &[ServingRows<'_>]) -> ServingAnswer {
        self.tape.clear();
        let answer = self.model.record_serving(&mut self.tape, rows);
        self.tape.cut(self.expected_nanos, self.max_submit_nanos);
        answer
    }

    /// Builds what the recorded step lacks; whether it must be recorded anew, because it may take other variants now.
    fn build_missing(&mut self, rows: &[ServingRows<'_>]) -> Result<bool> {
        self.building_nanos = 0;
        let Some(tuner) = &mut self.tuner else { return Ok(false) };
        if self.tape.dispatches().all(|dispatch| tuner.is_built(dispatch.kernel)) {
            return Ok(false);
        }
        let clock = Clock::start();
        tuner.build_for(&mut self.model, self.player.as_mut(), &|model| model.step_kernels(rows))?;
        self.building_nanos = clock.nanos();
        tracing::debug!(ms = millis_from_nanos(self.building_nanos), "kernels of a step are built and checked");
        Ok(true)
    }
}

fn output(answer: &ServingAnswer, played: &Played) -> StepOutput {
    let (sampled, pooled) = (answer.sampled(&played.words), answer.pooled(&played.words));
    StepOutput { sampled, pooled, gpu_nanos: played.gpu_nanos }
}

impl Executor for ModelExecutor {
    fn expect(&mut self, nanos: u64) {
        self.expected_nanos = nanos;
    }

    fn submit(&mut self, rows: &[ServingRows<'_>]) -> Result<Ticket> {
        let mut answer = self.record(rows);
        if self.build_missing(rows)? {
            answer = self.record(rows);
        }
        let ticket = self.player.submit(&self.tape)?;
        self.pending.insert(ticket, answer);
        Ok(ticket)
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Option<StepOutput>> {
        let Some(played) = self.player.poll(ticket)? else { return Ok(None) };
        let answer = self.pending.remove(&ticket).expect("a ticket is answered once");
        Ok(Some(output(&answer, &played)))
    }

    fn wait(&mut self, ticket: Ticket) -> Result<StepOutput> {
        let played = self.player.wait(ticket)?;
        let answer = self.pending.remove(&ticket).expect("a ticket is answered once");
        Ok(output(&answer, &played))
    }

    fn building_nanos(&self) -> u64 {
        self.building_nanos
    }

    fn work_ahead(&mut self, extent: Extent) -> Result<bool> {
        let Some(tuner) = &mut self.tuner else { return Ok(false) };
        tuner.work(&mut self.model, self.player.as_mut(), extent)
    }
}
