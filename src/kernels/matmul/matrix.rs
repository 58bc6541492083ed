//! Products by cooperative matrices, for prompt tokens on tier matrix: activations and weights rounded to f16, sums in f32.
//!
//! Another family than the rest of `matmul`, with other bits: a row goes through one or the other by its phase, never by the
//! number of rows in a launch. Within the family tile and order of K are always the same, so that a prompt has the same bits
//! however it is cut. naga translates it to SPIR-V and MSL; its HLSL backend has no cooperative matrices, so DX12 never lists the
//! feature. It has not run on a real card yet.

use super::{Args, BINDINGS, BLOCK_WEIGHTS};
use crate::format::block::BlockFormat;
use crate::kernels::choices::Class;
use crate::kernels::kv_page::F16_MAX;
use crate::kernels::layout::{self, TwinPlanes};
use crate::kernels::plan::{MatrixSizes, Plan};
use crate::kernels::{Kernel, Spec, Tape, Tier, floats, floats_mut, gate_act, params_struct};
use crate::recording::BufferId;

/// Constants of a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    /// Format of the weights.
    pub format: BlockFormat,
    /// M, N and K of a cooperative matrix: 8 or 16.
    pub size: u8,
    /// The columns are gates, then as many ups, and the output is [`Args::gate`] of one times the other.
    pub gated: bool,
}

/// Rows of activations a workgroup.
pub const TILE_ROWS: u32 = 32;
/// Rows of the weights a workgroup.
const TILE_COLUMNS: u32 = 64;
/// Strips of columns, each one subgroup's.
const SLOTS: u32 = 4;
/// A lane for each column, which dequantises, and as many that bring activations.
const LANES: u32 = 2 * TILE_COLUMNS;
/// Halves between rows of a staged block: whole 16 bytes, as loads of matrices ask for, and no power of two.
const STRIDE: u32 = BLOCK_WEIGHTS + 8;
/// What the two staged blocks and the sums take.
const WORKGROUP_BYTES: u32 = (TILE_ROWS + TILE_COLUMNS) * STRIDE * 2 + TILE_ROWS * TILE_COLUMNS * 4;

const _: () = assert!(WORKGROUP_BYTES <= crate::limits::BASE_WORKGROUP_BYTES);
const _: () = assert!(STRIDE.is_multiple_of(8));
const _: () =
    assert!(TILE_COLUMNS / SLOTS == 16 && TILE_ROWS.is_multiple_of(16), "strips are whole matrices of 16 and of 8");

params_struct! {
    /// As in `shaders/matmul_matrix.wgsl`.
    struct Params {
        rows: u32,
        columns: u32,
        blocks: u32,
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
        /// Of `x` and `out`.
        first_row: u32,
        pad0: u32,
        pad1: u32,
    }
}

/// Records the product of rows `first_row .. first_row + args.rows` of `x` into the same rows of `out`. `args.norm` and
/// `args.packed` are absent: activations come normed, and as floats.
pub fn record(tape: &mut Tape, plan: Plan, args: &Args, first_row: u32) {
    record_shape(tape, choose(plan, args.weights.format, args.gate.is_some()), args, first_row);
}

/// Records the launch with a given variant, for tests and trials.
pub fn record_shape(tape: &mut Tape, shape: Shape, args: &Args, first_row: u32) {
    let weights = args.weights;
    if args.rows == 0 || weights.rows == 0 {
        return;
    }
    assert_eq!(shape.format, weights.format, "variant for another format");
    assert_eq!(shape.gated, args.gate.is_some(), "variant for another output");
    assert!(args.norm.is_none() && args.packed.is_none(), "activations are plain floats");
    assert!(!(args.add && shape.gated), "a gate and a sum");
    assert!(args.x_stride.is_multiple_of(BLOCK_WEIGHTS), "x_stride {} is not whole blocks", args.x_stride);
    assert!(args.x_stride >= weights.k, "x_stride {} below k {}", args.x_stride, weights.k);
    assert!(!shape.gated || weights.rows.is_multiple_of(2), "{} rows are not gates and ups", weights.rows);
    let columns = if shape.gated { weights.rows / 2 } else { weights.rows };
    assert!(args.out_column + columns <= args.out_stride, "columns past the output's stride");
    let row_tiles = args.rows.div_ceil(TILE_ROWS);
    let tiles = u64::from(row_tiles) * u64::from(columns.div_ceil(own_columns(shape.gated)));
    let grid = crate::kernels::fold(tiles);
    let params = Params {
        rows: args.rows,
        columns,
        blocks: weights.k.div_ceil(BLOCK_WEIGHTS),
        x_stride_vectors: args.x_stride / 4,
        out_stride: args.out_stride,
        out_column: args.out_column,
        has_bias: u32::from(args.bias.is_some()),
        bias_start: args.bias_start,
        row_tiles,
        tiles: u32::try_from(tiles).expect("folded"),
        grid_x: grid[0],
        gelu: u32::from(args.gate == Some(gate_act::Activation::GeluTanh)),
        add: u32::from(args.add),
        first_row,
        pad0: 0,
        pad1: 0,
    };
    let bias: BufferId = args.bias.unwrap_or(weights.scales);
    let bindings = [weights.codes, weights.scales, weights.high, args.x, bias, args.out];
    tape.dispatch(Kernel::MatmulMatrix(shape), &bindings, &params, grid);
}

/// Columns of the output a workgroup.
const fn own_columns(gated: bool) -> u32 {
    if gated { TILE_COLUMNS / 2 } else { TILE_COLUMNS }
}

/// The variant that a plan of tier matrix takes.
fn choose(plan: Plan, format: BlockFormat, gated: bool) -> Shape {
    let place = plan.choices.get(Class::Matrix { format, gated });
    let size = plan.matrix.all().nth(place.into());
    Shape { format, size: size.expect("a plan of tier matrix has a size for each candidate"), gated }
}

/// Candidates of a class: one a size.
pub(in crate::kernels) fn candidates(plan: Plan) -> u8 {
    u8::try_from(plan.matrix.all().count()).expect("two at most")
}

/// All variants.
pub(in crate::kernels) fn shapes() -> Vec<Shape> {
    let of = |format| {
        let sizes = MatrixSizes::ALL.all();
        sizes.flat_map(move |size| [false, true].map(|gated| Shape { format, size, gated }))
    };
    BlockFormat::ALL.into_iter().flat_map(of).collect()
}

pub(in crate::kernels) fn spec(shape: Shape) -> Spec {
    let Shape { format, size, gated } = shape;
    Spec {
        label: format!("matmul_matrix{}_{}_m{size}", if gated { "_gated" } else { "" }, format.name()),
        shader: "matmul_matrix",
        constants: minijinja::context! {
            size, gated,
            rows => TILE_ROWS,
            columns => TILE_COLUMNS,
            own => own_columns(gated),
            slots => SLOTS,
            strip => TILE_COLUMNS / SLOTS,
            lanes => LANES,
            x_lanes => LANES - TILE_COLUMNS,
            stride => STRIDE,
            bytes => WORKGROUP_BYTES,
            f16_max => format!("{F16_MAX:?}"),
            ..layout::constants(format)
        },
        bindings: &BINDINGS[..6],
        params_bytes: Params::BYTES,
        params_fields: Params::FIELDS,
        invocations: LANES,
        tier: Tier::Matrix,
        int64: false,
    }
}

/// Multiplications and additions of a launch.
pub(in crate::kernels) fn flops(shape: Shape, params: &[u8]) -> u64 {
    let p = Params::read(params);
    let columns = u64::from(p.columns) * if shape.gated { 2 } else { 1 };
    2 * u64::from(p.rows) * columns * u64::from(p.blocks * BLOCK_WEIGHTS)
}

/// To the nearest half and back; saturates.
fn half(value: f32) -> f32 {
    half::f16::from_f32(value.clamp(-F16_MAX, F16_MAX)).to_f32()
}

/// The twin: products of halves, exact in f32, summed ascending within a matrix, matrices ascending into the sum. What a driver
/// does within a matrix is its own, so it is compared by a bound.
pub(in crate::kernels) fn twin(shape: Shape, params: &[u8], grid: [u32; 3], mem: &mut [Vec<u32>]) {
    let p = Params::read(params);
    assert!(grid[0] * grid[1] >= p.tiles && p.grid_x == grid[0], "grid {grid:?} for {} tiles", p.tiles);
    assert!(p.row_tiles * TILE_ROWS >= p.rows, "rows not covered");
    assert!(p.tiles / p.row_tiles * own_columns(shape.gated) >= p.columns, "columns not covered");
    let (inputs, outputs) = mem.split_at_mut(5);
    let planes = TwinPlanes {
        format: shape.format,
        blocks: p.blocks as usize,
        codes: &inputs[0],
        scales: &inputs[1],
        high: &inputs[2],
    };
    let bias = if p.has_bias == 0 { &[] } else { &floats(&inputs[4])[p.bias_start as usize..] };
    let (columns, rows) = (p.columns as usize, p.rows as usize);
    let width = if shape.gated { 2 * columns } else { columns };
    let k = planes.blocks * BLOCK_WEIGHTS as usize;
    let stride = p.x_stride_vectors as usize * 4;
    let taken = floats(&inputs[3])[p.first_row as usize * stride..].chunks_exact(stride).take(rows);
    let x: Vec<f32> = taken.flat_map(|row| &row[..k]).map(|value| half(*value)).collect();
    assert_eq!(x.len(), rows * k, "rows of x");
    let y = super::twin::shared_columns(rows, width, &|range| twin_columns(&planes, shape, &x, bias, range));
    let out = floats_mut(&mut outputs[0]);
    for (row, y) in y.chunks_exact(width).enumerate() {
        let to = (p.first_row as usize + row) * p.out_stride as usize + p.out_column as usize;
        super::twin::finish_row(y, &mut out[to..to + columns], shape.gated, p.gelu != 0, p.add != 0);
    }
}

/// Results of a range of columns, `[rows, range]`.
fn twin_columns(
    planes: &TwinPlanes<'_>,
    shape: Shape,
    x: &[f32],
    bias: &[f32],
    range: std::ops::Range<usize>,
) -> Vec<f32> {
    let k = planes.blocks * BLOCK_WEIGHTS as usize;
    let (rows, width) = (x.len() / k, range.len());
    let mut out = vec![0.0; rows * width];
    let mut weights = Vec::with_capacity(k);
    for column in range.clone() {
        weights.clear();
        for block in 0..planes.blocks {
            let block = planes.block(column, block);
            weights
                .extend(block.codes.iter().enumerate().map(|(k, code)| half(code * block.d[k / 16] + block.m[k / 16])));
        }
        let add = bias.get(column).copied().unwrap_or(0.0);
        for (row, x) in x.chunks_exact(k).enumerate() {
            let steps = x.chunks_exact(shape.size.into()).zip(weights.chunks_exact(shape.size.into()));
            let step = |(x, w): (&[f32], &[f32])| x.iter().zip(w).fold(0.0_f32, |sum, (x, w)| sum + x * w);
            out[row * width + column - range.start] = steps.map(step).fold(0.0, |sum, step| sum + step) + add;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::half;

    #[test]
    fn halves_round_to_even_and_saturate() {
        assert_eq!(half(1.0 + 1.0 / 2048.0), 1.0);
        assert_eq!(half(1.0 + 3.0 / 2048.0), 1.0 + 1.0 / 512.0);
        assert_eq!((half(1e9), half(-1e9)), (65_504.0, -65_504.0));
        assert!(half(f32::NAN).is_nan());
    }
}
