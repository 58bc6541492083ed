//! Which rows of a step yield tokens. The trace says positions only; this counts along.
//!
//! ```text
//! prompt 0 .. p   produced p .. p + k       a prefill row that reaches p + k, a decode row and a verify row yield;
//!                                           after a preemption prefill covers the produced tokens too
//! ```

use crate::engine::event::{RowKind, StepRow};

/// How far one request has come.
#[derive(Debug, Clone, Copy)]
pub struct Tokens {
    prompt: u64,
    produced: u64,
}

impl Tokens {
    /// A request that has just come.
    #[must_use]
    pub fn new(prompt_tokens: u32) -> Self {
        Self { prompt: u64::from(prompt_tokens), produced: 0 }
    }

    /// Tokens of the answer so far.
    #[must_use]
    pub fn produced(&self) -> u64 {
        self.produced
    }

    /// Takes a row of the request; answers how many tokens came of it.
    pub fn take(&mut self, row: &StepRow) -> u64 {
        let yields = match row.kind {
            RowKind::Prefill => u64::from(u64::from(row.from) + u64::from(row.tokens) >= self.prompt + self.produced),
            RowKind::Decode => 1,
            RowKind::Verify => 1 + u64::from(row.accepted.unwrap_or(0)),
        };
        self.produced += yields;
        yields
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_chunk_yields_and_so_does_the_last_one_after_a_preemption() {
        let mut tokens = Tokens::new(20);
        let mut check = |kind, from, count, accepted, expected| {
            let row = StepRow { id: 0, kind, from, tokens: count, accepted };
            assert_eq!(tokens.take(&row), expected, "{row:?}");
        };
        check(RowKind::Prefill, 0, 16, None, 0);
        check(RowKind::Prefill, 16, 4, None, 1);
        check(RowKind::Decode, 20, 1, None, 1);
        check(RowKind::Verify, 21, 4, Some(2), 3);
        check(RowKind::Prefill, 16, 4, None, 0); // preempted: 20 + 5 tokens to prefill
        check(RowKind::Prefill, 20, 5, None, 1);
        check(RowKind::Verify, 25, 4, None, 1);
        assert_eq!(tokens.produced(), 7);
    }
}
