//! The mean of a prompt's last hidden states, summed in the order of positions, so that chunks, preemption and company change no bit.

/// The sum so far.
#[derive(Debug, Default)]
pub(super) struct Pool {
    sum: Vec<f64>,
    /// Positions that are in it.
    positions: u32,
}

impl Pool {
    /// Takes the states of the positions from `from` on; those that it has are passed over, which a request that starts over computes anew.
    pub(super) fn take(&mut self, from: u32, states: &[Vec<f32>]) {
        assert!(from <= self.positions, "positions {} to {from} are missing", self.positions);
        for state in states.iter().skip((self.positions - from) as usize) {
            self.sum.resize(state.len(), 0.0);
            self.sum.iter_mut().zip(state).for_each(|(sum, value)| *sum += f64::from(*value));
            self.positions += 1;
        }
    }

    /// The mean; `None` where it is not finite.
    #[allow(clippy::cast_possible_truncation, reason = "the result's precision")]
    pub(super) fn mean(&self) -> Option<Vec<f32>> {
        let mean: Vec<f32> = self.sum.iter().map(|sum| (sum / f64::from(self.positions)) as f32).collect();
        mean.iter().all(|value| value.is_finite()).then_some(mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_computed_twice_counts_once() {
        let state = |value: f32| vec![value, -value];
        let mut pool = Pool::default();
        pool.take(0, &[state(1.0), state(2.0)]);
        pool.take(0, &[state(1.0), state(2.0), state(6.0)]);
        pool.take(2, &[state(6.0)]);
        assert_eq!(pool.mean(), Some(vec![3.0, -3.0]));
        pool.take(3, &[state(f32::NAN)]);
        assert_eq!(pool.mean(), None);
    }

    #[test]
    #[should_panic(expected = "positions 2 to 3 are missing")]
    fn a_gap_is_a_bug() {
        let mut pool = Pool::default();
        pool.take(0, &[vec![0.0], vec![0.0]]);
        pool.take(3, &[vec![0.0]]);
    }
}
