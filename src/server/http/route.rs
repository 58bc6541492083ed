//! The table of routes.

use std::time::Duration;

use axum::Router;
use axum::extract::Extension;
use axum::handler::HandlerWithoutStateExt;
use axum::http::{HeaderValue, Method, Uri};
use axum::middleware::{from_fn_with_state, map_response};
use axum::routing::{get, post};
use tower_http::cors::{AllowOrigin, Any, CorsLayer};
use tower_http::services::ServeDir;

use super::super::openai::ApiError;
use super::guard::{self, Working};
use super::{Shared, answer, embeddings, page, reply, status, texts};

/// How long a browser may remember what an origin may do.
const CORS_SECONDS: u64 = 3600;

/// All routes, behind the guard.
pub(super) fn router(server: Shared) -> Router {
    let mut router = Router::new()
        .route("/v1/chat/completions", post(answer::chat))
        .route("/v1/completions", post(answer::completions))
        .route("/v1/embeddings", post(embeddings::embeddings))
        .route("/v1/models", get(status::models))
        .route("/v1/models/{*name}", get(status::model))
        .route("/v1/trace", get(status::trace))
        .route("/tokenize", post(texts::tokenize))
        .route("/detokenize", post(texts::detokenize))
        .route("/apply-template", post(texts::apply_template))
        .route("/health", get(status::health))
        .route("/metrics", get(status::metrics))
        .route("/version", get(status::version))
        .route("/model.gguf", get(page::model))
        .method_not_allowed_fallback(wrong_method);
    router = match &server.files {
        Some(folder) => {
            let folder = ServeDir::new(folder).call_fallback_on_method_not_allowed(true);
            let files = Router::new().fallback_service(folder.fallback(unknown.into_service()));
            router.fallback_service(files.layer(map_response(page::headers)))
        }
        None => router.fallback(unknown),
    };
    let guarded = router.layer(Extension(Working::default())).layer(from_fn_with_state(server.clone(), guard::guard));
    let origins: Vec<HeaderValue> = server.access.origins.iter().filter_map(|origin| origin.parse().ok()).collect();
    let routes = if origins.is_empty() {
        guarded
    } else {
        let cors = CorsLayer::new()
            .allow_origin(AllowOrigin::list(origins))
            .allow_methods([Method::GET, Method::POST])
            .allow_headers(Any)
            .max_age(Duration::from_secs(CORS_SECONDS));
        guarded.layer(cors)
    };
    routes.with_state(server)
}

async fn unknown(uri: Uri) -> ApiError {
    let path: String = uri.path().chars().take(100).collect();
    reply::error(404, "invalid_request_error", Some("unknown_url"), &format!("there is nothing at {path}"))
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    let path: String = uri.path().chars().take(100).collect();
    let message = format!("{path} does not take {method}");
    reply::error(405, "invalid_request_error", Some("method_not_allowed"), &message)
}
