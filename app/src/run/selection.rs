//! The statistics of a stretch of time: what people ask when they drag over a timeline.

use twostroke::load::spread::Spread;

use super::request::{Request, as_f64, ms};
use super::store::{Step, Store};

/// Where the time of a stretch went, in milliseconds, and how many tokens were computed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Split {
    /// Steps that only prefilled.
    pub prefill: f64,
    /// Steps that only decoded.
    pub decode: f64,
    /// Steps of both.
    pub mixed: f64,
    /// No step.
    pub idle: f64,
    /// Prompt tokens of steps that ended in it.
    pub prefill_tokens: u64,
    /// Decode rows of steps that ended in it.
    pub decode_tokens: u64,
}

/// The statistics of a stretch.
#[derive(Debug, Clone, PartialEq)]
pub struct Selection {
    /// Its start and end in nanoseconds.
    pub range: (u64, u64),
    /// Steps that ended in it, in milliseconds.
    pub steps: Option<Spread>,
    /// Gaps that ended in it between tokens of the requests asked for, in milliseconds.
    pub gaps: Option<Spread>,
    /// Tokens of these requests that came in it.
    pub tokens: u64,
    /// Where the time went.
    pub split: Split,
}

impl Selection {
    /// Of `from..to`, with the tokens of `requests`.
    #[must_use]
    pub fn of<'a>(store: &Store, from: u64, to: u64, requests: impl IntoIterator<Item = &'a Request>) -> Self {
        let (from, to) = (from.min(to), from.max(to));
        let mut split = Split::default();
        let mut steps = Vec::new();
        let first = store.steps().partition_point(|step| step.t1 <= from);
        for step in store.steps()[first..].iter().take_while(|step| step.t0 < to) {
            let clipped = ms(step.t0.max(from), step.t1.min(to));
            *stroke(&mut split, step) += clipped;
            if step.t1 <= to {
                steps.push(ms(step.t0, step.t1));
                split.prefill_tokens += u64::from(step.prefill_tokens);
                split.decode_tokens += u64::from(step.decode_rows);
            }
        }
        split.idle = (ms(from, to) - split.prefill - split.decode - split.mixed).max(0.0);
        let (mut gaps, mut tokens) = (Vec::new(), 0);
        for request in requests {
            let mut before = None;
            for (t, count) in request.yields(store) {
                if t > from && t <= to {
                    tokens += count;
                    let each = before.map(|before| ms(before, t) / as_f64(count));
                    gaps.extend((0..count).filter_map(|_| each));
                }
                before = Some(t);
            }
        }
        Self { range: (from, to), steps: Spread::of(steps), gaps: Spread::of(gaps), tokens, split }
    }
}

/// The part of `split` that a step belongs to.
fn stroke<'a>(split: &'a mut Split, step: &Step) -> &'a mut f64 {
    match (step.prefill_tokens > 0, step.decode_rows > 0) {
        (true, true) => &mut split.mixed,
        (true, false) => &mut split.prefill,
        _ => &mut split.decode,
    }
}

#[cfg(test)]
mod tests {
    use twostroke::engine::event::{Event, RowKind, StepRow};

    use super::*;

    fn store() -> Store {
        let mut store = Store::default();
        let row = |id, kind, from, tokens| StepRow { id, kind, from, tokens, accepted: None };
        let step = |t0: u64, t1: u64, rows| Event::Step {
            t0: t0 * 1_000_000,
            t1: t1 * 1_000_000,
            gpu_ns: None,
            n: 0,
            rows,
            pages_used: 0,
            waiting: 0,
        };
        for id in [1, 2] {
            store.take(&Event::Arrive { t: 0, id, prompt_tokens: 4, max_tokens: 9, priority: 0 });
        }
        store.take(&step(0, 10, vec![row(1, RowKind::Prefill, 0, 4)]));
        store.take(&step(10, 12, vec![row(1, RowKind::Decode, 4, 1)]));
        store.take(&step(20, 30, vec![row(1, RowKind::Decode, 5, 1), row(2, RowKind::Prefill, 0, 4)]));
        store.take(&step(30, 34, vec![row(1, RowKind::Decode, 6, 1), row(2, RowKind::Decode, 4, 1)]));
        store
    }

    #[test]
    fn time_and_tokens_of_a_stretch_are_split_by_stroke() {
        let store = store();
        let all = Selection::of(&store, 0, 40_000_000, store.requests());
        let expected =
            Split { prefill: 10.0, decode: 6.0, mixed: 10.0, idle: 14.0, prefill_tokens: 8, decode_tokens: 4 };
        assert_eq!(all.split, expected);
        assert_eq!((all.tokens, all.steps.expect("steps").count()), (6, 4));
        let mut gaps = store.requests().iter().flat_map(|request| request.gaps(&store)).collect::<Vec<_>>();
        gaps.sort_by(f64::total_cmp);
        assert_eq!(gaps, [2.0, 4.0, 4.0, 18.0]);
        assert_eq!(all.gaps, Spread::of(gaps));
    }

    #[test]
    fn a_stretch_clips_steps_and_counts_those_that_end_in_it() {
        let store = store();
        let part = Selection::of(&store, 25_000_000, 5_000_000, store.request(1));
        let expected = Split { prefill: 5.0, decode: 2.0, mixed: 5.0, idle: 8.0, prefill_tokens: 4, decode_tokens: 1 };
        assert_eq!((part.range, part.split, part.tokens), ((5_000_000, 25_000_000), expected, 2));
        assert_eq!(part.steps.expect("steps").max(), 10.0);
        assert_eq!(part.gaps.expect("a gap").max(), 2.0);
    }
}
