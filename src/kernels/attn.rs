//! Flash attention over paged KV: prefill tiles, split decode, and the join of splits.
//!
//! A workgroup is [`Shape::lanes`] / 8 clusters of 8 lanes. A cluster owns some rows of the workgroup, a row being (token of
//! the tile, query head of the group), and walks the keys alone: first a lane takes 4 of the 32 keys of a key tile, then 8 of
//! the head's dimensions. Row tile, lanes and exchange are therefore free knobs that never change a bit:
//!
//! ```text
//! keys   |<- split 0: 256 ->|<- split 1 ->| ...      absolute positions, whatever the tile or the chunk
//! split  |32|32|32|32|32|32|32|32|                   key tiles; those that no row of the workgroup sees are skipped
//! ```
//!
//! Canonical order. Of a key tile: q·k over ascending dimensions; the row maximum; p = exp(s - m), 0 for keys the row does not
//! see; l and o scaled by exp(old m - m), then p and p·v added key by key. Splits are joined ascending and pairwise, in the
//! prefill kernel and in the join of decode alike. A tile or split in which a row sees no key leaves its state as it was.

mod choose;
mod twin;

use super::plan::Plan;
use super::{Exchange, Kernel, KvType, Spec, Tape, fold, padded, params_struct};
use crate::limits::SPLIT_TOKENS;
use crate::recording::BufferId;

pub(super) use choose::{candidates, choose_decode, choose_prefill, decode_shapes, prefill_shapes};
pub(super) use choose::{decode_spec, merge_spec, prefill_spec};
pub(super) use twin::{decode_twin, merge_twin, prefill_twin};

/// Score of a key that a row does not see: finite, because WGSL lets compilers assume that there are no infinities.
const MASKED: f32 = -1.0e30;
/// Largest |x| that reaches tanh, which is 1 there; some drivers overflow beyond 44.
const TANH_MAX: f32 = 15.0;
/// Lanes that own rows together.
const CLUSTER_LANES: u32 = 8;
/// Invocations of a workgroup that joins splits; each takes two neighbouring dimensions.
const MERGE_INVOCATIONS: u32 = 64;

/// Constants of an attention variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    /// How the pages store K and V.
    pub kv: KvType,
    /// Head size: a multiple of 8 up to 256.
    pub head_dim: u16,
    /// Rows of a workgroup, a row being (token, query head of the group); a multiple of `lanes / 8`.
    pub rows: u8,
    /// Lanes of a workgroup; a multiple of 8.
    pub lanes: u8,
    /// How lanes share scores.
    pub exchange: Exchange,
    /// Scores have a soft cap. Launches set it from their [`Geometry`].
    pub capped: bool,
    /// K and V are loaded as 64-bit words: half the loads, where a driver makes them one by one.
    pub long: bool,
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

impl Geometry {
    /// Query heads that share a KV head.
    #[must_use]
    pub fn group(&self) -> u32 {
        let (heads, kv_heads) = (self.heads, self.kv_heads);
        assert!(kv_heads > 0 && heads.is_multiple_of(kv_heads), "{heads} query heads over {kv_heads} KV heads");
        heads / kv_heads
    }
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
    /// Partial results `[tile row * heads, splits, head_dim + 2]` f32 (decode only): o, then m and l.
    pub parts: BufferId,
    /// `[rows, padded(heads * head_dim)]` f32.
    pub out: BufferId,
}

params_struct! {
    /// Params of both attention kernels.
    pub(super) struct Params {
        heads: u32,
        kv_heads: u32,
        /// Query heads a KV head.
        group: u32,
        /// Workgroups a tile and KV head, and split.
        chunks: u32,
        /// Pages a slot.
        table_stride: u32,
        first_tile: u32,
        /// Splits a row of `parts`; 1 for prefill.
        splits: u32,
        window: u32,
        /// Floats between rows of `out`.
        out_stride: u32,
        workgroups: u32,
        /// Workgroups along x.
        grid_x: u32,
        scale: f32,
        softcap: f32,
        pad0: u32,
        pad1: u32,
        pad2: u32,
    }
}

params_struct! {
    /// Params of the join.
    pub(super) struct MergeParams {
        heads: u32,
        head_dim: u32,
        first_tile: u32,
        /// Splits a row of `parts`.
        splits: u32,
        window: u32,
        /// Floats between rows of `out`.
        out_stride: u32,
        /// Pairs of dimensions in all tiles and heads.
        pairs: u32,
        /// Workgroups along x.
        grid_x: u32,
    }
}

/// Tokens that one prefill tile may hold for this variant and group of query heads a KV head: the fewest that fill whole
/// workgroups.
#[must_use]
pub fn tile_tokens(shape: Shape, group: u32) -> u32 {
    let rows = u32::from(shape.rows);
    rows / gcd(rows, group)
}

fn gcd(mut a: u32, mut b: u32) -> u32 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Records prefill attention over `tiles` tiles from `first_tile` on; writes `out` whole. No tile holds more than
/// [`tile_tokens`] rows; one of no rows is skipped.
pub fn record_prefill(
    tape: &mut Tape,
    shape: Shape,
    geometry: Geometry,
    buffers: Buffers,
    table_stride: u32,
    first_tile: u32,
    tiles: u32,
) {
    let group = geometry.group();
    let chunks = tile_tokens(shape, group) * group / u32::from(shape.rows);
    let (params, grid) = params(shape, geometry, table_stride, first_tile, (tiles, chunks, 1));
    let Buffers { q, k_pages, v_pages, tables, tiles, out, .. } = buffers;
    let kernel = Kernel::AttnPrefill(Shape { capped: geometry.softcap > 0.0, ..shape });
    tape.dispatch(kernel, &[q, k_pages, v_pages, tables, tiles, out], &params, grid);
}

/// Records decode attention over `tiles` tiles of one row each from `first_tile` on, and the join where there are splits.
/// `splits` is the most splits of 256 positions that any of the rows has; `parts` holds
/// `tiles * heads * splits * (head_dim + 2)` floats.
#[allow(clippy::too_many_arguments, reason = "each is a quantity of its own that the caller has at hand")]
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
    let Geometry { heads, head_dim, window, .. } = geometry;
    let chunks = geometry.group().div_ceil(u32::from(shape.rows));
    let (params, grid) = params(shape, geometry, table_stride, first_tile, (tiles, chunks, splits));
    let kernel = Kernel::AttnDecode(Shape { capped: geometry.softcap > 0.0, ..shape });
    let Buffers { q, k_pages, v_pages, tables, tiles: tile_list, parts, out } = buffers;
    tape.dispatch(kernel, &[q, k_pages, v_pages, tables, tile_list, parts, out], &params, grid);
    if splits == 1 {
        return;
    }

    let pairs = u64::from(tiles) * u64::from(heads * head_dim / 2);
    let grid = fold(pairs.div_ceil(u64::from(MERGE_INVOCATIONS)));
    let merge = MergeParams {
        heads,
        head_dim,
        first_tile,
        splits,
        window,
        out_stride: padded(heads * head_dim),
        pairs: u32::try_from(pairs).expect("the output of a step fits 32 bits"),
        grid_x: grid[0],
    };
    tape.dispatch(Kernel::AttnMerge, &[parts, tile_list, out], &merge, grid);
}

/// Params and grid of (tiles, chunks, splits) workgroups.
fn params(
    shape: Shape,
    geometry: Geometry,
    table_stride: u32,
    first_tile: u32,
    (tiles, chunks, splits): (u32, u32, u32),
) -> (Params, [u32; 3]) {
    let Geometry { heads, kv_heads, head_dim, scale, softcap, window } = geometry;
    assert_eq!(u32::from(shape.head_dim), head_dim, "head size of the variant");
    let workgroups = u64::from(tiles) * u64::from(kv_heads) * u64::from(chunks) * u64::from(splits);
    let grid = fold(workgroups);
    let params = Params {
        heads,
        kv_heads,
        group: geometry.group(),
        chunks,
        table_stride,
        first_tile,
        splits,
        window,
        out_stride: padded(heads * head_dim),
        workgroups: u32::try_from(workgroups).expect("fold bounds it"),
        grid_x: grid[0],
        scale,
        softcap,
        pad0: 0,
        pad1: 0,
        pad2: 0,
    };
    (params, grid)
}

/// First key that a row at `position` sees.
const fn first_seen(position: u32, window: u32) -> u32 {
    if window == 0 { 0 } else { (position + 1).saturating_sub(window) }
}

/// Splits of 256 absolute positions that `positions` positions have: what [`record_decode`] needs for a row at
/// `positions - 1`.
#[must_use]
pub const fn splits(positions: u32) -> u32 {
    positions.div_ceil(SPLIT_TOKENS)
}
