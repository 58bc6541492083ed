//! Writes a trace: a line an event, handed to the system at once, so that a crash loses no more than the line it fell on.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::engine::event::Event;
use crate::error::{Error, Result};

/// First size of the line buffer: a step of 64 rows takes 5 KB.
const LINE_BYTES_FIRST: usize = 16 << 10;

/// Appends events to a file. The first write that fails is warned of and ends the trace; whoever writes goes on.
pub struct Writer {
    /// Where lines go; `None` once a write failed.
    sink: Option<Box<dyn Write + Send>>,
    /// For messages.
    place: PathBuf,
    /// The line being made; kept for its memory.
    line: Vec<u8>,
}

impl Writer {
    /// A trace in a new file; one that is there is replaced.
    ///
    /// # Errors
    /// `Io` when the file cannot be created.
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(|source| Error::io("create trace", path, source))?;
        Ok(Self::to(Box::new(file), path))
    }

    /// A trace into `sink`, which `place` names in messages. Each event is one `write_all` and one `flush`.
    #[must_use]
    pub fn to(sink: Box<dyn Write + Send>, place: &Path) -> Self {
        Self { sink: Some(sink), place: place.to_owned(), line: Vec::with_capacity(LINE_BYTES_FIRST) }
    }

    /// Appends one event; nothing once the trace has ended.
    pub fn write(&mut self, event: &Event) {
        let Some(sink) = &mut self.sink else { return };
        self.line.clear();
        let written = serde_json::to_writer(&mut self.line, event).map_err(std::io::Error::from).and_then(|()| {
            self.line.push(b'\n');
            sink.write_all(&self.line)?;
            sink.flush()
        });
        if let Err(error) = written {
            tracing::warn!(%error, trace = %self.place.display(), "the trace ends here, everything else goes on");
            self.sink = None;
        }
    }

    /// Whether events are still written.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.sink.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Takes `room` bytes, then is full.
    struct Disk {
        room: usize,
        taken: Arc<Mutex<Vec<u8>>>,
        tries: Arc<Mutex<u32>>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            *self.tries.lock().expect("unpoisoned") += 1;
            let mut taken = self.taken.lock().expect("unpoisoned");
            let count = bytes.len().min(self.room - taken.len());
            taken.extend_from_slice(&bytes[..count]);
            if count == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(count) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_ends_the_trace_and_leaves_what_a_reader_takes() {
        let (taken, tries) = (Arc::default(), Arc::new(Mutex::new(0)));
        let disk = Disk { room: 90, taken: Arc::clone(&taken), tries: Arc::clone(&tries) };
        let mut writer = Writer::to(Box::new(disk), Path::new("t.jsonl"));
        for t in 0..5 {
            writer.write(&Event::Preempt { t, id: 3 });
        }
        assert!(!writer.is_open());
        let after = *tries.lock().expect("unpoisoned");
        writer.write(&Event::Resume { t: 9, id: 3 });
        assert_eq!(*tries.lock().expect("unpoisoned"), after, "nothing is tried after the first failure");

        let bytes = taken.lock().expect("unpoisoned").clone();
        let events: Vec<Event> = super::super::Reader::new(&bytes[..], "t.jsonl")
            .collect::<Result<_>>()
            .expect("whole lines and a torn one");
        assert_eq!(events, [0, 1].map(|t| Event::Preempt { t, id: 3 }));
    }

    #[test]
    fn a_path_that_cannot_be_written_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let absent = folder.path().join("absent").join("t.jsonl");
        for path in [folder.path(), &absent] {
            let error = Writer::create(path).err().expect("refused");
            assert_eq!(error.exit_code(), 1);
            assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        }
    }

    #[test]
    fn a_line_is_what_the_contract_says() {
        let taken = Arc::default();
        let disk = Disk { room: 10_000, taken: Arc::clone(&taken), tries: Arc::default() };
        let mut writer = Writer::to(Box::new(disk), Path::new("t.jsonl"));
        writer.write(&Event::Arrive { t: 5, id: 7, prompt_tokens: 3, max_tokens: 4, priority: -1 });
        writer.write(&Event::Admit { t: 6, id: 7, cached_tokens: 0, miss: None });
        let text = String::from_utf8(taken.lock().expect("unpoisoned").clone()).expect("text");
        assert_eq!(
            text,
            "{\"kind\":\"arrive\",\"t\":5,\"id\":7,\"prompt_tokens\":3,\"max_tokens\":4,\"priority\":-1}\n\
             {\"kind\":\"admit\",\"t\":6,\"id\":7,\"cached_tokens\":0,\"miss\":null}\n"
        );
    }
}
