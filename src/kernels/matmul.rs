//! Activations times a packed weight matrix, dequantised on the way: GEMV for few rows, GEMM tiles for many.

use super::layout::Packed;
use super::plan::Plan;
use super::{Exchange, Spec, Tape};
use crate::format::block::BlockFormat;
use crate::recording::BufferId;

/// Constants of a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    /// Format of the weights.
    pub format: BlockFormat,
    /// Rows of activations a lane.
    pub rows: u8,
    /// Columns (weight rows) a lane: 4 or 8.
    pub cols: u8,
    /// Lanes side by side over columns.
    pub lanes: u8,
    /// Invocations that share a column, each with its own K slices: 1 or 16.
    pub slices: u8,
    /// Where activations come from.
    pub exchange: Exchange,
}

/// Arguments of a launch: `out[r, out_column + n] = bias[n] + sum_k x[r, k] * w[n, k]`.
#[derive(Debug, Clone, Copy)]
pub struct Args {
    /// The weights.
    pub weights: Packed,
    /// `[rows, x_stride]` f32, zero from `k` to the next multiple of 32.
    pub x: BufferId,
    /// Floats between rows of `x`; a multiple of 32.
    pub x_stride: u32,
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
}

/// Records the launch.
pub fn record(tape: &mut Tape, plan: Plan, args: &Args) {
    let _ = (tape, plan, args);
    todo!()
}
pub(super) fn choose(plan: Plan, format: BlockFormat, rows: u32) -> Shape {
    let _ = (plan, format, rows);
    todo!()
}
pub(super) fn shapes() -> Vec<Shape> {
    todo!()
}
pub(super) fn spec(shape: Shape) -> Spec {
    let _ = shape;
    todo!()
}
pub(super) fn twin(shape: Shape, params: &[u8], grid: [u32; 3], mem: &mut [Vec<u32>]) {
    let _ = (shape, params, grid, mem);
    todo!()
}
