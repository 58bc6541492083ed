//! Reads a trace, an event at a time: a trace may be larger than memory.
//!
//! Passed over: unknown kinds, unknown fields, empty lines, and a last line that a crash tore. Everything else that is not
//! an event is an error that names its line.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::Deserialize;

use crate::engine::event::{Event, StepRow};
use crate::error::{Error, Result};
use crate::limits::{CONTEXT_MAX, TRACE_LINE_BYTES_MAX};

const OP: &str = "read trace";

/// Kinds of this version.
const KINDS: [&str; 9] = ["meta", "arrive", "admit", "step", "cost", "preempt", "resume", "cancel", "finish"];

/// The kind alone; serde skips the rest.
#[derive(Deserialize)]
struct Kind {
    kind: String,
}

/// An iterator over the events of a trace.
pub struct Reader<R> {
    input: R,
    place: String,
    /// Number of the line read last, from 1.
    line: u64,
    buffer: Vec<u8>,
    events: u64,
    skipped: u64,
    torn: bool,
    done: bool,
}

impl Reader<BufReader<File>> {
    /// Opens a trace.
    ///
    /// # Errors
    /// `Io` when there is no such file.
    pub fn open(path: &Path) -> Result<Self> {
        let io = |source| Error::io(OP, path, source);
        let file = File::open(path).map_err(io)?;
        if file.metadata().map_err(io)?.is_dir() {
            return Err(io(std::io::ErrorKind::IsADirectory.into()));
        }
        Ok(Self::new(BufReader::with_capacity(1 << 16, file), &path.display().to_string()))
    }
}

impl<R: BufRead> Reader<R> {
    /// A trace from `input`, which `place` names in messages.
    #[must_use]
    pub fn new(input: R, place: &str) -> Self {
        let place = place.to_owned();
        Self { input, place, line: 0, buffer: Vec::new(), events: 0, skipped: 0, torn: false, done: false }
    }

    /// Number of the line that the last event stood on, from 1.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Lines of kinds that this version doesn't know.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Whether the last line was torn.
    #[must_use]
    pub fn torn(&self) -> bool {
        self.torn
    }

    /// An error about the line read last.
    pub(super) fn refuse(&self, expected: &str, got: impl ToString) -> Error {
        Error::format(OP, expected, got, format!("{}, line {}", self.place, self.line))
    }

    fn next_event(&mut self) -> Result<Option<Event>> {
        loop {
            self.buffer.clear();
            let mut limited = (&mut self.input).take(TRACE_LINE_BYTES_MAX + 1);
            let bytes = limited.read_until(b'\n', &mut self.buffer).map_err(|e| Error::io(OP, &self.place, e))?;
            if bytes == 0 {
                return self.end();
            }
            self.line += 1;
            if bytes as u64 > TRACE_LINE_BYTES_MAX {
                return Err(self.refuse(&format!("at most {TRACE_LINE_BYTES_MAX} bytes"), "a longer line"));
            }
            let whole = self.buffer.last() == Some(&b'\n');
            if self.buffer.trim_ascii().is_empty() {
                continue;
            }
            match parse(&self.buffer) {
                Ok(Some(event)) => {
                    self.check(&event)?;
                    self.events += 1;
                    return Ok(Some(event));
                }
                Ok(None) => self.skipped += 1,
                Err(_) if !whole => self.torn = true,
                Err(error) => return Err(self.refuse("an event", without_place(&error))),
            }
        }
    }

    /// A file in which not one line is an event is something else.
    fn end(&self) -> Result<Option<Event>> {
        if self.events + self.skipped > 0 {
            return Ok(None);
        }
        let got = if self.torn { "none" } else { "an empty file" };
        Err(Error::format(OP, "a trace: JSON Lines, an event a line", got, &self.place))
    }

    fn check(&self, event: &Event) -> Result<()> {
        match event {
            Event::Meta { .. } if self.events > 0 => Err(self.refuse("one run in a trace", "a second meta")),
            Event::Step { t0, t1, .. } if t0 > t1 => Err(self.refuse("t0 <= t1", format!("{t0} and {t1}"))),
            Event::Step { rows, .. } => rows.iter().try_for_each(|row| self.check_row(row)),
            _ => Ok(()),
        }
    }
}

impl<R: BufRead> Reader<R> {
    /// What sizes anything is held against a bound.
    fn check_row(&self, row: &StepRow) -> Result<()> {
        let (tokens, accepted) = (row.tokens, row.accepted.unwrap_or(0));
        if tokens <= CONTEXT_MAX && accepted <= tokens {
            return Ok(());
        }
        let got = format!("{tokens} tokens, {accepted} accepted, of request {}", row.id);
        Err(self.refuse(&format!("a row of at most {CONTEXT_MAX} tokens, and no more accepted"), got))
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.next_event().transpose();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}

/// All events of a trace.
///
/// # Errors
/// `Io` and `Format`, the latter with the line's number.
pub fn read(path: &Path) -> Result<Vec<Event>> {
    Reader::open(path)?.collect()
}

/// How [`super::Writer`] begins the line of a step. Nearly all of a long trace are steps.
const STEP_START: &[u8] = br#"{"kind":"step","#;

/// A step's own fields, which serde reads several times faster than by way of the kind.
#[derive(Deserialize)]
struct StepLine {
    t0: u64,
    t1: u64,
    gpu_ns: Option<u64>,
    n: u64,
    rows: Vec<StepRow>,
    pages_used: u32,
    waiting: u32,
}

/// The event of a line, or `None` for a kind of a later version.
fn parse(line: &[u8]) -> serde_json::Result<Option<Event>> {
    if line.starts_with(STEP_START) {
        let StepLine { t0, t1, gpu_ns, n, rows, pages_used, waiting } = serde_json::from_slice(line)?;
        return Ok(Some(Event::Step { t0, t1, gpu_ns, n, rows, pages_used, waiting }));
    }
    // Looked at by itself first: a kind of a later version has other fields.
    let Kind { kind } = serde_json::from_slice(line)?;
    if KINDS.contains(&kind.as_str()) { serde_json::from_slice(line).map(Some) } else { Ok(None) }
}

/// serde's message without its own place: in a line by line format it always says line 1.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(at) => format!("{} at column {}", &text[..at], error.column()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(text: &[u8]) -> Result<Vec<Event>> {
        Reader::new(text, "t.jsonl").collect()
    }

    const LINE: &str = "{\"kind\":\"cancel\",\"t\":1,\"id\":2}\n";
    const EVENT: Event = Event::Cancel { t: 1, id: 2 };

    #[test]
    fn a_torn_last_line_is_passed_over_wherever_it_is_torn() {
        for cut in 1..LINE.len() {
            let text = [LINE.as_bytes(), &LINE.as_bytes()[..cut]].concat();
            let whole = cut == LINE.len() - 1; // only the newline is missing
            let mut reader = Reader::new(&text[..], "t.jsonl");
            let read: Vec<_> = reader.by_ref().collect::<Result<_>>().expect("readable");
            assert_eq!(read.len(), if whole { 2 } else { 1 }, "cut at {cut}");
            assert_eq!(reader.torn(), !whole, "cut at {cut}");
        }
    }

    #[test]
    fn unknown_kinds_fields_and_empty_lines_are_passed_over() {
        let text = format!(
            "{LINE}{}\n\n{}\r\n",
            r#"{"kind":"draft","t":3,"deep":[{"a":1}]}"#, r#"{"t":1,"new":{},"id":2,"kind":"cancel"}"#
        );
        let mut reader = Reader::new(text.as_bytes(), "t.jsonl");
        assert_eq!(reader.by_ref().collect::<Result<Vec<_>>>().expect("readable"), [EVENT, EVENT]);
        assert_eq!((reader.skipped(), reader.torn(), reader.line()), (1, false, 4));
    }

    #[test]
    fn what_is_no_event_is_named_by_its_line() {
        let check = |line: &str, says: &[&str]| {
            let error = events(format!("{LINE}{line}\n{LINE}").as_bytes()).expect_err(line);
            let text = error.to_string();
            assert!(text.contains("t.jsonl, line 2"), "{text}");
            assert!(says.iter().all(|part| text.contains(part)), "{says:?} in {text}");
        };
        check("{\"kind\":\"cancel\",\"t\":1", &["EOF"]);
        check("nonsense", &["column"]);
        check("[1]", &[]);
        check("{}", &["kind"]);
        check("{\"kind\":5}", &[]);
        check("{\"kind\":\"cancel\",\"t\":1}", &["id"]);
        check("{\"kind\":\"cancel\",\"t\":-1,\"id\":2}", &["-1"]);
        check("{\"kind\":\"cancel\",\"t\":1.5,\"id\":2}", &["1.5"]);
        let row = r#"[{"id":7,"kind":"verify","from":0,"tokens":4,"accepted":5}]"#;
        let step = format!(r#"{{"kind":"step","t0":1,"t1":2,"n":0,"rows":{row},"pages_used":0,"waiting":0}}"#);
        check(&step, &["5 accepted", "request 7"]);
        check(
            "{\"kind\":\"step\",\"t0\":5,\"t1\":4,\"n\":0,\"rows\":[],\"pages_used\":0,\"waiting\":0}",
            &["t0 <= t1"],
        );
        check(
            r#"{"kind":"meta","version":"","model":"","adapter":"","tier":"","page_tokens":16,"pages":1,"policy":"","unix_ns":0}"#,
            &["second meta"],
        );
    }

    #[test]
    fn a_step_is_the_same_however_its_line_begins() {
        let rest = r#""t0":1,"t1":2,"gpu_ns":null,"n":3,"rows":[{"id":7,"kind":"decode","from":9,"tokens":1,"accepted":null}],"pages_used":4,"waiting":5,"new":{}"#;
        let (first, last) = (format!("{{\"kind\":\"step\",{rest}}}\n"), format!("{{{rest},\"kind\":\"step\"}}\n"));
        assert!(first.as_bytes().starts_with(STEP_START));
        let (first, last) = (events(first.as_bytes()).expect("read"), events(last.as_bytes()).expect("read"));
        assert_eq!(first, last);
        let written = serde_json::to_string(&first[0]).expect("an event");
        assert!(written.as_bytes().starts_with(STEP_START), "the writer's lines take the short way: {written}");
        for broken in [r#"{"kind":"step","t0":1}"#, r#"{"kind":"step","kind":"meta"}"#, r#"{"kind":"step","t0":1,"#] {
            assert!(events(format!("{broken}\n").as_bytes()).is_err(), "{broken}");
        }
    }

    #[test]
    fn what_is_no_trace_at_all_is_refused() {
        for text in [&b""[..], b"\n\n", b"not a trace", b"\xff\xfe\x00"] {
            let error = events(text).expect_err("refused").to_string();
            assert!(error.contains("a trace"), "{error}");
        }
    }

    #[test]
    fn a_line_without_end_is_refused_in_bounded_memory() {
        let endless = std::io::BufReader::new(std::io::repeat(b'x'));
        let mut reader = Reader::new(endless, "t.jsonl");
        assert!(reader.next().expect("an item").expect_err("refused").to_string().contains("line 1"));
        assert!(reader.next().is_none(), "nothing comes after an error");
    }
}
