//! The tokenizer of a tokenizer.json, with what tokenizer_config.json and generation_config.json add.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;
use tokenizers::models::bpe::{BPE, Vocab as BpeVocab};
use tokenizers::models::unigram::Unigram;
use tokenizers::{AddedToken, NormalizerWrapper, PreTokenizerWrapper};

use super::end_tokens::{end_names, is_control_name, is_end_name};
use super::from_gguf::id_from_metadata;
use super::json_file::{Added, File, Model, Vocab};
use super::pipeline::{Merger, Stages, guarded};
use super::tokenizer::{Parts, Special};
use super::vocabulary::{Kind, Spelling, Vocabulary};
use crate::error::{Error, Result};
use crate::format::model_files::{Description, Folder};
use crate::format::source;
use crate::limits::{TOKENIZER_BYTES_MAX, VOCAB_MAX};

/// The tokenizer of a model folder.
///
/// # Errors
/// When there is no tokenizer.json, or it is broken.
pub(super) fn from_folder(folder: &Folder) -> Result<Parts> {
    let place = folder.path.join("tokenizer.json");
    let Some(bytes) = &folder.tokenizer_json else {
        let want = "a tokenizer.json, or one given by --tokenizer";
        return Err(Error::format("tokenizer", want, "none", folder.path.display()));
    };
    from_bytes(bytes, &place.display().to_string(), &Config::from_folder(folder))
}

/// The tokenizer of a file of its own, for a model whose other files are `description`.
///
/// # Errors
/// When the file cannot be read, or is broken.
pub(super) fn from_file(file: &Path, description: &Description) -> Result<Parts> {
    let bytes = source::read_small(file, TOKENIZER_BYTES_MAX)?
        .ok_or_else(|| Error::format("tokenizer", "a tokenizer.json", "no such file", file.display()))?;
    let mut config = match description {
        Description::Folder(folder) => Config::from_folder(folder),
        Description::Gguf(_) => Config::default(),
    };
    if let Description::Gguf(metadata) = description {
        for name in ["eos", "eot", "eom"] {
            config.ends.extend(id_from_metadata(metadata, name, VOCAB_MAX as usize)?);
        }
        config.bos_id = id_from_metadata(metadata, "bos", VOCAB_MAX as usize)?;
    }
    from_bytes(&bytes, &file.display().to_string(), &config)
}

/// What the files beside a tokenizer.json say about it.
#[derive(Debug, Default)]
struct Config {
    added: Vec<Added>,
    bos: Option<String>,
    bos_id: Option<u32>,
    eos: Option<String>,
    add_bos: Option<bool>,
    add_eos: Option<bool>,
    /// Ids that end an answer.
    ends: Vec<u32>,
}

impl Config {
    fn from_folder(folder: &Folder) -> Self {
        let config = &folder.tokenizer_config;
        let mut ends = Vec::new();
        for value in [&folder.generation_config["eos_token_id"], &folder.config["eos_token_id"]] {
            ends.extend(ids_from_value(value));
        }
        let mut added = Vec::new();
        for (id, token) in config["added_tokens_decoder"].as_object().into_iter().flatten() {
            if let (Ok(id), Ok(token)) = (id.parse(), serde_json::from_value::<Added>(token.clone())) {
                added.push(Added { id, ..token });
            }
        }
        Self {
            added,
            bos: name_from_value(&config["bos_token"]),
            bos_id: ids_from_value(&folder.config["bos_token_id"]).first().copied(),
            eos: name_from_value(&config["eos_token"]),
            add_bos: config["add_bos_token"].as_bool(),
            add_eos: config["add_eos_token"].as_bool(),
            ends,
        }
    }
}

/// A token's text: a string, or an object that holds it.
pub(super) fn name_from_value(value: &Value) -> Option<String> {
    value.as_str().or_else(|| value["content"].as_str()).map(ToOwned::to_owned)
}

/// One id, or a list of them.
fn ids_from_value(value: &Value) -> Vec<u32> {
    let one = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Value::Array(list) => list.iter().filter_map(one).collect(),
        other => one(other).into_iter().collect(),
    }
}

fn from_bytes(bytes: &[u8], place: &str, config: &Config) -> Result<Parts> {
    let bad = |got: String| Error::format("tokenizer", "a tokenizer.json", got, place);
    let mut file: File = serde_json::from_slice(bytes).map_err(|e| bad(e.to_string()))?;
    mark_control(&mut file, config);
    let names = Names::new(&file, place)?;
    let (spelling, space_prefix) = spelling_from_decoder(file.decoder.as_ref(), place)?;
    let vocabulary = names.vocabulary(&file, spelling, space_prefix)?;
    let special = read_special(&file, &names, &vocabulary, config, place)?;
    let stages = Stages {
        normalizer: read_stage::<NormalizerWrapper>("normalizer", file.normalizer.as_ref(), place)?,
        pre_tokenizer: read_stage::<PreTokenizerWrapper>("pre-tokenizer", file.pre_tokenizer.as_ref(), place)?,
        merger: read_merger(file.model, place)?,
    };
    let added = file.added_tokens.into_iter().map(|token| {
        let id = names.ids.get(&token.content).copied().unwrap_or(token.id);
        let Added { content, single_word, lstrip, rstrip, normalized, special, .. } = token;
        (id, AddedToken { content, single_word, lstrip, rstrip, normalized, special })
    });
    Ok(Parts { stages, added: added.collect(), vocabulary, special })
}

/// Adds what the configuration says about added tokens: which there are, and which are control tokens.
fn mark_control(file: &mut File, config: &Config) {
    let added = &mut file.added_tokens;
    added.retain(|token| !token.content.is_empty());
    let mut index: HashMap<String, usize> = added.iter().map(|token| token.content.clone()).zip(0..).collect();
    let mut mark = |token: Added| match index.get(&token.content) {
        Some(&at) => added[at].special |= token.special,
        None => {
            index.insert(token.content.clone(), added.len());
            added.push(token);
        }
    };
    config.added.iter().filter(|token| !token.content.is_empty()).cloned().for_each(&mut mark);
    if let Vocab::Ids(list) = &file.model.vocab {
        let used = [&config.bos, &config.eos];
        let is_used = |name: &String, id: &u32| {
            used.iter().any(|used| used.as_ref() == Some(name))
                || config.ends.contains(id)
                || config.bos_id == Some(*id)
        };
        for (name, id) in list.iter().filter(|(name, id)| !name.is_empty() && is_used(name, id)) {
            mark(Added { id: *id, special: true, content: name.clone(), ..Added::default() });
        }
    }
    for token in added {
        let used = [&config.bos, &config.eos].into_iter().flatten().any(|name| *name == token.content);
        token.special |= used || is_control_name(&token.content) || config.ends.contains(&token.id);
        // Found in the text as it is, also where a normaliser would change both.
        token.normalized &= !token.special;
    }
}

fn read_stage<T: serde::de::DeserializeOwned>(
    op: &'static str,
    value: Option<&Value>,
    place: &str,
) -> Result<Option<T>> {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(None) };
    let read = guarded(op, || Ok(serde_json::from_value(value.clone())?));
    read.map(Some).map_err(|e| Error::format(op, "one of the tokenizers library", e, place))
}

/// Ids by name: the model's, and behind them those of the added tokens.
struct Names {
    ids: HashMap<String, u32>,
}

impl Names {
    fn new(file: &File, place: &str) -> Result<Self> {
        let mut ids = HashMap::new();
        let twice = |name: &str| Error::format("token list", "each token once", format_args!("{name:?} twice"), place);
        let numbered: Vec<(&String, u32)> = match &file.model.vocab {
            Vocab::Ids(list) => list.iter().map(|(name, id)| (name, *id)).collect(),
            Vocab::Scores(list) => list.iter().map(|(name, _)| name).zip(0..).collect(),
        };
        if numbered.is_empty() {
            return Err(Error::format("tokenizer", "a vocabulary", "an empty one", place));
        }
        for (name, id) in numbered {
            if ids.insert(name.clone(), id).is_some() {
                return Err(twice(name));
            }
        }
        for token in &file.added_tokens {
            // A token of the model keeps its id, as in the reference.
            ids.entry(token.content.clone()).or_insert(token.id);
        }
        match ids.iter().find(|(_, id)| **id >= VOCAB_MAX) {
            None => Ok(Self { ids }),
            Some((name, id)) => {
                let got = format!("{id} of {name:?}");
                Err(Error::format("token id", format_args!("below {VOCAB_MAX}"), got, place))
            }
        }
    }

    fn vocabulary(&self, file: &File, spelling: Spelling, space_prefix: bool) -> Result<Vocabulary> {
        let added: HashMap<&str, bool> = file.added_tokens.iter().map(|t| (t.content.as_str(), t.special)).collect();
        let mut by_id: Vec<(u32, &str)> = self.ids.iter().map(|(name, id)| (*id, name.as_str())).collect();
        // Two names of one id: the added one is what it stands for.
        by_id.sort_unstable_by_key(|&(id, name)| (id, !added.contains_key(name), name));
        by_id.dedup_by_key(|(id, _)| *id);
        let mut vocabulary = Vocabulary::new(space_prefix);
        for (id, name) in by_id {
            while vocabulary.len() < id {
                vocabulary.push(Kind::Absent, b"")?;
            }
            let (kind, bytes) = match added.get(name) {
                Some(true) => (Kind::Control, Vec::new()),
                Some(false) => (Kind::Text, name.as_bytes().to_vec()),
                None => spelling.piece(name),
            };
            vocabulary.push(kind, &bytes)?;
        }
        Ok(vocabulary)
    }
}

/// How tokens spell text, and whether a leading space is dropped, from the decoder.
fn spelling_from_decoder(decoder: Option<&Value>, place: &str) -> Result<(Spelling, bool)> {
    let unsupported = |what: String| {
        Error::unsupported(format_args!("the decoder {what} ({place})"), "ByteLevel, Metaspace and byte fallback are")
    };
    let Some(decoder) = decoder.filter(|value| !value.is_null()) else { return Err(unsupported("null".into())) };
    let steps = decoder["decoders"].as_array().map_or(std::slice::from_ref(decoder), Vec::as_slice);
    let (mut spelling, mut bytes, mut space_prefix) = (None, false, false);
    for step in steps {
        match step["type"].as_str() {
            Some("ByteLevel") => spelling = Some(Spelling::ByteLevel),
            Some("Metaspace") if step["replacement"] == "▁" => {
                spelling = Some(Spelling::Marked { bytes: false });
                space_prefix |= step["prepend_scheme"] != "never" && step["add_prefix_space"] != false;
            }
            Some("Replace") if step["pattern"]["String"] == "▁" && step["content"] == " " => {
                spelling = Some(Spelling::Marked { bytes: false });
            }
            Some("ByteFallback") => bytes = true,
            Some("Fuse") => {}
            Some("Strip") if step["content"] == " " && step["stop"] == 0 => space_prefix |= step["start"] != 0,
            _ => return Err(unsupported(step.to_string())),
        }
    }
    match spelling {
        Some(Spelling::Marked { .. }) => Ok((Spelling::Marked { bytes }, space_prefix)),
        Some(Spelling::ByteLevel) => Ok((Spelling::ByteLevel, space_prefix)),
        None => Err(unsupported(decoder.to_string())),
    }
}

fn read_merger(model: Model, place: &str) -> Result<Merger> {
    let decorated = [&model.continuing_subword_prefix, &model.end_of_word_suffix];
    if decorated.into_iter().flatten().any(|affix| !affix.is_empty()) {
        return Err(Error::unsupported(format_args!("a vocabulary of word parts ({place})"), ""));
    }
    match (model.kind.as_deref(), model.vocab) {
        (Some("Unigram"), Vocab::Scores(scores)) => {
            if scores.iter().any(|(name, _)| name.is_empty()) {
                return Err(Error::format("token list", "tokens of at least one character", "an empty one", place));
            }
            let build = || Unigram::from(scores, model.unk_id, model.byte_fallback);
            Ok(Merger::Unigram(Box::new(guarded("model", build)?)))
        }
        (Some("BPE") | None, Vocab::Ids(ids)) => {
            let vocab: BpeVocab = ids.into_iter().collect();
            let mut merges = Vec::with_capacity(model.merges.len());
            for (index, merge) in model.merges.iter().enumerate() {
                let bad = |want: &str| {
                    Error::format("merge", want, format_args!("{merge:?}"), format_args!("{place}, merge {index}"))
                };
                let (left, right) = merge.pair().ok_or_else(|| bad("two tokens"))?;
                // The crate copies the joined token into a buffer of the longest one without looking.
                if [left, right, &[left, right].concat()].iter().any(|name| !vocab.contains_key(*name)) {
                    return Err(bad("tokens of the vocabulary, also when joined"));
                }
                merges.push((left.to_owned(), right.to_owned()));
            }
            let mut builder = BPE::builder().vocab_and_merges(vocab, merges).ignore_merges(model.ignore_merges);
            builder = builder.fuse_unk(model.fuse_unk).byte_fallback(model.byte_fallback);
            if let Some(unknown) = model.unk_token {
                builder = builder.unk_token(unknown);
            }
            Ok(Merger::Bpe(Box::new(guarded("model", || builder.build())?)))
        }
        (kind, _) => {
            let what = format!("the tokenizer model `{}` ({place})", kind.unwrap_or("BPE without ids"));
            Err(Error::unsupported(what, "BPE and Unigram are"))
        }
    }
}

/// Ids that the post-processor puts before and behind a text.
fn read_affixes(post: Option<&Value>, place: &str) -> Result<(Vec<u32>, Vec<u32>)> {
    let Some(post) = post.filter(|value| !value.is_null()) else { return Ok(Default::default()) };
    let bad = |got: &Value| Error::format("post-processor", "ids around one text", got, place);
    match post["type"].as_str() {
        Some("ByteLevel") => Ok(Default::default()),
        Some("RobertaProcessing" | "BertProcessing") => {
            Ok((ids_from_value(&post["cls"][1]), ids_from_value(&post["sep"][1])))
        }
        Some("Sequence") => {
            let (mut before, mut after) = (Vec::new(), Vec::new());
            for step in post["processors"].as_array().into_iter().flatten() {
                let (inner_before, inner_after) = read_affixes(Some(step), place)?;
                before.splice(0..0, inner_before);
                after.extend(inner_after);
            }
            Ok((before, after))
        }
        Some("TemplateProcessing") => {
            let pieces = post["single"].as_array().ok_or_else(|| bad(&post["single"]))?;
            let (mut affixes, mut texts) = ([Vec::new(), Vec::new()], 0);
            for piece in pieces {
                match piece["SpecialToken"]["id"].as_str() {
                    Some(name) => affixes[texts.min(1)].extend(ids_from_value(&post["special_tokens"][name]["ids"])),
                    None if piece["Sequence"].is_object() => texts += 1,
                    None => return Err(bad(piece)),
                }
            }
            let [before, after] = affixes;
            if texts == 1 { Ok((before, after)) } else { Err(bad(&post["single"])) }
        }
        _ => Err(bad(post)),
    }
}

fn read_special(file: &File, names: &Names, vocabulary: &Vocabulary, config: &Config, place: &str) -> Result<Special> {
    let known = |id: &u32| vocabulary.piece(*id).is_ok_and(|(kind, _)| kind != Kind::Absent);
    let id = |name: &Option<String>| name.as_ref().and_then(|name| names.ids.get(name).copied());
    let (mut prefix, mut suffix) = read_affixes(file.post_processor.as_ref(), place)?;
    if let Some(id) = prefix.iter().chain(&suffix).find(|id| !known(id)) {
        return Err(Error::format("post-processor", "an id of the vocabulary", id, place));
    }
    let eos = id(&config.eos);
    let bos = id(&config.bos).or(config.bos_id.filter(known)).or(prefix.first().copied());
    set_affix(&mut prefix, bos, config.add_bos, 0);
    let end = suffix.len();
    set_affix(&mut suffix, eos, config.add_eos, end);
    let mut ends: Vec<u32> = config.ends.iter().copied().filter(known).collect();
    ends.extend(eos);
    let control = |name: &str| file.added_tokens.iter().any(|token| token.special && token.content == name);
    for name in end_names().filter(|name| control(name) && is_end_name(name, control)) {
        ends.extend(names.ids.get(name));
    }
    Ok(Special { bos, prefix, suffix, ends })
}

/// Does what the configuration says about one added id, where it says anything.
fn set_affix(affix: &mut Vec<u32>, id: Option<u32>, add: Option<bool>, at: usize) {
    let (Some(id), Some(add)) = (id, add) else { return };
    if !add {
        affix.retain(|&other| other != id);
    } else if !affix.contains(&id) {
        affix.insert(at, id);
    }
}
