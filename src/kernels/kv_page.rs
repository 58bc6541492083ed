//! How K and V lie in their pages.
//!
//! A page holds, for each KV head, [`PAGE_TOKENS`] tokens; values come in units of 8, the order in which attention reads them:
//!
//! ```text
//! K  [page][kv_head][head_dim / 8][token]  units       V  [page][kv_head][token][head_dim / 8]  units
//! of bytes (q8), behind the units of a page and head, as f32:
//!    [head_dim / 32][token]                scales         [token][head_dim / 32]                scales
//! ```
//! A unit is 8 f32, 8 halves or 8 bytes, the lowest first.

use super::quant_act;
use crate::limits::{HEAD_DIM_STEP, PAGE_TOKENS};

/// How K and V are stored in their pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KvType {
    /// Single floats.
    F32,
    /// Halves, two in a word; values saturate at ±65504.
    F16,
    /// Bytes, a scale per token, head and 32 values.
    Q8,
}

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Keys.
    K,
    /// Values.
    V,
}

/// Largest half; larger values saturate.
pub(super) const F16_MAX: f32 = 65_504.0;
const STEP: usize = HEAD_DIM_STEP as usize;
const TOKENS: usize = PAGE_TOKENS as usize;

impl KvType {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::F32, Self::F16, Self::Q8];

    /// Lower-case name, as on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Q8 => "q8",
        }
    }

    /// Bytes of a token's K, or V, of one head.
    #[must_use]
    pub const fn head_bytes(self, head_dim: u32) -> u64 {
        (match self {
            Self::F32 => 4 * head_dim,
            Self::F16 => 2 * head_dim,
            Self::Q8 => head_dim + 4 * scales(head_dim),
        }) as u64
    }

    /// Words of a unit of 8 values.
    #[must_use]
    pub const fn unit_words(self) -> u32 {
        match self {
            Self::F32 => 8,
            Self::F16 => 4,
            Self::Q8 => 2,
        }
    }
}

/// Scales of a token's head of bytes.
#[must_use]
pub const fn scales(head_dim: u32) -> u32 {
    head_dim.div_ceil(32)
}

/// K or V of one head in one page.
#[derive(Debug, Clone, Copy)]
pub struct KvBlock {
    kv: KvType,
    side: Side,
    units: usize,
    scales: usize,
}

impl KvBlock {
    /// Of heads of `head_dim` elements, a multiple of 8.
    #[must_use]
    pub fn new(kv: KvType, side: Side, head_dim: u32) -> Self {
        assert!(head_dim.is_multiple_of(HEAD_DIM_STEP), "head size {head_dim}");
        let scales = if kv == KvType::Q8 { scales(head_dim) as usize } else { 0 };
        Self { kv, side, units: head_dim as usize / STEP, scales }
    }

    /// Words.
    #[must_use]
    pub const fn words(&self) -> usize {
        TOKENS * (self.units * self.kv.unit_words() as usize + self.scales)
    }

    /// First word of a unit.
    #[must_use]
    pub const fn unit_at(&self, token: usize, unit: usize) -> usize {
        let at = match self.side {
            Side::K => unit * TOKENS + token,
            Side::V => token * self.units + unit,
        };
        at * self.kv.unit_words() as usize
    }

    /// Word of the scale of 32 values, the `part`th of the head.
    #[must_use]
    pub const fn scale_at(&self, token: usize, part: usize) -> usize {
        let at = match self.side {
            Side::K => part * TOKENS + token,
            Side::V => token * self.scales + part,
        };
        TOKENS * self.units * self.kv.unit_words() as usize + at
    }

    /// Stores a token's head into the block's words.
    pub fn write(&self, words: &mut [u32], token: usize, head: &[f32]) {
        assert_eq!((words.len(), head.len()), (self.words(), self.units * STEP), "words of a block, values of a head");
        if self.kv == KvType::Q8 {
            for (part, values) in head.chunks(32).enumerate() {
                let (codes, scale) = quant_act::quantize(values);
                words[self.scale_at(token, part)] = scale.to_bits();
                for (i, unit) in codes[..values.len()].chunks_exact(STEP).enumerate() {
                    let at = self.unit_at(token, 4 * part + i);
                    for (word, four) in words[at..at + 2].iter_mut().zip(unit.chunks_exact(4)) {
                        *word = u32::from_le_bytes([four[0], four[1], four[2], four[3]].map(i8::cast_unsigned));
                    }
                }
            }
            return;
        }
        let half = |x: f32| u32::from(half::f16::from_f32(x.clamp(-F16_MAX, F16_MAX)).to_bits());
        for (unit, values) in head.chunks_exact(STEP).enumerate() {
            let at = self.unit_at(token, unit);
            for (i, two) in values.chunks_exact(2).enumerate() {
                if self.kv == KvType::F16 {
                    words[at + i] = half(two[0]) | half(two[1]) << 16;
                } else {
                    words[at + 2 * i..][..2].copy_from_slice(&[two[0].to_bits(), two[1].to_bits()]);
                }
            }
        }
    }

    /// A unit as attention reads it.
    #[must_use]
    pub fn read(&self, words: &[u32], token: usize, unit: usize) -> [f32; STEP] {
        let at = self.unit_at(token, unit);
        match self.kv {
            KvType::F32 => std::array::from_fn(|d| f32::from_bits(words[at + d])),
            KvType::F16 => std::array::from_fn(|d| {
                let word = words[at + d / 2] >> (16 * (d % 2));
                half::f16::from_bits(u16::try_from(word & 0xffff).expect("16 bits")).to_f32()
            }),
            KvType::Q8 => {
                let scale = f32::from_bits(words[self.scale_at(token, unit / 4)]);
                std::array::from_fn(|d| f32::from(words[at + d / 4].to_le_bytes()[d % 4].cast_signed()) * scale)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else_is_touched() {
        for (kv, side) in KvType::ALL.into_iter().flat_map(|kv| [Side::K, Side::V].map(|side| (kv, side))) {
            for head_dim in [8, 24, 64, 80, 256] {
                let block = KvBlock::new(kv, side, head_dim);
                assert_eq!(block.words() as u64 * 4, kv.head_bytes(head_dim) * u64::from(PAGE_TOKENS));
                let mut words = vec![0; block.words()];
                // A token's values are its number times a power of two: exact in every type.
                let value = |token: usize, d: usize| (token + 1) as f32 * if d.is_multiple_of(3) { 1.0 } else { -1.0 };
                for token in 0..TOKENS {
                    let head: Vec<f32> = (0..head_dim as usize).map(|d| value(token, d)).collect();
                    block.write(&mut words, token, &head);
                }
                for (token, unit) in (0..TOKENS).flat_map(|token| (0..head_dim as usize / 8).map(move |u| (token, u))) {
                    for (d, got) in block.read(&words, token, unit).into_iter().enumerate() {
                        let want = value(token, 8 * unit + d);
                        assert!((got - want).abs() < 1e-5 * want.abs(), "{kv:?} {side:?} {head_dim}: {got} for {want}");
                    }
                }
            }
        }
    }
}
