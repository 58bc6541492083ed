//! The super-blocks of llama.cpp's K-quants, taken apart: 256 weights behind one f16 scale, each 16 or 32 of them with a small
//! integer scale of their own.
//!
//! ```text
//! w = (d · scale) · (code - zero)  -  dmin · minimum          each factor rounded to f32, in this order
//! ```
//!
//! Whoever decodes on the CPU and whoever repacks for the GPU reads the same parts. Source: ggml-quants.c and gguf-py's quants.py.

use super::block::BlockFormat;

/// Weights of a super-block.
pub const SUPER_WEIGHTS: usize = 256;

/// One super-block in parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuperBlock {
    /// f16 bits of the scale of scales.
    pub d: u16,
    /// f16 bits of the scale of minima, 0 where there are none.
    pub dmin: u16,
    /// Scale of each part; parts are of 16 or 32 weights.
    pub scales: [i8; 16],
    /// Minimum of each part.
    pub minima: [u8; 16],
    /// Codes, weight by weight.
    pub codes: [u8; SUPER_WEIGHTS],
}

/// What is taken off each code.
#[must_use]
pub const fn zero(format: BlockFormat) -> u8 {
    match format {
        BlockFormat::Q3K => 4,
        BlockFormat::Q6K => 32,
        _ => 0,
    }
}

impl SuperBlock {
    /// Takes the bytes of one super-block apart.
    ///
    /// # Panics
    /// When `format` is no K-quant or `b` is not one block of it.
    #[must_use]
    pub fn parse(format: BlockFormat, b: &[u8]) -> Self {
        assert_eq!(b.len() as u64, format.block_bytes(), "a block of {}", format.name());
        let mut block = Self { d: 0, dmin: 0, scales: [0; 16], minima: [0; 16], codes: [0; SUPER_WEIGHTS] };
        let f16 = |at: usize| u16::from_le_bytes([b[at], b[at + 1]]);
        let mut code = |of: &dyn Fn(usize) -> u8| block.codes.iter_mut().enumerate().for_each(|(k, q)| *q = of(k));
        match format {
            BlockFormat::Q2K => {
                code(&|k| two_bits(&b[16..80], k));
                for (i, s) in b[..16].iter().enumerate() {
                    (block.scales[i], block.minima[i]) = ((s & 15).cast_signed(), s >> 4);
                }
                (block.d, block.dmin) = (f16(80), f16(82));
            }
            BlockFormat::Q3K => {
                code(&|k| two_bits(&b[32..96], k) | (b[k % 32] >> (k / 32) & 1) << 2);
                let s = &b[96..108];
                for i in 0..16 {
                    let low = if i < 8 { s[i] & 15 } else { s[i - 8] >> 4 };
                    let high = s[8 + i % 4] >> (2 * (i / 4)) & 3;
                    block.scales[i] = (low | high << 4).cast_signed() - 32;
                }
                block.d = f16(108);
            }
            BlockFormat::Q4K => {
                code(&|k| nibble(&b[16..144], k));
                block.six_bits(&b[4..16]);
                (block.d, block.dmin) = (f16(0), f16(2));
            }
            BlockFormat::Q5K => {
                code(&|k| nibble(&b[48..176], k) | (b[16 + k % 32] >> (k / 32) & 1) << 4);
                block.six_bits(&b[4..16]);
                (block.d, block.dmin) = (f16(0), f16(2));
            }
            BlockFormat::Q6K => {
                code(&|k| {
                    let (half, quarter, l) = (k / 128, k % 128 / 32, k % 32);
                    let low = b[64 * half + 32 * (quarter % 2) + l] >> (4 * (quarter / 2)) & 15;
                    low | (b[128 + 32 * half + l] >> (2 * quarter) & 3) << 4
                });
                block.scales.iter_mut().zip(&b[192..208]).for_each(|(scale, byte)| *scale = byte.cast_signed());
                block.d = f16(208);
            }
            _ => panic!("{} has no super-blocks", format.name()),
        }
        block
    }

    /// Eight scales and eight minima of 6 bits each.
    fn six_bits(&mut self, s: &[u8]) {
        for i in 0..4 {
            (self.scales[i], self.minima[i]) = ((s[i] & 63).cast_signed(), s[i + 4] & 63);
            self.scales[i + 4] = (s[i + 8] & 15 | s[i] >> 6 << 4).cast_signed();
            self.minima[i + 4] = s[i + 8] >> 4 | s[i + 4] >> 6 << 4;
        }
    }

    /// The weights.
    #[must_use]
    pub fn decode(&self, format: BlockFormat) -> [f32; SUPER_WEIGHTS] {
        let f16 = |bits: u16| half::f16::from_bits(bits).to_f32();
        let (d, dmin) = (f16(self.d), f16(self.dmin));
        std::array::from_fn(|k| {
            let part = k / usize::try_from(format.part_weights()).expect("small");
            let code = f32::from(self.codes[k]) - f32::from(zero(format));
            let scaled = (d * f32::from(self.scales[part])) * code;
            if format.has_minimum() { scaled - dmin * f32::from(self.minima[part]) } else { scaled }
        })
    }
}

/// Code `k` of 2 bits: four weights 32 apart share a byte.
fn two_bits(qs: &[u8], k: usize) -> u8 {
    qs[32 * (k / 128) + k % 32] >> (2 * (k % 128 / 32)) & 3
}

/// Code `k` of 4 bits: two weights 32 apart share a byte.
fn nibble(qs: &[u8], k: usize) -> u8 {
    qs[32 * (k / 64) + k % 32] >> (4 * (k % 64 / 32)) & 15
}
