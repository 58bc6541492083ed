//! How few tokens a text can become: told from its length alone, so that what cannot fit is refused before it is encoded.

use serde_json::Value;
use tokenizers::AddedToken;

use super::pipeline::{Merger, Stages};
use super::vocabulary::{Kind, Vocabulary};

/// Most bytes that Unicode's normal forms make into one: mathematical letters of four bytes become ASCII.
const NORMAL_FORM_BYTES: usize = 4;

/// Bytes of `▁`, which may stand for a space of one byte.
const MARK_EXTRA_BYTES: usize = '▁'.len_utf8() - 1;

/// What bounds the bytes of text behind one token.
#[derive(Debug)]
pub(super) struct Fewest {
    longest: usize,
    /// Whether each byte of a text ends in some token.
    is_bounded: bool,
    /// Whether tokens may swallow the spaces around them.
    swallows: bool,
    has_normalizer: bool,
}

impl Fewest {
    /// Reads the tables once.
    pub(super) fn new(stages: &Stages, added: &[(u32, AddedToken)], vocabulary: &Vocabulary) -> Self {
        let pieces = (0..vocabulary.len()).filter_map(|id| vocabulary.piece(id).ok());
        let of_pieces = pieces.clone().map(|(_, bytes)| bytes.len()).max().unwrap_or(0);
        let of_added = added.iter().map(|(_, token)| token.content.len()).max().unwrap_or(0);
        let byte_pieces = pieces.filter(|(kind, _)| *kind == Kind::Byte).count();
        Self {
            // An unknown character is a token too, of at most four bytes.
            longest: of_pieces.max(of_added).max(4),
            is_bounded: keeps_all(&stages.normalizer)
                && keeps_all(&stages.pre_tokenizer)
                && !fuses_unknown(&stages.merger, byte_pieces),
            swallows: added.iter().any(|(_, token)| token.lstrip || token.rstrip),
            has_normalizer: stages.normalizer.is_some(),
        }
    }

    /// Most bytes that one token stands for.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// Tokens that `text` needs at least; 0 where nothing can be said.
    pub(super) fn tokens(&self, text: &str) -> u64 {
        if !self.is_bounded {
            return 0;
        }
        let marks = text.matches('▁').count() * MARK_EXTRA_BYTES;
        let blanks =
            if self.swallows { text.chars().filter(|c| c.is_whitespace()).map(char::len_utf8).sum() } else { 0 };
        let shrink = if self.has_normalizer && !text.is_ascii() { NORMAL_FORM_BYTES } else { 1 };
        (text.len() - marks - blanks).div_ceil(self.longest.saturating_mul(shrink)) as u64
    }
}

/// Whether a stage is known to leave no character out.
fn keeps_all(stage: &impl serde::Serialize) -> bool {
    serde_json::to_value(stage).is_ok_and(|stage| is_known(&stage))
}

fn is_known(stage: &Value) -> bool {
    match stage {
        Value::Array(stages) => stages.iter().all(is_known),
        Value::Object(fields) => {
            let text = |name: &str| fields.get(name).and_then(Value::as_str);
            let known = match text("type") {
                None => true,
                Some("Sequence" | "ByteLevel" | "Metaspace" | "Digits" | "Prepend" | "Lowercase") => true,
                Some("NFC" | "NFD" | "NFKC" | "NFKD") => true,
                Some("Split") => text("behavior").is_some_and(|behavior| behavior != "Removed"),
                Some("Replace") => {
                    let old = fields.get("pattern").and_then(|pattern| pattern.get("String")).and_then(Value::as_str);
                    old.zip(text("content")).is_some_and(|(old, new)| old.len() <= new.len())
                }
                Some(_) => false,
            };
            known && fields.values().all(is_known)
        }
        _ => true,
    }
}

/// Whether a run of unknown characters, however long, can be one token.
fn fuses_unknown(merger: &Merger, byte_pieces: usize) -> bool {
    match merger {
        Merger::Spm(spm) => spm.unknown.is_some() && spm.bytes.iter().any(Option::is_none),
        Merger::Bpe(bpe) => bpe.fuse_unk && bpe.unk_token.is_some() && !(bpe.byte_fallback && byte_pieces >= 256),
        Merger::Unigram(_) => byte_pieces < 256,
    }
}

#[cfg(test)]
mod tests {
    use super::{Fewest, is_known};
    use serde_json::json;

    #[test]
    fn stages_that_may_drop_text_are_not_bounded() {
        assert!(is_known(&json!(null)));
        assert!(is_known(&json!({"type": "Sequence", "normalizers": [{"type": "NFC"}]})));
        assert!(!is_known(&json!({"type": "Sequence", "normalizers": [{"type": "Strip"}]})));
        assert!(!is_known(&json!({"type": "Split", "behavior": "Removed"})));
        assert!(is_known(&json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})));
        assert!(!is_known(&json!({"type": "Replace", "pattern": {"Regex": " +"}, "content": " "})));
    }

    #[test]
    fn the_bound_is_the_length_over_the_longest_token() {
        let mut fewest = Fewest { longest: 4, is_bounded: true, swallows: false, has_normalizer: true };
        assert_eq!(fewest.tokens("123456789"), 3);
        assert_eq!(fewest.tokens("▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁"), 2);
        assert_eq!(fewest.tokens(""), 0);
        fewest.swallows = true;
        assert_eq!(fewest.tokens("        12345"), 2);
        fewest.is_bounded = false;
        assert_eq!(fewest.tokens("123456789"), 0);
    }
}
