//! One request over HTTP.

use std::error::Error as _;
use std::time::Duration;

use reqwest::{Client, Response, StatusCode, Url};
use serde_json::{Value, json};

use super::super::dataset::{Planned, Prompt};
use super::Decode;
use super::events::Events;
use super::heard::{self, Heard};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::limits::{ANSWER_TOKEN_BYTES_MAX, ASK_SECONDS_MAX, EVENT_BYTES_MAX, SILENCE_SECONDS};

const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// Longest that the server may take to say what it serves.
const MODELS_PATIENCE: Duration = Duration::from_secs(30);
/// Characters of a foreign message that are shown.
const MESSAGE_CHARS_MAX: usize = 300;

/// Which of the API's two ways to ask is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// `/v1/completions`: ids as they are.
    Completions,
    /// `/v1/chat/completions`: one message of the user's; the server's template adds tokens.
    Chat,
}

/// Where a server is and how it is asked.
#[derive(Debug, Clone)]
pub struct Place {
    base: Url,
    path: String,
    endpoint: Endpoint,
    key: Option<String>,
    ignore_eos: bool,
    silence: Duration,
}

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// The name that requests give the model.
    pub model: String,
    /// The longest context, where it tells.
    pub context_tokens: Option<u32>,
}

/// Sends requests.
#[derive(Debug)]
pub(super) struct Asker {
    client: Client,
    place: Place,
    url: Url,
    model: String,
}

impl Place {
    /// `url` is the server's address, with or without the `/v1` of `OPENAI_BASE_URL`; `path` the endpoint's; `key` goes with every
    /// request; `ignore_eos` is asked of the server (a field that vLLM's and llama.cpp's server know, and ours).
    ///
    /// # Errors
    /// `Usage` when they are no address and no endpoint.
    pub fn new(url: &str, path: &str, key: Option<String>, ignore_eos: bool) -> Result<Self> {
        let wrong = || Error::Usage(format!("--url: expected http://HOST:PORT or https://HOST, got {url}"));
        let mut base: Url = url.parse().map_err(|_| wrong())?;
        if !matches!(base.scheme(), "http" | "https") || base.host_str().is_none() {
            return Err(wrong());
        }
        let root = base.path().trim_end_matches('/').to_owned();
        base.set_path(root.strip_suffix("/v1").unwrap_or(&root));
        base.set_query(None);
        base.set_fragment(None);
        let path = format!("/{}", path.trim_start_matches('/'));
        let endpoint = match path.as_str() {
            chat if chat.ends_with("/chat/completions") => Endpoint::Chat,
            text if text.ends_with("/completions") => Endpoint::Completions,
            _ => {
                let message =
                    format!("--endpoint: expected a path that ends in /completions or /chat/completions, got {path}");
                return Err(Error::Usage(message));
            }
        };
        let silence = Duration::from_secs(SILENCE_SECONDS);
        Ok(Self { base, path, endpoint, key: key.filter(|key| !key.is_empty()), ignore_eos, silence })
    }

    /// With another time of silence after which an answer counts as failed than [`SILENCE_SECONDS`].
    #[must_use]
    pub fn with_silence(self, silence: Duration) -> Self {
        Self { silence, ..self }
    }

    /// Which way to ask it is.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    fn at(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", self.base.path().trim_end_matches('/')));
        url
    }

    fn is_near(&self) -> bool {
        let host = self.base.host_str().unwrap_or_default().trim_matches(['[', ']']);
        host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.at(&self.path))
    }
}

impl Asker {
    /// Asks what is served.
    ///
    /// # Errors
    /// `Request`.
    pub(super) async fn connect(place: &Place, model: Option<&str>) -> Result<(Self, Served)> {
        let mut client = Client::builder().connect_timeout(CONNECT_PATIENCE).read_timeout(place.silence);
        if place.is_near() {
            // A proxy of the environment knows another localhost.
            client = client.no_proxy();
        }
        let client = client.build().map_err(|e| Error::Request(format!("HTTP client: {}", chain(&e))))?;
        let url = place.at("/v1/models");
        let told = async {
            let mut request = client.get(url.clone()).timeout(MODELS_PATIENCE);
            if let Some(key) = &place.key {
                request = request.bearer_auth(key);
            }
            let response = request.send().await.map_err(|e| format!("cannot be reached: {}", chain(&e)))?;
            let status = response.status();
            let body = body(response).await?;
            if !status.is_success() {
                return Err(refusal(status, &body));
            }
            serde_json::from_str::<Value>(&body).map_err(|e| format!("expected a list of models, got no JSON: {e}"))
        };
        let told: std::result::Result<Value, String> = told.await;
        let of = |models: &Value, name: Option<&str>| {
            let list = models.get("data")?.as_array()?;
            let id = |entry: &Value| entry.get("id").and_then(Value::as_str).map(str::to_owned);
            let entry = match name {
                Some(name) => list.iter().find(|entry| id(entry).as_deref() == Some(name))?,
                None => list.first()?,
            };
            let context_tokens = entry.get("max_model_len").and_then(Value::as_u64);
            Some(Served { model: id(entry)?, context_tokens: context_tokens.and_then(|n| u32::try_from(n).ok()) })
        };
        let served = match (told, model) {
            (Ok(models), name) => match (of(&models, name), name) {
                (Some(served), _) => served,
                // Some servers answer to names that they do not list.
                (None, Some(name)) => Served { model: name.to_owned(), context_tokens: None },
                (None, None) => {
                    return Err(Error::Request(format!("{url}: it lists no model: name one with --served-model-name")));
                }
            },
            (Err(why), None) => return Err(Error::Request(format!("{url}: {why}"))),
            // Not every server lists its models; whether this one is there is seen soon.
            (Err(why), Some(name)) => {
                tracing::info!(%why, "no list of models");
                Served { model: name.to_owned(), context_tokens: None }
            }
        };
        let asker = Self { client, url: place.at(&place.path), place: place.clone(), model: served.model.clone() };
        Ok((asker, served))
    }

    /// The body that asks for `request`, in the fields that vLLM's own client sends.
    ///
    /// # Errors
    /// What `decode` says.
    pub(super) fn body(&self, request: &Planned, decode: Decode<'_>) -> Result<Value> {
        let text = || match &request.prompt {
            Prompt::Text { text, .. } => Ok(text.clone()),
            Prompt::Ids(_) | Prompt::Blocks(_) => decode(&request.prompt_ids()),
        };
        let mut body = match self.place.endpoint {
            Endpoint::Chat => json!({
                "model": self.model,
                "messages": [{"role": "user", "content": text()?}],
                "max_completion_tokens": request.output_tokens,
            }),
            Endpoint::Completions => {
                let prompt = match &request.prompt {
                    Prompt::Text { text, .. } => json!(text),
                    Prompt::Ids(_) | Prompt::Blocks(_) => json!(request.prompt_ids()),
                };
                json!({ "model": self.model, "prompt": prompt, "max_tokens": request.output_tokens })
            }
        };
        body["temperature"] = json!(0.0);
        body["stream"] = json!(true);
        body["stream_options"] = json!({ "include_usage": true });
        if self.place.ignore_eos {
            body["ignore_eos"] = json!(true);
        }
        Ok(body)
    }

    /// Asks for at most `tokens_max` tokens, and listens to the end.
    pub(super) async fn ask(&self, body: Value, tokens_max: u32, clock: &Clock) -> Heard {
        let mut heard = Heard::asking(tokens_max);
        let why = self.listen(body, tokens_max, clock, &mut heard).await.err();
        heard.ended(why, clock.nanos())
    }

    async fn listen(
        &self,
        asked: Value,
        tokens_max: u32,
        clock: &Clock,
        heard: &mut Heard,
    ) -> std::result::Result<(), String> {
        let in_all = Duration::from_secs(ASK_SECONDS_MAX);
        let mut request = self.client.post(self.url.clone()).timeout(in_all).header("Content-Type", "application/json");
        if let Some(key) = &self.place.key {
            request = request.bearer_auth(key);
        }
        let mut response = request.body(asked.to_string()).send().await.map_err(|e| chain(&e))?;
        let status = response.status();
        if !status.is_success() {
            return Err(refusal(status, &body(response).await?));
        }
        let mut events = Events::default();
        let mut is_event_seen = false;
        let bytes_max = EVENT_BYTES_MAX as u64 + u64::from(tokens_max) * ANSWER_TOKEN_BYTES_MAX;
        let mut bytes_seen = 0;
        while let Some(bytes) = response.chunk().await.map_err(|e| chain(&e))? {
            let nanos = clock.nanos();
            bytes_seen += bytes.len() as u64;
            if bytes_seen > bytes_max {
                return Err(format!("expected at most {bytes_max} bytes for {tokens_max} tokens, got more"));
            }
            events.feed(&bytes, &mut |data| {
                is_event_seen = true;
                heard.event(data, nanos)
            })?;
            if heard.is_over() {
                return Ok(());
            }
        }
        if is_event_seen { Ok(()) } else { Err("expected a stream of events, got something else".into()) }
    }
}

/// A body that is no stream, as far as it is of use.
async fn body(mut response: Response) -> std::result::Result<String, String> {
    let mut bytes = Vec::new();
    while let Some(part) = response.chunk().await.map_err(|e| chain(&e))? {
        if bytes.len() + part.len() > EVENT_BYTES_MAX {
            return Err(format!("a body of more than {EVENT_BYTES_MAX} bytes"));
        }
        bytes.extend_from_slice(&part);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What a status that is no success says.
fn refusal(status: StatusCode, body: &str) -> String {
    let value: Value = serde_json::from_str(body).unwrap_or(Value::Null);
    let said = value.get("error").and_then(heard::message).or_else(|| heard::message(&value)).unwrap_or(body);
    let said: String = said.trim().chars().take(MESSAGE_CHARS_MAX).collect();
    if said.is_empty() { status.to_string() } else { format!("{status}: {said}") }
}

/// An error with what is behind it: the client's own words alone say little.
fn chain(error: &reqwest::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        words += &format!(": {inner}");
        source = inner.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_as_clients_write_them() {
        for (url, path, expected) in [
            ("http://localhost:8080", "/v1/completions", "http://localhost:8080/v1/completions"),
            ("http://localhost:8080/v1", "v1/completions", "http://localhost:8080/v1/completions"),
            ("https://a.example/api/v1/", "/v1/chat/completions", "https://a.example/api/v1/chat/completions"),
            ("http://[::1]:80?x=1#y", "/completions", "http://[::1]/completions"),
        ] {
            assert_eq!(Place::new(url, path, None, false).expect(url).to_string(), expected);
        }
        for (url, path) in
            [("localhost:8080", "/v1/completions"), ("ftp://a", "/v1/completions"), ("http://a", "/v1/embeddings")]
        {
            assert!(matches!(Place::new(url, path, None, false), Err(Error::Usage(_))), "{url} {path}");
        }
    }

    #[test]
    fn refusals_are_shown_by_their_message() {
        let status = StatusCode::BAD_REQUEST;
        assert_eq!(refusal(status, r#"{"error": {"message": "too long"}}"#), "400 Bad Request: too long");
        assert_eq!(refusal(status, r#"{"message": "too long"}"#), "400 Bad Request: too long");
        assert_eq!(refusal(status, "<html>"), "400 Bad Request: <html>");
        assert_eq!(refusal(status, ""), "400 Bad Request");
    }
}
