//! What is asked of the engine, and what comes back: plain data.

use std::collections::BTreeSet;

use super::sampling::SamplingParams;

/// Names a request for its whole life.
pub use crate::sched::RequestId;

/// A prompt and how its answer is to be made.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Ids of the prompt, at least one.
    pub prompt: Vec<u32>,
    /// Most tokens of the answer; `None` for the room left in the context, which also bounds it.
    pub max_tokens: Option<u32>,
    /// How tokens are chosen.
    pub sampling: SamplingParams,
    /// Tokens that end the answer; none with `ignore_eos`.
    pub stop_ids: BTreeSet<u32>,
    /// None of `stop_ids` is chosen before the answer has as many tokens.
    pub min_tokens: u32,
    /// Lower goes first.
    pub priority: i32,
    /// Whose share of the device it takes.
    pub tenant: u64,
    /// Requests share cached pages only with those of the same salt.
    pub cache_salt: Option<String>,
    /// Which of several answers to the same prompt; another number draws other tokens.
    pub choice: u32,
    /// The mean of the prompt's last hidden states is wanted instead of tokens: [`Output::Pooled`] comes before the end.
    pub pool: bool,
    /// When it arrived, by the engine's clock, if that was before it is handed over.
    pub arrived_nanos: Option<u64>,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// An end token, or the caller's [`super::Engine::stop`].
    Stop,
    /// `max_tokens`, or the context.
    Length,
    /// [`super::Engine::cancel`].
    Cancelled,
    /// The model yielded no finite logits.
    NotFinite,
}

impl FinishReason {
    /// As in the trace and OpenAI's `finish_reason`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Cancelled => "cancelled",
            Self::NotFinite => "error",
        }
    }
}

/// One token of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    /// Its id; the end token is one too.
    pub id: u32,
    /// Natural log of its probability by the model's own logits, where it was asked for.
    pub logprob: Option<f32>,
    /// The likeliest ids with theirs, as many as asked for.
    pub top: Vec<(u32, f32)>,
    /// When its step was seen to be done, by the engine's clock.
    pub nanos: u64,
}

/// What happened to a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// It has its slot, for the first time or again.
    Admitted {
        /// Which.
        id: RequestId,
        /// Leading tokens whose K and V were cached.
        cached_tokens: u32,
        /// When, by the engine's clock.
        nanos: u64,
    },
    /// A chunk of its prompt is computed, not the last one.
    Prefilled {
        /// Which.
        id: RequestId,
        /// Tokens of the prompt that are computed, cached ones included.
        tokens: u32,
    },
    /// Its next token.
    Token {
        /// Which.
        id: RequestId,
        /// The token.
        token: Token,
    },
    /// The mean of its prompt's last hidden states, by request.
    Pooled {
        /// Which.
        id: RequestId,
        /// As wide as the model's residual stream.
        mean: Vec<f32>,
    },
    /// Its end; nothing follows.
    Finished {
        /// Which.
        id: RequestId,
        /// Why.
        reason: FinishReason,
    },
}
