//! Weight formats: their names, sizes and CPU decode. How a format lies in GPU memory is `kernels::layout`'s.

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
}

impl BlockFormat {
    /// All formats that the kernels compute with.
    pub const ALL: [Self; 8] =
        [Self::F32, Self::F16, Self::Bf16, Self::Q4_0, Self::Q4_1, Self::Q5_0, Self::Q5_1, Self::Q8_0];

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
        }
    }

    /// Weights in one block of the file.
    #[must_use]
    pub const fn block_weights(self) -> u64 {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            _ => 32,
        }
    }

    /// Bytes of one block of the file.
    #[must_use]
    pub const fn block_bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
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
        }
        Ok(())
    }
}

fn blocks(bytes: &[u8], size: usize, out: &mut [f32], weight: impl Fn(&[u8], usize) -> f32) {
    for (block, out) in bytes.chunks_exact(size).zip(out.chunks_exact_mut(32)) {
        for (i, o) in out.iter_mut().enumerate() {
            *o = weight(block, i);
        }
    }
}
