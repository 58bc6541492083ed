//! The app: what is open, and the panels around the timeline.
//!
//! ```text
//! mod      the state and a frame
//! bar      the bar on top, and the strip at the bottom
//! runs     played on the engine inside, kept
//! simulation  simulated, predicted
//! workloads   what is run: built in, made, opened
//! inside   the engine inside: what it says, what is wanted of it
//! save     what is shown as files
//! preferences  what is kept from one start to the next
//! status   what goes on, in words and as data
//! ```

mod bar;
mod inside;
mod preferences;
mod runs;
mod save;
mod simulation;
mod status;
mod workloads;

#[cfg(not(target_arch = "wasm32"))]
pub(crate) use save::png;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use egui::{CentralPanel, Panel, Ui};

use twostroke::engine::event::Event;

use crate::chat::Chats;
use crate::engine::Engine;
use crate::figures::Dock;
use crate::host::Host;
use crate::run::Store;
use crate::source::{Opening, Picks, Said, Workload};
use crate::theme::Theme;
use crate::timeline::{Command, Timeline};

/// Batches of events that are taken in a frame.
const BATCHES_A_FRAME: usize = 8;

/// A run on the screen.
#[derive(Debug, Default)]
pub struct Shown {
    /// What it is.
    pub title: String,
    /// Its events.
    pub store: Store,
    /// How it is seen.
    pub timeline: Timeline,
    /// Its events as they came, to be saved.
    kept: save::Kept,
}

impl Shown {
    fn new(title: impl Into<String>) -> Self {
        let mut shown = Self { title: title.into(), ..Self::default() };
        shown.timeline.view.follows = false;
        shown
    }

    /// Takes the next event, to be shown and to be saved.
    fn take(&mut self, event: Event) {
        self.store.take(&event);
        self.kept.take(event);
    }

    fn run(&mut self, command: Command) {
        self.timeline.run(command, &self.store);
    }
}

/// Where the run that is shown comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    /// The engine inside, while it works.
    Engine,
    /// A file, or the simulator.
    Recorded,
}

/// Which panels are seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Panels {
    engine: bool,
    chat: bool,
    figures: bool,
}

/// The app's state.
pub struct App {
    theme: Theme,
    /// What the engine inside does.
    live: Shown,
    /// What was recorded or simulated.
    recorded: Shown,
    from: From,
    opening: Option<Opening>,
    /// What people should know.
    note: Option<String>,
    /// What is simulated and played.
    workload: Workload,
    /// The run that others are held against.
    kept: Option<Shown>,
    /// What was predicted of the run that is shown.
    ghost: Option<Store>,
    playing: Option<runs::Playing>,
    simulating: Option<simulation::Simulating>,
    making: workloads::Making,
    /// Prompts of the live run, by request.
    prompts: HashMap<u64, Arc<[u32]>>,
    dock: Dock,
    saves: save::Saves,
    /// Seconds of the frames' clock when progress was told last.
    now: f64,
    host: Option<Host>,
    engine: Engine,
    chats: Chats,
    panels: Panels,
    picks: Picks,
}

impl Default for App {
    fn default() -> Self {
        Self::new()
    }
}

impl App {
    /// An app with nothing open.
    #[must_use]
    pub fn new() -> Self {
        Self {
            theme: Theme::built_in(),
            live: Shown::new("the engine inside"),
            recorded: Shown::new("nothing open"),
            from: From::Recorded,
            opening: None,
            note: None,
            workload: Workload::long_prompt(),
            kept: None,
            ghost: None,
            playing: None,
            simulating: None,
            making: workloads::Making::default(),
            prompts: HashMap::new(),
            dock: Dock::default(),
            saves: save::Saves::default(),
            now: 0.0,
            host: None,
            engine: Engine::default(),
            chats: Chats::default(),
            panels: Panels::default(),
            picks: Picks::default(),
        }
    }

    /// Tells people something.
    pub fn tell(&mut self, what: &str) {
        self.note = Some(what.to_owned());
    }

    /// Shows the engine and the chat beside the timeline.
    pub fn show_panels(&mut self) {
        (self.panels.engine, self.panels.chat) = (true, true);
    }

    /// Opens a trace.
    pub fn open(&mut self, path: &Path, ctx: &egui::Context) {
        self.begin(path.display().to_string());
        self.opening = Some(Opening::start(path, inside::waker(ctx)));
    }

    /// Opens a trace in memory.
    pub fn open_bytes(&mut self, name: &str, bytes: Arc<[u8]>) {
        self.begin(name.to_owned());
        self.opening = Some(Opening::of_bytes(name, bytes));
    }

    /// Watches a running server.
    pub fn watch(&mut self, address: &str, key: &str, ctx: &egui::Context) {
        let opening = Opening::watch(address, key, inside::waker(ctx));
        self.begin(opening.name.clone());
        self.opening = Some(opening);
        self.recorded.timeline.view.follows = true;
    }

    /// The run that is shown.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.shown_ref().store
    }

    /// The timeline's state.
    pub fn timeline(&mut self) -> &mut Timeline {
        &mut self.shown().timeline
    }

    /// The conversations.
    pub fn chats(&mut self) -> &mut Chats {
        &mut self.chats
    }

    /// What is known of the engine inside.
    pub fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Whether a file is being read.
    #[must_use]
    pub fn is_opening(&self) -> bool {
        self.opening.is_some()
    }

    fn shown_ref(&self) -> &Shown {
        match self.from {
            From::Engine => &self.live,
            From::Recorded => &self.recorded,
        }
    }

    fn shown(&mut self) -> &mut Shown {
        match self.from {
            From::Engine => &mut self.live,
            From::Recorded => &mut self.recorded,
        }
    }

    /// Takes what has come since the last frame.
    pub fn logic(&mut self, ctx: &egui::Context) {
        self.pick(ctx);
        self.hear(ctx);
        self.play_on(ctx);
        self.read(ctx);
        self.made();
        self.simulate_on();
        if self.is_simulating() {
            ctx.request_repaint();
        }
    }

    /// A frame's worth of the trace that is being read.
    fn read(&mut self, ctx: &egui::Context) {
        let Some(opening) = &mut self.opening else { return };
        for _ in 0..BATCHES_A_FRAME {
            match opening.take() {
                None => break,
                Some(Said::Events(events)) if opening.is_live => {
                    events.into_iter().for_each(|event| self.recorded.take(event));
                }
                Some(Said::Events(events)) => events.iter().for_each(|event| self.recorded.store.take(event)),
                Some(Said::Done(note)) => self.note = note,
                Some(Said::Failed(why)) => self.note = Some(why),
            }
        }
        let is_live = opening.is_live;
        if opening.is_over() {
            self.opening = None;
            if !is_live {
                self.recorded.run(Command::Whole);
            }
        } else if !is_live {
            ctx.request_repaint();
        }
    }

    /// Draws a frame.
    pub fn ui(&mut self, ui: &mut Ui) {
        let colors = self.theme.of(ui.visuals());
        colors.apply(ui.visuals_mut());
        Panel::top("bar").show(ui, |ui| self.bar_ui(ui));
        Panel::bottom("strip").show(ui, |ui| self.strip_ui(ui, &colors));
        self.inside_ui(ui, &colors);
        self.figures_ui(ui, &colors);
        if self.shown().timeline.shows_help {
            Panel::right("keys").show(ui, bar::keys_ui);
        }
        CentralPanel::no_frame().show(ui, |ui| {
            if self.store().requests().is_empty() && self.kept.is_none() {
                self.empty_ui(ui);
            } else {
                self.timelines_ui(ui, &colors);
            }
        });
    }

    /// Begins a recorded run.
    fn begin(&mut self, title: String) {
        (self.recorded, self.from) = (Shown::new(title), From::Recorded);
        (self.note, self.opening, self.ghost) = (None, None, None);
        self.simulating = None;
        self.dock.forget();
    }

    fn empty_ui(&self, ui: &mut Ui) {
        ui.centered_and_justified(|ui| {
            ui.label(match (&self.opening, self.from) {
                (Some(opening), _) if opening.is_live => "Watching; nothing was asked there yet",
                (Some(_), _) => "Reading",
                (None, From::Engine) => "Nothing asked yet",
                (None, From::Recorded) => {
                    "Drop a trace here (twostroke serve --trace FILE writes one), or press Simulate"
                }
            });
        });
    }
}
