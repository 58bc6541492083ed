//! Time as plain nanoseconds since an origin. The only file of the base that names the operating system's clock.

/// A clock that counts from its creation.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    #[cfg(not(target_arch = "wasm32"))]
    origin: std::time::Instant,
}

impl Clock {
    /// Starts counting now.
    #[must_use]
    pub fn start() -> Self {
        Self {
            #[cfg(not(target_arch = "wasm32"))]
            origin: std::time::Instant::now(),
        }
    }

    /// Nanoseconds since the start. In a page it stands still until the page hands in its own clock.
    #[must_use]
    pub fn nanos(&self) -> u64 {
        #[cfg(not(target_arch = "wasm32"))]
        return u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        #[cfg(target_arch = "wasm32")]
        return 0;
    }
}

/// Seconds since 1970, for dates in prompts and files; 0 in a page, which has no such clock here.
#[must_use]
pub fn unix_seconds() -> i64 {
    #[cfg(not(target_arch = "wasm32"))]
    return std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(0));
    #[cfg(target_arch = "wasm32")]
    return 0;
}

/// Milliseconds of a span of nanoseconds, for people and JSON.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "a figure for people, not a sum")]
pub fn millis_from_nanos(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}
