//! Activations times a packed weight matrix, dequantised on the way: GEMV for few rows, GEMM tiles for many.

pub mod matrix;
mod twin;

use super::choices::Class;
use super::gate_act::Activation;
use super::layout::{self, Packed, Scales};
use super::plan::{Activations, Plan};
use super::{Access, Exchange, Kernel, Spec, Tape, Tier, params_struct, quant_act};
use crate::format::block::BlockFormat;
use crate::limits::{BLOCK_WEIGHTS, SLICE_BLOCKS_MIN, SLICES_MAX};
use crate::recording::BufferId;

pub(super) use twin::twin;

/// Constants of a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    /// Format of the weights.
    pub format: BlockFormat,
    /// Rows of activations a lane.
    pub rows: u8,
    /// Columns (weight rows) a lane: 1, 2, 4 or 8.
    pub cols: u8,
    /// Lanes side by side over columns.
    pub lanes: u8,
    /// Invocations that share a column, each with its own K slices: 1 or 16.
    pub slices: u8,
    /// Where activations come from.
    pub exchange: Exchange,
    /// Activations are bytes, and sums within a block integers; `None` for floats.
    pub int8: Option<Int8>,
    /// Bytes times codes of 4 bits, two columns in one integer product: half the work, where a driver multiplies bytes one by one.
    pub pairs: bool,
    /// Codes and scales are loaded as 64-bit words, scales of two columns in one: half the loads, where a driver makes them one
    /// by one.
    pub long: bool,
    /// The columns are gates, then as many ups, and the output is [`Args::gate`] of one times the other.
    pub gated: bool,
    /// [`Args::norm`] is applied on the way.
    pub normed: bool,
}

/// Where activations become bytes. Both give the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Int8 {
    /// By [`super::quant_act`] before.
    Packed,
    /// On the way, in each workgroup.
    Inline,
}

/// RMS norm of the activations, with the bits of [`super::rms_norm`].
#[derive(Debug, Clone, Copy)]
pub struct Norm {
    /// `[x_stride]` f32, zero from `k` on.
    pub weight: BufferId,
    /// Added to the mean square.
    pub eps: f32,
}

/// Arguments of a launch: `y[r, n] = bias[bias_start + n] + sum_k x[r, k] * w[n, k]`, and `out[r, out_column + n]` is `y[r, n]`,
/// or with a gate `act(y[r, n]) * y[r, weights.rows / 2 + n]`, or with `add` what it was plus `y[r, n]`.
#[derive(Debug, Clone, Copy)]
pub struct Args {
    /// The weights.
    pub weights: Packed,
    /// `[rows, x_stride]` f32, zero from `k` to the next multiple of 32.
    pub x: BufferId,
    /// Floats between rows of `x`; a multiple of 32.
    pub x_stride: u32,
    /// `x` after [`super::quant_act`]; where [`packs`] says so.
    pub packed: Option<BufferId>,
    /// Added to each row, `[weights.rows]` f32 from `bias_start` on.
    pub bias: Option<BufferId>,
    /// First element of `bias` that belongs to these weights.
    pub bias_start: u32,
    /// `[rows, out_stride]` f32.
    pub out: BufferId,
    /// Floats between rows of `out`.
    pub out_stride: u32,
    /// First column that these weights write.
    pub out_column: u32,
    /// Rows of activations.
    pub rows: u32,
    /// The weights are gates, then as many ups; halves the columns of the output.
    pub gate: Option<Activation>,
    /// Add to `out` instead of replacing it; not with a gate.
    pub add: bool,
    /// Norm `x` first. Only where [`norms`] says so.
    pub norm: Option<Norm>,
}

params_struct! {
    /// As in `shaders/matmul.wgsl`.
    pub(super) struct Params {
        rows: u32,
        columns: u32,
        blocks: u32,
        slice_blocks: u32,
        x_stride_vectors: u32,
        out_stride: u32,
        out_column: u32,
        has_bias: u32,
        bias_start: u32,
        row_tiles: u32,
        tiles: u32,
        grid_x: u32,
        gelu: u32,
        add: u32,
        /// Elements of a row that is normed.
        dim: u32,
        eps: f32,
    }
}

/// Blocks in one K slice of the canonical order: a constant of K and the format. Super-blocks are never cut.
#[must_use]
pub const fn slice_blocks(format: BlockFormat, blocks: u32) -> u32 {
    let even = blocks.div_ceil(SLICES_MAX);
    let least = if even > SLICE_BLOCKS_MIN { even } else { SLICE_BLOCKS_MIN };
    let whole = match layout::layout(format).scales {
        Scales::Super => layout::SUPER_BLOCKS,
        Scales::Block | Scales::None => 1,
    };
    least.next_multiple_of(whole)
}

/// Multiplications and additions of a launch.
pub(super) fn flops(shape: Shape, params: &[u8]) -> u64 {
    let p = Params::read(params);
    let columns = u64::from(p.columns) * if shape.gated { 2 } else { 1 };
    2 * u64::from(p.rows) * columns * u64::from(p.blocks * BLOCK_WEIGHTS)
}

/// Records the launch.
pub fn record(tape: &mut Tape, plan: Plan, args: &Args) {
    let shape = plan.matmul(args.weights.format, args.rows, args.gate.is_some());
    record_shape(tape, Shape { normed: args.norm.is_some(), ..shape }, args);
}

/// Whether a product of `rows` rows reads what [`super::quant_act`] made of its activations.
#[must_use]
pub fn packs(plan: Plan, format: BlockFormat, gated: bool, rows: u32) -> bool {
    choose(plan, format, rows, gated).int8 == Some(Int8::Packed)
}

/// A few rows become bytes on the way, where that costs less than a launch and a subgroup shares the work.
fn is_inline(plan: Plan, rows: u32) -> bool {
    plan.software && plan.exchange() == Exchange::Subgroup && rows <= INLINE_ROWS
}

/// Most rows that each workgroup makes bytes of by itself.
const INLINE_ROWS: u32 = 4;

/// Whether a product of `rows` rows of `k` elements with these weights may norm them on the way: where a launch costs more than to
/// sum a row's squares in each workgroup.
#[must_use]
pub fn norms(plan: Plan, format: BlockFormat, gated: bool, rows: u32, k: u32) -> bool {
    let by_subgroup = || choose(plan, format, 1, gated).exchange == Exchange::Subgroup;
    plan.software && rows == 1 && k <= NORMED_MAX && by_subgroup()
}

/// Longest row that is normed on the way: a workgroup then needs some 2 us to sum its squares, and a launch 30 (lavapipe, two cores).
const NORMED_MAX: u32 = 2048;
/// Workgroups of a launch that norms: a few a core, each with several tiles behind one sum.
const NORMED_WORKGROUPS: u32 = 16;

/// Records the launch with a given variant, for tests and experiments.
pub fn record_shape(tape: &mut Tape, shape: Shape, args: &Args) {
    let weights = args.weights;
    if args.rows == 0 || weights.rows == 0 {
        return;
    }
    assert_eq!(shape.format, weights.format, "variant for another format");
    assert!(args.x_stride.is_multiple_of(BLOCK_WEIGHTS), "x_stride {} is not whole blocks", args.x_stride);
    assert!(args.x_stride >= weights.k, "x_stride {} below k {}", args.x_stride, weights.k);
    assert_eq!(shape.gated, args.gate.is_some(), "variant for another output");
    assert!(!(args.add && shape.gated), "a gate and a sum");
    assert_eq!(shape.normed, args.norm.is_some(), "variant for other activations");
    assert!(!shape.normed || (args.rows == 1 && shape.rows == 1 && shape.lanes == 8), "a norm of one row by 8 lanes");
    assert!(!shape.normed || args.x_stride <= NORMED_MAX, "a norm of {} elements", args.x_stride);
    assert!(args.gate.is_none() || weights.rows.is_multiple_of(2), "{} rows are not gates and ups", weights.rows);
    // Scales of neighbouring columns come as one word: gates and ups both begin with an even one.
    let long = shape.long && (!shape.gated || (weights.rows / 2).is_multiple_of(2));
    let shape = Shape { long, ..shape };
    let (columns, lane_columns) =
        if shape.gated { (weights.rows / 2, shape.cols / 2) } else { (weights.rows, shape.cols) };
    assert!(args.out_column + columns <= args.out_stride, "columns past the output's stride");
    let blocks = weights.k.div_ceil(BLOCK_WEIGHTS);
    let row_tiles = args.rows.div_ceil(u32::from(shape.rows));
    let column_tiles = columns.div_ceil(u32::from(lane_columns) * u32::from(shape.lanes));
    let tiles = u64::from(row_tiles) * u64::from(column_tiles);
    let grid = super::fold(if shape.normed { tiles.min(NORMED_WORKGROUPS.into()) } else { tiles });
    let params = Params {
        rows: args.rows,
        columns,
        blocks,
        slice_blocks: slice_blocks(weights.format, blocks),
        x_stride_vectors: match shape.int8 {
            Some(Int8::Packed) => args.x_stride / BLOCK_WEIGHTS * quant_act::BLOCK_WORDS / 4,
            _ => args.x_stride / 4,
        },
        out_stride: args.out_stride,
        out_column: args.out_column,
        has_bias: u32::from(args.bias.is_some()),
        bias_start: args.bias_start,
        row_tiles,
        tiles: u32::try_from(tiles).expect("folded"),
        grid_x: grid[0],
        gelu: u32::from(args.gate == Some(Activation::GeluTanh)),
        add: u32::from(args.add),
        dim: weights.k,
        eps: args.norm.map_or(0.0, |norm| norm.eps),
    };
    let bias = args.bias.unwrap_or(weights.scales);
    let x = match shape.int8 {
        Some(Int8::Packed) => args.packed.expect("activations were packed before"),
        _ => args.x,
    };
    let mut bindings = vec![weights.codes, weights.scales, weights.high, x, bias, args.out];
    bindings.extend(args.norm.map(|norm| norm.weight));
    tape.dispatch(Kernel::Matmul(shape), &bindings, &params, grid);
}

/// The variant for `rows` rows of activations.
pub(super) fn choose(plan: Plan, format: BlockFormat, rows: u32, gated: bool) -> Shape {
    let few = match rows {
        0 | 1 => 1,
        2 => 2,
        3 | 4 => 4,
        _ => 8,
    };
    let int8 = (plan.activations == Activations::Int8 && format.has_scales()).then_some(if is_inline(plan, rows) {
        Int8::Inline
    } else {
        Int8::Packed
    });
    let place = plan.choices.get(Class::Matmul { format, rows: few, gated });
    let shape = shape(plan, format, few, gated, place);
    // Only a subgroup shares the work of making bytes.
    let int8 = match (int8, shape.exchange) {
        (Some(Int8::Inline), Exchange::Storage | Exchange::Workgroup) => Some(Int8::Packed),
        _ => int8,
    };
    let small = matches!(format, BlockFormat::Q4_0 | BlockFormat::Q4_1 | BlockFormat::Q4K);
    Shape { int8, pairs: int8.is_some() && small && plan.software, ..shape }
}

/// Tiles of a class: (columns a lane, lanes, K slices side by side, source of activations), the best known first. A change of tile
/// never changes a bit; the last resort takes activations another way than the others.
fn tiles(plan: Plan, rows: u8, gated: bool) -> [(u8, u8, u8, Exchange); 2] {
    match (plan.software, plan.exchange(), rows) {
        // A software driver has a few wide cores: fat lanes. In a subgroup x is loaded once and broadcast; without one
        // every lane reads it, which beats workgroup memory twice on lavapipe and by a third on SwiftShader.
        (true, Exchange::Subgroup, _) => [(8, 8, 1, Exchange::Subgroup), (8, 8, 1, Exchange::Storage)],
        (true, _, _) => [(8, 8, 1, Exchange::Storage), (8, 8, 1, Exchange::Workgroup)],
        // A real GPU needs thousands of lanes: K slices side by side where there is one row.
        (false, _, 1..=4) => {
            let cols = if gated { 2 } else { 1 };
            [(cols, 16, 16, Exchange::Storage), (cols, 32, 8, Exchange::Storage)]
        }
        (false, Exchange::Subgroup, _) => [(4, 64, 1, Exchange::Subgroup), (4, 64, 1, Exchange::Workgroup)],
        (false, _, _) => [(4, 64, 1, Exchange::Workgroup), (8, 32, 1, Exchange::Storage)],
    }
}

/// Candidates of a class.
pub(super) fn candidates(plan: Plan, rows: u8, gated: bool) -> u8 {
    u8::try_from(tiles(plan, rows, gated).len()).expect("a few")
}

fn shape(plan: Plan, format: BlockFormat, rows: u8, gated: bool, place: u8) -> Shape {
    let tiles = tiles(plan, rows, gated);
    let (cols, lanes, slices, exchange) = tiles[usize::from(place).min(tiles.len() - 1)];
    // lavapipe loads lane by lane, whatever the width: 64-bit words make a GEMV a tenth faster, and tiles by a twentieth.
    let long = plan.software && plan.int64 && exchange == Exchange::Subgroup;
    Shape { format, rows, cols, lanes, slices, exchange, int8: None, pairs: false, long, gated, normed: false }
}

/// All variants that [`choose`] can return, and those that norm.
pub(super) fn shapes() -> Vec<Shape> {
    let mut shapes = Vec::new();
    for (tier, int64) in [(Tier::Base, false), (Tier::Subgroup, false), (Tier::Subgroup, true)] {
        for plan in [false, true].map(|software| Plan::new(tier, software, int64)) {
            let classes = BlockFormat::ALL.into_iter().flat_map(|f| [false, true].map(|gated| (f, gated)));
            for ((format, gated), activations) in
                classes.flat_map(|c| Activations::ALL.map(|activations| (c, activations)))
            {
                for rows in [1, 2, 4, 8] {
                    for place in 0..candidates(plan, rows, gated) {
                        let mut plan = Plan { activations, ..plan };
                        plan.choices.set(Class::Matmul { format, rows, gated }, place);
                        let shape = choose(plan, format, rows.into(), gated);
                        shapes.push(shape);
                        if rows == 1 && norms(plan, format, gated, 1, 1) {
                            shapes.push(Shape { normed: true, ..shape });
                        }
                    }
                }
            }
        }
    }
    shapes
}

pub(super) fn spec(shape: Shape) -> Spec {
    let Shape { format, rows, cols, lanes, slices, exchange, int8, pairs, long, gated, normed } = shape;
    let exchange_name = match exchange {
        Exchange::Subgroup => "subgroup",
        Exchange::Workgroup => "workgroup",
        Exchange::Storage => "storage",
    };
    let int8_name = int8.map(|int8| match int8 {
        Int8::Packed => "packed",
        Int8::Inline => "inline",
    });
    Spec {
        label: format!(
            "matmul{}{}_{}{}_r{rows}c{cols}_l{lanes}s{slices}_{exchange_name}{}",
            if gated { "_gated" } else { "" },
            if normed { "_normed" } else { "" },
            format.name(),
            int8_name.map_or_else(String::new, |name| format!("_int8_{name}{}", if pairs { "_pairs" } else { "" })),
            if long { "_long" } else { "" },
        ),
        shader: "matmul",
        constants: minijinja::context! {
            rows, cols, lanes, slices, slices_max => SLICES_MAX, exchange => exchange_name, int8 => int8_name, pairs, long, gated, normed, ..layout::constants(format)
        },
        bindings: if normed { &BINDINGS } else { &BINDINGS[..6] },
        params_bytes: Params::BYTES,
        params_fields: Params::FIELDS,
        invocations: u32::from(lanes) * u32::from(slices),
        tier: if exchange == Exchange::Subgroup { Tier::Subgroup } else { Tier::Base },
        int64: long,
    }
}

/// Codes, scales, high bits, x, bias, out, and the norm's weight where there is one.
const BINDINGS: [Access; 7] = {
    use Access::{Read, Write};
    [Read, Read, Read, Read, Read, Write, Read]
};
