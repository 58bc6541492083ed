//! A clock that stands still until somebody moves it.

use std::cell::Cell;
use std::rc::Rc;

/// Nanoseconds since the start of a simulation. Copies are hands of the same clock.
#[derive(Debug, Clone, Default)]
pub struct VirtualClock {
    nanos: Rc<Cell<u64>>,
}

impl VirtualClock {
    /// Nanoseconds now.
    #[must_use]
    pub fn nanos(&self) -> u64 {
        self.nanos.get()
    }

    /// Lets time pass until `nanos`; it never goes back.
    pub fn advance_to(&self, nanos: u64) {
        self.nanos.set(self.nanos.get().max(nanos));
    }
}
