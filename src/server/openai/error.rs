//! Errors as OpenAI's clients know them: a status and `{message, type, param, code}`.

use serde::Serialize;
use serde_json::Value;

use crate::error::Error;

/// Most characters of a client's value that a message repeats.
const SHOWN_CHARS_MAX: usize = 60;

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// The HTTP status.
    pub status: u16,
    /// What the client is told.
    pub body: ErrorBody,
}

/// The object under `error` in a body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorBody {
    /// For people.
    pub message: String,
    /// The class, e.g. `invalid_request_error`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The field that is wrong.
    pub param: Option<String>,
    /// For programs, e.g. `context_length_exceeded`.
    pub code: Option<&'static str>,
}

impl ApiError {
    /// A field that makes no sense: status 400. The message names the field.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        let kind = "invalid_request_error";
        Self { status: 400, body: ErrorBody { message: message.into(), kind, param: Some(param.into()), code: None } }
    }

    /// A field whose value is not what it must be.
    pub fn expected(param: impl Into<String>, expected: &str, got: Option<&Value>) -> Self {
        let param = param.into();
        let got = got.map_or_else(|| "nothing".to_owned(), shown);
        let message = format!("{param}: expected {expected}, got {got}");
        Self::invalid(param, message)
    }

    /// The same error with a code.
    #[must_use]
    pub fn with_code(mut self, code: &'static str) -> Self {
        self.body.code = Some(code);
        self
    }

    /// What an error of the layers below means to a client; `param` is the field that led there.
    #[must_use]
    pub fn from_error(error: &Error, param: &str) -> Self {
        let message = error.to_string();
        match error {
            Error::ContextFull { .. } => Self::too_long(param, message),
            Error::Request(_) | Error::Template(_) | Error::Tokenizer(_) => {
                Self::invalid(param, format!("{param}: {message}"))
            }
            Error::Busy(_) => {
                let body = ErrorBody { message, kind: "rate_limit_error", param: None, code: Some("queue_full") };
                Self { status: 429, body }
            }
            _ => Self::internal(message),
        }
    }

    /// Prompt and answer exceed the context.
    pub fn too_long(param: &str, message: impl Into<String>) -> Self {
        Self::invalid(param, message).with_code("context_length_exceeded")
    }

    /// Not the client's fault.
    pub fn internal(message: impl Into<String>) -> Self {
        let body = ErrorBody { message: message.into(), kind: "server_error", param: None, code: None };
        Self { status: 500, body }
    }
}

/// A value as JSON, cut where it is long.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_have_openais_four_fields_and_name_what_is_wrong() {
        let error = ApiError::expected("top_p", "a number", Some(&json!("hot")));
        let body = serde_json::to_value(&error.body).expect("plain");
        let message = "top_p: expected a number, got \"hot\"";
        assert_eq!(error.status, 400);
        assert_eq!(body, json!({"message": message, "type": "invalid_request_error", "param": "top_p", "code": null}));
        let long = ApiError::expected("stop", "text", Some(&json!("x".repeat(900)))).body.message;
        assert!(long.chars().count() < 100 && long.ends_with('…'), "{long}");
    }

    #[test]
    fn errors_below_keep_their_meaning() {
        let check = |error: Error, status: u16, code: Option<&str>| {
            let got = ApiError::from_error(&error, "prompt");
            assert_eq!((got.status, got.body.code), (status, code), "{error}");
        };
        check(Error::ContextFull { prompt_tokens: 9, context_tokens: 8 }, 400, Some("context_length_exceeded"));
        check(Error::Template("roles must alternate".into()), 400, None);
        check(Error::Busy("full".into()), 429, Some("queue_full"));
        check(Error::NotFinite { position: 3 }, 500, None);
    }
}
