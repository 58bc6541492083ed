//! Rows of the embedding matrix, dequantised: the first op of a step.

use super::layout::Packed;
use super::{Spec, Tape};
use crate::format::block::BlockFormat;
use crate::recording::BufferId;

/// Arguments of a launch: `out[r, k] = scale * w[token[r] - first_token, k]` for the tokens that this part holds.
#[derive(Debug, Clone, Copy)]
pub struct Args {
    /// Embedding rows `first_token ..`, in matmul layout.
    pub weights: Packed,
    /// Token of the first row of `weights`; rows with tokens outside are left to another part.
    pub first_token: u32,
    /// [`super::Row`]s.
    pub rows: BufferId,
    /// How many.
    pub row_count: u32,
    /// `[rows, out_stride]` f32.
    pub out: BufferId,
    /// Floats between rows of `out`.
    pub out_stride: u32,
    /// Multiplies every weight.
    pub scale: f32,
}

/// Records the launch.
pub fn record(tape: &mut Tape, args: &Args) {
    let _ = (tape, args);
    todo!()
}
pub(super) fn spec(format: BlockFormat) -> Spec {
    let _ = format;
    todo!()
}
pub(super) fn twin(format: BlockFormat, params: &[u8], grid: [u32; 3], mem: &mut [Vec<u32>]) {
    let _ = (format, params, grid, mem);
    todo!()
}
