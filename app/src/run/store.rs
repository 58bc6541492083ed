//! The events of a run, put where drawing and figures find them.

use std::collections::HashMap;

use twostroke::engine::event::{Event, RowKind, StepRow};
use twostroke::sched::CostModel;
use twostroke::trace::Tokens;

use super::levels::Levels;
use super::request::{Mark, MarkKind, Request, State};
use super::rows::{Row, Rows};

/// Steps that are kept; beyond, the oldest quarter goes.
const STEPS_MAX: usize = 4 << 20;

/// A step of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Its start, in nanoseconds since the engine's.
    pub t0: u64,
    /// When its result was seen.
    pub t1: u64,
    /// Time on the GPU; 0 when it is not known.
    pub gpu_nanos: u64,
    /// Prompt tokens that it computed.
    pub prefill_tokens: u32,
    /// Requests of which it decoded a token.
    pub decode_rows: u32,
    /// Pages in use.
    pub pages_used: u32,
    /// Requests that waited.
    pub waiting: u32,
}

impl Step {
    /// How long it took.
    #[must_use]
    pub fn nanos(&self) -> u64 {
        self.t1.saturating_sub(self.t0)
    }

    /// Whether it served both strokes.
    #[must_use]
    pub fn is_mixed(&self) -> bool {
        self.prefill_tokens > 0 && self.decode_rows > 0
    }
}

/// A run.
#[derive(Debug)]
pub struct Store {
    meta: Option<Event>,
    /// The first is number `folded_steps`.
    steps: Vec<Step>,
    levels: Levels,
    /// By arrival.
    requests: Vec<Request>,
    by_id: HashMap<u64, usize>,
    folded_steps: u32,
    folded_requests: u64,
    steps_max: usize,
    end: u64,
    events: u64,
    cost: Option<CostModel>,
}

impl Default for Store {
    fn default() -> Self {
        Self::with_steps_max(STEPS_MAX)
    }
}

impl Store {
    /// An empty run that keeps at most `steps_max` steps.
    #[must_use]
    pub fn with_steps_max(steps_max: usize) -> Self {
        let (steps, requests, by_id) = (Vec::new(), Vec::new(), HashMap::new());
        let levels = Levels::default();
        Self {
            meta: None,
            steps,
            levels,
            requests,
            by_id,
            folded_steps: 0,
            folded_requests: 0,
            steps_max: steps_max.max(4),
            end: 0,
            events: 0,
            cost: None,
        }
    }

    /// What ran, if the trace says so.
    #[must_use]
    pub fn meta(&self) -> Option<&Event> {
        self.meta.as_ref()
    }

    /// Requests by arrival.
    #[must_use]
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// The request that the engine calls `id`.
    #[must_use]
    pub fn request(&self, id: u64) -> Option<&Request> {
        self.by_id.get(&id).map(|at| &self.requests[*at])
    }

    /// The steps that are kept, in their order.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Groups of steps.
    #[must_use]
    pub fn levels(&self) -> &Levels {
        &self.levels
    }

    /// Number of the first step that is kept.
    #[must_use]
    pub fn first_step(&self) -> u32 {
        self.folded_steps
    }

    /// The step of this number, unless it was folded.
    #[must_use]
    pub fn step(&self, number: u32) -> Option<&Step> {
        self.steps.get(usize::try_from(number.checked_sub(self.folded_steps)?).ok()?)
    }

    /// Steps and requests that are no longer kept.
    #[must_use]
    pub fn folded(&self) -> (u32, u64) {
        (self.folded_steps, self.folded_requests)
    }

    /// Time of the newest event.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// What the engine found steps to cost, the newest.
    #[must_use]
    pub fn cost(&self) -> Option<CostModel> {
        self.cost
    }

    /// Events taken.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// What it takes of memory, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let one = |request: &Request| {
            size_of::<Request>() + request.rows.bytes() + request.marks.capacity() * size_of::<Mark>()
        };
        let by_id = self.by_id.capacity() * size_of::<(u64, usize, u64)>();
        let requests: usize = self.requests.iter().map(one).sum();
        self.steps.capacity() * size_of::<Step>() + self.levels.bytes() + requests + by_id
    }

    /// Takes the next event. Events of requests that never arrived, and times that go back, change nothing that is drawn wrong: a
    /// trace may come from anywhere.
    pub fn take(&mut self, event: &Event) {
        self.events += 1;
        match event {
            Event::Meta { .. } => self.meta = Some(event.clone()),
            Event::Arrive { t, id, prompt_tokens, max_tokens, priority } => {
                self.arrive(*t, *id, *prompt_tokens, *max_tokens, *priority);
            }
            Event::Admit { t, id, cached_tokens, miss } => {
                let kind = MarkKind::Admit { cached_tokens: *cached_tokens, miss: *miss };
                self.mark(*t, *id, kind, Some(State::Prefilling));
            }
            Event::Step { t0, t1, gpu_ns, rows, pages_used, waiting, .. } => {
                let of = |kind: RowKind| rows.iter().filter(move |row| row.kind == kind);
                let prefill_tokens = of(RowKind::Prefill).fold(0, |sum: u32, row| sum.saturating_add(row.tokens));
                let decode_rows = rows.len() - of(RowKind::Prefill).count();
                let step = Step {
                    t0: *t0,
                    t1: *t1,
                    gpu_nanos: gpu_ns.unwrap_or(0),
                    prefill_tokens,
                    decode_rows: u32::try_from(decode_rows).unwrap_or(u32::MAX),
                    pages_used: *pages_used,
                    waiting: *waiting,
                };
                self.step_taken(step, rows);
            }
            Event::Cost { t, a, b, c, d } => {
                self.end = self.end.max(*t);
                self.cost = Some(CostModel { a: *a, b: *b, c: *c, d: *d });
            }
            Event::Preempt { t, id } => self.mark(*t, *id, MarkKind::Preempt, Some(State::Preempted)),
            Event::Resume { t, id } => self.mark(*t, *id, MarkKind::Resume, Some(State::Prefilling)),
            Event::Cancel { t, id } => self.over(*t, *id, MarkKind::Cancel, State::Cancelled),
            Event::Finish { t, id, reason, .. } => {
                self.over(*t, *id, MarkKind::Finish, State::Finished(reason.clone()));
            }
        }
    }

    fn arrive(&mut self, t: u64, id: u64, prompt_tokens: u32, max_tokens: u32, priority: i32) {
        self.end = self.end.max(t);
        let request = Request {
            id,
            arrive: t,
            end: None,
            prompt_tokens,
            max_tokens,
            priority,
            state: State::Queued,
            rows: Rows::default(),
            marks: Vec::new(),
            first_last: None,
            tokens: Tokens::new(prompt_tokens),
        };
        self.by_id.insert(id, self.requests.len());
        self.requests.push(request);
    }

    fn live(&mut self, id: u64) -> Option<&mut Request> {
        let at = *self.by_id.get(&id)?;
        Some(&mut self.requests[at]).filter(|request| !request.state.is_over())
    }

    fn mark(&mut self, t: u64, id: u64, kind: MarkKind, state: Option<State>) {
        self.end = self.end.max(t);
        let Some(request) = self.live(id) else { return };
        request.marks.push(Mark { t, kind });
        if let Some(state) = state {
            request.state = state;
        }
    }

    fn over(&mut self, t: u64, id: u64, kind: MarkKind, state: State) {
        self.mark(t, id, kind, Some(state));
        let Some(at) = self.by_id.get(&id) else { return };
        let request = &mut self.requests[*at];
        request.end.get_or_insert(t);
        request.rows.shrink_to_fit();
        request.marks.shrink_to_fit();
    }

    fn step_taken(&mut self, step: Step, rows: &[StepRow]) {
        if self.steps.len() >= self.steps_max {
            self.fold();
        }
        self.end = self.end.max(step.t1);
        let number = self.folded_steps + u32::try_from(self.steps.len()).expect("bounded by STEPS_MAX");
        self.steps.push(step);
        self.levels.push(&step);
        for row in rows {
            let Some(request) = self.live(row.id) else { continue };
            let discarded = request.state == State::Preempted;
            // A step has one row of a request; a trace that says otherwise is not ours.
            if request.rows.last().is_some_and(|last| last.step == number) {
                continue;
            }
            request.rows.push(Row::new(number, row, discarded));
            if discarded || request.tokens.take(row) == 0 {
                continue;
            }
            request.state = State::Decoding;
            match &mut request.first_last {
                Some((_, last)) => *last = step.t1,
                None => {
                    request.first_last = Some((step.t1, step.t1));
                    request.marks.push(Mark { t: step.t1, kind: MarkKind::First });
                }
            }
        }
    }

    /// Lets the oldest quarter of the steps go, and the requests that ended in it.
    fn fold(&mut self) {
        let count = self.steps.len() / 4;
        let until = self.steps[count - 1].t1;
        self.steps.drain(..count);
        self.folded_steps = self.folded_steps.checked_add(u32::try_from(count).expect("bounded")).expect("2^32 steps");
        self.levels = Levels::of(&self.steps);
        let (first, before) = (self.folded_steps, self.requests.len());
        self.requests.retain(|request| request.end.is_none_or(|end| end > until));
        self.requests.iter_mut().for_each(|request| request.rows.drop_before(first));
        self.folded_requests += (before - self.requests.len()) as u64;
        self.by_id = self.requests.iter().enumerate().map(|(at, request)| (request.id, at)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: u64, kind: RowKind, from: u32, tokens: u32) -> StepRow {
        StepRow { id, kind, from, tokens, accepted: None }
    }

    fn step(n: u64, rows: Vec<StepRow>) -> Event {
        Event::Step { t0: n * 10, t1: n * 10 + 10, gpu_ns: None, n, rows, pages_used: 1, waiting: 0 }
    }

    fn arrive(t: u64, id: u64, prompt_tokens: u32) -> Event {
        Event::Arrive { t, id, prompt_tokens, max_tokens: 9, priority: 0 }
    }

    fn finish(t: u64, id: u64) -> Event {
        Event::Finish { t, id, reason: "stop".into(), output_tokens: 3 }
    }

    #[test]
    fn a_request_is_queued_prefilled_decoded_and_done() {
        let mut store = Store::default();
        let state = |store: &Store| store.request(7).expect("it is there").state.clone();
        store.take(&arrive(5, 7, 20));
        assert_eq!(state(&store), State::Queued);
        store.take(&Event::Admit { t: 9, id: 7, cached_tokens: 4, miss: None });
        store.take(&step(1, vec![row(7, RowKind::Prefill, 4, 8)]));
        assert_eq!(state(&store), State::Prefilling);
        store.take(&step(2, vec![row(7, RowKind::Prefill, 12, 8)]));
        assert_eq!(state(&store), State::Decoding);
        store.take(&step(3, vec![row(7, RowKind::Decode, 20, 1)]));
        store.take(&step(6, vec![row(7, RowKind::Decode, 21, 1)]));
        store.take(&finish(71, 7));
        let request = store.request(7).expect("it is there");
        assert_eq!(request.state, State::Finished("stop".into()));
        assert_eq!(request.yields(&store), [(30, 1), (40, 1), (70, 1)]);
        let figures = request.figures(&store);
        assert_eq!((figures.queue, figures.ttft), (Some(4e-6), Some(25e-6)));
        assert_eq!((figures.tpot, figures.itl_max), (Some(20e-6), Some(30e-6)));
        assert_eq!((figures.cached_tokens, figures.output_tokens), (4, 3));
        assert_eq!(store.end(), 71);
    }

    #[test]
    fn rows_of_a_preempted_request_count_for_nothing_until_it_resumes() {
        let mut store = Store::default();
        store.take(&arrive(0, 1, 4));
        store.take(&Event::Admit { t: 0, id: 1, cached_tokens: 0, miss: None });
        store.take(&step(0, vec![row(1, RowKind::Prefill, 0, 4)]));
        store.take(&Event::Preempt { t: 15, id: 1 });
        store.take(&step(1, vec![row(1, RowKind::Decode, 4, 1)]));
        store.take(&Event::Resume { t: 25, id: 1 });
        store.take(&step(2, vec![row(1, RowKind::Prefill, 0, 5)]));
        let request = store.request(1).expect("it is there");
        assert_eq!(request.rows.iter().map(|row| row.is_discarded()).collect::<Vec<_>>(), [false, true, false]);
        assert_eq!(request.yields(&store), [(10, 1), (30, 1)]);
    }

    #[test]
    fn the_oldest_is_folded_and_said_and_what_lives_stays() {
        let mut store = Store::with_steps_max(16);
        store.take(&arrive(0, 1, 4));
        store.take(&arrive(0, 2, 4));
        store.take(&step(0, vec![row(1, RowKind::Prefill, 0, 4), row(2, RowKind::Prefill, 0, 4)]));
        store.take(&finish(11, 1));
        for n in 1..100 {
            store.take(&step(n, vec![row(2, RowKind::Decode, 3 + n as u32, 1)]));
        }
        let (steps, requests) = store.folded();
        assert_eq!((steps as usize + store.steps().len(), requests), (100, 1));
        assert!(store.steps().len() <= 16);
        assert!(store.request(1).is_none(), "it had ended");
        let request = store.request(2).expect("it lives");
        assert_eq!(request.output_tokens(), 100);
        assert_eq!(request.rows.get(0).expect("rows").step, store.first_step());
        assert!(store.step(store.first_step()).is_some() && store.step(store.first_step() - 1).is_none());
        assert_eq!(store.step(99).expect("the newest").t1, 1000);
    }

    #[test]
    fn events_that_fit_nothing_are_passed_over() {
        let mut store = Store::default();
        store.take(&finish(3, 9));
        store.take(&step(0, vec![row(8, RowKind::Decode, 1, 1)]));
        store.take(&arrive(4, 1, 4));
        store.take(&finish(5, 1));
        store.take(&Event::Preempt { t: 6, id: 1 });
        assert_eq!(store.requests().len(), 1);
        assert_eq!(store.request(1).expect("it is there").state, State::Finished("stop".into()));
        store.take(&Event::Admit { t: 7, id: 1, cached_tokens: 400, miss: None });
        assert!(store.request(1).expect("it is there").figures(&store).prefill_per_second.is_none());
    }
}
