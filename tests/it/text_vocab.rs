//! Vocabularies for the tests of text: the packed toy model's, and small SentencePiece ones with the ids that the
//! `sentencepiece` package gives (tests/data/text/make_reference.py made them).

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use twostroke::format::gguf::{Metadata, Value};
use twostroke::format::model_files::{Description, Folder, ModelFiles};
use twostroke::text::tokenizer::Tokenizer;

/// A text with its ids by the reference.
#[derive(Deserialize)]
pub(crate) struct Case {
    pub(crate) text: String,
    pub(crate) ids: Vec<u32>,
    /// The reference's text of the ids.
    #[serde(default)]
    pub(crate) decoded: Option<String>,
}

/// A small SentencePiece vocabulary with its cases.
#[derive(Deserialize)]
pub(crate) struct SpmFile {
    pub(crate) add_space_prefix: bool,
    pub(crate) pieces: Vec<String>,
    pub(crate) scores: Vec<f32>,
    pub(crate) types: Vec<i64>,
    pub(crate) cases: Vec<Case>,
}

pub(crate) fn data<T: serde::de::DeserializeOwned>(name: &str) -> T {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/text").join(name);
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Metadata of the packed toy model: SmolLM2's tokenizer and template.
pub(crate) fn smollm2_metadata() -> Metadata {
    let bytes: &'static [u8] = include_bytes!("../../assets/smollm2-draft-7m.q4_1.gguf");
    match ModelFiles::from_gguf_bytes("toy", bytes).expect("the packed model is whole").description {
        Description::Gguf(metadata) => metadata,
        Description::Folder(_) => unreachable!("a GGUF"),
    }
}

pub(crate) fn smollm2() -> Tokenizer {
    Tokenizer::new(&Description::Gguf(smollm2_metadata()), None).expect("the toy's tokenizer")
}

impl SpmFile {
    pub(crate) fn metadata(&self) -> Metadata {
        metadata([
            ("model", Value::Str("llama".into())),
            ("tokens", Value::Strs(self.pieces.clone())),
            ("scores", Value::Floats(self.scores.clone())),
            ("token_type", Value::Ints(self.types.clone())),
            ("bos_token_id", Value::Int(1)),
            ("eos_token_id", Value::Int(2)),
            ("unknown_token_id", Value::Int(0)),
            ("add_space_prefix", Value::Bool(self.add_space_prefix)),
        ])
    }

    /// The same vocabulary as the model of a tokenizer.json: a merge for each way to make a piece, by score.
    pub(crate) fn json(&self) -> serde_json::Value {
        let of_kind = |kind: i64| self.pieces.iter().zip(&self.types).filter(move |(_, t)| **t == kind).map(|(p, _)| p);
        let normal: std::collections::HashSet<&str> = of_kind(1).map(String::as_str).collect();
        let mut merges: Vec<(f32, usize, &str, &str)> = Vec::new();
        for (piece, score) in self.pieces.iter().zip(&self.scores).filter(|(piece, _)| normal.contains(piece.as_str()))
        {
            for (at, _) in piece.char_indices().skip(1) {
                let (left, right) = piece.split_at(at);
                if normal.contains(left) && normal.contains(right) {
                    merges.push((*score, left.len(), left, right));
                }
            }
        }
        merges.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
        let merges: Vec<_> = merges.into_iter().map(|(_, _, left, right)| [left, right]).collect();
        let vocab: serde_json::Map<String, serde_json::Value> =
            self.pieces.iter().zip(0..).map(|(piece, id)| (piece.clone(), serde_json::Value::from(id))).collect();
        let added: Vec<_> = ["<unk>", "<s>", "</s>", "<|turn|>"]
            .into_iter()
            .zip(0..)
            .map(|(content, id)| serde_json::json!({"id": id, "content": content, "special": true}))
            .collect();
        serde_json::json!({"added_tokens": added, "model": {"type": "BPE", "vocab": vocab, "merges": merges,
            "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true}})
    }

    pub(crate) fn tokenizer(&self) -> Tokenizer {
        Tokenizer::new(&Description::Gguf(self.metadata()), None).expect("a SentencePiece vocabulary")
    }
}

/// Metadata with these pairs under `tokenizer.ggml.`.
pub(crate) fn metadata<const N: usize>(pairs: [(&str, Value); N]) -> Metadata {
    let pairs: BTreeMap<String, Value> =
        pairs.into_iter().map(|(key, value)| (format!("tokenizer.ggml.{key}"), value)).collect();
    Metadata { file: "test.gguf".into(), pairs }
}

/// A folder that holds this tokenizer.json and nothing else.
pub(crate) fn folder(tokenizer: &serde_json::Value) -> Folder {
    Folder {
        path: "test-folder".into(),
        config: serde_json::json!({}),
        generation_config: serde_json::Value::Null,
        tokenizer_config: serde_json::Value::Null,
        tokenizer_json: Some(tokenizer.to_string().into_bytes()),
        chat_template: None,
    }
}

/// The tokenizer.json that SmolLM2 is published with, from the same vocabulary in the packed toy.
pub(crate) fn smollm2_json() -> serde_json::Value {
    let metadata = smollm2_metadata();
    let tokens = metadata.strs("tokenizer.ggml.tokens").expect("texts").expect("tokens");
    let vocab: serde_json::Map<String, serde_json::Value> =
        tokens.iter().zip(0..).map(|(text, id)| (text.clone(), serde_json::Value::from(id))).collect();
    let added: Vec<_> = tokens[..17]
        .iter()
        .zip(0..)
        .map(|(text, id)| {
            serde_json::json!({"id": id, "content": text, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true})
        })
        .collect();
    serde_json::json!({
        "version": "1.0", "truncation": {"max_length": 3, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
        "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": true},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}]},
        "post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [], "special_tokens": {}},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "vocab": vocab,
            "merges": metadata.strs("tokenizer.ggml.merges").expect("texts").expect("merges")}
    })
}
