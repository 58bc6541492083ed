//! The page: eframe in a canvas, and what the page's script may ask of it.

use eframe::{WebOptions, WebRunner};
use wasm_bindgen::prelude::{JsValue, wasm_bindgen};
use web_sys::HtmlCanvasElement;

use crate::host::Source;
use crate::window::Window;
use crate::{App, theme};

/// The app in a page.
#[wasm_bindgen]
pub struct Page {
    runner: WebRunner,
}

#[wasm_bindgen]
impl Page {
    /// A page whose app has not begun.
    #[wasm_bindgen(constructor)]
    #[must_use]
    #[allow(clippy::new_without_default, reason = "only scripts make one")]
    pub fn new() -> Self {
        Self { runner: WebRunner::new() }
    }

    /// Begins to draw into `canvas`.
    ///
    /// # Errors
    /// No WebGPU, or no adapter for it.
    pub async fn start(&self, canvas: HtmlCanvasElement) -> Result<(), JsValue> {
        let make = |cc: &eframe::CreationContext<'_>| {
            // Browsers report the system's look late; the darker one is what native windows begin with.
            cc.egui_ctx.set_theme(theme::FIRST);
            let mut app = App::new();
            app.show_panels();
            let mut window = Window::new(app, cc);
            window.app.simulate();
            Ok(Box::new(window) as Box<dyn eframe::App>)
        };
        self.runner.start(canvas, WebOptions::default(), Box::new(make)).await
    }

    /// What made the app stand still, if anything did.
    #[must_use]
    pub fn panic(&self) -> Option<String> {
        self.runner.panic_summary().map(|summary| summary.message())
    }

    /// Whether the browser has taken the canvas's device away: then nothing more can be drawn.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.with(|window| window.is_lost()).unwrap_or_default()
    }

    /// What goes on, in words.
    #[must_use]
    pub fn status(&self) -> String {
        self.with(|window| window.app.status()).unwrap_or_default()
    }

    /// What goes on, as JSON: see [`App::state`].
    #[must_use]
    pub fn state(&self) -> String {
        self.with(|window| window.app.state().to_string()).unwrap_or_default()
    }

    /// Opens the toy, or the model of the page's server.
    pub fn open(&self, is_toy: bool) {
        let source = if is_toy { Source::Toy } else { Source::Named(None) };
        self.with(|window| window.app.open_model(source, &window.ctx.clone()));
    }

    /// Asks in a new chat, or in the one that is shown.
    pub fn ask(&self, text: &str, is_new: bool) {
        self.with(|window| {
            if is_new {
                window.app.chats().begin();
            }
            window.app.ask(text);
        });
    }

    /// Goes on with ids, most likely tokens first, `tokens` of them, whatever ends there are.
    pub fn go_on(&self, ids: Vec<u32>, tokens: u32) {
        self.with(|window| window.app.go_on(ids, tokens));
    }

    /// Ends all answers.
    pub fn stop(&self) {
        self.with(|window| window.app.stop_all());
    }

    /// How answers are made from now on.
    pub fn set(&self, temperature: f32, max_tokens: u32) {
        self.with(|window| {
            let parameters = &mut window.app.chats().parameters;
            (parameters.temperature, parameters.max_tokens) = (temperature, max_tokens);
        });
    }

    fn with<T>(&self, run: impl FnOnce(&mut Window) -> T) -> Option<T> {
        let mut window = self.runner.app_mut::<Window>()?;
        let done = run(&mut window);
        window.ctx.request_repaint();
        Some(done)
    }
}
