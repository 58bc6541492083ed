//! Largest logit of each row; ties go to the lowest id, NaN is reported.

use super::{Access, Kernel, Spec, Tape, Tier, floats, params_struct};
use crate::recording::BufferId;

/// Invocations of the workgroup that takes one row.
pub const INVOCATIONS: u32 = 256;

/// Id reported for a row that holds NaN or infinity anywhere.
pub const NOT_FINITE: u32 = u32::MAX;

params_struct! {
    /// As in `shaders/argmax.wgsl`.
    pub(super) struct Params {
        row_count: u32,
        dim: u32,
        stride: u32,
        grid_x: u32,
    }
}

/// Records the launch: `out[r]` u32 is the index of the largest of `logits[r, ..dim]`, or [`NOT_FINITE`].
pub fn record(tape: &mut Tape, logits: BufferId, stride: u32, dim: u32, row_count: u32, out: BufferId) {
    assert!(stride >= dim && dim > 0, "rows of {dim} logits, stride {stride}");
    let grid = super::fold(u64::from(row_count));
    tape.dispatch(Kernel::Argmax, &[logits, out], &Params { row_count, dim, stride, grid_x: grid[0] }, grid);
}

pub(super) fn spec() -> Spec {
    Spec {
        label: "argmax".into(),
        shader: "argmax",
        constants: minijinja::context! {},
        bindings: &[Access::Read, Access::Write],
        params_bytes: Params::BYTES,
        params_fields: Params::FIELDS,
        invocations: INVOCATIONS,
        tier: Tier::Base,
        int64: false,
    }
}

pub(super) fn twin(params: &[u8], grid: [u32; 3], mem: &mut [Vec<u32>]) {
    let p = Params::read(params);
    assert!(grid[0] * grid[1] >= p.row_count && p.grid_x == grid[0], "grid {grid:?} for {} rows", p.row_count);
    let (logits, out) = mem.split_at_mut(1);
    let logits = floats(&logits[0]);
    for row in 0..p.row_count as usize {
        let row_logits = &logits[row * p.stride as usize..][..p.dim as usize];
        out[0][row] = argmax(row_logits);
    }
}

/// Index of the largest logit, the lowest one on ties, or [`NOT_FINITE`].
#[must_use]
pub fn argmax(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (i, logit) in logits.iter().enumerate() {
        if !logit.is_finite() {
            return NOT_FINITE;
        }
        if *logit > logits[best] {
            best = i;
        }
    }
    u32::try_from(best).expect("a vocabulary fits u32")
}
