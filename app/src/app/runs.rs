//! Runs: a workload played on the engine inside, and a run kept to be compared with the next one.

use std::collections::BTreeSet;
use std::iter::{Enumerate, Peekable};

use egui::{Panel, Ui, vec2};
use twostroke::sched::Policy;

use super::{App, From, Shown};
use crate::figures::{self, Limits};
use crate::host::{Ask, AskId, Finish, Prompt};
use crate::run::Store;
use crate::source::{Requests, Scenario, Workload, machine_of, measured};
use crate::theme::Colors;
use crate::timeline::Command;

/// Answers of a workload are named from here on; those of chats below.
const FIRST_ID: AskId = 1 << 40;

/// A workload that is being played on the engine inside.
#[derive(Debug)]
pub(super) struct Playing {
    workload: Workload,
    asks: Peekable<Enumerate<Requests>>,
    /// When it began, in seconds of the frames' clock; `None` while the model is being opened.
    began: Option<f64>,
    open: BTreeSet<AskId>,
    failed: Option<String>,
}

impl App {
    /// Chooses the policy of the next run.
    pub fn set_policy(&mut self, policy: Policy) {
        self.engine.settings.policy = policy;
    }

    /// Chooses what is simulated and played.
    pub fn set_workload(&mut self, workload: Workload) {
        self.workload = workload;
    }

    /// Keeps the run that is shown, to be held against the next one.
    pub fn keep(&mut self) {
        let shown = std::mem::replace(self.shown(), Shown::new("nothing run yet"));
        if self.from == From::Engine {
            // The engine's own run goes on from here; what has happened stays with A.
            self.live.title = "the engine inside".into();
            self.chats.forget_rows();
        }
        self.kept = Some(Shown { title: format!("A: {}", shown.title), ..shown });
        self.dock.forget();
        self.dock.show_differences();
    }

    /// The run that was kept.
    #[must_use]
    pub fn kept(&self) -> Option<&Store> {
        self.kept.as_ref().map(|kept| &kept.store)
    }

    /// What was predicted.
    #[must_use]
    pub fn ghost(&self) -> Option<&Store> {
        self.ghost.as_ref()
    }

    /// Plays the workload on the engine inside, opened with the settings that are chosen.
    pub fn play(&mut self, ctx: &egui::Context) {
        let Some(facts) = &self.engine.facts else {
            self.note = Some("open a model first: then the workload is played on it".into());
            return;
        };
        let asks = match self.workload.requests(facts.vocab, facts.context_tokens) {
            Ok(requests) => requests.enumerate().peekable(),
            Err(error) => return self.note = Some(error.to_string()),
        };
        let workload = self.workload.clone();
        self.playing = Some(Playing { workload, asks, began: None, open: BTreeSet::new(), failed: None });
        // A run of its own: with an empty cache, and a timeline that begins with it.
        if let Some(source) = self.engine.source.clone() {
            self.open_model(source, ctx);
        }
        self.from = From::Engine;
    }

    /// Whether a workload is being played.
    #[must_use]
    pub fn is_playing(&self) -> bool {
        self.playing.is_some()
    }

    /// Asks what is due of the workload that is being played.
    pub(super) fn play_on(&mut self, ctx: &egui::Context) {
        let Some(playing) = &mut self.playing else { return };
        if self.engine.busy.is_some() {
            return;
        }
        let (Some(host), true) = (&self.host, self.engine.facts.is_some()) else {
            self.playing = None;
            return;
        };
        let now = ctx.input(|input| input.time);
        let began = *playing.began.get_or_insert(now);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "since it began, far below 2^63 ns")]
        let nanos = ((now - began) * 1e9) as u64;
        while let Some((number, (_, request))) = playing.asks.next_if(|(_, (arrive, _))| *arrive <= nanos) {
            let id = FIRST_ID + number as AskId;
            let (prompt, max_tokens, sampling) = (Prompt::Ids(request.prompt), request.max_tokens, request.sampling);
            playing.open.insert(id);
            host.ask(Ask { id, prompt, max_tokens, sampling, ignore_eos: true });
        }
        match playing.asks.peek() {
            Some((_, (arrive, _))) => ctx.request_repaint_after(std::time::Duration::from_nanos(arrive - nanos)),
            None if playing.open.is_empty() => {
                if let Some(why) = playing.failed.take() {
                    self.note = Some(why);
                }
                self.live.title = format!("{}, {}", playing.workload.name, self.engine.settings.policy.name());
                self.playing = None;
                self.live.run(Command::Whole);
            }
            None => {}
        }
    }

    pub(super) fn ended_of_play(&mut self, id: AskId, finish: &Finish) {
        let Some(playing) = &mut self.playing else { return };
        if let (true, Finish::Failed(why)) = (playing.open.remove(&id), finish) {
            playing.failed.get_or_insert_with(|| why.clone());
        }
    }

    /// The workload that is chosen, on the machine that is known best.
    pub(super) fn scenario(&self) -> Scenario {
        let known = self.engine.facts.as_ref().and_then(|facts| machine_of(&self.live.store, facts));
        let machine = known.unwrap_or_else(measured);
        Scenario { workload: self.workload.clone(), settings: self.engine.settings, machine }
    }

    pub(super) fn prompts_of_shown(&self) -> std::collections::HashMap<u64, std::sync::Arc<[u32]>> {
        if self.from == From::Engine { self.prompts.clone() } else { std::collections::HashMap::new() }
    }

    /// What is run, in the bar.
    pub(super) fn runs_ui(&mut self, ui: &mut Ui) {
        self.workloads_ui(ui);
        if ui.button("Simulate").on_hover_text("The workload with the settings chosen, in virtual time").clicked() {
            self.simulate();
        }
        let can_run = self.engine.facts.is_some() && self.playing.is_none() && self.engine.busy.is_none();
        let run = ui.add_enabled(can_run, egui::Button::new("Run"));
        if run.on_hover_text("The workload on the open model, with the settings chosen").clicked() {
            self.play(&ui.ctx().clone());
        }
        let has_run = !self.store().requests().is_empty() && !self.is_simulating_run();
        let predict = ui.add_enabled(has_run, egui::Button::new("Predict"));
        if predict.on_hover_text("What the settings chosen would make of these requests, as a ghost").clicked() {
            self.predict();
        }
        let keep = ui.add_enabled(has_run, egui::Button::new("Keep as A"));
        if keep.on_hover_text("To hold the next run against it").clicked() {
            self.keep();
        }
        if self.kept.is_some() && ui.button("Forget A").clicked() {
            self.kept = None;
        }
        if self.ghost.is_some() && ui.button("No ghost").clicked() {
            self.ghost = None;
        }
    }

    /// The run that is shown, under the one that was kept: both from their first arrival on.
    pub(super) fn timelines_ui(&mut self, ui: &mut Ui, colors: &Colors) {
        let shown = match self.from {
            From::Engine => &mut self.live,
            From::Recorded => &mut self.recorded,
        };
        let Some(kept) = &mut self.kept else {
            shown.timeline.ui(ui, &shown.store, self.ghost.as_ref(), colors);
            return;
        };
        let all = ui.available_rect_before_wrap();
        let half = vec2(all.width(), (all.height() / 2.0).max(80.0));
        let (top, bottom) =
            (egui::Rect::from_min_size(all.min, half), egui::Rect::from_min_max(all.min + vec2(0.0, half.y), all.max));
        let pointer = ui.input(|input| input.pointer.hover_pos());
        let first = |store: &Store| store.requests().iter().map(|request| request.arrive).min().unwrap_or(0);
        #[allow(clippy::cast_precision_loss, reason = "times of a run")]
        let apart = first(&kept.store) as f64 - first(&shown.store) as f64;
        // Whichever the pointer is on leads.
        let leads = pointer.is_some_and(|pos| top.contains(pos));
        let mut part = |rect: egui::Rect, name: &str, one: &mut Shown, ghost: Option<&Store>, has_keys: bool| {
            let mut child = ui.new_child(egui::UiBuilder::new().max_rect(rect).id_salt(name));
            child.label(egui::RichText::new(&one.title).small().strong());
            one.timeline.has_keys = has_keys;
            one.timeline.ui(&mut child, &one.store, ghost, colors);
        };
        if leads {
            shown.timeline.view = kept.timeline.view.moved(-apart);
        } else {
            kept.timeline.view = shown.timeline.view.moved(apart);
        }
        part(top, "kept", kept, None, leads);
        part(bottom, "shown", shown, self.ghost.as_ref(), !leads);
    }

    /// The figures under the timeline.
    pub(super) fn figures_ui(&mut self, ui: &mut Ui, colors: &Colors) {
        if !self.panels.figures {
            return;
        }
        let mut wish = None;
        Panel::bottom("figures").resizable(true).default_size(240.0).show(ui, |ui| {
            let (shown, is_engine) = match self.from {
                From::Engine => (&self.live, true),
                From::Recorded => (&self.recorded, false),
            };
            let facts = self.engine.facts.as_ref().filter(|_| is_engine);
            let limits = facts.map(|facts| Limits { measured: self.engine.measured, work: facts.work });
            let (store, selected) = (&shown.store, shown.timeline.selected);
            let view = figures::View { store, kept: self.kept.as_ref().map(|kept| &kept.store), selected, limits };
            wish = self.dock.ui(ui, &view, colors);
        });
        match wish {
            None => {}
            Some(figures::Wish::Show(id)) => {
                self.shown().timeline.selected = Some(id);
                self.shown().run(Command::Focus);
            }
            Some(figures::Wish::Measure) => {
                let device = self.engine.opened_with.unwrap_or_default();
                self.host.iter().for_each(|host| host.measure(device));
            }
        }
    }

    /// Shows the figures.
    pub fn show_figures(&mut self) {
        self.panels.figures = true;
    }
}
