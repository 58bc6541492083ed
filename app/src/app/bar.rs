//! The bar on top: what is shown and how; the strip at the bottom: the statistics of a stretch.

use egui::{RichText, ThemePreference, Ui};
use twostroke::engine::event::Event;
use twostroke::sched::Policy;

use super::{App, From};
use crate::run::{Selection, ms};
use crate::theme::Colors;
use crate::timeline::{COMMANDS, Command, short};

impl App {
    pub(super) fn bar_ui(&mut self, ui: &mut Ui) {
        ui.horizontal_wrapped(|ui| {
            ui.strong("Twostroke");
            ui.separator();
            ui.toggle_value(&mut self.panels.engine, "Engine").on_hover_text("Models, adapters, settings");
            ui.toggle_value(&mut self.panels.chat, "Chat");
            ui.toggle_value(&mut self.panels.figures, "Figures").on_hover_text("Distributions, a table, differences");
            if self.host.is_some() {
                ui.selectable_value(&mut self.from, From::Engine, "Live").on_hover_text("What the engine inside does");
                ui.selectable_value(&mut self.from, From::Recorded, "Recorded")
                    .on_hover_text("The trace or simulation");
            }
            ui.separator();
            let policy = &mut self.engine.settings.policy;
            egui::ComboBox::from_label("Policy").selected_text(policy.name()).show_ui(ui, |ui| {
                for one in Policy::ALL {
                    ui.selectable_value(policy, one, one.name());
                }
            });
            self.runs_ui(ui);
            ui.separator();
            if ui.button("Fit").clicked() {
                self.shown().run(Command::Whole);
            }
            if ui.button("Keys").on_hover_text("?").clicked() {
                self.shown().run(Command::Help);
            }
            if self.opening.is_some() || self.from == From::Engine {
                let shown = self.shown();
                let chip = shown.timeline.chip(&shown.store);
                if ui.button(chip).on_hover_text("Space").clicked() {
                    shown.run(Command::Follow);
                }
            }
            self.save_ui(ui);
            look_ui(ui);
            self.find_ui(ui);
            ui.separator();
            ui.label(&self.shown().title);
            if let Some(Event::Meta { model, adapter, tier, policy, .. }) = self.store().meta() {
                ui.weak(format!("{model} on {adapter} ({tier}), {policy}"));
            }
        });
    }

    /// The field of what is looked for, while it is open.
    fn find_ui(&mut self, ui: &mut Ui) {
        let shown = self.shown();
        let Some(mut text) = shown.timeline.search.take() else { return };
        let label = ui.label("Find request");
        let field = ui.add(egui::TextEdit::singleline(&mut text).hint_text("number or state").desired_width(110.0));
        let field = field.labelled_by(label.id);
        if text.is_empty() {
            field.request_focus();
        }
        let is_over = field.lost_focus() || ui.input(|input| input.key_pressed(egui::Key::Escape));
        if field.changed() || is_over {
            let wanted = text.trim().trim_start_matches('#').to_lowercase();
            let fits = |request: &&crate::run::Request| {
                !wanted.is_empty() && (request.id.to_string() == wanted || request.state.word().starts_with(&wanted))
            };
            if let Some(found) = shown.store.requests().iter().find(fits).map(|request| request.id) {
                shown.timeline.selected = Some(found);
                shown.run(Command::Focus);
            }
        }
        if !is_over {
            shown.timeline.search = Some(text);
        }
    }

    pub(super) fn strip_ui(&mut self, ui: &mut Ui, colors: &Colors) {
        ui.horizontal_wrapped(|ui| {
            if let Some(opening) = &self.opening {
                ui.spinner();
                let doing = if opening.is_live { "watching" } else { "reading" };
                ui.label(format!("{doing} {}: {} events", opening.name, self.recorded.store.events()));
            }
            if let Some(text) = self.simulation_text() {
                ui.spinner();
                ui.label(text);
                if ui.button("Stop simulating").clicked() {
                    self.stop_simulation();
                }
            }
            if let Some(note) = &self.note {
                ui.colored_label(colors.preempted, note);
            }
            let (steps, requests) = self.store().folded();
            if steps > 0 {
                ui.weak(format!("the oldest {steps} steps and {requests} requests are folded away"));
            }
            let shown = self.shown();
            match shown.timeline.statistics(&shown.store) {
                Some(selection) => strip(ui, selection, colors),
                None => {
                    ui.weak("Drag over the timeline for its statistics; ? shows the keys");
                }
            }
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

pub(super) fn keys_ui(ui: &mut Ui) {
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
    ui.strong(short(ms(from, to)));
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
