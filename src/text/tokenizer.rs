//! Text to ids and back.

use std::path::Path;

use tokenizers::AddedToken;

use super::decode::DeltaDecoder;
use super::fewest::Fewest;
use super::pipeline::{Pipeline, Section, Stages};
use super::vocabulary::{Kind, Vocabulary};
use super::{from_gguf, from_json};
use crate::error::Result;
use crate::format::model_files::Description;

/// A tokenizer with what the model's metadata says about special tokens.
pub struct Tokenizer {
    pipeline: Pipeline,
    vocabulary: Vocabulary,
    special: Special,
    fewest: Fewest,
}

/// What a loader makes of a file.
pub(super) struct Parts {
    pub(super) stages: Stages,
    /// Tokens that are found in a text before it is cut; special ones are control tokens.
    pub(super) added: Vec<(u32, AddedToken)>,
    pub(super) vocabulary: Vocabulary,
    pub(super) special: Special,
}

/// Special tokens by their use.
#[derive(Debug, Default)]
pub(super) struct Special {
    pub(super) bos: Option<u32>,
    /// Ids that the metadata puts before every text.
    pub(super) prefix: Vec<u32>,
    /// Ids that the metadata puts behind every text.
    pub(super) suffix: Vec<u32>,
    /// Sorted, each once.
    pub(super) ends: Vec<u32>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("vocab_size", &self.vocab_size()).finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// The tokenizer of a model: from the GGUF's metadata, or the folder's `tokenizer.json`, or `file` where that is given.
    ///
    /// # Errors
    /// When there is none, or it is broken.
    pub fn new(description: &Description, file: Option<&Path>) -> Result<Self> {
        let parts = match (description, file) {
            (_, Some(file)) => from_json::from_file(file, description)?,
            (Description::Gguf(metadata), None) => from_gguf::from_metadata(metadata)?,
            (Description::Folder(folder), None) => from_json::from_folder(folder)?,
        };
        let Parts { stages, added, vocabulary, mut special } = parts;
        special.ends.sort_unstable();
        special.ends.dedup();
        let fewest = Fewest::new(&stages, &added, &vocabulary);
        Ok(Self { pipeline: Pipeline::new(stages, added, vocabulary.len())?, vocabulary, special, fewest })
    }

    /// Ids of a text as `run --raw` and `/v1/completions` encode it: control tokens in it are parsed, and BOS or EOS added
    /// only where the tokenizer's metadata says so.
    ///
    /// # Errors
    /// When the tokenizer refuses the text.
    pub fn encode_raw(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = self.special.prefix.clone();
        ids.extend(self.pipeline.encode_parsing(text)?);
        ids.extend(&self.special.suffix);
        Ok(ids)
    }

    /// As [`Tokenizer::encode_raw`], without what the metadata adds.
    ///
    /// # Errors
    /// When the tokenizer refuses the text.
    pub fn encode_parsing(&self, text: &str) -> Result<Vec<u32>> {
        self.pipeline.encode_parsing(text)
    }

    /// Ids of text that comes from a user: control tokens in it are plain characters; nothing is added.
    ///
    /// # Errors
    /// When the tokenizer refuses the text.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>> {
        self.pipeline.encode_plain(text)
    }

    /// Text of ids; special tokens are skipped, and so is the one space that encoding put before the text.
    ///
    /// # Errors
    /// When an id is not in the vocabulary.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        let mut decoder = DeltaDecoder::new(self, &[]);
        let mut text = String::new();
        for &id in ids {
            text.push_str(&decoder.push(self, id)?);
        }
        text.push_str(&decoder.finish());
        Ok(text)
    }

    /// Ids that end an answer: the union of all that the model's files name, ascending.
    #[must_use]
    pub fn end_tokens(&self) -> &[u32] {
        &self.special.ends
    }

    /// The beginning-of-sequence token, if the model has one.
    #[must_use]
    pub fn bos(&self) -> Option<u32> {
        self.special.bos
    }

    /// Bytes that an id spells, often a part of a word and sometimes of a character; a control token's own name.
    ///
    /// # Errors
    /// When the id is not in the vocabulary.
    pub fn spelling(&self, id: u32) -> Result<&[u8]> {
        let (kind, bytes) = self.vocabulary.piece(id)?;
        let control = self.control();
        let name = || control.binary_search_by_key(&id, |(_, id)| *id).map(|at| control[at].0.as_bytes());
        Ok(if kind == Kind::Control { name().unwrap_or(bytes) } else { bytes })
    }

    /// Ids of control tokens, those that end an answer and BOS among them; ascending.
    #[must_use]
    pub fn special_tokens(&self) -> Vec<u32> {
        let control = self.control().iter().map(|(_, id)| *id);
        let all: std::collections::BTreeSet<u32> =
            control.chain(self.special.ends.iter().copied()).chain(self.special.bos).collect();
        all.into_iter().collect()
    }

    /// Ids known, added tokens included.
    #[must_use]
    pub fn vocab_size(&self) -> u32 {
        self.vocabulary.len()
    }

    /// Most bytes of text that one token stands for, control tokens included.
    #[must_use]
    pub fn longest_token_bytes(&self) -> usize {
        self.fewest.longest()
    }

    /// Tokens that a text needs at least, told from its length without encoding it; 0 where this tokenizer allows no such
    /// bound.
    #[must_use]
    pub fn fewest_tokens(&self, text: &str) -> u64 {
        self.fewest.tokens(text)
    }

    /// Control tokens by text, in the order of their ids.
    pub(super) fn control(&self) -> &[(String, u32)] {
        self.pipeline.control()
    }

    /// Cuts a rendered conversation where its control tokens are.
    pub(super) fn sections<'a>(&self, text: &'a str) -> Result<Vec<Section<'a>>> {
        self.pipeline.sections(text)
    }

    /// Ids of a conversation's sections: its one BOS is the template's, or the one that the metadata adds.
    pub(super) fn encode_sections(&self, sections: &[Section<'_>]) -> Result<Vec<u32>> {
        let mut ids = self.pipeline.encode_sections(sections)?;
        if self.special.bos.is_some_and(|bos| self.special.prefix.contains(&bos) && ids.first() != Some(&bos)) {
            ids.splice(0..0, self.special.prefix.iter().copied());
        }
        Ok(ids)
    }

    /// Kind and bytes of an id.
    pub(super) fn piece(&self, id: u32) -> Result<(Kind, &[u8])> {
        self.vocabulary.piece(id)
    }

    /// Whether encoding puts a space before a text.
    pub(super) fn space_prefix(&self) -> bool {
        self.vocabulary.space_prefix()
    }
}
