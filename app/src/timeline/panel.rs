//! The timeline as a panel: header and rows, steps and counters, minimap; pointer and keys.

use std::collections::HashMap;

use egui::{Align2, FontId, Mesh, Pos2, Rect, Sense, Shape, Ui, WidgetInfo, pos2, vec2};

use super::command::{self, Command};
use super::layout::{COUNTER_HEIGHT, COUNTERS, Layout};
use super::paint;
use super::ruler::ticks;
use super::spans::{Span, as_time, instant, spans};
use super::texts::{header_text, step_text};
use super::view::View;
use crate::run::{Figures, Level, Request, Selection, Store};
use crate::theme::Colors;

const ROW_HEIGHT: f32 = 24.0;
const ROW_MARGIN: f32 = 3.0;
/// Part of the view that a key moves or zooms by.
const KEY_PAN: f64 = 0.15;
const KEY_ZOOM: f64 = 0.7;
const SMALL: FontId = FontId { size: 10.5, family: egui::FontFamily::Proportional };

/// What the pointer is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hover {
    /// The request.
    pub request: u64,
    /// Which of its rows.
    pub row: usize,
    /// The step that it belongs to: rows of it light up everywhere.
    pub step: u32,
}

/// The panel's state.
#[derive(Debug)]
pub struct Timeline {
    /// What is seen.
    pub view: View,
    /// The selected request.
    pub selected: Option<u64>,
    /// Its selected row.
    pub segment: Option<usize>,
    /// The selected stretch of time.
    pub range: Option<(u64, u64)>,
    /// What the pointer is on.
    pub hover: Option<Hover>,
    /// Whether the list of keys is shown.
    pub shows_help: bool,
    /// What is searched for; `None` while the field is closed.
    pub search: Option<String>,
    /// Keys are for it: of two timelines the one that leads.
    pub has_keys: bool,
    scroll: f32,
    drag_from: Option<f64>,
    /// Events when it was frozen.
    frozen_at: u64,
    figures: HashMap<u64, (u64, bool, Figures)>,
    statistics: Option<(StatisticsOf, Selection)>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self {
            view: View::default(),
            selected: None,
            segment: None,
            range: None,
            hover: None,
            shows_help: false,
            search: None,
            has_keys: true,
            scroll: 0.0,
            drag_from: None,
            frozen_at: 0,
            figures: HashMap::new(),
            statistics: None,
        }
    }
}

/// What statistics are of: the stretch, the request, and the events that there were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StatisticsOf {
    range: (u64, u64),
    selected: Option<u64>,
    events: u64,
}

impl Timeline {
    /// Draws the timeline of `store` into what is left of `ui`, and does what keys and pointer ask for. `ghost` is what was predicted of
    /// the same requests, in the same order.
    pub fn ui(&mut self, ui: &mut Ui, store: &Store, ghost: Option<&Store>, colors: &Colors) {
        let (all, _) = ui.allocate_exact_size(ui.available_size(), Sense::hover());
        let layout = Layout::new(all);
        ui.painter().rect_filled(all, 0.0, colors.panel);
        if self.has_keys {
            command::pressed(ui).into_iter().for_each(|command| self.run(command, store));
        }
        let plot = Rect::from_min_max(layout.ruler.min, layout.counters.max);
        let response = ui.interact(plot, ui.scope_id().with("timeline"), Sense::click_and_drag());
        response.widget_info(|| WidgetInfo::labeled(egui::Role::Canvas, true, "Timeline"));
        self.pointer(ui, &response, &layout, store);
        self.view.follow(as_time(store.end()));
        if self.view.animate(f64::from(ui.input(|input| input.stable_dt))) {
            ui.ctx().request_repaint();
        }
        self.rows_ui(ui, store, ghost, &layout, colors);
        self.lanes_ui(ui, store, &layout, colors);
        self.minimap_ui(ui, store, &layout, colors);
        self.ruler_ui(ui, &layout, colors);
        self.range_ui(ui, &layout, colors);
    }

    /// Does what a command says.
    pub fn run(&mut self, command: Command, store: &Store) {
        match command {
            Command::ZoomIn => self.view.zoom(KEY_ZOOM, 0.5),
            Command::ZoomOut => self.view.zoom(1.0 / KEY_ZOOM, 0.5),
            Command::Left => self.view.pan(-KEY_PAN),
            Command::Right => self.view.pan(KEY_PAN),
            Command::Focus => self.focus(store),
            Command::Range => {
                if let Some(request) = self.selected.and_then(|id| store.request(id)) {
                    self.range = Some((request.arrive, request.end.unwrap_or(store.end())));
                }
            }
            Command::Whole => self.view.show(0.0, as_time(store.end())),
            Command::Next => self.segment_by(store, 1),
            Command::Previous => self.segment_by(store, -1),
            Command::Up => self.select_by(store, -1),
            Command::Down => self.select_by(store, 1),
            Command::Follow => {
                self.view.follows = !self.view.follows;
                self.frozen_at = store.events();
            }
            Command::Search => self.search = Some(String::new()),
            Command::Help => self.shows_help = !self.shows_help,
            Command::Clear => {
                (self.selected, self.segment, self.range) = (None, None, None);
                (self.search, self.shows_help) = (None, false);
            }
        }
    }

    /// How it stands to what is live.
    #[must_use]
    pub fn chip(&self, store: &Store) -> String {
        match self.view.follows {
            true => "LIVE".to_owned(),
            false => format!("PAUSED, {} new", store.events().saturating_sub(self.frozen_at)),
        }
    }

    /// The statistics of the selected stretch, of the selected request or of all.
    pub fn statistics(&mut self, store: &Store) -> Option<&Selection> {
        let range = self.range?;
        let of = StatisticsOf { range, selected: self.selected, events: store.events() };
        if self.statistics.as_ref().is_none_or(|(known, _)| *known != of) {
            let requests = store.requests().iter().filter(|request| self.selected.is_none_or(|id| id == request.id));
            self.statistics = Some((of, Selection::of(store, range.0, range.1, requests)));
        }
        self.statistics.as_ref().map(|(_, selection)| selection)
    }

    /// Figures of a request, computed again when it has made tokens or ended.
    pub fn figures(&mut self, request: &Request, store: &Store) -> &Figures {
        let key = (request.output_tokens(), request.end.is_some());
        let known = self.figures.entry(request.id).or_insert_with(|| (u64::MAX, false, Figures::default()));
        if (known.0, known.1) != key {
            *known = (key.0, key.1, request.figures(store));
        }
        &known.2
    }

    fn focus(&mut self, store: &Store) {
        let selected = self.selected.and_then(|id| store.request(id));
        let life = selected.map(|request| (request.arrive, request.end.unwrap_or(store.end())));
        if let Some((from, to)) = self.range.or(life) {
            self.view.show(as_time(from), as_time(to));
        }
    }

    fn select_by(&mut self, store: &Store, by: isize) {
        let requests = store.requests();
        let at = self.selected.and_then(|id| requests.iter().position(|request| request.id == id));
        let to = at.map_or(0, |at| at.saturating_add_signed(by)).min(requests.len().saturating_sub(1));
        self.selected = requests.get(to).map(|request| request.id);
        self.segment = None;
    }

    fn segment_by(&mut self, store: &Store, by: isize) {
        let Some(request) = self.selected.and_then(|id| store.request(id)) else { return };
        let last = request.rows().len().saturating_sub(1);
        let to = self.segment.map_or(0, |at| at.saturating_add_signed(by)).min(last);
        self.segment = (!request.rows().is_empty()).then_some(to);
        if let Some(step) = request.rows().get(to).and_then(|row| store.step(row.step)) {
            let (from, to) = (as_time(step.t0), as_time(step.t1));
            if from < self.view.from() || to > self.view.to() {
                let middle = f64::midpoint(from, to);
                self.view.pan((middle - f64::midpoint(self.view.from(), self.view.to())) / self.view.span());
            }
        }
    }

    fn pointer(&mut self, ui: &Ui, response: &egui::Response, layout: &Layout, store: &Store) {
        let width = f64::from(layout.rows.width()).max(1.0);
        let place = |pos: Pos2| f64::from(pos.x - layout.rows.left()) / width;
        let (shift, wheel, zoom) =
            ui.input(|input| (input.modifiers.shift, input.smooth_scroll_delta(), f64::from(input.zoom_delta())));
        if let Some(pos) = response.hover_pos() {
            if zoom != 1.0 {
                self.view.zoom(1.0 / zoom, place(pos));
            } else if wheel != egui::Vec2::ZERO {
                if wheel.x != 0.0 {
                    self.view.drag(-f64::from(wheel.x) / width);
                }
                self.scroll -= wheel.y;
            }
        }
        let most = (ROW_HEIGHT * store.requests().len() as f32 - layout.rows.height()).max(0.0);
        self.scroll = self.scroll.clamp(0.0, most);
        let is_pan = shift || response.dragged_by(egui::PointerButton::Middle);
        if let Some(pos) = response.interact_pointer_pos() {
            let t = self.view.time(place(pos));
            if response.drag_started() && !is_pan {
                // Where the button went down; a drag is one only some points later.
                let origin = ui.input(|input| input.pointer.press_origin()).unwrap_or(pos);
                self.drag_from = Some(self.view.time(place(origin)));
            }
            if response.dragged() {
                match self.drag_from {
                    Some(from) => {
                        let (from, to) = (instant(from.min(t)), instant(from.max(t)));
                        self.range = Some((from, to));
                        self.view.follows = false;
                    }
                    None => self.view.drag(-f64::from(response.drag_delta().x) / width),
                }
            }
        }
        if response.drag_stopped() {
            self.drag_from = None;
        }
        self.hover = response.hover_pos().and_then(|pos| self.hit(pos, layout, store));
        if let Some(step) = self.hover.and_then(|hover| store.step(hover.step)) {
            response.show_tooltip_text(step_text(step));
        }
        if response.clicked() {
            (self.selected, self.segment, self.range) = (None, None, None);
            if let Some(pos) = response.interact_pointer_pos() {
                self.selected = self.request_at(pos, layout, store).map(|request| request.id);
                self.segment = self.hover.filter(|hover| Some(hover.request) == self.selected).map(|hover| hover.row);
            }
        }
    }

    fn request_at<'a>(&self, pos: Pos2, layout: &Layout, store: &'a Store) -> Option<&'a Request> {
        if !layout.rows.contains(pos) && !layout.header.contains(pos) {
            return None;
        }
        let y = pos.y - layout.rows.top() + self.scroll;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a row of the screen")]
        store.requests().get((y / ROW_HEIGHT) as usize)
    }

    fn hit(&self, pos: Pos2, layout: &Layout, store: &Store) -> Option<Hover> {
        let request = self.request_at(pos, layout, store)?;
        let place = f64::from(pos.x - layout.rows.left()) / f64::from(layout.rows.width());
        let t = instant(self.view.time(place));
        let row = request.rows().after(store, 0, t);
        let step = request.rows().get(row)?.step;
        store.step(step).filter(|step| step.t0 <= t).map(|_| Hover { request: request.id, row, step })
    }

    fn rows_ui(&mut self, ui: &mut Ui, store: &Store, ghost: Option<&Store>, layout: &Layout, colors: &Colors) {
        let painter = ui.painter_at(layout.rows);
        painter.rect_filled(layout.rows, 0.0, colors.background);
        let (mut ground, mut boxes, mut marks) = (Mesh::default(), Mesh::default(), Mesh::default());
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rows of the screen")]
        let first = (self.scroll / ROW_HEIGHT) as usize;
        let mut y = layout.rows.top() + first as f32 * ROW_HEIGHT - self.scroll;
        for (at, request) in store.requests().iter().enumerate().skip(first) {
            if y > layout.rows.bottom() {
                break;
            }
            let band = Rect::from_min_size(pos2(layout.rows.left(), y), vec2(layout.rows.width(), ROW_HEIGHT));
            if self.selected == Some(request.id) {
                ground.add_colored_rect(band, colors.selection);
            } else if at % 2 == 1 {
                ground.add_colored_rect(band, colors.row_odd);
            }
            let row = band.shrink2(vec2(0.0, ROW_MARGIN));
            let spans = spans(request, store, &self.view, f64::from(row.width()));
            paint::row_mesh(&mut boxes, &spans, row, colors);
            paint::marks_mesh(&mut marks, request, &self.view, row, colors);
            self.lit(&mut marks, request, store, row, colors);
            if let Some((ghost, predicted)) = ghost.and_then(|ghost| Some((ghost, ghost.requests().get(at)?))) {
                paint::ghost_mesh(&mut marks, predicted, ghost, &self.view.moved(apart(store, ghost)), row, colors);
            }
            labels(&painter, &spans, request, row, colors);
            let header = Rect::from_min_size(pos2(layout.header.left(), y), vec2(layout.header.width(), ROW_HEIGHT));
            self.header_ui(ui, request, store, header.intersect(layout.header), colors);
            y += ROW_HEIGHT;
        }
        for mesh in [ground, boxes, marks] {
            painter.add(Shape::mesh(mesh));
        }
    }

    /// Rows of the step that the pointer is on, or that is selected, have an edge.
    fn lit(&self, mesh: &mut Mesh, request: &Request, store: &Store, row: Rect, colors: &Colors) {
        let selected = self.selected.and_then(|id| store.request(id)).zip(self.segment);
        let selected = selected.and_then(|(request, at)| Some(request.rows().get(at)?.step));
        for step in [self.hover.map(|hover| hover.step), selected].into_iter().flatten() {
            if request.rows().find(step).is_none() {
                continue;
            }
            let Some(step) = store.step(step) else { continue };
            let x = |t: u64| row.left() + points(self.view.place(as_time(t)) * f64::from(row.width()));
            let edge =
                Rect::from_min_max(pos2(x(step.t0), row.top()), pos2(x(step.t1).max(x(step.t0) + 1.0), row.bottom()));
            let edge = edge.intersect(row);
            if edge.width() > 0.0 {
                for y in [edge.top(), edge.bottom() - 1.5] {
                    mesh.add_colored_rect(
                        Rect::from_min_size(pos2(edge.left(), y), vec2(edge.width(), 1.5)),
                        colors.lit,
                    );
                }
            }
        }
    }

    fn header_ui(&mut self, ui: &Ui, request: &Request, store: &Store, rect: Rect, colors: &Colors) {
        if rect.height() < ROW_HEIGHT * 0.6 {
            return;
        }
        let text = header_text(request, self.figures(request, store));
        let painter = ui.painter_at(rect);
        let left = rect.left_center() + vec2(6.0, 0.0);
        let id = painter.text(left, Align2::LEFT_CENTER, &text.0, FontId::proportional(12.0), colors.text);
        let rest = pos2(id.right() + 8.0, rect.center().y);
        painter.text(rest, Align2::LEFT_CENTER, &text.1, SMALL, colors.text_weak);
        let response = ui.interact(rect, ui.scope_id().with(("request", request.id)), Sense::click());
        response.widget_info(|| {
            let mut info = WidgetInfo::labeled(egui::Role::Button, true, format!("{} {}", text.0, text.1));
            info.selected = Some(self.selected == Some(request.id));
            info
        });
        if response.clicked() {
            (self.selected, self.segment) = (Some(request.id), None);
        }
    }

    fn lanes_ui(&self, ui: &Ui, store: &Store, layout: &Layout, colors: &Colors) {
        let painter = ui.painter();
        painter.rect_filled(layout.steps.union(layout.counters), 0.0, colors.panel);
        let mut mesh = Mesh::default();
        let bars = paint::bars(store, &self.view, layout.steps);
        paint::steps_mesh(&mut mesh, &bars, layout.steps.shrink2(vec2(0.0, 2.0)), colors);
        let name = |lane: Rect, text: String| {
            let at = pos2(layout.header.left() + 6.0, lane.center().y);
            painter.text(at, Align2::LEFT_CENTER, text, SMALL, colors.text_weak);
        };
        let gpu = paint::gpu_share(&bars).map_or(String::new(), |share| format!(", GPU {:.0} %", share * 100.0));
        name(layout.steps, format!("steps ({}){gpu}", store.steps().len()));
        for (at, title) in COUNTERS.iter().enumerate() {
            let top = layout.counters.top() + at as f32 * COUNTER_HEIGHT;
            let lane =
                Rect::from_min_size(pos2(layout.counters.left(), top), vec2(layout.counters.width(), COUNTER_HEIGHT));
            let color = [colors.pages, colors.waiting, colors.prefill, colors.decode][at];
            let drawn = lane.shrink2(vec2(0.0, 2.0));
            let most = paint::counter_mesh(&mut mesh, &bars, drawn, color, |level| counter(at, level));
            name(lane, format!("{title}, at most {}", most.round()));
        }
        painter.add(Shape::mesh(mesh));
    }

    fn minimap_ui(&mut self, ui: &Ui, store: &Store, layout: &Layout, colors: &Colors) {
        let painter = ui.painter_at(layout.minimap);
        painter.rect_filled(layout.minimap, 0.0, colors.panel);
        let mut whole = View::default();
        whole.show(0.0, as_time(store.end()).max(1.0));
        whole.settle();
        let mut mesh = Mesh::default();
        let bars = paint::bars(store, &whole, layout.minimap);
        paint::steps_mesh(&mut mesh, &bars, layout.minimap, colors);
        let width = f64::from(layout.minimap.width());
        let x = |t: f64| layout.minimap.left() + points(whole.place(t) * width);
        let seen = Rect::from_x_y_ranges(x(self.view.from())..=x(self.view.to()), layout.minimap.y_range());
        mesh.add_colored_rect(seen.intersect(layout.minimap), colors.ghost);
        painter.add(Shape::mesh(mesh));
        let response = ui.interact(layout.minimap, ui.scope_id().with("minimap"), Sense::click_and_drag());
        response.widget_info(|| WidgetInfo::labeled(egui::Role::Canvas, true, "Minimap"));
        if let Some(pos) = response.interact_pointer_pos() {
            let t = whole.time(f64::from(pos.x - layout.minimap.left()) / width);
            let half = self.view.span() / 2.0;
            self.view.show(t - half * 0.96, t + half * 0.96);
        }
    }

    fn ruler_ui(&self, ui: &Ui, layout: &Layout, colors: &Colors) {
        let painter = ui.painter_at(layout.ruler.union(layout.rows));
        painter.rect_filled(layout.ruler, 0.0, colors.panel);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of labels")]
        let most = (layout.ruler.width() / 90.0) as u32;
        for tick in ticks(&self.view, most.max(2)) {
            let x = layout.ruler.left() + points(self.view.place(tick.t) * f64::from(layout.ruler.width()));
            painter.line_segment(
                [pos2(x, layout.ruler.bottom() - 4.0), pos2(x, layout.ruler.bottom())],
                (1.0, colors.text_weak),
            );
            painter.text(
                pos2(x + 3.0, layout.ruler.center().y),
                Align2::LEFT_CENTER,
                tick.text,
                SMALL,
                colors.text_weak,
            );
        }
    }

    fn range_ui(&self, ui: &Ui, layout: &Layout, colors: &Colors) {
        let Some((from, to)) = self.range else { return };
        let all = Rect::from_min_max(layout.ruler.min, layout.counters.max);
        let x = |t: u64| all.left() + points(self.view.place(as_time(t)) * f64::from(all.width()));
        let rect = Rect::from_x_y_ranges(x(from)..=x(to).max(x(from) + 1.0), all.y_range());
        ui.painter_at(all).rect_filled(rect, 0.0, colors.selection);
    }
}

/// How much later the requests of `ghost` begin than those of `store`, in nanoseconds.
fn apart(store: &Store, ghost: &Store) -> f64 {
    let first = |store: &Store| store.requests().iter().map(|request| request.arrive).min().unwrap_or(0);
    as_time(first(ghost)) - as_time(first(store))
}

fn counter(at: usize, level: &Level) -> f64 {
    match at {
        0 => f64::from(level.pages_most),
        1 => f64::from(level.waiting_most),
        2 => a_second(level.prefill_tokens, level),
        _ => a_second(level.decode_rows, level),
    }
}

fn a_second(count: u64, level: &Level) -> f64 {
    as_time(count) / as_time(level.t1.saturating_sub(level.t0)).max(1.0) * 1e9
}

/// What is written on boxes that are wide enough.
fn labels(painter: &egui::Painter, spans: &[Span], request: &Request, row: Rect, colors: &Colors) {
    for span in spans.iter().filter(|span| span.x1 - span.x0 >= 34.0) {
        let text = match (span.row, span.kind) {
            (Some(at), _) => {
                request.rows().get(at).map(|row| row.tokens()).filter(|tokens| *tokens > 1).map(|n| n.to_string())
            }
            (None, _) => None,
        };
        if let Some(text) = text {
            let middle = f64::midpoint(span.x0.max(0.0), span.x1.min(f64::from(row.width())));
            let at = pos2(row.left() + points(middle), row.center().y);
            painter.text(at, Align2::CENTER_CENTER, text, SMALL, colors.background);
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "points on a screen")]
fn points(x: f64) -> f32 {
    x.clamp(-1e4, 1e5) as f32
}
