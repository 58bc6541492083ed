//! The waiting requests, in the order in which they are admitted. No step ever sorts them all.
//!
//! ```text
//! levels   (class, priority)       preempted before fresh, then by priority
//!   lanes  tenant                  ranked by (served tokens, arrival of its first request)
//!     requests by arrival
//! ```
//! The tokens served of a tenant only grow while it waits, so a lane's rank may be old: whoever looks at the head renews the
//! ranks it meets until the first one is true.

use std::collections::{BTreeMap, BTreeSet};

use super::sequence::Key;
use super::tenants::Tenants;

/// Where a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// 0: preempted, 1: fresh.
    pub(super) class: u8,
    pub(super) priority: i32,
    pub(super) tenant: u64,
    pub(super) arrival: u64,
}

/// Lower goes first: class, priority, tokens served to the tenant, arrival.
pub(super) type Rank = (u8, i32, u64, u64);

#[derive(Debug, Default)]
struct Lane {
    /// As ranked.
    served: u64,
    requests: BTreeMap<u64, Key>,
}

#[derive(Debug, Default)]
struct Level {
    lanes: BTreeMap<u64, Lane>,
    ranking: BTreeSet<(u64, u64, u64)>,
}

/// The queue.
#[derive(Debug)]
pub(super) struct Queue {
    /// Whether tenants are told apart.
    fair: bool,
    levels: BTreeMap<(u8, i32), Level>,
    len: usize,
    tokens: u64,
}

impl Queue {
    pub(super) fn new(fair: bool) -> Self {
        Self { fair, levels: BTreeMap::new(), len: 0, tokens: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Tokens of all waiting requests.
    pub(super) fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Whether tenants are told apart.
    pub(super) fn is_fair(&self) -> bool {
        self.fair
    }

    fn served(&self, tenants: &Tenants, tenant: u64) -> u64 {
        if self.fair { tenants.served(tenant) } else { 0 }
    }

    fn lane(&self, place: Place) -> u64 {
        if self.fair { place.tenant } else { 0 }
    }

    /// The rank that a request would have now.
    pub(super) fn rank(&self, tenants: &Tenants, place: Place) -> Rank {
        (place.class, place.priority, self.served(tenants, place.tenant), place.arrival)
    }

    pub(super) fn insert(&mut self, tenants: &Tenants, place: Place, key: Key, tokens: usize) {
        let (served, lane) = (self.served(tenants, place.tenant), self.lane(place));
        let level = self.levels.entry((place.class, place.priority)).or_default();
        level.change(lane, served, |requests| {
            let before = requests.insert(place.arrival, key);
            assert!(before.is_none(), "arrival {} waits twice", place.arrival);
        });
        self.len += 1;
        self.tokens += tokens as u64;
    }

    pub(super) fn remove(&mut self, place: Place, tokens: usize) {
        let lane = self.lane(place);
        let at = (place.class, place.priority);
        let level = self.levels.get_mut(&at).expect("a waiting request has a level");
        level.change(lane, 0, |requests| {
            let found = requests.remove(&place.arrival);
            assert!(found.is_some(), "arrival {} does not wait", place.arrival);
        });
        if level.lanes.is_empty() {
            self.levels.remove(&at);
        }
        self.len -= 1;
        self.tokens -= tokens as u64;
    }

    /// Who is next.
    pub(super) fn head(&mut self, tenants: &Tenants) -> Option<(Rank, Key)> {
        let fair = self.fair;
        let (&(class, priority), level) = self.levels.iter_mut().next()?;
        loop {
            let &(served, arrival, tenant) = level.ranking.first()?;
            let now = if fair { tenants.served(tenant) } else { 0 };
            assert!(now >= served, "tenant {tenant} was served {served} tokens, now {now}");
            let lane = level.lanes.get_mut(&tenant).expect("a ranked lane is there");
            if now == served {
                let key = lane.requests[&arrival];
                return Some(((class, priority, served, arrival), key));
            }
            lane.served = now;
            level.ranking.remove(&(served, arrival, tenant));
            level.ranking.insert((now, arrival, tenant));
        }
    }

    /// All requests, in no useful order.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        let lanes = self.levels.values().flat_map(|level| level.lanes.values());
        lanes.flat_map(|lane| lane.requests.values().copied())
    }
}

impl Level {
    /// Changes a lane's requests and ranks it anew; a new lane starts with `served`, an empty one goes.
    fn change(&mut self, tenant: u64, served: u64, change: impl FnOnce(&mut BTreeMap<u64, Key>)) {
        let lane = self.lanes.entry(tenant).or_insert_with(|| Lane { served, requests: BTreeMap::new() });
        let before = lane.requests.keys().next().copied();
        change(&mut lane.requests);
        let after = lane.requests.keys().next().copied();
        let served = lane.served;
        if after.is_none() {
            self.lanes.remove(&tenant);
        }
        if before == after {
            return;
        }
        if let Some(first) = before {
            self.ranking.remove(&(served, first, tenant));
        }
        if let Some(first) = after {
            self.ranking.insert((served, first, tenant));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against the plain way: look at all of them.
        #[test]
        fn the_head_is_the_lowest_rank(
            steps in prop::collection::vec((0..4_u8, 0..2_u8, -1..2_i32, 0..3_u64, 0..50_u32), 1..80), fair: bool,
        ) {
            let (mut queue, mut tenants) = (Queue::new(fair), Tenants::default());
            let mut waiting: Vec<(Place, Key)> = Vec::new();
            (0..3).for_each(|tenant| tenants.enter(tenant));
            for (arrival, (what, class, priority, tenant, tokens)) in (0..).zip(steps) {
                match what {
                    0 if !waiting.is_empty() => {
                        let (place, _) = waiting.swap_remove(tokens as usize % waiting.len());
                        queue.remove(place, 7);
                    }
                    1 => tenants.charge(tenant, tokens),
                    _ => {
                        let place = Place { class, priority, tenant, arrival };
                        let key = usize::try_from(arrival).expect("small");
                        queue.insert(&tenants, place, key, 7);
                        waiting.push((place, key));
                    }
                }
                let expected = waiting.iter().map(|(place, key)| (queue.rank(&tenants, *place), *key)).min();
                prop_assert_eq!(queue.head(&tenants), expected);
                prop_assert_eq!((queue.len(), queue.tokens()), (waiting.len(), 7 * waiting.len() as u64));
                prop_assert_eq!(queue.keys().count(), waiting.len());
            }
        }
    }
}
