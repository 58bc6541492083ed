//! Standard output: results only, sent on at once, and quiet when the reader has left.

use std::io::{StdoutLock, Write};

use serde::Serialize;

use crate::error::{Error, Result};

const STDOUT: &str = "standard output";

/// The process's standard output.
pub(super) struct Output {
    out: StdoutLock<'static>,
}

impl Output {
    /// Locks standard output.
    #[must_use]
    pub(super) fn stdout() -> Self {
        Self { out: std::io::stdout().lock() }
    }

    /// Writes text and sends it on.
    ///
    /// # Errors
    /// When the reader has left ([`is_reader_gone`]) or the system refuses.
    pub(super) fn text(&mut self, text: &str) -> Result<()> {
        let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
        written.map_err(|source| Error::io("write", STDOUT, source))
    }

    /// Writes text and a newline.
    ///
    /// # Errors
    /// As [`Output::text`].
    pub(super) fn line(&mut self, text: &str) -> Result<()> {
        self.text(&format!("{text}\n"))
    }

    /// Writes one JSON value on one line.
    ///
    /// # Errors
    /// As [`Output::text`].
    pub(super) fn json(&mut self, value: &impl Serialize) -> Result<()> {
        self.line(&json_text(value))
    }
}

/// One line of JSON. Our results are plain structs of numbers and text, which always have one.
pub(super) fn json_text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("a plain struct serialises")
}

/// Whether the error says that nobody reads standard output any more: `twostroke run | head -1` is no failure.
pub(super) fn is_reader_gone(error: &Error) -> bool {
    matches!(error, Error::Io { source, path, .. }
        if source.kind() == std::io::ErrorKind::BrokenPipe && path.as_os_str() == STDOUT)
}
