//! Colours, from one file for light and dark. Strokes are told apart by blue and orange, which colour blindness leaves apart, and by
//! height: prefill fills its row, decode ticks do not.

use egui::Color32;
use serde::Deserialize;

/// The look before anybody chose one.
pub const FIRST: egui::ThemePreference = egui::ThemePreference::Dark;

/// Colours of one look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the names are what is drawn")]
pub struct Colors {
    #[serde(deserialize_with = "color")]
    pub background: Color32,
    #[serde(deserialize_with = "color")]
    pub panel: Color32,
    #[serde(deserialize_with = "color")]
    pub row_odd: Color32,
    #[serde(deserialize_with = "color")]
    pub grid: Color32,
    #[serde(deserialize_with = "color")]
    pub text: Color32,
    #[serde(deserialize_with = "color")]
    pub text_weak: Color32,
    #[serde(deserialize_with = "color")]
    pub queued: Color32,
    #[serde(deserialize_with = "color")]
    pub cached: Color32,
    #[serde(deserialize_with = "color")]
    pub prefill: Color32,
    #[serde(deserialize_with = "color")]
    pub decode: Color32,
    #[serde(deserialize_with = "color")]
    pub verify: Color32,
    #[serde(deserialize_with = "color")]
    pub preempted: Color32,
    #[serde(deserialize_with = "color")]
    pub discarded: Color32,
    #[serde(deserialize_with = "color")]
    pub first: Color32,
    #[serde(deserialize_with = "color")]
    pub cancel: Color32,
    #[serde(deserialize_with = "color")]
    pub finish: Color32,
    #[serde(deserialize_with = "color")]
    pub selection: Color32,
    #[serde(deserialize_with = "color")]
    pub lit: Color32,
    #[serde(deserialize_with = "color")]
    pub pages: Color32,
    #[serde(deserialize_with = "color")]
    pub waiting: Color32,
    #[serde(deserialize_with = "color")]
    pub ghost: Color32,
}

/// Both looks.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Theme {
    /// On dark ground.
    pub dark: Colors,
    /// On light ground.
    pub light: Colors,
}

impl Theme {
    /// The one that is built in.
    #[must_use]
    pub fn built_in() -> Self {
        serde_json::from_str(include_str!("../theme.json")).expect("a test reads the file")
    }

    /// The look on dark or on light ground.
    #[must_use]
    pub fn look(&self, is_dark: bool) -> Colors {
        if is_dark { self.dark } else { self.light }
    }

    /// The look of these visuals.
    #[must_use]
    pub fn of(&self, visuals: &egui::Visuals) -> Colors {
        self.look(visuals.dark_mode)
    }
}

impl Colors {
    /// Puts these colours on egui's own widgets.
    pub fn apply(&self, visuals: &mut egui::Visuals) {
        visuals.panel_fill = self.panel;
        visuals.window_fill = self.panel;
        visuals.extreme_bg_color = self.background;
        visuals.override_text_color = Some(self.text);
    }
}

fn color<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Color32, D::Error> {
    let text = String::deserialize(deserializer)?;
    Color32::from_hex(&text)
        .map_err(|_| serde::de::Error::custom(format!("expected a colour such as #a1b2c3, got {text}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance, as WCAG has it.
    fn luminance(color: Color32) -> f64 {
        let of = |byte: u8| {
            let part = f64::from(byte) / 255.0;
            if part <= 0.040_45 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * of(color.r()) + 0.7152 * of(color.g()) + 0.0722 * of(color.b())
    }

    fn contrast(a: Color32, b: Color32) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn text_and_strokes_stand_out_from_their_ground() {
        let theme = Theme::built_in();
        for look in [theme.dark, theme.light] {
            for ground in [look.background, look.panel, look.row_odd] {
                assert!(contrast(look.text, ground) >= 7.0);
                assert!(contrast(look.text_weak, ground) >= 4.5, "{}", contrast(look.text_weak, ground));
                for drawn in [look.prefill, look.decode, look.verify, look.preempted, look.cached] {
                    assert!(contrast(drawn, ground) >= 3.0, "{drawn:?} on {ground:?}: {}", contrast(drawn, ground));
                }
            }
        }
    }
}
