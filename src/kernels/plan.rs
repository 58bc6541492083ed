//! Which variant runs where: the choice depends on the device, the tensor's shape and the rows of a launch, and every
//! choice gives the same bits, but for the phase of a row on tier matrix.

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

/// Sizes M = N = K of cooperative matrices, f16 by f16 into f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MatrixSizes {
    /// 16 by 16 by 16.
    pub sixteen: bool,
    /// 8 by 8 by 8.
    pub eight: bool,
}

impl MatrixSizes {
    /// Both.
    pub const ALL: Self = Self { sixteen: true, eight: true };

    /// Those there are, the one to prefer first.
    pub fn all(self) -> impl Iterator<Item = u8> {
        [(16, self.sixteen), (8, self.eight)].into_iter().filter_map(|(size, there)| there.then_some(size))
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
    /// Cooperative matrices; at least one size on tier matrix.
    pub matrix: MatrixSizes,
    /// Which of several candidates each class takes.
    pub choices: Choices,
}

impl Plan {
    /// The plan of the CPU twin, which plays every variant alike.
    pub const TWIN: Self = Self {
        tier: Tier::Base,
        software: true,
        int64: false,
        activations: Activations::F32,
        matrix: MatrixSizes { sixteen: false, eight: false },
        choices: Choices::FIRST,
    };

    /// The plan of the CPU twin where it stands for an adapter with cooperative matrices.
    pub const TWIN_MATRIX: Self =
        Self { tier: Tier::Matrix, matrix: MatrixSizes { sixteen: true, eight: false }, ..Self::TWIN };

    /// With the first candidate of every class, and no cooperative matrices.
    #[must_use]
    pub fn new(tier: Tier, software: bool, int64: bool) -> Self {
        let (activations, matrix, choices) = (Activations::default(), MatrixSizes::default(), Choices::default());
        Self { tier, software, int64, activations, matrix, choices }
    }

    /// Whether prompt tokens go through other products than generated ones, with other bits: then a row's phase decides, on a resume
    /// too, and pages with generated tokens stay out of the prompt cache.
    #[must_use]
    pub const fn by_phase(self) -> bool {
        matches!(self.tier, Tier::Matrix)
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
