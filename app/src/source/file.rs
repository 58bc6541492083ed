//! A trace file, read on a thread of its own, so that no frame waits for it.

use std::io::{BufRead, Cursor};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use twostroke::engine::event::Event;
use twostroke::error::Result;
use twostroke::trace::Reader;

use super::server;

/// Events that are handed over at once.
const BATCH: usize = 4096;
/// Batches that wait to be drawn: a file may be larger than memory.
const BATCHES_WAITING: usize = 4;
/// The same of a server, whose batches are what came together.
const SERVER_BATCHES_WAITING: usize = 4096;

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

/// A trace that is coming: of a file, of a page's bytes, of a server.
pub struct Opening {
    /// Which.
    pub name: String,
    /// It has no end of its own: a server's.
    pub is_live: bool,
    way: Way,
    is_over: bool,
}

/// How a trace comes.
enum Way {
    /// From a thread, or from the browser.
    Told(Receiver<Said>),
    /// From memory, a batch at a time: a page has no threads.
    Read(Box<Reader<Cursor<Arc<[u8]>>>>, Option<String>),
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
        Self { name: path.display().to_string(), is_live: false, way: Way::Told(receiver), is_over: false }
    }

    /// A trace in memory, which `name` names.
    #[must_use]
    pub fn of_bytes(name: &str, bytes: Arc<[u8]>) -> Self {
        let way = Way::Read(Box::new(Reader::new(Cursor::new(bytes), name)), None);
        Self { name: name.to_owned(), is_live: false, way, is_over: false }
    }

    /// Watches the server at `address`, as a person types it; an empty `key` is none.
    #[must_use]
    pub fn watch(address: &str, key: &str, wake: impl Fn() + Send + 'static) -> Self {
        let (sender, receiver) = sync_channel(SERVER_BATCHES_WAITING);
        let name = server::address(address);
        server::watch(name.clone(), key.trim().to_owned(), sender, wake);
        Self { name, is_live: true, way: Way::Told(receiver), is_over: false }
    }

    /// What is there, if anything; `None` when nothing is yet, or nothing more comes.
    pub fn take(&mut self) -> Option<Said> {
        if self.is_over {
            return None;
        }
        let said = match &mut self.way {
            Way::Told(receiver) => match receiver.try_recv() {
                Ok(said) => said,
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => Said::Failed("the thread that read it has ended".into()),
            },
            Way::Read(reader, failed) => {
                let mut events = Vec::new();
                while events.len() < BATCH && failed.is_none() {
                    match reader.next() {
                        Some(Ok(event)) => events.push(event),
                        // What came before is worth seeing.
                        Some(Err(error)) => *failed = Some(error.to_string()),
                        None => break,
                    }
                }
                match failed.take() {
                    Some(why) if events.is_empty() => Said::Failed(why),
                    None if events.is_empty() => Said::Done(notes(reader)),
                    why => {
                        *failed = why;
                        Said::Events(events)
                    }
                }
            }
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
    Ok(notes(&reader))
}

/// What people should know of a trace that was read to its end.
fn notes<R: BufRead>(reader: &Reader<R>) -> Option<String> {
    let mut notes = Vec::new();
    if reader.torn() {
        notes.push("the last line is torn and was left out".to_owned());
    }
    if reader.skipped() > 0 {
        notes.push(format!("{} lines of kinds that this version does not know were skipped", reader.skipped()));
    }
    (!notes.is_empty()).then(|| notes.join("; "))
}
