//! One choice while it comes: tokens to text, up to a stop string.

use super::job::Job;
use crate::engine::request::{FinishReason, Token};
use crate::error::Result;
use crate::text::decode::DeltaDecoder;
use crate::text::stop::StopFilter;
use crate::text::tokenizer::Tokenizer;

/// A choice, growing.
#[derive(Debug)]
pub(super) struct Choice {
    decoder: DeltaDecoder,
    stop: StopFilter,
    /// Characters that all tokens so far stand for.
    decoded_chars: usize,
    /// Its text, without special tokens and up to a stop string.
    pub(super) text: String,
    /// Its tokens, an end token and those of a stop string included.
    pub(super) tokens: Vec<Token>,
    /// For each token, characters of the text before it.
    pub(super) offsets: Vec<usize>,
    /// Prompt tokens that were cached when it was first admitted.
    pub(super) cached_tokens: Option<u32>,
    /// When that was, by the engine's clock.
    pub(super) admitted_nanos: u64,
    /// Why it ended, when it has.
    pub(super) finish: Option<FinishReason>,
}

impl Choice {
    /// Nothing yet of the choice of this number.
    pub(super) fn new(job: &Job, choice: usize, tokenizer: &Tokenizer) -> Self {
        Self {
            decoder: DeltaDecoder::new(tokenizer, job.prompt(choice)),
            stop: StopFilter::new(&job.params.stops),
            decoded_chars: 0,
            text: String::new(),
            tokens: Vec::new(),
            offsets: Vec::new(),
            cached_tokens: None,
            admitted_nanos: 0,
            finish: (job.params.max_tokens == Some(0)).then_some(FinishReason::Length),
        }
    }

    /// Takes a token; returns the text that is now certain. A stop string ends the choice.
    pub(super) fn push(&mut self, token: Token, tokenizer: &Tokenizer) -> Result<String> {
        let delta = self.decoder.push(tokenizer, token.id)?;
        self.offsets.push(self.decoded_chars);
        self.decoded_chars += delta.chars().count();
        self.tokens.push(token);
        let text = self.stop.push(&delta);
        if self.stop.is_hit() {
            self.finish = Some(FinishReason::Stop);
        }
        self.text.push_str(&text);
        Ok(text)
    }

    /// The engine has ended it; returns the text that was held back.
    pub(super) fn finish(&mut self, reason: FinishReason) -> String {
        let mut text = self.stop.push(&self.decoder.finish());
        let reason = if self.stop.is_hit() { FinishReason::Stop } else { reason };
        text.push_str(&self.stop.finish());
        self.text.push_str(&text);
        self.finish = Some(reason);
        text
    }
}
