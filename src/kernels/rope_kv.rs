//! Norm of q and k heads (where the model has one), RoPE, and K and V written into their pages.

use super::{KvType, Spec, Tape};
use crate::recording::BufferId;

/// Which elements of a head rotate together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairing {
    /// (i, i + rotary_dim / 2): Hugging Face, and GGUF of the neox kind.
    Halves,
    /// (2i, 2i + 1): GGUF of the llama kind.
    Interleaved,
}

/// Arguments of a launch.
#[derive(Debug, Clone, Copy)]
pub struct Args {
    /// `[rows, qkv_stride]` f32: all q heads, then all k heads, then all v heads.
    pub qkv: BufferId,
    /// Floats between rows of `qkv`.
    pub qkv_stride: u32,
    /// `[position, rotary_dim / 2]` (cos, sin) f32, made on the host in f64.
    pub rope: BufferId,
    /// [`super::Row`]s.
    pub rows: BufferId,
    /// How many.
    pub row_count: u32,
    /// Block tables `[slot, table_stride]`.
    pub tables: BufferId,
    /// Pages a slot.
    pub table_stride: u32,
    /// `[2, head_dim]` f32: weights of the q norm, then of the k norm; any small buffer when `norm` is false.
    pub norm_weights: BufferId,
    /// Normalise q and k heads before rotating.
    pub norm: bool,
    /// Epsilon of that norm.
    pub eps: f32,
    /// `[rows, heads * head_dim]` f32.
    pub q_out: BufferId,
    /// K pages, see [`super::attn::Buffers`].
    pub k_pages: BufferId,
    /// V pages.
    pub v_pages: BufferId,
    /// Query heads.
    pub heads: u32,
    /// KV heads.
    pub kv_heads: u32,
    /// Head size.
    pub head_dim: u32,
    /// Leading elements of a head that rotate; even, at most `head_dim`.
    pub rotary_dim: u32,
    /// Which elements rotate together.
    pub pairing: Pairing,
    /// How the pages store K and V.
    pub kv: KvType,
}

/// Records the launch.
pub fn record(tape: &mut Tape, args: &Args) {
    let _ = (tape, args);
    todo!("H-attn")
}
pub(super) fn spec(kv: KvType) -> Spec {
    let _ = kv;
    todo!("H-attn")
}
pub(super) fn twin(kv: KvType, params: &[u8], grid: [u32; 3], mem: &mut [Vec<u32>]) {
    let _ = (kv, params, grid, mem);
    todo!("H-attn")
}
