//! Ids to text as they come: only whole UTF-8 characters leave.

use super::tokenizer::Tokenizer;
use crate::error::Result;

/// Turns ids into deltas whose concatenation is `tokenizer.decode` of all ids.
pub struct DeltaDecoder {
    _private: (),
}

impl DeltaDecoder {
    /// For one answer. `before` are the ids that precede it: they decide whether a leading space is real.
    #[must_use]
    pub fn new(before: &[u32]) -> Self {
        let _ = before;
        todo!("H-text")
    }
    /// Takes an id; returns the text that is now certain, often empty while a character is incomplete.
    ///
    /// # Errors
    /// When the id is not in the vocabulary.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> Result<String> {
        let _ = (tokenizer, id);
        todo!("H-text")
    }
    /// What is left when the answer ends, an incomplete character as U+FFFD.
    ///
    /// # Errors
    /// As [`DeltaDecoder::push`].
    pub fn finish(&mut self, tokenizer: &Tokenizer) -> Result<String> {
        let _ = tokenizer;
        todo!("H-text")
    }
}
