//! Models, adapters and settings on the screen.

use egui::{ComboBox, DragValue, Grid, ProgressBar, TextEdit, Ui};
use twostroke::format::quantize::Quantize;
use twostroke::sched::Policy;

use super::Engine;
use crate::host::Source;
use crate::settings::{Device, Settings};
use crate::theme::Colors;

/// What a person wants of the rest of the app.
#[derive(Debug, Clone)]
pub enum Wish {
    /// Open this model with the settings that are chosen.
    Open(Source),
    /// Let a person choose a file.
    Choose,
    /// End what is under way.
    Cancel,
    /// List the adapters.
    List,
    /// Watch the server that is typed.
    Watch,
}

impl Engine {
    /// Draws the panel.
    pub fn ui(&mut self, ui: &mut Ui, colors: &Colors) -> Option<Wish> {
        let mut wish = self.models_ui(ui, colors);
        ui.separator();
        wish = wish.or(self.adapters_ui(ui, colors));
        ui.separator();
        ui.strong("Settings");
        settings_ui(ui, &mut self.settings);
        if self.differs() {
            ui.colored_label(colors.decode, "These take effect when a model is opened.");
        }
        ui.separator();
        wish.or(self.server_ui(ui))
    }

    /// A running server, whose trace is watched instead.
    fn server_ui(&mut self, ui: &mut Ui) -> Option<Wish> {
        ui.strong("A running server");
        let label = ui.label("Address");
        let hint = "127.0.0.1:8000";
        ui.add(TextEdit::singleline(&mut self.server).hint_text(hint).desired_width(170.0)).labelled_by(label.id);
        if cfg!(not(target_arch = "wasm32")) {
            let label = ui.label("Key");
            let field = TextEdit::singleline(&mut self.server_key).password(true).hint_text("if it wants one");
            ui.add(field.desired_width(170.0)).labelled_by(label.id);
        }
        let can = !self.server.trim().is_empty();
        let watch = ui.add_enabled(can, egui::Button::new("Watch"));
        watch.on_hover_text("Its requests on the timeline, as they come").clicked().then_some(Wish::Watch)
    }

    fn models_ui(&mut self, ui: &mut Ui, colors: &Colors) -> Option<Wish> {
        let mut wish = None;
        ui.strong("Model");
        if let Some(facts) = &self.facts {
            ui.label(format!("{} ({})", facts.model, facts.kind));
            let place = if facts.is_software { "a software adapter: slow" } else { "hardware" };
            ui.weak(format!("{}, {} tier, {place}", facts.adapter, facts.tier));
            ui.weak(format!("context {} tokens, {} MB on the device", facts.context_tokens, facts.bytes / 1_000_000));
        } else {
            ui.weak("none is open");
        }
        if let Some(trouble) = &self.trouble {
            ui.colored_label(colors.preempted, trouble);
        }
        if let Some(text) = self.busy_text() {
            let busy = self.busy.expect("there is a text of it");
            #[allow(clippy::cast_precision_loss, reason = "a bar")]
            let part = if busy.total > 0 { busy.done as f32 / busy.total as f32 } else { 0.0 };
            ui.add(ProgressBar::new(part).text(text).animate(busy.total == 0));
            if ui.button("Cancel").clicked() {
                wish = Some(Wish::Cancel);
            }
            return wish;
        }
        ui.horizontal_wrapped(|ui| {
            if ui.button("Open the toy").on_hover_text("7 MB, inside the program: fluent nonsense, at once").clicked() {
                wish = Some(Wish::Open(Source::Toy));
            }
            if ui.button("Open the default model").on_hover_text("SmolLM2-135M, 98 MB; fetched once").clicked() {
                wish = Some(Wish::Open(Source::Named(None)));
            }
            if ui.button("Open a file").on_hover_text("GGUF; or drop one anywhere on the window").clicked() {
                wish = Some(Wish::Choose);
            }
        });
        if cfg!(not(target_arch = "wasm32")) {
            ui.horizontal(|ui| {
                let label = ui.label("By name");
                let field = TextEdit::singleline(&mut self.name)
                    .hint_text("hf:ORG/REPO[:FILE], or a path")
                    .desired_width(170.0);
                let field = ui.add(field).labelled_by(label.id);
                let entered = field.lost_focus() && ui.input(|input| input.key_pressed(egui::Key::Enter));
                let can = !self.name.trim().is_empty();
                if ui.add_enabled(can, egui::Button::new("Open by name")).clicked() || (entered && can) {
                    wish = Some(Wish::Open(Source::Named(Some(self.name.trim().to_owned()))));
                }
            });
        }
        wish
    }

    fn adapters_ui(&mut self, ui: &mut Ui, colors: &Colors) -> Option<Wish> {
        let mut wish = None;
        ui.strong("Adapter");
        let Some(adapters) = &self.adapters else {
            if ui.button("List the adapters").clicked() {
                wish = Some(Wish::List);
            }
            return wish;
        };
        let device = &mut self.settings.device;
        let best = adapters.first().map_or("none".to_owned(), |one| format!("the best: {}", one.title));
        let name = match *device {
            Device::Best => best.clone(),
            Device::Adapter(at) => adapters.get(at).map_or("one that is gone".to_owned(), |one| one.title.clone()),
            Device::Twin => "the processor, without a driver".to_owned(),
        };
        ComboBox::from_label("Runs on").selected_text(name).width(220.0).show_ui(ui, |ui| {
            ui.selectable_value(device, Device::Best, best);
            for (at, one) in adapters.iter().enumerate() {
                let text = format!("{}, up to tier {}", one.title, one.tier);
                ui.selectable_value(device, Device::Adapter(at), text);
            }
            if cfg!(not(target_arch = "wasm32")) {
                ui.selectable_value(device, Device::Twin, "the processor, without a driver");
            }
        });
        if adapters.iter().all(|one| one.is_software) {
            let text = match adapters.is_empty() {
                true => "No adapter: install a graphics driver (Debian, Ubuntu: mesa-vulkan-drivers).",
                false => "Only the processor plays a GPU here: everything works, slowly.",
            };
            ui.colored_label(colors.decode, text);
        }
        for one in &self.skipped {
            ui.weak(format!("left out: {one}"));
        }
        ui.checkbox(&mut self.settings.base_tier, "Base tier only").on_hover_text("As browsers have it: no subgroups");
        wish
    }
}

fn settings_ui(ui: &mut Ui, settings: &mut Settings) {
    Grid::new("settings").num_columns(2).show(ui, |ui| {
        ComboBox::from_id_salt("policy")
            .selected_text(settings.policy.name())
            .show_ui(ui, |ui| {
                for policy in Policy::ALL {
                    ui.selectable_value(&mut settings.policy, policy, policy.name());
                }
            })
            .response
            .widget_info(|| egui::WidgetInfo::labeled(egui::Role::ComboBox, true, "Engine policy"));
        ui.label("policy");
        ui.end_row();
        optional(
            ui,
            "ITL target, ms",
            &mut settings.itl_slo_ms,
            50.0,
            0.1..=1e5,
            "the gap between tokens that chunks keep within",
        );
        optional(ui, "Largest chunk", &mut settings.chunk_tokens, 128, 1..=1 << 16, "of one prompt in a step");
        number(ui, "Tokens a step", &mut settings.step_tokens, 1..=1 << 16, "of all requests together");
        number(ui, "Requests at once", &mut settings.slots, 1..=4096, "others wait");
        optional(ui, "Context", &mut settings.context_tokens, 2048, 16..=1 << 20, "tokens of a prompt and its answer");
        optional(
            ui,
            "KV pool, MiB",
            &mut settings.kv_mib,
            64,
            1..=1 << 20,
            "less than all contexts need makes preemption",
        );
    });
    ui.checkbox(&mut settings.prefix_caching, "Prompt cache");
    ui.checkbox(&mut settings.int8, "8-bit activations");
    ui.checkbox(&mut settings.kv_q8, "8-bit KV");
    let quantize = &mut settings.quantize;
    ComboBox::from_label("Float weights").selected_text(quantize.map_or("as they are", Quantize::name)).show_ui(
        ui,
        |ui| {
            ui.selectable_value(quantize, None, "as they are");
            for one in [Quantize::Int8, Quantize::Int4] {
                ui.selectable_value(quantize, Some(one), one.name());
            }
        },
    );
}

fn number<N: egui::emath::Numeric>(
    ui: &mut Ui,
    name: &str,
    value: &mut N,
    range: std::ops::RangeInclusive<N>,
    hint: &str,
) {
    let label = ui.label(name);
    ui.add(DragValue::new(value).range(range)).labelled_by(label.id).on_hover_text(hint);
    ui.end_row();
}

/// A number, or what the engine takes by itself.
fn optional<N: egui::emath::Numeric>(
    ui: &mut Ui,
    name: &str,
    value: &mut Option<N>,
    first: N,
    range: std::ops::RangeInclusive<N>,
    hint: &str,
) {
    let label = ui.label(name).on_hover_text(hint);
    ui.horizontal(|ui| {
        let mut is_set = value.is_some();
        if ui.checkbox(&mut is_set, format!("Set {name}")).changed() {
            *value = is_set.then_some(first);
        }
        if let Some(value) = value {
            ui.add(DragValue::new(value).range(range)).labelled_by(label.id);
        }
    });
    ui.end_row();
}
