//! Which variant runs where: the choice depends on the device, the tensor's shape and the rows of a launch, and every
//! choice gives the same bits.

use super::choices::Choices;
use super::{Exchange, KvType, Tier, attn, matmul};
use crate::format::block::BlockFormat;

/// What products make of their activations: a choice of accuracy, so the user's, never a plan's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Activations {
    /// Single floats, as they are.
    #[default]
    F32,
    /// Bytes, a scale per 32, where weights have scales; float weights take floats.
    Int8,
}

impl Activations {
    /// Both.
    pub const ALL: [Self; 2] = [Self::F32, Self::Int8];

    /// As on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Int8 => "int8",
        }
    }
}

/// What the choice looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Tier of the player.
    pub tier: Tier,
    /// A software driver: few wide lanes instead of thousands of narrow ones.
    pub software: bool,
    /// Shaders may use 64-bit integers (subgroup tier and above).
    pub int64: bool,
    /// What products make of their activations.
    pub activations: Activations,
    /// Which of several candidates each class takes.
    pub choices: Choices,
}

impl Plan {
    /// The plan of the CPU twin, which plays every variant alike.
    pub const TWIN: Self =
        Self { tier: Tier::Base, software: true, int64: false, activations: Activations::F32, choices: Choices::FIRST };

    /// With the first candidate of every class.
    #[must_use]
    pub fn new(tier: Tier, software: bool, int64: bool) -> Self {
        Self { tier, software, int64, activations: Activations::default(), choices: Choices::default() }
    }

    /// The exchange between lanes on this tier.
    #[must_use]
    pub const fn exchange(self) -> Exchange {
        match self.tier {
            Tier::Base => Exchange::Workgroup,
            Tier::Subgroup | Tier::Matrix => Exchange::Subgroup,
        }
    }

    /// Variant of the matmul for `rows` rows of activations; `gated` where it ends in an activation of the gate.
    #[must_use]
    pub fn matmul(self, format: BlockFormat, rows: u32, gated: bool) -> matmul::Shape {
        matmul::choose(self, format, rows, gated)
    }

    /// Variant of prefill attention; `group` query heads share a KV head.
    #[must_use]
    pub fn attn_prefill(self, kv: KvType, head_dim: u32, group: u32) -> attn::Shape {
        attn::choose_prefill(self, kv, head_dim, group)
    }

    /// Variant of decode attention.
    #[must_use]
    pub fn attn_decode(self, kv: KvType, head_dim: u32, group: u32) -> attn::Shape {
        attn::choose_decode(self, kv, head_dim, group)
    }
}
