//! Two small vocabularies that can spell every text: byte-level BPE, and SentencePiece with byte fallback.

use serde_json::{Map, Value, json};

use super::gguf::{GgufWriter, Meta};

/// Tokens in either vocabulary, unused ones included.
pub(crate) const VOCAB: usize = 320;

/// ChatML, as SmolLM2 and Qwen write it.
pub(crate) const CHATML: &str = "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

const MERGES: [&str; 12] = ["Ġ t", "h e", "Ġt he", "i n", "Ġ a", "e r", "o n", "r e", "Ġ s", "n d", "Ġa nd", "in g"];
const PIECES: [(&str, f32); 12] = [
    ("▁t", -1.0),
    ("he", -2.0),
    ("▁the", -3.0),
    ("in", -4.0),
    ("▁a", -5.0),
    ("er", -6.0),
    ("on", -7.0),
    ("re", -8.0),
    ("▁s", -9.0),
    ("nd", -10.0),
    ("▁and", -11.0),
    ("ing", -12.0),
];

/// Which vocabulary a model has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vocab {
    /// `<|endoftext|>` 0, `<|im_start|>` 1, `<|im_end|>` 2, 256 bytes from 3 on, merges from 259 on.
    Bpe,
    /// `<unk>` 0, `<s>` 1, `</s>` 2, `<0x00>` from 3 on, letters and `▁` from 259 on, then pieces.
    Spm,
}

/// Types of tokens in a GGUF.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

impl Vocab {
    /// Text, type and score of each token.
    fn tokens(self) -> Vec<(String, i32, f32)> {
        let mut out: Vec<(String, i32, f32)> = Vec::with_capacity(VOCAB);
        match self {
            Self::Bpe => {
                for special in ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] {
                    out.push((special.to_owned(), CONTROL, 0.0));
                }
                out.extend((0..=255).map(|byte| (byte_char(byte).to_string(), NORMAL, 0.0)));
                out.extend(MERGES.iter().map(|m| (m.replace(' ', ""), NORMAL, 0.0)));
            }
            Self::Spm => {
                out.push(("<unk>".to_owned(), UNKNOWN, 0.0));
                out.push(("<s>".to_owned(), CONTROL, 0.0));
                out.push(("</s>".to_owned(), CONTROL, 0.0));
                out.extend((0..=255).map(|byte| (format!("<0x{byte:02X}>"), BYTE, 0.0)));
                out.push(("▁".to_owned(), NORMAL, -100.0));
                out.extend(('a'..='z').map(|c| (c.to_string(), NORMAL, -101.0)));
                out.extend(PIECES.iter().map(|&(piece, score)| (piece.to_owned(), NORMAL, score)));
            }
        }
        for unused in out.len()..VOCAB {
            out.push((format!("<unused{unused}>"), UNUSED, 0.0));
        }
        out
    }

    /// Writes the tokenizer's metadata.
    pub(crate) fn describe(self, gguf: &mut GgufWriter) {
        let tokens = self.tokens();
        let spm = self == Self::Spm;
        gguf.set("tokenizer.ggml.model", Meta::str(if spm { "llama" } else { "gpt2" }));
        gguf.set("tokenizer.ggml.pre", Meta::str(if spm { "default" } else { "gpt-2" }));
        gguf.set("tokenizer.ggml.tokens", Meta::Strs(tokens.iter().map(|t| t.0.clone()).collect()));
        gguf.set("tokenizer.ggml.token_type", Meta::I32s(tokens.iter().map(|t| t.1).collect()));
        if spm {
            gguf.set("tokenizer.ggml.scores", Meta::F32s(tokens.iter().map(|t| t.2).collect()));
            gguf.set("tokenizer.ggml.unknown_token_id", Meta::U32(0));
        } else {
            gguf.set("tokenizer.ggml.merges", Meta::Strs(MERGES.iter().map(|&m| m.to_owned()).collect()));
        }
        gguf.set("tokenizer.ggml.bos_token_id", Meta::U32(1));
        gguf.set("tokenizer.ggml.eos_token_id", Meta::U32(2));
        gguf.set("tokenizer.ggml.add_bos_token", Meta::Bool(spm));
        gguf.set("tokenizer.ggml.add_space_prefix", Meta::Bool(spm));
        gguf.set("tokenizer.chat_template", Meta::str(CHATML));
    }

    /// `tokenizer.json` of the same vocabulary.
    pub(crate) fn tokenizer_json(self) -> Value {
        assert_eq!(self, Self::Bpe, "folders are written with the byte-level vocabulary");
        let tokens = self.tokens();
        let vocab: Map<String, Value> = tokens.iter().enumerate().map(|(id, t)| (t.0.clone(), json!(id))).collect();
        let special = |id: usize| {
            json!({"id": id, "content": tokens[id].0, "single_word": false, "lstrip": false, "rstrip": false,
                   "normalized": false, "special": true})
        };
        let added: Vec<Value> = (0..tokens.len()).filter(|&id| tokens[id].1 == CONTROL).map(special).collect();
        json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
            "post_processor": null,
            "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
            "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                      "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                      "vocab": vocab, "merges": MERGES},
        })
    }

    /// `tokenizer_config.json` of the same vocabulary.
    pub(crate) fn tokenizer_config(self) -> Value {
        json!({"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": false, "bos_token": "<|im_start|>",
               "eos_token": "<|im_end|>", "chat_template": CHATML})
    }
}

/// The printable character by which byte-level BPE writes a byte: itself, or the next free one from U+0100 on.
fn byte_char(byte: u8) -> char {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&b| !printable(b)).count();
    char::from_u32(0x100 + u32::try_from(before).expect("below 256")).expect("a letter")
}

#[test]
fn both_vocabularies_have_distinct_tokens() {
    for vocab in [Vocab::Bpe, Vocab::Spm] {
        let mut texts: Vec<String> = vocab.tokens().into_iter().map(|t| t.0).collect();
        assert_eq!(texts.len(), VOCAB);
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), VOCAB, "{vocab:?}");
    }
    assert_eq!(byte_char(b' '), 'Ġ');
    assert_eq!(byte_char(b'\n'), 'Ċ');
}
