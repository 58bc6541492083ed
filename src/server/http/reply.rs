//! Bodies and errors as clients expect them.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use serde::Serialize;
use serde_json::Value;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::super::driver::Failure;
use super::super::openai::{ApiError, ErrorBody};
use super::Shared;
use crate::limits::{BODIES_BYTES_MAX, BODY_BYTES_MAX, BODY_SECONDS_MAX};

/// Seconds after which a client that was sent away may try again.
const RETRY_SECONDS: &str = "1";

/// A JSON body.
pub(super) fn json<T: Serialize>(value: &T) -> Response {
    with_status(StatusCode::OK, value)
}

fn with_status<T: Serialize>(status: StatusCode, value: &T) -> Response {
    let body = serde_json::to_vec(value).expect("a plain struct serialises");
    (status, [(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

/// An error with a status of its own.
pub(super) fn error(status: u16, kind: &'static str, code: Option<&'static str>, message: &str) -> ApiError {
    ApiError { status, body: ErrorBody { message: message.to_owned(), kind, param: None, code } }
}

/// What is answered while there is no engine to ask.
pub(super) fn unavailable(code: &'static str, message: &str) -> ApiError {
    error(503, "service_unavailable", Some(code), message)
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Failed {
            error: ErrorBody,
        }
        let status = StatusCode::from_u16(self.status).expect("a status of ours");
        let is_broken = self.body.code == Some("invalid_body");
        let mut response = with_status(status, &Failed { error: self.body });
        let headers = response.headers_mut();
        if matches!(self.status, 429 | 503) {
            headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_SECONDS));
        }
        if self.status == 401 {
            headers.insert("www-authenticate", HeaderValue::from_static("Bearer"));
        }
        if matches!(self.status, 408 | 413) || is_broken {
            // What is left of the body is not read.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::ShuttingDown => unavailable("shutting_down", "the server is shutting down: ask again"),
            Failure::DeviceLost => {
                unavailable("device_lost", "the device is lost and cannot be rebuilt: ask again later")
            }
            Failure::SlowReader => {
                error(500, "server_error", Some("slow_reader"), "the answer was read too slowly and is broken off")
            }
        }
    }
}

/// Bodies of all connections, in bytes.
#[derive(Default)]
pub(super) struct Bodies(AtomicUsize);

/// A body; its bytes count among all until it is dropped.
pub(super) struct Held {
    pub(super) bytes: Vec<u8>,
    server: Shared,
}

impl Held {
    /// Takes what has come.
    fn push(&mut self, part: &[u8]) -> Result<(), ApiError> {
        let before = self.server.bodies.0.fetch_add(part.len(), Ordering::SeqCst);
        self.bytes.extend_from_slice(part);
        if before + part.len() > BODIES_BYTES_MAX {
            let message = "too many large bodies at once";
            return Err(error(429, "rate_limit_error", Some("concurrency"), message));
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.server.bodies.0.fetch_sub(self.bytes.len(), Ordering::SeqCst);
    }
}

/// The request's whole body.
pub(super) async fn body(server: &Shared, request: Request) -> Result<Held, ApiError> {
    let too_large = || {
        let message = format!("body: expected at most {BODY_BYTES_MAX} bytes");
        error(413, "invalid_request_error", Some("body_too_large"), &message)
    };
    let declared = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|bytes| bytes > BODY_BYTES_MAX as u64) {
        return Err(too_large());
    }
    let mut held = Held { bytes: Vec::new(), server: server.clone() };
    let mut parts = request.into_body().into_data_stream();
    let read = async {
        while let Some(part) = parts.next().await {
            let part = part.map_err(|cause| {
                let message = format!("body: expected all of it, got an error: {cause}");
                error(400, "invalid_request_error", Some("invalid_body"), &message)
            })?;
            if held.bytes.len() + part.len() > BODY_BYTES_MAX {
                return Err(too_large());
            }
            held.push(&part)?;
        }
        Ok(())
    };
    match tokio::time::timeout(Duration::from_secs(BODY_SECONDS_MAX), read).await {
        Ok(read) => read.map(|()| held),
        Err(_) => {
            let message = format!("body: expected within {BODY_SECONDS_MAX} s");
            Err(error(408, "invalid_request_error", Some("body_timeout"), &message))
        }
    }
}

/// The body as JSON.
pub(super) fn parsed(body: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(body).map_err(|cause| {
        let message = format!("body: expected JSON, got an error: {cause}");
        error(400, "invalid_request_error", Some("invalid_json"), &message)
    })
}

/// A stream of server-sent events.
pub(super) fn events(body: Body) -> Response {
    let headers = [
        ("content-type", HeaderValue::from_static("text/event-stream; charset=utf-8")),
        ("cache-control", HeaderValue::from_static("no-cache")),
        // A proxy that gathers events would make gaps of its own.
        ("x-accel-buffering", HeaderValue::from_static("no")),
    ];
    (headers, body).into_response()
}
