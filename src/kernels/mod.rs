//! The kernels: one file an op, with its params struct, its dispatch arithmetic and its CPU twin beside its WGSL text.
//!
//! This layer writes launches into a [`Tape`]; it knows buffers only as handles, and knows neither wgpu nor models.
//! Every sum that reaches a result follows the canonical order of DESIGN.md §3, in the shader and in the twin alike.

pub mod argmax;
pub mod attn;
pub mod choices;
pub mod embed;
pub mod gate_act;
pub mod kv_page;
pub mod layout;
pub mod matmul;
pub mod plan;
pub mod probe;
pub mod program;
pub mod quant_act;
pub mod rms_norm;
pub mod rope_kv;
pub mod sample;
mod template;
pub mod variants;

pub use kv_page::KvType;

use crate::format::block::BlockFormat;
use crate::limits;
use crate::recording::Recording;

/// A recording of our kernels.
pub type Tape = Recording<Kernel>;

/// What the adapter can do, from least to most. The same kernels exist on each tier; only variants differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// WebGPU's default limits, no optional feature: what every browser has.
    Base,
    /// Subgroups of at least 8 lanes.
    Subgroup,
    /// Cooperative matrices.
    Matrix,
}

impl Tier {
    /// Lower-case name, as on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Subgroup => "subgroup",
            Self::Matrix => "matrix",
        }
    }
}

/// How lanes of a workgroup hand values to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Exchange {
    /// Subgroup broadcasts and shuffles.
    Subgroup,
    /// Workgroup memory and barriers.
    Workgroup,
    /// Each lane reads what it needs from storage.
    Storage,
}

/// One row (token) of a ragged batch, as the shaders see it: `vec4<u32>`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Row {
    /// Token id.
    pub token: u32,
    /// Absolute position in its sequence.
    pub position: u32,
    /// Row of the block tables: which sequence.
    pub slot: u32,
    /// Unused.
    pub pad: u32,
}

/// Consecutive rows of one sequence that attention takes together, as the shaders see it: `vec4<u32>`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Tile {
    /// First row of the batch.
    pub row: u32,
    /// Rows in the tile.
    pub rows: u32,
    /// Row of the block tables.
    pub slot: u32,
    /// Position of the first row; the others follow.
    pub position: u32,
}

/// How a shader uses a storage binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// `var<storage, read>`.
    Read,
    /// `var<storage, read_write>`.
    Write,
}

/// Declares the params struct of a kernel once: layout as in WGSL, its size, its fields for the test that compares the two,
/// and the way back from bytes for the twin. The WGSL struct has the same field names in the same order, paddings included
/// (`pad0`, `pad1`, …), and is bound as `@group(0) @binding(0) var<uniform> params: Params;`. Its size is a multiple of 16.
macro_rules! params_struct {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident : $type:ty),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $type),*
        }

        #[allow(clippy::cast_possible_truncation, reason = "a params struct fits its stride of 256 bytes")]
        impl $name {
            /// Size in bytes.
            $vis const BYTES: u32 = size_of::<Self>() as u32;
            /// Name and byte offset of each field.
            $vis const FIELDS: &'static [(&'static str, u32)] =
                &[$((stringify!($field), std::mem::offset_of!($name, $field) as u32)),*];

            /// The struct whose bytes a launch carries.
            #[must_use]
            $vis fn read(bytes: &[u8]) -> Self {
                assert_eq!(bytes.len(), size_of::<Self>(), "bytes of {}", stringify!($name));
                bytemuck::pod_read_unaligned(bytes)
            }
        }

        const _: () = assert!(size_of::<$name>() % 16 == 0, "uniform structs are whole vec4s");
        const _: () = assert!(size_of::<$name>() <= $crate::limits::PARAMS_STRIDE as usize, "params fit their stride");
    };
}
pub(crate) use params_struct;

/// A kernel with all constants of its variant. Two equal kernels have the same WGSL text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kernel {
    /// Rows of the embedding, dequantised.
    Embed {
        /// Stored format of the embedding.
        format: BlockFormat,
    },
    /// Residual add and RMS norm.
    RmsNorm {
        /// Lanes of a row's workgroup.
        lanes: u8,
    },
    /// Activations times a packed weight matrix.
    Matmul(matmul::Shape),
    /// The same by cooperative matrices, for prompt tokens on tier matrix.
    MatmulMatrix(matmul::matrix::Shape),
    /// Activations as bytes.
    QuantAct,
    /// Q/K norm, RoPE, and K and V into their pages.
    RopeKv {
        /// How the pages store K and V.
        kv: KvType,
        /// The model norms q and k heads.
        norm: bool,
    },
    /// Flash attention, a tile of prompt rows a workgroup.
    AttnPrefill(attn::Shape),
    /// Flash attention, one split of 256 positions a workgroup.
    AttnDecode(attn::Shape),
    /// Joins the splits of [`Kernel::AttnDecode`].
    AttnMerge,
    /// Gated activation of the MLP.
    GateAct,
    /// Largest logit of each row.
    Argmax,
    /// A launch of sampling.
    Sample(sample::Stage),
}

/// What a player must know to build a kernel.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Op and constants, e.g. `matmul_q4_1_r8c4`: label of pipelines and profile rows.
    pub label: String,
    /// Name of the file in `shaders/`, without `.wgsl`.
    pub shader: &'static str,
    /// Constants for the text.
    pub constants: minijinja::Value,
    /// Access of the storage bindings 1, 2, …
    pub bindings: &'static [Access],
    /// Bytes of the params struct at binding 0: `Params::BYTES`.
    pub params_bytes: u32,
    /// Name and byte offset of each field of the params struct: `Params::FIELDS`. A test compares them with the WGSL.
    pub params_fields: &'static [(&'static str, u32)],
    /// Invocations of a workgroup.
    pub invocations: u32,
    /// Least tier that can run it.
    pub tier: Tier,
    /// Needs 64-bit integers too.
    pub int64: bool,
}

impl Kernel {
    /// Facts about the kernel.
    #[must_use]
    pub fn spec(self) -> Spec {
        match self {
            Self::Embed { format } => embed::spec(format),
            Self::RmsNorm { lanes } => rms_norm::spec(lanes),
            Self::Matmul(shape) => matmul::spec(shape),
            Self::MatmulMatrix(shape) => matmul::matrix::spec(shape),
            Self::QuantAct => quant_act::spec(),
            Self::RopeKv { kv, norm } => rope_kv::spec(kv, norm),
            Self::AttnPrefill(shape) => attn::prefill_spec(shape),
            Self::AttnDecode(shape) => attn::decode_spec(shape),
            Self::AttnMerge => attn::merge_spec(),
            Self::GateAct => gate_act::spec(),
            Self::Argmax => argmax::spec(),
            Self::Sample(stage) => stage.spec(),
        }
    }

    /// The WGSL text, entry point `main`. What naga wants enabled it enables itself; for subgroups browsers want a line in front.
    #[must_use]
    pub fn wgsl(self) -> String {
        let spec = self.spec();
        template::render(spec.shader, &spec.constants)
    }

    /// Multiplications and additions of a launch with these params, where they are counted.
    #[must_use]
    pub fn flops(self, params: &[u8]) -> Option<u64> {
        match self {
            Self::Matmul(shape) => Some(matmul::flops(shape, params)),
            Self::MatmulMatrix(shape) => Some(matmul::matrix::flops(shape, params)),
            _ => None,
        }
    }

    /// Plays one launch on the CPU. `mem[i]` holds the words of binding `i + 1`; params are the bytes of binding 0.
    pub fn twin(self, params: &[u8], grid: [u32; 3], mem: &mut [Vec<u32>]) {
        match self {
            Self::Embed { format } => embed::twin(format, params, grid, mem),
            Self::RmsNorm { .. } => rms_norm::twin(params, grid, mem),
            Self::Matmul(shape) => matmul::twin(shape, params, grid, mem),
            Self::MatmulMatrix(shape) => matmul::matrix::twin(shape, params, grid, mem),
            Self::QuantAct => quant_act::twin(params, grid, mem),
            Self::RopeKv { kv, norm } => rope_kv::twin(kv, norm, params, grid, mem),
            Self::AttnPrefill(shape) => attn::prefill_twin(shape, params, grid, mem),
            Self::AttnDecode(shape) => attn::decode_twin(shape, params, grid, mem),
            Self::AttnMerge => attn::merge_twin(params, grid, mem),
            Self::GateAct => gate_act::twin(params, grid, mem),
            Self::Argmax => argmax::twin(params, grid, mem),
            Self::Sample(stage) => sample::twin(stage, params, grid, mem),
        }
    }
}

/// `workgroups` in one row folded into two axes, none above WebGPU's 65,535. The shader finds its index as
/// `workgroup_id.y * grid_x + workgroup_id.x` and leaves when it is past the end.
#[must_use]
pub fn fold(workgroups: u64) -> [u32; 3] {
    if workgroups == 0 {
        return [0, 0, 0];
    }
    let max = u64::from(limits::BASE_WORKGROUPS);
    let rows = workgroups.div_ceil(max);
    assert!(rows <= max, "{workgroups} workgroups do not fit two axes");
    let columns = workgroups.div_ceil(rows);
    [u32::try_from(columns).expect("at most 65,535"), u32::try_from(rows).expect("at most 65,535"), 1]
}

/// Row stride, in floats, of an activation buffer that feeds a matmul: whole blocks, so that shaders need no guard along K.
/// The padding is zero from the start, and no shader writes anything else there.
#[must_use]
pub const fn padded(dim: u32) -> u32 {
    dim.next_multiple_of(limits::BLOCK_WEIGHTS)
}

/// Words of a twin's binding seen as floats.
#[must_use]
pub fn floats(words: &[u32]) -> &[f32] {
    bytemuck::cast_slice(words)
}

/// Words of a twin's binding seen as floats to write.
#[must_use]
pub fn floats_mut(words: &mut [u32]) -> &mut [f32] {
    bytemuck::cast_slice_mut(words)
}

#[cfg(test)]
mod tests {
    params_struct! {
        /// As a kernel would write it.
        struct Params {
            /// Rows.
            rows: u32,
            scale: f32,
            pad0: u32,
            pad1: u32,
        }
    }

    #[test]
    fn params_struct_knows_its_layout() {
        assert_eq!(Params::BYTES, 16);
        assert_eq!(Params::FIELDS, [("rows", 0), ("scale", 4), ("pad0", 8), ("pad1", 12)]);
        let params = Params { rows: 3, scale: 0.5, pad0: 0, pad1: 0 };
        assert_eq!(Params::read(bytemuck::bytes_of(&params)), params);
    }
}
