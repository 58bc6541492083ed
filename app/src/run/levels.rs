//! Steps in groups of 16, of 256, and so on: a pixel that covers many steps shows what a few groups say.

use super::store::Step;

/// Steps or groups in a group.
const FAN: usize = 16;

/// A group of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// Start of its first step.
    pub t0: u64,
    /// End of its last step.
    pub t1: u64,
    /// Time that its steps took.
    pub busy_nanos: u64,
    /// Time of it on the GPU, of the steps that know it.
    pub gpu_nanos: u64,
    /// Time of its steps that prefilled something.
    pub prefill_nanos: u64,
    /// The longest of its steps.
    pub longest_nanos: u64,
    /// Prompt tokens.
    pub prefill_tokens: u64,
    /// Decode rows.
    pub decode_rows: u64,
    /// Most pages in use.
    pub pages_most: u32,
    /// Most requests that waited.
    pub waiting_most: u32,
}

impl Level {
    /// A group of one.
    #[must_use]
    pub fn of(step: &Step) -> Self {
        let nanos = step.t1.saturating_sub(step.t0);
        Self {
            t0: step.t0,
            t1: step.t1,
            busy_nanos: nanos,
            gpu_nanos: step.gpu_nanos,
            prefill_nanos: if step.prefill_tokens > 0 { nanos } else { 0 },
            longest_nanos: nanos,
            prefill_tokens: step.prefill_tokens.into(),
            decode_rows: step.decode_rows.into(),
            pages_most: step.pages_used,
            waiting_most: step.waiting,
        }
    }

    /// Both together.
    #[must_use]
    pub fn with(&self, later: &Self) -> Self {
        Self {
            t0: self.t0.min(later.t0),
            t1: self.t1.max(later.t1),
            busy_nanos: self.busy_nanos.saturating_add(later.busy_nanos),
            gpu_nanos: self.gpu_nanos.saturating_add(later.gpu_nanos),
            prefill_nanos: self.prefill_nanos.saturating_add(later.prefill_nanos),
            longest_nanos: self.longest_nanos.max(later.longest_nanos),
            prefill_tokens: self.prefill_tokens.saturating_add(later.prefill_tokens),
            decode_rows: self.decode_rows.saturating_add(later.decode_rows),
            pages_most: self.pages_most.max(later.pages_most),
            waiting_most: self.waiting_most.max(later.waiting_most),
        }
    }
}

/// All groups of a run. Level 0 has groups of 16 steps, level 1 of 256; the last group of each may still grow.
#[derive(Debug, Clone, Default)]
pub struct Levels {
    levels: Vec<Vec<Level>>,
    steps: usize,
}

impl Levels {
    /// Of these steps.
    #[must_use]
    pub fn of(steps: &[Step]) -> Self {
        let mut levels = Self::default();
        steps.iter().for_each(|step| levels.push(step));
        levels
    }

    /// Takes the next step.
    pub fn push(&mut self, step: &Step) {
        let one = Level::of(step);
        let (mut number, mut at) = (self.steps, 0);
        self.steps += 1;
        // A level exists as soon as the one below has more than one group.
        while at == 0 || number > 0 {
            number /= FAN;
            if self.levels.len() == at {
                // The first group of a new level holds what the levels below hold already.
                let below = at.checked_sub(1).map_or(&[][..], |below| &self.levels[below][..]);
                let first = below.iter().copied().reduce(|sum, one| sum.with(&one));
                self.levels.push(first.into_iter().collect());
                if at > 0 {
                    at += 1;
                    continue;
                }
            }
            let level = &mut self.levels[at];
            match level.get_mut(number) {
                Some(group) => *group = group.with(&one),
                None => level.push(one),
            }
            at += 1;
        }
    }

    /// The sum over steps `from..to`; `None` of none. Takes a number of groups that grows with the logarithm of the steps.
    #[must_use]
    pub fn sum(&self, steps: &[Step], from: usize, to: usize) -> Option<Level> {
        let mut sum: Option<Level> = None;
        let mut add = |one: Level| sum = Some(sum.map_or(one, |sum| sum.with(&one)));
        let (mut at, to) = (from, to.min(steps.len()));
        while at < to {
            // The largest whole group that starts here and ends in time.
            let (mut size, mut group) = (1, None);
            for (level, groups) in self.levels.iter().enumerate() {
                let wider = size * FAN;
                if !at.is_multiple_of(wider) || at + wider > to {
                    break;
                }
                (size, group) = (wider, groups.get(at / wider).or(group));
                debug_assert!(groups.len() > at / wider, "level {level} has no group at {at}");
            }
            add(group.copied().unwrap_or_else(|| Level::of(&steps[at])));
            at += size;
        }
        sum
    }

    /// What it takes of memory, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.levels.iter().map(|level| level.capacity() * size_of::<Level>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(count: u32) -> Vec<Step> {
        let of = |n: u32| Step {
            t0: u64::from(n) * 100,
            t1: u64::from(n) * 100 + 20 + u64::from(n * 7 % 50),
            gpu_nanos: u64::from(n % 3),
            prefill_tokens: if n.is_multiple_of(5) { n % 90 } else { 0 },
            decode_rows: n % 8,
            pages_used: n * 13 % 101,
            waiting: n * 5 % 17,
        };
        (0..count).map(of).collect()
    }

    #[test]
    fn sums_over_groups_are_sums_over_steps() {
        let steps = steps(5000);
        let levels = Levels::of(&steps);
        for (from, to) in
            [(0, 5000), (0, 4096), (1, 4999), (16, 32), (255, 257), (300, 300), (4990, 9000), (17, 18), (256, 512)]
        {
            let told = steps[from.min(5000)..to.clamp(from, 5000)].iter().map(Level::of).reduce(|a, b| a.with(&b));
            assert_eq!(levels.sum(&steps, from, to), told, "{from}..{to}");
        }
    }

    #[test]
    fn groups_take_a_small_part_of_the_memory_of_steps() {
        let steps = steps(100_000);
        let levels = Levels::of(&steps);
        let groups: usize = levels.levels.iter().map(Vec::len).sum();
        assert!(groups <= 100_000 / 15 + 8, "{groups}");
    }
}
