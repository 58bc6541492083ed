//! SentencePiece's BPE: of all neighbours whose text together is a piece, the pair of the highest score merges, the
//! leftmost of equals, until none is left.
//!
//! Not the crate's BPE with merges derived from scores: two splits of one piece have one score, but would get two ranks, so
//! that runs of one character could come out otherwise; and deriving them costs a second for 262,144 pieces.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use crate::error::{Error, Result};

/// Pieces with their scores, and what stands for text that has no piece.
#[derive(Debug)]
pub(super) struct Spm {
    /// Pieces that merging may reach: no control, unknown, unused or byte pieces.
    pub(super) pieces: HashMap<String, Piece>,
    /// Ids of the byte pieces, by byte.
    pub(super) bytes: [Option<u32>; 256],
    /// What stands for a run of characters that neither pieces nor bytes can spell.
    pub(super) unknown: Option<u32>,
}

/// A piece that merging may reach.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub(super) id: u32,
    /// A finite number; higher merges first.
    pub(super) score: f32,
}

/// A span of the text in a list linked both ways; an absorbed one has length 0.
struct Symbol {
    start: usize,
    len: usize,
    prev: Option<usize>,
    next: Option<usize>,
}

/// A merge that was possible when it was queued.
struct Candidate {
    score: f32,
    left: usize,
    right: usize,
    /// Length of both together; if it is another now, one of them has merged since.
    len: usize,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}
impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Candidate {}

impl Spm {
    /// Appends the ids of a text whose spaces are already `▁`.
    ///
    /// # Errors
    /// When a character has neither piece nor bytes, and there is no unknown token.
    pub(super) fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        let mut symbols = symbols_from(text);
        let mut queue = BinaryHeap::new();
        for left in 0..symbols.len() {
            self.offer(text, &symbols, left, &mut queue);
        }
        while let Some(Candidate { left, right, len, .. }) = queue.pop() {
            let stale = symbols[left].len == 0 || symbols[right].len == 0;
            if stale || symbols[left].len + symbols[right].len != len {
                continue;
            }
            let after = symbols[right].next;
            symbols[right].len = 0;
            symbols[left].len = len;
            symbols[left].next = after;
            if let Some(after) = after {
                symbols[after].prev = Some(left);
            }
            self.offer(text, &symbols, left, &mut queue);
            if let Some(before) = symbols[left].prev {
                self.offer(text, &symbols, before, &mut queue);
            }
        }
        let spans = symbols.iter().filter(|s| s.len > 0).map(|s| &text[s.start..s.start + s.len]);
        self.spell(spans, ids)
    }

    /// Queues the merge of a symbol with the next one, where their text is a piece.
    fn offer(&self, text: &str, symbols: &[Symbol], left: usize, queue: &mut BinaryHeap<Candidate>) {
        let Some(right) = symbols[left].next else { return };
        let len = symbols[left].len + symbols[right].len;
        let start = symbols[left].start;
        if let Some(piece) = self.pieces.get(&text[start..start + len]) {
            queue.push(Candidate { score: piece.score, left, right, len });
        }
    }

    /// Ids of the merged spans; one without a piece is a single character: its bytes, or part of one unknown token.
    fn spell<'a>(&self, spans: impl Iterator<Item = &'a str>, ids: &mut Vec<u32>) -> Result<()> {
        let mut after_unknown = false;
        for span in spans {
            if let Some(piece) = self.pieces.get(span) {
                ids.push(piece.id);
                after_unknown = false;
                continue;
            }
            let bytes: Option<Vec<u32>> = span.bytes().map(|b| self.bytes[usize::from(b)]).collect();
            if let Some(bytes) = bytes {
                ids.extend(bytes);
                after_unknown = false;
                continue;
            }
            let unknown = self.unknown.ok_or_else(|| {
                Error::Tokenizer(format!("the vocabulary has no token for {span:?}, no bytes and no unknown token"))
            })?;
            if !after_unknown {
                ids.push(unknown);
            }
            after_unknown = true;
        }
        Ok(())
    }
}

fn symbols_from(text: &str) -> Vec<Symbol> {
    let mut symbols: Vec<Symbol> = Vec::with_capacity(text.len());
    for (start, c) in text.char_indices() {
        let index = symbols.len();
        let prev = index.checked_sub(1);
        if let Some(prev) = prev {
            symbols[prev].next = Some(index);
        }
        symbols.push(Symbol { start, len: c.len_utf8(), prev, next: None });
    }
    symbols
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spm(pieces: &[(&str, f32)]) -> Spm {
        let pieces =
            pieces.iter().zip(10..).map(|(&(text, score), id)| (text.to_owned(), Piece { id, score })).collect();
        Spm { pieces, bytes: [None; 256], unknown: Some(0) }
    }

    fn check(spm: &Spm, text: &str, expected: &[u32]) {
        let mut ids = Vec::new();
        spm.encode(text, &mut ids).expect("encodes");
        assert_eq!(ids, expected, "{text}");
    }

    #[test]
    fn higher_score_wins_and_leftmost_of_equals() {
        let spm = spm(&[("a", -9.0), ("b", -9.0), ("ab", -2.0), ("ba", -1.0), ("aa", -3.0), ("aaa", -4.0)]);
        check(&spm, "aba", &[10, 13]);
        check(&spm, "abab", &[10, 13, 11]);
        check(&spm, "aaaa", &[14, 14]);
        check(&spm, "aaaaa", &[14, 15]);
        check(&spm, "", &[]);
    }

    #[test]
    fn a_run_of_unknown_characters_is_one_token() {
        let spm = spm(&[("a", 0.0)]);
        check(&spm, "aéüa", &[10, 0, 10]);
    }

    #[test]
    fn bytes_stand_for_what_has_no_piece() {
        let mut spm = spm(&[("a", 0.0)]);
        for (id, byte) in (100..).zip(0..=255_u8) {
            spm.bytes[usize::from(byte)] = Some(id);
        }
        check(&spm, "aé", &[10, 100 + 0xC3, 100 + 0xA9]);
    }

    #[test]
    fn without_unknown_and_bytes_it_is_an_error() {
        let mut spm = spm(&[("a", 0.0)]);
        spm.unknown = None;
        assert!(spm.encode("aé", &mut Vec::new()).is_err());
    }
}
