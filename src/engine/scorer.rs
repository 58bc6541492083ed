//! A text over a model, chunk by chunk, with the logits after each of its tokens.

use crate::clock::{Clock, millis_from_nanos};
use crate::error::{Error, Result};
use crate::kernels::plan::Plan;
use crate::kernels::{Kernel, Tape};
use crate::limits;
use crate::model::{Answer, Extent, Model, SequenceRows, Want};
use crate::recording::Player;

/// Largest prefill chunk that suits an adapter: a software driver needs about a second for 128 rows, hardware fills up at 512.
#[must_use]
pub const fn chunk_tokens_default(plan: Plan) -> u32 {
    if plan.software { 128 } else { 512 }
}

/// Scores texts, one at a time. Owns the model and its player.
pub struct Scorer {
    model: Model,
    player: Box<dyn Player<Kernel>>,
    chunk_tokens: u32,
    /// All pages of the pool in order: page `p` holds positions `16 p .. 16 p + 16`.
    pages: Vec<u32>,
    /// What K and V in the pages belong to; never longer than the context.
    ids: Vec<u32>,
    tape: Tape,
    /// Longest that one submit should keep the device.
    max_submit_nanos: u64,
    /// What a row of the last step took.
    row_nanos: u64,
}

impl Scorer {
    /// Another bound for one submit: steps whose rows took longer last time become several.
    #[must_use]
    pub fn with_max_submit_nanos(self, nanos: u64) -> Self {
        Self { max_submit_nanos: nanos, ..self }
    }

    /// Builds the kernels that the model uses. `chunk_tokens`: most tokens of one step (`--long-prefill-token-threshold`), `None`
    /// for as many as a step takes; the logits do not depend on it.
    ///
    /// # Errors
    /// A kernel that the driver refuses, or a lost device.
    pub fn new(model: Model, mut player: Box<dyn Player<Kernel>>, chunk_tokens: Option<u32>) -> Result<Self> {
        let kernels = model.kernels(Extent::All);
        let clock = Clock::start();
        player.prepare(&kernels)?;
        let ms = millis_from_nanos(clock.nanos());
        tracing::info!(kernels = kernels.len(), ms, "kernels are built");
        let page_tokens = u64::from(limits::PAGE_TOKENS);
        let held = u64::from(model.pages()) * page_tokens;
        let context = model.context_tokens();
        assert!(held >= u64::from(context), "{} pages hold {held} tokens, the context has {context}", model.pages());
        let step_rows = model.step_rows_max();
        assert!(step_rows >= 1, "a step of no rows");
        let chunk_tokens = chunk_tokens.unwrap_or(step_rows).clamp(1, step_rows);
        let pages = (0..model.pages()).collect();
        let max_submit_nanos = limits::MAX_SUBMIT_MS * 1_000_000;
        let (ids, tape) = (Vec::new(), Tape::new());
        Ok(Self { model, player, chunk_tokens, pages, ids, tape, max_submit_nanos, row_nanos: 0 })
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Logits after each of `ids`, which start a fresh sequence: `each(row, logits)` in order.
    ///
    /// # Errors
    /// `Request` for no ids, one outside the vocabulary, or more than the context (nothing was done), `NotFinite`, or the
    /// player's.
    pub fn score(&mut self, ids: &[u32], each: &mut dyn FnMut(usize, &[f32]) -> Result<()>) -> Result<()> {
        self.check_ids(ids)?;
        let context = self.model.context_tokens();
        if ids.len() as u64 > u64::from(context) {
            return Err(Error::Request(format!("{} ids exceed the context of {context} tokens", ids.len())));
        }
        self.ids.clear();
        let chunk_tokens = self.chunk_tokens.min(self.model.logit_rows_max()).max(1) as usize;
        for chunk in ids.chunks(chunk_tokens) {
            let first = self.ids.len();
            let (answer, words) = self.step(chunk)?;
            assert!(answer.rows as usize == chunk.len(), "{} rows of logits for {} ids", answer.rows, chunk.len());
            assert!(answer.row_words == self.model.vocab(), "{} logits a row", answer.row_words);
            for (row, logits) in words[answer.start..].chunks(answer.row_words as usize).take(chunk.len()).enumerate() {
                let logits: &[f32] = bytemuck::cast_slice(logits);
                if !logits.iter().all(|x| x.is_finite()) {
                    return Err(Error::NotFinite { position: (first + row) as u64 });
                }
                each(first + row, logits)?;
            }
        }
        Ok(())
    }

    /// Plays one step over `tokens` and counts them as held. The caller has checked them.
    fn step(&mut self, tokens: &[u32]) -> Result<(Answer, Vec<u32>)> {
        let end = self.ids.len() + tokens.len();
        assert!(
            end <= self.model.context_tokens() as usize,
            "{end} tokens in a context of {}",
            self.model.context_tokens()
        );
        let position = u32::try_from(self.ids.len()).expect("a context fits u32");
        let pages = &self.pages[..end.div_ceil(limits::PAGE_TOKENS as usize)];
        self.tape.clear();
        // All of a text is a prompt.
        let (prompt_tokens, want) = (u32::MAX, Want::AllLogits);
        let rows = SequenceRows { slot: 0, position, tokens, pages, prompt_tokens, want };
        let answers = self.model.record(&mut self.tape, &[rows]);
        assert!(answers.len() == 1, "{} answers for one sequence", answers.len());
        let rows = tokens.len() as u64;
        self.tape.cut(rows * self.row_nanos, self.max_submit_nanos);
        let clock = Clock::start();
        let ticket = self.player.submit(&self.tape)?;
        let played = self.player.wait(ticket)?;
        self.row_nanos = played.gpu_nanos.unwrap_or(clock.nanos()) / rows.max(1);
        let answer = answers[0];
        let answer_end = answer.start + answer.rows as usize * answer.row_words as usize;
        assert!(answer_end <= played.words.len(), "{answer:?} in {} words", played.words.len());
        tracing::trace!(position, tokens = tokens.len(), gpu_nanos = played.gpu_nanos, "step");
        self.ids.extend_from_slice(tokens);
        Ok((answer, played.words))
    }

    fn check_ids(&self, ids: &[u32]) -> Result<()> {
        let vocab = self.model.vocab();
        if ids.is_empty() {
            return Err(Error::Request("no tokens to compute".into()));
        }
        match ids.iter().position(|&id| id >= vocab) {
            Some(at) => Err(Error::Request(format!(
                "token id: expected below the vocabulary of {vocab}, got {} (place {at})",
                ids[at]
            ))),
            None => Ok(()),
        }
    }
}
