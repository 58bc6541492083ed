//! Ctrl-C: the first stops what is going on, the second leaves.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, Result};

/// Presses that nobody has acted on.
static PRESSES: AtomicU32 = AtomicU32::new(0);

/// Exit status of a program that Ctrl-C ended: 128 and the signal's number.
const EXIT_INTERRUPTED: i32 = 130;

/// From now on Ctrl-C is counted; the second press before the first was acted on ends the process.
pub(super) fn install() {
    let installed = ctrlc::set_handler(|| {
        if PRESSES.fetch_add(1, Ordering::SeqCst) >= 1 {
            std::process::exit(EXIT_INTERRUPTED);
        }
    });
    if let Err(error) = installed {
        tracing::warn!(%error, "Ctrl-C will end the program at once");
    }
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
