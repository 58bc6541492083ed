//! Rows of the embedding matrix, dequantised: the first op of a step.

use super::layout::{self, Packed, TwinBlock, TwinPlanes};
use super::{Access, Kernel, Spec, Tape, Tier, floats_mut, params_struct};
use crate::format::block::BlockFormat;
use crate::limits::BLOCK_WEIGHTS;
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
    /// Floats between rows of `out`: at least whole blocks.
    pub out_stride: u32,
    /// Multiplies every weight.
    pub scale: f32,
    /// `[slots, history_stride]` u32: ids of the sequences, for rows whose token is [`FROM_HISTORY`].
    pub history: BufferId,
    /// Ids a slot of the history.
    pub history_stride: u32,
}

/// Token of a row that takes what the history holds at its slot and position: what an earlier step sampled, without the CPU.
pub const FROM_HISTORY: u32 = u32::MAX;

params_struct! {
    /// As in `shaders/embed.wgsl`.
    pub(super) struct Params {
        row_count: u32,
        first_token: u32,
        token_count: u32,
        blocks: u32,
        out_stride: u32,
        grid_x: u32,
        scale: f32,
        history_stride: u32,
    }
}

/// Records the launch.
pub fn record(tape: &mut Tape, args: &Args) {
    let weights = args.weights;
    let blocks = weights.k.div_ceil(BLOCK_WEIGHTS);
    assert!(args.out_stride >= blocks * BLOCK_WEIGHTS, "out_stride {} below {blocks} blocks", args.out_stride);
    let grid = super::fold(u64::from(args.row_count));
    let params = Params {
        row_count: args.row_count,
        first_token: args.first_token,
        token_count: weights.rows,
        blocks,
        out_stride: args.out_stride,
        grid_x: grid[0],
        scale: args.scale,
        history_stride: args.history_stride,
    };
    let bindings = [args.rows, weights.codes, weights.scales, weights.high, args.out, args.history];
    tape.dispatch(Kernel::Embed { format: weights.format }, &bindings, &params, grid);
}

pub(super) fn spec(format: BlockFormat) -> Spec {
    Spec {
        label: format!("embed_{}", format.name()),
        shader: "embed",
        constants: minijinja::context! {
            from_history => FROM_HISTORY, ..layout::constants(format)
        },
        bindings: &[Access::Read, Access::Read, Access::Read, Access::Read, Access::Write, Access::Read],
        params_bytes: Params::BYTES,
        params_fields: Params::FIELDS,
        invocations: 32,
        tier: Tier::Base,
        int64: false,
    }
}

pub(super) fn twin(format: BlockFormat, params: &[u8], grid: [u32; 3], mem: &mut [Vec<u32>]) {
    let p = Params::read(params);
    assert!(grid[0] * grid[1] >= p.row_count && p.grid_x == grid[0], "grid {grid:?} for {} rows", p.row_count);
    let (inputs, outputs) = mem.split_at_mut(4);
    let [out, history] = outputs else { panic!("embed binds six buffers, not {}", 4 + outputs.len()) };
    let planes =
        TwinPlanes { format, blocks: p.blocks as usize, codes: &inputs[1], scales: &inputs[2], high: &inputs[3] };
    let out = floats_mut(out);
    for (row, fields) in inputs[0].chunks_exact(4).take(p.row_count as usize).enumerate() {
        let token = match fields[0] {
            FROM_HISTORY => history[fields[2] as usize * p.history_stride as usize + fields[1] as usize],
            token => token,
        };
        let Some(n) = token.checked_sub(p.first_token).filter(|n| *n < p.token_count) else { continue };
        for block in 0..planes.blocks {
            let TwinBlock { codes, d, m } = planes.block(n as usize, block);
            let to = row * p.out_stride as usize + block * 32;
            for (k, (o, code)) in out[to..to + 32].iter_mut().zip(codes).enumerate() {
                let scaled = code * d[k / 16];
                *o = p.scale * if format.has_minimum() { scaled + m[k / 16] } else { scaled };
            }
        }
    }
}
