//! From a body to the ids of its prompts.

use serde_json::Value;

use super::error::ApiError;
use super::fields::Fields;
use super::job::Host;
use crate::error::Error;
use crate::limits::CHOICES_MAX;
use crate::text::chat::{Content, Message};

/// The one prompt of a chat: messages through the model's template.
pub(super) fn from_messages(fields: Fields<'_>, host: &Host<'_>) -> Result<Vec<u32>, ApiError> {
    const PARAM: &str = "messages";
    let template = host.template.ok_or_else(|| {
        let message = "messages: this model has no chat template that works: ask /v1/completions instead";
        ApiError::invalid(PARAM, message)
    })?;
    let list = fields.get(PARAM).and_then(Value::as_array).filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| ApiError::expected(PARAM, "a list of at least one message", fields.get(PARAM)))?;
    let messages: Vec<Message> =
        list.iter().enumerate().map(|(i, value)| message(i, value)).collect::<Result<_, _>>()?;
    check_fits(Message::fewest_tokens(&messages, host.tokenizer), PARAM, host)?;
    let ids = template.encode(host.tokenizer, &messages).map_err(|error| ApiError::from_error(&error, PARAM))?;
    check_ids(ids, PARAM, host)
}

fn message(index: usize, value: &Value) -> Result<Message, ApiError> {
    let place = |field: &str| format!("messages[{index}]{field}");
    let object = value.as_object().ok_or_else(|| ApiError::expected(place(""), "an object", Some(value)))?;
    let fields = Fields(object);
    let role = fields.get("role").and_then(Value::as_str);
    let role = role.ok_or_else(|| ApiError::expected(place(".role"), "a string", fields.get("role")))?;
    if let Some(calls) = fields.get("tool_calls").filter(|calls| *calls != &Value::Array(Vec::new())) {
        return Err(ApiError::expected(place(".tool_calls"), "no tool calls", Some(calls)));
    }
    let content = match fields.get("content") {
        None => Content::Null,
        Some(Value::String(text)) => Content::Text(text.clone()),
        Some(Value::Array(parts)) => Content::Parts(parts.clone()),
        other => return Err(ApiError::expected(place(".content"), "a string or a list of parts", other)),
    };
    Ok(Message { role: role.to_owned(), content })
}

/// The prompts of a completion: one text, one list of ids, or a list of either.
pub(super) fn from_prompt(fields: Fields<'_>, host: &Host<'_>) -> Result<Vec<Vec<u32>>, ApiError> {
    const PARAM: &str = "prompt";
    let wrong = || ApiError::expected(PARAM, "a text, a list of token ids, or a list of either", fields.get(PARAM));
    let value = fields.get(PARAM).ok_or_else(wrong)?;
    let most = CHOICES_MAX as usize;
    let prompts = match value {
        Value::String(text) => vec![encode(text, host)?],
        Value::Array(list) if list.iter().all(Value::is_number) && !list.is_empty() => {
            vec![ids(list).ok_or_else(wrong)?]
        }
        Value::Array(list) if list.len() > most => {
            let message = format!("prompt: expected at most {most} prompts, got {}", list.len());
            return Err(ApiError::invalid(PARAM, message));
        }
        Value::Array(list) if !list.is_empty() => {
            let one = |value: &Value| match value {
                Value::String(text) => encode(text, host),
                Value::Array(list) if !list.is_empty() => ids(list).ok_or_else(wrong),
                _ => Err(wrong()),
            };
            list.iter().map(one).collect::<Result<_, _>>()?
        }
        _ => return Err(wrong()),
    };
    prompts.into_iter().map(|ids| check_ids(ids, PARAM, host)).collect()
}

fn ids(list: &[Value]) -> Option<Vec<u32>> {
    list.iter().map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok())).collect()
}

/// A text as `run --raw` encodes it; a text without tokens becomes the beginning-of-sequence token.
fn encode(text: &str, host: &Host<'_>) -> Result<Vec<u32>, ApiError> {
    check_fits(host.tokenizer.fewest_tokens(text), "prompt", host)?;
    let ids = host.tokenizer.encode_raw(text).map_err(|error| ApiError::from_error(&error, "prompt"))?;
    match (ids.is_empty(), host.tokenizer.bos()) {
        (false, _) => Ok(ids),
        (true, Some(bos)) => Ok(vec![bos]),
        (true, None) => {
            let message = "prompt: it is empty, and this model has no beginning-of-sequence token to start from";
            Err(ApiError::invalid("prompt", message))
        }
    }
}

/// Holds ids against vocabulary and context.
fn check_ids(ids: Vec<u32>, param: &str, host: &Host<'_>) -> Result<Vec<u32>, ApiError> {
    if let Some(at) = ids.iter().position(|&id| id >= host.vocab) {
        let (got, vocab) = (ids[at], host.vocab);
        let message = format!("{param}: expected token ids below the vocabulary of {vocab}, got {got} (place {at})");
        return Err(ApiError::invalid(param, message));
    }
    let (prompt_tokens, context_tokens) = (ids.len() as u64, u64::from(host.context_tokens));
    if prompt_tokens >= context_tokens {
        let error = Error::ContextFull { prompt_tokens, context_tokens };
        return Err(ApiError::from_error(&error, param));
    }
    Ok(ids)
}

/// Refuses a prompt whose length alone says that it cannot fit, before it is rendered or encoded.
fn check_fits(fewest: u64, param: &str, host: &Host<'_>) -> Result<(), ApiError> {
    let context = host.context_tokens;
    if fewest < u64::from(context) {
        return Ok(());
    }
    let message = format!("at least {fewest} prompt tokens and 1 answer token exceed the context of {context} tokens");
    Err(ApiError::too_long(param, format!("prompt too long: {message}")))
}
