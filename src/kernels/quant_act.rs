//! Activations as signed bytes, a scale per 32 values: what products of `--activations int8` read.

use super::{Access, Kernel, Spec, Tape, Tier, floats, params_struct};
use crate::limits::BLOCK_WEIGHTS;
use crate::recording::BufferId;

/// Words of a block: 8 of codes, the scale, the sums of the first and the last 16 codes, 0.
pub const BLOCK_WORDS: u32 = 12;

/// Arguments of a launch.
#[derive(Debug, Clone, Copy)]
pub struct Args {
    /// `[rows, x_stride]` f32, zero from the row's end on.
    pub x: BufferId,
    /// Floats between rows of `x`; a multiple of 32.
    pub x_stride: u32,
    /// `[rows, x_stride / 32]` blocks of [`BLOCK_WORDS`].
    pub out: BufferId,
    /// Rows.
    pub rows: u32,
}

params_struct! {
    /// As in `shaders/quant_act.wgsl`.
    pub(super) struct Params {
        rows: u32,
        blocks: u32,
        x_stride_vectors: u32,
        grid_x: u32,
    }
}

/// Bytes of `rows` rows of `x_stride` values.
#[must_use]
pub fn bytes(rows: u32, x_stride: u32) -> u64 {
    u64::from(rows) * u64::from(x_stride / BLOCK_WEIGHTS) * 4 * u64::from(BLOCK_WORDS)
}

/// Records the launch.
pub fn record(tape: &mut Tape, args: &Args) {
    assert!(args.x_stride.is_multiple_of(BLOCK_WEIGHTS), "x_stride {} is not whole blocks", args.x_stride);
    let blocks = args.x_stride / BLOCK_WEIGHTS;
    let grid = super::fold((u64::from(args.rows) * u64::from(blocks)).div_ceil(64));
    let params = Params { rows: args.rows, blocks, x_stride_vectors: args.x_stride / 4, grid_x: grid[0] };
    tape.dispatch(Kernel::QuantAct, &[args.x, args.out], &params, grid);
}

pub(super) fn spec() -> Spec {
    Spec {
        label: "quant_act".into(),
        shader: "quant_act",
        constants: minijinja::context! {},
        bindings: &[Access::Read, Access::Write],
        params_bytes: Params::BYTES,
        params_fields: Params::FIELDS,
        invocations: 64,
        tier: Tier::Base,
        int64: false,
    }
}

/// Values as the products take them: codes as floats, a scale a block.
pub(super) struct Quantized {
    pub(super) codes: Vec<f32>,
    pub(super) scales: Vec<f32>,
}

/// Least maximum of a block that is not all zeros, as bits: 1e-30.
const TINY: u32 = 0x0da2_4260;

/// 1 / 127: a product rounds alike everywhere, a quotient does not (SwiftShader).
const STEP: f32 = 0.007_874_016;

/// Codes and scale of a block of at most 32 values, as the shaders compute them.
pub(super) fn quantize(x: &[f32]) -> ([i8; 32], f32) {
    let top = x.iter().map(|x| x.to_bits() & 0x7fff_ffff).max().unwrap_or(0);
    if top <= TINY {
        return ([0; 32], 0.0);
    }
    let inverse = 127.0 / f32::from_bits(top);
    #[allow(clippy::cast_possible_truncation, reason = "at most 127 by the maximum; `as` makes NaN 0")]
    (std::array::from_fn(|k| x.get(k).map_or(0, |x| (x * inverse).round_ties_even() as i8)), f32::from_bits(top) * STEP)
}

/// Rows of whole blocks, quantized.
pub(super) fn twin_blocks(x: &[f32]) -> Quantized {
    let blocks = x.chunks_exact(32).map(quantize);
    let (codes, scales): (Vec<_>, Vec<_>) = blocks.unzip();
    Quantized { codes: codes.into_iter().flatten().map(f32::from).collect(), scales }
}

/// What a launch has left.
pub(super) fn twin_read(words: &[u32]) -> Quantized {
    let blocks = words.chunks_exact(BLOCK_WORDS as usize);
    Quantized {
        codes: blocks
            .clone()
            .flat_map(|block| block[..8].iter().flat_map(|word| word.to_le_bytes()))
            .map(|byte| f32::from(byte.cast_signed()))
            .collect(),
        scales: blocks.map(|block| f32::from_bits(block[8])).collect(),
    }
}

pub(super) fn twin(params: &[u8], grid: [u32; 3], mem: &mut [Vec<u32>]) {
    let p = Params::read(params);
    let all = u64::from(p.rows) * u64::from(p.blocks);
    assert!(u64::from(grid[0]) * u64::from(grid[1]) * 64 >= all && p.grid_x == grid[0], "grid {grid:?} for {all}");
    let [x, out] = mem else { panic!("quant_act binds two buffers, not {}", mem.len()) };
    let x = floats(x);
    let blocks = (0..p.rows as usize).flat_map(|row| {
        let from = row * p.x_stride_vectors as usize * 4;
        x[from..from + p.blocks as usize * 32].chunks_exact(32)
    });
    for (block, out) in blocks.zip(out.chunks_exact_mut(BLOCK_WORDS as usize)) {
        let (codes, scale) = quantize(block);
        for (four, word) in codes.chunks_exact(4).zip(&mut out[..8]) {
            *word = u32::from_le_bytes([four[0], four[1], four[2], four[3]].map(i8::cast_unsigned));
        }
        let sum = |half: usize| codes[16 * half..16 * half + 16].iter().map(|code| i32::from(*code)).sum::<i32>();
        out[8..].copy_from_slice(&[scale.to_bits(), sum(0).cast_unsigned(), sum(1).cast_unsigned(), 0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_within_half_a_step_and_the_largest_is_127() {
        let x: Vec<f32> = (0..32_u8).map(|i| (f32::from(i) - 20.0) * 0.37).collect();
        let (codes, d) = quantize(&x);
        assert_eq!(codes[0], -127);
        for (code, x) in codes.iter().zip(&x) {
            assert!((f32::from(*code) * d - x).abs() <= 0.5001 * d, "{code} times {d} for {x}");
        }
    }

    #[test]
    fn zeros_stay_and_what_is_not_finite_is_not_lost() {
        assert_eq!(quantize(&[0.0; 32]), ([0; 32], 0.0));
        assert_eq!(quantize(&[1e-31; 32]), ([0; 32], 0.0));
        let with = |odd: f32| {
            let mut x = [1.0; 32];
            x[7] = odd;
            quantize(&x).1
        };
        assert!(with(f32::NAN).is_nan());
        assert!(with(f32::NEG_INFINITY).is_infinite());
    }
}
