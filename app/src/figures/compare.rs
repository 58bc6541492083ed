//! Two runs, figure by figure.

use egui::{Grid, RichText, ScrollArea, Ui};
use twostroke::load::goodput::Goodput;

use super::limit_ui;
use crate::run::{Difference, Overview};
use crate::theme::Colors;

/// Changes below this part are none.
const NOTHING: f64 = 0.01;

pub(super) fn ui(ui: &mut Ui, a: &Overview, b: &Overview, limits: &mut Goodput, colors: &Colors) {
    ui.horizontal_wrapped(|ui| {
        limit_ui(ui, "TTFT", &mut limits.ttft_ms, 500.0);
        limit_ui(ui, "TPOT", &mut limits.tpot_ms, 50.0);
    });
    ScrollArea::vertical().id_salt("differences").show(ui, |ui| {
        Grid::new("differences").striped(true).num_columns(4).show(ui, |ui| {
            for name in ["", "A", "B", "B against A"] {
                ui.strong(name);
            }
            ui.end_row();
            for difference in a.differences(b, limits) {
                ui.label(difference.name);
                ui.label(number(difference.a));
                ui.label(number(difference.b));
                let (text, good) = change(&difference);
                let color = match good {
                    Some(true) => colors.cached,
                    Some(false) => colors.preempted,
                    None => colors.text_weak,
                };
                ui.label(RichText::new(text).color(color));
                ui.end_row();
            }
        });
    });
}

fn number(value: Option<f64>) -> String {
    match value {
        None => "none".to_owned(),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) => format!("{value:.2}"),
    }
}

/// The change in words, and whether it is for the better.
fn change(difference: &Difference) -> (String, Option<bool>) {
    let Some(change) = difference.change() else { return (String::new(), None) };
    if change.abs() < NOTHING {
        return ("the same".to_owned(), None);
    }
    let is_good = (change < 0.0) == difference.less_is_better;
    // Beside the colour a word, for those who see no difference in it.
    let word = if is_good { "better" } else { "worse" };
    (format!("{:+.0} %, {word}", change * 100.0), Some(is_good))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_with_its_direction() {
        let of = |a, b, less_is_better| change(&Difference { name: "x", a: Some(a), b: Some(b), less_is_better });
        assert_eq!(of(100.0, 50.0, true), ("-50 %, better".to_owned(), Some(true)));
        assert_eq!(of(100.0, 50.0, false), ("-50 %, worse".to_owned(), Some(false)));
        assert_eq!(of(100.0, 130.0, true), ("+30 %, worse".to_owned(), Some(false)));
        assert_eq!(of(100.0, 100.4, true), ("the same".to_owned(), None));
        assert_eq!(of(0.0, 4.0, true), (String::new(), None));
    }
}
