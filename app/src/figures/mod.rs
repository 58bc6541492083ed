//! Figures of a run under its timeline: distributions with limits, a table of all requests, the differences of two runs.
//!
//! ```text
//! distributions  histograms and CDFs of TTFT, TPOT and ITL, with limits, and goodput
//! table          a row a request: the same data for those who do not see the canvas, and as CSV
//! roofline       both strokes under the adapter's limits
//! compare        every figure of two runs
//! ```
//!
//! It knows runs. It knows no engine and no file.

mod compare;
mod distributions;
mod roofline;
mod table;

pub use roofline::Limits;
pub use table::{Column, Table};

use egui::Ui;

use crate::run::{Overview, Store};
use crate::theme::Colors;
use twostroke::load::goodput::Goodput;

/// What is seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Tab {
    #[default]
    Distributions,
    Table,
    Roofline,
    Compare,
}

/// What a person wants of the rest of the app.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Show this request.
    Show(u64),
    /// Measure the adapter.
    Measure,
}

/// What is drawn.
pub struct View<'a> {
    /// The run.
    pub store: &'a Store,
    /// The run it is held against.
    pub kept: Option<&'a Store>,
    /// The request that is selected.
    pub selected: Option<u64>,
    /// Of the engine inside.
    pub limits: Option<Limits>,
}

/// The panel's state.
#[derive(Debug, Default)]
pub struct Dock {
    tab: Tab,
    /// Limits that answers are held against.
    pub limits: Goodput,
    distributions: distributions::Distributions,
    /// The table.
    pub table: Table,
    roofline: roofline::Roofline,
    overviews: [Option<(u64, Overview)>; 2],
}

impl Dock {
    /// Forgets what was computed: another run is shown.
    pub fn forget(&mut self) {
        self.overviews = [None, None];
        self.table.forget();
        self.roofline.forget();
    }

    /// Shows the differences of two runs.
    pub fn show_differences(&mut self) {
        self.tab = Tab::Compare;
    }

    /// Draws the figures of a run.
    pub fn ui(&mut self, ui: &mut Ui, view: &View<'_>, colors: &Colors) -> Option<Wish> {
        let store = view.store;
        ui.horizontal(|ui| {
            for (tab, name) in [
                (Tab::Distributions, "Distributions"),
                (Tab::Table, "Table"),
                (Tab::Roofline, "Roofline"),
                (Tab::Compare, "Differences"),
            ] {
                ui.selectable_value(&mut self.tab, tab, name);
            }
        });
        ui.separator();
        let [of_store, of_kept] = &mut self.overviews;
        match self.tab {
            Tab::Distributions => {
                let overview = current(of_store, store);
                self.distributions.ui(ui, overview, &mut self.limits, colors);
                None
            }
            Tab::Table => self.table.ui(ui, store, view.selected).map(Wish::Show),
            Tab::Roofline => self.roofline.ui(ui, store, view.limits, colors).then_some(Wish::Measure),
            Tab::Compare => {
                match view.kept {
                    Some(kept) => {
                        let (a, b) = (current(of_kept, kept), current(of_store, store));
                        compare::ui(ui, a, b, &mut self.limits, colors);
                    }
                    None => {
                        ui.weak("Keep a run as A first (the bar on top), then run or open another one.");
                    }
                }
                None
            }
        }
    }
}

/// The overview of `store` as it is now.
fn current<'a>(known: &'a mut Option<(u64, Overview)>, store: &Store) -> &'a Overview {
    if known.as_ref().is_none_or(|(events, _)| *events != store.events()) {
        *known = Some((store.events(), Overview::of(store)));
    }
    known.as_ref().map(|(_, overview)| overview).expect("just computed")
}

/// A limit that may be off.
fn limit_ui(ui: &mut Ui, name: &str, limit: &mut Option<f64>, first: f64) {
    let mut is_set = limit.is_some();
    if ui.checkbox(&mut is_set, format!("{name} limit")).changed() {
        *limit = is_set.then_some(first);
    }
    if let Some(ms) = limit {
        let label = ui.label("ms");
        ui.add(egui::DragValue::new(ms).range(0.1..=1e6).speed(1.0).fixed_decimals(1)).labelled_by(label.id);
    }
}
