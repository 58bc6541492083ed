//! Ids to text as they come: only whole UTF-8 characters leave.

use super::tokenizer::Tokenizer;
use super::vocabulary::Kind;
use crate::error::Result;

/// Turns ids into deltas whose concatenation is `tokenizer.decode` of all ids. Each id costs its own bytes, however long
/// the answer is.
#[derive(Debug)]
pub struct DeltaDecoder {
    /// The bytes of a character that is not whole yet: at most 3 between calls.
    pending: Vec<u8>,
    /// No text has come yet, so that a leading space is the one that encoding put there.
    at_start: bool,
}

impl DeltaDecoder {
    /// For one answer. `before` are the ids that precede it: when there is text among them, a leading space is real.
    #[must_use]
    pub fn new(tokenizer: &Tokenizer, before: &[u32]) -> Self {
        let is_text = |&id: &u32| matches!(tokenizer.piece(id), Ok((Kind::Text | Kind::Byte, _)));
        Self { pending: Vec::new(), at_start: tokenizer.space_prefix() && !before.iter().any(is_text) }
    }

    /// Takes an id; returns the text that is now certain, often empty while a character is incomplete.
    ///
    /// # Errors
    /// When the id is not in the vocabulary.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> Result<String> {
        let (kind, mut bytes) = tokenizer.piece(id)?;
        if matches!(kind, Kind::Control | Kind::Absent) {
            return Ok(String::new());
        }
        if self.at_start && kind == Kind::Text {
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
        }
        self.at_start = false;
        self.pending.extend_from_slice(bytes);
        Ok(self.take_whole())
    }

    /// What is left when the answer ends: an incomplete character as U+FFFD.
    #[must_use]
    pub fn finish(&mut self) -> String {
        let rest = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        rest
    }

    /// Takes all but an incomplete character off `pending`; bytes that no continuation can mend become U+FFFD.
    fn take_whole(&mut self) -> String {
        let mut text = String::new();
        let mut done = 0;
        let mut chunks = self.pending.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            done += chunk.valid().len();
            let invalid = chunk.invalid();
            if chunks.peek().is_none() && is_incomplete(invalid) {
                break;
            }
            if !invalid.is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
            done += invalid.len();
        }
        self.pending.drain(..done);
        text
    }
}

/// Whether bytes at the end of a text may become a character with those that follow.
fn is_incomplete(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|e| e.error_len().is_none())
}
