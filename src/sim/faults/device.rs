//! The fake device: pages of cells that hold the chain value of a prefix, and what each slot sampled last.

use super::mix;
use crate::sched::{RowKind, StepRows};

const PAGE: usize = crate::limits::PAGE_TOKENS as usize;
/// More than 256, so that ids may differ in their high bytes alone.
pub(super) const VOCABULARY: u32 = 600;

/// The chain value behind one more id.
pub(super) fn link(before: u64, id: u32) -> u64 {
    mix(before.rotate_left(7) ^ (u64::from(id) + 1))
}

/// The chain value before the first id.
pub(super) fn root(salt: u8) -> u64 {
    mix(u64::from(salt) + 99)
}

/// What the model says behind a prefix.
fn sample(value: u64) -> u32 {
    u32::try_from(mix(value ^ 0x5a5a) % u64::from(VOCABULARY)).expect("small")
}

/// Rows as they were submitted.
pub(super) struct Job {
    pub(super) rows: StepRows,
    pub(super) table: Vec<u32>,
    /// Of a prefill chunk; a decode row takes what its slot sampled.
    pub(super) ids: Vec<u32>,
    pub(super) root: u64,
}

impl Job {
    /// Pages it writes.
    pub(super) fn written_pages(&self) -> &[u32] {
        let (from, end) = (self.rows.from as usize, (self.rows.from + self.rows.tokens) as usize);
        &self.table[from / PAGE..end.div_ceil(PAGE)]
    }

    fn positions(&self) -> std::ops::Range<usize> {
        self.rows.from as usize..(self.rows.from + self.rows.tokens) as usize
    }
}

/// The device.
pub(super) struct Device {
    cells: Vec<[u64; PAGE]>,
    sampled: Vec<Option<u32>>,
}

impl Device {
    pub(super) fn new(pages: u32, slots: u32) -> Self {
        Self { cells: vec![[0; PAGE]; pages as usize], sampled: vec![None; slots as usize] }
    }

    /// Plays rows after checking that they read `chain`, the request's own values; returns the token if they yield one.
    pub(super) fn play(&mut self, job: &Job, chain: &[u64]) -> Option<u32> {
        let StepRows { id, slot, kind, from, last, .. } = job.rows;
        for (position, expected) in chain[..from as usize].iter().enumerate() {
            let cell = self.cells[job.table[position / PAGE] as usize][position % PAGE];
            assert!(cell == *expected, "request {id} reads something else at position {position} of {from}");
        }
        let sampled = [self.sampled[slot as usize].unwrap_or(VOCABULARY)];
        let ids = if kind == RowKind::Decode { &sampled[..] } else { &job.ids };
        let mut value = from.checked_sub(1).map_or(job.root, |before| chain[before as usize]);
        for (position, id) in job.positions().zip(ids) {
            value = link(value, *id);
            self.cells[job.table[position / PAGE] as usize][position % PAGE] = value;
        }
        self.sampled[slot as usize] = last.then(|| sample(value));
        self.sampled[slot as usize]
    }

    /// Rows that were played by half and went wrong.
    pub(super) fn spoil(&mut self, job: &Job) {
        for position in job.positions() {
            self.cells[job.table[position / PAGE] as usize][position % PAGE] = 0;
        }
        self.sampled[job.rows.slot as usize] = None;
    }

    /// Nothing is left.
    pub(super) fn lose(&mut self) {
        self.cells.fill([0; PAGE]);
        self.sampled.fill(None);
    }
}
