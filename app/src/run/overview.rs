//! The figures of a whole run: what people compare two runs by.

use twostroke::load::goodput::Goodput;
use twostroke::load::spread::Spread;

use super::request::{Figures, MarkKind, State, as_f64, ms};
use super::store::Store;

/// The figures of a run. Times in milliseconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Overview {
    /// Requests that came.
    pub requests: usize,
    /// Those that ended with an answer.
    pub answered: usize,
    /// Times that a request lost its pages.
    pub preemptions: usize,
    /// From the first arrival to the last event.
    pub duration: f64,
    /// Tokens of all prompts.
    pub prompt_tokens: u64,
    /// Those of them that were cached.
    pub cached_tokens: u64,
    /// Tokens of all answers.
    pub output_tokens: u64,
    /// From arrival to admission.
    pub queue: Option<Spread>,
    /// From arrival to the first token.
    pub ttft: Option<Spread>,
    /// Mean time of a token after the first, by request.
    pub tpot: Option<Spread>,
    /// Gaps between tokens, of all requests.
    pub itl: Option<Spread>,
    /// From arrival to the end.
    pub e2e: Option<Spread>,
    /// By answered request: TTFT, TPOT, end to end.
    answers: Vec<(Option<f64>, Option<f64>, f64)>,
}

/// A figure of two runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// Its name and unit.
    pub name: &'static str,
    /// In the first run.
    pub a: Option<f64>,
    /// In the second one.
    pub b: Option<f64>,
    /// Whether less is better.
    pub less_is_better: bool,
}

impl Difference {
    /// How much the second run has of the first one's, as a part of it; `None` where one has none.
    #[must_use]
    pub fn change(&self) -> Option<f64> {
        let (a, b) = (self.a?, self.b?);
        (a != 0.0).then(|| b / a - 1.0)
    }
}

impl Overview {
    /// Of a run.
    #[must_use]
    pub fn of(store: &Store) -> Self {
        let mut overview = Self::default();
        let (mut queue, mut ttft, mut tpot, mut itl, mut e2e) = (vec![], vec![], vec![], vec![], vec![]);
        let first = store.requests().iter().map(|request| request.arrive).min().unwrap_or(0);
        overview.duration = ms(first, store.end());
        overview.requests = store.requests().len();
        for request in store.requests() {
            let Figures { queue: waited, ttft: first, tpot: each, e2e: whole, cached_tokens, output_tokens, .. } =
                request.figures(store);
            queue.extend(waited);
            ttft.extend(first);
            tpot.extend(each);
            itl.extend(request.gaps(store));
            overview.prompt_tokens += u64::from(request.prompt_tokens);
            overview.cached_tokens += u64::from(cached_tokens);
            overview.output_tokens += output_tokens;
            overview.preemptions += request.marks.iter().filter(|mark| mark.kind == MarkKind::Preempt).count();
            if let (State::Finished(_), Some(whole)) = (&request.state, whole) {
                e2e.push(whole);
                overview.answered += 1;
                overview.answers.push((first, each, whole));
            }
        }
        (overview.queue, overview.ttft) = (Spread::of(queue), Spread::of(ttft));
        (overview.tpot, overview.itl, overview.e2e) = (Spread::of(tpot), Spread::of(itl), Spread::of(e2e));
        overview
    }

    /// Answered requests a second that keep `limits`.
    #[must_use]
    pub fn goodput(&self, limits: &Goodput) -> Option<f64> {
        self.a_second(self.good(limits))
    }

    /// Part of the answered requests that keep `limits`.
    #[must_use]
    pub fn good_part(&self, limits: &Goodput) -> Option<f64> {
        (self.answered > 0).then(|| as_f64(self.good(limits)) / as_f64(self.answered as u64))
    }

    fn good(&self, limits: &Goodput) -> u64 {
        self.answers.iter().filter(|(ttft, tpot, e2e)| limits.keeps(*ttft, *tpot, *e2e)).count() as u64
    }

    /// Tokens of answers a second.
    #[must_use]
    pub fn output_per_second(&self) -> Option<f64> {
        self.a_second(self.output_tokens)
    }

    /// Part of all prompts that was cached.
    #[must_use]
    pub fn cached_part(&self) -> Option<f64> {
        (self.prompt_tokens > 0).then(|| as_f64(self.cached_tokens) / as_f64(self.prompt_tokens))
    }

    fn a_second(&self, count: u64) -> Option<f64> {
        (self.duration > 0.0).then(|| as_f64(count) / self.duration * 1e3)
    }

    /// Every figure of both runs.
    #[must_use]
    pub fn differences(&self, b: &Self, limits: &Goodput) -> Vec<Difference> {
        type Of = fn(&Overview) -> Option<f64>;
        let less: [(&str, Of); 9] = [
            ("TTFT p50, ms", |one| one.ttft.as_ref().map(Spread::median)),
            ("TTFT p99, ms", |one| one.ttft.as_ref().map(|spread| spread.percentile(99.0))),
            ("TPOT p50, ms", |one| one.tpot.as_ref().map(Spread::median)),
            ("TPOT p99, ms", |one| one.tpot.as_ref().map(|spread| spread.percentile(99.0))),
            ("ITL p99, ms", |one| one.itl.as_ref().map(|spread| spread.percentile(99.0))),
            ("longest gap, ms", |one| one.itl.as_ref().map(Spread::max)),
            ("queue p99, ms", |one| one.queue.as_ref().map(|spread| spread.percentile(99.0))),
            ("end to end p50, ms", |one| one.e2e.as_ref().map(Spread::median)),
            ("preemptions", |one| Some(as_f64(one.preemptions as u64))),
        ];
        let more: [(&str, Of); 2] = [
            ("output tokens/s", Self::output_per_second),
            ("prompt tokens cached, %", |one| one.cached_part().map(|part| part * 100.0)),
        ];
        let of = |(name, figure): (&'static str, Of), less_is_better| Difference {
            name,
            a: figure(self),
            b: figure(b),
            less_is_better,
        };
        let mut all: Vec<_> = less.into_iter().map(|one| of(one, true)).collect();
        all.extend(more.into_iter().map(|one| of(one, false)));
        if *limits != Goodput::default() {
            let (a, b) = (self.goodput(limits), b.goodput(limits));
            all.push(Difference { name: "goodput, requests/s", a, b, less_is_better: false });
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use twostroke::sched::Policy;
    use twostroke::trace::{Reader, Summary};

    use super::*;
    use crate::source::Scenario;

    /// The library's figures of the same trace, which share no code with these.
    #[test]
    fn figures_are_those_that_trace_summary_has() {
        for policy in [Policy::PrefillFirst, Policy::Slo] {
            let events = Scenario::long_prompt(policy).play().expect("it fits");
            let mut store = Store::default();
            events.iter().for_each(|event| store.take(event));
            let overview = Overview::of(&store);
            let lines: String =
                events.iter().map(|event| serde_json::to_string(event).expect("an event") + "\n").collect();
            let summary = Summary::of(Reader::new(lines.as_bytes(), "memory")).expect("a trace").json();
            for (name, spread) in [
                ("queue_ms", &overview.queue),
                ("ttft_ms", &overview.ttft),
                ("tpot_ms", &overview.tpot),
                ("itl_ms", &overview.itl),
                ("e2el_ms", &overview.e2e),
            ] {
                let spread = spread.as_ref().expect("samples");
                assert_eq!(summary[name]["samples"], spread.count(), "{name}");
                for (figure, got) in
                    [("median", spread.median()), ("p99", spread.percentile(99.0)), ("max", spread.max())]
                {
                    let expected =
                        summary[name][figure].as_f64().unwrap_or_else(|| panic!("{figure} of {name} in {summary}"));
                    assert!(
                        (got - expected).abs() <= expected.abs() * 1e-9,
                        "{name} {figure}: expected {expected}, got {got}"
                    );
                }
            }
            assert_eq!(summary["output_tokens"], overview.output_tokens);
            assert_eq!(summary["cached_tokens"], overview.cached_tokens);
        }
    }

    #[test]
    fn two_runs_differ_by_every_figure_and_goodput_counts_what_is_good() {
        let of = |policy: Policy| {
            let mut store = Store::default();
            Scenario::long_prompt(policy).play().expect("it fits").iter().for_each(|event| store.take(event));
            Overview::of(&store)
        };
        let (stalled, kept) = (of(Policy::PrefillFirst), of(Policy::Slo));
        let limits = Goodput { ttft_ms: None, tpot_ms: Some(55.0), e2el_ms: None };
        let all = stalled.differences(&kept, &limits);
        let by = |name: &str| all.iter().find(|one| one.name == name).expect("it is there");
        assert!(by("longest gap, ms").change().expect("both have one") < -0.8);
        assert!(by("TTFT p99, ms").change().expect("both have one") > 0.0, "the long prompt waits");
        assert_eq!(by("preemptions").change(), None, "nothing to compare with");
        assert!(by("goodput, requests/s").a.is_some());
        let part = stalled.good_part(&limits).expect("answers");
        assert!((0.0..=1.0).contains(&part));
        assert_eq!(Overview::of(&Store::default()).differences(&kept, &limits)[0].a, None);
    }
}
