//! Where the parts of the timeline lie.

use egui::{Rect, pos2};

const HEADER_WIDTH: f32 = 300.0;
const MINIMAP_HEIGHT: f32 = 18.0;
const RULER_HEIGHT: f32 = 20.0;
const STEPS_HEIGHT: f32 = 34.0;
pub(super) const COUNTER_HEIGHT: f32 = 20.0;
pub(super) const COUNTERS: [&str; 4] = ["KV pages", "waiting", "prefill tokens/s", "decode tokens/s"];

/// The rectangles of a frame.
pub(super) struct Layout {
    pub(super) header: Rect,
    pub(super) minimap: Rect,
    pub(super) ruler: Rect,
    pub(super) rows: Rect,
    pub(super) steps: Rect,
    pub(super) counters: Rect,
}

impl Layout {
    pub(super) fn new(all: Rect) -> Self {
        let x = all.left() + HEADER_WIDTH.min(all.width() * 0.5);
        let lanes = STEPS_HEIGHT + COUNTER_HEIGHT * COUNTERS.len() as f32;
        let band = |top: f32, bottom: f32| Rect::from_min_max(pos2(x, top), pos2(all.right(), bottom.max(top)));
        let top = all.top() + MINIMAP_HEIGHT;
        let bottom = (all.bottom() - lanes).max(top + RULER_HEIGHT);
        Self {
            header: Rect::from_min_max(pos2(all.left(), top + RULER_HEIGHT), pos2(x, bottom)),
            minimap: band(all.top(), top - 2.0),
            ruler: band(top, top + RULER_HEIGHT),
            rows: band(top + RULER_HEIGHT, bottom),
            steps: band(bottom, bottom + STEPS_HEIGHT),
            counters: band(bottom + STEPS_HEIGHT, all.bottom()),
        }
    }
}
