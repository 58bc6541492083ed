//! A ragged batch as the kernels see it: rows, attention tiles, and which rows' logits are wanted.

use super::sizes::{Sizes, splits};
use super::{Answer, SequenceRows, Want};
use crate::kernels::embed::FROM_HISTORY;
use crate::kernels::{Row, Tile};
use crate::limits::PAGE_TOKENS;

/// Decode tiles that run together, so that their partial results fit the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wave {
    pub(super) first_tile: u32,
    pub(super) tiles: u32,
    pub(super) splits: u32,
}

/// A batch, laid out:
///
/// ```text
/// rows    sequence after sequence, as given; by phase: [ generated tokens ][ prompt tokens ], each sequence after sequence
/// tiles   [ prefill tiles ][ decode tiles: wave, wave, … ]
/// map     [ rows of which the argmax is wanted ][ rows of which all logits are ]
/// ```
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) rows: Vec<Row>,
    /// Prompt tokens, the last of `rows`, which go through cooperative matrices; 0 where the plan does not go by phase.
    pub(super) matrix_rows: u32,
    pub(super) tiles: Vec<Tile>,
    pub(super) prefill_tiles: u32,
    pub(super) waves: Vec<Wave>,
    pub(super) map: Vec<u32>,
    pub(super) argmax_rows: u32,
    pub(super) answers: Vec<Answer>,
    /// Runs of rows whose last hidden states are wanted: the first row, and how many.
    pub(super) pooled: Vec<(u32, u32)>,
}

impl Batch {
    /// Lays out `sequences`; up to `decode_rows` rows of one go through decode attention, and a prefill tile takes `tile_tokens`.
    /// `by_phase`: rows of prompts lie behind all others.
    pub(super) fn new(
        sequences: &[SequenceRows<'_>],
        sizes: &Sizes,
        decode_rows: u32,
        tile_tokens: u32,
        by_phase: bool,
    ) -> Self {
        let mut batch = Self::default();
        let mut decode = Vec::new();
        let mut first = 0;
        let (mut runs, prompts) = runs(sequences, sizes, by_phase);
        batch.matrix_rows = prompts.iter().map(|run| run.count).sum();
        runs.extend(prompts);
        let mut places = vec![Place::default(); sequences.len()];
        for run in &runs {
            let (sequence, count) = (&sequences[run.sequence], run.count);
            places[run.sequence].put(run, first);
            let position = sequence.position + run.at;
            let tokens = &sequence.tokens[run.at as usize..][..count as usize];
            let rows = (position..).zip(tokens);
            batch.rows.extend(rows.map(|(position, &token)| Row { token, position, slot: sequence.slot, pad: 0 }));
            let tile =
                |at: u32, rows: u32| Tile { row: first + at, rows, slot: sequence.slot, position: position + at };
            if count <= decode_rows {
                decode.extend((0..count).map(|at| tile(at, 1)));
            } else {
                let step = tile_tokens as usize;
                batch.tiles.extend((0..count).step_by(step).map(|at| tile(at, tile_tokens.min(count - at))));
            }
            first += count;
        }
        assert!(first <= sizes.rows, "{first} rows in a step of at most {}", sizes.rows);
        batch.prefill_tiles = u32::try_from(batch.tiles.len()).expect("at most one tile a row");
        // rows of like length share a wave
        decode.sort_by_key(|tile| splits(tile.position));
        batch.waves = waves(&decode, batch.prefill_tiles, sizes.row_splits);
        batch.tiles.extend(decode);
        batch.map_logits(sequences, &places, sizes);
        batch
    }

    /// The hidden states of these rows are wanted too. They are consecutive, in one phase, and in the batch.
    pub(super) fn pool(&mut self, slot: u32, position: u32, count: u32) {
        let first = self.rows.iter().position(|row| (row.slot, row.position) == (slot, position));
        let first = u32::try_from(first.expect("a row of the batch")).expect("rows of a step");
        let last = self.rows.get((first + count - 1) as usize).map(|row| (row.slot, row.position));
        assert_eq!(last, Some((slot, position + count - 1)), "rows of one phase lie together");
        self.pooled.push((first, count));
    }

    /// Fills `map` and says where each answer will lie: ids first, then logits.
    fn map_logits(&mut self, sequences: &[SequenceRows<'_>], places: &[Place], sizes: &Sizes) {
        let argmax_rows = sequences.iter().filter(|s| s.want == Want::Argmax).count();
        let (mut ids, mut logits) = (Vec::new(), Vec::new());
        for (sequence, place) in sequences.iter().zip(places) {
            let end = u32::try_from(sequence.tokens.len()).expect("checked against the rows of a step");
            let start = argmax_rows + logits.len() * sizes.vocab as usize;
            let (start, rows, row_words) = match sequence.want {
                Want::Nothing => (0, 0, 0),
                Want::Argmax => (ids.len(), 1, 1),
                Want::LastLogits => (start, 1, sizes.vocab),
                Want::AllLogits => (start, end, sizes.vocab),
            };
            let map = if sequence.want == Want::Argmax { &mut ids } else { &mut logits };
            map.extend((end - rows..end).map(|at| place.row(at)));
            self.answers.push(Answer { start, rows, row_words });
        }
        self.argmax_rows = u32::try_from(ids.len()).expect("at most one a row");
        self.map = ids;
        self.map.append(&mut logits);
        let (got, max) = (self.map.len(), sizes.logit_rows);
        assert!(got <= max as usize, "{got} rows of logits in a step of at most {max}");
    }
}

/// Consecutive rows of one sequence that lie together.
#[derive(Debug, Clone, Copy)]
struct Run {
    sequence: usize,
    /// First of the sequence's tokens: 0, or behind those of its prompt.
    at: u32,
    count: u32,
}

/// Rows of a sequence: of its tokens before `split`, and of those from there on.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    split: u32,
    before: u32,
    behind: u32,
}

impl Place {
    /// A run begins at row `first`. Of two, that with the later tokens lies in front.
    fn put(&mut self, run: &Run, first: u32) {
        if run.at > 0 {
            (self.split, self.behind) = (run.at, first);
        } else {
            (self.split, self.before) = (self.split.max(run.count), first);
        }
    }

    fn row(&self, at: u32) -> u32 {
        if at < self.split { self.before + at } else { self.behind + at - self.split }
    }
}

/// The rows that lie in front, and the prompts' behind them; all are in front unless rows go by phase.
fn runs(sequences: &[SequenceRows<'_>], sizes: &Sizes, by_phase: bool) -> (Vec<Run>, Vec<Run>) {
    let (mut front, mut prompts) = (Vec::with_capacity(sequences.len()), Vec::new());
    for (sequence, one) in sequences.iter().enumerate() {
        let count = check(one, sizes);
        let prompt = if by_phase { one.prompt_tokens.saturating_sub(one.position).min(count) } else { 0 };
        let run = |at, count| Run { sequence, at, count };
        prompts.extend((prompt > 0).then(|| run(0, prompt)));
        front.extend((count > prompt).then(|| run(prompt, count - prompt)));
    }
    (front, prompts)
}

/// Rows of a sequence, after holding it against the limits that the caller promised to respect.
fn check(sequence: &SequenceRows<'_>, sizes: &Sizes) -> u32 {
    let count = u32::try_from(sequence.tokens.len()).expect("a step has at most 2^32 rows");
    assert!(count > 0, "a sequence without tokens");
    assert!(sequence.slot < sizes.slots, "slot {} of {}", sequence.slot, sizes.slots);
    let end = sequence.position + count;
    let (pages, stride) = (sequence.pages.len(), sizes.table_stride);
    assert!(pages >= end.div_ceil(PAGE_TOKENS) as usize, "{pages} pages for positions up to {end}");
    assert!(pages <= stride as usize, "{pages} pages in a block table of {stride}");
    let unknown = sequence.tokens.iter().find(|&&token| token >= sizes.vocab && token != FROM_HISTORY);
    assert!(unknown.is_none(), "token {unknown:?} in a vocabulary of {}", sizes.vocab);
    count
}

/// Runs of `tiles` (sorted by splits) whose rows times most splits stay within `row_splits`.
fn waves(tiles: &[Tile], first_tile: u32, row_splits: u32) -> Vec<Wave> {
    let mut waves: Vec<Wave> = Vec::new();
    for (index, tile) in (first_tile..).zip(tiles) {
        let splits = splits(tile.position);
        assert!(splits <= row_splits, "{splits} splits of one row in a buffer of {row_splits}");
        match waves.last_mut() {
            Some(wave) if u64::from(wave.tiles + 1) * u64::from(splits) <= u64::from(row_splits) => {
                wave.tiles += 1;
                wave.splits = splits;
            }
            _ => waves.push(Wave { first_tile: index, tiles: 1, splits }),
        }
    }
    waves
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
