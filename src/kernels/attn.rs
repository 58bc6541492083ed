//! Flash attention over paged KV: prefill tiles, split decode, and the join of splits.

use super::plan::Plan;
use super::{Exchange, KvType, Spec, Tape};
use crate::recording::BufferId;

/// Constants of an attention variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    /// How the pages store K and V.
    pub kv: KvType,
    /// Head size: a multiple of 8 up to 256.
    pub head_dim: u16,
    /// Rows of a workgroup, a row being (token, query head of the group).
    pub rows: u8,
    /// Lanes of a workgroup.
    pub lanes: u8,
    /// How lanes share scores.
    pub exchange: Exchange,
}

/// Sizes that both attention kernels need.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Geometry {
    /// Query heads.
    pub heads: u32,
    /// KV heads; divides `heads`.
    pub kv_heads: u32,
    /// Head size.
    pub head_dim: u32,
    /// Multiplies q·k.
    pub scale: f32,
    /// cap·tanh(s / cap) on the scaled score; 0 for none.
    pub softcap: f32,
    /// A row at p sees keys in (p - window, p]; 0 for all keys up to p.
    pub window: u32,
}

/// Buffers of an attention launch.
#[derive(Debug, Clone, Copy)]
pub struct Buffers {
    /// `[rows, heads * head_dim]` f32, rotated.
    pub q: BufferId,
    /// K pages of the layer: `[page, kv_head, head_dim / 8, token]`, 8 values each.
    pub k_pages: BufferId,
    /// V pages of the layer: `[page, kv_head, token, head_dim / 8]`, 8 values each.
    pub v_pages: BufferId,
    /// Block tables `[slot, table_stride]` u32: page of each 16 positions.
    pub tables: BufferId,
    /// [`super::Tile`]s.
    pub tiles: BufferId,
    /// Partial results `[tile row * heads, splits, head_dim + 2]` f32 (decode only).
    pub parts: BufferId,
    /// `[rows, padded(heads * head_dim)]` f32.
    pub out: BufferId,
}

/// Tokens that one prefill tile may hold for this variant and group of query heads a KV head.
#[must_use]
pub fn tile_tokens(shape: Shape, group: u32) -> u32 {
    let _ = (shape, group);
    todo!("H-attn")
}

/// Records prefill attention over `tiles` tiles from `first_tile` on; writes `out` whole.
pub fn record_prefill(
    tape: &mut Tape,
    shape: Shape,
    geometry: Geometry,
    buffers: Buffers,
    table_stride: u32,
    first_tile: u32,
    tiles: u32,
) {
    let _ = (tape, shape, geometry, buffers, table_stride, first_tile, tiles);
    todo!("H-attn")
}

/// Records decode attention over `tiles` tiles of one row each from `first_tile` on, and the join of their splits.
/// `splits` is the most splits of 256 positions that any of the rows has; `parts` holds
/// `tiles * heads * splits * (head_dim + 2)` floats.
pub fn record_decode(
    tape: &mut Tape,
    shape: Shape,
    geometry: Geometry,
    buffers: Buffers,
    table_stride: u32,
    first_tile: u32,
    tiles: u32,
    splits: u32,
) {
    let _ = (tape, shape, geometry, buffers, table_stride, first_tile, tiles, splits);
    todo!("H-attn")
}

pub(super) fn choose_prefill(plan: Plan, kv: KvType, head_dim: u32, group: u32) -> Shape {
    let _ = (plan, kv, head_dim, group);
    todo!("H-attn")
}
pub(super) fn choose_decode(plan: Plan, kv: KvType, head_dim: u32, group: u32) -> Shape {
    let _ = (plan, kv, head_dim, group);
    todo!("H-attn")
}
pub(super) fn prefill_shapes() -> Vec<Shape> {
    todo!("H-attn")
}
pub(super) fn decode_shapes() -> Vec<Shape> {
    todo!("H-attn")
}
pub(super) fn prefill_spec(shape: Shape) -> Spec {
    let _ = shape;
    todo!("H-attn")
}
pub(super) fn decode_spec(shape: Shape) -> Spec {
    let _ = shape;
    todo!("H-attn")
}
pub(super) fn merge_spec() -> Spec {
    todo!("H-attn")
}
pub(super) fn prefill_twin(shape: Shape, params: &[u8], grid: [u32; 3], mem: &mut [Vec<u32>]) {
    let _ = (shape, params, grid, mem);
    todo!("H-attn")
}
pub(super) fn decode_twin(shape: Shape, params: &[u8], grid: [u32; 3], mem: &mut [Vec<u32>]) {
    let _ = (shape, params, grid, mem);
    todo!("H-attn")
}
pub(super) fn merge_twin(params: &[u8], grid: [u32; 3], mem: &mut [Vec<u32>]) {
    let _ = (params, grid, mem);
    todo!("H-attn")
}
