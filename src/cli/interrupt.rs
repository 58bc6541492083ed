//! Ctrl-C: the first stops what is going on, the second leaves.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::error::{Error, Result};

/// Presses that nobody has acted on.
static PRESSES: AtomicU32 = AtomicU32::new(0);

/// Whether the program waits for its input, which nothing else can end.
static WAITING_INPUT: AtomicBool = AtomicBool::new(false);

/// Exit status of a program that Ctrl-C ended: 128 and the signal's number.
const EXIT_INTERRUPTED: i32 = 130;

/// From now on Ctrl-C is counted; the second press before the first was acted on ends the process, and so does the first
/// while input is waited for.
pub(super) fn install() {
    let installed = ctrlc::set_handler(|| {
        if PRESSES.fetch_add(1, Ordering::SeqCst) >= 1 || WAITING_INPUT.load(Ordering::SeqCst) {
            std::process::exit(EXIT_INTERRUPTED);
        }
    });
    if let Err(error) = installed {
        tracing::warn!(%error, "Ctrl-C will end the program at once");
    }
}

/// Runs a read that may wait for ever; Ctrl-C meanwhile ends the process at once.
pub(super) fn while_waiting<T>(read: impl FnOnce() -> T) -> T {
    WAITING_INPUT.store(true, Ordering::SeqCst);
    if is_pressed() {
        std::process::exit(EXIT_INTERRUPTED);
    }
    let got = read();
    WAITING_INPUT.store(false, Ordering::SeqCst);
    got
}

/// Whether Ctrl-C was pressed since [`clear`].
pub(super) fn is_pressed() -> bool {
    PRESSES.load(Ordering::SeqCst) > 0
}

/// `Cancelled` when Ctrl-C was pressed.
///
/// # Errors
/// See above.
pub(super) fn check() -> Result<()> {
    if is_pressed() { Err(Error::Cancelled) } else { Ok(()) }
}

/// Ctrl-C was acted on: what was to be stopped has stopped.
pub(super) fn clear() {
    PRESSES.store(0, Ordering::SeqCst);
}
