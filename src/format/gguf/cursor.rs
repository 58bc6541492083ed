//! Buffered reads through a header, each held against what is left of it.

use std::fmt::{Display, Write};

use crate::error::{Error, Result};
use crate::format::source::{ByteSource, usize_len};
use crate::limits::HEADER_BYTES_MAX;

/// Bytes fetched at a time.
const WINDOW_BYTES: u64 = 256 << 10;

/// A position in a header.
///
/// ```text
/// 0 ......... consumed ......... at ...... at + window.len() - used ...... end
///                                | window[used..] |
/// ```
pub(super) struct Cursor<'a> {
    source: &'a dyn ByteSource,
    /// No read passes it: the source's length, or the largest header.
    end: u64,
    /// Position of the next byte.
    at: u64,
    window: Vec<u8>,
    /// Bytes of the window already consumed.
    used: usize,
    section: String,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(source: &'a dyn ByteSource) -> Self {
        let end = source.len().min(HEADER_BYTES_MAX);
        Self { source, end, at: 0, window: Vec::new(), used: 0, section: String::new() }
    }

    /// The source's name.
    pub(super) fn file(&self) -> &'a str {
        self.source.name()
    }

    /// Position of the next byte.
    pub(super) fn position(&self) -> u64 {
        self.at
    }

    /// Names what is being read from here on: for messages.
    pub(super) fn section(&mut self, what: std::fmt::Arguments<'_>) {
        self.section.clear();
        // Writing to a string does not fail.
        let _ = self.section.write_fmt(what);
    }

    /// An error at the current section.
    pub(super) fn error(&self, op: &'static str, expected: impl Display, got: impl Display) -> Error {
        Error::format(op, expected, got, format!("{}, {}", self.file(), self.section))
    }

    /// Refuses a count above `max`, or one whose items of at least `item_bytes` cannot fit in what is left.
    pub(super) fn check_count(&self, op: &'static str, count: u64, max: u64, item_bytes: u64) -> Result<()> {
        if count > max {
            return Err(self.error(op, format!("at most {max}"), count));
        }
        let left = self.end - self.at;
        match count.checked_mul(item_bytes) {
            Some(bytes) if bytes <= left => Ok(()),
            _ => {
                let want = format!("{count} items of {item_bytes} bytes or more");
                Err(self.error(op, want, format!("{left} bytes to {}", self.end_name())))
            }
        }
    }

    /// The next `bytes` bytes.
    pub(super) fn take(&mut self, bytes: u64, what: &'static str) -> Result<&[u8]> {
        let left = self.end - self.at;
        if bytes > left {
            let want = format!("{bytes} bytes for {what}");
            return Err(self.error("header length", want, format!("{left} bytes to {}", self.end_name())));
        }
        let len = usize_len(bytes, self.file())?;
        if self.window.len() - self.used < len {
            self.window.clear();
            self.used = 0;
            self.window.resize(usize_len(bytes.max(WINDOW_BYTES).min(left), self.file())?, 0);
            self.source.read_at(self.at, &mut self.window)?;
        }
        let from = self.used;
        self.used += len;
        self.at += bytes;
        Ok(&self.window[from..self.used])
    }

    /// The next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64, what)?);
        Ok(out)
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// A length and as many bytes of UTF-8.
    pub(super) fn string(&mut self, what: &'static str, bytes_max: u64) -> Result<String> {
        let bytes = self.u64("a string's length")?;
        if bytes > bytes_max {
            return Err(self.error("string length", format!("at most {bytes_max} bytes for {what}"), bytes));
        }
        match std::str::from_utf8(self.take(bytes, what)?) {
            Ok(text) => Ok(text.to_owned()),
            Err(e) => {
                let got = format!("a bad byte at {} of {bytes}", e.valid_up_to());
                Err(self.error("text", format!("UTF-8 for {what}"), got))
            }
        }
    }

    fn end_name(&self) -> &'static str {
        if self.end < self.source.len() { "the header's bound of 100 MiB" } else { "the end of the file" }
    }
}

const _: () = assert!(HEADER_BYTES_MAX == 100 << 20, "end_name says it in words");
