//! Chat and completions: a body in, an answer or its events out.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Extension, Request, State};
use axum::response::{IntoResponse, Response};
use futures_util::stream;

use super::super::driver::{Answers, Failure, Said, What};
use super::super::openai::{Answering, ApiError, Endpoint, Head, Job, PING, Stream, drawn_seed};
use super::guard::{Client, Place, Working};
use super::{Loaded, Server, Shared, reply};
use crate::clock::unix_seconds;
use crate::limits::PING_SECONDS;

/// `/v1/chat/completions`.
pub(super) async fn chat(
    State(server): State<Shared>,
    Extension(working): Extension<Working>,
    Extension(client): Extension<Client>,
    request: Request,
) -> Response {
    answer(server, working, client, Endpoint::Chat, request).await.unwrap_or_else(ApiError::into_response)
}

/// `/v1/completions`.
pub(super) async fn completions(
    State(server): State<Shared>,
    Extension(working): Extension<Working>,
    Extension(client): Extension<Client>,
    request: Request,
) -> Response {
    answer(server, working, client, Endpoint::Completions, request).await.unwrap_or_else(ApiError::into_response)
}

/// An answer on its way: what is said of it, and what was made of that.
struct Way {
    server: Shared,
    /// The name of the model that the request used.
    model: String,
    answering: Answering,
    head: Head,
    /// `None` for a body that asks for no tokens.
    answers: Option<Answers>,
    _place: Place,
}

async fn answer(
    server: Shared,
    working: Working,
    client: Client,
    endpoint: Endpoint,
    request: Request,
) -> Result<Response, ApiError> {
    server.answers()?;
    let place = working.enter(&client)?;
    let number = server.next();
    let read = server.read(request, move |server, body| read(server, endpoint, body, &client, number));
    let (job, model, requests) = read.await?;
    let loaded = server.answers()?;
    let answering = Answering::new(job, &loaded.tokenizer);
    let head = Head { id: format!("{:x}-{number}", server.run), created: unix_seconds(), timed: true };
    let answers = match requests {
        requests if requests.is_empty() => None,
        requests => {
            let asked = loaded.engine.ask(requests).await;
            Some(asked.map_err(|error| match error {
                crate::error::Error::Cancelled => ApiError::from(Failure::ShuttingDown),
                error => ApiError::from_error(&error, endpoint.prompt_field()),
            })?)
        }
    };
    let way = Way { server, model, answering, head, answers, _place: place };
    if way.answering.job().params.stream { Ok(way.events()) } else { way.whole().await }
}

/// Reads a body: the job, the model's name and what the engine is asked.
fn read(
    server: &Server,
    endpoint: Endpoint,
    body: &serde_json::Value,
    client: &Client,
    number: u64,
) -> Result<(Job, String, Vec<crate::engine::request::Request>), ApiError> {
    let loaded = server.answers()?;
    let model = loaded.named(body)?.to_owned();
    let job = Job::read(endpoint, body, &loaded.host(&model), drawn_seed(server.seed, &number.to_le_bytes()))?;
    if job.params.priority != 0 && !client.may_prioritise {
        let message = "priority: this key may not choose one";
        return Err(reply::error(403, "permission_error", Some("priority"), message));
    }
    if let Some(object) = body.as_object() {
        tracing::debug!(number, fields = ?object.keys().collect::<Vec<_>>(), "a request");
    }
    let ends = loaded.tokenizer.end_tokens();
    let asked = if job.params.max_tokens == Some(0) { 0 } else { job.choices() };
    if asked > loaded.queue_max {
        // Waiting would not help.
        let (field, most) = (endpoint.prompt_field(), loaded.queue_max);
        let message = format!("{field}: expected at most {most} answers of one body (--max-queue), got {asked}");
        return Err(ApiError::invalid(field, message));
    }
    let requests = (0..asked).map(|choice| {
        let mut request = job.request(choice, ends);
        request.tenant = client.tenant;
        request.arrived_nanos = Some(client.arrived_nanos);
        request.cache_salt = match (&client.salt, request.cache_salt.take()) {
            (Some(key), own) => Some(format!("{key} {}", own.unwrap_or_default())),
            (None, own) => own,
        };
        request
    });
    let requests = requests.collect();
    Ok((job, model, requests))
}

impl Server {
    /// The model, when requests are taken.
    pub(super) fn answers(&self) -> Result<&Loaded, ApiError> {
        use super::Phase;
        let phase = *self.phase.borrow();
        match (phase, self.loaded.get()) {
            (Phase::Ready, Some(loaded)) => Ok(loaded),
            (Phase::Draining | Phase::Over, _) => Err(Failure::ShuttingDown.into()),
            _ => Err(reply::unavailable("loading", "the model is still loading: ask again")),
        }
    }
}

impl Loaded {
    /// The name that a body gives the model, if it is one of ours; our first where it gives none.
    pub(super) fn named(&self, body: &serde_json::Value) -> Result<&str, ApiError> {
        let Some(name) = body.get("model").and_then(serde_json::Value::as_str) else { return Ok(&self.names[0]) };
        if let Some(known) = self.names.iter().find(|known| *known == name) {
            return Ok(known);
        }
        let shown: String = name.chars().take(100).collect();
        let message = format!("model: expected {}, got {shown:?}", self.names.join(" or "));
        let mut error = reply::error(404, "invalid_request_error", Some("model_not_found"), &message);
        error.body.param = Some("model".into());
        Err(error)
    }
}

/// What something said did to an answer.
enum Heard {
    /// More text of a choice, maybe none.
    Text(usize, String),
    /// A choice has ended; this was held back.
    End(usize, String),
    /// Nothing to tell.
    Nothing,
}

impl Way {
    fn loaded(&self) -> &Loaded {
        self.server.loaded.get().expect("answers begin when the model is loaded")
    }

    fn hear(&mut self, said: Said) -> Result<Heard, ApiError> {
        let Said { choice, what } = said;
        let tokenizer = &self.server.loaded.get().expect("loaded").tokenizer;
        match what {
            What::Admitted { cached_tokens, nanos } => {
                self.answering.admitted(choice, cached_tokens, nanos);
                Ok(Heard::Nothing)
            }
            // A stop string ended it; what was in flight is late.
            What::Token(_) | What::Finished(_) if self.answering.has_ended(choice) => Ok(Heard::Nothing),
            What::Token(token) => {
                let pushed = self.answering.token(choice, token, tokenizer);
                let pushed = pushed.map_err(|error| ApiError::internal(error.to_string()))?;
                if pushed.is_stopped {
                    if let Some(answers) = &mut self.answers {
                        answers.stop(choice);
                    }
                    return Ok(Heard::End(choice, pushed.text));
                }
                Ok(Heard::Text(choice, pushed.text))
            }
            What::Finished(reason) => {
                let rest = self.answering.finished(choice, reason);
                let rest = rest.map_err(|error| match error {
                    crate::error::Error::Cancelled => Failure::ShuttingDown.into(),
                    error => {
                        let message = error.to_string();
                        reply::error(500, "server_error", Some("model_numerics"), &message)
                    }
                });
                Ok(Heard::End(choice, rest?))
            }
            What::Pooled(_) => Ok(Heard::Nothing),
            What::Failed(failure) => Err(failure.into()),
        }
    }

    async fn next(&mut self) -> Result<Said, ApiError> {
        let answers = self.answers.as_mut().expect("an open answer is somewhere in the engine");
        answers.next().await.ok_or_else(|| Failure::ShuttingDown.into())
    }

    /// The whole answer in one body.
    async fn whole(mut self) -> Result<Response, ApiError> {
        while !self.answering.is_done() {
            let said = self.next().await?;
            self.hear(said)?;
        }
        let head = self.head.clone();
        Ok(reply::json(&self.answering.body(head, &self.loaded().host(&self.model))))
    }

    /// The answer as it comes.
    fn events(self) -> Response {
        let stream = Stream::new(&self.head, &self.answering);
        let way = Events { way: self, stream, is_over: false };
        let parts = stream::unfold(way, |mut way| async move {
            let part = way.next().await?;
            Some((Ok::<Bytes, Infallible>(part), way))
        });
        reply::events(Body::from_stream(parts))
    }
}

/// A streamed answer.
struct Events {
    way: Way,
    stream: Stream,
    is_over: bool,
}

impl Events {
    /// The events that are there, or a sign of life; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        let mut out = String::new();
        if self.way.answers.is_none() {
            // An echo alone.
            (0..self.way.answering.job().choices()).for_each(|choice| self.tell_end(&mut out, choice, ""));
        }
        while out.is_empty() && !self.way.answering.is_done() {
            let said = tokio::time::timeout(Duration::from_secs(PING_SECONDS), self.way.next()).await;
            let Ok(said) = said else { return Some(Bytes::from_static(PING.as_bytes())) };
            let mut queue = VecDeque::from([said]);
            while let Some(said) = queue.pop_front() {
                if let Err(error) = said.and_then(|said| self.tell(&mut out, said)) {
                    Stream::error(&mut out, &error);
                    self.is_over = true;
                    return Some(out.into());
                }
                queue.extend(self.way.answers.as_mut().and_then(Answers::next_now).map(Ok));
            }
        }
        if self.way.answering.is_done() {
            let Self { way, stream, .. } = self;
            stream.done(&mut out, &way.answering, &way.loaded().host(&way.model));
            self.is_over = true;
        }
        Some(out.into())
    }

    fn tell(&mut self, out: &mut String, said: Said) -> Result<(), ApiError> {
        match self.way.hear(said)? {
            Heard::Nothing => {}
            Heard::Text(choice, text) => {
                let Self { way, stream, .. } = self;
                stream.text(out, &way.answering, choice, &text, &way.loaded().host(&way.model));
            }
            Heard::End(choice, text) => self.tell_end(out, choice, &text),
        }
        Ok(())
    }

    fn tell_end(&mut self, out: &mut String, choice: usize, text: &str) {
        let Self { way, stream, .. } = self;
        stream.end(out, &way.answering, choice, text, &way.loaded().host(&way.model));
    }
}
