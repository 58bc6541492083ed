//! The engine's loop: commands between steps, outputs after each.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use super::feed::Feed;
use super::meter::Meter;
use super::recovery::Recovery;
use super::{Ask, Command, Failure, Handle, Mailbox, Pulse, Said, Watch, What};
use crate::clock::Clock;
use crate::engine::event::Event;
use crate::engine::executor::Executor;
use crate::engine::request::{Output, RequestId};
use crate::engine::serving::Engine;
use crate::error::{Error, Result};
use crate::limits::WATCHDOG_SECONDS;

/// Makes a new executor after the old one's device was lost.
pub type Rebuild = Box<dyn FnMut() -> Result<Box<dyn Executor>>>;

/// How often an idle thread looks after its figures.
const IDLE: Duration = Duration::from_secs(5);

/// Who is told of a request.
struct Listener {
    mailbox: Mailbox,
    choice: usize,
}

/// The engine thread's state.
pub struct Driver {
    engine: Engine,
    commands: mpsc::Receiver<Command>,
    pulse: Arc<Pulse>,
    listeners: HashMap<RequestId, Listener>,
    meter: Meter,
    feed: Feed,
    recovery: Recovery,
    finishing: bool,
}

/// The sending half, made before the engine is there.
pub struct Line {
    handle: Handle,
    commands: mpsc::Receiver<Command>,
}

impl Line {
    /// A handle and what a driver reads from; times are by `clock`.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        let (sender, commands) = mpsc::channel();
        let watchdog_nanos = WATCHDOG_SECONDS * 1_000_000_000;
        Self { handle: Handle { commands: sender, pulse: Arc::default(), clock, watchdog_nanos }, commands }
    }

    /// Another time that work may wait without a step's end before [`Handle::is_stuck`] says so.
    #[must_use]
    pub fn with_watchdog(mut self, nanos: u64) -> Self {
        self.handle.watchdog_nanos = nanos;
        self
    }

    /// A handle.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }
}

impl Driver {
    /// A driver of `engine`, whose clock is the handle's. `meta` is the trace's first event; `trace` takes every event.
    #[must_use]
    pub fn new(
        mut engine: Engine,
        line: Line,
        meter: Meter,
        meta: Event,
        mut trace: Box<dyn FnMut(&Event)>,
        rebuild: Rebuild,
    ) -> Self {
        let feed = Feed::new(&meta);
        trace(&meta);
        let (told, counted) = (feed.clone(), meter.clone());
        engine.observe(Box::new(move |event| {
            trace(event);
            told.tell(event);
            counted.observe(event);
        }));
        let Line { handle, commands } = line;
        Self {
            engine,
            commands,
            pulse: handle.pulse,
            listeners: HashMap::new(),
            meter,
            feed,
            recovery: Recovery::new(rebuild),
            finishing: false,
        }
    }

    /// Runs until it is told to finish, or every handle is gone.
    ///
    /// # Errors
    /// A device that stays lost; every answer has been failed then.
    pub fn run(mut self) -> Result<()> {
        loop {
            let idle = self.engine.idle();
            self.figures(idle);
            if idle && self.finishing {
                return Ok(());
            }
            if !self.take_commands(idle) {
                return Ok(());
            }
            if self.engine.idle() {
                continue;
            }
            self.pulse.busy.store(true, Ordering::Relaxed);
            if let Err(error) = self.engine.wait() {
                self.recover(&error)?;
            } else {
                self.recovery.stepped();
            }
            self.moved();
            self.deliver();
        }
    }

    /// Takes what waits, or waits for it when idle; `false` when nobody can ask any more.
    fn take_commands(&mut self, idle: bool) -> bool {
        if idle {
            match self.commands.recv_timeout(IDLE) {
                Ok(command) => {
                    self.moved();
                    self.command(command);
                }
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
        while let Ok(command) = self.commands.try_recv() {
            self.command(command);
        }
        true
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Ask(ask) => self.ask(ask),
            Command::Stop(id) => {
                self.engine.stop(id);
            }
            Command::Cancel(ids) => ids.into_iter().for_each(|id| self.cancel(id)),
            Command::Watch(reply) => {
                let (snapshot, live) = self.feed.watch();
                let _ = reply.send(Watch { snapshot, live });
            }
            Command::FailAll(failure) => self.fail_all(failure),
            Command::Finish => self.finishing = true,
        }
    }

    fn ask(&mut self, Ask { requests, mailbox, reply }: Ask) {
        let mut ids = Vec::with_capacity(requests.len());
        for request in requests {
            let (prompt_tokens, arrived) = (request.prompt.len(), request.arrived_nanos);
            let wanted = request.max_tokens;
            match self.engine.submit(request) {
                Ok(id) => {
                    let arrived = arrived.unwrap_or_else(|| self.engine.now_nanos());
                    self.meter.arrived(id, arrived, prompt_tokens, wanted);
                    ids.push(id);
                }
                Err(error) => {
                    ids.into_iter().for_each(|id| self.cancel(id));
                    self.meter.refused();
                    let _ = reply.send(Err(error));
                    return;
                }
            }
        }
        for (choice, &id) in ids.iter().enumerate() {
            self.listeners.insert(id, Listener { mailbox: mailbox.clone(), choice });
        }
        if let Err(unheard) = reply.send(Ok(ids)) {
            // The client left while its request was on its way here.
            unheard.into_iter().flatten().for_each(|id| self.cancel(id));
        }
    }

    fn cancel(&mut self, id: RequestId) {
        self.listeners.remove(&id);
        self.engine.cancel(id);
    }

    /// Passes on what the engine says.
    fn deliver(&mut self) {
        while let Some(output) = self.engine.next_output() {
            let (id, what) = match output {
                Output::Prefilled { .. } => continue,
                Output::Admitted { id, cached_tokens, nanos } => {
                    self.meter.admitted(id, nanos, cached_tokens);
                    (id, What::Admitted { cached_tokens, nanos })
                }
                Output::Pooled { id, mean } => (id, What::Pooled(mean)),
                Output::Token { id, token } => {
                    self.meter.token(id, token.nanos);
                    (id, What::Token(token))
                }
                Output::Finished { id, reason } => {
                    self.meter.finished(id, reason);
                    (id, What::Finished(reason))
                }
            };
            let is_end = matches!(what, What::Finished(_));
            let Some(listener) = self.listeners.get(&id) else { continue };
            let is_heard = listener.mailbox.put(Said { choice: listener.choice, what });
            if is_end {
                self.listeners.remove(&id);
            } else if !is_heard {
                self.cancel(id);
            }
        }
    }

    fn fail_all(&mut self, failure: Failure) {
        let mut ids: Vec<_> = self.listeners.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            if let Some(listener) = self.listeners.remove(&id) {
                let _ = listener.mailbox.sender.send(Said { choice: listener.choice, what: What::Failed(failure) });
            }
            self.engine.cancel(id);
        }
    }

    /// The device failed: a new one, on which everything in flight is computed again from its tokens.
    fn recover(&mut self, error: &Error) -> Result<()> {
        tracing::error!(%error, "the device failed");
        self.meter.device_failed();
        match self.recovery.executor(error) {
            Ok(executor) => {
                self.engine.replace_executor(executor);
                tracing::warn!(
                    requests = self.listeners.len(),
                    "the device is rebuilt, requests go on from their tokens"
                );
                Ok(())
            }
            Err(error) => {
                self.fail_all(Failure::DeviceLost);
                Err(error)
            }
        }
    }

    fn moved(&self) {
        self.pulse.moved_nanos.store(self.engine.now_nanos(), Ordering::Relaxed);
    }

    fn figures(&self, idle: bool) {
        if idle {
            self.pulse.busy.store(false, Ordering::Relaxed);
        }
        self.meter.counters(&self.engine.scheduler().counters());
    }
}
