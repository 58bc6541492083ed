//! A seeded generator of our own, the same on every machine and in every version.

use super::exact::{exp, ln};

/// `SplitMix64`: small, fast, and any seed will do.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator; equal seeds give equal numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The generator of part `part` of what `seed` decides: parts do not shift each other's numbers.
    #[must_use]
    pub fn part(seed: u64, part: u64) -> Self {
        let mut first = Self::new(seed);
        let mut second = Self::new(first.bits() ^ part);
        Self::new(second.bits())
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`; `bound` is at least 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing to choose from");
        let wide = u128::from(self.bits()) * u128::from(bound);
        u64::try_from(wide >> 64).expect("a 64-bit number's upper half")
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: u32, high: u32) -> u32 {
        assert!(low <= high, "{low} > {high}");
        let offset = self.below(u64::from(high - low) + 1);
        low + u32::try_from(offset).expect("within the range")
    }

    /// A number in `0 .. 1`, neither included.
    #[allow(clippy::cast_precision_loss, reason = "53 bits are exact")]
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 12) as f64 + 0.5) / (1u64 << 52) as f64
    }

    /// Exponentially distributed with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -ln(self.unit())
    }

    /// Gamma-distributed with this shape and scale 1. The shape is positive and finite.
    pub fn gamma(&mut self, shape: f64) -> f64 {
        assert!(shape > 0.0 && shape.is_finite(), "shape {shape}");
        if shape < 1.0 {
            let power = exp(ln(self.unit()) / shape);
            return self.gamma(shape + 1.0) * power;
        }
        // Marsaglia and Tsang, 2000.
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = 1.0 + c * x;
            if v <= 0.0 {
                continue;
            }
            let v = v * v * v;
            if ln(self.unit()) < 0.5 * x * x + d - d * v + d * ln(v) {
                return d * v;
            }
        }
    }

    /// Fisher and Yates' shuffle.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = usize::try_from(self.below(i as u64 + 1)).expect("an index");
            items.swap(i, j);
        }
    }

    /// Marsaglia's polar method; the second number is thrown away, so that no state is hidden.
    fn normal(&mut self) -> f64 {
        loop {
            let (x, y) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
            let square = x * x + y * y;
            if square < 1.0 && square > f64::MIN_POSITIVE {
                return x * (-2.0 * ln(square) / square).sqrt();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_published_generator() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.bits(), 6_457_827_717_110_365_317);
        assert_eq!(random.bits(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn gamma_has_its_mean_and_variance_for_small_and_large_shapes() {
        const DRAWS: u32 = 40_000;
        for shape in [0.01, 0.3, 1.0, 2.5, 50.0] {
            let mut random = Random::new(7);
            let draws: Vec<f64> = (0..DRAWS).map(|_| random.gamma(shape)).collect();
            assert!(draws.iter().all(|x| x.is_finite() && *x >= 0.0));
            let mean = draws.iter().sum::<f64>() / f64::from(DRAWS);
            let variance = draws.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / f64::from(DRAWS);
            // Five standard errors; the variance's own error grows as the shape shrinks.
            let error = (shape / f64::from(DRAWS)).sqrt();
            assert!((mean - shape).abs() < 5.0 * error, "mean of shape {shape}: {mean}");
            let spread = shape * ((2.0 + 6.0 / shape) / f64::from(DRAWS)).sqrt();
            assert!((variance - shape).abs() < 5.0 * spread, "variance of shape {shape}: {variance}");
        }
    }

    #[test]
    fn ranges_include_both_ends_and_shuffles_lose_nothing() {
        let mut random = Random::new(3);
        let seen: std::collections::BTreeSet<u32> = (0..200).map(|_| random.between(5, 8)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [5, 6, 7, 8]);
        assert_eq!(random.between(9, 9), 9);
        assert!(random.between(0, u32::MAX) > 0);
        let mut items: Vec<u32> = (0..100).collect();
        random.shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
