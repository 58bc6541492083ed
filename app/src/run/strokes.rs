//! What each stroke of a run did in how much time: steps that only prefilled, and steps that only decoded. Mixed ones belong to neither.

use twostroke::engine::event::RowKind;
use twostroke::model::TokenWork;

use super::request::as_f64;
use super::store::{Step, Store};

/// One stroke's steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stroke {
    /// Steps.
    pub steps: u64,
    /// Time of them.
    pub nanos: u64,
    /// Tokens that they computed.
    pub tokens: u64,
    /// Queries times the keys that each attended to.
    pub pairs: u64,
    /// Keys that they read, each step and request anew.
    pub keys: u64,
    /// Rows of which logits were needed: of prefill at most one a step and request.
    pub logit_rows: u64,
}

impl Stroke {
    /// Operations and bytes a second; `None` of no time.
    #[must_use]
    pub fn rates(&self, work: &TokenWork) -> Option<(f64, f64)> {
        let seconds = as_f64(self.nanos) / 1e9;
        let count = |a: u64, b: u64| as_f64(a) * as_f64(b);
        let flops = count(self.tokens, work.layer_flops)
            + count(self.logit_rows, work.head_flops)
            + count(self.pairs, work.pair_flops);
        let bytes = count(self.steps, work.weight_bytes) + count(self.keys + self.tokens, work.kv_bytes);
        (seconds > 0.0).then(|| (flops / seconds, bytes / seconds))
    }
}

/// Both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Strokes {
    /// Steps of prompts alone.
    pub prefill: Stroke,
    /// Steps of answers alone.
    pub decode: Stroke,
}

impl Strokes {
    /// Of a run.
    #[must_use]
    pub fn of(store: &Store) -> Self {
        let mut strokes = Self::default();
        for step in store.steps() {
            if let Some(stroke) = strokes.of_step(step) {
                stroke.steps += 1;
                stroke.nanos = stroke.nanos.saturating_add(step.nanos());
            }
        }
        for request in store.requests() {
            for row in request.rows().iter() {
                let Some(stroke) = store.step(row.step).and_then(|step| strokes.of_step(step)) else { continue };
                let (from, tokens) = (u64::from(row.from), u64::from(row.tokens()));
                stroke.tokens += tokens;
                stroke.pairs += tokens * from + tokens * (tokens + 1) / 2;
                stroke.keys += from;
                let is_last = row.kind() != RowKind::Prefill || from + tokens >= u64::from(request.prompt_tokens);
                stroke.logit_rows += u64::from(is_last);
            }
        }
        strokes
    }

    fn of_step(&mut self, step: &Step) -> Option<&mut Stroke> {
        match (step.prefill_tokens > 0, step.decode_rows > 0) {
            (true, false) => Some(&mut self.prefill),
            (false, true) => Some(&mut self.decode),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use twostroke::engine::event::{Event, StepRow};

    use super::*;

    #[test]
    fn each_stroke_has_its_own_steps_and_mixed_ones_none() {
        let mut store = Store::default();
        let row = |id, kind, from, tokens| StepRow { id, kind, from, tokens, accepted: None };
        for id in [1, 2] {
            store.take(&Event::Arrive { t: 0, id, prompt_tokens: 8, max_tokens: 9, priority: 0 });
        }
        let mut step = |n: u64, rows| {
            store.take(&Event::Step {
                t0: n * 100,
                t1: n * 100 + 50,
                gpu_ns: None,
                n,
                rows,
                pages_used: 1,
                waiting: 0,
            });
        };
        step(0, vec![row(1, RowKind::Prefill, 0, 4)]);
        step(1, vec![row(1, RowKind::Prefill, 4, 4)]);
        step(2, vec![row(1, RowKind::Decode, 8, 1), row(2, RowKind::Prefill, 0, 8)]);
        step(3, vec![row(1, RowKind::Decode, 9, 1), row(2, RowKind::Decode, 8, 1)]);
        let strokes = Strokes::of(&store);
        let prefill = Stroke { steps: 2, nanos: 100, tokens: 8, pairs: 10 + 26, keys: 4, logit_rows: 1 };
        let decode = Stroke { steps: 1, nanos: 50, tokens: 2, pairs: 10 + 9, keys: 17, logit_rows: 2 };
        assert_eq!(strokes, Strokes { prefill, decode });
        let work = TokenWork { weight_bytes: 1000, layer_flops: 10, head_flops: 5, pair_flops: 2, kv_bytes: 4 };
        let (flops, bytes) = decode.rates(&work).expect("time");
        assert!((flops - (20.0 + 10.0 + 38.0) / 50e-9).abs() < 1.0);
        assert!((bytes - (1000.0 + 19.0 * 4.0) / 50e-9).abs() < 1.0);
        assert_eq!(Stroke::default().rates(&work), None);
    }
}
