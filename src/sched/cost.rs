//! What a step is predicted to last, and the largest chunk that keeps it inside a bound.

use crate::limits::PREFILL_TILE_TOKENS;

/// The time of a step: `a + b · prefill tokens + c · decode rows + d · attended pairs`.
///
/// All four are nanoseconds × 1024 (fixed point with 10 binary places). In a step that holds a chunk all rows are prefill tokens, those
/// that decode too, rounded up to tiles of [`PREFILL_TILE_TOKENS`]: matmuls take them together. Only a step without a chunk has decode
/// rows. A pair is a query and a
/// key it attends to, so a row at position `p` has `p + 1` of them. The default is all zeros: nothing is known, and everything fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostModel {
    /// A step.
    pub a: u64,
    /// A prefill token.
    pub b: u64,
    /// A decode row of a step without a chunk.
    pub c: u64,
    /// An attended pair.
    pub d: u64,
}

/// What a step holds already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Before {
    /// Rows, of decode and of chunks.
    pub rows: u32,
    /// Whether there are chunks among them.
    pub chunks: bool,
}

/// The unit of [`CostModel`] in one nanosecond.
pub const UNITS_A_NANO: u64 = 1024;

/// `nanos` in the unit of [`CostModel`].
pub(super) const fn units_from_nanos(nanos: u64) -> u64 {
    nanos.saturating_mul(UNITS_A_NANO)
}

impl CostModel {
    /// What a decode row at `position` adds, in 1/1024 ns.
    #[must_use]
    pub fn decode_units(&self, position: u32) -> u64 {
        self.c.saturating_add(self.d.saturating_mul(u64::from(position) + 1))
    }

    /// What a chunk of `tokens` from position `from` adds to a step that holds `before`, in 1/1024 ns; the first chunk turns the step's
    /// decode rows into prefill tokens.
    #[must_use]
    pub fn chunk_units(&self, before: Before, from: u32, tokens: u32) -> u64 {
        let (from, count, tile) = (u64::from(from), u64::from(tokens), u64::from(PREFILL_TILE_TOKENS));
        let pairs = count * from + count * (count + 1) / 2;
        let rows = u64::from(before.rows);
        let billed = match before.chunks {
            true => self.b.saturating_mul(rows.next_multiple_of(tile)),
            false => self.c.saturating_mul(rows),
        };
        let tiles = self.b.saturating_mul((rows + count).next_multiple_of(tile));
        tiles.saturating_sub(billed).saturating_add(self.d.saturating_mul(pairs))
    }

    /// The largest chunk from `from` that costs at most `units`: `tokens_max`, or one that fills the step's tiles, or 0.
    pub(super) fn chunk_within(&self, before: Before, from: u32, tokens_max: u32, units: u64) -> u32 {
        if self.chunk_units(before, from, tokens_max) <= units {
            return tokens_max;
        }
        // Tiles that the step would have in all; those it has rows for already hold no chunk.
        let tokens = |tiles: u32| (tiles * PREFILL_TILE_TOKENS).saturating_sub(before.rows);
        let begun = before.rows / PREFILL_TILE_TOKENS;
        let (mut fits, mut too_many) = (begun, (before.rows + tokens_max).div_ceil(PREFILL_TILE_TOKENS));
        while fits + 1 < too_many {
            let middle = fits + (too_many - fits) / 2;
            if self.chunk_units(before, from, tokens(middle)) <= units {
                fits = middle;
            } else {
                too_many = middle;
            }
        }
        tokens(fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_chunk_is_the_largest_that_fits(
            b in 0..5_000_u64, d in 0..50_u64, from in 0..10_000_u32, max in 1..3_000_u32, units in 0..20_000_000_u64,
            rows in 0..30_u32, chunks: bool,
        ) {
            let cost = CostModel { a: 7, b, c: 9, d };
            let before = Before { rows, chunks };
            let got = cost.chunk_within(before, from, max, units);
            let sizes = (0..=max).filter(|n| (rows + n) % PREFILL_TILE_TOKENS == 0 || *n == 0 || *n == max);
            let expected = sizes.filter(|n| *n == 0 || cost.chunk_units(before, from, *n) <= units).max();
            prop_assert_eq!(Some(got), expected);
        }
    }

    #[test]
    fn pairs_are_the_keys_each_query_sees() {
        let cost = CostModel { d: 1, ..CostModel::default() };
        let none = Before::default();
        assert_eq!(cost.chunk_units(none, 10, 3), 11 + 12 + 13);
        assert_eq!((10..13).map(|p| cost.decode_units(p)).sum::<u64>(), cost.chunk_units(none, 10, 3));
        let tokens = CostModel { b: 2, ..CostModel::default() };
        assert_eq!(tokens.chunk_units(none, 0, 9), 2 * 16);
        assert_eq!(tokens.chunk_units(Before { rows: 4, chunks: false }, 0, 4), 2 * 8);
        assert_eq!(tokens.chunk_units(Before { rows: 12, chunks: true }, 0, 4), 0, "the tile is there already");
        let rows = CostModel { b: 2, c: 3, ..CostModel::default() };
        assert_eq!(
            rows.chunk_units(Before { rows: 4, chunks: false }, 0, 4),
            2 * 8 - 3 * 4,
            "four rows decode in the tile"
        );
        assert_eq!(rows.chunk_units(Before { rows: 8, chunks: false }, 0, 1), 2 * 16 - 3 * 8);
        assert_eq!(CostModel { b: 1, c: 9, ..rows }.chunk_units(Before { rows: 8, chunks: false }, 0, 1), 0);
    }
}
