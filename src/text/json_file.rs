//! The shape of a tokenizer.json. Its stages stay JSON here: the `tokenizers` crate reads those itself.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// A tokenizer.json; truncation and padding in it are for training and are not read.
#[derive(Debug, Deserialize)]
pub(super) struct File {
    #[serde(default)]
    pub(super) added_tokens: Vec<Added>,
    #[serde(default)]
    pub(super) normalizer: Option<Value>,
    #[serde(default)]
    pub(super) pre_tokenizer: Option<Value>,
    #[serde(default)]
    pub(super) post_processor: Option<Value>,
    #[serde(default)]
    pub(super) decoder: Option<Value>,
    pub(super) model: Model,
}

/// A token with how it is found in a text.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Added {
    #[serde(default)]
    pub(super) id: u32,
    pub(super) content: String,
    #[serde(default)]
    pub(super) single_word: bool,
    #[serde(default)]
    pub(super) lstrip: bool,
    #[serde(default)]
    pub(super) rstrip: bool,
    #[serde(default)]
    pub(super) normalized: bool,
    #[serde(default)]
    pub(super) special: bool,
}

/// The `model` part, for all kinds of models.
#[derive(Debug, Deserialize)]
pub(super) struct Model {
    #[serde(default, rename = "type")]
    pub(super) kind: Option<String>,
    #[serde(default)]
    pub(super) vocab: Vocab,
    #[serde(default)]
    pub(super) merges: Vec<Merge>,
    #[serde(default)]
    pub(super) unk_token: Option<String>,
    #[serde(default)]
    pub(super) unk_id: Option<usize>,
    #[serde(default)]
    pub(super) continuing_subword_prefix: Option<String>,
    #[serde(default)]
    pub(super) end_of_word_suffix: Option<String>,
    #[serde(default)]
    pub(super) fuse_unk: bool,
    #[serde(default)]
    pub(super) byte_fallback: bool,
    #[serde(default)]
    pub(super) ignore_merges: bool,
}

/// Tokens: BPE's with their ids, Unigram's with their scores.
#[derive(Debug)]
pub(super) enum Vocab {
    Ids(Vec<(String, u32)>),
    Scores(Vec<(String, f64)>),
}

impl Default for Vocab {
    fn default() -> Self {
        Self::Ids(Vec::new())
    }
}

/// A merge: the older `"a b"` or the newer `["a", "b"]`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Merge {
    Line(String),
    Pair(String, String),
}

impl Merge {
    /// Both tokens; `None` when a line is not two.
    pub(super) fn pair(&self) -> Option<(&str, &str)> {
        match self {
            Self::Line(line) => line.split_once(' ').filter(|(_, right)| !right.contains(' ')),
            Self::Pair(left, right) => Some((left, right)),
        }
    }
}

impl<'de> Deserialize<'de> for Vocab {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(VocabVisitor)
    }
}

struct VocabVisitor;

impl<'de> Visitor<'de> for VocabVisitor {
    type Value = Vocab;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of ids, or a list of tokens with scores")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocab, A::Error> {
        let mut ids = Vec::new();
        while let Some(entry) = map.next_entry()? {
            ids.push(entry);
        }
        Ok(Vocab::Ids(ids))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vocab, A::Error> {
        let mut scores = Vec::new();
        while let Some(entry) = list.next_element()? {
            scores.push(entry);
        }
        Ok(Vocab::Scores(scores))
    }
}
