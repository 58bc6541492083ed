//! The browser app's files, and the model's own file for it: the page is its own engine, and needs nothing else of this server.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::response::{IntoResponse, Response};
use tower_http::services::ServeFile;

use super::{Shared, reply};

/// The page computes with its own code, talks to this server alone, and stands in no other page.
const POLICY: &str = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; connect-src 'self'; \
                      img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The model's file, whole or a range of it; 404 while it loads, and for a model that is not one file.
pub(super) async fn model(State(server): State<Shared>, request: Request) -> Response {
    let Some(path) = server.loaded.get().and_then(|loaded| loaded.file.as_ref()) else {
        let message = "the model of this server is not one GGUF file, or still loading";
        return reply::error(404, "invalid_request_error", Some("model_file"), message).into_response();
    };
    match ServeFile::new(path).try_call(request).await {
        Ok(response) => response.map(Body::new),
        Err(error) => {
            tracing::warn!(%error, "the model's file cannot be read");
            reply::error(500, "server_error", None, "the model's file cannot be read").into_response()
        }
    }
}

/// What browsers are told of the app's files.
pub(super) async fn headers(mut response: Response) -> Response {
    let fixed = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        // Another build stands under the same names.
        (CACHE_CONTROL, "no-cache"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
