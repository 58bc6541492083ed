//! Floats to the block formats of a file: simple rounding, good enough for tests.

#![allow(clippy::cast_possible_truncation)] // Codes are clamped to their bits before they are narrowed.

use half::{bf16, f16};
use twostroke::format::block::BlockFormat;

/// Encodes whole blocks.
pub(crate) fn encode(format: BlockFormat, weights: &[f32]) -> Vec<u8> {
    assert_eq!(weights.len() as u64 % format.block_weights(), 0, "whole blocks");
    match format {
        BlockFormat::F32 => weights.iter().flat_map(|w| w.to_le_bytes()).collect(),
        BlockFormat::F16 => weights.iter().flat_map(|&w| f16::from_f32(w).to_le_bytes()).collect(),
        BlockFormat::Bf16 => weights.iter().flat_map(|&w| bf16::from_f32(w).to_le_bytes()).collect(),
        _ => weights.chunks_exact(32).flat_map(|block| encode_block(format, block)).collect(),
    }
}

fn encode_block(format: BlockFormat, w: &[f32]) -> Vec<u8> {
    let (low, high) = w.iter().fold((f32::MAX, f32::MIN), |(l, h), &w| (l.min(w), h.max(w)));
    let largest = low.abs().max(high.abs());
    let (d, m) = match format {
        BlockFormat::Q4_0 => (largest / 7.0, 0.0),
        BlockFormat::Q5_0 => (largest / 15.0, 0.0),
        BlockFormat::Q8_0 => (largest / 127.0, 0.0),
        BlockFormat::Q4_1 => ((high - low) / 15.0, low),
        BlockFormat::Q5_1 => ((high - low) / 31.0, low),
        _ => unreachable!("{format:?} has no blocks"),
    };
    let (d, m) = (f16::from_f32(d), f16::from_f32(m));
    let code = |w: f32, zero: i32, max: i32| {
        let steps = if d.to_f32() == 0.0 { 0.0 } else { ((w - m.to_f32()) / d.to_f32()).round() };
        (steps as i32 + zero).clamp(0, max) as u32
    };
    let mut out = d.to_le_bytes().to_vec();
    if matches!(format, BlockFormat::Q4_1 | BlockFormat::Q5_1) {
        out.extend(m.to_le_bytes());
    }
    let codes: Vec<u32> = match format {
        BlockFormat::Q4_0 => w.iter().map(|&w| code(w, 8, 15)).collect(),
        BlockFormat::Q4_1 => w.iter().map(|&w| code(w, 0, 15)).collect(),
        BlockFormat::Q5_0 => w.iter().map(|&w| code(w, 16, 31)).collect(),
        BlockFormat::Q5_1 => w.iter().map(|&w| code(w, 0, 31)).collect(),
        _ => {
            // Two's complement of a code in -127 ..= 127.
            out.extend(w.iter().map(|&w| (code(w, 128, 255) as u8) ^ 0x80));
            return out;
        }
    };
    if matches!(format, BlockFormat::Q5_0 | BlockFormat::Q5_1) {
        let high = codes.iter().enumerate().fold(0u32, |bits, (i, q)| bits | (q >> 4) << i);
        out.extend(high.to_le_bytes());
    }
    out.extend((0..16).map(|i| (codes[i] & 15 | (codes[i + 16] & 15) << 4) as u8));
    out
}

#[test]
fn every_format_decodes_to_about_what_was_encoded() {
    let mut rng = super::Rng(7);
    let weights: Vec<f32> = (0..256).map(|_| rng.signed_unit()).collect();
    for format in BlockFormat::ALL {
        let bytes = encode(format, &weights);
        assert_eq!(Some(bytes.len() as u64), format.row_bytes(256));
        let mut back = vec![0.0; 256];
        format.decode(&bytes, &mut back).expect("whole blocks");
        // Half a step of the coarsest format: 1/7 for 4 bits and a symmetric range.
        let worst = weights.iter().zip(&back).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 0.08, "{format:?}: {worst}");
    }
}
