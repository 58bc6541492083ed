//! What the engine tells of its work: one event a line of a trace, live or in a file. Pure data.
//!
//! Times are nanoseconds since the engine's start. New kinds may come; readers skip what they don't know.

use serde::{Deserialize, Serialize};

/// One event. In JSON an object whose `kind` is the variant in lower case.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Event {
    /// What runs here; the first event of a trace.
    Meta {
        /// Version of the program.
        version: String,
        /// The model's name.
        model: String,
        /// The adapter's name.
        adapter: String,
        /// The device tier.
        tier: String,
        /// Tokens of a KV page.
        page_tokens: u32,
        /// Pages of the pool.
        pages: u32,
        /// The scheduling policy's name.
        policy: String,
        /// Wall-clock time of the engine's start, in nanoseconds since 1970.
        unix_ns: u64,
    },
    /// A request came.
    Arrive {
        /// When.
        t: u64,
        /// The request.
        id: u64,
        /// Tokens of its prompt.
        prompt_tokens: u32,
        /// Most tokens of its answer.
        max_tokens: u32,
        /// Its priority; lower goes first.
        priority: i32,
    },
    /// A request was given pages and a slot.
    Admit {
        /// When.
        t: u64,
        /// The request.
        id: u64,
        /// Tokens whose KV was in the prompt cache.
        cached_tokens: u32,
        /// Why the rest was not; `None` when there is no rest.
        miss: Option<Miss>,
    },
    /// A step was run.
    Step {
        /// Its start: when it was submitted, or when the step before was done if that is later.
        t0: u64,
        /// When its result was seen.
        t1: u64,
        /// Time on the GPU; `None` without timestamps.
        gpu_ns: Option<u64>,
        /// Number of the step.
        n: u64,
        /// What was computed, in the order of the batch.
        rows: Vec<StepRow>,
        /// Pages in use.
        pages_used: u32,
        /// Requests that waited.
        waiting: u32,
    },
    /// The cost model changed; coefficients as the scheduler takes them.
    Cost {
        /// When.
        t: u64,
        /// Of a step.
        a: u64,
        /// Of a prefill token.
        b: u64,
        /// Of a decode row.
        c: u64,
        /// Of an attended pair.
        d: u64,
    },
    /// A request lost its pages and waits again.
    Preempt {
        /// When.
        t: u64,
        /// The request.
        id: u64,
    },
    /// A preempted request was given pages again.
    Resume {
        /// When.
        t: u64,
        /// The request.
        id: u64,
    },
    /// A request was cancelled.
    Cancel {
        /// When.
        t: u64,
        /// The request.
        id: u64,
    },
    /// A request is done.
    Finish {
        /// When.
        t: u64,
        /// The request.
        id: u64,
        /// Why, e.g. `stop` or `length`.
        reason: String,
        /// Tokens of its answer.
        output_tokens: u32,
    },
}

/// Why a part of a prompt was not in the cache.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miss {
    /// The reason.
    pub reason: MissReason,
    /// First token that was not there.
    pub at: u32,
}

/// See [`Miss`].
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum MissReason {
    /// Never seen before.
    New,
    /// Seen, and evicted since.
    Evicted,
    /// Another continuation of the same beginning was seen.
    Differs,
}

/// What a step computed for one request.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRow {
    /// The request.
    pub id: u64,
    /// Which stroke.
    pub kind: RowKind,
    /// First position.
    pub from: u32,
    /// Positions.
    pub tokens: u32,
    /// Draft tokens that were accepted; `None` but for `verify`.
    pub accepted: Option<u32>,
}

/// The kind of a [`StepRow`].
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
pub enum RowKind {
    /// A chunk of a prompt, or of what a preempted request had before.
    Prefill,
    /// One token after another.
    Decode,
    /// Draft tokens checked at once.
    Verify,
}
