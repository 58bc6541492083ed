//! What a step is predicted to last, and the largest chunk that keeps it inside a bound.

use crate::limits::PREFILL_TILE_TOKENS;

/// The time of a step: `a + b · prefill tokens + c · decode rows + d · attended pairs`.
///
/// All four are nanoseconds × 1024 (fixed point with 10 binary places). Prefill tokens are rounded up to tiles of
/// [`PREFILL_TILE_TOKENS`], each chunk by itself; a pair is a query and a key it attends to, so a row at position `p` has
/// `p + 1` of them. The default is all zeros: nothing is known, and everything fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostModel {
    /// A step.
    pub a: u64,
    /// A prefill token.
    pub b: u64,
    /// A decode row.
    pub c: u64,
    /// An attended pair.
    pub d: u64,
}

/// The unit of [`CostModel`] in one nanosecond.
const UNITS_A_NANO: u64 = 1024;

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

    /// What a chunk of `tokens` from position `from` adds, in 1/1024 ns.
    #[must_use]
    pub fn chunk_units(&self, from: u32, tokens: u32) -> u64 {
        let (from, count, tile) = (u64::from(from), u64::from(tokens), u64::from(PREFILL_TILE_TOKENS));
        let pairs = count * from + count * (count + 1) / 2;
        self.b.saturating_mul(count.next_multiple_of(tile)).saturating_add(self.d.saturating_mul(pairs))
    }

    /// The largest chunk from `from` that costs at most `units`: `tokens_max`, or whole tiles below it, or 0.
    pub(super) fn chunk_within(&self, from: u32, tokens_max: u32, units: u64) -> u32 {
        if self.chunk_units(from, tokens_max) <= units {
            return tokens_max;
        }
        let (mut fits, mut too_many) = (0, tokens_max.div_ceil(PREFILL_TILE_TOKENS));
        while fits + 1 < too_many {
            let middle = fits + (too_many - fits) / 2;
            if self.chunk_units(from, middle * PREFILL_TILE_TOKENS) <= units {
                fits = middle;
            } else {
                too_many = middle;
            }
        }
        fits * PREFILL_TILE_TOKENS
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
        ) {
            let cost = CostModel { a: 7, b, c: 9, d };
            let got = cost.chunk_within(from, max, units);
            let sizes = (0..=max).filter(|n| n % PREFILL_TILE_TOKENS == 0 || *n == max);
            let expected = sizes.filter(|n| *n == 0 || cost.chunk_units(from, *n) <= units).max();
            prop_assert_eq!(Some(got), expected);
        }
    }

    #[test]
    fn pairs_are_the_keys_each_query_sees() {
        let cost = CostModel { d: 1, ..CostModel::default() };
        assert_eq!(cost.chunk_units(10, 3), 11 + 12 + 13);
        assert_eq!((10..13).map(|p| cost.decode_units(p)).sum::<u64>(), cost.chunk_units(10, 3));
        assert_eq!(CostModel { b: 2, ..CostModel::default() }.chunk_units(0, 9), 2 * 16);
    }
}
