//! Batch files: one request a line in, one response a line out.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::{ApiError, ErrorBody};
use super::fields::Fields;
use super::job::Endpoint;
use super::response::Body;

/// A line of the input.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The user's name for it, where it could be read.
    pub custom_id: Option<String>,
    /// What it asks, or what is wrong with it.
    pub asked: Result<Asked, ApiError>,
}

/// Where a line goes, and with what.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// From `url`.
    pub endpoint: Endpoint,
    /// From `body`, not looked at.
    pub body: Value,
}

impl Line {
    /// Reads `{custom_id, method, url, body}`.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Self {
        let value: Value = match serde_json::from_slice(bytes) {
            Ok(value) => value,
            Err(error) => return Self::wrong(format!("line: expected a JSON object, got: {error}")),
        };
        let custom_id = value["custom_id"].as_str().map(str::to_owned);
        Self { custom_id, asked: asked(value) }
    }

    /// A line that cannot be read at all.
    #[must_use]
    pub fn wrong(message: String) -> Self {
        let error = ApiError::invalid("line", message).with_code("invalid_json_line");
        Self { custom_id: None, asked: Err(error) }
    }
}

fn asked(mut line: Value) -> Result<Asked, ApiError> {
    let object = line.as_object().ok_or_else(|| ApiError::expected("line", "a JSON object", Some(&line)))?;
    let fields = Fields(object);
    let required =
        |name: &str| fields.text(name)?.ok_or_else(|| ApiError::expected(name, "a string", fields.get(name)));
    required("custom_id")?;
    let method = required("method")?;
    if method != "POST" {
        return Err(ApiError::expected("method", "POST", fields.get("method")));
    }
    let endpoint = Endpoint::from_path(required("url")?).ok_or_else(|| {
        let paths = Endpoint::ALL.map(Endpoint::path).join(" or ");
        ApiError::expected("url", &paths, fields.get("url")).with_code("invalid_url")
    })?;
    if !line["body"].is_object() {
        return Err(ApiError::expected("body", "a JSON object", fields.get("body")));
    }
    Ok(Asked { endpoint, body: line["body"].take() })
}

/// A line of the output.
#[derive(Debug, Serialize)]
pub struct Row {
    id: String,
    custom_id: Option<String>,
    response: Response,
    error: Option<ErrorBody>,
}

#[derive(Debug, Serialize)]
struct Response {
    status_code: u16,
    request_id: String,
    body: Content,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Content {
    Done(Box<Body>),
    Failed { error: ErrorBody },
}

impl Row {
    /// The row of a line. `name` tells it from others, of other runs too. What went wrong stands in the response's body, where
    /// OpenAI has it, and under `error`, where vLLM's readers look.
    #[must_use]
    pub fn new(name: &str, custom_id: Option<String>, outcome: Result<Body, ApiError>) -> Self {
        let (status_code, body, error) = match outcome {
            Ok(body) => (200, Content::Done(Box::new(body)), None),
            Err(error) => (error.status, Content::Failed { error: error.body.clone() }, Some(error.body)),
        };
        let response = Response { status_code, request_id: format!("req_{name}"), body };
        Self { id: format!("batch_req_{name}"), custom_id, response, error }
    }

    /// As one line of JSON, with its newline.
    #[must_use]
    pub fn to_line(&self) -> String {
        let mut line = serde_json::to_string(self).expect("a plain struct serialises");
        line.push('\n');
        line
    }
}

/// What of a row, read back, says which line it answers.
#[derive(Debug, Deserialize)]
struct Written {
    custom_id: Option<String>,
    #[serde(rename = "response")]
    _response: WrittenResponse,
}

#[derive(Debug, Deserialize)]
struct WrittenResponse {
    #[serde(rename = "status_code")]
    _status_code: u16,
}

/// The `custom_id` of a row that was written before; `None` for bytes that are no row.
#[must_use]
pub fn custom_id_of_row(line: &[u8]) -> Option<Option<String>> {
    serde_json::from_slice::<Written>(line).ok().map(|row| row.custom_id)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_names_its_endpoint_and_hands_its_body_on() {
        let body = json!({"prompt": "a", "max_tokens": 1});
        let line = json!({"custom_id": "x", "method": "POST", "url": "/v1/completions", "body": body, "more": 1});
        let read = Line::read(line.to_string().as_bytes());
        assert_eq!(read.custom_id.as_deref(), Some("x"));
        assert_eq!(read.asked, Ok(Asked { endpoint: Endpoint::Completions, body }));
    }

    #[test]
    fn a_wrong_line_names_its_field_and_keeps_its_custom_id() {
        let check = |line: &str, param: &str, custom_id: Option<&str>| {
            let read = Line::read(line.as_bytes());
            let error = read.asked.expect_err(line);
            assert_eq!((error.status, error.body.param.as_deref()), (400, Some(param)), "{line}");
            assert_eq!(read.custom_id.as_deref(), custom_id, "{line}");
        };
        check("{\"custom_id\": \"x\"", "line", None);
        check("[]", "line", None);
        check("7", "line", None);
        check("{}", "custom_id", None);
        check(r#"{"custom_id": 7, "method": "POST", "url": "/v1/completions", "body": {}}"#, "custom_id", None);
        check(r#"{"custom_id": "x", "url": "/v1/completions", "body": {}}"#, "method", Some("x"));
        check(r#"{"custom_id": "x", "method": "GET", "url": "/v1/completions", "body": {}}"#, "method", Some("x"));
        check(r#"{"custom_id": "x", "method": "POST", "body": {}}"#, "url", Some("x"));
        check(r#"{"custom_id": "x", "method": "POST", "url": "/v1/embeddings", "body": {}}"#, "url", Some("x"));
        check(r#"{"custom_id": "x", "method": "POST", "url": "/v1/completions"}"#, "body", Some("x"));
        check(r#"{"custom_id": "x", "method": "POST", "url": "/v1/completions", "body": []}"#, "body", Some("x"));
        assert!(Line::read(b"{\"custom_id\": \"\xff\"}").asked.is_err(), "no UTF-8");
    }

    #[test]
    fn a_failed_row_says_so_in_both_places_and_is_read_back() {
        let error = ApiError::expected("top_p", "a number", Some(&json!("x")));
        let line = Row::new("1-2", Some("x".into()), Err(error)).to_line();
        let row: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(row["response"]["status_code"], 400);
        assert_eq!((&row["response"]["body"]["error"], &row["error"]["param"]), (&row["error"], &json!("top_p")));
        let fields: Vec<&String> = row.as_object().expect("an object").keys().collect();
        assert_eq!(fields, ["id", "custom_id", "response", "error"]);
        assert_eq!(custom_id_of_row(line.as_bytes()), Some(Some("x".into())));
        assert_eq!(custom_id_of_row(&line.as_bytes()[..line.len() / 2]), None);
        assert_eq!(custom_id_of_row(b"{\"custom_id\": \"x\"}"), None);
    }
}
