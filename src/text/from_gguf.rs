//! The tokenizer in a GGUF's metadata: `gpt2` (byte-level BPE) and `llama` (SentencePiece).
//!
//! Defaults are llama.cpp's: `llama` adds BOS and a leading space, `gpt2` neither, except with a few pre-tokenizers.

use std::collections::HashSet;

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::{Prepend, Replace, Sequence};
use tokenizers::{AddedToken, NormalizerWrapper};

use super::end_tokens::{end_names, is_control_name, is_end_name};
use super::pipeline::{Merger, Stages, guarded};
use super::pre_tokenizers::row_from_name;
use super::spm::{Piece, Spm};
use super::tokenizer::{Parts, Special};
use super::vocabulary::{Kind, Spelling, Vocabulary, byte_from_token};
use crate::error::{Error, Result};
use crate::format::gguf::Metadata;

const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const SCORES: &str = "tokenizer.ggml.scores";
const MERGES: &str = "tokenizer.ggml.merges";

/// `tokenizer.ggml.token_type` of one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

/// Tokens with their types; names are unique, an empty one stands for a hole.
struct Tokens<'a> {
    texts: &'a [String],
    types: Vec<Type>,
}

/// Builds the tokenizer that the metadata describes.
///
/// # Errors
/// When keys are missing or contradict each other, or the kind of tokenizer is not supported.
pub(super) fn from_metadata(metadata: &Metadata) -> Result<Parts> {
    let key = "tokenizer.ggml.model";
    match metadata.str(key)? {
        Some("gpt2") => byte_level(metadata),
        Some("llama") => sentence_piece(metadata),
        Some(other) => Err(Error::unsupported(
            format_args!("the tokenizer model `{other}` ({})", metadata.place(key)),
            "gpt2 and llama are; a tokenizer.json given by --tokenizer takes its place",
        )),
        None => Err(Error::format("tokenizer", "a tokenizer model", "none", metadata.place(key))),
    }
}

fn byte_level(metadata: &Metadata) -> Result<Parts> {
    let tokens = read_tokens(metadata)?;
    let key = "tokenizer.ggml.pre";
    let row = row_from_name(metadata.str(key)?.unwrap_or("default"), &metadata.place(key))?;
    let stages = Stages {
        normalizer: None,
        pre_tokenizer: Some(row.build()?),
        merger: ranked_merges(metadata, &tokens, row.whole_words)?,
    };
    let special = read_special(metadata, &tokens, None, row.add_bos)?;
    finish(stages, &tokens, Spelling::ByteLevel, false, special)
}

fn sentence_piece(metadata: &Metadata) -> Result<Parts> {
    let tokens = read_tokens(metadata)?;
    let scores = metadata.floats(SCORES)?.unwrap_or_default();
    check_count(metadata, SCORES, tokens.texts.len(), scores.len())?;
    let mut spm = Spm { pieces: Default::default(), bytes: [None; 256], unknown: None };
    spm.pieces.reserve(tokens.texts.len());
    for (((id, text), &kind), &score) in (0..).zip(tokens.texts).zip(&tokens.types).zip(scores) {
        if !score.is_finite() {
            return Err(Error::format("token score", "a finite number", score, metadata.place(SCORES)));
        }
        match kind {
            Type::Normal => {
                spm.pieces.insert(text.clone(), Piece { id, score });
            }
            Type::Byte => read_byte(metadata, &mut spm, id, text)?,
            Type::Unknown => spm.unknown = spm.unknown.or(Some(id)),
            Type::Control | Type::UserDefined | Type::Unused => {}
        }
    }
    let special = read_special(metadata, &tokens, Some((1, 2)), true)?;
    spm.unknown = match special_id(metadata, &tokens, "unknown")? {
        Some(id) => Some(id),
        None => spm.unknown,
    };
    let space_prefix = metadata.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    let stages =
        Stages { normalizer: Some(marked(space_prefix)?), pre_tokenizer: None, merger: Merger::Spm(Box::new(spm)) };
    finish(stages, &tokens, Spelling::Marked { bytes: true }, space_prefix, special)
}

/// Spaces become `▁`, with one more in front where the model wants it.
fn marked(space_prefix: bool) -> Result<NormalizerWrapper> {
    let mark = guarded("normalizer", || Replace::new(" ", "▁"))?;
    let mut steps = Vec::new();
    if space_prefix {
        steps.push(NormalizerWrapper::Prepend(Prepend::new("▁".into())));
    }
    steps.push(NormalizerWrapper::Replace(mark));
    Ok(NormalizerWrapper::Sequence(Sequence::new(steps)))
}

fn read_byte(metadata: &Metadata, spm: &mut Spm, id: u32, text: &str) -> Result<()> {
    let place = || format!("{}, id {id}", metadata.place(TOKENS));
    let byte = byte_from_token(text)
        .ok_or_else(|| Error::format("byte token", "<0xNN> of two hex digits", format_args!("{text:?}"), place()))?;
    match spm.bytes[usize::from(byte)].replace(id) {
        None => Ok(()),
        Some(first) => {
            Err(Error::format("byte token", "each byte once", format_args!("{text} also at {first}"), place()))
        }
    }
}

fn ranked_merges(metadata: &Metadata, tokens: &Tokens<'_>, whole_words: bool) -> Result<Merger> {
    let lines = metadata
        .strs(MERGES)?
        .ok_or_else(|| Error::format("tokenizer", "a list of merges", "none", metadata.place(MERGES)))?;
    let reachable = |kind: Type| !matches!(kind, Type::Control | Type::Unknown | Type::Unused);
    let mut vocab = Vocab::default();
    let mut names = HashSet::with_capacity(tokens.texts.len());
    for ((id, text), &kind) in (0..).zip(tokens.texts).zip(&tokens.types).filter(|((_, text), _)| !text.is_empty()) {
        names.insert(text.as_str());
        if reachable(kind) {
            vocab.insert(text.clone(), id);
        }
    }
    let mut merges = Vec::with_capacity(lines.len());
    for (index, line) in lines.iter().enumerate() {
        let bad = |want: &str| {
            Error::format("merge", want, format_args!("{line:?}"), format!("{}, merge {index}", metadata.place(MERGES)))
        };
        // A token may begin with a space, but is never empty.
        let first = line.chars().next().map_or(0, char::len_utf8);
        let at = line[first..].find(' ').ok_or_else(|| bad("two tokens with a space between"))? + first;
        let (left, right) = (&line[..at], &line[at + 1..]);
        let joined = [left, right].concat();
        if [left, right, &joined].iter().any(|name| !names.contains(name)) {
            return Err(bad("tokens of the vocabulary, also when joined"));
        }
        // One that makes a control token must not be reached from text.
        if vocab.contains_key(left) && vocab.contains_key(right) && vocab.contains_key(&joined) {
            merges.push((left.to_owned(), right.to_owned()));
        }
    }
    let builder = BPE::builder().vocab_and_merges(vocab, merges).ignore_merges(whole_words);
    Ok(Merger::Bpe(Box::new(guarded("merges", || builder.build())?)))
}

fn read_tokens(metadata: &Metadata) -> Result<Tokens<'_>> {
    let texts = metadata.strs(TOKENS)?.unwrap_or_default();
    if texts.is_empty() {
        return Err(Error::format("tokenizer", "a list of tokens", "none", metadata.place(TOKENS)));
    }
    let mut seen = HashSet::with_capacity(texts.len());
    if let Some(twice) = texts.iter().find(|text| !text.is_empty() && !seen.insert(text.as_str())) {
        return Err(Error::format(
            "token list",
            "each token once",
            format_args!("{twice:?} twice"),
            metadata.place(TOKENS),
        ));
    }
    let types = match metadata.ints(TYPES)? {
        None => texts.iter().map(|text| byte_from_token(text).map_or(Type::Normal, |_| Type::Byte)).collect(),
        Some(numbers) => {
            check_count(metadata, TYPES, texts.len(), numbers.len())?;
            let bad = |n: &i64| Error::format("token type", "1 to 6", n, metadata.place(TYPES));
            numbers.iter().map(|n| type_from_number(*n).ok_or_else(|| bad(n))).collect::<Result<Vec<_>>>()?
        }
    };
    let control = |(kind, text): (Type, &String)| if is_control_name(text) { Type::Control } else { kind };
    let types = types.into_iter().zip(texts).map(control).collect();
    Ok(Tokens { texts, types })
}

fn type_from_number(number: i64) -> Option<Type> {
    match number {
        // 0 is "undefined": llama.cpp reads such a token as an ordinary one.
        0 | 1 => Some(Type::Normal),
        2 => Some(Type::Unknown),
        3 => Some(Type::Control),
        4 => Some(Type::UserDefined),
        5 => Some(Type::Unused),
        6 => Some(Type::Byte),
        _ => None,
    }
}

fn check_count(metadata: &Metadata, key: &str, expected: usize, got: usize) -> Result<()> {
    if expected == got {
        return Ok(());
    }
    Err(Error::format("tokenizer", format_args!("{expected} entries, one a token"), got, metadata.place(key)))
}

/// The id under `tokenizer.ggml.NAME_token_id`; files write the largest number for "none".
pub(super) fn id_from_metadata(metadata: &Metadata, name: &str, vocab_size: usize) -> Result<Option<u32>> {
    let key = format!("tokenizer.ggml.{name}_token_id");
    match metadata.u64(&key)?.filter(|&id| id != u64::from(u32::MAX)) {
        None => Ok(None),
        Some(id) => match u32::try_from(id) {
            Ok(id) if (id as usize) < vocab_size => Ok(Some(id)),
            _ => {
                let want = format_args!("an id below {vocab_size}").to_string();
                Err(Error::format("special token", want, id, metadata.place(&key)))
            }
        },
    }
}

fn special_id(metadata: &Metadata, tokens: &Tokens<'_>, name: &str) -> Result<Option<u32>> {
    id_from_metadata(metadata, name, tokens.texts.len())
}

/// Special tokens by use. `defaults` are BOS and EOS of a file that names none.
fn read_special(
    metadata: &Metadata,
    tokens: &Tokens<'_>,
    defaults: Option<(u32, u32)>,
    add_bos: bool,
) -> Result<Special> {
    let is_control = |id: u32| tokens.types.get(id as usize) == Some(&Type::Control);
    let fits = |id: u32, name: &str| is_control(id) || tokens.texts.get(id as usize).is_some_and(|text| text == name);
    let bos = special_id(metadata, tokens, "bos")?.or(defaults.map(|d| d.0).filter(|&id| fits(id, "<s>")));
    let eos = special_id(metadata, tokens, "eos")?.or(defaults.map(|d| d.1).filter(|&id| fits(id, "</s>")));
    let mut ends: Vec<u32> = eos.into_iter().collect();
    for name in ["eot", "eom"] {
        ends.extend(special_id(metadata, tokens, name)?);
    }
    let wanted: HashSet<&str> = end_names().collect();
    let named: Vec<(&str, u32)> = (0..)
        .zip(tokens.texts)
        .filter(|&(id, text)| is_control(id) && wanted.contains(text.as_str()))
        .map(|(id, text)| (text.as_str(), id))
        .collect();
    let has = |name: &str| named.iter().any(|(text, _)| *text == name);
    ends.extend(named.iter().filter(|(name, _)| is_end_name(name, has)).map(|(_, id)| id));
    let added = |key: &str, default: bool, id: Option<u32>| -> Result<Vec<u32>> {
        let add = metadata.bool(key)?.unwrap_or(default);
        Ok(id.filter(|_| add).into_iter().collect())
    };
    let prefix = added("tokenizer.ggml.add_bos_token", add_bos, bos)?;
    let suffix = added("tokenizer.ggml.add_eos_token", false, eos)?;
    Ok(Special { bos, prefix, suffix, ends })
}

/// Added tokens and the view from the ids.
fn finish(
    stages: Stages,
    tokens: &Tokens<'_>,
    spelling: Spelling,
    space_prefix: bool,
    special: Special,
) -> Result<Parts> {
    let mut vocabulary = Vocabulary::new(space_prefix);
    let mut added = Vec::new();
    for ((id, text), &kind) in (0..).zip(tokens.texts).zip(&tokens.types) {
        // What ends an answer has no text of its own, whatever the file calls it.
        let ends = special.ends.contains(&id) || special.bos == Some(id);
        match kind {
            _ if text.is_empty() => vocabulary.push(Kind::Absent, b"")?,
            Type::UserDefined if !ends => {
                let raw = if spelling == Spelling::ByteLevel { text.clone() } else { text.replace('▁', " ") };
                vocabulary.push(Kind::Text, raw.as_bytes())?;
                // SentencePiece finds them after spaces became marks; with a space in front, files mean the text itself.
                let marked = spelling != Spelling::ByteLevel && !space_prefix;
                added.push((id, AddedToken::from(raw, false).normalized(marked)));
            }
            Type::Normal | Type::Unused if !ends => {
                let bytes = spelling.piece(text).1;
                vocabulary.push(Kind::Text, &bytes)?;
            }
            Type::Byte => {
                let (kind, bytes) = spelling.piece(text);
                vocabulary.push(kind, &bytes)?;
            }
            _ => {
                vocabulary.push(Kind::Control, b"")?;
                added.push((id, AddedToken::from(text.clone(), true)));
            }
        }
    }
    Ok(Parts { stages, added, vocabulary, special })
}
