//! The engine inside: what it says becomes the live run, the chats and the state of the engine panel.

use egui::{Panel, Ui};

use super::{App, From, Shown};
use crate::chat;
use crate::engine::{self, Busy};
use crate::host::{Finish, Host, Said, Source};
use crate::source::{Picked, Workload};
use crate::theme::Colors;

/// What is taken of the engine's words in a frame.
const SAID_A_FRAME: usize = 4096;

impl App {
    /// Opens a model in the engine inside.
    pub fn open_model(&mut self, source: Source, ctx: &egui::Context) {
        let settings = self.engine.settings;
        self.engine.source = Some(source.clone());
        self.host(ctx).open(source, settings);
        self.engine.trouble = None;
        self.engine.opened_with = Some(settings);
        self.engine.busy = Some(Busy { what: "opening", done: 0, total: 0, is_bytes: false });
    }

    /// Whether an answer is being made, or a model opened.
    #[must_use]
    pub fn is_working(&self) -> bool {
        self.engine.busy.is_some() || self.chats.answering() > 0
    }

    /// Asks in the conversation that is shown.
    pub fn ask(&mut self, text: &str) {
        if let Some(ask) = self.chats.send(text) {
            self.wish(chat::Wish::Ask(ask));
        }
    }

    /// Goes on with `ids`, in a new chat.
    pub fn go_on(&mut self, ids: Vec<u32>, tokens: u32) {
        let ask = self.chats.go_on(ids, tokens);
        self.wish(chat::Wish::Ask(ask));
    }

    /// Ends all answers.
    pub fn stop_all(&self) {
        self.host.iter().for_each(|host| self.chats.under_way().for_each(|id| host.stop(id)));
    }

    fn host(&mut self, ctx: &egui::Context) -> &Host {
        self.host.get_or_insert_with(|| Host::start(waker(ctx)))
    }

    /// Takes files that were dropped or chosen: models by their names' end, else traces.
    pub(super) fn pick(&mut self, ctx: &egui::Context) {
        for file in ctx.input(|input| input.raw.dropped_files.clone()) {
            self.picks.dropped(&file, waker(ctx));
        }
        while let Some(picked) = self.picks.take() {
            let is_model = picked.is_model();
            self.panels.engine |= is_model;
            match picked {
                Picked::Path(path) if is_workload(&path) => {
                    self.make(ctx, move || Workload::read(&path));
                }
                #[cfg(target_arch = "wasm32")]
                Picked::Bytes { name, bytes } if is_workload(std::path::Path::new(&name)) => {
                    self.make(ctx, move || Workload::of_bytes(&name, &bytes));
                }
                Picked::Refused(why) => self.note = Some(why),
                Picked::Path(path) if is_model => {
                    self.open_model(Source::Named(Some(path.display().to_string())), ctx);
                }
                Picked::Path(path) => self.open(&path, ctx),
                #[cfg(target_arch = "wasm32")]
                Picked::Bytes { name, bytes } if is_model => self.open_model(Source::Bytes { name, bytes }, ctx),
                #[cfg(target_arch = "wasm32")]
                Picked::Bytes { name, bytes } => self.open_bytes(&name, bytes),
            }
        }
    }

    /// Takes what the engine has said.
    pub(super) fn hear(&mut self, ctx: &egui::Context) {
        for _ in 0..SAID_A_FRAME {
            let Some(said) = self.host.as_ref().and_then(Host::take) else { return };
            if let Said::Busy { .. } = said {
                self.now = ctx.input(|input| input.time);
            }
            self.heard(said);
        }
        // There may be more.
        ctx.request_repaint();
    }

    /// Takes one thing that the engine has said.
    pub fn heard(&mut self, said: Said) {
        match said {
            Said::Adapters(adapters, skipped) => {
                (self.engine.adapters, self.engine.skipped) = (Some(adapters), skipped)
            }
            Said::Busy { what, done, total, is_bytes } => {
                self.engine.is_under_way(Busy { what, done, total, is_bytes }, self.now);
            }
            Said::Tokenizer(tokenizer) => self.engine.tokenizer = Some(tokenizer),
            Said::Opened(facts) => {
                // The same model on a new device goes on where it was.
                if self.engine.trouble.is_none() || self.engine.facts.as_ref() != Some(&facts) {
                    self.live = Shown::new("the engine inside");
                    self.live.timeline.view.follows = true;
                    self.prompts.clear();
                    self.forget_prediction();
                    self.dock.forget();
                    self.chats.forget_rows();
                    self.from = From::Engine;
                }
                if self
                    .engine
                    .facts
                    .as_ref()
                    .is_none_or(|before| before.adapter != facts.adapter || before.tier != facts.tier)
                {
                    self.engine.measured = None;
                }
                (self.engine.facts, self.engine.busy, self.engine.trouble) = (Some(facts), None, None);
            }
            Said::Refused(why) => {
                (self.engine.facts, self.engine.opened_with, self.engine.tokenizer) = (None, None, None);
                (self.engine.busy, self.engine.trouble) = (None, Some(why));
            }
            Said::Measured(measured) => (self.engine.measured, self.engine.busy) = (Some(measured), None),
            Said::Lost(why) => (self.engine.trouble, self.engine.busy) = (Some(why), None),
            Said::Event(event) => self.live.take(event),
            Said::Began { id, request, prompt } => {
                self.chats.began(id, request, prompt.len());
                self.prompts.insert(request, prompt);
            }
            Said::Text { id, text, token } => self.chats.text(id, &text, Some(token)),
            Said::Rest { id, text } => self.chats.text(id, &text, None),
            Said::Ended { id, finish } => {
                self.ended_of_play(id, &finish);
                self.chats.ended(id, finish, &self.live.store);
            }
        }
    }

    /// The panels of the engine and of the chats.
    pub(super) fn inside_ui(&mut self, ui: &mut Ui, colors: &Colors) {
        if self.panels.engine {
            let mut wish = None;
            Panel::left("engine").default_size(300.0).show(ui, |ui| {
                egui::ScrollArea::vertical().show(ui, |ui| wish = self.engine.ui(ui, colors));
            });
            if let Some(wish) = wish {
                self.engine_wish(wish, ui.ctx());
            }
        }
        if self.panels.chat {
            let mut wish = None;
            Panel::right("chat").default_size(380.0).show(ui, |ui| {
                wish = self.chats.ui(ui, &self.live.store, self.engine.facts.as_ref(), colors);
            });
            if let Some(wish) = wish {
                self.wish(wish);
            }
        }
    }

    fn wish(&mut self, wish: chat::Wish) {
        match wish {
            chat::Wish::Ask(ask) => match &self.host {
                Some(host) => host.ask(ask),
                None => self.chats.ended(ask.id, Finish::Failed("no model is open".into()), &self.live.store),
            },
            chat::Wish::Stop(id) => self.host.iter().for_each(|host| host.stop(id)),
            chat::Wish::Show(request) => {
                self.from = From::Engine;
                self.live.timeline.selected = Some(request);
                self.live.run(crate::timeline::Command::Focus);
            }
        }
    }

    fn engine_wish(&mut self, wish: engine::Wish, ctx: &egui::Context) {
        match wish {
            engine::Wish::Open(source) => self.open_model(source, ctx),
            engine::Wish::Choose => self.picks.choose(waker(ctx)),
            engine::Wish::Cancel => self.host.iter().for_each(Host::cancel_opening),
            engine::Wish::List => self.host(ctx).list_adapters(),
            engine::Wish::Watch => {
                let (address, key) = (self.engine.server.clone(), self.engine.server_key.clone());
                self.watch(&address, &key, ctx);
            }
        }
    }
}

/// Traces are JSON Lines; a workload is one object.
fn is_workload(path: &std::path::Path) -> bool {
    path.extension().is_some_and(|end| end.eq_ignore_ascii_case("json"))
}

/// Wakes the app from any thread.
pub(super) fn waker(ctx: &egui::Context) -> impl Fn() + Send + 'static {
    let ctx = ctx.clone();
    move || ctx.request_repaint()
}
