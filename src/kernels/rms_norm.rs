//! Residual add and RMS norm, one row a workgroup.

use super::plan::Plan;
use super::{Access, Kernel, Spec, Tape, Tier, floats, floats_mut, params_struct};
use crate::limits::BLOCK_WEIGHTS;
use crate::recording::BufferId;

/// Arguments of a launch. With `h = x[map[r]] + delta[map[r]]` (`x` alone without `delta`; `map` is the identity when absent):
/// `out[r] = h / sqrt(mean(h²) + eps) * weight`, and, with `delta` and no `map`, `x[r] = h`.
#[derive(Debug, Clone, Copy)]
pub struct Args {
    /// `[rows, stride]` f32; updated in place when there is a `delta` and no `map`.
    pub x: BufferId,
    /// `[rows, stride]` f32.
    pub delta: Option<BufferId>,
    /// `[stride]` f32, zero from `dim` on.
    pub weight: BufferId,
    /// `[row_count]` u32: which rows of `x` (and `delta`) to take.
    pub map: Option<BufferId>,
    /// `[row_count, stride]` f32; a buffer other than `x` and `delta`.
    pub out: BufferId,
    /// Rows of `out`.
    pub row_count: u32,
    /// Elements of a row.
    pub dim: u32,
    /// Floats between rows, of all three; whole blocks, zero from `dim` on.
    pub stride: u32,
    /// Added to the mean square.
    pub eps: f32,
    /// Any small buffer, bound where there is no `delta`.
    pub unused_delta: BufferId,
    /// Another small buffer, bound where there is no `map`.
    pub unused_map: BufferId,
    /// Lanes of a row's workgroup: [`choose`]'s.
    pub lanes: u8,
}

params_struct! {
    /// As in `shaders/rms_norm.wgsl`.
    pub(super) struct Params {
        row_count: u32,
        dim: u32,
        stride_vectors: u32,
        has_delta: u32,
        has_map: u32,
        grid_x: u32,
        eps: f32,
        pad0: u32,
    }
}

/// Sums of squares that a row is cut into: the canonical order.
const SUMS: u8 = 64;
/// Lanes of the workgroup that takes a row where lanes are wide and barriers dear.
const FEW_LANES: u8 = 8;

/// The lane counts of the variants.
pub const LANES: [u8; 2] = [FEW_LANES, SUMS];

/// Lanes of a row's workgroup. lavapipe switches between groups of 8 at each barrier.
#[must_use]
pub const fn choose(plan: Plan) -> u8 {
    if plan.software { FEW_LANES } else { SUMS }
}

/// Records the launch.
pub fn record(tape: &mut Tape, args: &Args) {
    assert!(args.stride.is_multiple_of(BLOCK_WEIGHTS) && args.stride >= args.dim, "stride {}", args.stride);
    assert!(args.dim > 0, "an empty row has no mean");
    let grid = super::fold(u64::from(args.row_count));
    let params = Params {
        row_count: args.row_count,
        dim: args.dim,
        stride_vectors: args.stride / 4,
        has_delta: u32::from(args.delta.is_some()),
        has_map: u32::from(args.map.is_some()),
        grid_x: grid[0],
        eps: args.eps,
        pad0: 0,
    };
    let (delta, map) = (args.delta.unwrap_or(args.unused_delta), args.map.unwrap_or(args.unused_map));
    tape.dispatch(Kernel::RmsNorm { lanes: args.lanes }, &[args.x, delta, args.weight, map, args.out], &params, grid);
}

pub(super) fn spec(lanes: u8) -> Spec {
    assert!(LANES.contains(&lanes), "{lanes} lanes");
    Spec {
        label: format!("rms_norm_l{lanes}"),
        shader: "rms_norm",
        constants: minijinja::context! { lanes, own => SUMS / lanes },
        bindings: &[Access::Write, Access::Read, Access::Read, Access::Read, Access::Write],
        params_bytes: Params::BYTES,
        params_fields: Params::FIELDS,
        invocations: lanes.into(),
        tier: Tier::Base,
        int64: false,
    }
}

pub(super) fn twin(params: &[u8], grid: [u32; 3], mem: &mut [Vec<u32>]) {
    let p = Params::read(params);
    assert!(grid[0] * grid[1] >= p.row_count && p.grid_x == grid[0], "grid {grid:?} for {} rows", p.row_count);
    let [x, delta, weight, map, out] = mem else { panic!("rms_norm binds five buffers, not {}", mem.len()) };
    let (x, out) = (floats_mut(x), floats_mut(out));
    let (delta, weight, stride) = (floats(delta), floats(weight), p.stride_vectors as usize * 4);
    for row in 0..p.row_count as usize {
        let from = if p.has_map == 0 { row } else { map[row] as usize } * stride;
        let mut h = x[from..from + stride].to_vec();
        if p.has_delta != 0 {
            h.iter_mut().zip(&delta[from..from + stride]).for_each(|(h, d)| *h += d);
            if p.has_map == 0 {
                x[from..from + stride].copy_from_slice(&h);
            }
        }
        out[row * stride..(row + 1) * stride].copy_from_slice(&twin_row(&h, weight, p.dim, p.eps));
    }
}

/// The norm of one row, padded to whole blocks, in the shaders' order.
pub(super) fn twin_row(h: &[f32], weight: &[f32], dim: u32, eps: f32) -> Vec<f32> {
    let mut sums = [0.0_f32; SUMS as usize];
    for (i, v) in h.chunks_exact(4).enumerate() {
        v.iter().for_each(|h| sums[i % SUMS as usize] += h * h);
    }
    let mut half = SUMS as usize / 2;
    while half > 0 {
        (0..half).for_each(|lane| sums[lane] += sums[lane + half]);
        half /= 2;
    }
    #[allow(clippy::cast_precision_loss, reason = "the shader does the same")]
    let factor = 1.0 / (sums[0] / dim as f32 + eps).sqrt();
    h.iter().zip(weight).map(|(h, w)| h * factor * w).collect()
}
