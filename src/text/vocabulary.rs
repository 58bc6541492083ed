//! The vocabulary seen from the ids: which bytes of text each id stands for.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::error::{Error, Result};
use crate::limits::VOCAB_MAX;

/// What an id stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing: a hole in the numbering.
    Absent,
    /// Text, perhaps with a leading space.
    Text,
    /// One byte that had no piece of its own.
    Byte,
    /// A control token: no text.
    Control,
}

/// Bytes and kind of each id.
#[derive(Debug, Default)]
pub(super) struct Vocabulary {
    bytes: Vec<u8>,
    /// End of each id's bytes in `bytes`; they start where the ones before end.
    ends: Vec<usize>,
    kinds: Vec<Kind>,
    /// Encoding puts a space before the text, so that decoding drops one.
    space_prefix: bool,
}

impl Vocabulary {
    /// One without ids.
    pub(super) fn new(space_prefix: bool) -> Self {
        Self { space_prefix, ..Self::default() }
    }

    /// Appends the next id.
    ///
    /// # Errors
    /// Past [`VOCAB_MAX`] ids.
    pub(super) fn push(&mut self, kind: Kind, bytes: &[u8]) -> Result<()> {
        if self.kinds.len() >= VOCAB_MAX as usize {
            return Err(Error::Tokenizer(format!("a vocabulary of more than {VOCAB_MAX} tokens")));
        }
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
        self.kinds.push(kind);
        Ok(())
    }

    /// Encoding puts a space before the text, so that decoding drops one.
    pub(super) fn space_prefix(&self) -> bool {
        self.space_prefix
    }

    /// Ids there are, holes included.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.kinds.len()).expect("at most VOCAB_MAX")
    }

    /// Kind and bytes of an id.
    ///
    /// # Errors
    /// When it is past the vocabulary.
    pub(super) fn piece(&self, id: u32) -> Result<(Kind, &[u8])> {
        let index = id as usize;
        let kind = *self
            .kinds
            .get(index)
            .ok_or_else(|| Error::Tokenizer(format!("expected an id below {}, got {id}", self.kinds.len())))?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Ok((kind, &self.bytes[start..self.ends[index]]))
    }
}

/// How the texts of tokens spell bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    /// Each character is one byte, by GPT-2's table.
    ByteLevel,
    /// `▁` is a space; `<0xNN>` is a byte where `bytes` says so.
    Marked {
        /// Whether `<0xNN>` is a byte.
        bytes: bool,
    },
}

impl Spelling {
    /// Kind and bytes of an ordinary token.
    pub(super) fn piece(self, text: &str) -> (Kind, Vec<u8>) {
        match self {
            Self::ByteLevel => (Kind::Text, bytes_from_spelled(text)),
            Self::Marked { bytes: true } if byte_from_token(text).is_some() => {
                (Kind::Byte, byte_from_token(text).into_iter().collect())
            }
            Self::Marked { .. } => (Kind::Text, text.replace('▁', " ").into_bytes()),
        }
    }
}

/// The byte of `<0xNN>`: exactly two hexadecimal digits.
pub(super) fn byte_from_token(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let hex = digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    hex.then(|| u8::from_str_radix(digits, 16).ok())?
}

/// Bytes that a byte-level token spells; text that is not so spelled stands for itself.
fn bytes_from_spelled(text: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = text.chars().map(|c| BYTE_FROM_CHAR.get(&c).copied()).collect();
    bytes.unwrap_or_else(|| text.as_bytes().to_vec())
}

/// GPT-2's table: printable Latin-1 stands for itself, the other 68 bytes are the characters from U+0100 on, in order.
static BYTE_FROM_CHAR: LazyLock<HashMap<char, u8>> = LazyLock::new(|| {
    let mut moved = 0x100_u32;
    let mut table = HashMap::with_capacity(256);
    for byte in 0..=255_u8 {
        let printable = matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
        let code = if printable { u32::from(byte) } else { moved };
        moved += u32::from(!printable);
        table.extend(char::from_u32(code).map(|c| (c, byte)));
    }
    table
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_tokens_are_two_hex_digits_and_nothing_else() {
        for (text, byte) in [("<0x00>", Some(0)), ("<0xFf>", Some(255)), ("<0x-1>", None), ("<0x+1>", None)] {
            assert_eq!(byte_from_token(text), byte, "{text}");
        }
        for text in ["<0x>", "<0x1>", "<0x123>", "<0xGG>", "<0xé>", "0x41", "<0x41"] {
            assert_eq!(byte_from_token(text), None, "{text}");
        }
    }

    #[test]
    fn the_byte_level_table_holds_every_byte_once() {
        let mut bytes: Vec<u8> = BYTE_FROM_CHAR.values().copied().collect();
        bytes.sort_unstable();
        assert!(bytes.into_iter().eq(0..=255));
        assert_eq!(bytes_from_spelled("Ġa"), b" a");
        assert_eq!(bytes_from_spelled("Ċ"), b"\n");
        assert_eq!(bytes_from_spelled("日"), "日".as_bytes(), "not spelled by the table");
    }
}
