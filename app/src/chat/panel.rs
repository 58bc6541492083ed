//! The conversations on the screen.

use egui::{Align, Key, Layout, Modifiers, RichText, ScrollArea, TextEdit, Ui};
use egui_commonmark::{CommonMarkCache, CommonMarkViewer};

use super::conversation::{Answer, Progress, Turn};
use super::{Chats, Parameters};
use crate::host::{Ask, AskId, Facts, Finish};
use crate::run::{Figures, Store};
use crate::theme::Colors;
use crate::timeline::short;

/// Laid-out Markdown.
#[derive(Default)]
pub(super) struct Caches(CommonMarkCache);

impl std::fmt::Debug for Caches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Caches")
    }
}

/// What a person wants of the rest of the app.
#[derive(Debug, Clone, PartialEq)]
pub enum Wish {
    /// Ask this.
    Ask(Ask),
    /// End this answer.
    Stop(AskId),
    /// Show the row of this request.
    Show(u64),
}

/// What a click in the list of turns asks for.
enum Click {
    Again(usize),
    Edit(usize),
    Show(u64),
}

impl Chats {
    /// Draws the conversations; `facts` of the model that answers, `store` of the run its requests are in.
    pub fn ui(&mut self, ui: &mut Ui, store: &Store, facts: Option<&Facts>, colors: &Colors) -> Option<Wish> {
        let mut wish = self.tabs_ui(ui);
        ui.collapsing("Parameters", |ui| parameters_ui(ui, &mut self.parameters));
        ui.separator();
        let below = self.field_ui(ui, facts.is_some());
        wish = wish.or(below);
        match self.turns_ui(ui, store, facts, colors) {
            Some(Click::Again(turn)) => wish = self.again(turn).map(Wish::Ask),
            Some(Click::Edit(turn)) => self.edit(turn),
            Some(Click::Show(request)) => wish = Some(Wish::Show(request)),
            None => {}
        }
        wish
    }

    fn tabs_ui(&mut self, ui: &mut Ui) -> Option<Wish> {
        let mut wish = None;
        ui.horizontal_wrapped(|ui| {
            for (at, one) in self.list.iter().enumerate() {
                let name = if one.answering().is_some() { format!("{} ...", one.name) } else { one.name.clone() };
                if ui.selectable_label(at == self.current, name).clicked() {
                    self.current = at;
                }
            }
            if ui.button("New chat").on_hover_text("Several chats are answered at once").clicked() {
                self.begin();
            }
            if ui.button("Forget").on_hover_text("Forget the chat that is shown").clicked() {
                wish = self.forget().map(Wish::Stop);
            }
        });
        wish
    }

    /// The field and its buttons, at the bottom.
    fn field_ui(&mut self, ui: &mut Ui, is_open: bool) -> Option<Wish> {
        let mut wish = None;
        egui::Panel::bottom("message").resizable(false).show(ui, |ui| {
            ui.add_space(4.0);
            let answering = self.current().answering();
            let conversation = &mut self.list[self.current];
            let hint = if is_open { "Ask something; Shift+Enter begins a new line" } else { "Open a model to ask" };
            let label = ui.label("Message");
            let field = TextEdit::multiline(&mut conversation.draft)
                .hint_text(hint)
                .desired_rows(2)
                .desired_width(f32::INFINITY)
                .return_key(egui::KeyboardShortcut::new(Modifiers::SHIFT, Key::Enter));
            let field = ui.add(field).labelled_by(label.id);
            let entered =
                field.has_focus() && ui.input(|input| input.key_pressed(Key::Enter) && !input.modifiers.shift);
            ui.horizontal(|ui| {
                let can_send = is_open && answering.is_none();
                let send = ui.add_enabled(can_send, egui::Button::new("Send")).clicked();
                if send || (entered && can_send) {
                    let text = std::mem::take(&mut self.list[self.current].draft);
                    wish = self.send(&text).map(Wish::Ask);
                    field.request_focus();
                }
                if let Some(id) = answering.filter(|_| ui.button("Stop").clicked()) {
                    wish = Some(Wish::Stop(id));
                }
            });
        });
        wish
    }

    fn turns_ui(&mut self, ui: &mut Ui, store: &Store, facts: Option<&Facts>, colors: &Colors) -> Option<Click> {
        let mut click = None;
        let (conversation, cache) = (&self.list[self.current], &mut self.caches.0);
        let is_busy = conversation.answering().is_some();
        ScrollArea::vertical().id_salt("turns").auto_shrink(false).stick_to_bottom(true).show(ui, |ui| {
            if conversation.turns().is_empty() {
                ui.weak("Nothing said yet.");
            }
            for (at, turn) in conversation.turns().iter().enumerate() {
                ui.push_id(at, |ui| match turn {
                    Turn::Said(text) => {
                        ui.horizontal(|ui| {
                            ui.strong("You");
                            ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                                if ui.add_enabled(!is_busy, egui::Button::new("Edit").small()).clicked() {
                                    click = Some(Click::Edit(at));
                                }
                            });
                        });
                        ui.label(text);
                    }
                    Turn::Answer(answer) => {
                        let clicked = answer_ui(ui, answer, at, is_busy, store, facts, colors, cache);
                        click = clicked.or(click.take());
                    }
                });
                ui.add_space(8.0);
            }
        });
        click
    }
}

#[expect(clippy::too_many_arguments, reason = "one place draws answers")]
fn answer_ui(
    ui: &mut Ui,
    answer: &Answer,
    at: usize,
    is_busy: bool,
    store: &Store,
    facts: Option<&Facts>,
    colors: &Colors,
    cache: &mut CommonMarkCache,
) -> Option<Click> {
    let mut click = None;
    ui.horizontal(|ui| {
        ui.label(RichText::new(facts.map_or("Model", |facts| &facts.model)).strong().color(colors.prefill));
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
            let again = ui.add_enabled(!is_busy, egui::Button::new("Again").small());
            if again.on_hover_text("Draw another answer").clicked() {
                click = Some(Click::Again(at));
            }
        });
    });
    match &answer.progress {
        Progress::Waiting => {
            ui.weak("waiting for the first token");
        }
        Progress::Streaming | Progress::Done(_) => {
            CommonMarkViewer::new().show(ui, cache, &answer.text);
        }
    }
    if let Progress::Done(Finish::Failed(why)) = &answer.progress {
        ui.colored_label(colors.preempted, why);
    }
    let live = answer.request.and_then(|request| store.request(request)).map(|request| request.figures(store));
    let figures = answer.figures.clone().or(live).unwrap_or_default();
    let text = figures_text(answer, &figures, facts);
    match answer.request {
        Some(request) => {
            let link = ui.link(RichText::new(text).small()).on_hover_text("Show its row");
            if link.clicked() {
                click = Some(Click::Show(request));
            }
        }
        None => {
            ui.label(RichText::new(text).small().weak());
        }
    }
    click
}

/// The figures under an answer: both strokes apart.
fn figures_text(answer: &Answer, figures: &Figures, facts: Option<&Facts>) -> String {
    let mut parts = Vec::new();
    parts.extend(figures.ttft.map(|ms| format!("TTFT {}", short(ms))));
    parts.extend(figures.prefill_per_second.map(|rate| format!("prefill {rate:.0} tok/s")));
    parts.extend(figures.tokens_per_second.map(|rate| format!("decode {rate:.1} tok/s")));
    if figures.cached_tokens > 0 {
        parts.push(format!("{} cached", figures.cached_tokens));
    }
    parts.push(format!("{} tokens", answer.ids.len()));
    if let Some(facts) = facts.filter(|_| answer.prompt_tokens > 0) {
        let used = answer.prompt_tokens as usize + answer.ids.len();
        parts.push(format!("context {used} of {}", facts.context_tokens));
    }
    parts.extend(match &answer.progress {
        Progress::Done(Finish::Length) => Some("cut at its limit".to_owned()),
        Progress::Done(Finish::Stopped) => Some("stopped".to_owned()),
        _ => None,
    });
    parts.join(", ")
}

fn parameters_ui(ui: &mut Ui, parameters: &mut Parameters) {
    egui::Grid::new("parameters").num_columns(2).show(ui, |ui| {
        let label = ui.label("System message");
        let field = TextEdit::multiline(&mut parameters.system).desired_rows(1).desired_width(200.0);
        ui.add(field).labelled_by(label.id);
        ui.end_row();
        let number = |ui: &mut Ui, name: &str, value: &mut f32, most: f32, hint: &str| {
            let label = ui.label(name);
            let drag = egui::DragValue::new(value).range(0.0..=most).speed(0.01).fixed_decimals(2);
            ui.add(drag).labelled_by(label.id).on_hover_text(hint);
            ui.end_row();
        };
        number(ui, "Temperature", &mut parameters.temperature, 2.0, "0 takes the likeliest token");
        number(ui, "Top p", &mut parameters.top_p, 1.0, "1 is off");
        number(ui, "Repetition penalty", &mut parameters.repetition_penalty, 2.0, "1 is off");
        parameters.top_p = parameters.top_p.max(0.01);
        parameters.repetition_penalty = parameters.repetition_penalty.max(0.01);
        let label = ui.label("Most tokens");
        ui.add(egui::DragValue::new(&mut parameters.max_tokens).range(1..=1 << 20)).labelled_by(label.id);
        ui.end_row();
        let label = ui.label("Seed");
        ui.add(egui::DragValue::new(&mut parameters.seed)).labelled_by(label.id);
        ui.end_row();
    });
}
