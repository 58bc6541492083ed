//! The timeline as SVG: the same spans as on the screen, sharp at any size, for papers and issues.

use std::fmt::Write as _;

use egui::Color32;

use super::ruler::ticks;
use super::spans::{Kind, as_time, spans};
use super::texts::header_text;
use super::view::View;
use crate::run::{MarkKind, Store};
use crate::theme::Colors;

const WIDTH: f64 = 1200.0;
const HEADER: f64 = 320.0;
const ROW: f64 = 24.0;
const TOP: f64 = 40.0;

/// What `view` shows of `store`, all rows of it.
#[must_use]
pub fn svg(store: &Store, view: &View, title: &str, colors: &Colors) -> String {
    #[allow(clippy::cast_precision_loss, reason = "rows of a picture")]
    let height = TOP + ROW * store.requests().len() as f64 + 8.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"{}\"/>\n<text x=\"8\" y=\"16\" fill=\"{}\" font-weight=\"bold\">{}</text>\n",
        hex(colors.background),
        hex(colors.text),
        escape(title)
    );
    let width = WIDTH - HEADER;
    for tick in ticks(view, 8) {
        let x = HEADER + view.place(tick.t) * width;
        let _ = writeln!(
            out,
            "<path d=\"M{x:.1} {TOP}V{height}\" stroke=\"{}\"/><text x=\"{:.1}\" y=\"32\" fill=\"{}\">{}</text>",
            hex(colors.grid),
            x + 3.0,
            hex(colors.text_weak),
            escape(&tick.text)
        );
    }
    for (at, request) in store.requests().iter().enumerate() {
        #[allow(clippy::cast_precision_loss, reason = "rows of a picture")]
        let y = TOP + ROW * at as f64;
        let (name, figures) = header_text(request, &request.figures(store));
        let _ = writeln!(
            out,
            "<text x=\"8\" y=\"{:.1}\" fill=\"{}\">{} <tspan fill=\"{}\">{}</tspan></text>",
            y + 16.0,
            hex(colors.text),
            escape(&name),
            hex(colors.text_weak),
            escape(&figures)
        );
        for span in spans(request, store, view, width) {
            let (x0, x1) = (span.x0.clamp(0.0, width), span.x1.clamp(0.0, width));
            let (color, is_low) = match span.kind {
                Kind::Queued => (colors.queued, true),
                Kind::Preempted => (colors.preempted, true),
                Kind::Prefill | Kind::ManyPrefill | Kind::Mixed { is_prefill: true } => (colors.prefill, false),
                Kind::Decode | Kind::ManyDecode | Kind::Mixed { is_prefill: false } => (colors.decode, true),
                Kind::Verify => (colors.verify, true),
                Kind::Discarded => (colors.discarded, true),
            };
            let (top, tall) = if is_low { (y + 9.0, 12.0) } else { (y + 3.0, 18.0) };
            if x1 > x0 {
                let opacity = if matches!(span.kind, Kind::ManyPrefill | Kind::ManyDecode) {
                    span.taken.clamp(0.2, 1.0)
                } else {
                    1.0
                };
                let _ = writeln!(
                    out,
                    "<rect x=\"{:.2}\" y=\"{top:.1}\" width=\"{:.2}\" height=\"{tall}\" fill=\"{}\" fill-opacity=\"{opacity:.2}\"/>",
                    HEADER + x0,
                    (x1 - x0).max(0.3),
                    hex(color)
                );
            }
        }
        for mark in request.marks.iter().filter(|mark| mark.kind == MarkKind::First) {
            let place = view.place(as_time(mark.t));
            if (0.0..=1.0).contains(&place) {
                let _ = writeln!(
                    out,
                    "<path d=\"M{:.2} {:.1}v20\" stroke=\"{}\" stroke-width=\"1.5\"/>",
                    HEADER + place * width,
                    y + 2.0,
                    hex(colors.first)
                );
            }
        }
    }
    out.push_str("</svg>\n");
    out
}

fn hex(color: Color32) -> String {
    format!("#{:02x}{:02x}{:02x}", color.r(), color.g(), color.b())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use twostroke::sched::Policy;

    use super::*;
    use crate::source::Scenario;
    use crate::theme::Theme;

    #[test]
    fn every_request_is_in_the_picture_and_texts_are_escaped() {
        let mut store = Store::default();
        Scenario::long_prompt(Policy::Slo).play().expect("it fits").iter().for_each(|event| store.take(event));
        let mut view = View::default();
        view.show(0.0, as_time(store.end()));
        view.settle();
        let text = svg(&store, &view, "a <b> & c", &Theme::built_in().light);
        assert!(text.contains("a &lt;b&gt; &amp; c"));
        assert!((0..5).all(|id| text.contains(&format!(">#{id} <tspan"))));
        let of = |color: Color32| text.matches(&hex(color)).count();
        let colors = Theme::built_in().light;
        assert!(of(colors.prefill) >= 5 && of(colors.decode) >= 5, "both strokes of every request");
        assert_eq!(text.matches("<rect").count() + text.matches("<path").count(), text.matches("/>").count());
    }
}
