//! Boxes of rows, of steps and of counters, one mesh a layer.

use egui::{Color32, Mesh, Rect, pos2};

use super::spans::{Kind, Span, as_time, instant};
use super::view::View;
use crate::run::{Level, MarkKind, Request, Store};
use crate::theme::Colors;

/// Part of a row's height that decode takes: strokes are told apart without colour too.
const DECODE_HEIGHT: f32 = 0.62;
/// Boxes at least this wide keep a gap to the next.
const GAP_FROM: f32 = 4.0;
/// Stripes of a wait, in points.
const STRIPE: f32 = 4.0;
/// Most stripes of one wait: what is wider has wider ones.
const STRIPES_MAX: f32 = 400.0;
/// Width of the mark of a cached prompt, when all of it was.
const CACHED_WIDTH: f32 = 16.0;
/// Height of the line of the GPU's time.
const GPU_LINE: f32 = 1.5;
/// Width of a bar of the lanes.
const BAR: f32 = 2.0;

/// The spans of one request into `row`, a rectangle of the screen.
pub(super) fn row_mesh(mesh: &mut Mesh, spans: &[Span], row: Rect, colors: &Colors) {
    for span in spans {
        let (x0, x1) = (at(row, span.x0), at(row, span.x1));
        let wide = x1 - x0 >= GAP_FROM;
        let x1 = if wide { x1 - 1.0 } else { x1 };
        let low = row.top() + row.height() * (1.0 - DECODE_HEIGHT);
        let mut rect = |y0: f32, color: Color32| {
            let rect = Rect::from_min_max(pos2(x0.max(row.left()), y0), pos2(x1.min(row.right()), row.bottom()));
            if rect.width() > 0.0 {
                mesh.add_colored_rect(rect, color);
            }
        };
        match span.kind {
            Kind::Queued => stripes(mesh, row, x0, x1, colors.queued),
            Kind::Preempted => stripes(mesh, row, x0, x1, colors.preempted),
            Kind::Prefill => rect(row.top(), colors.prefill),
            Kind::ManyPrefill => rect(row.top(), thin(colors.prefill, span.taken)),
            Kind::Decode => rect(low, colors.decode),
            Kind::ManyDecode => rect(low, thin(colors.decode, span.taken)),
            // A cap in the other stroke's colour: this step served both.
            Kind::Mixed { is_prefill } => {
                let (own, other, top) = if is_prefill {
                    (colors.prefill, colors.decode, row.top())
                } else {
                    (colors.decode, colors.prefill, low)
                };
                rect(top, other);
                rect(top + row.height() * 0.18, own);
            }
            Kind::Verify => rect(low, colors.verify),
            Kind::Discarded => rect(low, colors.discarded),
        }
    }
}

/// What was predicted of a request, as a line over and under its row: where it would have been prefilled and decoded.
pub(super) fn ghost_mesh(mesh: &mut Mesh, request: &Request, store: &Store, view: &View, row: Rect, colors: &Colors) {
    for span in super::spans::spans(request, store, view, f64::from(row.width())) {
        let color = match span.kind {
            Kind::Queued | Kind::Preempted => continue,
            Kind::Prefill | Kind::ManyPrefill | Kind::Mixed { is_prefill: true } => colors.prefill,
            Kind::Decode | Kind::ManyDecode | Kind::Mixed { is_prefill: false } | Kind::Verify => colors.decode,
            Kind::Discarded => colors.discarded,
        };
        let (x0, x1) = (at(row, span.x0).max(row.left()), at(row, span.x1).min(row.right()));
        if x1 > x0 {
            for y in [row.top() - 2.0, row.bottom()] {
                mesh.add_colored_rect(Rect::from_min_max(pos2(x0, y), pos2(x1, y + 2.0)), color.gamma_multiply(0.8));
            }
        }
    }
}

/// What befell a request, and the share of its prompt that was cached.
pub(super) fn marks_mesh(mesh: &mut Mesh, request: &Request, view: &View, row: Rect, colors: &Colors) {
    let mut line = |t: u64, width: f32, color: Color32| {
        let x = at(row, view.place(as_time(t)) * f64::from(row.width()));
        let rect = Rect::from_min_max(pos2(x, row.top() - 1.0), pos2(x + width, row.bottom() + 1.0));
        if rect.right() > row.left() && rect.left() < row.right() {
            mesh.add_colored_rect(rect.intersect(row.expand2(egui::vec2(0.0, 1.0))), color);
        }
    };
    for mark in &request.marks {
        match mark.kind {
            MarkKind::Admit { cached_tokens, .. } if cached_tokens > 0 => {
                let part = as_part(cached_tokens, request.prompt_tokens);
                line(mark.t, 2.0 + CACHED_WIDTH * part, colors.cached);
            }
            MarkKind::Admit { .. } | MarkKind::Resume => {}
            MarkKind::Preempt => line(mark.t, 2.0, colors.preempted),
            MarkKind::First => line(mark.t, 1.5, colors.first),
            MarkKind::Cancel => line(mark.t, 2.5, colors.cancel),
            MarkKind::Finish => line(mark.t, 1.5, colors.finish),
        }
    }
}

/// A bar of the lanes: a step, or as many as end within [`BAR`] points.
pub(super) struct Bar {
    x0: f32,
    x1: f32,
    /// What its steps are together.
    pub(super) level: Level,
}

/// The bars of a lane, by time.
pub(super) fn bars(store: &Store, view: &View, lane: Rect) -> Vec<Bar> {
    let (steps, width) = (store.steps(), f64::from(lane.width()));
    let from = instant(view.from());
    let mut first = steps.partition_point(|step| step.t1 <= from);
    let mut bars = Vec::new();
    while let Some(step) = steps.get(first) {
        let x0 = view.place(as_time(step.t0)) * width;
        if x0 > width {
            break;
        }
        let edge = (x0.max(0.0) / f64::from(BAR) + 0.1).floor() * f64::from(BAR) + f64::from(BAR);
        let until = instant(view.time(edge / width));
        let next = (first + steps[first..].partition_point(|step| step.t1 <= until)).max(first + 1);
        let level = store.levels().sum(steps, first, next).expect("one step at least");
        let x1 = view.place(as_time(level.t1)) * width;
        let (x0, x1) = (at(lane, x0).max(lane.left()), at(lane, x1).min(lane.right()));
        bars.push(Bar { x0, x1: x1.max(x0 + 1.0), level });
        first = next;
    }
    bars
}

/// The lane of steps: how much of the time was taken, and by which stroke; a line where the GPU's own part of it ends.
pub(super) fn steps_mesh(mesh: &mut Mesh, bars: &[Bar], lane: Rect, colors: &Colors) {
    for Bar { x0, x1, level } in bars {
        let seen = as_time(level.t1.saturating_sub(level.t0)).max(1.0);
        let taken = height(as_time(level.busy_nanos) / seen);
        let share = height(as_time(level.prefill_nanos) / as_time(level.busy_nanos.max(1)));
        let (bottom, top) = (lane.bottom(), lane.bottom() - lane.height() * taken);
        let between = bottom - (bottom - top) * share;
        mesh.add_colored_rect(Rect::from_min_max(pos2(*x0, between), pos2(*x1, bottom)), colors.prefill);
        mesh.add_colored_rect(Rect::from_min_max(pos2(*x0, top), pos2(*x1, between)), colors.decode);
        if level.gpu_nanos > 0 {
            let y = bottom - (bottom - top) * height(as_time(level.gpu_nanos) / as_time(level.busy_nanos.max(1)));
            mesh.add_colored_rect(Rect::from_min_max(pos2(*x0, y), pos2(*x1, (y + GPU_LINE).min(bottom))), colors.text);
        }
    }
}

/// Share of the seen steps' time that the GPU worked; `None` where no step tells.
pub(super) fn gpu_share(bars: &[Bar]) -> Option<f64> {
    let sum = |of: fn(&Level) -> u64| bars.iter().map(|bar| as_time(of(&bar.level))).sum::<f64>();
    let (gpu, busy) = (sum(|level| level.gpu_nanos), sum(|level| level.busy_nanos));
    (gpu > 0.0).then(|| gpu / busy.max(1.0))
}

/// A counter against the largest value that is seen, which it gives.
pub(super) fn counter_mesh(
    mesh: &mut Mesh,
    bars: &[Bar],
    lane: Rect,
    color: Color32,
    value: impl Fn(&Level) -> f64,
) -> f64 {
    let most = bars.iter().map(|bar| value(&bar.level)).fold(0.0, f64::max);
    for bar in bars {
        let top = lane.bottom() - lane.height() * height(value(&bar.level) / most.max(1e-9));
        mesh.add_colored_rect(Rect::from_min_max(pos2(bar.x0, top), pos2(bar.x1, lane.bottom())), color);
    }
    most
}

fn stripes(mesh: &mut Mesh, row: Rect, x0: f32, x1: f32, color: Color32) {
    let (x0, x1) = (x0.max(row.left()), x1.min(row.right()));
    let (top, bottom) = (row.top() + row.height() * 0.3, row.bottom() - row.height() * 0.3);
    let step = (2.0 * STRIPE).max((x1 - x0) / STRIPES_MAX);
    // Stripes stand still while the view moves past them.
    let mut x = x0;
    while x < x1 {
        mesh.add_colored_rect(Rect::from_min_max(pos2(x, top), pos2((x + step / 2.0).min(x1), bottom)), color);
        x += step;
    }
}

fn thin(color: Color32, taken: f32) -> Color32 {
    color.gamma_multiply(0.35 + 0.65 * taken)
}

#[allow(clippy::cast_possible_truncation, reason = "points on a screen")]
fn at(rect: Rect, x: f64) -> f32 {
    // What lies far outside must not become infinite.
    rect.left() + x.clamp(-1e4, 1e5) as f32
}

#[allow(clippy::cast_possible_truncation, reason = "a part of 1")]
fn height(part: f64) -> f32 {
    part.clamp(0.0, 1.0) as f32
}

fn as_part(part: u32, whole: u32) -> f32 {
    height(f64::from(part) / f64::from(whole.max(1)))
}
