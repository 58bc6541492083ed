//! Floats to the block formats of a file: simple rounding, good enough for tests.

#![allow(clippy::cast_possible_truncation)] // Codes are clamped to their bits before they are narrowed.

use half::{bf16, f16};
use twostroke::format::block::{BlockFormat, IQ4_NL_VALUES};

/// Encodes whole blocks.
pub(crate) fn encode(format: BlockFormat, weights: &[f32]) -> Vec<u8> {
    assert_eq!(weights.len() as u64 % format.block_weights(), 0, "whole blocks");
    match format {
        BlockFormat::F32 => weights.iter().flat_map(|w| w.to_le_bytes()).collect(),
        BlockFormat::F16 => weights.iter().flat_map(|&w| f16::from_f32(w).to_le_bytes()).collect(),
        BlockFormat::Bf16 => weights.iter().flat_map(|&w| bf16::from_f32(w).to_le_bytes()).collect(),
        BlockFormat::Q2K | BlockFormat::Q3K | BlockFormat::Q4K | BlockFormat::Q5K | BlockFormat::Q6K => {
            weights.chunks_exact(256).flat_map(|block| encode_super_block(format, block)).collect()
        }
        _ => weights.chunks_exact(32).flat_map(|block| encode_block(format, block)).collect(),
    }
}

/// A K-quant's block whose parts all have one scale and one minimum.
fn encode_super_block(format: BlockFormat, w: &[f32]) -> Vec<u8> {
    let (low, high) = w.iter().fold((0.0_f32, f32::MIN), |(l, h), &w| (l.min(w), h.max(w)));
    let largest = high.max(-low);
    // Largest code, zero, scale and minimum of each part.
    let (max, zero, scale, minimum) = match format {
        BlockFormat::Q2K => (3, 0, 15, 15),
        BlockFormat::Q3K => (7, 4, 31, 0),
        BlockFormat::Q4K => (15, 0, 63, 63),
        BlockFormat::Q5K => (31, 0, 63, 63),
        BlockFormat::Q6K => (63, 32, 127, 0),
        _ => unreachable!("{format:?} has no super-blocks"),
    };
    let range = if minimum > 0 { (high - low) / max as f32 } else { largest / (max - zero) as f32 };
    let d = f16::from_f32(range / scale as f32);
    let dmin = f16::from_f32(if minimum > 0 { -low / minimum as f32 } else { 0.0 });
    let step = if d.to_f32() == 0.0 { 1.0 } else { d.to_f32() * scale as f32 };
    let code = |w: &f32| (((w + dmin.to_f32() * minimum as f32) / step).round() as i32 + zero).clamp(0, max) as u8;
    let q: Vec<u8> = w.iter().map(code).collect();
    // Bits of four weights, 32 apart, to a byte.
    let twos = |shift: u8| -> Vec<u8> {
        let at = |byte: usize, j: usize| (q[128 * (byte / 32) + 32 * j + byte % 32] >> shift & 3) << (2 * j);
        (0..64).map(|byte| (0..4).fold(0, |bits, j| bits | at(byte, j))).collect()
    };
    let bits = |bit: u8| -> Vec<u8> {
        (0..32).map(|l| (0..8).fold(0, |bits, j| bits | (q[32 * j + l] >> bit & 1) << j)).collect()
    };
    let nibbles = |apart: usize| -> Vec<u8> {
        let at = |byte: usize| 2 * apart * (byte / apart) + byte % apart;
        (0..128).map(|byte| q[at(byte)] & 15 | (q[at(byte) + apart] & 15) << 4).collect()
    };
    let (s, m) = (scale as u8, minimum as u8);
    let sixes = [vec![s & 63 | s >> 4 << 6; 4], vec![m & 63 | m >> 4 << 6; 4], vec![s & 15 | m << 4; 4]].concat();
    let d = [d.to_le_bytes(), dmin.to_le_bytes()].concat();
    match format {
        BlockFormat::Q2K => [vec![s | m << 4; 16], twos(0), d].concat(),
        BlockFormat::Q3K => {
            let v = s + 32;
            [bits(2), twos(0), vec![v & 15 | v << 4; 8], vec![(v >> 4) * 0x55; 4], d[..2].to_vec()].concat()
        }
        BlockFormat::Q4K => [d, sixes, nibbles(32)].concat(),
        BlockFormat::Q5K => [d, sixes, bits(4), nibbles(32)].concat(),
        _ => [nibbles(64), twos(4), vec![s; 16], d[..2].to_vec()].concat(),
    }
}

fn encode_block(format: BlockFormat, w: &[f32]) -> Vec<u8> {
    let (low, high) = w.iter().fold((f32::MAX, f32::MIN), |(l, h), &w| (l.min(w), h.max(w)));
    let largest = low.abs().max(high.abs());
    let (d, m) = match format {
        BlockFormat::Q4_0 => (largest / 7.0, 0.0),
        BlockFormat::Iq4Nl => (largest / 113.0, 0.0),
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
    let nearest = |w: f32| {
        let off = |q: &usize| (f32::from(IQ4_NL_VALUES[*q]) * d.to_f32() - w).abs();
        (0..16).min_by(|a, b| off(a).total_cmp(&off(b))).expect("16 values") as u32
    };
    let codes: Vec<u32> = match format {
        BlockFormat::Iq4Nl => w.iter().map(|&w| nearest(w)).collect(),
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
        // Half a step: 2/3 for 2 bits and a minimum, 1/3 for 3 bits, 1/7 for 4 bits and a symmetric range.
        let bound = match format {
            BlockFormat::Q2K => 0.34,
            BlockFormat::Q3K => 0.17,
            // Between -127 and -104 of 113.
            BlockFormat::Iq4Nl => 0.11,
            _ => 0.08,
        };
        let worst = weights.iter().zip(&back).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < bound, "{format:?}: {worst}");
    }
}
