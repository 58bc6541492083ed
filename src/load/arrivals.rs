//! When requests come: vLLM's serve bench. Gaps are gamma-distributed (`burstiness` 1 is a Poisson process, infinite is a
//! constant gap) and then stretched so that the last of N requests comes at exactly N / rate.

use super::random::Random;
use crate::error::{Error, Result};

/// `--request-rate` and `--burstiness`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Arrivals {
    /// Requests a second; infinite sends all at once.
    rate: f64,
    /// Shape of the gaps' distribution.
    burstiness: f64,
}

/// Longest run; also keeps every time far from overflow.
const SECONDS_MAX: f64 = 1e8;

impl Arrivals {
    /// # Errors
    /// `Usage` unless both are positive; either may be infinite.
    pub fn new(rate: f64, burstiness: f64) -> Result<Self> {
        let positive = |flag: &str, value: f64| {
            if value > 0.0 {
                Ok(value)
            } else {
                Err(Error::Usage(format!("{flag}: expected more than 0, got {value}")))
            }
        };
        Ok(Self { rate: positive("--request-rate", rate)?, burstiness: positive("--burstiness", burstiness)? })
    }

    /// Requests a second, or infinity.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Shape of the gaps' distribution.
    #[must_use]
    pub fn burstiness(&self) -> f64 {
        self.burstiness
    }

    /// Whether all come at once.
    #[must_use]
    pub fn at_once(&self) -> bool {
        self.rate.is_infinite()
    }

    /// Nanoseconds of `count` arrivals, ascending.
    ///
    /// # Errors
    /// `Usage` when the run would last for years.
    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub fn nanos(&self, count: usize, random: &mut Random) -> Result<Vec<u64>> {
        if self.at_once() || count == 0 {
            return Ok(vec![0; count]);
        }
        let seconds = count as f64 / self.rate;
        if seconds > SECONDS_MAX {
            let message = format!("--request-rate: {count} requests at {} a second take {seconds:.0} s", self.rate);
            return Err(Error::Usage(message));
        }
        let mut sum = 0.0;
        let mut ends = Vec::with_capacity(count);
        for _ in 0..count {
            sum += self.gap(random);
            ends.push(sum);
        }
        // Gaps of a tiny shape can all be 0; then everything comes at the end.
        let place = |end: f64| if sum > 0.0 { end / sum } else { 1.0 };
        Ok(ends.into_iter().map(|end| nanos(place(end) * seconds)).collect())
    }

    /// A gap in any unit: all are stretched alike.
    fn gap(&self, random: &mut Random) -> f64 {
        if self.burstiness.is_infinite() || self.burstiness > 1e9 {
            1.0
        } else if self.burstiness == 1.0 {
            random.exponential()
        } else {
            random.gamma(self.burstiness)
        }
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to SECONDS_MAX")]
pub(super) fn nanos(seconds: f64) -> u64 {
    (seconds.clamp(0.0, SECONDS_MAX) * 1e9).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(rate: f64, burstiness: f64, count: usize) -> Vec<u64> {
        Arrivals::new(rate, burstiness).expect("positive").nanos(count, &mut Random::new(1)).expect("short")
    }

    #[test]
    fn the_last_of_n_comes_at_n_by_rate_whatever_the_shape() {
        for burstiness in [0.001, 0.5, 1.0, 4.0, 1e12, f64::INFINITY] {
            for rate in [0.1, 3.0, 1e6] {
                let times = times(rate, burstiness, 100);
                assert!(times.is_sorted(), "{burstiness} {rate}");
                assert_eq!(times[99], nanos(100.0 / rate), "{burstiness} {rate}");
            }
        }
        assert_eq!(times(4.0, f64::INFINITY, 4), [250, 500, 750, 1000].map(|ms| ms * 1_000_000));
    }

    #[test]
    fn gaps_vary_as_the_shape_says() {
        let variation = |burstiness| {
            let times = times(10.0, burstiness, 20_000);
            let gaps: Vec<f64> = times.windows(2).map(|w| (w[1] - w[0]) as f64 / 1e8).collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            (gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt() / mean
        };
        for (burstiness, expected) in [(0.25, 2.0), (1.0, 1.0), (4.0, 0.5), (f64::INFINITY, 0.0)] {
            let got = variation(burstiness);
            assert!((got - expected).abs() < 0.1, "{burstiness}: {got}");
        }
    }

    #[test]
    fn all_at_once_is_the_time_0() {
        assert_eq!(times(f64::INFINITY, 1.0, 3), [0, 0, 0]);
        assert_eq!(times(5.0, 1.0, 0), [] as [u64; 0]);
    }

    #[test]
    fn what_is_no_rate_is_wrong_usage() {
        for (rate, burstiness, flag) in
            [(0.0, 1.0, "--request-rate"), (-1.0, 1.0, "--request-rate"), (f64::NAN, 1.0, "--request-rate")]
                .into_iter()
                .chain([(1.0, 0.0, "--burstiness"), (1.0, f64::NAN, "--burstiness")])
        {
            let error = Arrivals::new(rate, burstiness).expect_err("refused");
            assert!(error.exit_code() == 2 && error.to_string().contains(flag), "{error}");
        }
        let years = Arrivals::new(1e-9, 1.0).expect("positive").nanos(10, &mut Random::new(0));
        assert_eq!(years.expect_err("refused").exit_code(), 2);
    }
}
