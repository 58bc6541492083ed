//! Drives a model one step at a time, in whatever chunks and company a test wants.

use twostroke::error::Result;
use twostroke::format::model_files::ModelFiles;
use twostroke::gpu::Options;
use twostroke::kernels::plan::Plan;
use twostroke::kernels::{Kernel, Tape};
use twostroke::model::{LoadOptions, Model, SequenceRows, Want};
use twostroke::recording::{Played, Player};

use crate::adapters::for_each_adapter;

/// A player and the plan that suits it. It outlives models, so that kernels are built once a device.
pub(crate) struct Device {
    pub(crate) player: Box<dyn Player<Kernel>>,
    pub(crate) plan: Plan,
}

/// A model on a player, with one sequence a slot.
pub(crate) struct Stepper<'a> {
    pub(crate) model: Model,
    player: &'a mut dyn Player<Kernel>,
    /// Pages of each slot, deliberately out of order.
    pages: Vec<Vec<u32>>,
    /// Positions below it are prompts'; everything, until a continuation sets it.
    pub(crate) prompt_tokens: u32,
}

/// Tokens for one slot of a step.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub(crate) slot: usize,
    pub(crate) position: usize,
    pub(crate) tokens: &'a [u32],
    pub(crate) want: Want,
}

impl<'a> Stepper<'a> {
    /// Loads a model.
    pub(crate) fn load(files: &ModelFiles, device: &'a mut Device, options: &LoadOptions) -> Result<Self> {
        let player = device.player.as_mut();
        let model = Model::load(files, player, device.plan, options, &mut |_, _| Ok(()))?;
        let slots = options.slots as usize;
        let each = model.context_tokens().div_ceil(16) as usize;
        let all: Vec<u32> = (0..model.pages()).rev().collect();
        assert!(all.len() >= slots * each, "{} pages for {slots} slots of {each}", all.len());
        // Neighbouring pages of a sequence lie `slots` apart.
        let pages = (0..slots).map(|slot| all.iter().skip(slot).step_by(slots).take(each).copied().collect()).collect();
        Ok(Self { model, player, pages, prompt_tokens: u32::MAX })
    }

    /// Plays one step; the words of each sequence's answer, row after row.
    pub(crate) fn step(&mut self, rows: &[Rows<'_>]) -> Vec<Vec<u32>> {
        let sequences: Vec<_> = rows
            .iter()
            .map(|r| SequenceRows {
                slot: u32::try_from(r.slot).unwrap(),
                position: u32::try_from(r.position).unwrap(),
                tokens: r.tokens,
                pages: &self.pages[r.slot],
                prompt_tokens: self.prompt_tokens,
                want: r.want,
            })
            .collect();
        let mut tape = Tape::new();
        let answers = self.model.record(&mut tape, &sequences);
        let ticket = self.player.submit(&tape).unwrap();
        let Played { words, .. } = self.player.wait(ticket).unwrap();
        answers.iter().map(|a| words[a.start..][..a.rows as usize * a.row_words as usize].to_vec()).collect()
    }

    /// Feeds a fresh sequence in chunks; the answer of the last chunk.
    pub(crate) fn feed(&mut self, ids: &[u32], chunk: usize, want: Want) -> Vec<u32> {
        let chunk = chunk.min(self.model.step_rows_max() as usize);
        let mut last = Vec::new();
        for (i, tokens) in ids.chunks(chunk).enumerate() {
            let position = i * chunk;
            let want = if position + tokens.len() == ids.len() { want } else { Want::Nothing };
            last = self.step(&[Rows { slot: 0, position, tokens, want }]).remove(0);
        }
        last
    }

    /// Logits after each id of a fresh sequence.
    pub(crate) fn all_logits(&mut self, ids: &[u32]) -> Vec<Vec<f32>> {
        let chunk = self.model.logit_rows_max() as usize;
        let vocab = self.model.vocab() as usize;
        let mut all = Vec::new();
        for (i, tokens) in ids.chunks(chunk).enumerate() {
            let words = self.step(&[Rows { slot: 0, position: i * chunk, tokens, want: Want::AllLogits }]).remove(0);
            all.extend(words.chunks(vocab).map(|row| bytemuck::cast_slice(row).to_vec()));
        }
        all
    }

    /// Greedy continuation of a fresh sequence.
    pub(crate) fn greedy(&mut self, ids: &[u32], count: usize) -> Vec<u32> {
        self.prompt_tokens = u32::try_from(ids.len()).unwrap();
        let mut out = self.feed(ids, usize::MAX, Want::Argmax);
        while out.len() < count {
            let (position, token) = (ids.len() + out.len() - 1, [out[out.len() - 1]]);
            out.extend(self.step(&[Rows { slot: 0, position, tokens: &token, want: Want::Argmax }]).remove(0));
        }
        self.prompt_tokens = u32::MAX;
        out
    }
}

/// Index of the largest logit, the lowest on ties.
pub(crate) fn argmax(logits: &[f32]) -> u32 {
    let best = logits.iter().enumerate().fold(0, |best, (i, l)| if *l > logits[best] { i } else { best });
    u32::try_from(best).unwrap()
}

/// Negative log-likelihood of an id under logits.
pub(crate) fn nll(logits: &[f32], id: u32) -> f64 {
    let largest = logits.iter().fold(f64::MIN, |m, &l| m.max(f64::from(l)));
    let sum: f64 = logits.iter().map(|&l| (f64::from(l) - largest).exp()).sum();
    largest + sum.ln() - f64::from(logits[id as usize])
}

/// A fresh twin.
pub(crate) fn twin() -> Device {
    Device { player: Box::new(twostroke::twin::Twin::<Kernel>::new()), plan: Plan::TWIN }
}

/// A twin that stands for an adapter with cooperative matrices.
pub(crate) fn matrix_twin() -> Device {
    Device { plan: Plan::TWIN_MATRIX, ..twin() }
}

/// Whether the longer suites were asked for.
pub(crate) fn full() -> bool {
    std::env::var("TWOSTROKE_FULL").is_ok_and(|value| value == "1")
}

/// Calls `each` for the adapters and tiers whose label (such as `llvmpipe (…) subgroup`) has all words of one of `wanted`.
pub(crate) fn on_adapters(wanted: &[&str], mut each: impl FnMut(&str, &mut Device)) {
    for_each_adapter::<Kernel>(|label, open| {
        if wanted.iter().any(|words| words.split(' ').all(|word| label.contains(word))) {
            let player = open(Options::default());
            let plan = player.plan();
            each(label, &mut Device { player: Box::new(player), plan });
        }
    });
}
