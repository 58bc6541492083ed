//! From a body to the ids of its prompts.

use serde_json::Value;

use super::error::ApiError;
use super::fields::Fields;
use super::job::Host;
use crate::error::Error;
use crate::limits::MESSAGES_MAX;
use crate::text::chat::{ChatTemplate, Content, Message};

/// The one prompt of a chat: messages through the model's template.
pub(super) fn from_messages(fields: Fields<'_>, host: &Host<'_>) -> Result<Vec<u32>, ApiError> {
    const PARAM: &str = "messages";
    let template = template(host)?;
    let messages = messages(fields)?;
    check_fits(Message::fewest_tokens(&messages, host.tokenizer), PARAM, host)?;
    let ids = template.encode(host.tokenizer, &messages).map_err(|error| ApiError::from_error(&error, PARAM))?;
    check_ids(ids, PARAM, host)
}

/// Ids of what a `/tokenize` body holds: messages, a prompt, or llama-server's content.
///
/// # Errors
/// A body with none of them, or a text that the tokenizer refuses.
pub fn prompt_ids(body: &Value, host: &Host<'_>) -> Result<Vec<u32>, ApiError> {
    let object = body.as_object().ok_or_else(|| ApiError::expected("body", "a JSON object", Some(body)))?;
    let fields = Fields(object);
    if fields.get("messages").is_some() {
        let messages = messages(fields)?;
        let template = template(host)?;
        return template.encode(host.tokenizer, &messages).map_err(|error| ApiError::from_error(&error, "messages"));
    }
    let (name, text, special) = match (fields.text("prompt")?, fields.text("content")?) {
        // llama-server adds none unless told to.
        (None, Some(text)) => ("content", text, fields.flag("add_special")?),
        (prompt, _) => {
            let text =
                prompt.ok_or_else(|| ApiError::expected("prompt", "a text, or messages", fields.get("prompt")))?;
            ("prompt", text, fields.read("add_special_tokens", "true or false", Value::as_bool)?.unwrap_or(true))
        }
    };
    let ids = if special { host.tokenizer.encode_raw(text) } else { host.tokenizer.encode_parsing(text) };
    ids.map_err(|error| ApiError::from_error(&error, name))
}

/// The text that messages become.
///
/// # Errors
/// A body without messages, or what the template raises.
pub fn prompt_text(body: &Value, host: &Host<'_>) -> Result<String, ApiError> {
    let object = body.as_object().ok_or_else(|| ApiError::expected("body", "a JSON object", Some(body)))?;
    let messages = messages(Fields(object))?;
    template(host)?.render(&messages).map_err(|error| ApiError::from_error(&error, "messages"))
}

fn template<'a>(host: &Host<'a>) -> Result<&'a ChatTemplate, ApiError> {
    host.template.ok_or_else(|| {
        let message = "messages: this model has no chat template that works: ask /v1/completions instead";
        ApiError::invalid("messages", message)
    })
}

fn messages(fields: Fields<'_>) -> Result<Vec<Message>, ApiError> {
    let list = fields.get("messages").and_then(Value::as_array);
    let list = list.filter(|list| !list.is_empty() && list.len() <= MESSAGES_MAX).ok_or_else(|| {
        let expected = format!("a list of 1 to {MESSAGES_MAX} messages");
        match fields.get("messages").and_then(Value::as_array) {
            Some(list) => ApiError::invalid("messages", format!("messages: expected {expected}, got {}", list.len())),
            None => ApiError::expected("messages", &expected, fields.get("messages")),
        }
    })?;
    list.iter().enumerate().map(|(i, value)| message(i, value)).collect()
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

/// The prompts of a body, up to `most` of them: one text, one list of ids, or a list of either.
pub(super) fn from_field(
    param: &'static str,
    most: usize,
    fields: Fields<'_>,
    host: &Host<'_>,
) -> Result<Vec<Vec<u32>>, ApiError> {
    let wrong = || ApiError::expected(param, "a text, a list of token ids, or a list of either", fields.get(param));
    let value = fields.get(param).ok_or_else(wrong)?;
    let prompts = match value {
        Value::String(text) => vec![encode(text, param, host)?],
        Value::Array(list) if list.iter().all(Value::is_number) && !list.is_empty() => {
            vec![ids(list).ok_or_else(wrong)?]
        }
        Value::Array(list) if list.len() > most => {
            let message = format!("{param}: expected at most {most} prompts, got {}", list.len());
            return Err(ApiError::invalid(param, message));
        }
        Value::Array(list) if !list.is_empty() => {
            let one = |value: &Value| match value {
                Value::String(text) => encode(text, param, host),
                Value::Array(list) if !list.is_empty() => ids(list).ok_or_else(wrong),
                _ => Err(wrong()),
            };
            list.iter().map(one).collect::<Result<_, _>>()?
        }
        _ => return Err(wrong()),
    };
    prompts.into_iter().map(|ids| check_ids(ids, param, host)).collect()
}

/// Texts of a completion's prompts, for `echo`: as they were sent, or what their ids spell.
pub(super) fn texts(fields: Fields<'_>, prompts: &[Vec<u32>], host: &Host<'_>) -> Result<Vec<String>, ApiError> {
    let value = fields.get("prompt");
    let sent = |index: usize| match value {
        Some(Value::String(text)) => Some(text.as_str()),
        Some(Value::Array(list)) => list.get(index).and_then(Value::as_str),
        _ => None,
    };
    let text = |(index, ids): (usize, &Vec<u32>)| match sent(index) {
        Some(text) => Ok(text.to_owned()),
        None => host.tokenizer.decode(ids).map_err(|error| ApiError::from_error(&error, "prompt")),
    };
    prompts.iter().enumerate().map(text).collect()
}

fn ids(list: &[Value]) -> Option<Vec<u32>> {
    list.iter().map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok())).collect()
}

/// A text as `run --raw` encodes it; a text without tokens becomes the beginning-of-sequence token.
fn encode(text: &str, param: &str, host: &Host<'_>) -> Result<Vec<u32>, ApiError> {
    check_fits(host.tokenizer.fewest_tokens(text), param, host)?;
    let ids = host.tokenizer.encode_raw(text).map_err(|error| ApiError::from_error(&error, param))?;
    match (ids.is_empty(), host.tokenizer.bos()) {
        (false, _) => Ok(ids),
        (true, Some(bos)) => Ok(vec![bos]),
        (true, None) => {
            let message =
                format!("{param}: it is empty, and this model has no beginning-of-sequence token to start from");
            Err(ApiError::invalid(param, message))
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
