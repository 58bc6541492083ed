//! The engine inside, as people see it: which model on which adapter with which settings, what is under way, what went wrong.

mod panel;

pub use panel::Wish;

use std::sync::Arc;

use twostroke::gpu::Measured;
use twostroke::text::tokenizer::Tokenizer;

use crate::host::{AdapterFacts, Facts, Source};
use crate::settings::Settings;

/// A long piece of work that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy {
    /// What.
    pub what: &'static str,
    /// How far.
    pub done: u64,
    /// Of so many; 0 when nobody knows.
    pub total: u64,
    /// These are bytes.
    pub is_bytes: bool,
}

/// What is known of the engine, and what a person is about to choose.
#[derive(Debug, Default)]
pub struct Engine {
    /// What is open.
    pub facts: Option<Facts>,
    /// Its tokenizer.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// What it was opened with.
    pub opened_with: Option<Settings>,
    /// Where the model came from, or comes from.
    pub source: Option<Source>,
    /// What the next one is opened with.
    pub settings: Settings,
    /// The model that is typed: as after `--model`, nothing for the default one.
    pub name: String,
    /// A server to be watched, as it is typed.
    pub server: String,
    /// Its key; never kept.
    pub server_key: String,
    /// Adapters of this machine; `None` until they were listed.
    pub adapters: Option<Vec<AdapterFacts>>,
    /// Adapters that were left out, with the reason.
    pub skipped: Vec<String>,
    /// What the adapter can do, once it was measured.
    pub measured: Option<Measured>,
    /// What is under way.
    pub busy: Option<Busy>,
    /// Why the last opening came to nothing, or what befell the device.
    pub trouble: Option<String>,
    /// Bytes seen at a time, for a rate.
    pace: Option<(f64, u64, f64)>,
}

impl Engine {
    /// Whether the model that is open was opened with other settings than those that are chosen now.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.opened_with.is_some_and(|with| with != self.settings)
    }

    /// Takes what is under way, at `now` seconds.
    pub fn is_under_way(&mut self, busy: Busy, now: f64) {
        let restarts = self.busy.is_none_or(|before| before.what != busy.what || before.done > busy.done);
        match &mut self.pace {
            Some((then, done, rate)) if !restarts => {
                let seconds = now - *then;
                if seconds >= 0.5 {
                    #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
                    let now_rate = (busy.done - *done) as f64 / seconds;
                    (*then, *done, *rate) = (now, busy.done, now_rate);
                }
            }
            pace => *pace = Some((now, busy.done, 0.0)),
        }
        self.busy = Some(busy);
    }

    /// What is under way, in words.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "figures for people")]
    pub fn busy_text(&self) -> Option<String> {
        let busy = self.busy?;
        let mega = |bytes: f64| format!("{:.1} MB", bytes / 1e6);
        let (done, total) = (busy.done as f64, busy.total as f64);
        let mut text = busy.what.to_owned();
        match (busy.total, busy.is_bytes) {
            (0, _) => {}
            (_, true) => text.push_str(&format!(" {} of {}", mega(done), mega(total))),
            (_, false) => text.push_str(&format!(" {} of {}", busy.done, busy.total)),
        }
        let rate = self.pace.map_or(0.0, |(_, _, rate)| rate);
        if busy.is_bytes && rate > 0.0 {
            text.push_str(&format!(", {}/s", mega(rate)));
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_with_bytes_and_rate() {
        let mut engine = Engine::default();
        assert_eq!(engine.busy_text(), None);
        let at = |done| Busy { what: "fetching", done, total: 98_000_000, is_bytes: true };
        engine.is_under_way(at(0), 0.0);
        assert_eq!(engine.busy_text().expect("under way"), "fetching 0.0 MB of 98.0 MB");
        engine.is_under_way(at(5_000_000), 1.0);
        assert_eq!(engine.busy_text().expect("under way"), "fetching 5.0 MB of 98.0 MB, 5.0 MB/s");
        engine.is_under_way(Busy { what: "building kernels", done: 3, total: 40, is_bytes: false }, 2.0);
        assert_eq!(engine.busy_text().expect("under way"), "building kernels 3 of 40");
    }

    #[test]
    fn other_settings_than_those_in_force_are_told() {
        let mut engine = Engine::default();
        assert!(!engine.differs(), "nothing is open");
        engine.opened_with = Some(engine.settings);
        assert!(!engine.differs());
        engine.settings.slots = 2;
        assert!(engine.differs());
    }
}
