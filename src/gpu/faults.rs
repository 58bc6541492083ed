//! What a device reported outside of any call: kept here until the next call returns it as a typed error.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};

/// Shared between a device and its callbacks, which may run on any thread.
#[derive(Debug)]
pub(super) struct Faults {
    adapter: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Why the device was lost; it stays lost.
    lost: Option<String>,
    /// The first error that nobody has seen yet.
    error: Option<Fault>,
}

/// An error of wgpu as plain data: on the web wgpu's own must not leave their thread.
#[derive(Debug)]
pub(super) enum Fault {
    /// The driver has no more memory.
    OutOfMemory,
    /// Anything else, in the driver's or the validator's words.
    Refused(String),
}

impl From<wgpu::Error> for Fault {
    fn from(error: wgpu::Error) -> Self {
        match error {
            wgpu::Error::OutOfMemory { .. } => Self::OutOfMemory,
            wgpu::Error::Validation { description, .. } | wgpu::Error::Internal { description, .. } => {
                Self::Refused(description)
            }
        }
    }
}

impl Faults {
    /// Nothing has happened yet.
    pub(super) fn new(adapter: &str) -> Arc<Self> {
        Arc::new(Self { adapter: adapter.to_owned(), state: Mutex::default() })
    }

    /// The adapter's name.
    pub(super) fn adapter(&self) -> &str {
        &self.adapter
    }

    /// Sends a device's errors and its loss here, in place of wgpu's handlers, which panic.
    pub(super) fn watch(self: &Arc<Self>, device: &wgpu::Device) {
        let faults = Arc::clone(self);
        device.on_uncaptured_error(Arc::new(move |error| faults.record(error)));
        let faults = Arc::clone(self);
        device.set_device_lost_callback(move |reason, message| {
            let message = message.trim().to_owned();
            faults.lose(if message.is_empty() { format!("{reason:?}").to_lowercase() } else { message });
        });
    }

    /// Notes that the device is gone. The first reason stays.
    pub(super) fn lose(&self, reason: String) {
        self.state().lost.get_or_insert(reason);
    }

    /// Returns what has happened since the last call: a lost device each time, any other error once. `what` and `bytes` are
    /// what was being done, for messages.
    pub(super) fn check(&self, what: &'static str, bytes: u64) -> Result<()> {
        let mut state = self.state();
        if let Some(reason) = &state.lost {
            return Err(Error::DeviceLost { reason: reason.clone(), adapter: self.adapter.clone() });
        }
        state.error.take().map_or(Ok(()), |fault| Err(self.typed(what, bytes, fault)))
    }

    /// A fault as an error.
    pub(super) fn typed(&self, what: &'static str, bytes: u64, fault: Fault) -> Error {
        match fault {
            Fault::OutOfMemory => Error::OutOfMemory { what: what.to_owned(), bytes, place: self.adapter.clone() },
            Fault::Refused(message) => self.refused(what, message),
        }
    }

    /// An [`Error::Gpu`] of this adapter.
    pub(super) fn refused(&self, op: &'static str, message: impl AsRef<str>) -> Error {
        Error::Gpu { op, message: one_line(message.as_ref()), adapter: self.adapter.clone() }
    }

    fn record(&self, error: wgpu::Error) {
        tracing::debug!("{}: {error}", self.adapter);
        self.state().error.get_or_insert(error.into());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// wgpu writes causes as an indented tree; an error of ours is one line.
fn one_line(message: &str) -> String {
    let parts: Vec<&str> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    parts.join(" | ")
}
