//! Steps that choose their tokens on the device: what the engine asks for, and how it is recorded.

use super::sizes::{Pool, Sizes};
use super::{LoadOptions, Model, SequenceRows, Want};
use crate::error::Result;
use crate::kernels::{Kernel, Tape, embed, sample};
use crate::recording::{BufferId, Player};

/// Consecutive rows of one sequence in a step that samples on the device.
#[derive(Debug, Clone, Copy)]
pub struct ServingRows<'a> {
    /// Row of the block tables and of the history.
    pub slot: u32,
    /// Position of the first row.
    pub position: u32,
    /// The tokens, or none: one row, whose token an earlier step sampled into the history.
    pub tokens: &'a [u32],
    /// Page of each 16 positions from 0 up to the last row.
    pub pages: &'a [u32],
    /// How many of these the slot's block table holds already.
    pub pages_known: usize,
    /// Positions below it are the prompt's; those behind it were generated, also when a resumed request computes them anew.
    pub prompt_tokens: u32,
    /// Ids of the sequence so far, when it has just got its slot.
    pub history: Option<&'a [u32]>,
    /// Whether the rows' last hidden states are wanted; then all are the prompt's.
    pub pool: bool,
    /// How the token behind the last row is to be chosen, if it is.
    pub sample: Option<Sample<'a>>,
}

/// How a sequence's next token is chosen: see [`sample::Row`].
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "the fields are those of sample::Row")]
pub struct Sample<'a> {
    pub prompt_tokens: u32,
    pub choice: u32,
    pub seed: u64,
    pub rules: &'a sample::Rules,
    pub logprobs: Option<u32>,
}

/// What the words hold that a step's read-backs bring.
#[derive(Debug, Clone)]
pub struct ServingAnswer {
    /// A record for each sequence with a `sample`, in order.
    sampled: Option<sample::Answer>,
    /// Words for each sequence with `pool`, in order, behind the records.
    pooled: Vec<usize>,
    /// Of a hidden state, what it consists of and what it takes.
    row_floats: usize,
    row_words: usize,
}

impl ServingAnswer {
    /// What was sampled.
    #[must_use]
    pub fn sampled(&self, words: &[u32]) -> Vec<sample::Sampled> {
        let Some(answer) = &self.sampled else { return Vec::new() };
        (0..answer.rows()).map(|row| answer.sampled(words, row)).collect()
    }

    /// For each sequence with `pool`, the hidden state of each of its rows.
    #[must_use]
    pub fn pooled(&self, words: &[u32]) -> Vec<Vec<Vec<f32>>> {
        let records = self.sampled.as_ref().map_or(0, |answer| answer.bytes() / 4);
        let mut rest = &words[usize::try_from(records).expect("words that were read")..];
        let row = |row: &[u32]| row[..self.row_floats].iter().copied().map(f32::from_bits).collect();
        let one = |count: &usize| {
            let (mine, behind) = rest.split_at(*count);
            rest = behind;
            mine.chunks_exact(self.row_words).map(row).collect()
        };
        self.pooled.iter().map(one).collect()
    }
}

/// What sampling on the device needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sampler {
    pub(super) sizes: sample::Sizes,
    pub(super) buffers: sample::Buffers,
}

impl Model {
    /// Records one step whose tokens are chosen on the device and land in the history, where later steps find them. Returns
    /// what the read-back will hold. The caller guarantees what [`Model::record`] asks for, and at most
    /// [`LoadOptions::sampled_rows`] samples.
    pub fn record_serving(&self, tape: &mut Tape, sequences: &[ServingRows<'_>]) -> ServingAnswer {
        let sampler = self.sampler.as_ref().expect("the model was loaded to sample");
        let plain: Vec<_> = sequences.iter().map(ServingRows::plain).collect();
        let mut batch = self.lay_out(&plain);
        let work = &self.work;
        tape.upload(work.rows, 0, &batch.rows);
        tape.upload(work.tiles, 0, &batch.tiles);
        tape.upload(work.map, 0, &batch.map);
        let (mut rows, mut pooled) = (Vec::new(), Vec::new());
        for sequence in sequences {
            if sequence.pool {
                let count = u32::try_from(sequence.tokens.len()).expect("rows of a step");
                batch.pool(sequence.slot, sequence.position, count);
                pooled.push(count as usize * self.sizes.hidden as usize);
            }
            let known = sequence.pages_known as u64;
            let table = u64::from(sequence.slot) * u64::from(self.sizes.table_stride);
            tape.upload(work.tables, (table + known) * 4, &sequence.pages[sequence.pages_known..]);
            if let Some(ids) = sequence.history {
                let offset = u64::from(sequence.slot) * u64::from(sampler.sizes.context) * 4;
                tape.upload(sampler.buffers.history, offset, ids);
            }
            rows.extend(sequence.sampled(u32::try_from(rows.len()).expect("rows of a step")));
        }
        self.record_step(tape, &batch);
        let sampled = (!rows.is_empty()).then(|| {
            let answer = sample::record(tape, sampler.sizes, &sampler.buffers, &rows);
            tape.read(sampler.buffers.records, 0, answer.bytes());
            answer
        });
        self.record_pooled(tape, &batch);
        ServingAnswer {
            sampled,
            pooled,
            row_floats: self.config.hidden as usize,
            row_words: self.sizes.hidden as usize,
        }
    }
}

impl<'a> ServingRows<'a> {
    /// The same rows as [`Batch`] takes them.
    fn plain(&self) -> SequenceRows<'a> {
        let &Self { slot, position, tokens, pages, prompt_tokens, .. } = self;
        let tokens = if tokens.is_empty() { &[embed::FROM_HISTORY] } else { tokens };
        let want = if self.sample.is_some() { Want::Argmax } else { Want::Nothing };
        SequenceRows { slot, position, tokens, pages, prompt_tokens, want }
    }

    /// The row to sample, whose logits are row `logits_row`.
    fn sampled(&self, logits_row: u32) -> Option<sample::Row<'a>> {
        let Sample { prompt_tokens, choice, seed, rules, logprobs } = self.sample?;
        let count = u32::try_from(self.tokens.len().max(1)).expect("rows of a step");
        let (slot, position) = (self.slot, self.position + count);
        Some(sample::Row { logits_row, slot, position, prompt_tokens, choice, seed, rules, logprobs })
    }
}

/// Makes the buffers of sampling, if the model is loaded to sample.
pub(super) fn allocate_sampler(
    player: &mut dyn Player<Kernel>,
    pool: &Pool,
    sizes: &Sizes,
    options: &LoadOptions,
    logits: BufferId,
) -> Result<Option<Sampler>> {
    if options.sampled_rows == 0 {
        return Ok(None);
    }
    let sizes = sample::Sizes {
        dim: sizes.vocab,
        stride: sizes.vocab,
        logit_rows: sizes.logit_rows,
        rows_max: sizes.logit_rows,
        slots: sizes.slots,
        context: pool.context,
    };
    Ok(Some(Sampler { sizes, buffers: sample::Buffers::new(player, sizes, logits)? }))
}
