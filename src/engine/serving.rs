//! The engine loop: requests in, tokens out, a step in flight while the last one's tokens are read.
//!
//! ```text
//! submit -> scheduler -> plan -> executor.submit ... executor.poll -> apply -> outputs
//! ```
//!
//! Sampled ids stay on the device and feed the next step, so step n + 1 is submitted before the tokens of step n are known
//! here; what a request that ended in between has computed is thrown away. The same loop runs on a GPU, on the CPU twin and on
//! a fake, by any clock.

use std::collections::{BTreeMap, VecDeque};

use super::event::{self, Event};
use super::executor::{Executor, StepOutput};
use super::fit::{self, Fit, Terms};
use super::live::{self, Live};
use super::pool::Pool;
use super::request::{FinishReason, Output, Request, RequestId, Token};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::kernels::argmax::NOT_FINITE;
use crate::limits::STEPS_AHEAD;
use crate::model::Extent;
use crate::recording::Ticket;
use crate::sched::{self, CostModel, NewRequest, Refusal, RowKind, Scheduler, Step, StepRows};

/// How an engine is set up.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// The scheduler's part.
    pub sched: sched::Config,
    /// Ids are below it.
    pub vocab: u32,
    /// What tells this model's K and V from any other's; part of every cache key.
    pub model_digest: [u8; 32],
    /// Steps submitted ahead of the one that is read; [`STEPS_AHEAD`] unless a test wants another.
    pub steps_ahead: u32,
    /// What steps are guessed to cost before any was seen.
    pub prior: CostModel,
    /// Whether the guess is replaced by what steps turn out to cost.
    pub learns: bool,
}

impl EngineConfig {
    /// A set-up with the usual number of steps ahead, learning its cost model.
    #[must_use]
    pub fn new(sched: sched::Config, vocab: u32, model_digest: [u8; 32]) -> Self {
        Self { sched, vocab, model_digest, steps_ahead: STEPS_AHEAD, prior: CostModel::default(), learns: true }
    }
}

/// Nanoseconds since the engine's start.
pub type Now = Box<dyn Fn() -> u64>;
/// Takes the events of a trace.
pub type Observer = Box<dyn FnMut(&Event)>;

/// A step that is submitted and not applied.
struct Flight {
    n: u64,
    ticket: Ticket,
    rows: Vec<StepRows>,
    /// Where each of the hidden states begins that it brings.
    pooled: Vec<(RequestId, u32)>,
    terms: Terms,
    submitted: u64,
    /// Its end was seen late, because kernels of the step behind it were built meanwhile.
    is_seen_late: bool,
    pages_used: u32,
    waiting: u32,
}

/// Takes requests, runs steps, yields tokens.
pub struct Engine {
    config: EngineConfig,
    scheduler: Scheduler,
    executor: Box<dyn Executor>,
    now: Now,
    observer: Option<Observer>,
    live: BTreeMap<RequestId, Live>,
    flights: VecDeque<Flight>,
    outputs: VecDeque<Output>,
    fit: Fit,
    next_id: RequestId,
    /// When the step applied last was seen to be done.
    last_end: u64,
}

impl Engine {
    /// An idle engine whose clock starts now.
    #[must_use]
    pub fn new(config: EngineConfig, executor: Box<dyn Executor>) -> Self {
        let clock = Clock::start();
        Self::with_clock(config, executor, Box::new(move || clock.nanos()))
    }

    /// An idle engine that asks `now` for the time.
    #[must_use]
    pub fn with_clock(config: EngineConfig, executor: Box<dyn Executor>, now: Now) -> Self {
        let mut scheduler = Scheduler::new(config.sched.clone());
        scheduler.set_cost(config.prior);
        let fit = Fit::new(config.prior);
        Self {
            config,
            scheduler,
            executor,
            now,
            observer: None,
            live: BTreeMap::new(),
            flights: VecDeque::new(),
            outputs: VecDeque::new(),
            fit,
            next_id: 0,
            last_end: 0,
        }
    }

    /// Tells `observer` of every event from now on.
    pub fn observe(&mut self, observer: Observer) {
        self.observer = Some(observer);
    }

    /// Nanoseconds since the engine's start.
    #[must_use]
    pub fn now_nanos(&self) -> u64 {
        (self.now)()
    }

    /// The scheduler, for figures and checks.
    #[must_use]
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// The cost model as fitted so far.
    pub fn fit(&mut self) -> &mut Fit {
        &mut self.fit
    }

    /// Another policy from the next step on.
    ///
    /// # Panics
    /// Unless the engine is idle.
    pub fn set_policy(&mut self, policy: sched::Policy) {
        self.config.sched.policy = policy;
        self.scheduler.set_policy(policy);
    }

    /// Whether nothing is to be done and nothing to be taken.
    #[must_use]
    pub fn idle(&self) -> bool {
        self.scheduler.idle() && self.outputs.is_empty()
    }

    /// Takes a request into the queue.
    ///
    /// # Errors
    /// `Request` for ids outside the vocabulary, an empty prompt or parameters outside their range; `ContextFull`; `Busy` when
    /// the queue is full. Nothing is changed then.
    pub fn submit(&mut self, request: Request) -> Result<RequestId> {
        let vocab = self.config.vocab;
        if let Some(at) = request.prompt.iter().position(|&id| id >= vocab) {
            let got = request.prompt[at];
            let message = format!("token id: expected below the vocabulary of {vocab}, got {got} (place {at})");
            return Err(Error::Request(message));
        }
        let rules = request.sampling.rules(vocab)?;
        let unending = live::unending(&rules, &request.stop_ids, request.min_tokens)?;
        let id = self.next_id;
        let prompt_tokens = u32::try_from(request.prompt.len()).unwrap_or(u32::MAX);
        let room = self.config.sched.context_tokens.saturating_sub(prompt_tokens);
        let max_tokens = request.max_tokens.unwrap_or(u32::MAX).min(room);
        if request.max_tokens == Some(0) {
            return Err(Error::Request("max_tokens: expected at least 1, got 0".into()));
        }
        let salt = live::salt(&self.config.model_digest, request.cache_salt.as_deref(), request.pool.then_some(id));
        let (priority, tenant) = (request.priority, request.tenant);
        let t = request.arrived_nanos.unwrap_or_else(|| self.now_nanos());
        self.scheduler
            .submit(NewRequest { id, prompt: request.prompt, max_tokens, priority, tenant, salt })
            .map_err(refused)?;
        self.next_id += 1;
        self.tell(&Event::Arrive { t, id, prompt_tokens, max_tokens, priority });
        let live = Live {
            rules,
            unending,
            seed: request.sampling.seed.unwrap_or(0),
            choice: request.choice,
            logprobs: request.sampling.logprobs,
            stop_ids: request.stop_ids,
            prompt_tokens,
            made: 0,
            pages_known: 0,
            pool: request.pool.then(Pool::default),
        };
        self.live.insert(id, live);
        Ok(id)
    }

    /// Ends a request in any state; `false` if it is not here. Its pages are free when its last step in flight is applied.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        if !self.live.contains_key(&id) {
            return false;
        }
        self.scheduler.cancel(id);
        let t = self.now_nanos();
        self.tell(&Event::Cancel { t, id });
        self.finish(id, FinishReason::Cancelled, t);
        true
    }

    /// Ends a request whose answer is complete by a rule of the caller's, such as a stop string; `false` if it is not here.
    pub fn stop(&mut self, id: RequestId) -> bool {
        if !self.live.contains_key(&id) {
            return false;
        }
        self.scheduler.finish(id);
        let t = self.now_nanos();
        self.finish(id, FinishReason::Stop, t);
        true
    }

    /// What happened next, if it was seen already.
    pub fn next_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Takes what is done and begins what can be begun, without waiting.
    ///
    /// # Errors
    /// The device's. Every request is then back in the queue; see [`Engine::replace_executor`].
    pub fn poll(&mut self) -> Result<()> {
        while let Some(flight) = self.flights.front() {
            let polled = self.executor.poll(flight.ticket);
            match self.kept(polled)? {
                Some(output) => self.apply(output),
                None => break,
            }
        }
        self.fill()
    }

    /// As [`Engine::poll`], but waits for the oldest step in flight. Not callable in a page.
    ///
    /// # Errors
    /// As [`Engine::poll`].
    pub fn wait(&mut self) -> Result<()> {
        self.fill()?;
        if let Some(flight) = self.flights.front() {
            let waited = self.executor.wait(flight.ticket);
            let output = self.kept(waited)?;
            self.apply(output);
        }
        self.fill()
    }

    /// Does a piece of the work that nobody waits for, of what steps of `extent` launch; `false` when none is left. For when the engine
    /// is idle: steps that need it find it done.
    ///
    /// # Errors
    /// The device's.
    pub fn work_ahead(&mut self, extent: Extent) -> Result<bool> {
        self.executor.work_ahead(extent)
    }

    /// Goes on with another executor, after an error: all requests start over, with the tokens they have.
    pub fn replace_executor(&mut self, executor: Box<dyn Executor>) {
        self.give_up_flights();
        self.executor = executor;
    }

    /// Begins steps until enough are in flight.
    fn fill(&mut self) -> Result<()> {
        while self.flights.len() <= self.config.steps_ahead as usize {
            let Some(step) = self.scheduler.plan() else { return Ok(()) };
            self.begin(step)?;
        }
        Ok(())
    }

    fn begin(&mut self, step: Step) -> Result<()> {
        let t = self.now_nanos();
        for &id in &step.preempted {
            self.tell(&Event::Preempt { t, id });
        }
        for one in &step.admitted {
            let (id, cached_tokens) = (one.id, one.cached_tokens);
            if let Some(live) = self.live.get_mut(&id) {
                live.pages_known = 0;
            }
            if one.resumed {
                self.tell(&Event::Resume { t, id });
            }
            let miss = one.miss.map(event_miss);
            self.tell(&Event::Admit { t, id, cached_tokens, miss });
            self.outputs.push_back(Output::Admitted { id, cached_tokens, nanos: t });
        }
        self.executor.expect(self.fit.expected_nanos(&fit::terms(&step.rows)));
        let pools = |row: &&StepRows| self.live.get(&row.id).is_some_and(|live| live.pool.is_some());
        let pooled = step.rows.iter().filter(pools).map(|row| (row.id, row.from)).collect();
        let submitted = self.executor.submit(&live::serving_rows(&self.scheduler, &self.live, &step));
        let ticket = match submitted {
            Ok(ticket) => ticket,
            Err(error) => {
                self.give_up_flights();
                return Err(error);
            }
        };
        for row in &step.rows {
            if let Some(live) = self.live.get_mut(&row.id) {
                live.pages_known = live::pages_of(row.from + row.tokens);
            }
        }
        let Step { n, rows, pages_used, waiting, .. } = step;
        let terms = fit::terms(&rows);
        let building = self.executor.building_nanos();
        self.flights.iter_mut().for_each(|flight| flight.is_seen_late |= building > 0);
        let (submitted, is_seen_late) = (t + building, false);
        self.flights.push_back(Flight { n, ticket, rows, pooled, terms, submitted, is_seen_late, pages_used, waiting });
        Ok(())
    }

    /// The results of the oldest step in flight.
    fn apply(&mut self, output: StepOutput) {
        let flight = self.flights.pop_front().expect("the caller saw it");
        let t1 = self.now_nanos();
        let t0 = flight.submitted.max(self.last_end);
        self.last_end = t1;
        let last: Vec<StepRows> = flight.rows.iter().copied().filter(|row| row.last).collect();
        assert_eq!(last.len(), output.sampled.len(), "tokens of step {}", flight.n);
        let results: Vec<_> = last.iter().zip(&output.sampled).map(|(row, sampled)| (row.id, sampled.id)).collect();
        let full = self.scheduler.apply(flight.n, &results).finished;
        self.tell_step(&flight, t0, t1, output.gpu_nanos);
        for row in flight.rows.iter().filter(|row| !row.last && self.live.contains_key(&row.id)) {
            self.outputs.push_back(Output::Prefilled { id: row.id, tokens: row.from + row.tokens });
        }
        assert_eq!(flight.pooled.len(), output.pooled.len(), "hidden states of step {}", flight.n);
        for (&(id, from), states) in flight.pooled.iter().zip(&output.pooled) {
            if let Some(pool) = self.live.get_mut(&id).and_then(|live| live.pool.as_mut()) {
                pool.take(from, states);
            }
        }
        for (row, sampled) in last.iter().zip(output.sampled) {
            self.take_token(row.id, sampled, t1, full.contains(&row.id));
        }
        if flight.is_seen_late {
            return;
        }
        if let Some(cost) = self.fit.observe(&flight.terms, t1 - t0).filter(|_| self.config.learns) {
            self.scheduler.set_cost(cost);
            let CostModel { a, b, c, d } = cost;
            self.tell(&Event::Cost { t: t1, a, b, c, d });
        }
    }

    /// One token of a request, unless it ended while the step was in flight.
    fn take_token(&mut self, id: RequestId, sampled: crate::kernels::sample::Sampled, t: u64, full: bool) {
        let Some(live) = self.live.get_mut(&id) else { return };
        let mean = live.pool.as_ref().map(Pool::mean);
        if sampled.id == NOT_FINITE || mean == Some(None) {
            self.scheduler.cancel(id);
            self.finish(id, FinishReason::NotFinite, t);
            return;
        }
        if let Some(mean) = mean.flatten() {
            self.outputs.push_back(Output::Pooled { id, mean });
            if !full {
                self.scheduler.finish(id);
            }
            self.finish(id, FinishReason::Stop, t);
            return;
        }
        live.made += 1;
        let stopped = live.stop_ids.contains(&sampled.id);
        let token = Token { id: sampled.id, logprob: sampled.logprob, top: sampled.top, nanos: t };
        self.outputs.push_back(Output::Token { id, token });
        if stopped && !full {
            self.scheduler.finish(id);
        }
        if stopped || full {
            self.finish(id, if stopped { FinishReason::Stop } else { FinishReason::Length }, t);
        }
    }

    fn finish(&mut self, id: RequestId, reason: FinishReason, t: u64) {
        let Some(live) = self.live.remove(&id) else { return };
        self.outputs.push_back(Output::Finished { id, reason });
        self.tell(&Event::Finish { t, id, reason: reason.name().to_owned(), output_tokens: live.made });
        if self.scheduler.idle() {
            self.scheduler.check();
        }
    }

    /// Passes a result on; an error gives up all steps in flight first.
    fn kept<T>(&mut self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.give_up_flights();
        }
        result
    }

    fn give_up_flights(&mut self) {
        self.flights.clear();
        let t = self.now_nanos();
        for id in self.scheduler.device_lost() {
            self.tell(&Event::Preempt { t, id });
        }
    }

    fn tell(&mut self, event: &Event) {
        if let Some(observer) = &mut self.observer {
            observer(event);
        }
    }

    fn tell_step(&mut self, flight: &Flight, t0: u64, t1: u64, gpu_ns: Option<u64>) {
        if self.observer.is_none() {
            return;
        }
        let rows = flight.rows.iter().map(|row| event::StepRow {
            id: row.id,
            kind: match row.kind {
                RowKind::Prefill => event::RowKind::Prefill,
                RowKind::Decode => event::RowKind::Decode,
            },
            from: row.from,
            tokens: row.tokens,
            accepted: None,
        });
        let (n, pages_used, waiting) = (flight.n, flight.pages_used, flight.waiting);
        self.tell(&Event::Step { t0, t1, gpu_ns, n, rows: rows.collect(), pages_used, waiting });
    }
}

fn refused(refusal: Refusal) -> Error {
    match refusal {
        Refusal::ContextFull { prompt_tokens, context_tokens } => {
            Error::ContextFull { prompt_tokens, context_tokens: u64::from(context_tokens) }
        }
        Refusal::QueueFull { .. } | Refusal::QueueTokensFull { .. } => Error::Busy(refusal.to_string()),
        Refusal::PoolTooSmall { .. } | Refusal::Empty => Error::Request(refusal.to_string()),
    }
}

fn event_miss(miss: sched::Miss) -> event::Miss {
    let reason = match miss.reason {
        sched::MissReason::New => event::MissReason::New,
        sched::MissReason::Evicted => event::MissReason::Evicted,
        sched::MissReason::Differs => event::MissReason::Differs,
    };
    event::Miss { reason, at: miss.at }
}
