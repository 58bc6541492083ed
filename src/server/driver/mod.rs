//! The engine on its own thread, and what the rest of the server talks to it with.
//!
//! ```text
//! Handle ──Command──▶ thread: engine.wait(), outputs ──Said──▶ Answers (one a request body)
//!                       └ meter: figures    └ feed: the trace, live
//! ```
//! The thread never waits for a reader: what is said of an answer goes into its mailbox, and a reader that leaves too much
//! there loses its answer. Dropping [`Answers`] cancels what has not ended.

mod feed;
mod meter;
mod recovery;
mod thread;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;

use tokio::sync::{broadcast, oneshot};

use crate::clock::Clock;
use crate::engine::request::{FinishReason, Request, RequestId, Token};
use crate::error::{Error, Result};
use crate::limits::ANSWER_BYTES_MAX;

pub use meter::Meter;
pub use thread::{Driver, Line, Rebuild};

/// What the engine thread is asked to do.
enum Command {
    /// Take these requests, all or none.
    Ask(Ask),
    /// These answers are complete by a rule of the caller's.
    Stop(RequestId),
    /// Nobody waits for these any more.
    Cancel(Vec<RequestId>),
    /// Somebody watches the trace from now on.
    Watch(oneshot::Sender<Watch>),
    /// Every answer ends with this.
    FailAll(Failure),
    /// End the thread when nothing is left to do.
    Finish,
}

struct Ask {
    requests: Vec<Request>,
    mailbox: Mailbox,
    reply: oneshot::Sender<Result<Vec<RequestId>>>,
}

/// Why an answer broke off, though the request was good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The server goes down.
    ShuttingDown,
    /// The device is lost for good.
    DeviceLost,
    /// The client read too slowly.
    SlowReader,
}

/// What is said of one choice of a body.
#[derive(Debug)]
pub struct Said {
    /// Which of the body's choices.
    pub choice: usize,
    /// What.
    pub what: What,
}

/// See [`Said`].
#[derive(Debug)]
pub enum What {
    /// It has its slot.
    Admitted {
        /// Leading tokens that were cached.
        cached_tokens: u32,
        /// When, by the engine's clock.
        nanos: u64,
    },
    /// Its next token.
    Token(Token),
    /// The mean of its prompt's last hidden states.
    Pooled(Vec<f32>),
    /// Its end.
    Finished(FinishReason),
    /// Its end, and the body's.
    Failed(Failure),
}

/// The trace so far as it matters, and from here on; lines of JSON without their newline.
pub struct Watch {
    /// The head, and what is live.
    pub snapshot: Vec<Arc<str>>,
    /// What follows.
    pub live: broadcast::Receiver<Arc<str>>,
}

/// The writing end of what is said of one body.
#[derive(Clone)]
struct Mailbox {
    sender: tokio::sync::mpsc::UnboundedSender<Said>,
    bytes: Arc<AtomicUsize>,
}

impl Mailbox {
    /// Puts something in; `false` when nobody takes it or too much lies there already.
    fn put(&self, said: Said) -> bool {
        let bytes = said.bytes();
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > ANSWER_BYTES_MAX {
            let _ = self.sender.send(Said { choice: said.choice, what: What::Failed(Failure::SlowReader) });
            return false;
        }
        self.sender.send(said).is_ok()
    }
}

impl Said {
    /// Memory it takes.
    fn bytes(&self) -> usize {
        let more = match &self.what {
            What::Token(token) => token.top.len() * size_of::<(u32, f32)>(),
            What::Pooled(mean) => mean.len() * size_of::<f32>(),
            _ => 0,
        };
        size_of::<Self>() + more
    }
}

/// The reading end: what is said of the choices of one body. Dropped, it cancels those that have not ended.
pub struct Answers {
    receiver: tokio::sync::mpsc::UnboundedReceiver<Said>,
    bytes: Arc<AtomicUsize>,
    ids: Vec<RequestId>,
    open: usize,
    commands: mpsc::Sender<Command>,
}

impl Answers {
    /// What is said next; `None` when the engine is gone.
    pub async fn next(&mut self) -> Option<Said> {
        let said = self.receiver.recv().await;
        self.taken(said)
    }

    /// What is said already, without waiting.
    pub fn next_now(&mut self) -> Option<Said> {
        let said = self.receiver.try_recv().ok();
        self.taken(said)
    }

    fn taken(&mut self, said: Option<Said>) -> Option<Said> {
        let said = said?;
        self.bytes.fetch_sub(said.bytes(), Ordering::Relaxed);
        if matches!(said.what, What::Finished(_)) {
            self.open = self.open.saturating_sub(1);
        }
        Some(said)
    }

    /// A choice is complete by the caller's rule, such as a stop string.
    pub fn stop(&mut self, choice: usize) {
        let _ = self.commands.send(Command::Stop(self.ids[choice]));
    }

    /// The engine's names of the choices.
    #[must_use]
    pub fn ids(&self) -> &[RequestId] {
        &self.ids
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        if self.open > 0 {
            let _ = self.commands.send(Command::Cancel(std::mem::take(&mut self.ids)));
        }
    }
}

/// What the engine thread tells of itself, readable at any time.
#[derive(Debug, Default)]
struct Pulse {
    /// There is work.
    busy: AtomicBool,
    /// When the last step ended or work began, by the engine's clock.
    moved_nanos: AtomicU64,
}

/// Talks to the engine thread.
#[derive(Clone)]
pub struct Handle {
    commands: mpsc::Sender<Command>,
    pulse: Arc<Pulse>,
    clock: Clock,
    watchdog_nanos: u64,
}

impl Handle {
    /// Nanoseconds on the engine's clock.
    #[must_use]
    pub fn nanos(&self) -> u64 {
        self.clock.nanos()
    }

    /// The engine's clock.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Hands requests over, all or none; they share the reader.
    ///
    /// # Errors
    /// The engine's: `Busy`, `ContextFull`, `Request`; `Cancelled` when it is gone.
    pub async fn ask(&self, requests: Vec<Request>) -> Result<Answers> {
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
        let bytes = Arc::new(AtomicUsize::new(0));
        let (reply, replied) = oneshot::channel();
        let mailbox = Mailbox { sender, bytes: Arc::clone(&bytes) };
        let ask = Command::Ask(Ask { requests, mailbox, reply });
        self.commands.send(ask).map_err(|_| Error::Cancelled)?;
        let ids = replied.await.map_err(|_| Error::Cancelled)??;
        Ok(Answers { receiver, bytes, open: ids.len(), ids, commands: self.commands.clone() })
    }

    /// Watches the trace.
    ///
    /// # Errors
    /// `Cancelled` when the engine is gone.
    pub async fn watch(&self) -> Result<Watch> {
        let (reply, replied) = oneshot::channel();
        self.commands.send(Command::Watch(reply)).map_err(|_| Error::Cancelled)?;
        replied.await.map_err(|_| Error::Cancelled)
    }

    /// Ends every answer.
    pub fn fail_all(&self, failure: Failure) {
        let _ = self.commands.send(Command::FailAll(failure));
    }

    /// Ends the thread once all answers have ended.
    pub fn finish(&self) {
        let _ = self.commands.send(Command::Finish);
    }

    /// Whether work waits and no step has ended for longer than the watchdog allows.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        let moved = self.pulse.moved_nanos.load(Ordering::Relaxed);
        self.pulse.busy.load(Ordering::Relaxed) && self.clock.nanos().saturating_sub(moved) > self.watchdog_nanos
    }
}
