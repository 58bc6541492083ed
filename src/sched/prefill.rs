//! Prompts: whose turn it is, how large a chunk the step still takes, and admission with what the cache has.

use super::cost::{Before, units_from_nanos};
use super::mutant::Mutant;
use super::plan::Draft;
use super::prefix::PAGE;
use super::queue::Rank;
use super::scheduler::Scheduler;
use super::sequence::{Key, Sequence, State, tokens};
use super::types::{Admitted, Policy, RowKind};
use crate::limits::{ADMISSIONS_DEFERRED_MAX, LONE_STEP_NANOS, PAGE_TOKENS, PREFILL_TILE_TOKENS};

/// What bounds the prompts of a step.
struct Room {
    /// What the step may still cost, in the unit of the cost model; `None`: anything.
    units: Option<u64>,
    /// Pages that half-done prompts, and a token behind each, still need.
    promised_pages: usize,
    /// Pages that decoders may take before the next look.
    spare_pages: usize,
    /// Nothing more fits.
    full: bool,
}

enum Admission {
    Done,
    /// Another request is computing what this one needs.
    Deferred,
    /// Nobody is admitted any more in this step.
    Closed,
}

/// The prefill that runs where nothing fits beside `rows` rows: what fills the tile they have begun, and the next one too where
/// only one place is left.
const fn least_chunk(rows: u32) -> u32 {
    let left = PREFILL_TILE_TOKENS - rows % PREFILL_TILE_TOKENS;
    if left > 1 { left } else { left + PREFILL_TILE_TOKENS }
}

impl Scheduler {
    /// Chunks of half-done and waiting prompts, in the order of their ranks.
    pub(super) fn plan_prefill(&mut self, draft: &mut Draft) {
        let mut room = self.room(draft);
        let rank = |&key: &Key| (self.queue.rank(&self.tenants, self.place(key)), key);
        let mut half_done: Vec<(Rank, Key)> = draft.half_done.iter().map(rank).collect();
        half_done.sort_unstable();
        let mut half_done = half_done.into_iter().peekable();
        let (mut deferred, mut open) = (Vec::new(), true);
        while draft.tokens_left > 0 && !room.full {
            let waiting = if open && self.may_admit(draft) { self.queue.head(&self.tenants) } else { None };
            let running = half_done.peek().map(|&(rank, _)| rank);
            match (running, waiting) {
                (Some(rank), waiting) if waiting.is_none_or(|(other, _)| rank < other) => {
                    if let Some((_, key)) = half_done.next() {
                        self.go_on(draft, &mut room, key);
                    }
                }
                (_, Some((_, key))) => match self.admit(draft, &mut room, key) {
                    Admission::Done => {}
                    Admission::Deferred => {
                        self.dequeue(key);
                        deferred.push(key);
                        open = deferred.len() < ADMISSIONS_DEFERRED_MAX;
                    }
                    Admission::Closed => open = false,
                },
                (_, None) => break,
            }
        }
        for key in deferred {
            self.enqueue(key);
        }
    }

    fn room(&self, draft: &Draft) -> Room {
        let units = (self.config.policy == Policy::Slo).then(|| {
            let limit = match (draft.decode_rows, self.config.itl_slo_nanos) {
                (0, _) => units_from_nanos(LONE_STEP_NANOS),
                (_, Some(nanos)) => units_from_nanos(nanos),
                (_, None) => draft.units.saturating_mul(2),
            };
            limit.saturating_sub(draft.units)
        });
        let promised = |&key: &Key| self.sequences[key].missing_pages(self.sequences[key].target + 1);
        Room {
            units,
            promised_pages: draft.half_done.iter().map(promised).sum(),
            spare_pages: draft.decoders.len().div_ceil(PAGE),
            full: false,
        }
    }

    /// A step that lacks pages admits nobody, unless nothing else would ever run.
    fn may_admit(&self, draft: &Draft) -> bool {
        let alone = draft.is_empty() && self.flights.is_empty();
        !self.slots_free.is_empty() && (!draft.blocked || alone)
    }

    fn before(&self, draft: &Draft) -> Before {
        Before { rows: self.config.step_tokens - draft.tokens_left, chunks: draft.chunks > 0 }
    }

    /// The next chunk of a prompt with `left` tokens from position `from`; 0: not in this step.
    fn chunk(&self, draft: &Draft, room: &mut Room, from: u32, left: u32) -> u32 {
        let most = left.min(self.config.chunk_tokens.unwrap_or(u32::MAX)).min(draft.tokens_left);
        let chunk = match room.units {
            None => most,
            Some(units) => match self.cost.chunk_within(self.before(draft), from, most, units) {
                0 if draft.chunks == 0 => most.min(least_chunk(self.before(draft).rows)),
                fits => fits,
            },
        };
        room.full = chunk == 0;
        // The last token wants a row of logits.
        if chunk == left && draft.logits_left == 0 { chunk - 1 } else { chunk }
    }

    /// A chunk of a prompt that is half done.
    fn go_on(&mut self, draft: &mut Draft, room: &mut Room, key: Key) {
        // A more important one may have taken its pages in this step.
        let sequence = &self.sequences[key];
        if !sequence.can_prefill() {
            return;
        }
        let (from, target, held) = (sequence.planned, sequence.target, sequence.table.len());
        let chunk = self.chunk(draft, room, from, target - from);
        if chunk > 0 && self.secure(draft, key, from + chunk) {
            room.promised_pages = room.promised_pages.saturating_sub(self.sequences[key].table.len() - held);
            self.push_chunk(draft, room, key, chunk);
        }
    }

    fn push_chunk(&mut self, draft: &mut Draft, room: &mut Room, key: Key, chunk: u32) {
        let units = self.cost.chunk_units(self.before(draft), self.sequences[key].planned, chunk);
        draft.units = draft.units.saturating_add(units);
        room.units = room.units.map(|left| left.saturating_sub(units));
        draft.chunks += 1;
        self.push_rows(draft, key, RowKind::Prefill, chunk);
    }

    /// Leading pages of a request that a hit may take: at least one token is computed, for its logits.
    fn hit_pages_max(&self, sequence: &Sequence) -> usize {
        if !self.config.prefix_caching {
            return 0;
        }
        let length = tokens(sequence.ids.len());
        let ids = if self.is(Mutant::WriteShared) { length } else { length - 1 };
        ((ids / PAGE_TOKENS) as usize).min(self.cacheable_pages(sequence))
    }

    /// The head of the queue gets a slot, the pages the cache has, and its first chunk.
    fn admit(&mut self, draft: &mut Draft, room: &mut Room, key: Key) -> Admission {
        let sequence = &self.sequences[key];
        let length = tokens(sequence.ids.len());
        let hits_max = self.hit_pages_max(sequence);
        let reach = self.prefix.reach(sequence.prefix(), sequence.hint_pages, hits_max);
        self.sequences[key].hint_pages = reach;
        if reach < hits_max && self.is_coming(key, reach) {
            return Admission::Deferred;
        }
        if !self.has_pages(room, length, reach, 0) {
            return Admission::Closed;
        }
        let sequence = &self.sequences[key];
        let hits: Vec<u32> = (0..reach).map_while(|page| self.prefix.find(sequence.prefix(), page)).collect();
        let idle = hits.iter().filter(|&&page| self.pages.holders(page) == 0).count();
        if !self.has_pages(room, length, hits.len(), idle) {
            return Admission::Closed;
        }
        let cached = (tokens(hits.len()) * PAGE_TOKENS).min(length - 1);
        let chunk = self.chunk(draft, room, cached, length - cached);
        if chunk == 0 {
            return Admission::Closed;
        }
        self.start(draft, key, hits, cached, hits_max);
        let secured = self.secure(draft, key, cached + chunk);
        assert!(secured, "pages for {chunk} tokens were counted");
        room.promised_pages += self.sequences[key].missing_pages(length + 1);
        self.push_chunk(draft, room, key, chunk);
        Admission::Done
    }

    /// Whether a running request, not one to step back for, is computing page `page` of a waiting one.
    fn is_coming(&self, key: Key, page: usize) -> bool {
        let owner = self.prefix.computing(&self.sequences[key].digests[page]);
        let Some(&owner) = owner.and_then(|id| self.index.get(&id)) else { return false };
        self.sequences[owner].can_run() && self.importance(owner).0 <= self.importance(key).0
    }

    /// Whether `length` ids and one more fit, `hits` pages of them found and `idle` of these held by nobody so far.
    fn has_pages(&self, room: &Room, length: u32, hits: usize, idle: usize) -> bool {
        let own = (length as usize + 1).div_ceil(PAGE) - hits;
        own + idle + room.promised_pages + room.spare_pages <= self.pages.available()
    }

    /// From the queue into a slot.
    fn start(&mut self, draft: &mut Draft, key: Key, hits: Vec<u32>, cached: u32, hits_max: usize) {
        self.dequeue(key);
        let slot = self.slots_free.pop().expect("a slot was counted");
        if !self.is(Mutant::HitUnheld) {
            hits.iter().for_each(|&page| self.pages.hold(page));
        }
        let cacheable = self.cacheable_pages(&self.sequences[key]);
        let importance = self.importance(key);
        let at = self.running.partition_point(|&other| self.importance(other) < importance);
        self.running.insert(at, key);
        let sequence = &mut self.sequences[key];
        (sequence.shared_pages, sequence.sealed_pages) = (hits.len(), hits.len());
        sequence.announced_pages = sequence.digests.len().min(cacheable);
        self.prefix.announce(sequence.id, &sequence.digests[hits.len()..sequence.announced_pages]);
        let missed = hits.len() < hits_max;
        let miss = missed.then(|| self.prefix.miss(sequence.prefix(), hits.len()));
        sequence.table = hits;
        (sequence.written, sequence.planned) = (cached, cached);
        sequence.target = tokens(sequence.ids.len());
        sequence.charged = sequence.charged.max(cached);
        sequence.state = State::Running { slot, marked: false };
        let resumed = std::mem::replace(&mut sequence.resumed, true);
        self.admitted_tokens += u64::from(sequence.target);
        self.cached_tokens += u64::from(cached);
        draft.admitted.push(Admitted { id: sequence.id, slot, cached_tokens: cached, miss, resumed });
        if self.queue.is_fair() {
            self.tenants.admitted(sequence.tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_least_chunk_fills_the_tile_that_decode_rows_have_begun() {
        assert_eq!([0, 1, 4, 6, 7, 8, 15].map(super::least_chunk), [8, 7, 4, 2, 9, 8, 9]);
    }
}
