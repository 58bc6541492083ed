//! Weight formats: their names, sizes and CPU decode. How a format lies in GPU memory is `kernels::layout`'s.

use super::k_quants::{self, SuperBlock};
use crate::error::{Error, Result};

/// How the weights of a tensor are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockFormat {
    /// IEEE single.
    F32,
    /// IEEE half.
    F16,
    /// The upper half of an IEEE single.
    Bf16,
    /// 32 weights: f16 scale d, 4-bit q; w = d (q - 8).
    Q4_0,
    /// 32 weights: f16 scale d, f16 minimum m, 4-bit q; w = d q + m.
    Q4_1,
    /// 32 weights: f16 scale d, 5-bit q; w = d (q - 16).
    Q5_0,
    /// 32 weights: f16 scale d, f16 minimum m, 5-bit q; w = d q + m.
    Q5_1,
    /// 32 weights: f16 scale d, signed 8-bit q; w = d q.
    Q8_0,
    /// 32 weights: f16 scale d, 4-bit q; w = d [`IQ4_NL_VALUES`]`[q]`.
    Iq4Nl,
    /// 256 weights of 2 bits, as all K-quants taken apart by [`k_quants`].
    Q2K,
    /// 256 weights of 3 bits.
    Q3K,
    /// 256 weights of 4 bits.
    Q4K,
    /// 256 weights of 5 bits.
    Q5K,
    /// 256 weights of 6 bits.
    Q6K,
}

/// What the 4-bit codes of IQ4_NL stand for.
pub const IQ4_NL_VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

impl BlockFormat {
    /// All formats that the kernels compute with.
    pub const ALL: [Self; 14] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Iq4Nl,
        Self::Q2K,
        Self::Q3K,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
    ];

    /// Lower-case name, as in shaders and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q4_0 => "q4_0",
            Self::Q4_1 => "q4_1",
            Self::Q5_0 => "q5_0",
            Self::Q5_1 => "q5_1",
            Self::Q8_0 => "q8_0",
            Self::Iq4Nl => "iq4_nl",
            Self::Q2K => "q2_k",
            Self::Q3K => "q3_k",
            Self::Q4K => "q4_k",
            Self::Q5K => "q5_k",
            Self::Q6K => "q6_k",
        }
    }

    /// Weights in one block of the file.
    #[must_use]
    pub const fn block_weights(self) -> u64 {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q2K | Self::Q3K | Self::Q4K | Self::Q5K | Self::Q6K => 256,
            _ => 32,
        }
    }

    /// Whether weights are codes behind a scale.
    #[must_use]
    pub const fn has_scales(self) -> bool {
        !matches!(self, Self::F32 | Self::F16 | Self::Bf16)
    }

    /// Whether each scale comes with a minimum.
    #[must_use]
    pub const fn has_minimum(self) -> bool {
        matches!(self, Self::Q4_1 | Self::Q5_1 | Self::Q2K | Self::Q4K | Self::Q5K)
    }

    /// Weights in a row that share a scale.
    #[must_use]
    pub const fn part_weights(self) -> u64 {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q2K | Self::Q3K | Self::Q6K => 16,
            _ => 32,
        }
    }

    /// Bytes of one block of the file.
    #[must_use]
    pub const fn block_bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q4_0 | Self::Iq4Nl => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q2K => 84,
            Self::Q3K => 110,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// Bytes of a row of `weights`; `None` when the row is not whole blocks or the product overflows.
    #[must_use]
    pub fn row_bytes(self, weights: u64) -> Option<u64> {
        if !weights.is_multiple_of(self.block_weights()) {
            return None;
        }
        (weights / self.block_weights()).checked_mul(self.block_bytes())
    }

    /// Decodes whole blocks of the file into floats, exactly as the format defines them.
    ///
    /// # Errors
    /// When `bytes` are not the blocks of `out.len()` weights.
    pub fn decode(self, bytes: &[u8], out: &mut [f32]) -> Result<()> {
        let want = self.row_bytes(out.len() as u64);
        if want != Some(bytes.len() as u64) {
            return Err(Error::format("decode", format!("{want:?} bytes of {}", self.name()), bytes.len(), "a row"));
        }
        let f16 = |b: &[u8]| half::f16::from_le_bytes([b[0], b[1]]).to_f32();
        let nibble = |qs: &[u8], i: usize| if i < 16 { qs[i] & 15 } else { qs[i - 16] >> 4 };
        let high = |b: &[u8], i: usize| u8::from(u32::from_le_bytes([b[0], b[1], b[2], b[3]]) >> i & 1 == 1) << 4;
        match self {
            Self::F32 => {
                for (o, b) in out.iter_mut().zip(bytes.chunks_exact(4)) {
                    *o = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
                }
            }
            Self::F16 => out.iter_mut().zip(bytes.chunks_exact(2)).for_each(|(o, b)| *o = f16(b)),
            Self::Bf16 => {
                for (o, b) in out.iter_mut().zip(bytes.chunks_exact(2)) {
                    *o = half::bf16::from_le_bytes([b[0], b[1]]).to_f32();
                }
            }
            Self::Q4_0 => blocks(bytes, 18, out, |b, i| f16(b) * (f32::from(nibble(&b[2..], i)) - 8.0)),
            Self::Q4_1 => blocks(bytes, 20, out, |b, i| f16(b) * f32::from(nibble(&b[4..], i)) + f16(&b[2..])),
            Self::Q5_0 => {
                blocks(bytes, 22, out, |b, i| f16(b) * (f32::from(nibble(&b[6..], i) | high(&b[2..], i)) - 16.0))
            }
            Self::Q5_1 => {
                blocks(bytes, 24, out, |b, i| f16(b) * f32::from(nibble(&b[8..], i) | high(&b[4..], i)) + f16(&b[2..]))
            }
            Self::Q8_0 => blocks(bytes, 34, out, |b, i| f16(b) * f32::from(b[2 + i].cast_signed())),
            Self::Iq4Nl => {
                blocks(bytes, 18, out, |b, i| f16(b) * f32::from(IQ4_NL_VALUES[usize::from(nibble(&b[2..], i))]))
            }
            Self::Q2K | Self::Q3K | Self::Q4K | Self::Q5K | Self::Q6K => {
                let size = usize::try_from(self.block_bytes()).expect("small");
                for (block, out) in bytes.chunks_exact(size).zip(out.chunks_exact_mut(k_quants::SUPER_WEIGHTS)) {
                    out.copy_from_slice(&SuperBlock::parse(self, block).decode(self));
                }
            }
        }
        Ok(())
    }

    /// Where in a block of a format with scales its f16 numbers lie.
    #[must_use]
    pub const fn scale_bytes(self) -> std::ops::Range<usize> {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 0..0,
            Self::Q4_0 | Self::Q5_0 | Self::Q8_0 | Self::Iq4Nl => 0..2,
            Self::Q4_1 | Self::Q5_1 | Self::Q4K | Self::Q5K => 0..4,
            Self::Q2K => 80..84,
            Self::Q3K => 108..110,
            Self::Q6K => 208..210,
        }
    }

    /// Whether all weights of whole blocks are finite: of formats with scales these decide.
    #[must_use]
    pub fn is_finite(self, bytes: &[u8]) -> bool {
        // Branch-free over a run, so that the scan vectorises.
        let halves = |mask: u16, bytes: &[u8]| {
            bytes.chunks_exact(2).fold(true, |ok, b| ok & (u16::from_le_bytes([b[0], b[1]]) & mask != mask))
        };
        match self {
            Self::F32 => {
                let ok = |b: &[u8]| u16::from_le_bytes([b[2], b[3]]) & 0x7f80 != 0x7f80;
                bytes.chunks_exact(4).fold(true, |all, b| all & ok(b))
            }
            Self::Bf16 => halves(0x7f80, bytes),
            Self::F16 => halves(0x7c00, bytes),
            _ => {
                let block = usize::try_from(self.block_bytes()).expect("a block is small");
                bytes.chunks_exact(block).all(|b| halves(0x7c00, &b[self.scale_bytes()]))
            }
        }
    }
}

fn blocks(bytes: &[u8], size: usize, out: &mut [f32], weight: impl Fn(&[u8], usize) -> f32) {
    for (block, out) in bytes.chunks_exact(size).zip(out.chunks_exact_mut(32)) {
        for (i, o) in out.iter_mut().enumerate() {
            *o = weight(block, i);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scan_finds_what_decode_shows() {
        for format in BlockFormat::ALL {
            let size = usize::try_from(format.row_bytes(512).unwrap()).unwrap();
            let second = size - usize::try_from(format.block_bytes()).unwrap();
            // Every 16 bits in turn become a NaN.
            for at in (second..size).step_by(2) {
                let mut bytes = vec![0x11_u8; size];
                assert!(format.is_finite(&bytes), "{}", format.name());
                bytes[at..at + 2].copy_from_slice(&[0xff, 0x7f]);
                let mut out = [0.0; 512];
                format.decode(&bytes, &mut out).unwrap();
                let decoded = out.iter().all(|w| w.is_finite());
                // The low half of a float is only digits.
                assert_eq!(format.is_finite(&bytes), decoded, "{} at {at}", format.name());
            }
        }
    }
}
