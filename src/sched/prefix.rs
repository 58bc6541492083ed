//! The prompt cache's index: full pages found by what came before them and by their own ids.
//!
//! A page is keyed by the chained digest of all before it and by its sixteen ids themselves, so a hit compares the ids, and
//! the neighbours of a key in the map are the pages that share most with it: they tell where a prompt differs.
//! It knows pages by number only; who holds them is `pages`' matter.
//!
//! ```text
//! salt --H(salt, ids 0..16)--> d0 --H(d0, ids 16..32)--> d1 ...        H = SHA-256 over digest and little-endian ids
//! key of page 0 = (salt, ids 0..16), of page 1 = (d0, ids 16..32), ...
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sha2::{Digest as _, Sha256};

use super::mutant::Mutant;
use super::types::{Miss, MissReason, RequestId};
use crate::limits::{EVICTED_PAGES_MAX, PAGE_TOKENS};

/// Tokens of a page as a length.
pub(super) const PAGE: usize = PAGE_TOKENS as usize;

/// What stands for a whole prefix.
pub(super) type Digest = [u8; 32];

/// The digest of a prefix that ends with the page `ids`.
pub(super) fn chain(parent: &Digest, ids: &[u32]) -> Digest {
    assert!(ids.len() == PAGE, "a page of {} ids", ids.len());
    let mut bytes = [0_u8; 32 + 4 * PAGE];
    bytes[..32].copy_from_slice(parent);
    for (to, id) in bytes[32..].chunks_exact_mut(4).zip(ids) {
        to.copy_from_slice(&id.to_le_bytes());
    }
    Sha256::digest(bytes).into()
}

/// The digests of all full pages of `ids`; `digests` holds those of the first ones already.
pub(super) fn extend(digests: &mut Vec<Digest>, salt: &Digest, ids: &[u32]) {
    for page in ids.chunks_exact(PAGE).skip(digests.len()) {
        let next = chain(digests.last().unwrap_or(salt), page);
        digests.push(next);
    }
}

/// A page's place in a prefix tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PageKey {
    parent: Digest,
    ids: [u32; PAGE],
}

/// One request's prefix, as the cache sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prefix<'a> {
    pub(super) salt: &'a Digest,
    pub(super) ids: &'a [u32],
    /// Of all full pages of `ids` at least.
    pub(super) digests: &'a [Digest],
}

impl Prefix<'_> {
    fn key(&self, page: usize) -> PageKey {
        let mut ids = [0; PAGE];
        ids.copy_from_slice(&self.ids[page * PAGE..][..PAGE]);
        PageKey { parent: page.checked_sub(1).map_or(*self.salt, |before| self.digests[before]), ids }
    }
}

/// Which page holds which prefix.
#[derive(Debug, Default)]
pub(super) struct PrefixIndex {
    pages: BTreeMap<PageKey, u32>,
    /// The key of each page that is in `pages`, and the digest of the prefix it ends.
    keys: BTreeMap<u32, (PageKey, Digest)>,
    /// Prefixes whose last page was evicted, for the reason of a miss; the oldest are forgotten.
    evicted: BTreeSet<Digest>,
    evicted_order: VecDeque<Digest>,
    /// Prefixes that running requests are computing now.
    pending: BTreeMap<Digest, RequestId>,
    mutant: Option<Mutant>,
}

impl PrefixIndex {
    pub(super) fn new(mutant: Option<Mutant>) -> Self {
        Self { mutant, ..Self::default() }
    }

    /// Pages that can be found.
    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    fn key(&self, prefix: Prefix<'_>, page: usize) -> PageKey {
        let mut key = prefix.key(page);
        if self.mutant == Some(Mutant::LowByteIds) {
            key.ids = key.ids.map(|id| id & 0xff);
            let mut parent = *prefix.salt;
            for ids in prefix.ids[..page * PAGE].chunks_exact(PAGE) {
                parent = chain(&parent, &ids.iter().map(|id| id & 0xff).collect::<Vec<_>>());
            }
            key.parent = parent;
        }
        key
    }

    /// The page that holds page `page` of a prefix.
    pub(super) fn find(&self, prefix: Prefix<'_>, page: usize) -> Option<u32> {
        self.pages.get(&self.key(prefix, page)).copied()
    }

    /// How many leading pages (at most `most`) can probably be found, starting from an earlier answer; cheap when little
    /// has changed since. Exact unless a head was evicted before its tail.
    pub(super) fn reach(&self, prefix: Prefix<'_>, hint: usize, most: usize) -> usize {
        let mut reach = hint.min(most);
        while reach > 0 && self.find(prefix, reach - 1).is_none() {
            reach -= 1;
        }
        while reach < most && self.find(prefix, reach).is_some() {
            reach += 1;
        }
        reach
    }

    /// Why page `page` of a prefix, all before it found, is not there.
    pub(super) fn miss(&self, prefix: Prefix<'_>, page: usize) -> Miss {
        let key = self.key(prefix, page);
        let start = page * PAGE;
        let siblings = [self.pages.range(..key).next_back(), self.pages.range(key..).next()];
        let shared = |(other, _): (&PageKey, &u32)| {
            let same = key.ids.iter().zip(&other.ids).take_while(|(a, b)| a == b).count();
            (other.parent == key.parent).then_some(same)
        };
        let shared = siblings.into_iter().flatten().filter_map(shared).max();
        let (reason, at) = match shared {
            _ if self.evicted.contains(&prefix.digests[page]) => (MissReason::Evicted, start),
            // Behind the salt alone everything begins; only a common beginning makes it a difference.
            Some(same) if page > 0 || same > 0 => (MissReason::Differs, start + same),
            _ => (MissReason::New, start),
        };
        Miss { reason, at: u32::try_from(at).expect("within the context") }
    }

    /// Lets page number `number` be found as page `page` of a prefix. `false`: another one is already.
    pub(super) fn insert(&mut self, prefix: Prefix<'_>, page: usize, number: u32) -> bool {
        let key = self.key(prefix, page);
        if self.pages.contains_key(&key) {
            return false;
        }
        let digest = prefix.digests[page];
        self.pages.insert(key, number);
        let before = self.keys.insert(number, (key, digest));
        assert!(before.is_none(), "page {number} is kept for two prefixes");
        self.evicted.remove(&digest);
        true
    }

    /// Page number `number` is given to someone else.
    pub(super) fn evict(&mut self, number: u32) {
        let (key, digest) = self.keys.remove(&number).expect("a kept page has a key");
        let found = self.pages.remove(&key);
        assert!(found == Some(number), "page {number} is evicted, its key finds {found:?}");
        self.remember(digest);
    }

    /// What all pages held is lost.
    pub(super) fn evict_all(&mut self) {
        self.pages.clear();
        for (_, (_, digest)) in std::mem::take(&mut self.keys) {
            self.remember(digest);
        }
    }

    fn remember(&mut self, digest: Digest) {
        if self.evicted.insert(digest) {
            self.evicted_order.push_back(digest);
        }
        // Digests that came back into the cache leave a stale entry in the order; it only shortens the memory.
        while self.evicted_order.len() > EVICTED_PAGES_MAX {
            if let Some(oldest) = self.evicted_order.pop_front() {
                self.evicted.remove(&oldest);
            }
        }
    }

    /// `owner` is computing the prefixes `digests`.
    pub(super) fn announce(&mut self, owner: RequestId, digests: &[Digest]) {
        for digest in digests {
            self.pending.entry(*digest).or_insert(owner);
        }
    }

    /// `owner` has computed them, or never will.
    pub(super) fn withdraw(&mut self, owner: RequestId, digests: &[Digest]) {
        for digest in digests {
            if self.pending.get(digest) == Some(&owner) {
                self.pending.remove(digest);
            }
        }
    }

    /// Who is computing the prefix `digest`.
    pub(super) fn computing(&self, digest: &Digest) -> Option<RequestId> {
        self.pending.get(digest).copied()
    }

    /// Owners of announced prefixes.
    pub(super) fn owners(&self) -> impl Iterator<Item = RequestId> {
        self.pending.values().copied()
    }

    /// Page numbers that can be found.
    ///
    /// # Panics
    /// When the two maps disagree.
    pub(super) fn check(&self) -> impl Iterator<Item = u32> {
        assert!(self.pages.len() == self.keys.len(), "{} keys, {} pages", self.pages.len(), self.keys.len());
        for (number, (key, _)) in &self.keys {
            let found = self.pages.get(key);
            assert!(found == Some(number), "the key of page {number} finds {found:?}");
        }
        self.keys.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_depends_on_every_id_the_order_and_the_salt() {
        let ids: Vec<u32> = (0..PAGE_TOKENS).collect();
        let mut seen = BTreeSet::from([chain(&[0; 32], &ids), chain(&[1; 32], &ids)]);
        for at in 0..PAGE {
            for change in [1, 256, 1 << 16, 1 << 24] {
                let mut other = ids.clone();
                other[at] += change;
                assert!(seen.insert(chain(&[0; 32], &other)), "id {at} + {change}");
            }
        }
        let mut turned = ids.clone();
        turned.rotate_left(1);
        assert!(seen.insert(chain(&[0; 32], &turned)));
    }

    #[test]
    fn the_memory_of_evicted_pages_is_bounded() {
        let mut index = PrefixIndex::default();
        for n in 0..EVICTED_PAGES_MAX as u64 + 100 {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&n.to_le_bytes());
            index.remember(digest);
        }
        assert_eq!((index.evicted.len(), index.evicted_order.len()), (EVICTED_PAGES_MAX, EVICTED_PAGES_MAX));
    }
}
