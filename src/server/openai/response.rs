//! Responses as OpenAI's SDK types them.

use serde::Serialize;

use super::answering::Answering;
use super::choice::Choice;
use super::job::{Endpoint, Host};
use super::logprobs::{self, ChatLogprobs, TextLogprobs};
use super::usage::{Timings, Usage};

/// What every response begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// What tells this response from others, behind the endpoint's prefix.
    pub id: String,
    /// Seconds since 1970.
    pub created: i64,
    /// Whether it tells how long it took.
    pub timed: bool,
}

impl Head {
    /// The name of the whole response.
    pub(super) fn name(&self, endpoint: Endpoint) -> String {
        let prefix = match endpoint {
            Endpoint::Chat => "chatcmpl-",
            Endpoint::Completions => "cmpl-",
        };
        format!("{prefix}{}", self.id)
    }
}

/// The body of a response.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Body {
    /// Of `/v1/chat/completions`.
    Chat(Completion<ChatChoice>),
    /// Of `/v1/completions`.
    Text(Completion<TextChoice>),
}

/// `chat.completion` or `text_completion`.
#[derive(Debug, Serialize)]
pub struct Completion<C> {
    id: String,
    object: &'static str,
    created: i64,
    model: String,
    choices: Vec<C>,
    usage: Usage,
    #[serde(skip_serializing_if = "Option::is_none")]
    timings: Option<Timings>,
    /// Where nobody chose it and it matters: with it the same request gives the same answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
}

/// A choice of a chat.
#[derive(Debug, Serialize)]
pub struct ChatChoice {
    index: usize,
    message: Message,
    logprobs: Option<ChatLogprobs>,
    finish_reason: Option<&'static str>,
    #[serde(flatten)]
    ids: Option<Ids>,
}

#[derive(Debug, Serialize)]
struct Message {
    role: &'static str,
    content: String,
    refusal: Option<()>,
}

/// A choice of a completion.
#[derive(Debug, Serialize)]
pub struct TextChoice {
    index: usize,
    text: String,
    logprobs: Option<TextLogprobs>,
    finish_reason: Option<&'static str>,
    #[serde(flatten)]
    ids: Option<Ids>,
}

/// With `return_token_ids`.
#[derive(Debug, Serialize)]
struct Ids {
    token_ids: Vec<u32>,
    prompt_token_ids: Vec<u32>,
}

/// The response to a job whose choices have all ended.
pub(super) fn body(answering: &Answering, choices: &[Choice], head: Head, host: &Host<'_>) -> Body {
    let job = answering.job();
    let wants_logprobs = job.params.sampling.logprobs.is_some();
    let all = choices.iter().enumerate();
    let ids = |index: usize, choice: &Choice| {
        job.params.return_token_ids.then(|| Ids {
            token_ids: choice.tokens.iter().map(|token| token.id).collect(),
            prompt_token_ids: job.prompt(index).to_vec(),
        })
    };
    match job.endpoint {
        Endpoint::Chat => {
            let choices = all.map(|(index, choice)| ChatChoice {
                index,
                message: Message { role: "assistant", content: choice.text.clone(), refusal: None },
                logprobs: wants_logprobs.then(|| logprobs::of_chat(choice, 0, host.tokenizer)),
                finish_reason: finish_reason(choice),
                ids: ids(index, choice),
            });
            Body::Chat(completion("chat.completion", choices.collect(), answering, head, host))
        }
        Endpoint::Completions => {
            let choices = all.map(|(index, choice)| TextChoice {
                index,
                text: job.echo(index).to_owned() + &choice.text,
                logprobs: wants_logprobs.then(|| logprobs::of_text(choice, 0, host.tokenizer)),
                finish_reason: finish_reason(choice),
                ids: ids(index, choice),
            });
            Body::Text(completion("text_completion", choices.collect(), answering, head, host))
        }
    }
}

pub(super) fn finish_reason(choice: &Choice) -> Option<&'static str> {
    choice.finish.map(|reason| reason.name())
}

fn completion<C>(
    object: &'static str,
    choices: Vec<C>,
    answering: &Answering,
    head: Head,
    host: &Host<'_>,
) -> Completion<C> {
    Completion {
        id: head.name(answering.job().endpoint),
        object,
        created: head.created,
        model: host.model.to_owned(),
        choices,
        usage: Usage::of(answering),
        timings: if head.timed { Timings::of(answering) } else { None },
        seed: answering.job().params.drawn_seed(),
    }
}
