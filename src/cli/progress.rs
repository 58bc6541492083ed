//! Progress on stderr, drawn only on a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar. Takes its place only while it is needed: gone when dropped.
pub(super) struct Progress {
    bar: ProgressBar,
}

/// What a bar counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Bytes, with rate.
    Bytes,
    /// Tokens, with rate.
    Tokens,
    /// Requests, with rate.
    Requests,
    /// Kernels; some take long, so that a rate says nothing.
    Kernels,
}

impl Progress {
    /// A bar from 0 to `total`, named `what`.
    #[must_use]
    pub(super) fn bar(what: &str, total: u64, unit: Unit) -> Self {
        let figures = match unit {
            Unit::Bytes => "{bytes}/{total_bytes} {bytes_per_sec}",
            Unit::Tokens => "{pos}/{len} tokens {per_sec}",
            Unit::Requests => "{pos}/{len} requests {per_sec}",
            Unit::Kernels => "{pos}/{len}",
        };
        let left = if unit == Unit::Kernels { "{elapsed}" } else { "{eta}" };
        let bar = ProgressBar::new(total).with_message(what.to_owned());
        bar.set_style(style(&format!("{{msg}} [{{bar:32}}] {figures} {left}")));
        Self { bar }
    }

    /// A spinner for work of unknown length, named `what`.
    #[must_use]
    pub(super) fn spinner(what: &str) -> Self {
        let bar = ProgressBar::new_spinner().with_message(what.to_owned());
        bar.set_style(style("{spinner} {msg} {elapsed}"));
        bar.enable_steady_tick(Duration::from_millis(120));
        Self { bar }
    }

    /// Moves the bar.
    pub(super) fn set(&self, done: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("our templates parse").progress_chars("=> ")
}

/// The bar of `fetch`, which knows itself what to count.
#[must_use]
pub(super) fn download_bar() -> ProgressBar {
    ProgressBar::no_length()
}
