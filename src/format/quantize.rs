//! Floats to blocks at load: `--quantize int8|int4`.
//!
//! ```text
//! int8   Q8_0: d = max|w| / 127
//! int4   Q4_1: w ~ d q + m, the d and m of least sum of w² (error)² among those that some twenty widths of the range suggest
//! ```
//! Embeddings and heads stay at 8 bits: each token reads one row of the one, and each logit is a row of the other.
//! A block that was 4-bit codes with a scale and a minimum before somebody wrote it down as floats is found again exactly.

use half::f16;

use super::block::BlockFormat;

/// What `--quantize` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantize {
    /// 8-bit codes, a scale per 32.
    Int8,
    /// 4-bit codes, a scale and a minimum per 32.
    Int4,
}

/// What a matrix is to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Embedding or head.
    Vocabulary,
    /// Any matrix of a layer.
    Layer,
}

const BLOCK: usize = 32;
/// Codes of 4 bits reach from 0 to this.
const CODE_MAX: f32 = 15.0;
/// How far a float of 11 bits may be off what it was rounded from, relatively.
const HALF_ROUNDING: f32 = 1.0 / 2048.0;

impl Quantize {
    /// Name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Int8 => "int8",
            Self::Int4 => "int4",
        }
    }

    /// The format that a float matrix with rows of `k` weights gets. What is in blocks already stays, and so do rows that are not
    /// whole blocks.
    #[must_use]
    pub const fn format(self, from: BlockFormat, k: u64, of: Use) -> BlockFormat {
        match (from.has_scales() || !k.is_multiple_of(BLOCK as u64), self, of) {
            (true, _, _) => from,
            (false, Self::Int4, Use::Layer) => BlockFormat::Q4_1,
            (false, _, _) => BlockFormat::Q8_0,
        }
    }
}

/// Encodes whole blocks, sharing the work between threads.
///
/// # Panics
/// When `weights` are not whole blocks, or `format` is none that [`Quantize::format`] makes of floats.
pub fn encode(format: BlockFormat, weights: &[f32], out: &mut Vec<u8>) {
    assert!(weights.len().is_multiple_of(BLOCK), "{} weights in blocks", weights.len());
    let size = usize::try_from(format.block_bytes()).expect("small");
    out.clear();
    out.resize(weights.len() / BLOCK * size, 0);
    let one: fn(&[f32], &mut [u8]) = match format {
        BlockFormat::Q8_0 => int8,
        BlockFormat::Q4_1 => int4,
        other => panic!("floats are not made {}", other.name()),
    };
    let run = |weights: &[f32], out: &mut [u8]| {
        weights.chunks_exact(BLOCK).zip(out.chunks_exact_mut(size)).for_each(|(w, b)| one(w, b));
    };
    let blocks = weights.len() / BLOCK;
    // In a page, which has no threads, this is an error.
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(blocks / 1024);
    if threads <= 1 {
        return run(weights, out);
    }
    let share = blocks.div_ceil(threads);
    std::thread::scope(|scope| {
        for (weights, out) in weights.chunks(share * BLOCK).zip(out.chunks_mut(share * size)) {
            scope.spawn(move || run(weights, out));
        }
    });
}

fn int8(w: &[f32], out: &mut [u8]) {
    let largest = w.iter().fold(0.0_f32, |most, w| most.max(w.abs()));
    let d = f16_within(largest / 127.0);
    out[..2].copy_from_slice(&d.to_le_bytes());
    let inverse = if d.to_f32() > 0.0 { 1.0 / d.to_f32() } else { 0.0 };
    for (w, q) in w.iter().zip(&mut out[2..]) {
        #[allow(clippy::cast_possible_truncation, reason = "clamped")]
        let code = (w * inverse).round().clamp(-127.0, 127.0) as i8;
        *q = code.cast_unsigned();
    }
}

/// A scale and a minimum, and how far off they leave a block.
#[derive(Clone, Copy)]
struct Choice {
    d: f16,
    m: f16,
    /// Σ w² (error)².
    error: f32,
    /// Whether every weight is what its code says, but for the rounding of a half.
    exact: bool,
}

impl Choice {
    fn new(w: &[f32], d: f16, m: f16) -> Self {
        let (df, mf) = (d.to_f32(), m.to_f32());
        let inverse = if df > 0.0 { 1.0 / df } else { 0.0 };
        let (mut error, mut exact) = (0.0, true);
        for &w in w {
            let off = df * code(w, inverse, mf) + mf - w;
            error += w * w * off * off;
            exact &= off.abs() <= HALF_ROUNDING * w.abs();
        }
        Self { d, m, error, exact }
    }
}

fn code(w: f32, inverse: f32, m: f32) -> f32 {
    ((w - m) * inverse).round().clamp(0.0, CODE_MAX)
}

fn int4(w: &[f32], out: &mut [u8]) {
    let Choice { d, m, .. } = choose(w);
    out[..2].copy_from_slice(&d.to_le_bytes());
    out[2..4].copy_from_slice(&m.to_le_bytes());
    let inverse = if d.to_f32() > 0.0 { 1.0 / d.to_f32() } else { 0.0 };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    let q = |i: usize| code(w[i], inverse, m.to_f32()) as u8;
    for i in 0..BLOCK / 2 {
        out[4 + i] = q(i) | q(i + BLOCK / 2) << 4;
    }
}

fn choose(w: &[f32]) -> Choice {
    let (low, high) = w.iter().fold((f32::MAX, f32::MIN), |(l, h), &w| (l.min(w), h.max(w)));
    let range = high - low;
    let m = f16_within(low);
    let whole = f16_within(range / CODE_MAX);
    if range <= 0.0 || whole.to_f32() <= 0.0 {
        return Choice::new(w, f16::ZERO, f16_within(w.iter().sum::<f32>() / BLOCK as f32));
    }
    let best = |a: Choice, b: Choice| if (b.exact, -b.error) > (a.exact, -a.error) { b } else { a };
    // The range, and what its ends may have been before they were rounded.
    let near = [-2, -1, 1, 2].map(|ulps| f16::from_bits(whole.to_bits().saturating_add_signed(ulps)));
    let mut found = Choice::new(w, whole, m);
    for d in near.into_iter().filter(|d| d.to_f32() > 0.0 && d.is_finite()) {
        found = best(found, Choice::new(w, d, m));
    }
    if found.exact {
        return found;
    }
    // Widths a little below and above the range; for each the best line through what they round to.
    for step in 0..=20 {
        #[allow(clippy::cast_precision_loss, reason = "small")]
        let width = CODE_MAX - 1.0 + 0.1 * step as f32;
        if let Some((d, m)) = line(w, width / range, low) {
            found = best(found, Choice::new(w, d, m));
        }
    }
    found
}

/// d and m of least Σ w² (d q + m - w)² for the codes that a scale and a minimum give.
fn line(w: &[f32], inverse: f32, low: f32) -> Option<(f16, f16)> {
    let (mut s, mut sq, mut sqq, mut sw, mut sqw) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for &w in w {
        let (q, weight) = (code(w, inverse, low), w * w);
        s += weight;
        sq += weight * q;
        sqq += weight * q * q;
        sw += weight * w;
        sqw += weight * q * w;
    }
    let det = s * sqq - sq * sq;
    let (d, m) = ((s * sqw - sq * sw) / det, (sqq * sw - sq * sqw) / det);
    (det > 0.0 && d > 0.0 && d.is_finite() && m.is_finite()).then(|| (f16_within(d), f16_within(m)))
}

/// The nearest half, at most the largest finite one.
fn f16_within(value: f32) -> f16 {
    f16::from_f32(value.clamp(f16::MIN.to_f32(), f16::MAX.to_f32()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fixed sequence of numbers in -1..1 that is a little like weights.
    fn weights(count: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut unit = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 8_388_608.0 - 1.0
        };
        (0..count).map(|_| unit() * unit() * unit() * 0.2).collect()
    }

    fn back(format: BlockFormat, weights: &[f32]) -> Vec<f32> {
        let (mut bytes, mut out) = (Vec::new(), vec![0.0; weights.len()]);
        encode(format, weights, &mut bytes);
        format.decode(&bytes, &mut out).expect("whole blocks");
        out
    }

    fn weighted_error(a: &[f32], b: &[f32]) -> f64 {
        let size: f64 = a.iter().map(|a| f64::from(a * a) * f64::from(a * a)).sum();
        a.iter().zip(b).map(|(a, b)| f64::from(a * a) * f64::from(a - b).powi(2)).sum::<f64>() / size
    }

    #[test]
    fn four_bit_codes_written_down_as_halves_are_found_again() {
        let floats = weights(32 * 4096, 3);
        let once = back(BlockFormat::Q4_1, &floats);
        let halves: Vec<f32> = once.iter().map(|&w| f16::from_f32(w).to_f32()).collect();
        let twice = back(BlockFormat::Q4_1, &halves);
        let same = once.chunks(32).zip(twice.chunks(32)).filter(|(a, b)| a == b).count();
        // Blocks whose codes do not reach both ends, and the rare tie of two neighbouring scales, are left.
        assert!(same > 4096 * 97 / 100, "{same} of 4096 blocks");
        let off = halves.iter().zip(&twice).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(off < 1e-2, "{off}");
    }

    #[test]
    fn the_search_beats_rounding_to_the_range() {
        let floats = weights(32 * 512, 5);
        let plain: Vec<f32> = floats
            .chunks(32)
            .flat_map(|w| {
                let (low, high) = w.iter().fold((f32::MAX, f32::MIN), |(l, h), &w| (l.min(w), h.max(w)));
                let (d, m) = (f16::from_f32((high - low) / 15.0).to_f32(), f16::from_f32(low).to_f32());
                w.iter().map(move |w| d * code(*w, 1.0 / d, m) + m).collect::<Vec<_>>()
            })
            .collect();
        let (searched, plain) =
            (weighted_error(&floats, &back(BlockFormat::Q4_1, &floats)), weighted_error(&floats, &plain));
        assert!(searched < 0.8 * plain, "{searched} against {plain}");
        assert!(weighted_error(&floats, &back(BlockFormat::Q8_0, &floats)) < 0.01 * searched);
    }

    #[test]
    fn odd_blocks_stay_finite_and_near() {
        let ramp: Vec<f32> = (0..32).map(|i| i as f32 * 1e5).collect();
        let tiny: Vec<f32> = (0..32).map(|i| i as f32 * 1e-9).collect();
        let mut lone = vec![0.0; 32];
        lone[7] = -3.0;
        for format in [BlockFormat::Q4_1, BlockFormat::Q8_0] {
            for block in [&vec![0.0; 32], &vec![0.3; 32], &ramp, &tiny, &lone] {
                let out = back(format, block);
                assert!(out.iter().all(|w| w.is_finite()), "{format:?} {block:?}: {out:?}");
            }
            let off = back(format, &lone).iter().zip(&lone).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off < 0.01, "{format:?}: {off}");
        }
        assert!(back(BlockFormat::Q4_1, &[0.3; 32]).iter().all(|w| (w - 0.3).abs() < 2e-4));
    }

    #[test]
    fn embedding_and_head_stay_at_eight_bits_and_blocks_as_they_are() {
        use BlockFormat::{Bf16, F16, F32, Q4_1, Q6K, Q8_0};
        let table = [
            (Quantize::Int4, F16, 64, Use::Layer, Q4_1),
            (Quantize::Int4, F32, 64, Use::Vocabulary, Q8_0),
            (Quantize::Int8, Bf16, 64, Use::Layer, Q8_0),
            (Quantize::Int4, Q6K, 256, Use::Layer, Q6K),
            (Quantize::Int4, F16, 40, Use::Layer, F16),
        ];
        for (quantize, from, k, of, want) in table {
            assert_eq!(quantize.format(from, k, of), want, "{quantize:?} {from:?} {k} {of:?}");
        }
    }
}
