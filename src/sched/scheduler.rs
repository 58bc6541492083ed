//! The scheduler's state, and how requests come and go. What a step holds is `plan`'s, its results are `apply`'s.

use std::collections::{BTreeMap, VecDeque};

use super::cost::CostModel;
use super::mutant::Mutant;
use super::pages::Pages;
use super::prefix::{self, PAGE, PrefixIndex};
use super::queue::{Place, Queue};
use super::sequence::{Key, Sequence, Slab, State};
use super::tenants::Tenants;
use super::types::{Config, Counters, NewRequest, Policy, Refusal, RequestId};
use crate::limits::PAGE_TOKENS;

/// Rows of a step in flight.
#[derive(Debug)]
pub(super) struct FlightRows {
    pub(super) key: Key,
    pub(super) id: RequestId,
    /// Behind the last position.
    pub(super) end: u32,
    pub(super) last: bool,
}

/// A step that is planned and not applied.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) n: u64,
    pub(super) rows: Vec<FlightRows>,
}

/// Decides what each step holds. See the head of [`crate::sched`].
#[derive(Debug)]
pub struct Scheduler {
    pub(super) config: Config,
    /// The context, or less: what the pool holds.
    pub(super) ids_max: u32,
    pub(super) cost: CostModel,
    pub(super) sequences: Slab,
    pub(super) index: BTreeMap<RequestId, Key>,
    pub(super) queue: Queue,
    pub(super) tenants: Tenants,
    pub(super) pages: Pages,
    pub(super) prefix: PrefixIndex,
    /// The most important first.
    pub(super) running: Vec<Key>,
    pub(super) leaving: Vec<Key>,
    pub(super) slots_free: Vec<u32>,
    /// Steps planned and not applied, in order.
    pub(super) flights: VecDeque<Flight>,
    pub(super) steps: u64,
    pub(super) arrivals: u64,
    /// Pages that somebody waits for while a marked request is on its way out.
    pub(super) wanted_pages: usize,
    /// Who decodes first in the next step, when not all could in the last.
    pub(super) turn: Option<(i32, u64)>,
    /// To be told with the next step.
    pub(super) preempted: Vec<RequestId>,
    pub(super) admitted_tokens: u64,
    pub(super) cached_tokens: u64,
    pub(super) preemptions: u64,
    pub(super) evictions: u64,
    mutant: Option<Mutant>,
}

fn queue(policy: Policy) -> Queue {
    Queue::new(matches!(policy, Policy::Slo | Policy::PrefillFirst))
}

impl Scheduler {
    /// An empty scheduler with all pages free.
    ///
    /// # Panics
    /// When a count in `config` is 0.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::with(config, None)
    }

    /// A scheduler that makes a mistake.
    #[cfg(test)]
    pub(crate) fn broken(config: Config, mutant: Mutant) -> Self {
        Self::with(config, Some(mutant))
    }

    fn with(config: Config, mutant: Option<Mutant>) -> Self {
        let Config { pages, slots, step_tokens, context_tokens, logit_rows, .. } = config;
        assert!(pages > 0, "a pool of no pages");
        assert!(
            slots > 0 && step_tokens > 0 && logit_rows > 0,
            "{slots} slots, {step_tokens} rows, {logit_rows} logits"
        );
        assert!(config.chunk_tokens != Some(0), "chunks of no tokens");
        Self {
            ids_max: context_tokens.min(pages.saturating_mul(PAGE_TOKENS)),
            cost: CostModel::default(),
            sequences: Slab::default(),
            index: BTreeMap::new(),
            queue: queue(config.policy),
            tenants: Tenants::default(),
            pages: Pages::new(pages),
            prefix: PrefixIndex::new(mutant),
            running: Vec::new(),
            leaving: Vec::new(),
            slots_free: (0..slots).rev().collect(),
            flights: VecDeque::new(),
            steps: 0,
            arrivals: 0,
            wanted_pages: 0,
            turn: None,
            preempted: Vec::new(),
            admitted_tokens: 0,
            cached_tokens: 0,
            preemptions: 0,
            evictions: 0,
            config,
            mutant,
        }
    }

    pub(super) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Takes a request into the queue.
    ///
    /// # Errors
    /// A request that can never run, or a full queue. Nothing is changed then.
    ///
    /// # Panics
    /// When the id names a request that is still here.
    pub fn submit(&mut self, request: NewRequest) -> Result<(), Refusal> {
        assert!(!self.index.contains_key(&request.id), "request {} is submitted twice", request.id);
        self.refuse(request.prompt.len() as u64)?;
        let prompt_tokens = super::sequence::tokens(request.prompt.len());
        let ids_max = prompt_tokens.saturating_add(request.max_tokens.max(1)).min(self.ids_max);
        self.tenants.enter(request.tenant);
        let (id, mut sequence) = (request.id, Sequence::new(request, self.arrivals, ids_max));
        self.arrivals += 1;
        if self.config.prefix_caching {
            prefix::extend(&mut sequence.digests, &sequence.salt, &sequence.ids);
        }
        let key = self.sequences.insert(sequence);
        self.index.insert(id, key);
        self.enqueue(key);
        Ok(())
    }

    fn refuse(&self, prompt_tokens: u64) -> Result<(), Refusal> {
        let Config { context_tokens, pages, queue_max, queue_tokens_max, .. } = self.config;
        let needed_pages = (prompt_tokens + 1).div_ceil(PAGE as u64);
        let (waiting, waiting_tokens) = (self.queue.len(), self.queue.tokens());
        if prompt_tokens == 0 {
            return Err(Refusal::Empty);
        }
        if prompt_tokens + 1 > u64::from(context_tokens) {
            return Err(Refusal::ContextFull { prompt_tokens, context_tokens });
        }
        if needed_pages > u64::from(pages) {
            return Err(Refusal::PoolTooSmall { needed_pages, pages });
        }
        if waiting >= queue_max {
            return Err(Refusal::QueueFull { waiting, limit: queue_max });
        }
        if waiting > 0 && waiting_tokens + prompt_tokens > queue_tokens_max {
            return Err(Refusal::QueueTokensFull { waiting_tokens, prompt_tokens, limit: queue_tokens_max });
        }
        Ok(())
    }

    /// Ends a request in any state; `false` if it is not here or has ended. Its pages are free at once, or, when steps in
    /// flight still write them, as soon as the last of these is applied; what they will yield is ignored.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        let Some(&key) = self.index.get(&id) else { return false };
        if matches!(self.sequences[key].state, State::Leaving { .. }) {
            return false;
        }
        if self.is(Mutant::LeakOnCancel) {
            self.sequences[key].table.pop();
        }
        self.end(key);
        true
    }

    /// Ends a request whose answer is complete (a stop token, a stop string). Full pages stay in the cache. A request that
    /// reached its last token by itself is gone already, and naming it does nothing.
    pub fn finish(&mut self, id: RequestId) {
        self.cancel(id);
    }

    /// The cost model from the next step on.
    pub fn set_cost(&mut self, cost: CostModel) {
        self.cost = cost;
    }

    /// The policy from the next step on.
    ///
    /// # Panics
    /// Unless the scheduler is idle: an order that requests wait in is not changed under them.
    pub fn set_policy(&mut self, policy: Policy) {
        assert!(self.idle(), "{} requests wait under another policy", self.index.len());
        self.config.policy = policy;
        self.queue = queue(policy);
    }

    /// The cost model in use.
    #[must_use]
    pub fn cost(&self) -> CostModel {
        self.cost
    }

    /// Pages of a request in the order of its positions; empty if it holds none.
    #[must_use]
    pub fn page_table(&self, id: RequestId) -> &[u32] {
        self.index.get(&id).map_or(&[], |&key| &self.sequences[key].table)
    }

    /// Ids of a request, as far as they are applied: prompt, then answer; empty if it is not here.
    #[must_use]
    pub fn ids(&self, id: RequestId) -> &[u32] {
        self.index.get(&id).map_or(&[], |&key| &self.sequences[key].ids)
    }

    /// Tokens of the prompt; `None` if the request is not here.
    #[must_use]
    pub fn prompt_tokens(&self, id: RequestId) -> Option<u32> {
        self.index.get(&id).map(|&key| self.sequences[key].prompt_tokens)
    }

    /// Whether no request is here and no step in flight.
    #[must_use]
    pub fn idle(&self) -> bool {
        self.index.is_empty() && self.flights.is_empty()
    }

    /// Steps planned and not applied.
    #[must_use]
    pub fn steps_in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Figures for metrics.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let (pages_used, pages_cached, pages_free) = self.pages.counts();
        Counters {
            waiting: self.queue.len(),
            waiting_tokens: self.queue.tokens(),
            running: self.running.len(),
            leaving: self.leaving.len(),
            steps_in_flight: self.flights.len(),
            pages_used,
            pages_cached,
            pages_free,
            admitted_tokens: self.admitted_tokens,
            cached_tokens: self.cached_tokens,
            preemptions: self.preemptions,
            evictions: self.evictions,
        }
    }

    /// Its place in the order of running requests; lower keeps its pages longer.
    pub(super) fn importance(&self, key: Key) -> (i32, u64) {
        let sequence = &self.sequences[key];
        let priority = if self.config.policy == Policy::Fcfs { 0 } else { sequence.priority };
        (priority, sequence.arrival)
    }

    /// Where a request waits, or would.
    pub(super) fn place(&self, key: Key) -> Place {
        let sequence = &self.sequences[key];
        let (class, priority) = match self.config.policy {
            Policy::Slo | Policy::PrefillFirst => (u8::from(!sequence.preempted), sequence.priority),
            Policy::Fcfs => (u8::from(!sequence.preempted), 0),
            Policy::Priority => (1, sequence.priority),
        };
        Place { class, priority, tenant: sequence.tenant, arrival: sequence.arrival }
    }

    pub(super) fn enqueue(&mut self, key: Key) {
        let (place, tokens) = (self.place(key), self.sequences[key].ids.len());
        self.queue.insert(&self.tenants, place, key, tokens);
    }

    pub(super) fn dequeue(&mut self, key: Key) {
        let (place, tokens) = (self.place(key), self.sequences[key].ids.len());
        self.queue.remove(place, tokens);
    }

    /// Leading pages of a request that may be kept and found: all that fill, or those of its prompt alone.
    pub(super) fn cacheable_pages(&self, sequence: &Sequence) -> usize {
        if self.config.cache_generated { usize::MAX } else { sequence.prompt_tokens as usize / PAGE }
    }

    /// A page for one holder, from the free ones or from the cache.
    pub(super) fn take_page(&mut self) -> Option<u32> {
        let taken = self.pages.take()?;
        if taken.evicted {
            self.prefix.evict(taken.page);
            self.evictions += 1;
        }
        Some(taken.page)
    }

    /// Ends a request in any state.
    pub(super) fn end(&mut self, key: Key) {
        let State::Running { slot, .. } = self.sequences[key].state else {
            self.dequeue(key);
            self.forget(key);
            return;
        };
        self.leave_running(key);
        if self.sequences[key].steps_in_flight == 0 {
            self.release(key, slot);
            self.forget(key);
            return;
        }
        self.sequences[key].state = State::Leaving { slot };
        self.leaving.push(key);
        if self.is(Mutant::FreeInFlight) {
            let table = std::mem::take(&mut self.sequences[key].table);
            self.pages.release(&table);
        }
    }

    /// The last step of a request that had ended is over.
    pub(super) fn end_leaving(&mut self, key: Key) {
        let State::Leaving { slot } = self.sequences[key].state else { panic!("request of key {key} is not leaving") };
        self.leaving.retain(|&other| other != key);
        self.release(key, slot);
        self.forget(key);
    }

    /// Sends a running request without steps in flight to the front of the queue, with nothing computed.
    pub(super) fn requeue(&mut self, key: Key) {
        let State::Running { slot, .. } = self.sequences[key].state else {
            panic!("request of key {key} does not run")
        };
        self.leave_running(key);
        self.release(key, slot);
        let sequence = &mut self.sequences[key];
        sequence.reset();
        sequence.preempted = true;
        if self.config.prefix_caching {
            prefix::extend(&mut sequence.digests, &sequence.salt, &sequence.ids);
        }
        self.enqueue(key);
    }

    /// Out of `running`, and what it was computing is no longer awaited.
    pub(super) fn leave_running(&mut self, key: Key) {
        let at = self.running.iter().position(|&other| other == key).expect("a running request is listed");
        self.running.remove(at);
        let Sequence { id, sealed_pages, announced_pages, ref digests, .. } = self.sequences[key];
        if sealed_pages < announced_pages {
            self.prefix.withdraw(id, &digests[sealed_pages..announced_pages]);
        }
    }

    /// Gives back pages and slot.
    fn release(&mut self, key: Key, slot: u32) {
        let table = std::mem::take(&mut self.sequences[key].table);
        self.pages.release(&table);
        self.slots_free.push(slot);
    }

    /// Removes a request that holds nothing.
    fn forget(&mut self, key: Key) {
        let sequence = self.sequences.remove(key);
        assert!(sequence.table.is_empty(), "request {} ends with {} pages", sequence.id, sequence.table.len());
        self.index.remove(&sequence.id);
        self.tenants.leave(sequence.tenant);
    }
}
