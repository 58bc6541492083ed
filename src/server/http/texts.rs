//! `/tokenize`, `/detokenize`, `/apply-template`: vLLM's and llama-server's.

use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Value, json};

use super::super::openai::{ApiError, prompt_ids, prompt_text};
use super::{Loaded, Shared, reply};
use crate::limits::TOKENIZE_TOKENS_MAX;

/// Runs `what` on the request's JSON, off the threads that streams need.
async fn with_json(
    server: Shared,
    request: Request,
    what: fn(&Loaded, &Value) -> Result<Value, ApiError>,
) -> Result<Response, ApiError> {
    let read = server.read(request, move |server, body| {
        let loaded = server.answers()?;
        loaded.named(body)?;
        what(loaded, body)
    });
    Ok(reply::json(&read.await?))
}

/// `/tokenize`: `{prompt, add_special_tokens, return_token_strs}`, `{messages}` or llama-server's `{content}`.
pub(super) async fn tokenize(State(server): State<Shared>, request: Request) -> Result<Response, ApiError> {
    with_json(server, request, |loaded, body| {
        let ids = prompt_ids(body, &loaded.host(&loaded.names[0]))?;
        if ids.len() > TOKENIZE_TOKENS_MAX {
            let message = format!("prompt: expected at most {TOKENIZE_TOKENS_MAX} tokens, got {}", ids.len());
            return Err(ApiError::invalid("prompt", message));
        }
        let names = body["return_token_strs"] == true;
        let name = |id: &u32| String::from_utf8_lossy(loaded.tokenizer.spelling(*id).unwrap_or_default()).into_owned();
        let strs = names.then(|| ids.iter().map(name).collect::<Vec<_>>());
        Ok(json!({"count": ids.len(), "max_model_len": loaded.context_tokens, "tokens": ids, "token_strs": strs}))
    })
    .await
}

/// `/detokenize`: `{tokens}`.
pub(super) async fn detokenize(State(server): State<Shared>, request: Request) -> Result<Response, ApiError> {
    with_json(server, request, |loaded, body| {
        let vocab = loaded.vocab;
        let expected = format!("at most {TOKENIZE_TOKENS_MAX} token ids below the vocabulary of {vocab}");
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok()).filter(|id| *id < vocab);
        let list = body["tokens"].as_array().filter(|list| list.len() <= TOKENIZE_TOKENS_MAX);
        let ids: Option<Vec<u32>> = list.and_then(|list| list.iter().map(id).collect());
        let ids = ids.ok_or_else(|| ApiError::expected("tokens", &expected, body.get("tokens")))?;
        let text = loaded.tokenizer.decode(&ids).map_err(|error| ApiError::from_error(&error, "tokens"))?;
        Ok(json!({"prompt": text, "content": text}))
    })
    .await
}

/// `/apply-template`: `{messages}`.
pub(super) async fn apply_template(State(server): State<Shared>, request: Request) -> Result<Response, ApiError> {
    with_json(server, request, |loaded, body| {
        let text = prompt_text(body, &loaded.host(&loaded.names[0]))?;
        Ok(json!({"prompt": text}))
    })
    .await
}
