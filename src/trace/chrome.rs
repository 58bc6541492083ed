//! The JSON that Perfetto and chrome://tracing read, event by event. Knows their format and nothing of requests.
//!
//! Everything is in one process. A *thread* track (here: one, [`STEPS_TRACK`]) takes complete events (`X`), which must nest;
//! an *async* track, one an id, takes begins and ends (`b`, `e`), which must nest as well. Flow arrows are `bind_id` with
//! `flow_out` at their start and `flow_in` at each end: the older `s` and `f` events bind to threads only.

use std::io::{self, Write};

use serde_json::Value;

const PID: u32 = 1;
/// The thread track.
const STEPS_TRACK: u32 = 1;
/// Category of all async events; Perfetto keys the track by category and id.
const REQUEST: &str = "request";

/// Writes `{"traceEvents": [...]}`.
pub(super) struct Chrome<W> {
    out: W,
    events: u64,
}

impl<W: Write> Chrome<W> {
    pub(super) fn start(mut out: W) -> io::Result<Self> {
        out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n")?;
        Ok(Self { out, events: 0 })
    }

    /// Names of the process and of its thread track.
    pub(super) fn names(&mut self, process: &str, thread: &str) -> io::Result<()> {
        for (name, of) in [("process_name", process), ("thread_name", thread)] {
            self.head("M", name, None)?;
            write!(self.out, ",\"tid\":{STEPS_TRACK},\"args\":{{\"name\":")?;
            serde_json::to_writer(&mut self.out, of)?;
            self.out.write_all(b"}}")?;
        }
        Ok(())
    }

    /// A span on the thread track, with a flow that starts in it.
    pub(super) fn complete(&mut self, name: &str, from: u64, to: u64, flow: u64, args: &Value) -> io::Result<()> {
        self.head("X", name, Some(from))?;
        let dur = Micros(to.saturating_sub(from));
        write!(self.out, ",\"tid\":{STEPS_TRACK},\"dur\":{dur},\"bind_id\":\"{flow:#x}\",\"flow_out\":true")?;
        self.args(args)
    }

    /// Begins a span on the async track `id`; a flow may end in it.
    pub(super) fn begin(&mut self, id: u64, name: &str, at: u64, flow: Option<u64>, args: &Value) -> io::Result<()> {
        self.head("b", name, Some(at))?;
        self.track(id)?;
        if let Some(flow) = flow {
            write!(self.out, ",\"bind_id\":\"{flow:#x}\",\"flow_in\":true")?;
        }
        self.args(args)
    }

    /// Ends the innermost span on the async track `id`.
    pub(super) fn end(&mut self, id: u64, name: &str, at: u64, args: &Value) -> io::Result<()> {
        self.head("e", name, Some(at))?;
        self.track(id)?;
        self.args(args)
    }

    /// A moment on the async track `id`.
    pub(super) fn moment(&mut self, id: u64, name: &str, at: u64, args: &Value) -> io::Result<()> {
        self.head("n", name, Some(at))?;
        self.track(id)?;
        self.args(args)
    }

    /// A moment on the thread track.
    pub(super) fn thread_moment(&mut self, name: &str, at: u64, args: &Value) -> io::Result<()> {
        self.head("i", name, Some(at))?;
        write!(self.out, ",\"tid\":{STEPS_TRACK},\"s\":\"t\"")?;
        self.args(args)
    }

    /// A value of the counter track `name series`.
    pub(super) fn counter(&mut self, name: &str, series: &str, at: u64, value: u32) -> io::Result<()> {
        self.head("C", name, Some(at))?;
        write!(self.out, ",\"args\":{{\"{series}\":{value}}}}}")
    }

    /// Closes the object; `other` is what viewers show as the trace's metadata.
    pub(super) fn finish(mut self, other: &Value) -> io::Result<()> {
        self.out.write_all(b"\n],\"otherData\":")?;
        serde_json::to_writer(&mut self.out, other)?;
        self.out.write_all(b"}\n")?;
        self.out.flush()
    }

    fn head(&mut self, phase: &str, name: &str, at: Option<u64>) -> io::Result<()> {
        let separator = if self.events == 0 { "" } else { ",\n" };
        self.events += 1;
        write!(self.out, "{separator}{{\"ph\":\"{phase}\",\"name\":")?;
        serde_json::to_writer(&mut self.out, name)?;
        write!(self.out, ",\"pid\":{PID}")?;
        if let Some(at) = at {
            write!(self.out, ",\"ts\":{}", Micros(at))?;
        }
        Ok(())
    }

    fn track(&mut self, id: u64) -> io::Result<()> {
        write!(self.out, ",\"cat\":\"{REQUEST}\",\"id\":\"{id:#x}\"")
    }

    fn args(&mut self, args: &Value) -> io::Result<()> {
        if !args.is_null() {
            self.out.write_all(b",\"args\":")?;
            serde_json::to_writer(&mut self.out, args)?;
        }
        self.out.write_all(b"}")
    }
}

/// Nanoseconds, shown as microseconds without rounding.
struct Micros(u64);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_become_microseconds_to_the_digit() {
        let check = |nanos: u64, expected: &str| assert_eq!(Micros(nanos).to_string(), expected);
        check(0, "0.000");
        check(7, "0.007");
        check(1_500, "1.500");
        check(9_007_199_254_740_993, "9007199254740.993");
        check(u64::MAX, "18446744073709551.615");
    }

    #[test]
    fn names_cannot_break_the_json() {
        let mut bytes = Vec::new();
        let mut chrome = Chrome::start(&mut bytes).expect("memory");
        chrome.names("a\"b\\c\n", "steps").expect("memory");
        chrome.finish(&Value::Null).expect("memory");
        let json: Value = serde_json::from_slice(&bytes).expect("JSON");
        assert_eq!(json["traceEvents"][0]["args"]["name"], "a\"b\\c\n");
    }
}
