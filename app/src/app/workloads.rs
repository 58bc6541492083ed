//! Which workload is run: one that is built in, what is shown, one made as `twostroke replay` makes it, one of a file.

use std::sync::mpsc::{Receiver, Sender, channel};

use egui::{ComboBox, DragValue, Grid, TextEdit, Ui};
use twostroke::error::Result;

use super::App;
use super::inside::waker;
use crate::source::{BUILT_IN, Kind, Recipe, Workload, task};

/// A workload that is being made, and what of it was chosen.
pub(super) struct Making {
    recipe: Recipe,
    is_open: bool,
    under_way: u32,
    sender: Sender<Result<Workload>>,
    receiver: Receiver<Result<Workload>>,
}

impl Default for Making {
    fn default() -> Self {
        let (sender, receiver) = channel();
        Self { recipe: Recipe::default(), is_open: false, under_way: 0, sender, receiver }
    }
}

impl App {
    /// The workload that is chosen.
    #[must_use]
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Makes or reads a workload beside the frames.
    pub(super) fn make(&mut self, ctx: &egui::Context, make: impl FnOnce() -> Result<Workload> + Send + 'static) {
        let (sender, wake) = (self.making.sender.clone(), waker(ctx));
        self.making.under_way += 1;
        task(async move {
            let _ = sender.send(make());
            wake();
        });
    }

    /// Whether a workload is being made or read.
    #[must_use]
    pub fn is_making(&self) -> bool {
        self.making.under_way > 0
    }

    /// Takes a workload that was made.
    pub(super) fn made(&mut self) {
        while let Ok(made) = self.making.receiver.try_recv() {
            self.making.under_way -= 1;
            match made {
                Ok(workload) => (self.workload, self.note) = (workload, None),
                Err(error) => self.note = Some(error.to_string()),
            }
        }
    }

    /// The choice, in the bar.
    pub(super) fn workloads_ui(&mut self, ui: &mut Ui) {
        ComboBox::from_label("Workload").selected_text(&self.workload.name).width(150.0).show_ui(ui, |ui| {
            for (name, make) in BUILT_IN {
                if ui.selectable_label(false, name).clicked() {
                    self.workload = make();
                }
            }
            let again =
                ui.add_enabled(!self.store().requests().is_empty(), egui::Button::selectable(false, "what is shown"));
            if again.on_hover_text("The same requests again").clicked() {
                self.workload = Workload::of_run(self.store(), &self.prompts_of_shown()).unwrap_or_default();
            }
            if ui.selectable_label(false, "make one").on_hover_text("The datasets of twostroke replay").clicked() {
                self.making.is_open = true;
            }
            if ui.selectable_label(false, "open a file").on_hover_text("As Save writes them").clicked() {
                self.picks.choose(waker(ui.ctx()));
            }
        });
        self.making_ui(ui);
    }

    /// The window in which one is made.
    fn making_ui(&mut self, ui: &mut Ui) {
        let mut is_open = self.making.is_open;
        let mut is_wanted = false;
        egui::Window::new("Make a workload").open(&mut is_open).resizable(false).show(ui.ctx(), |ui| {
            recipe_ui(ui, &mut self.making.recipe);
            ui.horizontal(|ui| {
                is_wanted = ui.add_enabled(!self.is_making(), egui::Button::new("Make it")).clicked();
                if self.is_making() {
                    ui.spinner();
                } else {
                    ui.weak(format!("now: {}", self.workload.name));
                }
            });
        });
        self.making.is_open = is_open;
        if is_wanted {
            let recipe = self.making.recipe.clone();
            let vocab = self.scenario().machine.vocab;
            let tokenizer = self.engine.tokenizer.clone();
            self.make(&ui.ctx().clone(), move || recipe.make(vocab, tokenizer.as_deref()));
        }
    }
}

fn recipe_ui(ui: &mut Ui, recipe: &mut Recipe) {
    ComboBox::from_label("Dataset").selected_text(recipe.kind.name()).show_ui(ui, |ui| {
        // A page has no paths.
        for kind in Kind::ALL.into_iter().filter(|kind| !kind.has_file() || cfg!(not(target_arch = "wasm32"))) {
            ui.selectable_value(&mut recipe.kind, kind, kind.name());
        }
    });
    Grid::new("recipe").num_columns(2).show(ui, |ui| {
        let mut row = |name: &str, value: DragValue<'_>| {
            let label = ui.label(name);
            ui.add(value).labelled_by(label.id);
            ui.end_row();
        };
        row("Requests", DragValue::new(&mut recipe.prompts).range(1..=100_000));
        row("Seed", DragValue::new(&mut recipe.seed));
        row("Burstiness", DragValue::new(&mut recipe.burstiness).range(0.01..=100.0).speed(0.05));
        match recipe.kind {
            Kind::Random | Kind::PrefixRepetition => {
                row("Tokens of a shared prefix", DragValue::new(&mut recipe.prefix_tokens).range(0..=1 << 20));
                row("Tokens of a prompt behind it", DragValue::new(&mut recipe.input_tokens).range(1..=1 << 20));
                row("Tokens of an answer", DragValue::new(&mut recipe.output_tokens).range(1..=1 << 20));
            }
            Kind::Mooncake => {
                row("Factor of lengths", DragValue::new(&mut recipe.length_scale).range(0.001..=10.0).speed(0.01));
            }
            Kind::ShareGpt => {}
        }
        match recipe.kind {
            Kind::Random => {
                row("Lengths vary by", DragValue::new(&mut recipe.range_ratio).range(0.0..=0.99).speed(0.01));
            }
            Kind::PrefixRepetition => row("Prefixes", DragValue::new(&mut recipe.prefixes).range(1..=10_000)),
            Kind::ShareGpt | Kind::Mooncake => {
                let label = ui.label("File");
                ui.add(TextEdit::singleline(&mut recipe.path).hint_text("its path").desired_width(220.0))
                    .labelled_by(label.id);
                ui.end_row();
            }
        }
    });
    let mut is_paced = recipe.rate.is_some();
    let other = if recipe.kind == Kind::Mooncake { "else at the trace's times" } else { "else all at once" };
    ui.horizontal(|ui| {
        if ui.checkbox(&mut is_paced, "Requests a second").on_hover_text(other).changed() {
            recipe.rate = is_paced.then_some(2.0);
        }
        if let Some(rate) = &mut recipe.rate {
            let field = ui.add(DragValue::new(rate).range(0.001..=100_000.0).speed(0.1));
            field.widget_info(|| egui::WidgetInfo::labeled(egui::Role::SpinButton, true, "Rate"));
        }
    });
}
