//! What becomes of a step: its results, or its failure.

use std::collections::BTreeSet;

use super::mutant::Mutant;
use super::prefix::{self, PAGE};
use super::scheduler::{Flight, FlightRows, Scheduler};
use super::sequence::{Key, State, tokens};
use super::types::{Applied, RequestId};

impl Scheduler {
    /// The results of step `n`, the oldest in flight: the sampled id of each row that yields a token, best in the order of
    /// the step's rows. Ids of requests that are gone or were never here are ignored.
    ///
    /// # Panics
    /// When `n` is not the oldest step in flight, or a request that is still here got no token.
    pub fn apply(&mut self, n: u64, results: &[(RequestId, u32)]) -> Applied {
        self.assert_oldest(n);
        let rows = self.flights.pop_front().map_or_else(Vec::new, |flight| flight.rows);
        let (mut applied, mut next) = (Applied::default(), 0);
        for FlightRows { key, id, end, last } in rows {
            if self.has_left(key) {
                continue;
            }
            let sequence = &mut self.sequences[key];
            sequence.written = end;
            if last {
                let token = take_result(results, &mut next, id);
                let token = token.unwrap_or_else(|| panic!("step {n} has no token for request {id}"));
                sequence.ids.push(token);
                sequence.promised -= 1;
            }
            let done = tokens(sequence.ids.len()) >= sequence.ids_max;
            self.seal(key, end);
            if done {
                self.end(key);
                applied.finished.push(id);
            }
        }
        applied
    }

    /// Step `n`, the oldest in flight, failed and so did all behind it: nothing of them counts, they are never applied.
    /// Their requests go back to the front of the queue with nothing computed; pages that earlier steps filled stay in the
    /// cache. Returns the requests sent back. A step that keeps failing is the caller's to stop, by [`cancel`](Self::cancel).
    ///
    /// # Panics
    /// When `n` is not the oldest step in flight.
    pub fn fail(&mut self, n: u64) -> Vec<RequestId> {
        self.assert_oldest(n);
        let mut back = BTreeSet::new();
        for Flight { rows, .. } in std::mem::take(&mut self.flights) {
            for FlightRows { key, .. } in rows {
                if !self.has_left(key) {
                    back.insert(key);
                }
            }
        }
        back.into_iter().map(|key| self.send_back(key)).collect()
    }

    /// The device is lost, and with it all that pages held: as [`fail`](Self::fail) for every running request, and the
    /// cache forgets all. Returns the requests sent back.
    pub fn device_lost(&mut self) -> Vec<RequestId> {
        let mut back = match self.flights.front() {
            Some(flight) => self.fail(flight.n),
            None => Vec::new(),
        };
        for key in self.running.clone() {
            back.push(self.send_back(key));
        }
        self.prefix.evict_all();
        self.pages.forget_all();
        back
    }

    fn assert_oldest(&self, n: u64) {
        let oldest = self.flights.front().map(|flight| flight.n);
        assert!(oldest == Some(n), "step {n} is over, the oldest in flight is {oldest:?}");
    }

    /// One step in flight less; whether the request had ended before. With its last step it is gone.
    fn has_left(&mut self, key: Key) -> bool {
        let sequence = &mut self.sequences[key];
        assert!(sequence.steps_in_flight > 0, "request {} has no step in flight", sequence.id);
        sequence.steps_in_flight -= 1;
        let left = matches!(sequence.state, State::Leaving { .. });
        if left && sequence.steps_in_flight == 0 {
            self.end_leaving(key);
        }
        left
    }

    fn send_back(&mut self, key: Key) -> RequestId {
        let sequence = &mut self.sequences[key];
        let id = sequence.id;
        sequence.promised = 0;
        if self.is(Mutant::LoseOnFail) {
            self.end(key);
        } else {
            self.requeue(key);
        }
        id
    }

    /// Offers the pages that `written` positions have filled to the cache.
    pub(super) fn seal(&mut self, key: Key, written: u32) {
        let cacheable = self.cacheable_pages(&self.sequences[key]);
        let sequence = &mut self.sequences[key];
        let full = (written as usize).min(sequence.ids.len()) / PAGE;
        if sequence.sealed_pages >= full {
            return;
        }
        if !self.config.prefix_caching {
            sequence.sealed_pages = full;
            return;
        }
        prefix::extend(&mut sequence.digests, &sequence.salt, &sequence.ids);
        for page in sequence.sealed_pages..full.min(cacheable) {
            let number = sequence.table[page];
            if self.prefix.insert(sequence.prefix(), page, number) {
                self.pages.keep(number);
            }
        }
        let announced = sequence.announced_pages.min(full);
        if sequence.sealed_pages < announced {
            self.prefix.withdraw(sequence.id, &sequence.digests[sequence.sealed_pages..announced]);
        }
        sequence.sealed_pages = full;
    }
}

/// The token of a request; `next` is where it is if the results stand in the order of the rows.
fn take_result(results: &[(RequestId, u32)], next: &mut usize, id: RequestId) -> Option<u32> {
    let here = results.get(*next).is_some_and(|result| result.0 == id);
    let at = if here { *next } else { results.iter().position(|result| result.0 == id)? };
    *next = at + 1;
    Some(results[at].1)
}
