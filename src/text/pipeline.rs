//! Text to ids: added tokens are cut out, the rest is normalised, cut into words and merged.
//!
//! The stages are those of the `tokenizers` crate; they are run here and not by its `Tokenizer`, because one set of them
//! serves three readings of a text: with control tokens parsed, with control tokens plain, and a rendered conversation in
//! which only those that the template wrote are control tokens.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use tokenizers::models::bpe::BPE;
use tokenizers::models::unigram::Unigram;
use tokenizers::{
    AddedToken, AddedVocabulary, Model, NormalizerWrapper, OffsetReferential, OffsetType, PreTokenizer,
    PreTokenizerWrapper, Token, Trainer,
};

use super::spm::Spm;
use crate::error::{Error, Result};
use crate::limits::PROMPT_BYTES_MAX;

/// Stands where a control token of a rendered conversation was: a noncharacter, which Unicode reserves for internal use.
const FRAME: char = '\u{FDD0}';

/// What makes ids of a word.
pub(super) enum Merger {
    /// Ranked merges.
    Bpe(Box<BPE>),
    /// Merges by score.
    Spm(Box<Spm>),
    /// The likeliest segmentation.
    Unigram(Box<Unigram>),
}

/// The stages between text and ids.
pub(super) struct Stages {
    pub(super) normalizer: Option<NormalizerWrapper>,
    pub(super) pre_tokenizer: Option<PreTokenizerWrapper>,
    pub(super) merger: Merger,
}

/// A span of a text: a control token, or anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section<'a> {
    Text(&'a str),
    Control(u32),
}

/// The stages with the added tokens in three readings.
pub(super) struct Pipeline {
    stages: Stages,
    parsing: AddedVocabulary,
    plain: AddedVocabulary,
    /// As `plain`, and [`FRAME`] is a token.
    framed: AddedVocabulary,
    frame_id: u32,
    control: Vec<(String, u32)>,
}

impl Pipeline {
    /// Joins stages and added tokens. Special ones are control tokens, others are found in every text.
    ///
    /// # Errors
    /// When the crate refuses an added token.
    pub(super) fn new(stages: Stages, added: Vec<(u32, AddedToken)>, vocab_size: u32) -> Result<Self> {
        let mut control: Vec<(String, u32)> =
            added.iter().filter(|(_, t)| t.special).map(|(id, t)| (t.content.clone(), *id)).collect();
        control.sort_by_key(|(_, id)| *id);
        let ids = added.iter().map(|(id, token)| (token.content.clone(), *id)).collect();
        let mut names = Names { ids, size: vocab_size };
        let tokens: Vec<AddedToken> = added.into_iter().map(|(_, token)| tamed(token)).collect();
        let mut parsing = AddedVocabulary::new();
        let frame = AddedToken::from(FRAME, false).normalized(false);
        let (plain, framed) = guarded("added tokens", || {
            parsing.add_tokens(tokens, &names, stages.normalizer.as_ref())?;
            let mut plain = parsing.clone();
            plain.set_encode_special_tokens(true);
            let mut framed = plain.clone();
            names.ids.insert(FRAME.to_string(), vocab_size);
            framed.add_tokens([frame], &names, stages.normalizer.as_ref())?;
            Ok((plain, framed))
        })?;
        Ok(Self { stages, parsing, plain, framed, frame_id: vocab_size, control })
    }

    /// Control tokens by text, in the order of their ids.
    pub(super) fn control(&self) -> &[(String, u32)] {
        &self.control
    }

    /// Ids of a text in which control tokens are parsed.
    ///
    /// # Errors
    /// When the text is too long or holds what the vocabulary cannot spell.
    pub(super) fn encode_parsing(&self, text: &str) -> Result<Vec<u32>> {
        self.encode(&self.parsing, text)
    }

    /// Ids of a text in which control tokens are plain characters.
    ///
    /// # Errors
    /// As [`Pipeline::encode_parsing`].
    pub(super) fn encode_plain(&self, text: &str) -> Result<Vec<u32>> {
        let ids = self.encode(&self.plain, text)?;
        if self.spell_control(&ids, text) { self.encode_halves(text) } else { Ok(ids) }
    }

    /// Cuts a text where its control tokens are, spaces that a token swallows included.
    ///
    /// # Errors
    /// When the text is too long.
    pub(super) fn sections<'a>(&self, text: &'a str) -> Result<Vec<Section<'a>>> {
        check_length(text)?;
        guarded("control tokens", || {
            let pieces = self.parsing.extract_and_normalize(None::<&NormalizerWrapper>, text);
            let mut sections = Vec::new();
            let (mut from, mut until) = (0, 0);
            for (_, (start, end), tokens) in pieces.get_splits(OffsetReferential::Original, OffsetType::Byte) {
                let token = tokens.as_deref().and_then(<[Token]>::first);
                if let Some(token) = token.filter(|t| self.is_control(t.id)) {
                    sections.extend(text.get(from..until).filter(|s| !s.is_empty()).map(Section::Text));
                    sections.push(Section::Control(token.id));
                    from = end;
                } else if from == until {
                    from = start;
                }
                until = end;
            }
            sections.extend(text.get(from..until).filter(|s| !s.is_empty()).map(Section::Text));
            Ok(sections)
        })
    }

    /// Ids of sections, as if their texts were one: a text that spells a control token is plain.
    ///
    /// # Errors
    /// As [`Pipeline::encode_parsing`].
    pub(super) fn encode_sections(&self, sections: &[Section<'_>]) -> Result<Vec<u32>> {
        let holds_frame = |s: &Section<'_>| matches!(s, Section::Text(text) if text.contains(FRAME));
        if sections.iter().any(holds_frame) {
            return self.encode_apart(sections);
        }
        let mut framed = String::new();
        let mut controls = Vec::new();
        for section in sections {
            match section {
                Section::Text(text) => framed.push_str(text),
                Section::Control(id) => {
                    framed.push(FRAME);
                    controls.push(*id);
                }
            }
        }
        let mut ids = self.encode(&self.framed, &framed)?;
        let frames = ids.iter().filter(|&&id| id == self.frame_id).count();
        if frames != controls.len() || self.spell_control(&ids, &framed) {
            return self.encode_apart(sections);
        }
        let mut controls = controls.into_iter();
        for id in &mut ids {
            if *id == self.frame_id {
                *id = controls.next().unwrap_or(*id);
            }
        }
        Ok(ids)
    }

    fn encode_apart(&self, sections: &[Section<'_>]) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        for section in sections {
            match section {
                Section::Text(text) => ids.extend(self.encode_plain(text)?),
                Section::Control(id) => ids.push(*id),
            }
        }
        Ok(ids)
    }

    /// A word that as a whole is a control token's text can become that token; in halves it cannot.
    fn encode_halves(&self, text: &str) -> Result<Vec<u32>> {
        let Some((middle, _)) = text.char_indices().nth(text.chars().count() / 2).filter(|(at, _)| *at > 0) else {
            return Err(Error::Tokenizer(format!("{text:?} is a control token and has no other spelling")));
        };
        let (left, right) = text.split_at(middle);
        let mut ids = self.encode_plain(left)?;
        ids.extend(self.encode_plain(right)?);
        Ok(ids)
    }

    fn is_control(&self, id: u32) -> bool {
        self.control.binary_search_by_key(&id, |(_, id)| *id).is_ok()
    }

    /// Whether ids that came of plain text hold a control token that the text spells. The unknown token is one that comes
    /// without being spelled.
    fn spell_control(&self, ids: &[u32], text: &str) -> bool {
        let mut found: Vec<usize> =
            ids.iter().filter_map(|&id| self.control.binary_search_by_key(&id, |(_, id)| *id).ok()).collect();
        found.sort_unstable();
        found.dedup();
        found.into_iter().any(|index| text.contains(&self.control[index].0))
    }

    fn encode(&self, added: &AddedVocabulary, text: &str) -> Result<Vec<u32>> {
        check_length(text)?;
        let stages = &self.stages;
        let mut ids = Vec::new();
        guarded("encode", || {
            let mut pieces = added.extract_and_normalize(stages.normalizer.as_ref(), text);
            if let Some(pre_tokenizer) = &stages.pre_tokenizer {
                pre_tokenizer.pre_tokenize(&mut pieces)?;
            }
            for (word, _, tokens) in pieces.get_splits(OffsetReferential::Original, OffsetType::None) {
                match tokens {
                    Some(tokens) => ids.extend(tokens.iter().map(|token| token.id)),
                    None => stages.merger.encode(word, &mut ids)?,
                }
            }
            Ok(())
        })?;
        Ok(ids)
    }
}

impl Merger {
    fn encode(&self, word: &str, ids: &mut Vec<u32>) -> tokenizers::Result<()> {
        let tokens = match self {
            Self::Spm(spm) => return Ok(spm.encode(word, ids)?),
            Self::Bpe(bpe) => bpe.tokenize(word)?,
            Self::Unigram(unigram) => unigram.tokenize(word)?,
        };
        // The crate's BPE leaves out characters that are not in the vocabulary.
        let spelled: usize = tokens.iter().map(|token| token.offsets.1.saturating_sub(token.offsets.0)).sum();
        if spelled != word.len() && matches!(self, Self::Bpe(_)) {
            return Err(format!("the vocabulary cannot spell all of {word:?}").into());
        }
        ids.extend(tokens.iter().map(|token| token.id));
        Ok(())
    }
}

fn check_length(text: &str) -> Result<()> {
    if text.len() <= PROMPT_BYTES_MAX {
        return Ok(());
    }
    Err(Error::Request(format!("prompt of {} bytes; at most {PROMPT_BYTES_MAX} are tokenised", text.len())))
}

/// Runs code of the `tokenizers` crate, whose stages panic on some tables that a tokenizer.json can hold: what we know of
/// is refused when the file is read, the rest becomes an error here.
pub(super) fn guarded<T>(op: &str, run: impl FnOnce() -> tokenizers::Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(match error.downcast::<Error>() {
            Ok(ours) => *ours,
            Err(theirs) => Error::Tokenizer(format!("{op}: {theirs}")),
        }),
        Err(_) => Err(Error::Tokenizer(format!("{op}: the tokenizer's tables contradict each other"))),
    }
}

/// An added token of spaces alone must not swallow spaces: it could then begin behind its own end.
fn tamed(token: AddedToken) -> AddedToken {
    let blank = token.content.trim().is_empty();
    let (left, right) = (token.lstrip && !blank, token.rstrip && !blank);
    token.lstrip(left).rstrip(right)
}

/// Ids of the added tokens, in the shape in which the crate asks for them.
struct Names {
    ids: HashMap<String, u32>,
    size: u32,
}

impl Model for Names {
    type Trainer = NoTrainer;

    fn tokenize(&self, _: &str) -> tokenizers::Result<Vec<Token>> {
        Ok(Vec::new())
    }
    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.ids.get(token).copied()
    }
    fn id_to_token(&self, _: u32) -> Option<String> {
        None
    }
    fn get_vocab(&self) -> HashMap<String, u32> {
        self.ids.clone()
    }
    fn get_vocab_size(&self) -> usize {
        self.size as usize
    }
    fn save(&self, _: &Path, _: Option<&str>) -> tokenizers::Result<Vec<PathBuf>> {
        Ok(Vec::new())
    }
    fn get_trainer(&self) -> NoTrainer {
        NoTrainer
    }
}

/// The crate's models name a trainer; names have none.
struct NoTrainer;

impl Trainer for NoTrainer {
    type Model = Names;

    fn should_show_progress(&self) -> bool {
        false
    }
    fn train(&self, _: &mut Names) -> tokenizers::Result<Vec<AddedToken>> {
        Err("names are not trained".into())
    }
    fn feed<I, S, F>(&mut self, _: I, _: F) -> tokenizers::Result<()>
    where
        I: Iterator<Item = S> + Send,
        S: AsRef<str> + Send,
        F: Fn(&str) -> tokenizers::Result<Vec<String>> + Sync,
    {
        Err("names are not trained".into())
    }
}
