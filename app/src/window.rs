//! The app in eframe's window, or in its canvas.

#[cfg(not(target_arch = "wasm32"))]
use std::{
    path::PathBuf,
    sync::Arc,
    sync::mpsc::{Receiver, channel},
};

use crate::App;

/// What the app keeps lies under this.
const KEY: &str = "twostroke";

/// See the module.
pub struct Window {
    /// The app.
    pub app: App,
    /// Of its frames.
    pub ctx: egui::Context,
    /// What is to be done by itself.
    #[cfg(not(target_arch = "wasm32"))]
    pub errand: Errand,
}

impl Window {
    /// `app` as it was left the last time.
    #[must_use]
    pub fn new(mut app: App, cc: &eframe::CreationContext<'_>) -> Self {
        let kept = cc.storage.and_then(|storage| storage.get_string(KEY));
        if kept.is_some_and(|text| !app.prefer(&text)) {
            tracing::warn!("what was kept from the last start is not ours, and is passed over");
        }
        Self {
            app,
            ctx: cc.egui_ctx.clone(),
            #[cfg(not(target_arch = "wasm32"))]
            errand: Errand::default(),
        }
    }
}

impl eframe::App for Window {
    fn logic(&mut self, ctx: &egui::Context, _: &mut eframe::Frame) {
        self.app.logic(ctx);
        #[cfg(not(target_arch = "wasm32"))]
        self.errand.run(&mut self.app, ctx);
    }

    fn ui(&mut self, ui: &mut egui::Ui, _: &mut eframe::Frame) {
        self.app.ui(ui);
    }

    fn save(&mut self, storage: &mut dyn eframe::Storage) {
        storage.set_string(KEY, self.app.preferences());
    }

    #[cfg(target_arch = "wasm32")]
    fn as_any_mut(&mut self) -> Option<&mut dyn std::any::Any> {
        Some(self)
    }
}

/// What the program does without anybody: for scripts.
#[cfg(not(target_arch = "wasm32"))]
#[derive(Debug, Default)]
pub struct Errand {
    /// Asked as soon as a model is open.
    pub ask: Option<String>,
    /// Written when all is done; then the program ends.
    pub picture: Option<PathBuf>,
    /// It was asked for.
    shot: Option<Receiver<Arc<egui::ColorImage>>>,
}

#[cfg(not(target_arch = "wasm32"))]
impl Errand {
    fn run(&mut self, app: &mut App, ctx: &egui::Context) {
        let is_open = app.engine().facts.is_some() && app.engine().busy.is_none();
        if let Some(text) = self.ask.take_if(|_| is_open) {
            app.ask(&text);
        }
        let Some(path) = &self.picture else { return };
        if let Some(shot) = &self.shot {
            let Ok(shot) = shot.try_recv() else { return };
            match write(path, &shot) {
                Ok(()) => println!("{}", path.display()),
                Err(error) => eprintln!("{}: {error}", path.display()),
            }
            println!("{}", app.state());
            self.picture = None;
            ctx.send_viewport_cmd(egui::ViewportCommand::Close);
            return;
        }
        let is_under_way = app.is_working() || app.is_opening() || app.is_playing() || app.is_simulating();
        let waits = self.ask.is_some() && app.engine().trouble.is_none();
        if !is_under_way && !waits {
            let (sender, shot) = channel();
            let woken = ctx.clone();
            ctx.request_screenshot(move |image| {
                let _ = sender.send(image);
                woken.request_repaint();
            });
            self.shot = Some(shot);
        }
    }
}

#[cfg(not(target_arch = "wasm32"))]
fn write(path: &std::path::Path, picture: &egui::ColorImage) -> Result<(), String> {
    std::fs::write(path, crate::app::png(picture)?).map_err(|error| error.to_string())
}
