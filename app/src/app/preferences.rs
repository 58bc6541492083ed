//! What is kept from one start to the next: choices, not what was said.

use serde::{Deserialize, Serialize};
use twostroke::load::goodput::Goodput;

use super::{App, Panels};
use crate::chat::Parameters;
use crate::settings::Settings;

/// See the module. What an older or newer build has written is taken as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Preferences {
    settings: Settings,
    parameters: Parameters,
    engine: bool,
    chat: bool,
    figures: bool,
    name: String,
    server: String,
    ttft_limit_ms: Option<f64>,
    tpot_limit_ms: Option<f64>,
}

impl App {
    /// What is kept, as JSON.
    #[must_use]
    pub fn preferences(&self) -> String {
        let Panels { engine, chat, figures } = self.panels;
        let preferences = Preferences {
            settings: self.engine.settings,
            parameters: self.chats.parameters.clone(),
            engine,
            chat,
            figures,
            name: self.engine.name.clone(),
            server: self.engine.server.clone(),
            ttft_limit_ms: self.dock.limits.ttft_ms,
            tpot_limit_ms: self.dock.limits.tpot_ms,
        };
        serde_json::to_string(&preferences).expect("plain data")
    }

    /// Takes what [`App::preferences`] gave; `false`, and nothing is changed, for anything else.
    pub fn prefer(&mut self, text: &str) -> bool {
        let Ok(preferences) = serde_json::from_str::<Preferences>(text) else { return false };
        let Preferences { settings, parameters, engine, chat, figures, name, server, ttft_limit_ms, tpot_limit_ms } =
            preferences;
        (self.engine.settings, self.chats.parameters) = (settings.within_bounds(), parameters);
        self.panels = Panels { engine, chat, figures };
        (self.engine.name, self.engine.server) = (name, server);
        self.dock.limits = Goodput { ttft_ms: ttft_limit_ms, tpot_ms: tpot_limit_ms, e2el_ms: None };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_come_back_at_the_next_start_and_nonsense_changes_nothing() {
        let mut app = App::new();
        app.show_panels();
        app.engine.settings.slots = 3;
        app.chats.parameters.temperature = 0.25;
        app.dock.limits.tpot_ms = Some(40.0);
        let text = app.preferences();
        let mut next = App::new();
        assert!(next.prefer(&text));
        assert_eq!(next.preferences(), text);
        for wrong in ["", "7", "{\"settings\":{\"slots\":-1}}", "{\"settings\":{\"policy\":\"none\"}}"] {
            assert!(!next.prefer(wrong), "{wrong}");
            assert_eq!(next.preferences(), text);
        }
        assert!(next.prefer("{\"settings\":{\"slots\":0,\"step_tokens\":0,\"chunk_tokens\":0}}"));
        next.simulate();
        next.simulate_whole();
        assert!(!next.store().requests().is_empty(), "nothing that a file holds keeps the program from starting");
        assert!(next.prefer("{\"unknown\":1}"), "another build's");
        assert_eq!(next.engine.settings, Settings::default());
    }
}
