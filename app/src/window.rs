//! The app in eframe's window, or in its canvas. A window whose graphics device is lost ends; natively the app goes on in the next one.

#[cfg(not(target_arch = "wasm32"))]
use std::{
    cell::RefCell,
    path::PathBuf,
    rc::Rc,
    sync::mpsc::{Receiver, channel},
};
use std::{
    sync::Arc,
    sync::atomic::{AtomicBool, Ordering},
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
    /// The device that it is drawn with is gone.
    is_lost: Arc<AtomicBool>,
    /// Where the app is left for the next window.
    #[cfg(not(target_arch = "wasm32"))]
    next: Option<Slot>,
}

/// An app between two windows.
#[cfg(not(target_arch = "wasm32"))]
#[derive(Clone, Default)]
pub struct Slot(Rc<RefCell<Option<(App, Errand, egui::Context)>>>);

#[cfg(not(target_arch = "wasm32"))]
impl Slot {
    /// Whether an app waits for its next window.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.0.borrow().is_some()
    }
}

impl Window {
    /// `app` as it was left the last time.
    #[must_use]
    pub fn new(mut app: App, cc: &eframe::CreationContext<'_>) -> Self {
        let kept = cc.storage.and_then(|storage| storage.get_string(KEY));
        if kept.is_some_and(|text| !app.prefer(&text)) {
            tracing::warn!("what was kept from the last start is not ours, and is passed over");
        }
        Self::over(app, cc)
    }

    /// The app that waits in `slot` goes on in this window.
    ///
    /// # Panics
    /// None waits.
    #[cfg(not(target_arch = "wasm32"))]
    #[must_use]
    pub fn again(slot: &Slot, cc: &eframe::CreationContext<'_>) -> Self {
        let (mut app, errand, before) = slot.0.borrow_mut().take().expect("an app waits");
        // The engine and files on their way still wake the window before.
        let ctx = cc.egui_ctx.clone();
        before.set_request_repaint_callback(move |wanted| ctx.request_repaint_after(wanted.delay));
        app.tell("the window's graphics device was lost; this one took over");
        let mut window = Self::over(app, cc);
        window.errand = errand;
        window
    }

    /// Leaves the app in `slot` when the device is lost.
    #[cfg(not(target_arch = "wasm32"))]
    #[must_use]
    pub fn left_in(mut self, slot: &Slot) -> Self {
        self.next = Some(slot.clone());
        self
    }

    fn over(app: App, cc: &eframe::CreationContext<'_>) -> Self {
        let is_lost = Arc::new(AtomicBool::new(false));
        if let Some(state) = &cc.wgpu_render_state {
            let (lost, ctx) = (Arc::clone(&is_lost), cc.egui_ctx.clone());
            state.device.set_device_lost_callback(move |_, _| {
                lost.store(true, Ordering::Relaxed);
                ctx.request_repaint();
            });
            // By itself the handler panics; a frame that came to nothing is drawn again.
            state.device.on_uncaptured_error(Arc::new(|error| tracing::warn!("the window's device: {error}")));
        }
        Self {
            app,
            ctx: cc.egui_ctx.clone(),
            is_lost,
            #[cfg(not(target_arch = "wasm32"))]
            errand: Errand::default(),
            #[cfg(not(target_arch = "wasm32"))]
            next: None,
        }
    }

    /// Whether the device that it is drawn with is gone.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }
}

/// Also after a frame that met the lost device before anybody was told.
#[cfg(not(target_arch = "wasm32"))]
impl Drop for Window {
    fn drop(&mut self) {
        let was_seen = self.errand.has_lost || std::thread::panicking();
        if let Some(next) = self.next.take().filter(|_| self.is_lost() && was_seen) {
            let errand = Errand { has_lost: false, ..std::mem::take(&mut self.errand) };
            *next.0.borrow_mut() = Some((std::mem::take(&mut self.app), errand, self.ctx.clone()));
        }
    }
}

impl eframe::App for Window {
    fn logic(&mut self, ctx: &egui::Context, frame: &mut eframe::Frame) {
        self.app.logic(ctx);
        #[cfg(target_arch = "wasm32")]
        let _ = frame;
        #[cfg(not(target_arch = "wasm32"))]
        if self.is_lost() {
            self.errand.has_lost = true;
            ctx.send_viewport_cmd(egui::ViewportCommand::Close);
        } else {
            self.errand.run(&mut self.app, ctx);
            if std::mem::take(&mut self.errand.is_due) {
                frame.wgpu_render_state().iter().for_each(|state| state.device.destroy());
                // A device that is destroyed tells it only when it is asked next; one that is lost does at once.
                self.is_lost.store(true, Ordering::Relaxed);
                ctx.request_repaint();
            }
        }
    }

    fn ui(&mut self, ui: &mut egui::Ui, _: &mut eframe::Frame) {
        // On a lost device nothing can be drawn, and trying is not harmless.
        if !self.is_lost() {
            self.app.ui(ui);
        }
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
    /// Loses the window's device when all is opened and answered, as a driver's reset does: for tests.
    pub loses_device: bool,
    /// It is time to.
    is_due: bool,
    /// The window has met the loss.
    has_lost: bool,
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
        if is_under_way || waits {
            return;
        }
        if std::mem::take(&mut self.loses_device) {
            self.is_due = true;
        } else {
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
