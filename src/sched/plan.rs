//! One step: who decodes, who gives way when pages run out, and what is handed out. Prompts are `prefill`'s.

use super::cost::CostModel;
use super::mutant::Mutant;
use super::scheduler::{Flight, FlightRows, Scheduler};
use super::sequence::{Key, State};
use super::types::{Admitted, Config, Policy, RowKind, Step, StepRows};
use crate::limits::{PREFILL_TILE_TOKENS, STEPS_IN_FLIGHT_MAX};

/// A step in the making.
pub(super) struct Draft {
    rows: Vec<StepRows>,
    flight: Vec<FlightRows>,
    pub(super) admitted: Vec<Admitted>,
    pub(super) tokens_left: u32,
    pub(super) logits_left: u32,
    /// Running requests that could decode when the step was begun.
    pub(super) decoders: Vec<Key>,
    /// Running requests with prompt tokens left when the step was begun.
    pub(super) half_done: Vec<Key>,
    pub(super) decode_rows: u32,
    pub(super) chunks: u32,
    /// Predicted so far, in the unit of the cost model.
    pub(super) units: u64,
    /// Somebody lacks pages: nobody new is admitted.
    pub(super) blocked: bool,
}

impl Draft {
    fn new(config: &Config, cost: CostModel) -> Self {
        Self {
            rows: Vec::new(),
            flight: Vec::new(),
            admitted: Vec::new(),
            tokens_left: config.step_tokens,
            logits_left: config.logit_rows,
            decoders: Vec::new(),
            half_done: Vec::new(),
            decode_rows: 0,
            chunks: 0,
            units: cost.a,
            blocked: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl Scheduler {
    /// The next step, or `None`: there is nothing to do, or all that is to do waits for a step in flight to be applied.
    /// It may be asked for again before that (up to [`STEPS_IN_FLIGHT_MAX`]): a decode row whose token is still on its way
    /// is planned by its position alone.
    ///
    /// # Panics
    /// When there is work, nothing is in flight, and no row was found: our own mistake.
    pub fn plan(&mut self) -> Option<Step> {
        if self.flights.len() >= STEPS_IN_FLIGHT_MAX {
            return None;
        }
        let mut draft = Draft::new(&self.config, self.cost);
        self.settle_marked(&mut draft);
        for &key in &self.running {
            let sequence = &self.sequences[key];
            if sequence.can_decode() {
                draft.decoders.push(key);
            } else if sequence.can_prefill() {
                draft.half_done.push(key);
            }
        }
        if self.config.policy == Policy::PrefillFirst {
            self.plan_prefill(&mut draft);
            if draft.is_empty() {
                self.plan_decode(&mut draft);
            }
        } else {
            self.plan_decode(&mut draft);
            self.plan_prefill(&mut draft);
        }
        self.hand_out(draft)
    }

    fn hand_out(&mut self, draft: Draft) -> Option<Step> {
        if draft.is_empty() {
            let stuck = self.flights.is_empty() && !self.index.is_empty();
            assert!(!stuck, "{} requests, none of them can go on: {:?}", self.index.len(), self.counters());
            return None;
        }
        let n = self.steps;
        self.steps += 1;
        self.flights.push_back(Flight { n, rows: draft.flight });
        Some(Step {
            n,
            rows: draft.rows,
            admitted: draft.admitted,
            preempted: std::mem::take(&mut self.preempted),
            pages_used: self.pages.counts().0,
            waiting: u32::try_from(self.queue.len()).unwrap_or(u32::MAX),
        })
    }

    /// One row for each running request that has a token to go on from; in turns, when they are too many.
    fn plan_decode(&mut self, draft: &mut Draft) {
        let rows_max = self.decode_rows_max(draft);
        let turn = self.turn.take();
        let mut order = std::mem::take(&mut draft.decoders);
        if let Some(turn) = turn {
            let first = order.partition_point(|&key| self.importance(key) < turn);
            order.rotate_left(first);
        }
        for &key in &order {
            if draft.decode_rows == rows_max {
                self.turn = Some(self.importance(key));
                break;
            }
            // An earlier one of this loop may have had it preempted or marked.
            let sequence = &self.sequences[key];
            if !sequence.can_decode() {
                continue;
            }
            let position = sequence.planned;
            if self.secure(draft, key, position + 1) {
                draft.units = draft.units.saturating_add(self.cost.decode_units(position));
                draft.decode_rows += 1;
                self.push_rows(draft, key, RowKind::Decode, 1);
            }
        }
        draft.decoders = order;
    }

    /// Most decode rows: while a prompt could go on, it is left a tile of tokens and a row of logits.
    fn decode_rows_max(&self, draft: &Draft) -> u32 {
        let Config { step_tokens, logit_rows, .. } = self.config;
        let prompts = !draft.half_done.is_empty() || (self.queue.len() > 0 && !self.slots_free.is_empty());
        if !prompts || draft.chunks > 0 {
            return draft.tokens_left.min(draft.logits_left);
        }
        let tokens = step_tokens - PREFILL_TILE_TOKENS.min(step_tokens / 2);
        tokens.min((logit_rows - 1).max(1))
    }

    /// Makes sure that a running request has pages for positions up to `end`; takes them from the least important ones if
    /// need be. `false`: not in this step.
    pub(super) fn secure(&mut self, draft: &mut Draft, key: Key, end: u32) -> bool {
        let missing = self.sequences[key].missing_pages(end);
        while self.pages.available() < missing {
            draft.blocked = true;
            self.wanted_pages = self.wanted_pages.max(missing);
            let on_their_way = !self.leaving.is_empty() || self.running.iter().any(|&other| self.is_marked(other));
            let victim = *self.running.last().expect("the one that asks runs");
            if on_their_way || victim == key {
                return false;
            }
            if self.sequences[victim].steps_in_flight > 0 {
                self.mark(victim, true);
                return false;
            }
            self.preempt(victim);
        }
        for _ in 0..missing {
            let page = self.take_page().expect("pages were counted");
            self.sequences[key].table.push(page);
        }
        true
    }

    fn preempt(&mut self, key: Key) {
        let sequence = &self.sequences[key];
        assert!(
            sequence.promised == 0,
            "request {} is preempted with {} tokens coming",
            sequence.id,
            sequence.promised
        );
        self.preempted.push(sequence.id);
        self.preemptions += 1;
        self.requeue(key);
    }

    fn is_marked(&self, key: Key) -> bool {
        matches!(self.sequences[key].state, State::Running { marked: true, .. })
    }

    fn mark(&mut self, key: Key, value: bool) {
        if let State::Running { marked, .. } = &mut self.sequences[key].state {
            *marked = value;
        }
    }

    /// Marked requests whose last step is applied go, unless the pages came from elsewhere.
    fn settle_marked(&mut self, draft: &mut Draft) {
        let marked: Vec<Key> = self.running.iter().rev().copied().filter(|&key| self.is_marked(key)).collect();
        for &key in &marked {
            if self.pages.available() >= self.wanted_pages {
                self.mark(key, false);
            } else if self.sequences[key].steps_in_flight == 0 {
                self.preempt(key);
                draft.blocked = true;
            }
        }
        if !self.running.iter().any(|&key| self.is_marked(key)) {
            self.wanted_pages = 0;
        }
    }

    /// Puts the next `tokens` positions of a request, whose pages are there, into the step.
    pub(super) fn push_rows(&mut self, draft: &mut Draft, key: Key, kind: RowKind, tokens: u32) {
        let sequence = &mut self.sequences[key];
        let State::Running { slot, marked: false } = sequence.state else {
            panic!("request {} gets rows and is {:?}", sequence.id, sequence.state)
        };
        let (from, end) = (sequence.planned, sequence.planned + tokens);
        assert!(tokens > 0 && end <= sequence.length(), "positions {from}..{end} of {}", sequence.length());
        assert!(sequence.missing_pages(end) == 0, "positions {from}..{end} in {} pages", sequence.table.len());
        let last = end >= sequence.target;
        sequence.planned = end;
        sequence.promised += u32::from(last);
        sequence.steps_in_flight += 1;
        self.tenants.charge(sequence.tenant, end.saturating_sub(from.max(sequence.charged)));
        sequence.charged = sequence.charged.max(end);
        draft.tokens_left -= tokens;
        draft.logits_left -= u32::from(last);
        draft.rows.push(StepRows { id: sequence.id, slot, kind, from, tokens, last });
        draft.flight.push(FlightRows { key, id: sequence.id, end, last });
        if self.is(Mutant::SealUnwritten) {
            self.seal(key, end);
        }
    }
}
