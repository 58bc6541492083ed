//! Residual add and RMS norm, one row a workgroup.

use super::{Spec, Tape};
use crate::recording::BufferId;

/// Arguments of a launch. With `h = x[map[r]] + delta[map[r]]` (`x` alone without `delta`; `map` is the identity when absent):
/// `out[r] = h / sqrt(mean(h²) + eps) * weight`, and, with `delta` and no `map`, `x[r] = h`.
#[derive(Debug, Clone, Copy)]
pub struct Args {
    /// `[rows, stride]` f32; updated in place when there is a `delta` and no `map`.
    pub x: BufferId,
    /// `[rows, stride]` f32.
    pub delta: Option<BufferId>,
    /// `[dim]` f32.
    pub weight: BufferId,
    /// `[row_count]` u32: which rows of `x` (and `delta`) to take.
    pub map: Option<BufferId>,
    /// `[row_count, stride]` f32; a buffer other than `x` and `delta`.
    pub out: BufferId,
    /// Rows of `out`.
    pub row_count: u32,
    /// Elements of a row.
    pub dim: u32,
    /// Floats between rows, of all three.
    pub stride: u32,
    /// Added to the mean square.
    pub eps: f32,
    /// Any small buffer, bound where there is no `delta`.
    pub unused_delta: BufferId,
    /// Another small buffer, bound where there is no `map`.
    pub unused_map: BufferId,
}

/// Records the launch.
pub fn record(tape: &mut Tape, args: &Args) {
    let _ = (tape, args);
    todo!()
}
pub(super) fn spec() -> Spec {
    todo!()
}
pub(super) fn twin(params: &[u8], grid: [u32; 3], mem: &mut [Vec<u32>]) {
    let _ = (params, grid, mem);
    todo!()
}
