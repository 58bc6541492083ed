//! Which kernels the steps of a model launch: shown by recording steps of many kinds.

use super::{Model, Sample, SequenceRows, ServingRows, Want};
use crate::kernels::sample::{Rules, Stage};
use crate::kernels::{Kernel, Tape};
use crate::limits::SPLIT_TOKENS;

/// Whose kernels are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Those of a usual first request: a short prompt, and its answer token by token, greedy. Only for models that were loaded to
    /// sample; others have all.
    First,
    /// Those of every step.
    All,
}

/// Tokens of a short prompt: some rows of it go through the variants for many.
const SHORT_TOKENS: u32 = 32;

impl Model {
    /// Kernels that steps of this model launch, sorted, each once.
    #[must_use]
    pub fn kernels(&self, extent: Extent) -> Vec<Kernel> {
        let mut kernels = match (self.sampler.is_some(), extent) {
            (true, Extent::First) => self.first_serving_kernels(),
            (true, Extent::All) => self.serving_kernels(),
            (false, _) => self.plain_kernels(),
        };
        kernels.sort_unstable();
        kernels.dedup();
        kernels
    }

    /// Kernels that [`Model::record_serving`] launches.
    #[must_use]
    pub fn step_kernels(&self, sequences: &[ServingRows<'_>]) -> Vec<Kernel> {
        let mut tape = Tape::new();
        self.record_serving(&mut tape, sequences);
        tape.dispatches().map(|dispatch| dispatch.kernel).collect()
    }

    /// Most rows of one sequence in a step.
    fn longest(&self) -> u32 {
        self.sizes.rows.min(self.pool.context)
    }

    /// Which variant runs depends on the rows of a launch: steps of these sizes show them all.
    fn counts(&self) -> Vec<u32> {
        let powers = (0..12).flat_map(|n| [1 << n, (1 << n) + 1]);
        let longest = self.longest();
        let mut counts: Vec<u32> = powers.chain([longest]).filter(|&n| n <= longest).collect();
        counts.sort_unstable();
        counts.dedup();
        counts
    }

    /// Generated rows, then prompts, where they differ: a `prompt_tokens` for each.
    fn phases(&self) -> &'static [u32] {
        if self.plan.by_phase() { &[0, u32::MAX] } else { &[0] }
    }

    fn first_serving_kernels(&self) -> Vec<Kernel> {
        let (rules, pages) = (Rules::default(), self.any_pages());
        let tokens = vec![0; SHORT_TOKENS.min(self.longest()) as usize];
        let mut kernels = self.step_kernels(&[rows(&tokens, 0, 0, u32::MAX, &pages, &rules)]);
        // Keys in two splits: the check of decode attention joins some too.
        let behind = SPLIT_TOKENS.min(self.pool.context - 1);
        kernels.extend(self.step_kernels(&[rows(&tokens[..1], 0, behind, 0, &pages, &rules)]));
        kernels
    }

    fn serving_kernels(&self) -> Vec<Kernel> {
        let (rules, pages) = (Rules::default(), self.any_pages());
        let tokens = vec![0; self.longest() as usize];
        let mut kernels: Vec<Kernel> = Stage::ALL.map(Kernel::Sample).into();
        for &prompt_tokens in self.phases() {
            for count in self.counts() {
                let tokens = &tokens[..count as usize];
                kernels.extend(self.step_kernels(&[rows(tokens, 0, 0, prompt_tokens, &pages, &rules)]));
            }
        }
        // Streams side by side: as many rows of logits, and, far into their answers, keys in several splits.
        let last = self.pool.context - 1;
        let most = self.sizes.slots.min(self.sizes.logit_rows).min(self.sizes.rows);
        for streams in self.counts().into_iter().chain([most]).filter(|&streams| streams <= most) {
            let stream = |slot| rows(&tokens[..1], slot, last, 0, &pages, &rules);
            kernels.extend(self.step_kernels(&(0..streams).map(stream).collect::<Vec<_>>()));
        }
        kernels
    }

    /// Of steps of one sequence that return logits.
    fn plain_kernels(&self) -> Vec<Kernel> {
        let (mut tape, mut kernels, pages) = (Tape::new(), Vec::new(), self.any_pages());
        for (&prompt_tokens, count) in
            self.phases().iter().flat_map(|phase| self.counts().into_iter().map(move |n| (phase, n)))
        {
            let (slot, tokens) = (0, vec![0; count as usize]);
            // From the start of a sequence, and up to its end, where keys lie in several splits.
            for position in [0, self.pool.context - count] {
                for want in [Want::Argmax, Want::AllLogits] {
                    if want == Want::AllLogits && count > self.sizes.logit_rows {
                        continue;
                    }
                    tape.clear();
                    let rows = SequenceRows { slot, position, tokens: &tokens, pages: &pages, prompt_tokens, want };
                    self.record(&mut tape, &[rows]);
                    kernels.extend(tape.dispatches().map(|dispatch| dispatch.kernel));
                }
            }
        }
        kernels
    }

    /// A block table of the longest sequence.
    fn any_pages(&self) -> Vec<u32> {
        vec![0; self.sizes.table_stride as usize]
    }
}

/// Rows of a sequence whose last one yields a token.
fn rows<'a>(
    tokens: &'a [u32],
    slot: u32,
    position: u32,
    prompt_tokens: u32,
    pages: &'a [u32],
    rules: &'a Rules,
) -> ServingRows<'a> {
    let sample = Some(Sample { prompt_tokens: 0, choice: 0, seed: 0, rules, logprobs: None });
    let pages_known = pages.len();
    ServingRows { slot, position, tokens, pages, pages_known, prompt_tokens, history: None, pool: false, sample }
}
