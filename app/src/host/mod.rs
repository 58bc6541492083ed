//! The engine inside: a model opened, conversations asked of it, its events told. On a thread of its own natively, in a task of the
//! page in a browser; neither is ever waited for by a frame.
//!
//! ```text
//! Host ──Command──▶ Worker: engine, tokenizer, template ──Said──▶ Host::take, once a frame
//! open      from a choice of model and settings to an engine
//! worker    commands and outputs, one turn after the other
//! native / page   who turns it
//! ```

#[cfg(not(target_arch = "wasm32"))]
mod native;
mod open;
#[cfg(target_arch = "wasm32")]
mod page;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use futures_channel::mpsc::{UnboundedSender, unbounded};
use twostroke::engine::event::Event;
use twostroke::engine::request::RequestId;
use twostroke::engine::sampling::SamplingParams;
use twostroke::gpu::Measured;
use twostroke::model::TokenWork;
use twostroke::text::chat::Message;
use twostroke::text::tokenizer::Tokenizer;

#[cfg(not(target_arch = "wasm32"))]
use native as runner;
#[cfg(target_arch = "wasm32")]
use page as runner;

use crate::settings::Settings;

/// Which model.
#[derive(Debug, Clone)]
pub enum Source {
    /// The 7 MB model inside the program.
    Toy,
    /// As after `--model`: a file, a folder, `hf:ORG/REPO`; the default model when nothing is named.
    Named(Option<String>),
    /// A GGUF that the page holds.
    Bytes {
        /// For messages.
        name: String,
        /// All of it.
        bytes: Arc<[u8]>,
    },
}

impl Source {
    /// A name for people.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Toy => "toy",
            Self::Named(name) => name.as_deref().unwrap_or("the default model"),
            Self::Bytes { name, .. } => name,
        }
    }
}

/// Names an answer that was asked for, for its whole life; the caller's choice.
pub type AskId = u64;

/// What is asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Prompt {
    /// A conversation, by the model's own template.
    Messages(Vec<Message>),
    /// A text as it stands.
    Text(String),
    /// Ids, as a workload is played again.
    Ids(Vec<u32>),
}

/// A question.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// The caller's name of it.
    pub id: AskId,
    /// What.
    pub prompt: Prompt,
    /// Most tokens of the answer; `None` is the room left.
    pub max_tokens: Option<u32>,
    /// How tokens are chosen.
    pub sampling: SamplingParams,
    /// End tokens do not end it.
    pub ignore_eos: bool,
}

/// What the engine is asked to do.
enum Command {
    Adapters,
    Open(Source, Settings),
    Measure(Settings),
    Ask(Ask),
    Stop(AskId),
}

/// An adapter, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterFacts {
    /// Its name, kind and API.
    pub title: String,
    /// The best tier it has.
    pub tier: &'static str,
    /// The processor plays it.
    pub is_software: bool,
}

/// What was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The model's name.
    pub model: String,
    /// Architecture, size and format.
    pub kind: String,
    /// The adapter's name.
    pub adapter: String,
    /// Tier of its shaders.
    pub tier: &'static str,
    /// The processor plays it.
    pub is_software: bool,
    /// Context it serves.
    pub context_tokens: u32,
    /// Context that the model was made for.
    pub context_tokens_made_for: u32,
    /// Token ids are below it.
    pub vocab: u32,
    /// Bytes of a KV page in all layers.
    pub page_bytes: u64,
    /// What a token takes.
    pub work: TokenWork,
    /// Bytes of weights, KV and work space on the device.
    pub bytes: u64,
    /// It knows conversations.
    pub has_template: bool,
}

/// Why an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finish {
    /// The model's end.
    Stop,
    /// The limit, or the context.
    Length,
    /// Somebody stopped it.
    Stopped,
    /// It could not go on.
    Failed(String),
}

/// What the engine says.
#[derive(Debug, Clone)]
pub enum Said {
    /// What this machine has; adapters that were left out, with the reason.
    Adapters(Vec<AdapterFacts>, Vec<String>),
    /// Something long is under way.
    Busy {
        /// What.
        what: &'static str,
        /// How far.
        done: u64,
        /// Of so many; 0 when nobody knows.
        total: u64,
        /// These are bytes.
        is_bytes: bool,
    },
    /// Of the model that is there next, for workloads of texts.
    Tokenizer(Arc<Tokenizer>),
    /// A model is there.
    Opened(Facts),
    /// What the adapter can do.
    Measured(Measured),
    /// No model could be opened; a person can do something about it.
    Refused(String),
    /// The device failed; answers in flight were told. A new one is being made, or not.
    Lost(String),
    /// Of the trace.
    Event(Event),
    /// An answer has a place in the queue.
    Began {
        /// Which.
        id: AskId,
        /// The engine's name of it, as in the trace.
        request: RequestId,
        /// Ids of its prompt.
        prompt: Arc<[u32]>,
    },
    /// More of an answer; whole characters.
    Text {
        /// Which.
        id: AskId,
        /// What.
        text: String,
        /// The token it came with.
        token: u32,
    },
    /// What was held back of an answer: a character that stays incomplete. No token comes with it.
    Rest {
        /// Which.
        id: AskId,
        /// What.
        text: String,
    },
    /// An answer's end.
    Ended {
        /// Which.
        id: AskId,
        /// Why.
        finish: Finish,
    },
}

/// Talks to the engine.
pub struct Host {
    commands: UnboundedSender<Command>,
    said: Receiver<Said>,
    cancel: Arc<AtomicBool>,
}

impl Host {
    /// Starts an engine without a model. `wake` is called whenever something is said, from any thread.
    #[must_use]
    pub fn start(wake: impl Fn() + Send + 'static) -> Self {
        let (commands, received) = unbounded();
        let (sender, said) = channel();
        let cancel = Arc::new(AtomicBool::new(false));
        let says = Says { sender, wake: Box::new(wake), cancel: Arc::clone(&cancel) };
        runner::start(received, says);
        Self { commands, said, cancel }
    }

    /// Asks for the adapters of this machine.
    pub fn list_adapters(&self) {
        self.command(Command::Adapters);
    }

    /// Opens a model in place of the one that is open; what that answers still ends first with [`Finish::Stopped`].
    pub fn open(&self, source: Source, settings: Settings) {
        self.cancel.store(false, Ordering::Relaxed);
        self.command(Command::Open(source, settings));
    }

    /// Measures the adapter that these settings name.
    pub fn measure(&self, settings: Settings) {
        self.command(Command::Measure(settings));
    }

    /// Ends the opening that is under way; natively.
    pub fn cancel_opening(&self) {
        self.cancel.store(true, Ordering::Relaxed);
    }

    /// Asks.
    pub fn ask(&self, ask: Ask) {
        self.command(Command::Ask(ask));
    }

    /// Ends an answer where it is.
    pub fn stop(&self, id: AskId) {
        self.command(Command::Stop(id));
    }

    /// What was said, if anything.
    #[must_use]
    pub fn take(&self) -> Option<Said> {
        self.said.try_recv().ok()
    }

    fn command(&self, command: Command) {
        // The other end leaves only with the program.
        let _ = self.commands.unbounded_send(command);
    }
}

/// Where the worker says what happens.
struct Says {
    sender: Sender<Said>,
    wake: Box<dyn Fn() + Send>,
    cancel: Arc<AtomicBool>,
}

impl Says {
    fn say(&self, said: Said) {
        let _ = self.sender.send(said);
        (self.wake)();
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }
}
