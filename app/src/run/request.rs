//! One request of a run: its rows, what befell it, its figures.

use twostroke::engine::event::{Miss, RowKind, StepRow};
use twostroke::load::spread::Spread;
use twostroke::trace::Tokens;

use super::rows::Rows;
use super::store::Store;

/// What befell a request, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Nanoseconds since the engine's start.
    pub t: u64,
    /// What.
    pub kind: MarkKind,
}

/// See [`Mark`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkKind {
    /// It got pages and a slot; so much of its prompt was cached.
    Admit {
        /// Tokens whose KV was there.
        cached_tokens: u32,
        /// Why the rest was not.
        miss: Option<Miss>,
    },
    /// It lost its pages.
    Preempt,
    /// It got pages again.
    Resume,
    /// Its first token.
    First,
    /// It was cancelled.
    Cancel,
    /// It is done.
    Finish,
}

/// Where a request is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It waits for pages and a slot.
    Queued,
    /// It has them, and no token yet.
    Prefilling,
    /// It answers.
    Decoding,
    /// It lost its pages and waits.
    Preempted,
    /// It was cancelled.
    Cancelled,
    /// It ended, and why.
    Finished(String),
}

impl State {
    /// A word for it.
    #[must_use]
    pub fn word(&self) -> &str {
        match self {
            Self::Queued => "queued",
            Self::Prefilling => "prefill",
            Self::Decoding => "decode",
            Self::Preempted => "preempted",
            Self::Cancelled => "cancelled",
            Self::Finished(reason) => reason,
        }
    }

    /// Whether nothing more comes.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Cancelled | Self::Finished(_))
    }
}

/// A request.
#[derive(Debug, Clone)]
pub struct Request {
    /// The engine's number of it.
    pub id: u64,
    /// When it came.
    pub arrive: u64,
    /// When it ended; `None` while it lives.
    pub end: Option<u64>,
    /// Tokens of its prompt.
    pub prompt_tokens: u32,
    /// Most tokens of its answer.
    pub max_tokens: u32,
    /// Lower goes first.
    pub priority: i32,
    /// Where it is.
    pub state: State,
    /// By step.
    pub(super) rows: Rows,
    /// By time.
    pub marks: Vec<Mark>,
    /// Its first and its newest token.
    pub first_last: Option<(u64, u64)>,
    pub(super) tokens: Tokens,
}

/// What people ask of a request. Times in milliseconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    /// From arrival to the first admission.
    pub queue: Option<f64>,
    /// From arrival to the first token.
    pub ttft: Option<f64>,
    /// Mean time of a token after the first.
    pub tpot: Option<f64>,
    /// Median gap between tokens.
    pub itl_p50: Option<f64>,
    /// 99th percentile of the gaps.
    pub itl_p99: Option<f64>,
    /// Largest gap.
    pub itl_max: Option<f64>,
    /// From arrival to the end.
    pub e2e: Option<f64>,
    /// Prompt tokens that were in the cache.
    pub cached_tokens: u32,
    /// Tokens of its answer.
    pub output_tokens: u64,
    /// Tokens of its answer a second, after the first.
    pub tokens_per_second: Option<f64>,
    /// Prompt tokens a second that were not cached, from admission to the first token.
    pub prefill_per_second: Option<f64>,
}

impl Request {
    /// What was computed for it, by step.
    #[must_use]
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// When it was first admitted, and what was cached then.
    #[must_use]
    pub fn admitted(&self) -> Option<(u64, u32)> {
        self.marks.iter().find_map(|mark| match mark.kind {
            MarkKind::Admit { cached_tokens, .. } => Some((mark.t, cached_tokens)),
            _ => None,
        })
    }

    /// Tokens of its answer so far.
    #[must_use]
    pub fn output_tokens(&self) -> u64 {
        self.tokens.produced()
    }

    /// When tokens of it came, and how many came then; one entry a row that yielded any.
    #[must_use]
    pub fn yields(&self, store: &Store) -> Vec<(u64, u64)> {
        let mut tokens = Tokens::new(self.prompt_tokens);
        let kept = self.rows.iter().filter(|row| !row.is_discarded());
        let yields = kept.filter_map(|row| {
            let accepted = (row.kind() == RowKind::Verify).then(|| row.accepted());
            let told = StepRow { id: self.id, kind: row.kind(), from: row.from, tokens: row.tokens(), accepted };
            Some((store.step(row.step)?.t1, tokens.take(&told)))
        });
        yields.filter(|(_, count)| *count > 0).collect()
    }

    /// Gaps between its tokens in milliseconds, one a token after the first; tokens that came together share theirs.
    #[must_use]
    pub fn gaps(&self, store: &Store) -> Vec<f64> {
        let yields = self.yields(store);
        let of = |pair: &[(u64, u64)]| {
            let ((before, _), (now, count)) = (pair[0], pair[1]);
            (0..count).map(move |_| ms(before, now) / as_f64(count))
        };
        yields.windows(2).flat_map(of).collect()
    }

    /// Its figures, from its own rows and marks.
    #[must_use]
    pub fn figures(&self, store: &Store) -> Figures {
        let admitted = self.admitted();
        let cached_tokens = admitted.map_or(0, |(_, cached)| cached);
        let output_tokens = self.output_tokens();
        let gaps = Spread::of(self.gaps(store));
        let ttft = self.first_last.map(|(first, _)| ms(self.arrive, first));
        let tpot = self.first_last.filter(|_| output_tokens > 1);
        let tpot = tpot.map(|(first, last)| ms(first, last) / as_f64(output_tokens - 1));
        let prefill = admitted.zip(self.first_last).map(|((t, _), (first, _))| ms(t, first)).filter(|ms| *ms > 0.0);
        Figures {
            queue: admitted.map(|(t, _)| ms(self.arrive, t)),
            ttft,
            tpot,
            itl_p50: gaps.as_ref().map(Spread::median),
            itl_p99: gaps.as_ref().map(|gaps| gaps.percentile(99.0)),
            itl_max: gaps.as_ref().map(Spread::max),
            e2e: self.end.map(|end| ms(self.arrive, end)),
            cached_tokens,
            output_tokens,
            tokens_per_second: tpot.filter(|ms| *ms > 0.0).map(|ms| 1e3 / ms),
            prefill_per_second: prefill
                .map(|ms| f64::from(self.prompt_tokens.saturating_sub(cached_tokens)) / ms * 1e3),
        }
    }
}

/// Milliseconds between two times of a run.
#[must_use]
pub(crate) fn ms(from: u64, to: u64) -> f64 {
    as_f64(to.saturating_sub(from)) / 1e6
}

#[allow(clippy::cast_precision_loss, reason = "figures, not sums")]
pub(crate) fn as_f64(count: u64) -> f64 {
    count as f64
}
