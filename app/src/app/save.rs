//! What is shown, as files: the trace, the same for Perfetto, figures as CSV, the timeline as a picture of lines.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

use egui::Ui;
use twostroke::engine::event::Event;
use twostroke::trace::{self, Reader};

use super::{App, From};
use crate::source::task;
use crate::timeline::svg;

/// Events of the engine inside and of a simulation that are kept to be saved; a longer run is what `--trace` is for.
const EVENTS_KEPT_MAX: usize = 400_000;

/// Files on their way to the disk, and events that could go there.
pub(super) struct Saves {
    sender: Sender<String>,
    receiver: Receiver<String>,
}

impl Default for Saves {
    fn default() -> Self {
        let (sender, receiver) = channel();
        Self { sender, receiver }
    }
}

/// The events of a run from its beginning, while they are few enough.
#[derive(Debug, Default)]
pub(super) struct Kept {
    events: Vec<Event>,
    is_cut: bool,
}

impl Kept {
    /// Takes the next event.
    pub(super) fn take(&mut self, event: Event) {
        if self.events.len() < EVENTS_KEPT_MAX {
            self.events.push(event);
        } else {
            self.is_cut = true;
        }
    }

    /// As JSON Lines; `None` when there is nothing, or not all of it.
    pub(super) fn lines(&self) -> Option<String> {
        let line = |event: &Event| serde_json::to_string(event).expect("an event is JSON") + "\n";
        (!self.is_cut && !self.events.is_empty()).then(|| self.events.iter().map(line).collect())
    }
}

impl App {
    /// The trace of the run that is shown, as JSON Lines; `None` for one that was opened (it is a file) or is too long.
    #[must_use]
    pub fn trace_lines(&self) -> Option<String> {
        self.shown_ref().kept.lines()
    }

    /// The same as Perfetto opens it.
    #[must_use]
    pub fn perfetto(&self) -> Option<Vec<u8>> {
        let lines = self.trace_lines()?;
        let mut json = Vec::new();
        let place = "the run that is shown";
        trace::convert(Reader::new(lines.as_bytes(), place), &mut json, Path::new(place)).ok()?;
        Some(json)
    }

    /// The timeline that is seen, as SVG.
    #[must_use]
    pub fn svg(&self, is_dark: bool) -> String {
        let shown = self.shown_ref();
        svg(&shown.store, &shown.timeline.view, &shown.title, &self.theme.look(is_dark))
    }

    pub(super) fn save_ui(&mut self, ui: &mut Ui) {
        let is_empty = self.store().requests().is_empty();
        ui.menu_button("Save", |ui| {
            let can = !is_empty && self.opening.is_none();
            let mut entry =
                |name: &str, hint: &str| ui.add_enabled(can, egui::Button::new(name)).on_hover_text(hint).clicked();
            if entry("Trace", "JSON Lines, as --trace writes them") {
                match self.trace_lines() {
                    Some(lines) => self.save("run.jsonl", lines.into_bytes()),
                    None => self.note = Some("this run is a file already, or too long to be kept".into()),
                }
            }
            if entry("For Perfetto", "JSON that ui.perfetto.dev opens") {
                match self.perfetto() {
                    Some(json) => self.save("run.perfetto.json", json),
                    None => self.note = Some("twostroke trace convert makes it of a trace file".into()),
                }
            }
            if entry("Figures as CSV", "A line a request") {
                let csv = {
                    let shown = match self.from {
                        From::Engine => &self.live,
                        From::Recorded => &self.recorded,
                    };
                    self.dock.table.csv(&shown.store)
                };
                self.save("figures.csv", csv.into_bytes());
            }
            if entry("Timeline as SVG", "What is seen of it") {
                let svg = self.svg(ui.visuals().dark_mode);
                self.save("timeline.svg", svg.into_bytes());
            }
        });
        while let Ok(said) = self.saves.receiver.try_recv() {
            self.note = Some(said);
        }
    }

    /// Lets a person choose where `bytes` go.
    fn save(&self, name: &str, bytes: Vec<u8>) {
        let dialog = rfd::AsyncFileDialog::new().set_file_name(name).save_file();
        let sender = self.saves.sender.clone();
        task(async move {
            // Nobody chose a place.
            let Some(file) = dialog.await else { return };
            let said = match file.write(&bytes).await {
                Ok(()) => format!("saved {}", file.file_name()),
                Err(error) => format!("{}: {error}", file.file_name()),
            };
            let _ = sender.send(said);
        });
    }
}
