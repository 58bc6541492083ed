//! The worker on a thread, and downloads beside it.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use futures_channel::mpsc::UnboundedReceiver;
use indicatif::ProgressBar;
use twostroke::cli::fetch;
use twostroke::error::{Error, Result};

use super::worker::Worker;
use super::{Command, Said, Says};

/// How often a download says how far it is.
const TICK: Duration = Duration::from_millis(100);

pub(super) fn start(mut commands: UnboundedReceiver<Command>, says: Says) {
    std::thread::spawn(move || {
        let mut worker = Worker::new(says);
        pollster::block_on(async {
            loop {
                while let Ok(command) = commands.try_recv() {
                    worker.command(command).await;
                }
                if !worker.is_idle() {
                    worker.turn(true).await;
                } else if !worker.work_ahead() {
                    // The last one who could ask is gone, or asks.
                    let Ok(command) = commands.recv().await else { return };
                    worker.command(command).await;
                }
            }
        });
    });
}

/// Brings a model to this machine. Cancelled, it leaves what has come for the next try.
pub(super) fn fetch(name: Option<&str>, says: &Rc<Says>) -> Result<PathBuf> {
    let bar = ProgressBar::hidden();
    let (sender, done) = channel();
    let (name, drawn) = (name.map(str::to_owned), bar.clone());
    std::thread::spawn(move || {
        // Nobody waits for it any more when it was cancelled.
        let _ = sender.send(fetch::fetch(name.as_deref(), &drawn));
    });
    loop {
        match done.recv_timeout(TICK) {
            Ok(fetched) => return fetched,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::Fetch("the download ended without a word".into()));
            }
            Err(RecvTimeoutError::Timeout) if says.is_cancelled() => return Err(Error::Cancelled),
            Err(RecvTimeoutError::Timeout) => {
                let (done, total) = (bar.position(), bar.length().unwrap_or(0));
                says.say(Said::Busy { what: "fetching", done, total, is_bytes: true });
            }
        }
    }
}
