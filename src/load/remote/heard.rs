//! What came of one request, chunk by chunk, and what it means once it is over.

use serde_json::Value;

use super::Count;
use crate::limits::CONTEXT_MAX;

/// How the tokens of an answer were counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counted {
    /// The server told them.
    Usage,
    /// The answer's text was tokenised again.
    Tokenizer,
    /// One a chunk: neither was to be had.
    Chunks,
}

/// What came of a request.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Heard {
    chunks: Vec<Chunk>,
    text: String,
    usage: Option<Usage>,
    /// Most tokens that were asked for.
    tokens_max: Option<u32>,
    /// A choice said why it ended.
    is_finished: bool,
    /// The stream's last word came.
    is_over: bool,
    /// Why it failed.
    failure: Option<String>,
    /// When it ended.
    pub(super) end_nanos: u64,
}

/// A chunk with text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Chunk {
    nanos: u64,
    bytes: u64,
    /// The answer's tokens so far, where the chunk tells them.
    told: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Usage {
    prompt_tokens: Option<u32>,
    completion_tokens: Option<u32>,
    cached_tokens: u32,
}

/// An answer that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// When tokens came, and how many.
    pub chunks: Vec<(u64, u32)>,
    /// Tokens of the prompt, where the server tells them.
    pub prompt_tokens: Option<u32>,
    /// Of these, tokens that were in its cache.
    pub cached_tokens: u32,
    /// The text.
    pub text: String,
    /// How tokens were counted.
    pub counted: Counted,
}

impl Heard {
    /// Of a request that failed.
    #[must_use]
    pub fn failed(why: impl Into<String>, nanos: u64) -> Self {
        Self { failure: Some(why.into()), end_nanos: nanos, ..Self::default() }
    }

    /// Of a request that asked for at most `tokens_max` tokens: a server that tells of more is not believed.
    #[must_use]
    pub fn asking(tokens_max: u32) -> Self {
        Self { tokens_max: Some(tokens_max), ..Self::default() }
    }

    /// Takes an event's data that came at `nanos`.
    ///
    /// # Errors
    /// It is no chunk, tells of an error, or of more tokens than were asked for: the answer ends here.
    pub fn event(&mut self, data: &str, nanos: u64) -> Result<(), String> {
        if data.trim() == "[DONE]" {
            self.is_over = true;
            return Ok(());
        }
        let chunk: Value = serde_json::from_str(data).map_err(|e| format!("an event that is no JSON: {e}"))?;
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            return Err(message(error).unwrap_or("an error without a message").to_owned());
        }
        let usage = chunk.get("usage").and_then(Usage::of);
        if let (Some(most), Some(told)) = (self.tokens_max, usage.and_then(|usage| usage.completion_tokens))
            && told > most
        {
            return Err(format!("expected at most {most} tokens, got a usage of {told}"));
        }
        self.usage = usage.or(self.usage);
        let choice = chunk.pointer("/choices/0").unwrap_or(&Value::Null);
        self.is_finished |= choice.get("finish_reason").is_some_and(|reason| !reason.is_null());
        let texts = ["/text", "/delta/content", "/delta/reasoning_content", "/delta/reasoning"];
        let text: String = texts.iter().filter_map(|path| choice.pointer(path)?.as_str()).collect();
        if !text.is_empty() {
            let told = usage.and_then(|usage| usage.completion_tokens);
            self.chunks.push(Chunk { nanos, bytes: text.len() as u64, told });
            self.text += &text;
        }
        Ok(())
    }

    /// Nothing comes any more; `failure` is why, when it is no usual end.
    #[must_use]
    pub fn ended(mut self, failure: Option<String>, nanos: u64) -> Self {
        self.end_nanos = nanos;
        let cut = (!self.is_over && !self.is_finished).then(|| "the stream ended before the answer did".to_owned());
        self.failure = failure.or(cut);
        self
    }

    /// Whether the server has said its last word.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// What it means.
    ///
    /// # Errors
    /// Why it failed; an answer without any token is one.
    pub fn into_answer(self, count: Count<'_>) -> Result<Answer, String> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let told = self.usage.and_then(|usage| usage.completion_tokens);
        let chunks = u32::try_from(self.chunks.len()).unwrap_or(u32::MAX);
        let (tokens, counted) = match told {
            Some(tokens) => (tokens, Counted::Usage),
            None => count(&self.text).map_or((chunks, Counted::Chunks), |tokens| (tokens, Counted::Tokenizer)),
        };
        if tokens == 0 {
            return Err("the answer has no token".into());
        }
        let counts = spread(&self.chunks, tokens);
        let mut chunks: Vec<(u64, u32)> = self
            .chunks
            .iter()
            .zip(counts)
            .map(|(chunk, tokens)| (chunk.nanos, tokens))
            .filter(|(_, n)| *n > 0)
            .collect();
        if chunks.is_empty() {
            // Tokens without any text are seen when the answer ends.
            chunks.push((self.end_nanos, tokens));
        }
        Ok(Answer {
            chunks,
            prompt_tokens: self.usage.and_then(|usage| usage.prompt_tokens),
            cached_tokens: self.usage.map_or(0, |usage| usage.cached_tokens),
            text: self.text,
            counted,
        })
    }
}

impl Usage {
    fn of(value: &Value) -> Option<Self> {
        value.as_object()?;
        let number = |path: &str| value.pointer(path).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
        Some(Self {
            // What no context holds was not counted.
            prompt_tokens: number("/prompt_tokens").filter(|tokens| *tokens <= CONTEXT_MAX),
            completion_tokens: number("/completion_tokens"),
            cached_tokens: number("/prompt_tokens_details/cached_tokens").filter(|n| *n <= CONTEXT_MAX).unwrap_or(0),
        })
    }
}

/// The message of an OpenAI error, or of what passes for one.
pub(super) fn message(error: &Value) -> Option<&str> {
    error.as_str().or_else(|| error.get("message")?.as_str())
}

/// Deals `tokens` to the chunks: as they tell it themselves, else one each and the others by length of text, so that a
/// chunk of four tokens counts as four. Their sum is `tokens`; the first chunk has one at least, since its time is the first token's.
fn spread(chunks: &[Chunk], tokens: u32) -> Vec<u32> {
    if let Some(told) = told(chunks, tokens) {
        return told;
    }
    let count = chunks.len() as u64;
    let tokens = u64::from(tokens);
    // With fewer tokens than chunks only the first is sure to have one.
    let each = |index: usize| if tokens >= count { 1 } else { u64::from(index == 0).min(tokens) };
    let sure: u64 = (0..chunks.len()).map(each).sum();
    let bytes: u64 = chunks.iter().map(|chunk| chunk.bytes).sum();
    let (mut seen, mut given) = (0u64, 0u64);
    let deal = chunks.iter().enumerate().map(|(index, chunk)| {
        seen += chunk.bytes;
        let due = u128::from(tokens - sure) * u128::from(seen) / u128::from(bytes.max(1));
        let due = u64::try_from(due).expect("at most all tokens");
        let share = each(index) + due - given;
        given = due;
        u32::try_from(share).expect("at most all tokens")
    });
    deal.collect()
}

/// The chunks' own counts, where all tell one and they end with the answer's.
fn told(chunks: &[Chunk], tokens: u32) -> Option<Vec<u32>> {
    let mut before = 0;
    let mut counts = Vec::with_capacity(chunks.len());
    for chunk in chunks {
        let now = chunk.told?;
        counts.push(now.checked_sub(before)?);
        before = now;
    }
    // Tokens behind the last text, such as an end token, came with the last chunk as far as anyone can see.
    let last = counts.last_mut()?;
    *last += tokens.checked_sub(before)?;
    (counts[0] > 0).then_some(counts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn chunks(bytes: &[u64]) -> Vec<Chunk> {
        bytes.iter().map(|&bytes| Chunk { nanos: 0, bytes, told: None }).collect()
    }

    #[test]
    fn tokens_are_dealt_to_chunks_by_what_is_known() {
        assert_eq!(spread(&chunks(&[5, 1, 9]), 3), [1, 1, 1]);
        assert_eq!(spread(&chunks(&[8, 8, 8]), 12), [4, 4, 4]);
        assert_eq!(spread(&chunks(&[3, 9]), 6), [2, 4]);
        assert_eq!(spread(&chunks(&[1, 1, 1, 1]), 2), [1, 0, 0, 1]);
        assert_eq!(spread(&chunks(&[1, 1]), 0), [0, 0]);
        assert_eq!(spread(&[], 3), [0u32; 0]);
        let told: Vec<Chunk> = [2, 3, 7].map(|n| Chunk { nanos: 0, bytes: 1, told: Some(n) }).into();
        assert_eq!(spread(&told, 8), [2, 1, 5]);
        assert_eq!(spread(&told, 3), [1, 1, 1], "counts that pass the sum are not believed");
    }

    proptest! {
        #[test]
        fn no_token_is_lost_or_made_up(bytes in proptest::collection::vec(1u64..1000, 1..40), tokens in 0u32..5000) {
            let dealt = spread(&chunks(&bytes), tokens);
            prop_assert_eq!(dealt.iter().map(|n| u64::from(*n)).sum::<u64>(), u64::from(tokens));
            prop_assert_eq!(dealt[0] > 0, tokens > 0);
        }

        #[test]
        fn no_event_panics(data in "\\PC{0,80}", keys in proptest::collection::vec("[a-z_]{1,9}", 0..4)) {
            let mut heard = Heard::default();
            let _ = heard.event(&data, 1);
            let mut value = json!(data);
            for key in keys {
                value = json!({ key: [value] });
            }
            let _ = heard.event(&value.to_string(), 2);
            let _ = heard.ended(None, 3).into_answer(&|_| None);
        }
    }

    fn heard(events: &[(Value, u64)]) -> Heard {
        let mut heard = Heard::default();
        events.iter().for_each(|(event, nanos)| heard.event(&event.to_string(), *nanos).expect("a chunk"));
        heard
    }

    #[test]
    fn an_answer_counts_from_its_first_text() {
        let mut heard = heard(&[
            (json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}), 5),
            (json!({"choices": [{"index": 0, "delta": {"content": "Hello"}}]}), 9),
            (json!({"choices": [{"index": 0, "delta": {"content": " you"}}]}), 12),
            (json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": null}), 13),
            (
                json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2,
                "prompt_tokens_details": {"cached_tokens": 3}}}),
                13,
            ),
        ]);
        heard.event("[DONE]", 14).expect("the end");
        let answer = heard.ended(None, 15).into_answer(&|_| panic!("usage is there")).expect("done");
        assert_eq!(answer.chunks, [(9, 1), (12, 1)]);
        assert_eq!((answer.prompt_tokens, answer.cached_tokens, answer.text.as_str()), (Some(7), 3, "Hello you"));
        assert_eq!(answer.counted, Counted::Usage);
    }

    #[test]
    fn without_usage_the_text_is_tokenised_and_else_chunks_are_counted() {
        let events = [
            (json!({"choices": [{"index": 0, "text": "ab"}]}), 1),
            (json!({"choices": [{"index": 0, "text": "cd", "finish_reason": "length"}]}), 2),
        ];
        let answer = heard(&events).ended(None, 3).into_answer(&|text| Some(text.len() as u32)).expect("done");
        assert_eq!((answer.chunks, answer.counted), (vec![(1, 2), (2, 2)], Counted::Tokenizer));
        let answer = heard(&events).ended(None, 3).into_answer(&|_| None).expect("done");
        assert_eq!((answer.chunks, answer.counted), (vec![(1, 1), (2, 1)], Counted::Chunks));
    }

    #[test]
    fn a_usage_that_nobody_asked_for_is_not_believed() {
        let told = |tokens: u64| {
            let usage = json!({"prompt_tokens": tokens, "completion_tokens": tokens});
            json!({"choices": [{"index": 0, "text": "a", "finish_reason": "stop"}], "usage": usage}).to_string()
        };
        assert!(Heard::asking(8).event(&told(u64::from(u32::MAX)), 1).expect_err("more").contains("at most 8"));
        let mut heard = Heard::asking(8);
        heard.event(&told(8), 1).expect("as asked");
        assert_eq!(heard.ended(None, 2).into_answer(&|_| None).expect("done").chunks, [(1, 8)]);
    }

    #[test]
    fn an_answer_without_a_token_is_none() {
        let mut heard = Heard::default();
        heard.event("[1, 2]", 1).expect("JSON");
        heard.event("[DONE]", 1).expect("the end");
        assert!(heard.ended(None, 2).into_answer(&|_| None).expect_err("nothing came").contains("no token"));
    }

    #[test]
    fn tokens_without_text_are_seen_at_the_end() {
        let usage = (json!({"choices": [], "usage": {"completion_tokens": 3}}), 4);
        let finish = (json!({"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}), 4);
        let answer = heard(&[finish, usage]).ended(None, 5).into_answer(&|_| None).expect("done");
        assert_eq!(answer.chunks, [(5, 3)]);
    }

    #[test]
    fn what_goes_wrong_is_told() {
        let text = (json!({"choices": [{"index": 0, "text": "ab"}]}), 1);
        let cut = heard(&[text]).ended(None, 2).into_answer(&|_| None);
        assert_eq!(cut, Err("the stream ended before the answer did".to_owned()));
        let mut heard = Heard::default();
        assert_eq!(heard.event(r#"{"error": {"message": "no room"}}"#, 1), Err("no room".to_owned()));
        assert!(heard.event("<html>", 1).is_err());
        assert_eq!(Heard::failed("refused", 1).into_answer(&|_| None), Err("refused".to_owned()));
    }
}
