//! The one error type. Outside input (file, request, driver, disk, peer) ends here; our own numbers end in assertions.
//!
//! A message says the operation, what was expected, what was got, and then where.

use std::path::PathBuf;

/// `Result` with our [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong with what comes from outside.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A model, tokenizer or configuration file whose content is not what it must be.
    #[error("{op}: expected {expected}, got {got} ({place})")]
    Format {
        /// What was being read, e.g. `tensor shape`.
        op: &'static str,
        /// What the reader needs.
        expected: String,
        /// What the file holds.
        got: String,
        /// File, and the tensor or key in it.
        place: String,
    },
    /// The operating system refused a read or a write.
    #[error("{op}: {source} ({path})")]
    Io {
        /// What was tried.
        op: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's own error.
        source: std::io::Error,
    },
    /// The format, architecture or option is known, but this build has no code for it.
    #[error("{what} is not supported{hint}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// Empty, or `: ` and what to do instead.
        hint: String,
    },
    /// A flag or argument that makes no sense. The binary exits with 2.
    #[error("{0}")]
    Usage(String),
    /// A request that cannot be served as it stands.
    #[error("{0}")]
    Request(String),
    /// The prompt and one answer token do not fit the context. Nothing was cut.
    #[error(
        "prompt too long: {prompt_tokens} prompt tokens and 1 answer token exceed the context of {context_tokens} tokens"
    )]
    ContextFull {
        /// Tokens of the prompt.
        prompt_tokens: u64,
        /// Tokens the context holds.
        context_tokens: u64,
    },
    /// Too much is waiting already; the same request may be taken later.
    #[error("busy: {0}")]
    Busy(String),
    /// The chat template raised, ran out of fuel or is not a template.
    #[error("chat template: {0}")]
    Template(String),
    /// The tokenizer cannot be built or refuses the text.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// No adapter, or none of the wanted kind.
    #[error("{0}")]
    NoDevice(String),
    /// The driver refused or failed.
    #[error("{op}: {message} (adapter {adapter})")]
    Gpu {
        /// What was tried.
        op: &'static str,
        /// The driver's or validator's words.
        message: String,
        /// The adapter's name.
        adapter: String,
    },
    /// The adapter's memory, or this process's, does not suffice.
    #[error("out of memory: {what} needs {bytes} bytes ({place})")]
    OutOfMemory {
        /// What was to be allocated.
        what: String,
        /// How many bytes it needs.
        bytes: u64,
        /// The adapter.
        place: String,
    },
    /// The device is gone; everything on it must be made anew.
    #[error("device lost: {reason} (adapter {adapter})")]
    DeviceLost {
        /// The driver's words.
        reason: String,
        /// The adapter's name.
        adapter: String,
    },
    /// The model produced NaN or infinity.
    #[error("model numerics: non-finite logits at position {position}")]
    NotFinite {
        /// Position of the first bad row.
        position: u64,
    },
    /// Someone asked to stop.
    #[error("cancelled")]
    Cancelled,
    /// Fetching a model failed.
    #[error("fetch: {0}")]
    Fetch(String),
}

impl Error {
    /// A [`Error::Format`]; `place` is the file and the tensor or key in it.
    pub fn format(op: &'static str, expected: impl ToString, got: impl ToString, place: impl ToString) -> Self {
        Self::Format { op, expected: expected.to_string(), got: got.to_string(), place: place.to_string() }
    }

    /// An [`Error::Io`].
    pub fn io(op: &'static str, path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io { op, path: path.into(), source }
    }

    /// An [`Error::Unsupported`]; `hint` may be empty.
    pub fn unsupported(what: impl ToString, hint: &str) -> Self {
        let hint = if hint.is_empty() { String::new() } else { format!(": {hint}") };
        Self::Unsupported { what: what.to_string(), hint }
    }

    /// Exit code of the binary for this error: 2 for wrong usage, else 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if matches!(self, Self::Usage(_)) { 2 } else { 1 }
    }
}
