//! Both strokes under the adapter's own limits: what it reads in a second and what it computes, as measured on it.

use egui::Ui;
use egui_plot::{Line, Plot, PlotPoints, Points, Text};
use twostroke::gpu::Measured;
use twostroke::model::TokenWork;

use crate::run::{Store, Stroke, Strokes};
use crate::theme::Colors;

/// What is known of the adapter and the model.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The adapter's; `None` until they were measured.
    pub measured: Option<Measured>,
    /// What a token takes.
    pub work: TokenWork,
}

#[derive(Debug, Default)]
pub(super) struct Roofline {
    known: Option<(u64, Strokes)>,
}

impl Roofline {
    pub(super) fn forget(&mut self) {
        self.known = None;
    }

    /// Draws it; `true` when the limits are to be measured.
    pub(super) fn ui(&mut self, ui: &mut Ui, store: &Store, limits: Option<Limits>, colors: &Colors) -> bool {
        let Some(Limits { measured, work }) = limits else {
            ui.weak("Of the engine inside: open a model, and ask it something.");
            return false;
        };
        if self.known.is_none_or(|(events, _)| events != store.events()) {
            self.known = Some((store.events(), Strokes::of(store)));
        }
        let strokes = self.known.expect("just computed").1;
        let mut wants = false;
        ui.horizontal_wrapped(|ui| {
            let text = if measured.is_some() { "Measure again" } else { "Measure the adapter" };
            if cfg!(not(target_arch = "wasm32")) {
                wants = ui.button(text).on_hover_text("Seconds; nothing else should run meanwhile").clicked();
            } else {
                ui.weak("A page cannot measure its adapter: the desktop program and `twostroke devices` do.");
            }
            for (name, stroke, color) in
                [("prefill", strokes.prefill, colors.prefill), ("decode", strokes.decode, colors.decode)]
            {
                ui.colored_label(color, share_text(name, &stroke, &work, measured.as_ref()));
            }
        });
        let points = [(strokes.prefill, "prefill", colors.prefill), (strokes.decode, "decode", colors.decode)];
        let plot = Plot::new("roofline")
            .x_axis_label("operations a byte, log10")
            .y_axis_label("GFLOP/s, log10")
            .allow_scroll(false);
        plot.show(ui, |plot| {
            if let Some(measured) = measured {
                let roof = |x: f64| (measured.read_bytes_per_s * 10f64.powf(x)).min(measured.f32_flops) / 1e9;
                let line: Vec<[f64; 2]> =
                    (-10..=40).map(|n| f64::from(n) / 10.0).map(|x| [x, roof(x).log10()]).collect();
                plot.line(Line::new("limit", PlotPoints::from(line)).color(colors.text_weak));
            }
            for (stroke, name, color) in points {
                let Some((flops, bytes)) = stroke.rates(&work).filter(|(flops, bytes)| *flops > 0.0 && *bytes > 0.0)
                else {
                    continue;
                };
                let at = [(flops / bytes).log10(), (flops / 1e9).log10()];
                plot.points(Points::new(name, vec![at]).radius(5.0).color(color));
                plot.text(
                    Text::new(name, at.into(), format!("  {name}")).color(color).anchor(egui::Align2::LEFT_BOTTOM),
                );
            }
        });
        wants
    }
}

/// What a stroke reaches, and of which limit.
fn share_text(name: &str, stroke: &Stroke, work: &TokenWork, measured: Option<&Measured>) -> String {
    let Some((flops, bytes)) = stroke.rates(work) else { return format!("{name}: no step of it alone") };
    let text = format!("{name}: {:.1} GFLOP/s, {:.1} GB/s", flops / 1e9, bytes / 1e9);
    match measured {
        None => text,
        Some(measured) => {
            let (computes, reads) = (flops / measured.f32_flops * 100.0, bytes / measured.read_bytes_per_s * 100.0);
            format!("{text}: {computes:.0} % of what it computes, {reads:.0} % of what it reads")
        }
    }
}
