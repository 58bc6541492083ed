//! Time as plain nanoseconds since an origin. The only file of the base that names the system's clock.

#[cfg(not(target_arch = "wasm32"))]
use std::time::{Instant, SystemTime};

#[cfg(target_arch = "wasm32")]
use web_time::{Instant, SystemTime};

/// A clock that counts from its creation. A page's counts in steps of the browser's choice, 5 to 100 microseconds.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// Starts counting now.
    #[must_use]
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// Nanoseconds since the start.
    #[must_use]
    pub fn nanos(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Seconds since 1970, for dates in prompts and files.
#[must_use]
pub fn unix_seconds() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(0))
}

/// Milliseconds of a span of nanoseconds, for people and JSON.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "a figure for people, not a sum")]
pub fn millis_from_nanos(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}
