//! The page pool: who holds what, and in which order unused cached pages go. It knows no ids and no digests.
//!
//! ```text
//! a page is   used    holders > 0               in block tables; may also be kept by the cache
//!             cached  holders = 0, kept         in `idle`, ordered by last use; a hit takes it back, want of room evicts it
//!             free    holders = 0, not kept     in `free`
//! ```

use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug, Default)]
struct Page {
    holders: u32,
    /// Whether the prefix cache can find it.
    kept: bool,
    /// Its entry in `idle` while it is there: when it was let go, and how deep it was.
    stamp: u64,
    depth: u32,
}

/// A page that [`Pages::take`] gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) page: u32,
    /// Whether the cache kept it till now and must forget it.
    pub(super) evicted: bool,
}

/// All pages of the pool.
#[derive(Debug)]
pub(super) struct Pages {
    pages: Vec<Page>,
    free: Vec<u32>,
    /// Cached pages that nobody holds, the next to go first: (stamp, !depth, page), so tails go before their heads.
    idle: BTreeSet<(u64, u32, u32)>,
    /// Block tables let go so far.
    stamp: u64,
}

impl Pages {
    pub(super) fn new(count: u32) -> Self {
        let pages = vec![Page::default(); count as usize];
        Self { pages, free: (0..count).rev().collect(), idle: BTreeSet::new(), stamp: 0 }
    }

    /// Pages that [`take`](Self::take) can give.
    pub(super) fn available(&self) -> usize {
        self.free.len() + self.idle.len()
    }

    pub(super) fn counts(&self) -> (u32, u32, u32) {
        let count = |n: usize| u32::try_from(n).expect("no more than pages");
        (count(self.pages.len() - self.available()), count(self.idle.len()), count(self.free.len()))
    }

    pub(super) fn total(&self) -> usize {
        self.pages.len()
    }

    pub(super) fn holders(&self, page: u32) -> u32 {
        self.pages[page as usize].holders
    }

    pub(super) fn is_kept(&self, page: u32) -> bool {
        self.pages[page as usize].kept
    }

    /// A page for one new holder: a free one, else the cached one that was used longest ago. `None`: all are held.
    pub(super) fn take(&mut self) -> Option<Taken> {
        let (page, evicted) = match self.free.pop() {
            Some(page) => (page, false),
            None => (self.idle.pop_first()?.2, true),
        };
        let entry = &mut self.pages[page as usize];
        assert!(entry.holders == 0, "page {page} is given away and has {} holders", entry.holders);
        assert!(entry.kept == evicted, "page {page}: kept {}, evicted {evicted}", entry.kept);
        *entry = Page { holders: 1, ..Page::default() };
        Some(Taken { page, evicted })
    }

    /// One more holder of a kept page.
    pub(super) fn hold(&mut self, page: u32) {
        let entry = &mut self.pages[page as usize];
        assert!(entry.kept, "page {page} is hit and not kept");
        if entry.holders == 0 {
            assert!(self.idle.remove(&(entry.stamp, !entry.depth, page)), "page {page} is not idle");
        }
        entry.holders += 1;
    }

    /// The cache can find this held page from now on.
    pub(super) fn keep(&mut self, page: u32) {
        let entry = &mut self.pages[page as usize];
        assert!(entry.holders > 0 && !entry.kept, "page {page} is kept: {entry:?}");
        entry.kept = true;
    }

    /// One holder less for each page of a block table, in the order of the table.
    pub(super) fn release(&mut self, table: &[u32]) {
        self.stamp += 1;
        for (depth, &page) in (0..).zip(table) {
            let entry = &mut self.pages[page as usize];
            assert!(entry.holders > 0, "page {page} is let go and has no holder");
            entry.holders -= 1;
            if entry.holders > 0 {
                continue;
            }
            if entry.kept {
                (entry.stamp, entry.depth) = (self.stamp, depth);
                self.idle.insert((self.stamp, !depth, page));
            } else {
                self.free.push(page);
            }
        }
    }

    /// The cache has forgotten everything: what nobody holds is free.
    pub(super) fn forget_all(&mut self) {
        self.free.extend(self.idle.iter().map(|(_, _, page)| page));
        self.idle.clear();
        for page in &mut self.pages {
            page.kept = false;
        }
    }

    /// Recounts everything against `holders`, the number of block tables that hold each page.
    ///
    /// # Panics
    /// When anything does not add up.
    pub(super) fn check(&self, holders: &[u32]) {
        assert!(holders.len() == self.pages.len(), "{} pages counted of {}", holders.len(), self.pages.len());
        let mut free = vec![0_u32; self.pages.len()];
        for &page in &self.free {
            free[page as usize] += 1;
        }
        let mut used = 0;
        for (at, page) in self.pages.iter().enumerate() {
            let number = u32::try_from(at).expect("a page");
            assert!(page.holders == holders[at], "page {at}: {} holders, {} hold it", page.holders, holders[at]);
            let idle = self.idle.contains(&(page.stamp, !page.depth, number));
            let cached = page.holders == 0 && page.kept;
            assert!(idle == cached, "page {at}: idle {idle}, cached {cached}");
            let is_free = u32::from(page.holders == 0 && !page.kept);
            assert!(free[at] == is_free, "page {at} is {} times in the free list: {page:?}", free[at]);
            used += usize::from(page.holders > 0);
        }
        let (cached, free, total) = (self.idle.len(), self.free.len(), self.pages.len());
        assert!(used + cached + free == total, "{used} used + {cached} cached + {free} free of {total} pages");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(pages: &mut Pages, count: usize) -> Vec<u32> {
        (0..count).map(|_| pages.take().expect("a page").page).collect()
    }

    #[test]
    fn unused_pages_go_before_cached_ones_and_tails_before_heads() {
        let mut pages = Pages::new(6);
        let (old, new) = (take(&mut pages, 3), take(&mut pages, 2));
        for &page in old.iter().chain(&new) {
            pages.keep(page);
        }
        pages.release(&old);
        pages.release(&new);
        pages.check(&[0; 6]);
        let order: Vec<_> = (0..6).map(|_| pages.take().expect("a page")).map(|t| (t.page, t.evicted)).collect();
        let evicted = [old[2], old[1], old[0], new[1], new[0]].map(|page| (page, true));
        assert_eq!(order[1..], evicted);
        assert!(!order[0].1);
        assert_eq!(pages.take(), None);
    }

    #[test]
    fn a_hit_saves_an_idle_page_and_renews_it() {
        let mut pages = Pages::new(2);
        let table = take(&mut pages, 2);
        table.iter().for_each(|&page| pages.keep(page));
        pages.release(&table);
        pages.hold(table[1]);
        assert_eq!(pages.counts(), (1, 1, 0));
        pages.release(&table[1..]);
        let order = take(&mut pages, 2);
        assert_eq!(order, table, "the one held last goes last");
    }

    #[test]
    fn forgetting_frees_what_nobody_holds() {
        let mut pages = Pages::new(3);
        let table = take(&mut pages, 2);
        table.iter().for_each(|&page| pages.keep(page));
        pages.release(&table[..1]);
        pages.forget_all();
        assert_eq!(pages.counts(), (1, 0, 2));
        pages.release(&table[1..]);
        pages.check(&[0; 3]);
    }
}
