//! The desktop program.

use std::path::PathBuf;

use twostroke_app::App;

/// The app in eframe's window.
struct Window(App);

impl eframe::App for Window {
    fn logic(&mut self, ctx: &egui::Context, _: &mut eframe::Frame) {
        self.0.logic(ctx);
    }

    fn ui(&mut self, ui: &mut egui::Ui, _: &mut eframe::Frame) {
        self.0.ui(ui);
    }
}

fn main() -> eframe::Result {
    let path = std::env::args_os().nth(1).map(PathBuf::from);
    let options = eframe::NativeOptions {
        viewport: egui::ViewportBuilder::default().with_title("Twostroke").with_inner_size([1280.0, 800.0]),
        ..eframe::NativeOptions::default()
    };
    let make = move |cc: &eframe::CreationContext<'_>| {
        let mut app = App::new();
        match &path {
            Some(path) => app.open(path, &cc.egui_ctx),
            None => app.simulate(),
        }
        Ok(Box::new(Window(app)) as Box<dyn eframe::App>)
    };
    eframe::run_native("twostroke", options, Box::new(make))
}
