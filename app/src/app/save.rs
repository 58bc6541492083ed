//! What is shown, as files: the trace, the same for Perfetto, figures as CSV, the timeline as a picture of lines.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use egui::Ui;
use twostroke::engine::event::Event;
use twostroke::trace::{self, Reader};

use super::{App, From};
use crate::source::task;
use crate::timeline::svg;

/// Events of the engine inside and of a simulation that are kept to be saved; a longer run is what `--trace` is for.
const EVENTS_KEPT_MAX: usize = 400_000;

/// Files on their way to the disk.
pub(super) struct Saves {
    sender: Sender<Came>,
    receiver: Receiver<Came>,
    /// Frames until the window is copied: the menu is gone by then.
    picture_in: u8,
}

/// What a save leads to.
enum Came {
    /// What people should know.
    Said(String),
    /// A picture of the window, to be saved.
    #[cfg(not(target_arch = "wasm32"))]
    Picture(Arc<egui::ColorImage>),
}

impl Default for Saves {
    fn default() -> Self {
        let (sender, receiver) = channel();
        Self { sender, receiver, picture_in: 0 }
    }
}

/// The events of a run from its beginning, while they are few enough.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Whoever writes them shares them.
    events: Arc<Vec<Event>>,
    is_cut: bool,
}

impl Kept {
    /// Takes the next event.
    pub(super) fn take(&mut self, event: Event) {
        if self.events.len() < EVENTS_KEPT_MAX {
            Arc::make_mut(&mut self.events).push(event);
        } else {
            self.is_cut = true;
        }
    }

    /// All of them; `None` when there is nothing, or not all of it.
    fn whole(&self) -> Option<Arc<Vec<Event>>> {
        (!self.is_cut && !self.events.is_empty()).then(|| Arc::clone(&self.events))
    }
}

/// Events as JSON Lines.
fn lines(events: &[Event]) -> String {
    events.iter().map(|event| serde_json::to_string(event).expect("an event is JSON") + "\n").collect()
}

/// The same as Perfetto opens it.
fn perfetto(events: &[Event]) -> Result<Vec<u8>, String> {
    let lines = lines(events);
    let mut json = Vec::new();
    let place = "the run that is shown";
    trace::convert(Reader::new(lines.as_bytes(), place), &mut json, Path::new(place))
        .map_err(|error| error.to_string())?;
    Ok(json)
}

impl App {
    /// The trace of the run that is shown, as JSON Lines; `None` for one that was opened (it is a file) or is too long.
    #[must_use]
    pub fn trace_lines(&self) -> Option<String> {
        self.shown_ref().kept.whole().map(|events| lines(&events))
    }

    /// The same as Perfetto opens it.
    #[must_use]
    pub fn perfetto(&self) -> Option<Vec<u8>> {
        perfetto(&self.shown_ref().kept.whole()?).ok()
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
                match self.shown_ref().kept.whole() {
                    Some(events) => self.save("run.jsonl", move || Ok(lines(&events).into_bytes())),
                    None => self.note = Some("this run is a file already, or too long to be kept".into()),
                }
            }
            if entry("For Perfetto", "JSON that ui.perfetto.dev opens") {
                match self.shown_ref().kept.whole() {
                    Some(events) => self.save("run.perfetto.json", move || perfetto(&events)),
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
                self.save("figures.csv", move || Ok(csv.into_bytes()));
            }
            if entry("Timeline as SVG", "What is seen of it") {
                let svg = self.svg(ui.visuals().dark_mode);
                self.save("timeline.svg", move || Ok(svg.into_bytes()));
            }
            // A page's canvas cannot be read back; the browser takes pictures of pages.
            if cfg!(not(target_arch = "wasm32")) && ui.button("Window as PNG").clicked() {
                self.saves.picture_in = 3;
            }
            if ui.button("Workload").on_hover_text("What Simulate and Run ask, to be opened again").clicked() {
                let workload = self.workload.clone();
                self.save("workload.json", move || Ok(workload.text().into_bytes()));
            }
        });
        self.picture(ui.ctx());
        while let Ok(came) = self.saves.receiver.try_recv() {
            match came {
                Came::Said(said) => self.note = Some(said),
                #[cfg(not(target_arch = "wasm32"))]
                Came::Picture(picture) => self.save("twostroke.png", move || png(&picture)),
            }
        }
    }

    /// Copies the window once the menu is gone.
    fn picture(&mut self, ctx: &egui::Context) {
        if self.saves.picture_in == 0 {
            return;
        }
        self.saves.picture_in -= 1;
        ctx.request_repaint();
        #[cfg(not(target_arch = "wasm32"))]
        if self.saves.picture_in == 0 {
            let (sender, wake) = (self.saves.sender.clone(), super::inside::waker(ctx));
            ctx.request_screenshot(move |picture| {
                let _ = sender.send(Came::Picture(picture));
                wake();
            });
        }
    }

    /// Lets a person choose where the bytes go that `make` gives; beside the frames.
    fn save(&self, name: &str, make: impl FnOnce() -> Result<Vec<u8>, String> + Send + 'static) {
        let dialog = rfd::AsyncFileDialog::new().set_file_name(name).save_file();
        let sender = self.saves.sender.clone();
        task(async move {
            // Nobody chose a place.
            let Some(file) = dialog.await else { return };
            let said = match make() {
                Ok(bytes) => file.write(&bytes).await.map_err(|error| error.to_string()),
                Err(why) => Err(why),
            };
            let _ = sender.send(Came::Said(match said {
                Ok(()) => format!("saved {}", file.file_name()),
                Err(why) => format!("{}: {why}", file.file_name()),
            }));
        });
    }
}

/// A picture as PNG.
///
/// # Errors
/// Why it could not be encoded.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn png(picture: &egui::ColorImage) -> Result<Vec<u8>, String> {
    let [width, height] = picture.size.map(|side| u32::try_from(side).unwrap_or(u32::MAX));
    let bytes: Vec<u8> = picture.pixels.iter().flat_map(egui::Color32::to_array).collect();
    let picture = image::RgbaImage::from_raw(width, height, bytes).ok_or("an image without its pixels")?;
    let mut png = std::io::Cursor::new(Vec::new());
    picture.write_to(&mut png, image::ImageFormat::Png).map_err(|error| error.to_string())?;
    Ok(png.into_inner())
}
