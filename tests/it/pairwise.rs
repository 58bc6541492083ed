//! Seeded numbers for tests, and tables of cases in which every pair of levels of two factors occurs.

/// A small generator (SplitMix64) whose stream is its seed's alone.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// The stream of `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.bits() % end as u64).expect("below a usize")
    }

    /// A float in [-1, 1).
    pub(crate) fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// `n` of them.
    pub(crate) fn units(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.unit()).collect()
    }

    /// 0..n in any order.
    pub(crate) fn shuffled(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        (1..n).rev().for_each(|i| order.swap(i, self.below(i + 1)));
        order
    }
}

/// Rows of level numbers, one a factor, in which every pair of levels of two factors occurs; at most `rows_max` rows, greedy.
pub(crate) fn table(levels: &[usize], seed: u64, rows_max: usize) -> Vec<Vec<usize>> {
    let mut random = Random::new(seed);
    let mut open = std::collections::BTreeSet::new();
    for a in 0..levels.len() {
        for b in a + 1..levels.len() {
            (0..levels[a]).for_each(|x| (0..levels[b]).for_each(|y| assert!(open.insert((a, x, b, y)))));
        }
    }
    let mut rows = Vec::new();
    while let (Some(&(a, x, b, y)), true) = (open.first(), rows.len() < rows_max) {
        let closes = |row: &[usize], open: &std::collections::BTreeSet<_>| {
            let pairs = (0..levels.len()).flat_map(|a| (a + 1..levels.len()).map(move |b| (a, b)));
            pairs.filter(|&(a, b)| open.contains(&(a, row[a], b, row[b]))).count()
        };
        let candidates = (0..64).map(|_| {
            let mut row: Vec<usize> = levels.iter().map(|&n| random.below(n)).collect();
            (row[a], row[b]) = (x, y);
            row
        });
        let row = candidates.max_by_key(|row| closes(row, &open)).expect("64 candidates");
        open.retain(|&(a, x, b, y)| row[a] != x || row[b] != y);
        rows.push(row);
    }
    rows
}

#[test]
fn every_pair_of_levels_occurs() {
    let levels = [4, 3, 2, 5];
    let rows = table(&levels, 7, usize::MAX);
    assert!(rows.len() <= 30, "{} rows", rows.len());
    for (a, x, b, y) in [(0, 3, 1, 2), (1, 0, 3, 4), (2, 1, 3, 0)] {
        assert!(rows.iter().any(|row| row[a] == x && row[b] == y), "level {x} of {a} with level {y} of {b}");
    }
}
