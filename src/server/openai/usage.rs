//! What an answer took: tokens as OpenAI counts them, times as llama-server tells them.

use serde::Serialize;

use super::answering::Answering;
use crate::clock::millis_from_nanos;

/// `usage`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
    prompt_tokens_details: PromptDetails,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct PromptDetails {
    cached_tokens: u64,
}

impl Usage {
    /// So far.
    pub(super) fn of(answering: &Answering) -> Self {
        let (prompt_tokens, completion_tokens) = (answering.prompt_tokens(), answering.completion_tokens());
        Self {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            prompt_tokens_details: PromptDetails { cached_tokens: answering.cached_tokens() },
        }
    }
}

/// `timings`, of the first choice: prefill from its admission to its first token, decode from there to its last.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Timings {
    cache_n: u32,
    prompt_n: u32,
    prompt_ms: f64,
    prompt_per_token_ms: f64,
    prompt_per_second: f64,
    predicted_n: u32,
    predicted_ms: f64,
    predicted_per_token_ms: f64,
    predicted_per_second: f64,
}

impl Timings {
    /// `None` before the first token.
    pub(super) fn of(answering: &Answering) -> Option<Self> {
        let choice = answering.choice(0);
        let (first, last) = (choice.tokens.first()?.nanos, choice.tokens.last()?.nanos);
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let cache_n = choice.cached_tokens.unwrap_or(0);
        let prompt_n = count(answering.job().prompt(0).len()).saturating_sub(cache_n);
        let predicted_n = count(choice.tokens.len());
        let (prompt_ms, predicted_ms) =
            (millis_from_nanos(first.saturating_sub(choice.admitted_nanos)), millis_from_nanos(last - first));
        let each = |ms: f64, n: u32| if n > 0 { ms / f64::from(n) } else { 0.0 };
        let rate = |ms: f64, n: u32| if ms > 0.0 { f64::from(n) * 1e3 / ms } else { 0.0 };
        // The first token is prefill's.
        let decoded = predicted_n - 1;
        Some(Self {
            cache_n,
            prompt_n,
            prompt_ms,
            prompt_per_token_ms: each(prompt_ms, prompt_n),
            prompt_per_second: rate(prompt_ms, prompt_n),
            predicted_n,
            predicted_ms,
            predicted_per_token_ms: each(predicted_ms, decoded),
            predicted_per_second: rate(predicted_ms, decoded),
        })
    }
}
