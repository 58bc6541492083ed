//! HTTP: OpenAI's routes and the usual ones beside them.
//!
//! ```text
//! listen      connections, their limits, drain
//! guard       Host, Origin, key: who may ask
//! route       the table of routes
//! answer      chat and completions      embeddings, tokens, models, status: the rest
//! reply       bodies and errors as clients expect them
//! page        the browser app's files, and the model's for it
//! ```

mod answer;
mod embeddings;
mod guard;
mod listen;
mod page;
mod reply;
mod route;
mod status;
mod texts;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::{Semaphore, watch};

use super::driver::{Handle, Meter};
use super::openai::{ApiError, Host};
use crate::engine::sampling::SamplingParams;
use crate::limits::BODIES_READ_MAX;
use crate::text::chat::ChatTemplate;
use crate::text::tokenizer::Tokenizer;

pub use guard::{Access, Key};
pub use listen::{Lifetime, bind, serve};

/// Where the server is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The model is not there yet.
    Loading,
    /// It answers.
    Ready,
    /// It takes nothing new.
    Draining,
    /// The engine has ended.
    Over,
}

/// What answers, once the model is there.
pub struct Loaded {
    /// Names that requests may use; the first one is told.
    pub names: Vec<String>,
    /// The model's own name.
    pub root: String,
    /// Its file, where it is one.
    pub file: Option<std::path::PathBuf>,
    /// The model's.
    pub tokenizer: Tokenizer,
    /// The model's, if it has one that works.
    pub template: Option<ChatTemplate>,
    /// Sampling where a body says nothing.
    pub defaults: SamplingParams,
    /// Tokens of prompt and answer together.
    pub context_tokens: u32,
    /// Token ids are below it.
    pub vocab: u32,
    /// Width of an embedding.
    pub width: u32,
    /// Requests that may wait, and so the most of one body.
    pub queue_max: usize,
    /// The engine.
    pub engine: Handle,
    /// Its figures.
    pub meter: Meter,
    /// Seconds since 1970 at which it was loaded.
    pub created: i64,
}

/// What all handlers share.
pub struct Server {
    /// The model.
    pub loaded: OnceLock<Loaded>,
    /// Where the server is.
    pub phase: watch::Sender<Phase>,
    /// Who may ask.
    pub access: Access,
    /// The files of the browser app, when they are built.
    pub files: Option<std::path::PathBuf>,
    /// From which seeds are drawn that nobody chose.
    pub seed: u64,
    /// Distinguishes this process's answers.
    pub run: u64,
    /// Answers so far.
    pub count: AtomicU64,
    /// What bodies hold.
    bodies: reply::Bodies,
    /// Places for those that are read into requests.
    readers: Arc<Semaphore>,
}

/// A server as handlers hold it.
pub type Shared = Arc<Server>;

impl Server {
    /// A server whose model is still loading.
    #[must_use]
    pub fn new(access: Access, files: Option<std::path::PathBuf>, seed: u64, run: u64) -> Self {
        let phase = watch::Sender::new(Phase::Loading);
        let (loaded, count, bodies) = (OnceLock::new(), AtomicU64::new(0), reply::Bodies::default());
        Self {
            loaded,
            phase,
            access,
            files,
            seed,
            run,
            count,
            bodies,
            readers: Arc::new(Semaphore::new(BODIES_READ_MAX)),
        }
    }

    /// Reads a body where it may take long, templates and tokenizers do: not on a thread that others' streams wait for.
    async fn read<T: Send + 'static>(
        self: &Shared,
        request: axum::extract::Request,
        read: impl FnOnce(&Self, &serde_json::Value) -> std::result::Result<T, ApiError> + Send + 'static,
    ) -> std::result::Result<T, ApiError> {
        self.answers()?;
        let body = reply::body(self, request).await?;
        let place = self.readers.clone().acquire_owned().await;
        let place = place.map_err(|_| ApiError::internal("nobody reads bodies any more"))?;
        let server = self.clone();
        let done = tokio::task::spawn_blocking(move || {
            // Kept to the end, also when the client has left meanwhile.
            let _place = place;
            let value = reply::parsed(&body.bytes)?;
            drop(body);
            read(&server, &value)
        });
        done.await.map_err(|_| ApiError::internal("the body could not be read"))?
    }

    /// The model is there.
    pub fn ready(&self, loaded: Loaded) {
        assert!(self.loaded.set(loaded).is_ok(), "a model is loaded once");
        self.phase.send_if_modified(|phase| {
            let is_loading = *phase == Phase::Loading;
            if is_loading {
                *phase = Phase::Ready;
            }
            is_loading
        });
    }

    /// A number that no other answer of this process has.
    fn next(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }
}

impl Loaded {
    /// As bodies are read and written with, for a request that named the model `name`.
    fn host<'a>(&'a self, name: &'a str) -> Host<'a> {
        Host {
            model: name,
            tokenizer: &self.tokenizer,
            template: self.template.as_ref(),
            defaults: &self.defaults,
            context_tokens: self.context_tokens,
            vocab: self.vocab,
        }
    }
}
