//! The rows of a request. Most follow one another in kind, step and position, so what is kept is where that changes: a token is decoded
//! in every step, and a long answer is one run.
//!
//! ```text
//! run   first step, first position, tokens of each row, kind | how many rows | rows before it
//! ```

use twostroke::engine::event::{RowKind, StepRow};

use super::levels::Level;
use super::store::Store;

/// What a step computed for the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Number of the step, counted from the first of the trace.
    pub step: u32,
    /// First position.
    pub from: u32,
    /// Tokens, and what kind of row it is.
    packed: u32,
}

/// Tokens of a row that fit beside its kind; contexts end far below.
const TOKENS_MAX: u32 = (1 << 24) - 1;
/// Accepted draft tokens that fit; a verify row has a handful.
const ACCEPTED_MAX: u32 = 31;
/// Runs that are added up one by one; of more, the first say what the others are.
const RUNS_ADDED_MAX: usize = 64;

impl Row {
    pub(super) fn new(step: u32, row: &StepRow, discarded: bool) -> Self {
        let kind = match row.kind {
            RowKind::Prefill => 0,
            RowKind::Decode => 1,
            RowKind::Verify => 2,
        };
        let accepted = row.accepted.unwrap_or(0).min(ACCEPTED_MAX);
        let packed = row.tokens.min(TOKENS_MAX) | kind << 24 | u32::from(discarded) << 26 | accepted << 27;
        Self { step, from: row.from, packed }
    }

    /// Positions that it computed.
    #[must_use]
    pub fn tokens(&self) -> u32 {
        self.packed & TOKENS_MAX
    }

    /// Which stroke.
    #[must_use]
    pub fn kind(&self) -> RowKind {
        match self.packed >> 24 & 3 {
            0 => RowKind::Prefill,
            1 => RowKind::Decode,
            _ => RowKind::Verify,
        }
    }

    /// Whether it came to nothing: its request had been preempted meanwhile.
    #[must_use]
    pub fn is_discarded(&self) -> bool {
        self.packed >> 26 & 1 == 1
    }

    /// Draft tokens that were accepted.
    #[must_use]
    pub fn accepted(&self) -> u32 {
        self.packed >> 27
    }

    /// The row `by` rows on, if nothing changes.
    fn on(&self, by: u32) -> Self {
        let from = self.from.wrapping_add(self.tokens().wrapping_mul(by));
        Self { step: self.step.wrapping_add(by), from, packed: self.packed }
    }
}

#[derive(Debug, Clone, Copy)]
struct Run {
    first: Row,
    count: u32,
    /// Rows of the runs before it.
    before: u32,
}

/// Rows by step.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    runs: Vec<Run>,
}

/// What rows took together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    /// Time of their steps.
    pub nanos: u64,
    /// How many of them prefilled.
    pub prefill_rows: u64,
}

impl Rows {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.runs.last().map_or(0, |run| (run.before + run.count) as usize)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The row of this index.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<Row> {
        let at = u32::try_from(at).ok()?;
        let run = &self.runs[self.run_of(at)?];
        Some(run.first.on(at - run.before))
    }

    /// The newest.
    #[must_use]
    pub fn last(&self) -> Option<Row> {
        self.runs.last().map(|run| run.first.on(run.count - 1))
    }

    /// All rows.
    pub fn iter(&self) -> impl Iterator<Item = Row> {
        self.runs.iter().flat_map(|run| (0..run.count).map(|by| run.first.on(by)))
    }

    /// The row of step `step`.
    #[must_use]
    pub fn find(&self, step: u32) -> Option<usize> {
        let run = self.runs.partition_point(|run| run.first.step <= step).checked_sub(1)?;
        let run = &self.runs[run];
        let by = step - run.first.step;
        (by < run.count).then_some((run.before + by) as usize)
    }

    /// The first row at index `from` or later whose step ends after `t`; their number when there is none.
    #[must_use]
    pub fn after(&self, store: &Store, from: usize, t: u64) -> usize {
        let ended = |run: &Run| store.step(run.first.on(run.count - 1).step).is_none_or(|step| step.t1 <= t);
        let Some(first) = u32::try_from(from).ok().and_then(|from| self.run_of(from)) else { return self.len() };
        // What is drawn next is mostly near.
        let (mut low, mut width) = (first, 1);
        while low + width <= self.runs.len() && ended(&self.runs[low + width - 1]) {
            low += width;
            width *= 2;
        }
        let high = (low + width).min(self.runs.len());
        low += self.runs[low..high].partition_point(ended);
        let Some(run) = self.runs.get(low) else { return self.len() };
        let begin = index(store, run.first.step);
        let steps = &store.steps()[begin..begin + run.count as usize];
        (run.before as usize + steps.partition_point(|step| step.t1 <= t)).max(from)
    }

    /// What rows `from..to` took together. Of very many runs it is told from the first.
    #[must_use]
    pub fn sum(&self, store: &Store, from: usize, to: usize) -> Sum {
        let (from, to) = (u32::try_from(from).unwrap_or(u32::MAX), u32::try_from(to).unwrap_or(u32::MAX));
        let Some(first) = self.run_of(from) else { return Sum::default() };
        let (mut sum, mut added) = (Sum::default(), 0u64);
        for run in self.runs[first..].iter().take(RUNS_ADDED_MAX).take_while(|run| run.before < to) {
            let (low, high) = (from.max(run.before), to.min(run.before + run.count));
            let begin = index(store, run.first.step) + (low - run.before) as usize;
            let count = u64::from(high - low);
            let level = store.levels().sum(store.steps(), begin, begin + (high - low) as usize);
            sum.nanos = sum.nanos.saturating_add(level.map_or(0, |level: Level| level.busy_nanos));
            sum.prefill_rows += if run.first.kind() == RowKind::Prefill { count } else { 0 };
            added += count;
        }
        let all = u64::from(to.min(u32::try_from(self.len()).unwrap_or(u32::MAX)).saturating_sub(from));
        if added > 0 && added < all {
            let whole =
                |part: u64| u64::try_from(u128::from(part) * u128::from(all) / u128::from(added)).unwrap_or(u64::MAX);
            sum = Sum { nanos: whole(sum.nanos), prefill_rows: whole(sum.prefill_rows) };
        }
        sum
    }

    pub(super) fn push(&mut self, row: Row) {
        if let Some(run) = self.runs.last_mut() {
            assert!(row.step > run.first.step + (run.count - 1), "rows come by step");
            if run.first.on(run.count) == row {
                run.count += 1;
                return;
            }
        }
        let before = u32::try_from(self.len()).expect("a row a step");
        self.runs.push(Run { first: row, count: 1, before });
    }

    /// Lets rows of steps before `step` go.
    pub(super) fn drop_before(&mut self, step: u32) {
        let rows: Vec<Run> = std::mem::take(&mut self.runs);
        for run in rows {
            let gone = step.saturating_sub(run.first.step).min(run.count);
            if gone < run.count {
                let before = u32::try_from(self.len()).expect("fewer than before");
                self.runs.push(Run { first: run.first.on(gone), count: run.count - gone, before });
            }
        }
    }

    pub(super) fn shrink_to_fit(&mut self) {
        self.runs.shrink_to_fit();
    }

    /// What it takes of memory beside itself, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.runs.capacity() * size_of::<Run>()
    }

    /// The run that holds row `at`.
    fn run_of(&self, at: u32) -> Option<usize> {
        let run = self.runs.partition_point(|run| run.before <= at).checked_sub(1)?;
        (at < self.runs[run].before + self.runs[run].count).then_some(run)
    }
}

/// Where a step of a row is among those that are kept.
fn index(store: &Store, step: u32) -> usize {
    (step - store.first_step()) as usize
}

#[cfg(test)]
mod tests {
    use twostroke::engine::event::Event;

    use super::*;

    #[test]
    fn a_row_keeps_what_it_was_told() {
        let told = StepRow { id: 1, kind: RowKind::Verify, from: 77, tokens: 5, accepted: Some(3) };
        let row = Row::new(9, &told, true);
        assert_eq!((row.step, row.from, row.tokens(), row.accepted()), (9, 77, 5, 3));
        assert_eq!((row.kind(), row.is_discarded()), (RowKind::Verify, true));
    }

    /// A request in all but some steps, of every kind, by a rule that makes long runs and short ones.
    fn store(steps_max: usize) -> Store {
        let mut store = Store::with_steps_max(steps_max);
        store.take(&Event::Arrive { t: 0, id: 1, prompt_tokens: 40, max_tokens: 9, priority: 0 });
        for n in 0..600u64 {
            let kind = if n % 50 < 7 { RowKind::Prefill } else { RowKind::Decode };
            let tokens = if n % 200 > 150 { 1 + n as u32 % 3 } else { 1 };
            let row = StepRow { id: 1, kind, from: n as u32, tokens, accepted: None };
            let rows = if n % 90 == 1 { Vec::new() } else { vec![row] };
            let (t0, t1) = (n * 10, n * 10 + 1 + n % 9);
            store.take(&Event::Step { t0, t1, gpu_ns: None, n, rows, pages_used: 0, waiting: 0 });
        }
        store
    }

    #[test]
    fn runs_are_the_rows_that_came() {
        for steps_max in [1000, 300] {
            let store = store(steps_max);
            let rows = store.request(1).expect("it is there").rows();
            let first = u64::from(store.first_step());
            let steps: Vec<u64> = (first..600).filter(|n| n % 90 != 1).collect();
            assert_eq!(rows.iter().map(|row| u64::from(row.step)).collect::<Vec<_>>(), steps);
            assert_eq!(rows.len(), steps.len());
            for (at, row) in rows.iter().enumerate() {
                assert_eq!((rows.get(at), rows.find(row.step)), (Some(row), Some(at)));
                assert_eq!(row.from, row.step);
                assert_eq!(row.kind() == RowKind::Prefill, row.step % 50 < 7);
            }
            assert_eq!((rows.get(rows.len()), rows.find(541), rows.find(600)), (None, None, None));
        }
    }

    #[test]
    fn sums_and_searches_are_those_of_a_walk() {
        let store = store(300);
        let rows = store.request(1).expect("it is there").rows();
        let all: Vec<Row> = rows.iter().collect();
        for (from, to) in [(0, 40), (0, 0), (3, 9), (8, 16), (17, 18), (60, 100), (all.len() - 20, all.len())] {
            let some = &all[from..to];
            let nanos = some.iter().map(|row| store.step(row.step).expect("kept").nanos()).sum::<u64>();
            let prefill_rows = some.iter().filter(|row| row.kind() == RowKind::Prefill).count() as u64;
            assert_eq!(rows.sum(&store, from, to), Sum { nanos, prefill_rows }, "{from}..{to}");
        }
        for t in (0..6200).step_by(37) {
            let ends_after = |row: &Row| store.step(row.step).expect("kept").t1 > t;
            let after = all.iter().position(ends_after).unwrap_or(all.len());
            assert_eq!(rows.after(&store, 0, t), after, "{t}");
            assert_eq!(rows.after(&store, after / 2, t), after, "{t}");
        }
    }

    #[test]
    fn an_answer_of_any_length_is_one_run() {
        let mut rows = Rows::default();
        for n in 0..10_000 {
            let told = StepRow { id: 1, kind: RowKind::Decode, from: 100 + n, tokens: 1, accepted: None };
            rows.push(Row::new(7 + n, &told, false));
        }
        assert_eq!((rows.runs.len(), rows.len()), (1, 10_000));
    }
}
