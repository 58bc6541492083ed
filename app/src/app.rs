//! The app: what is open, and the panels around the timeline.

use std::path::Path;

use egui::{CentralPanel, Panel, RichText, ThemePreference, Ui};
use twostroke::engine::event::Event;
use twostroke::sched::Policy;

use crate::run::{Selection, Store};
use crate::source::{Opening, Said, Scenario};
use crate::theme::{Colors, Theme};
use crate::timeline::{COMMANDS, Command, Timeline, short};

/// Batches of events that are taken in a frame.
const BATCHES_A_FRAME: usize = 8;

/// The app's state.
pub struct App {
    theme: Theme,
    store: Store,
    timeline: Timeline,
    opening: Option<Opening>,
    /// What is shown.
    title: String,
    /// What people should know.
    note: Option<String>,
    policy: Policy,
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
        let (store, timeline) = (Store::default(), Timeline::default());
        let (theme, policy) = (Theme::built_in(), Policy::Slo);
        Self { theme, store, timeline, opening: None, title: "nothing open".into(), note: None, policy }
    }

    /// Opens a trace.
    pub fn open(&mut self, path: &Path, ctx: &egui::Context) {
        let ctx = ctx.clone();
        self.begin(path.display().to_string());
        self.opening = Some(Opening::start(path, move || ctx.request_repaint()));
    }

    /// Plays the scenario of the long prompt by the simulator.
    pub fn simulate(&mut self) {
        let scenario = Scenario::long_prompt(self.policy);
        self.begin(format!("simulated: four streams and a long prompt, {}", self.policy.name()));
        match scenario.play() {
            Ok(events) => events.iter().for_each(|event| self.store.take(event)),
            Err(error) => self.note = Some(error.to_string()),
        }
        self.timeline.run(Command::Whole, &self.store);
        self.timeline.view.settle();
    }

    /// Chooses the policy of the next simulation.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// The run that is shown.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The timeline's state.
    pub fn timeline(&mut self) -> &mut Timeline {
        &mut self.timeline
    }

    /// Whether a file is being read.
    #[must_use]
    pub fn is_opening(&self) -> bool {
        self.opening.is_some()
    }

    /// Takes what has come since the last frame.
    pub fn logic(&mut self, ctx: &egui::Context) {
        for file in ctx.input(|input| input.raw.dropped_files.clone()) {
            self.open(file.path(), ctx);
        }
        let Some(opening) = &mut self.opening else { return };
        for _ in 0..BATCHES_A_FRAME {
            match opening.take() {
                None => break,
                Some(Said::Events(events)) => events.iter().for_each(|event| self.store.take(event)),
                Some(Said::Done(note)) => self.note = note,
                Some(Said::Failed(why)) => self.note = Some(why),
            }
        }
        if opening.is_over() {
            self.opening = None;
            self.timeline.run(Command::Whole, &self.store);
        } else {
            ctx.request_repaint();
        }
    }

    /// Draws a frame.
    pub fn ui(&mut self, ui: &mut Ui) {
        let colors = self.theme.of(ui.visuals());
        colors.apply(ui.visuals_mut());
        Panel::top("bar").show(ui, |ui| self.bar_ui(ui));
        Panel::bottom("strip").show(ui, |ui| self.strip_ui(ui, &colors));
        if self.timeline.shows_help {
            Panel::right("keys").show(ui, keys_ui);
        }
        CentralPanel::no_frame().show(ui, |ui| {
            if self.store.requests().is_empty() {
                self.empty_ui(ui);
            } else {
                self.timeline.ui(ui, &self.store, &colors);
            }
        });
    }

    fn begin(&mut self, title: String) {
        (self.store, self.timeline) = (Store::default(), Timeline::default());
        (self.title, self.note, self.opening) = (title, None, None);
        self.timeline.view.follows = false;
    }

    fn bar_ui(&mut self, ui: &mut Ui) {
        ui.horizontal_wrapped(|ui| {
            ui.strong("Twostroke");
            ui.separator();
            egui::ComboBox::from_label("Policy").selected_text(self.policy.name()).show_ui(ui, |ui| {
                for policy in Policy::ALL {
                    ui.selectable_value(&mut self.policy, policy, policy.name());
                }
            });
            if ui.button("Simulate").on_hover_text("Four streams and a long prompt, in virtual time").clicked() {
                self.simulate();
            }
            if ui.button("Fit").clicked() {
                self.timeline.run(Command::Whole, &self.store);
            }
            if ui.button("Keys").on_hover_text("?").clicked() {
                self.timeline.run(Command::Help, &self.store);
            }
            if self.opening.is_some() {
                let chip = self.timeline.chip(&self.store);
                if ui.button(chip).on_hover_text("Space").clicked() {
                    self.timeline.run(Command::Follow, &self.store);
                }
            }
            look_ui(ui);
            ui.separator();
            ui.label(&self.title);
            if let Some(Event::Meta { model, adapter, tier, policy, .. }) = self.store.meta() {
                ui.weak(format!("{model} on {adapter} ({tier}), {policy}"));
            }
        });
    }

    fn strip_ui(&mut self, ui: &mut Ui, colors: &Colors) {
        ui.horizontal_wrapped(|ui| {
            if let Some(opening) = &self.opening {
                ui.spinner();
                ui.label(format!("reading {}: {} events", opening.path.display(), self.store.events()));
            }
            if let Some(note) = &self.note {
                ui.colored_label(colors.preempted, note);
            }
            let (steps, requests) = self.store.folded();
            if steps > 0 {
                ui.weak(format!("the oldest {steps} steps and {requests} requests are folded away"));
            }
            match self.timeline.statistics(&self.store) {
                Some(selection) => strip(ui, selection, colors),
                None => {
                    ui.weak("Drag over the timeline for its statistics; ? shows the keys");
                }
            }
        });
    }

    fn empty_ui(&self, ui: &mut Ui) {
        ui.centered_and_justified(|ui| {
            ui.label(match &self.opening {
                Some(_) => "Reading",
                None => "Drop a trace here (twostroke serve --trace FILE writes one), or press Simulate",
            });
        });
    }
}

/// Light, dark, or as the system has it.
fn look_ui(ui: &mut Ui) {
    let names = [ThemePreference::System, ThemePreference::Light, ThemePreference::Dark].map(|one| (one, look(one)));
    let mut chosen = ui.ctx().options(|options| options.theme_preference);
    egui::ComboBox::from_label("Look").selected_text(look(chosen)).show_ui(ui, |ui| {
        for (one, name) in names {
            ui.selectable_value(&mut chosen, one, name);
        }
    });
    ui.ctx().set_theme(chosen);
}

fn look(preference: ThemePreference) -> &'static str {
    match preference {
        ThemePreference::System => "system",
        ThemePreference::Light => "light",
        ThemePreference::Dark => "dark",
    }
}

fn keys_ui(ui: &mut Ui) {
    ui.heading("Keys");
    egui::Grid::new("keys").striped(true).show(ui, |ui| {
        for (_, key, name) in COMMANDS {
            ui.monospace(key.name());
            ui.label(name);
            ui.end_row();
        }
        for (hand, name) in
            [("Drag", "Select a stretch"), ("Shift+drag", "Move"), ("Ctrl+wheel", "Zoom"), ("Wheel", "Scroll")]
        {
            ui.monospace(hand);
            ui.label(name);
            ui.end_row();
        }
    });
}

/// The statistics of a stretch, in a line.
fn strip(ui: &mut Ui, selection: &Selection, colors: &Colors) {
    let (from, to) = selection.range;
    let split = &selection.split;
    ui.strong(short(crate::run::ms(from, to)));
    ui.separator();
    let mut part = |name: &str, ms: f64, color| {
        ui.label(RichText::new(format!("{name} {}", short(ms))).color(color));
    };
    part("prefill", split.prefill, colors.prefill);
    part("mixed", split.mixed, colors.text);
    part("decode", split.decode, colors.decode);
    part("idle", split.idle, colors.text_weak);
    ui.separator();
    ui.label(format!("{} prefill : {} decode tokens", split.prefill_tokens, split.decode_tokens));
    for (name, spread) in [("steps", &selection.steps), ("gaps", &selection.gaps)] {
        if let Some(spread) = spread {
            ui.separator();
            let [p50, p90, p99] = [50.0, 90.0, 99.0].map(|percent| short(spread.percentile(percent)));
            ui.label(format!("{} {name}, p50 {p50}, p90 {p90}, p99 {p99}", spread.count()));
        }
    }
}
