//! Gated activation of the MLP: `out = act(gate) * up`.

use super::{Access, Kernel, Spec, Tape, Tier, floats, floats_mut, params_struct};
use crate::recording::BufferId;

/// The activation of the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// x / (1 + e^-x)
    Silu,
    /// 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))), computed as x / (1 + e^(-2 √(2/π) …)): the same, without cancellation.
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

params_struct! {
    /// As in `shaders/gate_act.wgsl`.
    pub(super) struct Params {
        row_count: u32,
        dim: u32,
        gate_up_stride: u32,
        out_stride: u32,
        row_groups: u32,
        grid_x: u32,
        gelu: u32,
        pad0: u32,
    }
}

/// Records the launch.
pub fn record(tape: &mut Tape, args: &Args) {
    assert!(args.gate_up_stride >= 2 * args.dim && args.out_stride >= args.dim, "strides below {}", args.dim);
    let row_groups = args.dim.div_ceil(64);
    let grid = super::fold(u64::from(args.row_count) * u64::from(row_groups));
    let params = Params {
        row_count: args.row_count,
        dim: args.dim,
        gate_up_stride: args.gate_up_stride,
        out_stride: args.out_stride,
        row_groups,
        grid_x: grid[0],
        gelu: u32::from(args.activation == Activation::GeluTanh),
        pad0: 0,
    };
    tape.dispatch(Kernel::GateAct, &[args.gate_up, args.out], &params, grid);
}

pub(super) fn spec() -> Spec {
    Spec {
        label: "gate_act".into(),
        shader: "gate_act",
        constants: minijinja::context! {},
        bindings: &[Access::Read, Access::Write],
        params_bytes: Params::BYTES,
        params_fields: Params::FIELDS,
        invocations: 64,
        tier: Tier::Base,
        int64: false,
    }
}

pub(super) fn twin(params: &[u8], grid: [u32; 3], mem: &mut [Vec<u32>]) {
    let p = Params::read(params);
    assert!(
        u64::from(grid[0]) * u64::from(grid[1]) >= u64::from(p.row_count) * u64::from(p.row_groups),
        "grid {grid:?}"
    );
    assert!(p.row_groups * 64 >= p.dim && p.grid_x == grid[0], "grid {grid:?} for rows of {}", p.dim);
    let [gate_up, out] = mem else { panic!("gate_act binds two buffers, not {}", mem.len()) };
    let (gate_up, out, dim) = (floats(gate_up), floats_mut(out), p.dim as usize);
    for row in 0..p.row_count as usize {
        let from = row * p.gate_up_stride as usize;
        for i in 0..dim {
            out[row * p.out_stride as usize + i] = twin_act(gate_up[from + i], p.gelu != 0) * gate_up[from + dim + i];
        }
    }
}

/// The activation as the shaders compute it.
pub(super) fn twin_act(gate: f32, gelu: bool) -> f32 {
    let inner = if gelu { 2.0 * (0.797_884_6_f32 * (gate + 0.044_715 * gate * gate * gate)) } else { gate };
    gate / (1.0 + (-inner.max(-88.0)).exp())
}
