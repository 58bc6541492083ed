//! What is done about a device that fails: a new one, with growing pauses, and an end when that does not help.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::thread::Rebuild;
use crate::engine::executor::Executor;
use crate::error::{Error, Result};
use crate::limits::REBUILDS_MAX;

/// Failures further apart than this are not counted together.
const WINDOW: Duration = Duration::from_secs(120);
/// Pause before the first try; each further one is four times as long.
const PAUSE_FIRST: Duration = Duration::from_millis(100);

/// Counts failures and rebuilds.
pub(super) struct Recovery {
    rebuild: Rebuild,
    /// When tries were made, not older than the window.
    tries: VecDeque<Instant>,
}

impl Recovery {
    pub(super) fn new(rebuild: Rebuild) -> Self {
        Self { rebuild, tries: VecDeque::new() }
    }

    /// A step has ended well.
    pub(super) fn stepped(&mut self) {
        while self.tries.front().is_some_and(|at| at.elapsed() > WINDOW) {
            self.tries.pop_front();
        }
    }

    /// A new executor.
    ///
    /// # Errors
    /// The last failure, after too many tries.
    pub(super) fn executor(&mut self, cause: &Error) -> Result<Box<dyn Executor>> {
        let mut last = cause.to_string();
        loop {
            let tries = self.tries.len();
            if tries >= REBUILDS_MAX {
                let message = format!("the device failed {} times, the last time: {last}", tries + 1);
                return Err(Error::NoDevice(message));
            }
            std::thread::sleep(PAUSE_FIRST * 4_u32.pow(u32::try_from(tries).unwrap_or(3)));
            self.tries.push_back(Instant::now());
            match (self.rebuild)() {
                Ok(executor) => return Ok(executor),
                Err(error) => {
                    tracing::error!(%error, "the device cannot be rebuilt");
                    last = error.to_string();
                }
            }
        }
    }
}
