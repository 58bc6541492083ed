//! Server-sent events cut to the engine's, from bytes as they come.

use twostroke::engine::event::Event;

use super::server::told;

/// Longest line that is taken; a step of many rows takes 200 KB.
const LINE_BYTES_MAX: usize = 16 << 20;

/// Server-sent events cut to the engine's, from bytes as they come.
#[derive(Debug, Default)]
pub(super) struct Lines {
    rest: Vec<u8>,
    skipped: u64,
}

/// What a stream of lines came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// A line without an end.
    Long,
    /// The server ends the stream, and why.
    Told(String),
}

impl Lines {
    /// The events that `bytes` complete; kinds of another version are passed over.
    pub(super) fn take(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), Broken> {
        self.rest.extend_from_slice(bytes);
        let mut from = 0;
        while let Some(length) = self.rest[from..].iter().position(|byte| *byte == b'\n') {
            let line = self.rest[from..from + length].trim_ascii();
            from += length + 1;
            if let Some(data) = line.strip_prefix(b"data:") {
                match serde_json::from_slice::<Event>(data) {
                    Ok(event) => events.push(event),
                    Err(_) => match told(data) {
                        Some(why) => return Err(Broken::Told(why)),
                        None => self.skipped += 1,
                    },
                }
            }
        }
        self.rest.drain(..from);
        if self.rest.len() > LINE_BYTES_MAX { Err(Broken::Long) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_whole_however_their_bytes_come() {
        let text = ": ping\n\ndata: {\"kind\":\"cancel\",\"t\":5,\"id\":1}\n\ndata: {\"kind\":\"new\",\"t\":6}\r\n\r\ndata:{\"kind\":\"preempt\",\"t\":7,\"id\":2}\n";
        for step in 1..text.len() {
            let (mut lines, mut events) = (Lines::default(), Vec::new());
            for piece in text.as_bytes().chunks(step) {
                lines.take(piece, &mut events).expect("fine");
            }
            assert_eq!(events, [Event::Cancel { t: 5, id: 1 }, Event::Preempt { t: 7, id: 2 }], "pieces of {step}");
            assert_eq!(lines.skipped, 1);
        }
    }

    #[test]
    fn a_server_that_says_why_it_ends_is_believed_and_an_endless_line_is_not() {
        let mut lines = Lines::default();
        let error = b"data: {\"error\":{\"message\":\"too slow a reader\"}}\n";
        assert_eq!(lines.take(error, &mut Vec::new()), Err(Broken::Told("too slow a reader".into())));
        let mut lines = Lines::default();
        let taken = (0..20).map(|_| lines.take(&vec![b'x'; 1 << 20], &mut Vec::new())).find(Result::is_err);
        assert_eq!(taken, Some(Err(Broken::Long)));
    }
}
