//! `/v1/embeddings`: inputs in waves, so that a long list does not fill the queue.

use axum::extract::{Extension, Request, State};
use axum::response::Response;

use super::super::driver::{Failure, What};
use super::super::openai::{ApiError, Embeddings};
use super::guard::{Client, Working};
use super::{Shared, reply};
use crate::engine::request::FinishReason;
use crate::error::Error;
use crate::limits::CHOICES_MAX;

const PARAM: &str = "input";

/// `/v1/embeddings`.
pub(super) async fn embeddings(
    State(server): State<Shared>,
    Extension(working): Extension<Working>,
    Extension(client): Extension<Client>,
    request: Request,
) -> Result<Response, ApiError> {
    server.answers()?;
    let _place = working.enter(&client)?;
    let read = server.read(request, |server, body| {
        let loaded = server.answers()?;
        let model = loaded.named(body)?.to_owned();
        Ok((Embeddings::read(body, &loaded.host(&model), loaded.width)?, model, loaded.queue_max))
    });
    let (embeddings, model, queue_max) = read.await?;
    let mut means: Vec<Vec<f32>> = Vec::new();
    let mut requests = embeddings.requests();
    loop {
        let wave: Vec<_> = requests.by_ref().take(queue_max.min(CHOICES_MAX as usize)).collect();
        if wave.is_empty() {
            return Ok(reply::json(&embeddings.response(means, &model)));
        }
        let first = means.len();
        means.resize(first + wave.len(), Vec::new());
        let mut left = wave.len();
        let wave = wave.into_iter().map(|mut request| {
            (request.tenant, request.arrived_nanos) = (client.tenant, Some(client.arrived_nanos));
            request
        });
        let asked = server.answers()?.engine.ask(wave.collect()).await;
        let mut answers = asked.map_err(|error| match error {
            Error::Cancelled => Failure::ShuttingDown.into(),
            error => ApiError::from_error(&error, PARAM),
        })?;
        while left > 0 {
            let said = answers.next().await.ok_or(Failure::ShuttingDown)?;
            match said.what {
                What::Admitted { .. } | What::Token(_) => {}
                What::Pooled(mean) => means[first + said.choice] = mean,
                What::Finished(FinishReason::Stop | FinishReason::Length) => left -= 1,
                What::Finished(FinishReason::Cancelled) => return Err(Failure::ShuttingDown.into()),
                What::Finished(FinishReason::NotFinite) => {
                    let message = "the model yielded hidden states or logits that are not finite";
                    return Err(reply::error(500, "server_error", Some("model_numerics"), message));
                }
                What::Failed(failure) => return Err(failure.into()),
            }
        }
    }
}
