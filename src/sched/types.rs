//! What goes in and comes out of the scheduler: plain data.

use std::fmt;
use std::str::FromStr;

/// Names a request for its whole life; the caller never uses one twice.
pub type RequestId = u64;

/// How the scheduler is set up. All counts are at least 1.
#[derive(Clone, Debug)]
pub struct Config {
    /// Pages of the pool, each of [`crate::limits::PAGE_TOKENS`] tokens.
    pub pages: u32,
    /// Requests that run at once: vLLM's `max-num-seqs`.
    pub slots: u32,
    /// Rows (tokens) of one step: vLLM's `max-num-batched-tokens`.
    pub step_tokens: u32,
    /// Most prompt tokens of one request in one step: vLLM's `long-prefill-token-threshold`. `None`: no such bound.
    pub chunk_tokens: Option<u32>,
    /// Prompt and answer of one request together; lowered to what the pool holds.
    pub context_tokens: u32,
    /// Requests that may wait.
    pub queue_max: usize,
    /// Prompt tokens that may wait; a single request may pass it when nobody else waits.
    pub queue_tokens_max: u64,
    /// In which order, and what bounds a chunk.
    pub policy: Policy,
    /// What a step with decode rows may last under [`Policy::Slo`]. `None`: twice the predicted time of its decode rows alone.
    pub itl_slo_nanos: Option<u64>,
    /// Whether full pages are kept and found again.
    pub prefix_caching: bool,
    /// Whether that holds for pages with generated tokens too. `false` where these are not computed as a prompt's are: pages of a
    /// prompt alone are then kept, and only for positions of prompts are any found.
    pub cache_generated: bool,
    /// Most rows of a step that want logits.
    pub logit_rows: u32,
}

/// Who goes first, and how large a prefill chunk is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Decode rows first; chunks keep the predicted step inside the gap asked for. Order: preempted, priority, the tenant
    /// with the fewest served tokens, arrival.
    #[default]
    Slo,
    /// Decode rows first; chunks fill the step. Order: preempted, arrival.
    Fcfs,
    /// As [`Policy::Fcfs`], in the order priority, arrival.
    Priority,
    /// While a prompt can be prefilled nobody decodes: the old way, for comparison. Order as [`Policy::Slo`].
    PrefillFirst,
}

impl Policy {
    /// All policies.
    pub const ALL: [Self; 4] = [Self::Slo, Self::Fcfs, Self::Priority, Self::PrefillFirst];

    /// Its name on the command line and in the trace.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slo => "slo",
            Self::Fcfs => "fcfs",
            Self::Priority => "priority",
            Self::PrefillFirst => "prefill-first",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Policy {
    type Err = String;

    /// # Errors
    /// A name that no policy has; the message lists those there are.
    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|policy| policy.name() == name);
        found.ok_or_else(|| format!("expected {}, got {name:?}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// A request as it arrives.
#[derive(Clone, Debug)]
pub struct NewRequest {
    /// Not yet used.
    pub id: RequestId,
    /// At least one id.
    pub prompt: Vec<u32>,
    /// Most tokens to generate, at least 1; clamped to the context.
    pub max_tokens: u32,
    /// Lower goes first, as in vLLM.
    pub priority: i32,
    /// Whose share it counts on.
    pub tenant: u64,
    /// Digest of all that K and V depend on beside the ids (model, adapter, `cache_salt`): only equal salts share pages.
    pub salt: [u8; 32],
}

/// Why a request is not taken. Nothing was changed by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No room for one token behind the prompt.
    #[error("a prompt of {prompt_tokens} tokens and one more exceed the context of {context_tokens}")]
    ContextFull {
        /// Ids of the prompt.
        prompt_tokens: u64,
        /// The context as configured.
        context_tokens: u32,
    },
    /// Even alone it would not fit.
    #[error("the prompt needs {needed_pages} pages of KV, the pool has {pages}")]
    PoolTooSmall {
        /// For the prompt and one token.
        needed_pages: u64,
        /// Of the whole pool.
        pages: u32,
    },
    /// Too many requests wait; try again later.
    #[error("{waiting} requests wait, at most {limit} may")]
    QueueFull {
        /// Now.
        waiting: usize,
        /// Configured.
        limit: usize,
    },
    /// Too many prompt tokens wait; try again later.
    #[error("{waiting_tokens} prompt tokens wait, with {prompt_tokens} more at most {limit} may")]
    QueueTokensFull {
        /// Now.
        waiting_tokens: u64,
        /// Of the refused request.
        prompt_tokens: u64,
        /// Configured.
        limit: u64,
    },
    /// No ids to start from.
    #[error("the prompt is empty")]
    Empty,
}

/// What a row of a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// Ids that are known: a prompt's, or a resumed request's own answer so far.
    Prefill,
    /// One token, which may still be on its way: it is what the request's slot sampled last.
    Decode,
}

/// The rows of one request in one step: positions `from .. from + tokens`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRows {
    /// Whose.
    pub id: RequestId,
    /// Its place in per-request buffers, from admission until its last step is applied.
    pub slot: u32,
    /// Prefill or decode.
    pub kind: RowKind,
    /// First position.
    pub from: u32,
    /// Positions, at least 1.
    pub tokens: u32,
    /// Whether the last row yields a token.
    pub last: bool,
}

/// Why a prompt's first page that was not in the cache was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissReason {
    /// Never seen behind what came before it.
    New,
    /// It was there once.
    Evicted,
    /// Something else is cached behind the same beginning.
    Differs,
}

/// The end of a cache hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miss {
    /// Why.
    pub reason: MissReason,
    /// Token index: the first that differs, else the first that was not cached.
    pub at: u32,
}

/// A request that got its slot in this step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Which.
    pub id: RequestId,
    /// Its slot.
    pub slot: u32,
    /// Leading tokens whose K and V were found.
    pub cached_tokens: u32,
    /// What ended the hit; `None` when all was found that may be, or the cache is off.
    pub miss: Option<Miss>,
    /// Whether it ran before.
    pub resumed: bool,
}

/// One step. Steps run in the order of `n`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Counts from 0 without gaps.
    pub n: u64,
    /// At most one entry a request, at least one.
    pub rows: Vec<StepRows>,
    /// Admitted for this step.
    pub admitted: Vec<Admitted>,
    /// Preempted since the step before.
    pub preempted: Vec<RequestId>,
    /// Pages held by requests.
    pub pages_used: u32,
    /// Requests that wait.
    pub waiting: u32,
}

/// What the results of a step brought about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Requests that reached `max_tokens` or the context with it. They are gone.
    pub finished: Vec<RequestId>,
}

/// Figures for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests in the queue, preempted ones too.
    pub waiting: usize,
    /// Prompt tokens in the queue.
    pub waiting_tokens: u64,
    /// Requests with a slot.
    pub running: usize,
    /// Requests that ended while a step still works on them.
    pub leaving: usize,
    /// Steps planned and not applied.
    pub steps_in_flight: usize,
    /// Pages that requests hold.
    pub pages_used: u32,
    /// Pages that only the cache keeps.
    pub pages_cached: u32,
    /// Pages with nothing in them.
    pub pages_free: u32,
    /// Tokens of admissions, since the start.
    pub admitted_tokens: u64,
    /// Of these, found in the cache.
    pub cached_tokens: u64,
    /// Preemptions for want of pages, since the start.
    pub preemptions: u64,
    /// Cached pages given to others, since the start.
    pub evictions: u64,
}
