//! Gated activation of the MLP: `out = act(gate) * up`.

use super::{Spec, Tape};
use crate::recording::BufferId;

/// The activation of the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// x / (1 + e^-x)
    Silu,
    /// 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³)))
    GeluTanh,
}

/// Arguments of a launch: `out[r, i] = act(gate_up[r, i]) * gate_up[r, dim + i]`.
#[derive(Debug, Clone, Copy)]
pub struct Args {
    /// `[rows, gate_up_stride]` f32: all gates, then all ups.
    pub gate_up: BufferId,
    /// Floats between rows of `gate_up`.
    pub gate_up_stride: u32,
    /// `[rows, out_stride]` f32.
    pub out: BufferId,
    /// Floats between rows of `out`.
    pub out_stride: u32,
    /// Gates of a row.
    pub dim: u32,
    /// Rows.
    pub row_count: u32,
    /// The activation.
    pub activation: Activation,
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
