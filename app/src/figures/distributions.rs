//! Histograms and CDFs with their limits.

use egui::{Ui, vec2};
use egui_plot::{Bar, BarChart, Line, Plot, PlotPoints, VLine};
use twostroke::load::goodput::Goodput;
use twostroke::load::spread::Spread;

use super::limit_ui;
use crate::run::Overview;
use crate::theme::Colors;
use crate::timeline::short;

/// Bars of a histogram.
const BARS: usize = 40;
/// Points of a CDF, at most.
const POINTS: usize = 400;

/// What is distributed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Of {
    #[default]
    Ttft,
    Tpot,
    Itl,
}

#[derive(Debug, Default)]
pub(super) struct Distributions {
    of: Of,
}

impl Distributions {
    pub(super) fn ui(&mut self, ui: &mut Ui, overview: &Overview, limits: &mut Goodput, colors: &Colors) {
        ui.horizontal_wrapped(|ui| {
            for (of, name) in [(Of::Ttft, "TTFT"), (Of::Tpot, "TPOT"), (Of::Itl, "ITL")] {
                ui.selectable_value(&mut self.of, of, name);
            }
            ui.separator();
            limit_ui(ui, "TTFT", &mut limits.ttft_ms, 500.0);
            limit_ui(ui, "TPOT", &mut limits.tpot_ms, 50.0);
            if let (true, Some(part), Some(rate)) =
                (*limits != Goodput::default(), overview.good_part(limits), overview.goodput(limits))
            {
                ui.strong(format!("goodput {rate:.2} requests/s, {:.0} % of the answers", part * 100.0));
            }
        });
        let (spread, limit, color) = match self.of {
            Of::Ttft => (&overview.ttft, limits.ttft_ms, colors.prefill),
            Of::Tpot => (&overview.tpot, limits.tpot_ms, colors.decode),
            Of::Itl => (&overview.itl, limits.tpot_ms, colors.decode),
        };
        let Some(spread) = spread else {
            ui.weak("No answer yet.");
            return;
        };
        let [p50, p90, p99] = [50.0, 90.0, 99.0].map(|percent| short(spread.percentile(percent)));
        ui.label(format!(
            "{} samples, mean {}, p50 {p50}, p90 {p90}, p99 {p99}, longest {}",
            spread.count(),
            short(spread.mean()),
            short(spread.max())
        ));
        let size = vec2(((ui.available_width() - 12.0) / 2.0).max(80.0), ui.available_height().max(60.0));
        ui.horizontal(|ui| {
            let plot = |name: &str, y: &str| {
                Plot::new(name.to_owned())
                    .width(size.x)
                    .height(size.y)
                    .x_axis_label("ms")
                    .y_axis_label(y.to_owned())
                    .allow_scroll(false)
                    .allow_drag(false)
                    .allow_zoom(false)
                    .allow_boxed_zoom(false)
                    .show_grid(true)
            };
            let line = |plot: &mut egui_plot::PlotUi<'_>| {
                if let Some(limit) = limit {
                    plot.vline(VLine::new("limit", limit).color(colors.preempted));
                }
            };
            plot("histogram", "samples").show(ui, |plot| {
                let (width, bars) = histogram(spread);
                let bars = bars.into_iter().map(|(middle, count)| Bar::new(middle, count).width(width)).collect();
                plot.bar_chart(BarChart::new("samples", bars).color(color));
                line(plot);
            });
            plot("cdf", "% within").show(ui, |plot| {
                let points: PlotPoints<'_> = cdf(spread).into();
                plot.line(Line::new("within", points).color(color));
                line(plot);
            });
        });
    }
}

/// Width of the bars, and the middle of each with how many samples it holds.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a picture")]
fn histogram(spread: &Spread) -> (f64, Vec<(f64, f64)>) {
    let (least, most) = (spread.sorted()[0], spread.max());
    let width = ((most - least) / BARS as f64).max(1e-3);
    let mut counts = [0u64; BARS];
    for sample in spread.sorted() {
        counts[(((sample - least) / width) as usize).min(BARS - 1)] += 1;
    }
    let middle = |at: usize| least + (at as f64 + 0.5) * width;
    (width, counts.iter().enumerate().map(|(at, count)| (middle(at), *count as f64)).collect())
}

/// Points of how many percent are within.
#[allow(clippy::cast_precision_loss, reason = "a picture")]
fn cdf(spread: &Spread) -> Vec<[f64; 2]> {
    let sorted = spread.sorted();
    let step = sorted.len().div_ceil(POINTS);
    let mut points: Vec<[f64; 2]> = vec![[sorted[0], 0.0]];
    points.extend(
        sorted.iter().enumerate().step_by(step).map(|(at, ms)| [*ms, (at + 1) as f64 / sorted.len() as f64 * 100.0]),
    );
    points.push([spread.max(), 100.0]);
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_holds_every_sample_and_a_cdf_ends_at_all() {
        for samples in [vec![1.0], vec![2.0; 9], (0..1000).map(f64::from).collect::<Vec<_>>()] {
            let count = samples.len() as f64;
            let spread = Spread::of(samples).expect("samples");
            let (_, bars) = histogram(&spread);
            assert_eq!(bars.iter().map(|(_, count)| count).sum::<f64>(), count);
            let points = cdf(&spread);
            assert!(points.windows(2).all(|pair| pair[0][0] <= pair[1][0] && pair[0][1] <= pair[1][1]));
            assert_eq!(points.last().expect("points")[1], 100.0);
            assert!(points.len() <= POINTS + 2);
        }
    }
}
