//! A row a request: the timeline's data for those who do not see the canvas, sortable, to be filtered, and as CSV.

use std::cmp::Ordering;

use egui::{TextEdit, Ui};
use egui_extras::{Column as Width, TableBuilder};

use crate::run::{Figures, Request, Store};

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are what they hold")]
pub enum Column {
    Id,
    State,
    Prompt,
    Cached,
    Output,
    Queue,
    Ttft,
    Tpot,
    ItlP99,
    ItlMax,
    E2e,
    TokensPerSecond,
}

impl Column {
    /// All columns, in their order.
    pub const ALL: [Self; 12] = [
        Self::Id,
        Self::State,
        Self::Prompt,
        Self::Cached,
        Self::Output,
        Self::Queue,
        Self::Ttft,
        Self::Tpot,
        Self::ItlP99,
        Self::ItlMax,
        Self::E2e,
        Self::TokensPerSecond,
    ];

    /// Its name, as in the CSV.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Id => "request",
            Self::State => "state",
            Self::Prompt => "prompt_tokens",
            Self::Cached => "cached_tokens",
            Self::Output => "output_tokens",
            Self::Queue => "queue_ms",
            Self::Ttft => "ttft_ms",
            Self::Tpot => "tpot_ms",
            Self::ItlP99 => "p99_itl_ms",
            Self::ItlMax => "max_itl_ms",
            Self::E2e => "e2el_ms",
            Self::TokensPerSecond => "tokens_per_second",
        }
    }
}

/// A request's row.
#[derive(Debug, Clone)]
struct Line {
    id: u64,
    state: String,
    prompt_tokens: u32,
    figures: Figures,
}

impl Line {
    fn of(request: &Request, store: &Store) -> Self {
        Self {
            id: request.id,
            state: request.state.word().to_owned(),
            prompt_tokens: request.prompt_tokens,
            figures: request.figures(store),
        }
    }

    /// What stands in a column, as a number where it is one.
    #[allow(clippy::cast_precision_loss, reason = "to be sorted and read")]
    fn number(&self, column: Column) -> Option<f64> {
        let figures = &self.figures;
        match column {
            Column::Id => Some(self.id as f64),
            Column::State => None,
            Column::Prompt => Some(self.prompt_tokens.into()),
            Column::Cached => Some(figures.cached_tokens.into()),
            Column::Output => Some(figures.output_tokens as f64),
            Column::Queue => figures.queue,
            Column::Ttft => figures.ttft,
            Column::Tpot => figures.tpot,
            Column::ItlP99 => figures.itl_p99,
            Column::ItlMax => figures.itl_max,
            Column::E2e => figures.e2e,
            Column::TokensPerSecond => figures.tokens_per_second,
        }
    }

    fn text(&self, column: Column) -> String {
        match column {
            Column::State => self.state.clone(),
            Column::Id => self.id.to_string(),
            Column::Prompt | Column::Cached | Column::Output => {
                self.number(column).map(|count| format!("{count:.0}")).unwrap_or_default()
            }
            _ => self.number(column).map(|ms| format!("{ms:.3}")).unwrap_or_default(),
        }
    }

    fn order(&self, other: &Self, (column, largest_first): (Column, bool)) -> Ordering {
        let directed = |order: Ordering| if largest_first { order.reverse() } else { order };
        match (self.number(column), other.number(column)) {
            (Some(a), Some(b)) => directed(a.total_cmp(&b)),
            // What is not there yet comes last either way.
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) if column == Column::State => directed(self.state.cmp(&other.state)),
            (None, None) => Ordering::Equal,
        }
    }
}

/// What lines were made of.
#[derive(Debug, Clone, PartialEq)]
struct Made {
    events: u64,
    sort: (Column, bool),
    filter: String,
}

/// The table's state.
#[derive(Debug)]
pub struct Table {
    /// Column by which it is sorted, and whether the largest comes first.
    pub sort: (Column, bool),
    /// What is looked for: a part of a request's number or state.
    pub filter: String,
    lines: Vec<Line>,
    made: Option<Made>,
}

impl Default for Table {
    fn default() -> Self {
        Self { sort: (Column::Id, false), filter: String::new(), lines: Vec::new(), made: None }
    }
}

impl Table {
    pub(super) fn forget(&mut self) {
        self.made = None;
    }

    /// Makes the lines that are shown, if anything has changed.
    fn renew(&mut self, store: &Store) {
        let made = Made { events: store.events(), sort: self.sort, filter: self.filter.clone() };
        if self.made.as_ref() == Some(&made) {
            return;
        }
        let wanted = self.filter.trim().trim_start_matches('#').to_lowercase();
        let is_wanted = |line: &Line| {
            wanted.is_empty() || line.id.to_string().contains(&wanted) || line.state.to_lowercase().contains(&wanted)
        };
        self.lines = store.requests().iter().map(|request| Line::of(request, store)).filter(is_wanted).collect();
        self.lines.sort_by(|a, b| a.order(b, self.sort));
        self.made = Some(made);
    }

    /// The lines that are shown, as CSV with a head.
    #[must_use]
    pub fn csv(&mut self, store: &Store) -> String {
        self.renew(store);
        let head = Column::ALL.map(Column::name).join(",");
        let lines = self.lines.iter().map(|line| Column::ALL.map(|column| line.text(column)).join(","));
        std::iter::once(head).chain(lines).map(|line| line + "\n").collect()
    }

    pub(super) fn ui(&mut self, ui: &mut Ui, store: &Store, selected: Option<u64>) -> Option<u64> {
        let mut chosen = None;
        ui.horizontal(|ui| {
            let label = ui.label("Find");
            ui.add(TextEdit::singleline(&mut self.filter).hint_text("a number or a state").desired_width(140.0))
                .labelled_by(label.id);
            if ui.button("Copy as CSV").clicked() {
                let csv = self.csv(store);
                ui.ctx().copy_text(csv);
            }
            self.renew(store);
            ui.weak(format!("{} of {} requests", self.lines.len(), store.requests().len()));
        });
        let mut sort = self.sort;
        let lines = &self.lines;
        let table = TableBuilder::new(ui)
            .striped(true)
            .sense(egui::Sense::click())
            .columns(Width::auto().at_least(54.0), Column::ALL.len());
        table
            .header(18.0, |mut row| {
                for column in Column::ALL {
                    row.col(|ui| {
                        let mark = match sort {
                            (by, true) if by == column => " (largest first)",
                            (by, false) if by == column => " (least first)",
                            _ => "",
                        };
                        if ui.button(format!("{}{mark}", column.name())).clicked() {
                            sort = (column, sort.0 == column && !sort.1);
                        }
                    });
                }
            })
            .body(|body| {
                body.rows(16.0, lines.len(), |mut row| {
                    let line = &lines[row.index()];
                    row.set_selected(selected == Some(line.id));
                    for column in Column::ALL {
                        row.col(|ui| {
                            ui.label(line.text(column));
                        });
                    }
                    if row.response().clicked() {
                        chosen = Some(line.id);
                    }
                });
            });
        self.sort = sort;
        chosen
    }
}

#[cfg(test)]
mod tests {
    use twostroke::sched::Policy;

    use super::*;
    use crate::source::Scenario;

    fn store() -> Store {
        let mut store = Store::default();
        Scenario::long_prompt(Policy::Slo).play().expect("it fits").iter().for_each(|event| store.take(event));
        store
    }

    #[test]
    fn lines_are_sorted_and_filtered_and_go_out_as_csv() {
        let store = store();
        let mut table = Table { sort: (Column::Prompt, true), ..Table::default() };
        let csv = table.csv(&store);
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 6);
        assert!(lines[0].starts_with("request,state,prompt_tokens,"));
        assert!(lines[1].starts_with("4,length,2000,"), "{}", lines[1]);
        assert!(lines.iter().all(|line| line.split(',').count() == Column::ALL.len()));
        table.filter = "#3".into();
        assert_eq!(table.csv(&store).lines().count(), 2);
        table.filter = "nothing".into();
        assert_eq!(table.csv(&store).lines().count(), 1);
    }

    #[test]
    fn figures_of_a_line_are_those_of_its_request() {
        let store = store();
        let mut table = Table::default();
        let csv = table.csv(&store);
        let line: Vec<&str> = csv.lines().nth(2).expect("a line").split(',').collect();
        let figures = store.requests()[1].figures(&store);
        let ttft: f64 = line[6].parse().expect("a number");
        assert!((ttft - figures.ttft.expect("an answer")).abs() < 1e-3);
        assert_eq!(line[4], "160");
    }

    #[test]
    fn what_has_no_figure_comes_last_whichever_way() {
        let mut store = store();
        store.take(&twostroke::engine::event::Event::Arrive {
            t: store.end(),
            id: 99,
            prompt_tokens: 1,
            max_tokens: 1,
            priority: 0,
        });
        for largest_first in [false, true] {
            let mut table = Table { sort: (Column::Ttft, largest_first), ..Table::default() };
            assert!(table.csv(&store).lines().last().expect("lines").starts_with("99,queued"));
        }
    }
}
