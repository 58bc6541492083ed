//! A server of OpenAI's API as what a workload is played against: each request is a stream of server-sent events.
//!
//! ```text
//! submit ──▶ a task of its own: ask ──▶ events ──▶ Heard ──▶ poll ──▶ outputs
//!            └ every chunk's time is noted as it comes off the socket, by the clock that `now_nanos` reads
//! ```
//! How many tokens came is known at the end, from `usage`; so a request's outputs are told together then, each with its own
//! time. Chunks may hold several tokens, and a count of chunks is no count of tokens.

mod ask;
mod events;
mod heard;

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::AbortHandle;

use super::dataset::Planned;
use super::replay::{End, Output, Target};
use crate::clock::Clock;
use crate::error::{Error, Result};

pub use ask::{Endpoint, Place, Served};
pub use events::Events;
pub use heard::{Counted, Heard};

/// Longest that a poll waits, so that Ctrl-C is seen.
const POLL_MAX: Duration = Duration::from_millis(50);

/// Text of ids, for servers that take nothing else.
pub type Decode<'a> = &'a dyn Fn(&[u32]) -> Result<String>;

/// Tokens of an answer's text, where the server does not tell them.
pub type Count<'a> = &'a dyn Fn(&str) -> Option<u32>;

/// A server, and the requests that are on their way to it.
pub struct RemoteTarget<'a> {
    clock: Clock,
    asker: Arc<ask::Asker>,
    decode: Decode<'a>,
    count: Count<'a>,
    is_text_wanted: bool,
    sender: mpsc::Sender<(u64, Heard)>,
    receiver: mpsc::Receiver<(u64, Heard)>,
    open: BTreeMap<u64, AbortHandle>,
    /// Answers by how their tokens were counted.
    counted: BTreeMap<Counted, u64>,
    /// Dropped last, without waiting for what is in flight.
    runtime: Option<Runtime>,
}

impl<'a> RemoteTarget<'a> {
    /// Asks `place` what it serves; `model` is the name that requests use, the first that the server tells when `None`.
    ///
    /// # Errors
    /// `Request` when it cannot be reached, or tells no model and none is given.
    pub fn connect(place: &Place, model: Option<&str>) -> Result<(Self, Served)> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|e| Error::io("start threads", "tokio", e))?;
        let (asker, served) = runtime.block_on(ask::Asker::connect(place, model))?;
        let (sender, receiver) = mpsc::channel();
        let target = Self {
            clock: Clock::start(),
            asker: Arc::new(asker),
            decode: &|_| Err(Error::Tokenizer("no tokenizer to make texts of ids".into())),
            count: &|_| None,
            is_text_wanted: false,
            sender,
            receiver,
            open: BTreeMap::new(),
            counted: BTreeMap::new(),
            runtime: Some(runtime),
        };
        Ok((target, served))
    }

    /// With a tokenizer: `decode` makes texts of ids, `count` counts an answer's tokens where the server doesn't.
    #[must_use]
    pub fn with_tokenizer(mut self, decode: Decode<'a>, count: Count<'a>) -> Self {
        (self.decode, self.count) = (decode, count);
        self
    }

    /// Keeps answers' texts.
    #[must_use]
    pub fn with_texts(mut self, is_wanted: bool) -> Self {
        self.is_text_wanted = is_wanted;
        self
    }

    /// How many answers' tokens were counted how.
    #[must_use]
    pub fn counted(&self) -> &BTreeMap<Counted, u64> {
        &self.counted
    }

    fn take(&mut self, id: u64, heard: Heard, outputs: &mut Vec<Output>) {
        if self.open.remove(&id).is_none() {
            return;
        }
        let end_nanos = heard.end_nanos;
        match heard.into_answer(self.count) {
            Ok(answer) => {
                *self.counted.entry(answer.counted).or_default() += 1;
                outputs.extend(answer.chunks.iter().map(|&(nanos, tokens)| Output { id, nanos, tokens, end: None }));
                let end = End::Done {
                    prompt_tokens: answer.prompt_tokens,
                    cached_tokens: answer.cached_tokens,
                    text: self.is_text_wanted.then_some(answer.text),
                };
                outputs.push(Output { id, nanos: end_nanos, tokens: 0, end: Some(end) });
            }
            Err(why) => outputs.push(Output { id, nanos: end_nanos, tokens: 0, end: Some(End::Failed(why)) }),
        }
    }
}

impl Target for RemoteTarget<'_> {
    fn submit(&mut self, id: u64, request: &Planned, _: u64) -> Result<()> {
        let body = self.asker.body(request, self.decode)?;
        let tokens_max = request.output_tokens;
        let (asker, sender, clock) = (self.asker.clone(), self.sender.clone(), self.clock);
        let runtime = self.runtime.as_ref().expect("kept until dropped");
        let task = runtime.spawn(async move {
            let heard = asker.ask(body, tokens_max, &clock).await;
            // Nobody listens any more when the run was stopped.
            let _ = sender.send((id, heard));
        });
        self.open.insert(id, task.abort_handle());
        Ok(())
    }

    fn poll(&mut self, until_nanos: Option<u64>, outputs: &mut Vec<Output>) -> Result<()> {
        let left = until_nanos.map(|until| Duration::from_nanos(until.saturating_sub(self.clock.nanos())));
        if let Ok((id, heard)) = self.receiver.recv_timeout(left.unwrap_or(POLL_MAX).min(POLL_MAX)) {
            self.take(id, heard, outputs);
        }
        while let Ok((id, heard)) = self.receiver.try_recv() {
            self.take(id, heard, outputs);
        }
        Ok(())
    }

    fn cancel(&mut self, id: u64) {
        if let Some(task) = self.open.remove(&id) {
            task.abort();
        }
    }

    fn now_nanos(&self) -> u64 {
        self.clock.nanos()
    }
}

impl Drop for RemoteTarget<'_> {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
