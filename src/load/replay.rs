//! Plays a workload against a target and notes when what came back.
//!
//! ```text
//! planned ──▶ due ──▶ a slot is free ──▶ submit ──▶ outputs ──▶ Answer
//!             │       └ latency counts from the later of these two, not from when this loop came round to it
//! ```
//! A target that is slow to take requests must not make its own figures better, so latency counts from the planned arrival.
//! Waiting for one of `max_concurrency` slots is the client's own and, as in vLLM, told apart.
//!
//! Warm-ups go first. With bounded slots each slot passes to a measured request as its warm-up ends, so that the run never
//! drains; otherwise the measured part begins when the last warm-up has ended.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::dataset::{Planned, Workload};
use crate::error::Result;

/// What requests are sent to: the engine, a virtual clock, a server.
pub trait Target {
    /// Takes a request whose latency counts from `arrival_nanos` (not later than now). Ids ascend from 0.
    ///
    /// # Errors
    /// The request is refused. It counts as failed; the run goes on.
    fn submit(&mut self, id: u64, request: &Planned, arrival_nanos: u64) -> Result<()>;

    /// Works or waits, and appends what came out: returns as soon as there is something, or after a bounded time, or when the
    /// clock reaches `until_nanos` (then the next request is due). `None`: nothing is due before something comes out.
    /// A virtual clock with nothing to do jumps to `until_nanos`.
    ///
    /// # Errors
    /// The run ends.
    fn poll(&mut self, until_nanos: Option<u64>, outputs: &mut Vec<Output>) -> Result<()>;

    /// Drops a request. Its outputs are not looked at any more.
    fn cancel(&mut self, id: u64);

    /// The target's clock.
    fn now_nanos(&self) -> u64;
}

/// Something of one request came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The request.
    pub id: u64,
    /// When, by the target's clock; not before the request's last one.
    pub nanos: u64,
    /// Tokens that came; 0 for an end alone.
    pub tokens: u32,
    /// Set when it is the request's last.
    pub end: Option<End>,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// With an answer.
    Done {
        /// Tokens of the prompt as the target counts them, where it tells.
        prompt_tokens: Option<u32>,
        /// Prompt tokens that were in the cache.
        cached_tokens: u32,
        /// The answer, where the target knows it.
        text: Option<String>,
    },
    /// Without.
    Failed(String),
}

/// How a run goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Most requests in flight, warm-ups included; at least 1.
    pub max_concurrency: Option<u32>,
}

/// How far a run is, for a progress bar.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Warm-ups that are over.
    pub warmups: usize,
    /// Measured requests that are done.
    pub done: usize,
    /// Measured requests that failed.
    pub failed: usize,
    /// Measured requests of the workload.
    pub total: usize,
    /// Requests in flight.
    pub in_flight: usize,
    /// Measured answer tokens so far.
    pub output_tokens: u64,
}

/// What became of a measured request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered.
    Done,
    /// It was refused, or failed.
    Failed(String),
    /// The run was stopped before it was sent or answered.
    Stopped,
}

/// A measured request and its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Tokens of the prompt, as the target counted them or as planned.
    pub prompt_tokens: u32,
    /// Of these, tokens that were in the cache.
    pub cached_tokens: u32,
    /// When it was due, by the target's clock.
    pub planned_nanos: u64,
    /// From when latency counts: due, and a slot was free.
    pub arrival_nanos: u64,
    /// When tokens came, and how many.
    pub chunks: Vec<(u64, u32)>,
    /// When it ended.
    pub end_nanos: u64,
    /// The answer, where the target knows it.
    pub text: Option<String>,
    /// What became of it.
    pub outcome: Outcome,
}

/// A run that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// One a measured request, in order of arrival.
    pub answers: Vec<Answer>,
    /// Start of the measured part, by the target's clock.
    pub start_nanos: u64,
    /// From there to the last answer's end.
    pub duration_nanos: u64,
    /// Whether it was stopped before its end.
    pub stopped: bool,
}

/// Plays `workload`. `go_on` is asked after each poll, and gets the progress; when it answers `false`, what is in flight is
/// cancelled and what there is so far is returned.
///
/// # Errors
/// What the target's `poll` returns.
pub fn run<T: Target>(
    target: &mut T,
    workload: &Workload,
    options: Options,
    go_on: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Run> {
    let mut play = Play::new(workload, options, target.now_nanos());
    let mut outputs = Vec::new();
    while !play.is_over() {
        let until = play.submit_due(target);
        // Refused requests may have been the last ones.
        if play.is_over() {
            break;
        }
        outputs.clear();
        target.poll(until, &mut outputs)?;
        outputs.iter().for_each(|output| play.take(output));
        if !go_on(&play.progress) {
            play.stop(target);
        }
    }
    go_on(&play.progress);
    Ok(play.finish())
}

/// A run under way. Ids: first the warm-ups, then the measured requests.
struct Play<'a> {
    workload: &'a Workload,
    /// Index of the next request to be sent.
    next: usize,
    in_flight: usize,
    /// When each free slot became free; `None` without a bound.
    slots: Option<BinaryHeap<Reverse<u64>>>,
    /// When everything sent before had ended, as far as that is known.
    last_end: u64,
    /// Start of the measured part, once it has one.
    start: Option<u64>,
    answers: Vec<Answer>,
    progress: Progress,
    stopped: bool,
}

impl<'a> Play<'a> {
    fn new(workload: &'a Workload, options: Options, now: u64) -> Self {
        let slots = options.max_concurrency.map(|bound| {
            assert!(bound > 0, "no slot at all");
            // More slots than requests are never taken.
            let all = workload.warmups.len() + workload.planned.len();
            let count = usize::try_from(bound).map_or(all, |bound| bound.min(all));
            (0..count).map(|_| Reverse(now)).collect()
        });
        let answers = workload.planned.iter().map(Answer::open).collect();
        let progress = Progress { total: workload.planned.len(), ..Progress::default() };
        Self { workload, next: 0, in_flight: 0, slots, last_end: now, start: None, answers, progress, stopped: false }
    }

    fn all(&self) -> usize {
        self.workload.warmups.len() + self.workload.planned.len()
    }

    fn is_over(&self) -> bool {
        self.stopped || (self.next == self.all() && self.in_flight == 0)
    }

    /// When a slot became free, if one is; without a bound that is always.
    fn free_slot(&self) -> Option<u64> {
        self.slots.as_ref().map_or(Some(0), |slots| slots.peek().map(|Reverse(since)| *since))
    }

    /// Sends what is due; answers when the next one is, if that is known.
    fn submit_due<T: Target>(&mut self, target: &mut T) -> Option<u64> {
        while self.next < self.all() {
            let since = self.free_slot()?;
            let request = match self.next.checked_sub(self.workload.warmups.len()) {
                None => {
                    self.send(target, &self.workload.warmups[self.next], since);
                    continue;
                }
                Some(index) => &self.workload.planned[index],
            };
            let start = self.start(since)?;
            let planned = start.saturating_add(request.arrival_nanos);
            if planned > target.now_nanos() {
                return Some(planned);
            }
            let index = self.next - self.workload.warmups.len();
            self.answers[index].planned_nanos = planned;
            self.answers[index].arrival_nanos = planned.max(since);
            self.send(target, request, planned.max(since));
        }
        None
    }

    /// The measured part's start, as soon as there is one: see the head of this file.
    fn start(&mut self, slot_since: u64) -> Option<u64> {
        let warmed = self.slots.is_some() || self.in_flight == 0;
        if self.start.is_none() && warmed {
            let since = if self.slots.is_some() { slot_since } else { self.last_end };
            self.start = Some(since);
        }
        self.start
    }

    fn send<T: Target>(&mut self, target: &mut T, request: &Planned, arrival_nanos: u64) {
        let id = self.next as u64;
        self.next += 1;
        self.in_flight += 1;
        if let Some(slots) = &mut self.slots {
            slots.pop().expect("a slot was free");
        }
        if let Err(error) = target.submit(id, request, arrival_nanos) {
            let end = Some(End::Failed(error.to_string()));
            self.take(&Output { id, nanos: target.now_nanos(), tokens: 0, end });
        }
        self.progress.in_flight = self.in_flight;
    }

    fn take(&mut self, output: &Output) {
        let Some(index) = usize::try_from(output.id).ok().filter(|index| *index < self.next) else { return };
        let warmups = self.workload.warmups.len();
        match index.checked_sub(warmups) {
            Some(index) => self.take_measured(index, output),
            None => self.progress.warmups += usize::from(output.end.is_some()),
        }
        if output.end.is_some() {
            self.in_flight = self.in_flight.checked_sub(1).expect("a request ends once");
            self.last_end = self.last_end.max(output.nanos);
            if let Some(slots) = &mut self.slots {
                slots.push(Reverse(output.nanos));
            }
        }
        self.progress.in_flight = self.in_flight;
    }

    fn take_measured(&mut self, index: usize, output: &Output) {
        let answer = &mut self.answers[index];
        if output.tokens > 0 {
            answer.chunks.push((output.nanos, output.tokens));
            self.progress.output_tokens += u64::from(output.tokens);
        }
        match &output.end {
            None => return,
            Some(End::Done { prompt_tokens, cached_tokens, text }) => {
                answer.prompt_tokens = prompt_tokens.unwrap_or(answer.prompt_tokens);
                answer.cached_tokens = *cached_tokens;
                answer.text.clone_from(text);
                answer.outcome = Outcome::Done;
                self.progress.done += 1;
            }
            Some(End::Failed(reason)) => {
                answer.outcome = Outcome::Failed(reason.clone());
                self.progress.failed += 1;
            }
        }
        answer.end_nanos = output.nanos;
    }

    /// Cancels what is in flight: what was sent and has not ended.
    fn stop<T: Target>(&mut self, target: &mut T) {
        self.stopped = true;
        let warmups = self.workload.warmups.len();
        for id in 0..self.next {
            // A warm-up that has ended takes a cancellation that means nothing.
            let open = id.checked_sub(warmups).is_none_or(|index| self.answers[index].outcome == Outcome::Stopped);
            if open {
                target.cancel(id as u64);
            }
        }
    }

    fn finish(self) -> Run {
        let start_nanos = self.start.unwrap_or(self.last_end);
        let duration_nanos = self.last_end.saturating_sub(start_nanos);
        Run { answers: self.answers, start_nanos, duration_nanos, stopped: self.stopped }
    }
}

impl Answer {
    /// Of a request that has not been sent.
    fn open(planned: &Planned) -> Self {
        Self {
            prompt_tokens: planned.prompt_tokens,
            cached_tokens: 0,
            planned_nanos: planned.arrival_nanos,
            arrival_nanos: planned.arrival_nanos,
            chunks: Vec::new(),
            end_nanos: planned.arrival_nanos,
            text: None,
            outcome: Outcome::Stopped,
        }
    }

    /// Tokens of the answer.
    #[must_use]
    pub fn output_tokens(&self) -> u64 {
        self.chunks.iter().map(|(_, tokens)| u64::from(*tokens)).sum()
    }
}
