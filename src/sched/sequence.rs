//! One request between its arrival and its end, and the slab that all of them live in.
//!
//! ```text
//! ids       0 ...... prompt_tokens ...... ids.len() .. + promised      known, then sampled by steps in flight
//! KV        [ written (applied) )[ planned (in flight) )
//! prefill   while planned < target; target = ids.len() at admission, so a resumed answer is prefilled too
//! decode    planned = length - 1: the one token whose K and V are missing
//! pages     | shared, from the cache | sealed: full, applied, offered to the cache | private, written by this request only |
//! digests   of the full pages of ids
//! ```

use std::ops::{Index, IndexMut};

use super::prefix::{Digest, PAGE, Prefix};
use super::types::{NewRequest, RequestId};

/// Where a request is in the slab, from arrival to end.
pub(super) type Key = usize;

/// What a request is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// In the queue; holds nothing.
    Waiting,
    /// Holds a slot and pages.
    Running {
        /// Its slot.
        slot: u32,
        /// To be preempted as soon as none of its rows is in flight; gets no more of them.
        marked: bool,
    },
    /// Ended, and steps in flight still use its slot and pages.
    Leaving {
        /// Its slot.
        slot: u32,
    },
}

/// A request.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) id: RequestId,
    pub(super) tenant: u64,
    pub(super) priority: i32,
    /// Counts submissions.
    pub(super) arrival: u64,
    pub(super) salt: Digest,
    pub(super) state: State,
    /// Whether it goes to the front of the queue.
    pub(super) preempted: bool,
    /// Whether it had a slot before.
    pub(super) resumed: bool,
    pub(super) prompt_tokens: u32,
    /// The answer ends when there are so many ids.
    pub(super) ids_max: u32,
    pub(super) ids: Vec<u32>,
    pub(super) digests: Vec<Digest>,
    pub(super) table: Vec<u32>,
    /// Leading pages that came from the cache.
    pub(super) shared_pages: usize,
    /// Leading pages that are full, applied and, as far as they may be kept, offered to the cache.
    pub(super) sealed_pages: usize,
    /// Pages announced as being computed end here.
    pub(super) announced_pages: usize,
    /// Pages that the cache had when last asked.
    pub(super) hint_pages: usize,
    pub(super) written: u32,
    pub(super) planned: u32,
    pub(super) target: u32,
    /// Tokens that steps in flight will yield.
    pub(super) promised: u32,
    /// Steps in flight with rows of it.
    pub(super) steps_in_flight: u32,
    /// Positions counted on the tenant's share.
    pub(super) charged: u32,
}

/// A count of tokens; all are bounded by the context.
pub(super) fn tokens(count: usize) -> u32 {
    u32::try_from(count).expect("no more tokens than the context")
}

impl Sequence {
    /// `ids_max` is at least one more than the prompt.
    pub(super) fn new(request: NewRequest, arrival: u64, ids_max: u32) -> Self {
        let prompt_tokens = tokens(request.prompt.len());
        assert!(prompt_tokens > 0 && ids_max > prompt_tokens, "{prompt_tokens} tokens of a prompt in {ids_max}");
        Self {
            id: request.id,
            tenant: request.tenant,
            priority: request.priority,
            arrival,
            salt: request.salt,
            state: State::Waiting,
            preempted: false,
            resumed: false,
            prompt_tokens,
            ids_max,
            ids: request.prompt,
            digests: Vec::new(),
            table: Vec::new(),
            shared_pages: 0,
            sealed_pages: 0,
            announced_pages: 0,
            hint_pages: 0,
            written: 0,
            planned: 0,
            target: 0,
            promised: 0,
            steps_in_flight: 0,
            charged: 0,
        }
    }

    /// Ids, those on their way too.
    pub(super) fn length(&self) -> u32 {
        tokens(self.ids.len()) + self.promised
    }

    /// Whether steps may have rows of it.
    pub(super) fn can_run(&self) -> bool {
        matches!(self.state, State::Running { marked: false, .. })
    }

    /// Whether a prefill chunk may be planned.
    pub(super) fn can_prefill(&self) -> bool {
        self.can_run() && self.planned < self.target
    }

    /// Whether a decode row may be planned.
    pub(super) fn can_decode(&self) -> bool {
        self.can_run() && self.planned >= self.target && self.length() < self.ids_max
    }

    /// Pages it needs beyond those it has, for positions up to `end`.
    pub(super) fn missing_pages(&self, end: u32) -> usize {
        (end as usize).div_ceil(PAGE).saturating_sub(self.table.len())
    }

    /// As the cache sees it.
    pub(super) fn prefix(&self) -> Prefix<'_> {
        Prefix { salt: &self.salt, ids: &self.ids, digests: &self.digests }
    }

    /// Nothing is computed, held or in flight any more.
    pub(super) fn reset(&mut self) {
        assert!(self.table.is_empty(), "request {} holds {} pages", self.id, self.table.len());
        assert!(self.steps_in_flight == 0, "request {} is in {} steps in flight", self.id, self.steps_in_flight);
        (self.shared_pages, self.sealed_pages, self.announced_pages) = (0, 0, 0);
        (self.written, self.planned, self.target, self.promised) = (0, 0, 0, 0);
        self.state = State::Waiting;
    }
}

/// Requests by key; keys are used again.
#[derive(Debug, Default)]
pub(super) struct Slab {
    entries: Vec<Option<Sequence>>,
    free: Vec<Key>,
}

impl Slab {
    pub(super) fn insert(&mut self, sequence: Sequence) -> Key {
        if let Some(key) = self.free.pop() {
            self.entries[key] = Some(sequence);
            return key;
        }
        self.entries.push(Some(sequence));
        self.entries.len() - 1
    }

    pub(super) fn remove(&mut self, key: Key) -> Sequence {
        self.free.push(key);
        self.entries[key].take().expect("a key names a request")
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &Sequence)> {
        self.entries.iter().enumerate().filter_map(|(key, entry)| Some((key, entry.as_ref()?)))
    }
}

impl Index<Key> for Slab {
    type Output = Sequence;

    fn index(&self, key: Key) -> &Sequence {
        self.entries[key].as_ref().expect("a key names a request")
    }
}

impl IndexMut<Key> for Slab {
    fn index_mut(&mut self, key: Key) -> &mut Sequence {
        self.entries[key].as_mut().expect("a key names a request")
    }
}
