//! Answers as server-sent events: each an OpenAI chunk, whole characters only.
//!
//! ```text
//! role + first text │ text … │ text held back │ finish_reason │ usage │ [DONE]
//! └── of each choice, interleaved ───────────────────────────┘ └ once ────────┘
//! ```
//! Nothing is sent before the first token, so that a client's time to first token is the engine's. Tokens whose text is held
//! back are told (logprobs, ids) with the text that releases them, or with the finish.

use serde::Serialize;

use super::answering::Answering;
use super::error::{ApiError, ErrorBody};
use super::job::{Endpoint, Host};
use super::logprobs::{self, ChatLogprobs, TextLogprobs};
use super::params::StreamUsage;
use super::response::{self, Head};
use super::usage::{Timings, Usage};

/// What was sent of a streamed answer.
#[derive(Debug)]
pub struct Stream {
    name: String,
    created: i64,
    timed: bool,
    /// Of each choice, tokens that were told; `None` before anything was.
    told: Vec<Option<usize>>,
}

#[derive(Serialize)]
struct Chunk<'a, C: Serialize> {
    id: &'a str,
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: &'a [C],
    /// Absent, null or there, by `stream_options`.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timings: Option<Timings>,
    /// As in a whole response, with the last choice's end.
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
}

/// What the event says that ends the last choice.
#[derive(Default)]
struct Last {
    timings: Option<Timings>,
    seed: Option<u64>,
}

#[derive(Serialize)]
struct ChatChoice<'a> {
    index: usize,
    delta: Delta<'a>,
    logprobs: Option<ChatLogprobs>,
    finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Vec<u32>>,
}

#[derive(Serialize)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
}

#[derive(Serialize)]
struct TextChoice<'a> {
    index: usize,
    text: &'a str,
    logprobs: Option<TextLogprobs>,
    finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Vec<u32>>,
}

/// One choice's part of an event.
struct Part<'a> {
    index: usize,
    is_first: bool,
    text: Option<&'a str>,
    /// Tokens that are told with it begin here; `None` tells none.
    from: Option<usize>,
    finish: Option<&'static str>,
}

impl Stream {
    /// Nothing was sent yet of an answer with that many choices.
    #[must_use]
    pub fn new(head: &Head, answering: &Answering) -> Self {
        let job = answering.job();
        Self {
            name: head.name(job.endpoint),
            created: head.created,
            timed: head.timed,
            told: vec![None; job.choices()],
        }
    }

    /// A choice has more text, or its first token without any yet.
    pub fn text(&mut self, out: &mut String, answering: &Answering, index: usize, text: &str, host: &Host<'_>) {
        let is_first = self.told[index].is_none();
        let echo = if is_first { answering.job().echo(index) } else { "" };
        if answering.job().endpoint == Endpoint::Chat && is_first {
            self.told[index] = Some(0);
            let part = Part { index, is_first, text: Some(""), from: None, finish: None };
            self.event(out, answering, &part, host);
        }
        if text.is_empty() && echo.is_empty() {
            return;
        }
        let from = self.told[index].unwrap_or(0);
        let whole;
        let text = if echo.is_empty() {
            text
        } else {
            whole = echo.to_owned() + text;
            &whole
        };
        let part = Part { index, is_first: false, text: Some(text), from: Some(from), finish: None };
        self.event(out, answering, &part, host);
        self.told[index] = Some(answering.choice(index).tokens.len());
    }

    /// A choice has ended; `text` was held back.
    pub fn end(&mut self, out: &mut String, answering: &Answering, index: usize, text: &str, host: &Host<'_>) {
        if !text.is_empty() || self.told[index].is_none() {
            self.text(out, answering, index, text, host);
        }
        let choice = answering.choice(index);
        let from = self.told[index].unwrap_or(0);
        let from = (from < choice.tokens.len()).then_some(from);
        let part = Part { index, is_first: false, text: None, from, finish: response::finish_reason(choice) };
        self.event(out, answering, &part, host);
        self.told[index] = Some(choice.tokens.len());
    }

    /// All choices have ended.
    pub fn done(&self, out: &mut String, answering: &Answering, host: &Host<'_>) {
        if answering.job().params.stream_usage != StreamUsage::No {
            let usage = Some(Some(Usage::of(answering)));
            match answering.job().endpoint {
                Endpoint::Chat => self.write::<ChatChoice<'_>>(out, &[], usage, Last::default(), answering, host),
                Endpoint::Completions => {
                    self.write::<TextChoice<'_>>(out, &[], usage, Last::default(), answering, host)
                }
            }
        }
        out.push_str("data: [DONE]\n\n");
    }

    /// The answer ends here, with an error.
    pub fn error(out: &mut String, error: &ApiError) {
        #[derive(Serialize)]
        struct Failed<'a> {
            error: &'a ErrorBody,
        }
        data(out, &Failed { error: &error.body });
    }

    fn event(&self, out: &mut String, answering: &Answering, part: &Part<'_>, host: &Host<'_>) {
        let params = &answering.job().params;
        let choice = answering.choice(part.index);
        let from = part.from.filter(|_| params.sampling.logprobs.is_some());
        let ids = |from: usize| choice.tokens[from..].iter().map(|token| token.id).collect();
        let token_ids = part.from.filter(|_| params.return_token_ids).map(ids);
        let usage = match params.stream_usage {
            StreamUsage::No => None,
            StreamUsage::Last => Some(None),
            StreamUsage::All => Some(Some(Usage::of(answering))),
        };
        let is_last = part.finish.is_some() && answering.is_done();
        let last = match is_last {
            true => Last { timings: self.timed.then(|| Timings::of(answering)).flatten(), seed: params.drawn_seed() },
            false => Last::default(),
        };
        let (index, finish_reason) = (part.index, part.finish);
        match answering.job().endpoint {
            Endpoint::Chat => {
                let logprobs = from.map(|from| logprobs::of_chat(choice, from, host.tokenizer));
                let delta = Delta { role: part.is_first.then_some("assistant"), content: part.text };
                let choice = ChatChoice { index, delta, logprobs, finish_reason, token_ids };
                self.write(out, &[choice], usage, last, answering, host);
            }
            Endpoint::Completions => {
                let logprobs = from.map(|from| logprobs::of_text(choice, from, host.tokenizer));
                let text = part.text.unwrap_or("");
                let choice = TextChoice { index, text, logprobs, finish_reason, token_ids };
                self.write(out, &[choice], usage, last, answering, host);
            }
        }
    }

    fn write<C: Serialize>(
        &self,
        out: &mut String,
        choices: &[C],
        usage: Option<Option<Usage>>,
        last: Last,
        answering: &Answering,
        host: &Host<'_>,
    ) {
        let object = match answering.job().endpoint {
            Endpoint::Chat => "chat.completion.chunk",
            Endpoint::Completions => "text_completion",
        };
        let (id, created, model) = (self.name.as_str(), self.created, host.model);
        let Last { timings, seed } = last;
        data(out, &Chunk { id, object, created, model, choices, usage, timings, seed });
    }
}

/// One event.
fn data<T: Serialize>(out: &mut String, value: &T) {
    out.push_str("data: ");
    let json = serde_json::to_string(value).expect("a plain struct serialises");
    out.push_str(&json);
    out.push_str("\n\n");
}

/// A comment that keeps a connection open.
pub const PING: &str = ": ping\n\n";
