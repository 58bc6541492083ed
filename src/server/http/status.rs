//! What the server tells of itself: models, health, figures, version, the live trace.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::super::driver::Failure;
use super::super::openai::{ApiError, PING};
use super::{Loaded, Phase, Shared, reply};
use crate::limits::PING_SECONDS;

/// `/health`.
pub(super) async fn health(State(server): State<Shared>) -> Response {
    let phase = *server.phase.borrow();
    let (status, code) = match phase {
        Phase::Loading => ("loading", "loading"),
        Phase::Draining | Phase::Over => ("draining", "shutting_down"),
        Phase::Ready if server.loaded.get().is_some_and(|loaded| loaded.engine.is_stuck()) => ("stuck", "stuck"),
        Phase::Ready => return reply::json(&json!({"status": "ok"})),
    };
    reply::unavailable(code, &format!("not ready: {status}")).into_response()
}

/// `/version`.
pub(super) async fn version() -> Response {
    reply::json(&json!({"version": env!("CARGO_PKG_VERSION")}))
}

/// `/metrics`.
pub(super) async fn metrics(State(server): State<Shared>) -> Response {
    let Some(loaded) = server.loaded.get() else {
        return reply::unavailable("loading", "the model is still loading: ask again").into_response();
    };
    let text = loaded.meter.text();
    ([(CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"))], text).into_response()
}

fn card(loaded: &Loaded, name: &str) -> Value {
    json!({
        "id": name,
        "object": "model",
        "created": loaded.created,
        "owned_by": "twostroke",
        "root": loaded.root,
        "parent": null,
        "max_model_len": loaded.context_tokens,
    })
}

/// `/v1/models`.
pub(super) async fn models(State(server): State<Shared>) -> Result<Response, ApiError> {
    let loaded = server.answers()?;
    let cards: Vec<Value> = loaded.names.iter().map(|name| card(loaded, name)).collect();
    Ok(reply::json(&json!({"object": "list", "data": cards})))
}

/// `/v1/models/NAME`.
pub(super) async fn model(
    State(server): State<Shared>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let loaded = server.answers()?;
    let Path(name) = name.map_err(|cause| ApiError::invalid("model", format!("model: {}", cause.body_text())))?;
    let name = loaded.named(&json!({"model": name}))?;
    Ok(reply::json(&card(loaded, name)))
}

/// `/v1/trace`: what is live, then every event, until the server drains: a watcher is nothing to wait for.
pub(super) async fn trace(State(server): State<Shared>) -> Result<Response, ApiError> {
    let loaded = server.answers()?;
    let watch = loaded.engine.watch().await.map_err(|_| ApiError::from(Failure::ShuttingDown))?;
    let mut first = String::new();
    watch.snapshot.iter().for_each(|line| push(&mut first, line));
    let phase = server.phase.subscribe();
    let parts = stream::unfold(Some((Some(first), watch.live, phase)), |state| async move {
        let (first, mut live, mut phase) = state?;
        if let Some(first) = first {
            return Some((Ok::<Bytes, Infallible>(first.into()), Some((None, live, phase))));
        }
        let (part, goes_on) = tokio::select! {
            _ = phase.wait_for(|phase| *phase != Phase::Ready) => None,
            next = next(&mut live) => next,
        }?;
        Some((Ok(part), goes_on.then_some((None, live, phase))))
    });
    Ok(reply::events(Body::from_stream(parts)))
}

/// Events that are there, and whether more may follow. A watcher that lags too far behind is told, and let go.
async fn next(live: &mut Receiver<Arc<str>>) -> Option<(Bytes, bool)> {
    let Ok(line) = tokio::time::timeout(Duration::from_secs(PING_SECONDS), live.recv()).await else {
        return Some((Bytes::from_static(PING.as_bytes()), true));
    };
    match line {
        Ok(line) => {
            let mut out = String::new();
            push(&mut out, &line);
            while let Ok(line) = live.try_recv() {
                push(&mut out, &line);
            }
            Some((out.into(), true))
        }
        Err(RecvError::Lagged(count)) => {
            let mut out = String::new();
            let message = format!("{count} events were missed: watch anew");
            super::super::openai::Stream::error(&mut out, &reply::error(500, "server_error", Some("lagged"), &message));
            Some((out.into(), false))
        }
        Err(RecvError::Closed) => None,
    }
}

fn push(out: &mut String, line: &str) {
    out.push_str("data: ");
    out.push_str(line);
    out.push_str("\n\n");
}
