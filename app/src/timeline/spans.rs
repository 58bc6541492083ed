//! What is drawn of a request in a view: boxes as long as they are wide enough to be seen, and where many fall on a pixel, one box that
//! says how much of its time was taken. The cost follows the width, not the length of the run.

use twostroke::engine::event::RowKind;

use super::view::View;
use crate::run::{MarkKind, Request, Store};

/// Widest group of rows that are drawn as one, in points; also the narrowest box of a row by itself.
const MERGED: f64 = 2.0;

/// What a span stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It waits for its first pages and slot.
    Queued,
    /// It lost its pages and waits.
    Preempted,
    /// Prefill of a step that nobody decoded in.
    Prefill,
    /// Decode of a step that nobody prefilled in.
    Decode,
    /// Its part of a step of both strokes.
    Mixed {
        /// Which stroke was its own.
        is_prefill: bool,
    },
    /// Draft tokens were checked.
    Verify,
    /// Computed for nothing: it had been preempted.
    Discarded,
    /// Several rows, mostly of prefill.
    ManyPrefill,
    /// Several rows, mostly of decode.
    ManyDecode,
}

/// A box of a row, in points from the view's left edge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// Left edge.
    pub x0: f64,
    /// Right edge.
    pub x1: f64,
    /// What it stands for.
    pub kind: Kind,
    /// Part of its time that was taken, up to 1.
    pub taken: f32,
    /// Which of the request's rows it is; the first of several; `None` for a wait.
    pub row: Option<usize>,
}

/// The spans of `request`, by time, in a view that is `width` points wide. Waits come first.
#[must_use]
pub fn spans(request: &Request, store: &Store, view: &View, width: f64) -> Vec<Span> {
    let mut spans = waits(request, store, view, width);
    let x = |t: u64| view.place(as_time(t)) * width;
    let rows = request.rows();
    let mut at = rows.after(store, 0, instant(view.from()));
    while let Some(step) = rows.get(at).and_then(|row| store.step(row.step)) {
        let x0 = x(step.t0);
        if x0 > width {
            break;
        }
        let x1 = x(step.t1);
        if x1 - x0 >= MERGED {
            spans.push(Span { x0, x1, kind: kind(request, store, at), taken: 1.0, row: Some(at) });
            at += 1;
            continue;
        }
        // All rows that end within the next points, one at least.
        // One that begins just before an edge, as rounding may leave it, belongs behind it.
        let edge = (x0.max(0.0) / MERGED + 0.1).floor() * MERGED + MERGED;
        let until = instant(view.time(edge / width));
        let next = rows.after(store, at, until).max(at + 1);
        let sum = rows.sum(store, at, next);
        let last = rows.get(next - 1).and_then(|row| store.step(row.step)).unwrap_or(step);
        let x1 = x(last.t1).max(x0 + 1.0);
        let taken = as_time(sum.nanos) / as_time(last.t1.saturating_sub(step.t0)).max(1.0);
        let kind = match next - at {
            1 => kind(request, store, at),
            _ if sum.prefill_rows * 2 > (next - at) as u64 => Kind::ManyPrefill,
            _ => Kind::ManyDecode,
        };
        let one = Span { x0, x1, kind, taken: clamp(taken), row: Some(at) };
        match spans.last_mut() {
            // Alike and without a gap: one box.
            Some(before) if before.kind == kind && next - at > 1 && x0 - before.x1 < 0.5 && near(before, &one) => {
                before.x1 = x1;
            }
            _ => spans.push(one),
        }
        at = next;
    }
    spans
}

fn near(a: &Span, b: &Span) -> bool {
    (a.taken - b.taken).abs() < 0.08
}

/// Its waits, as far as they are seen.
fn waits(request: &Request, store: &Store, view: &View, width: f64) -> Vec<Span> {
    let mut open = Some((request.arrive, Kind::Queued));
    let mut waits = Vec::new();
    let mut close = |from: u64, to: u64, kind: Kind| {
        let (x0, x1) = (view.place(as_time(from)) * width, view.place(as_time(to)) * width);
        if x1 >= 0.0 && x0 <= width {
            waits.push(Span { x0, x1, kind, taken: 1.0, row: None });
        }
    };
    for mark in &request.marks {
        match mark.kind {
            MarkKind::Preempt => open = open.or(Some((mark.t, Kind::Preempted))),
            MarkKind::First => {}
            MarkKind::Admit { .. } | MarkKind::Resume | MarkKind::Cancel | MarkKind::Finish => {
                if let Some((from, kind)) = open.take() {
                    close(from, mark.t, kind);
                }
            }
        }
    }
    if let Some((from, kind)) = open.filter(|_| !request.state.is_over()) {
        close(from, store.end(), kind);
    }
    waits
}

fn kind(request: &Request, store: &Store, at: usize) -> Kind {
    let row = request.rows().get(at).expect("a row of its own");
    let is_mixed = store.step(row.step).is_some_and(crate::run::Step::is_mixed);
    match row.kind() {
        _ if row.is_discarded() => Kind::Discarded,
        RowKind::Verify => Kind::Verify,
        kind if is_mixed => Kind::Mixed { is_prefill: kind == RowKind::Prefill },
        RowKind::Prefill => Kind::Prefill,
        RowKind::Decode => Kind::Decode,
    }
}

#[allow(clippy::cast_possible_truncation, reason = "a part of 1")]
fn clamp(part: f64) -> f32 {
    part.clamp(0.0, 1.0) as f32
}

#[allow(clippy::cast_precision_loss, reason = "2^53 ns are 104 days, and what is drawn has a few thousand points")]
pub(crate) fn as_time(nanos: u64) -> f64 {
    nanos as f64
}

/// The whole nanosecond of a time of a view; what lies before the start is the start.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped by the cast")]
pub(crate) fn instant(t: f64) -> u64 {
    t as u64
}

#[cfg(test)]
mod tests {
    use twostroke::engine::event::{Event, StepRow};

    use super::*;

    fn arrive(store: &mut Store, t: u64, id: u64) {
        store.take(&Event::Arrive { t, id, prompt_tokens: 64, max_tokens: 9, priority: 0 });
    }

    fn step(store: &mut Store, t0: u64, t1: u64, rows: &[(u64, RowKind)]) {
        let row = |(id, kind): &(u64, RowKind)| StepRow { id: *id, kind: *kind, from: 0, tokens: 1, accepted: None };
        let rows = rows.iter().map(row).collect();
        store.take(&Event::Step { t0, t1, gpu_ns: None, n: 0, rows, pages_used: 0, waiting: 0 });
    }

    fn view(from: f64, to: f64) -> View {
        let mut view = View::default();
        let around = (to - from) * 0.02 / 1.04;
        view.show(from + around, to - around);
        view.settle();
        view
    }

    #[test]
    fn wide_rows_are_boxes_of_their_own_kind() {
        let mut store = Store::default();
        arrive(&mut store, 100, 1);
        arrive(&mut store, 100, 2);
        store.take(&Event::Admit { t: 200, id: 1, cached_tokens: 0, miss: None });
        step(&mut store, 200, 400, &[(1, RowKind::Prefill)]);
        step(&mut store, 400, 600, &[(1, RowKind::Decode), (2, RowKind::Prefill)]);
        step(&mut store, 600, 700, &[(1, RowKind::Decode)]);
        let spans = spans(store.request(1).expect("it is there"), &store, &view(0.0, 1000.0), 1000.0);
        let got: Vec<_> =
            spans.iter().map(|span| (span.x0.round() as i32, span.x1.round() as i32, span.kind)).collect();
        let expected = [
            (100, 200, Kind::Queued),
            (200, 400, Kind::Prefill),
            (400, 600, Kind::Mixed { is_prefill: false }),
            (600, 700, Kind::Decode),
        ];
        assert_eq!(got, expected);
    }

    #[test]
    fn a_preempted_request_waits_until_it_resumes() {
        let mut store = Store::default();
        arrive(&mut store, 0, 1);
        for event in [
            Event::Admit { t: 1000, id: 1, cached_tokens: 0, miss: None },
            Event::Preempt { t: 4000, id: 1 },
            Event::Resume { t: 7000, id: 1 },
            Event::Preempt { t: 9000, id: 1 },
        ] {
            store.take(&event);
        }
        arrive(&mut store, 9900, 2);
        let spans = spans(store.request(1).expect("it is there"), &store, &view(0.0, 10_000.0), 100.0);
        let got: Vec<_> =
            spans.iter().map(|span| (span.x0.round() as i32, span.x1.round() as i32, span.kind)).collect();
        assert_eq!(got, [(0, 10, Kind::Queued), (40, 70, Kind::Preempted), (90, 99, Kind::Preempted)]);
    }

    #[test]
    fn a_million_rows_are_as_many_spans_as_there_are_pixels_and_take_their_time() {
        let mut store = Store::default();
        arrive(&mut store, 0, 1);
        // A prompt in many chunks, a pause, then decode steps with a gap of a tenth.
        for n in 0..200_000 {
            step(&mut store, n * 10, n * 10 + 10, &[(1, RowKind::Prefill)]);
        }
        for n in 300_000..900_000 {
            step(&mut store, n * 10, n * 10 + 9, &[(1, RowKind::Decode)]);
        }
        let request = store.request(1).expect("it is there");
        let all = spans(request, &store, &view(0.0, 1e7), 1000.0);
        assert!(all.len() <= 4, "alike neighbours are one: {all:?}");
        let of = |kind: Kind| all.iter().filter(|span| span.kind == kind).map(|span| span.x1 - span.x0).sum::<f64>();
        assert!((of(Kind::ManyPrefill) - 200.0).abs() < 3.0, "{all:?}");
        assert!((of(Kind::ManyDecode) - 600.0).abs() < 3.0, "{all:?}");
        let decode = all.last().expect("spans");
        assert!((decode.taken - 0.9).abs() < 0.02, "{decode:?}");
        // Unlike neighbours: no more than the width holds.
        for (from, to) in [(0.0, 1e7), (1.9e6, 3.1e6), (5e6, 5.01e6)] {
            let some = spans(request, &store, &view(from, to), 1000.0);
            assert!(some.len() <= 501, "{} spans", some.len());
            let rows: Vec<_> = some.iter().filter(|span| span.row.is_some()).collect();
            assert!(rows.windows(2).all(|pair| pair[0].x0 < pair[1].x0), "by time");
        }
        let near = spans(request, &store, &view(5_000_000.0, 5_001_000.0), 1000.0);
        assert_eq!(near.iter().filter(|span| span.kind == Kind::Decode).count(), 101, "each by itself: {near:?}");
    }
}
