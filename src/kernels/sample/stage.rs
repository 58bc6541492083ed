//! The launches that sampling consists of: what each binds, the params and the jobs they read.

use super::number::EXP2;
use crate::kernels::{Access, Spec, Tier, params_struct};

/// Invocations of a workgroup, in each stage.
pub(super) const LANES: u32 = 64;
/// Logits that a workgroup takes of a row; 64 a lane, whose counts and masses share a word in `sample_mass`.
pub(super) const CHUNK: u32 = 4096;
/// Items a list holds; a longer one is replaced by the whole row.
pub(super) const LIST_ITEMS: u32 = 8192;
/// Logits a turn of a loop, and where a list has run over.
const UNROLL: u32 = 4;
const ROW_UNROLL: u32 = 8;
/// Words that a (job, chunk) leaves behind.
pub(super) const PARTIAL_WORDS: u32 = 40;
/// Where they are: counts from 0 on, then masses, then the total and the top.
pub(super) const TOTAL_AT: u32 = 32;
pub(super) const TOP_AT: u32 = 36;
/// Distances from the top, in octaves times 2^24, up to which candidates are counted: a list takes the narrowest that holds
/// all it needs. The last one holds everything.
pub(super) const BANDS: [u32; 16] = {
    let octaves = [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 22, 28, 40, 64];
    let mut bands = [u32::MAX; 16];
    let mut i = 0;
    while i < octaves.len() {
        bands[i] = octaves[i] << 24;
        i += 1;
    }
    bands
};

const _: () = assert!(CHUNK / LANES <= 64, "a count of a lane has 7 bits");
const _: () = assert!(CHUNK / LANES <= LANES, "one lane a logit of a block, in the last step of a draw");
const _: () = assert!(2 * BANDS.len() <= TOTAL_AT as usize && TOP_AT + 2 <= PARTIAL_WORDS);
const _: () = assert!(crate::limits::LOGPROBS_MAX <= LANES);

/// One launch of sampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Counts the tokens of a history.
    Count,
    /// Applies penalties and bias.
    Penalise,
    /// Finds the top of each chunk.
    Scan,
    /// Sums probability by chunk and by distance from the top.
    Mass,
    /// Lists candidates for top-k and top-p.
    Gather,
    /// Chooses the id, or the logprobs.
    Choose,
}

impl Stage {
    /// All of them, in the order of a wave.
    pub const ALL: [Self; 6] = [Self::Count, Self::Penalise, Self::Scan, Self::Mass, Self::Gather, Self::Choose];

    /// Name of shader and label.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Count => "sample_count",
            Self::Penalise => "sample_penalise",
            Self::Scan => "sample_scan",
            Self::Mass => "sample_mass",
            Self::Gather => "sample_gather",
            Self::Choose => "sample_choose",
        }
    }

    const fn bindings(self) -> &'static [Access] {
        use Access::{Read, Write};
        match self {
            Self::Count => &[Read, Read, Write],
            Self::Penalise => &[Write, Read, Write, Read],
            Self::Scan => &[Read, Read, Write],
            Self::Mass => &[Read, Read, Write, Write],
            Self::Gather => &[Read, Read, Read, Write, Write],
            Self::Choose => &[Read, Read, Read, Read, Read, Write, Write],
        }
    }

    pub(in crate::kernels) fn spec(self) -> Spec {
        let exp2 = EXP2.map(|c| format!("{c:?}"));
        Spec {
            label: self.name().into(),
            shader: self.name(),
            constants: minijinja::context! {
                lanes => LANES, partial_words => PARTIAL_WORDS, total_at => TOTAL_AT, top_at => TOP_AT, chunk => CHUNK, bands => BANDS, exp2 => exp2, list_items => LIST_ITEMS,
                tops => crate::limits::LOGPROBS_MAX,
                unroll => UNROLL, row_unroll => ROW_UNROLL,
            },
            bindings: self.bindings(),
            params_bytes: Params::BYTES,
            params_fields: Params::FIELDS,
            invocations: LANES,
            tier: Tier::Base,
            int64: false,
        }
    }
}

params_struct! {
    /// As in `shaders/shared/sample.wgsl`.
    pub(super) struct Params {
        pub(super) first_job: u32,
        pub(super) job_count: u32,
        pub(super) chunks: u32,
        pub(super) dim: u32,
        pub(super) stride: u32,
        pub(super) context: u32,
        pub(super) record_words: u32,
        pub(super) history_chunks: u32,
        pub(super) workgroups: u32,
        pub(super) grid_x: u32,
        pub(super) zero: u32,
        pub(super) pad0: u32,
    }
}

/// Flags of a [`Job`].
pub(super) const GREEDY: u32 = 1;
pub(super) const RAW: u32 = 2;
pub(super) const LIST: u32 = 4;
pub(super) const PENALISED: u32 = 8;
pub(super) const REPETITION: u32 = 16;

params_struct! {
    /// One thing to find out about one row: its id, or its logprobs. As in `shaders/shared/sample.wgsl`.
    pub(super) struct Job {
        pub(super) flags: u32,
        /// Row of the logits to look at.
        pub(super) row: u32,
        /// Row of the logits that the model wrote.
        pub(super) source: u32,
        /// Job whose scan holds the top of this one's row: itself, or an earlier one over the same row.
        pub(super) scan: u32,
        pub(super) record: u32,
        pub(super) list: u32,
        /// Row of the counts.
        pub(super) scratch: u32,
        pub(super) slot: u32,
        /// Tokens before the one that is chosen, and its place.
        pub(super) position: u32,
        pub(super) prompt_tokens: u32,
        pub(super) top_k: u32,
        /// Times 2^32.
        pub(super) top_p: u32,
        /// Largest distance from the top.
        pub(super) min_p: u32,
        /// Octaves times 2^24 a unit of logit.
        pub(super) scale: f32,
        pub(super) seed_low: u32,
        pub(super) seed_high: u32,
        pub(super) choice: u32,
        pub(super) bias_start: u32,
        pub(super) bias_count: u32,
        pub(super) repetition: f32,
        pub(super) repetition_inverse: f32,
        pub(super) frequency: f32,
        pub(super) presence: f32,
        pub(super) pad0: u32,
    }
}
