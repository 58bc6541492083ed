//! Text to ids and back.

use std::path::Path;

use crate::error::Result;
use crate::format::model_files::Description;

/// A tokenizer with what the model's metadata says about special tokens.
pub struct Tokenizer {
    _private: (),
}

impl Tokenizer {
    /// The tokenizer of a model: from the GGUF's metadata, or the folder's `tokenizer.json`, or `file` where that is given.
    ///
    /// # Errors
    /// When there is none, or it is broken.
    pub fn new(description: &Description, file: Option<&Path>) -> Result<Self> {
        let _ = (description, file);
        todo!("H-text")
    }
    /// Ids of a text as `run --raw` and `/v1/completions` encode it: control tokens in it are parsed, and BOS or EOS added
    /// only where the tokenizer's metadata says so.
    ///
    /// # Errors
    /// When the tokenizer refuses the text.
    pub fn encode_raw(&self, text: &str) -> Result<Vec<u32>> {
        let _ = text;
        todo!("H-text")
    }
    /// Ids of text that comes from a user: control tokens in it are plain characters; nothing is added.
    ///
    /// # Errors
    /// When the tokenizer refuses the text.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>> {
        let _ = text;
        todo!("H-text")
    }
    /// Text of ids; special tokens are skipped.
    ///
    /// # Errors
    /// When an id is not in the vocabulary.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        let _ = ids;
        todo!("H-text")
    }
    /// Ids that end an answer: the union of all that the model's files name.
    #[must_use]
    pub fn end_tokens(&self) -> &[u32] {
        todo!("H-text")
    }
    /// The beginning-of-sequence token, if the model has one.
    #[must_use]
    pub fn bos(&self) -> Option<u32> {
        todo!("H-text")
    }
    /// Ids known, added tokens included.
    #[must_use]
    pub fn vocab_size(&self) -> u32 {
        todo!("H-text")
    }
}
