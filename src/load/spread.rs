//! The spread of a sample, computed as numpy does: percentiles interpolate linearly, the deviation is the population's.

/// Mean, median, deviation and percentiles of a sample that is not empty.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    /// Ascending.
    sorted: Vec<f64>,
    mean: f64,
    deviation: f64,
}

impl Spread {
    /// Of `samples`; `None` when there are none. They are finite.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a number of samples is far below 2^52")]
    pub fn of(mut samples: Vec<f64>) -> Option<Self> {
        if samples.is_empty() {
            return None;
        }
        assert!(samples.iter().all(|sample| sample.is_finite()), "a sample is not finite");
        samples.sort_by(f64::total_cmp);
        let count = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / count;
        let deviation = (samples.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count).sqrt();
        Some(Self { sorted: samples, mean, deviation })
    }

    /// The samples, ascending.
    #[must_use]
    pub fn sorted(&self) -> &[f64] {
        &self.sorted
    }

    /// Number of samples.
    #[must_use]
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// Their mean.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Their middle.
    #[must_use]
    pub fn median(&self) -> f64 {
        self.percentile(50.0)
    }

    /// Their standard deviation, as of a whole population.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        self.deviation
    }

    /// The largest.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.sorted[self.sorted.len() - 1]
    }

    /// Linear interpolation between the two samples around `percent` of the way, from 0 to 100.
    #[must_use]
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    pub fn percentile(&self, percent: f64) -> f64 {
        assert!((0.0..=100.0).contains(&percent), "percentile {percent}");
        let last = self.sorted.len() - 1;
        let place = percent / 100.0 * last as f64;
        let below = (place.floor() as usize).min(last);
        let (a, b) = (self.sorted[below], self.sorted[(below + 1).min(last)]);
        let part = place - below as f64;
        // From the nearer end, as numpy does it.
        if part < 0.5 { a + (b - a) * part } else { b - (b - a) * (1.0 - part) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(samples: &[f64]) -> Spread {
        Spread::of(samples.to_vec()).expect("samples")
    }

    /// Expected values are numpy's: `np.percentile`, `np.std`, `np.median`.
    #[test]
    fn figures_are_numpys() {
        let s = spread(&[10.0, 1.0, 7.0, 4.0]);
        assert_eq!((s.count(), s.mean(), s.median(), s.max()), (4, 5.5, 5.5, 10.0));
        assert!((s.deviation() - 3.354_101_966_249_684_6).abs() < 1e-12);
        assert!((s.percentile(99.0) - 9.91).abs() < 1e-12);
        assert!((s.percentile(25.0) - 3.25).abs() < 1e-12);
        assert_eq!((s.percentile(0.0), s.percentile(100.0)), (1.0, 10.0));
    }

    #[test]
    fn one_sample_is_all_its_figures_and_none_has_none() {
        let s = spread(&[3.0]);
        assert_eq!((s.mean(), s.median(), s.deviation(), s.percentile(99.0)), (3.0, 3.0, 0.0, 3.0));
        assert_eq!(Spread::of(Vec::new()), None);
    }
}
