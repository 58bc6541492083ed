//! A trace file, read on a thread of its own, so that no frame waits for it.

use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use twostroke::engine::event::Event;
use twostroke::error::Result;
use twostroke::trace::Reader;

/// Events that are handed over at once.
const BATCH: usize = 4096;
/// Batches that wait to be drawn: a file may be larger than memory.
const BATCHES_WAITING: usize = 4;

/// What an opening file says.
#[derive(Debug)]
pub enum Said {
    /// These came.
    Events(Vec<Event>),
    /// All came; what people should know of it.
    Done(Option<String>),
    /// It ends here, and why.
    Failed(String),
}

/// A file that is being read.
pub struct Opening {
    /// Which.
    pub path: PathBuf,
    receiver: Receiver<Said>,
    is_over: bool,
}

impl Opening {
    /// Begins to read `path`; `wake` is called whenever something is there.
    #[must_use]
    pub fn start(path: &Path, wake: impl Fn() + Send + 'static) -> Self {
        let (sender, receiver) = sync_channel(BATCHES_WAITING);
        let place = path.to_owned();
        std::thread::spawn(move || {
            let said = Reader::open(&place).and_then(|reader| read(reader, &sender, &wake));
            let last = said.map_or_else(|error| Said::Failed(error.to_string()), Said::Done);
            // Nobody listens when another file was opened meanwhile.
            let _ = sender.send(last);
            wake();
        });
        Self { path: path.to_owned(), receiver, is_over: false }
    }

    /// What is there, if anything; `None` when nothing is yet, or nothing more comes.
    pub fn take(&mut self) -> Option<Said> {
        if self.is_over {
            return None;
        }
        let said = match self.receiver.try_recv() {
            Ok(said) => said,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Said::Failed("the thread that read it has ended".into()),
        };
        self.is_over = !matches!(said, Said::Events(_));
        Some(said)
    }

    /// Whether nothing more comes.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }
}

fn read<R: BufRead>(mut reader: Reader<R>, sender: &SyncSender<Said>, wake: &impl Fn()) -> Result<Option<String>> {
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        let event = reader.next();
        let is_last = event.is_none();
        if let Some(event) = event {
            match event {
                Ok(event) => batch.push(event),
                Err(error) => {
                    // What came before is worth seeing.
                    let _ = sender.send(Said::Events(std::mem::take(&mut batch)));
                    return Err(error);
                }
            }
        }
        if batch.len() >= BATCH || is_last {
            if sender.send(Said::Events(std::mem::replace(&mut batch, Vec::with_capacity(BATCH)))).is_err() {
                return Ok(None);
            }
            wake();
        }
        if is_last {
            break;
        }
    }
    let mut notes = Vec::new();
    if reader.torn() {
        notes.push("the last line is torn and was left out".to_owned());
    }
    if reader.skipped() > 0 {
        notes.push(format!("{} lines of kinds that this version does not know were skipped", reader.skipped()));
    }
    Ok((!notes.is_empty()).then(|| notes.join("; ")))
}
