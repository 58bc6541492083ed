//! The recount: everything that is kept twice is compared. For tests, for an idle engine, and after each simulated step.

use std::collections::BTreeSet;

use super::prefix::PAGE;
use super::scheduler::Scheduler;
use super::sequence::{Key, Sequence, State, tokens};
use crate::limits::PAGE_TOKENS;

impl Scheduler {
    /// Recounts pages, holders, slots, the queue and each request's positions.
    ///
    /// # Panics
    /// When anything does not add up: our own mistake.
    pub fn check(&self) {
        self.check_pages();
        self.check_lists();
        for (_, sequence) in self.sequences.iter() {
            self.check_sequence(sequence);
        }
        for owner in self.prefix.owners() {
            assert!(self.index.contains_key(&owner), "request {owner} is gone and still computes");
        }
    }

    fn check_pages(&self) {
        let mut holders = vec![0; self.pages.total()];
        for (_, sequence) in self.sequences.iter() {
            for &page in &sequence.table {
                holders[page as usize] += 1;
            }
        }
        self.pages.check(&holders);
        let found: BTreeSet<u32> = self.prefix.check().collect();
        assert!(found.len() == self.prefix.len(), "{} pages found of {}", found.len(), self.prefix.len());
        let total = u32::try_from(self.pages.total()).expect("a page");
        for page in 0..total {
            let (kept, found) = (self.pages.is_kept(page), found.contains(&page));
            assert!(kept == found, "page {page}: kept {kept}, found {found}");
        }
    }

    fn check_lists(&self) {
        let running: BTreeSet<Key> = self.running.iter().copied().collect();
        let leaving: BTreeSet<Key> = self.leaving.iter().copied().collect();
        let waiting: BTreeSet<Key> = self.queue.keys().collect();
        let mut slots: BTreeSet<u32> = self.slots_free.iter().copied().collect();
        let mut waiting_tokens = 0;
        assert!(slots.len() == self.slots_free.len(), "a slot is free twice: {:?}", self.slots_free);
        let mut count = 0;
        for (key, sequence) in self.sequences.iter() {
            count += 1;
            let (listed, slot) = match sequence.state {
                State::Waiting => (waiting.contains(&key), None),
                State::Running { slot, .. } => (running.contains(&key), Some(slot)),
                State::Leaving { slot } => (leaving.contains(&key), Some(slot)),
            };
            assert!(listed, "request {} is {:?} and not listed there", sequence.id, sequence.state);
            assert!(self.index.get(&sequence.id) == Some(&key), "request {} is not found", sequence.id);
            waiting_tokens += if slot.is_none() { sequence.ids.len() as u64 } else { 0 };
            assert!(slot.is_none_or(|slot| slots.insert(slot)), "slot {slot:?} is used twice");
        }
        let listed = running.len() + leaving.len() + waiting.len();
        assert!(count == listed && count == self.index.len(), "{count} requests, {listed} listed");
        assert!(waiting.len() == self.queue.len(), "{} of {} wait", waiting.len(), self.queue.len());
        assert!(waiting_tokens == self.queue.tokens(), "{waiting_tokens} of {} tokens wait", self.queue.tokens());
        assert!(slots.len() == self.config.slots as usize, "{} slots of {}", slots.len(), self.config.slots);
        assert!(self.tenants.requests() == count, "tenants have {} of {count}", self.tenants.requests());
        let order: Vec<_> = self.running.iter().map(|&key| self.importance(key)).collect();
        assert!(order.is_sorted(), "running requests are out of order: {order:?}");
    }

    fn check_sequence(&self, sequence: &Sequence) {
        let Sequence { id, written, planned, target, promised, steps_in_flight, .. } = *sequence;
        let flights = self.flights.iter().flat_map(|flight| &flight.rows).filter(|rows| rows.id == id).count();
        assert!(flights == steps_in_flight as usize, "request {id}: {flights} steps in flight, not {steps_in_flight}");
        if matches!(sequence.state, State::Waiting) {
            let holds = sequence.table.len();
            assert!(
                holds == 0 && planned == 0 && promised == 0,
                "request {id} waits: {holds} pages, {planned} planned"
            );
            return;
        }
        if matches!(sequence.state, State::Leaving { .. }) {
            assert!(steps_in_flight > 0, "request {id} has ended and stays");
            return;
        }
        let (ids, length, held) = (tokens(sequence.ids.len()), sequence.length(), sequence.table.len());
        assert!(
            written <= planned && planned < length.max(target + 1),
            "request {id}: {written}, {planned} of {length}"
        );
        assert!(
            written == planned || steps_in_flight > 0,
            "request {id}: {written} of {planned} and nothing in flight"
        );
        assert!(planned.div_ceil(PAGE_TOKENS) as usize <= held, "request {id}: {planned} planned in {held} pages");
        assert!(ids < sequence.ids_max && length <= sequence.ids_max, "request {id}: {length} of {}", sequence.ids_max);
        for (at, &page) in sequence.table.iter().enumerate().skip(written as usize / PAGE) {
            let (holders, kept) = (self.pages.holders(page), self.pages.is_kept(page));
            assert!(holders == 1, "request {id} may write page {page}, its number {at}, held by {holders}");
            assert!(!kept, "request {id} may write page {page}, its number {at}, which is in the cache");
        }
        assert!(sequence.sealed_pages == written as usize / PAGE, "request {id}: {} sealed", sequence.sealed_pages);
    }
}
