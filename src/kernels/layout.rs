//! The packed layout of weights in GPU memory, and the repacking from a file's rows.
//!
//! A matrix `[rows, k]` becomes up to three planes of words. Rows are taken in groups of [`GROUP_ROWS`], K in blocks of 32:
//!
//! ```text
//! codes  [group][block][v][row in group] vec4<u32>   v < code_vectors(format): the block's weights at their bits
//! scales [group][block][row in group]    u32         f16 d in the low half, f16 m in the high half (block formats only)
//! high   [group][block][row in group]    u32         fifth bits, weight k at bit k (5-bit formats only)
//! ```
//!
//! Neighbouring lanes take neighbouring rows, so their loads join into one run, and each lane walks K alone.
//! Rows are padded to whole groups and K to whole blocks, with zeros.

use crate::error::{Error, Result};
use crate::format::block::BlockFormat;
use crate::limits::{BLOCK_WEIGHTS, GROUP_ROWS};
use crate::recording::BufferId;

/// A packed matrix, or a run of its rows: one binding a plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed {
    /// Stored format.
    pub format: BlockFormat,
    /// Rows of the matrix (columns of its product), not padded.
    pub rows: u32,
    /// Weights in a row, not padded.
    pub k: u32,
    /// Plane of codes.
    pub codes: BufferId,
    /// Plane of scales; any small buffer for float formats.
    pub scales: BufferId,
    /// Plane of fifth bits; any small buffer for other formats.
    pub high: BufferId,
}

/// `vec4<u32>` of codes a block of 32 weights.
#[must_use]
pub const fn code_vectors(format: BlockFormat) -> u32 {
    match format {
        BlockFormat::Q4_0 | BlockFormat::Q4_1 | BlockFormat::Q5_0 | BlockFormat::Q5_1 => 1,
        BlockFormat::Q8_0 => 2,
        BlockFormat::F16 | BlockFormat::Bf16 => 4,
        BlockFormat::F32 => 8,
    }
}

/// Whether the format has a plane of scales.
#[must_use]
pub const fn has_scales(format: BlockFormat) -> bool {
    !matches!(format, BlockFormat::F32 | BlockFormat::F16 | BlockFormat::Bf16)
}

/// Whether the scale comes with a minimum.
#[must_use]
pub const fn has_minimum(format: BlockFormat) -> bool {
    matches!(format, BlockFormat::Q4_1 | BlockFormat::Q5_1)
}

/// Whether the format has a plane of fifth bits.
#[must_use]
pub const fn has_high(format: BlockFormat) -> bool {
    matches!(format, BlockFormat::Q5_0 | BlockFormat::Q5_1)
}

/// Bytes of the three planes of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaneBytes {
    /// Plane of codes.
    pub codes: u64,
    /// Plane of scales, 0 for none.
    pub scales: u64,
    /// Plane of fifth bits, 0 for none.
    pub high: u64,
}

/// Bytes of the planes of `rows` rows of `k` weights.
#[must_use]
pub fn plane_bytes(format: BlockFormat, rows: u32, k: u32) -> PlaneBytes {
    let blocks = u64::from(rows.next_multiple_of(GROUP_ROWS)) * u64::from(k.div_ceil(BLOCK_WEIGHTS));
    PlaneBytes {
        codes: blocks * 16 * u64::from(code_vectors(format)),
        scales: if has_scales(format) { blocks * 4 } else { 0 },
        high: if has_high(format) { blocks * 4 } else { 0 },
    }
}

/// Most rows, in whole groups, whose largest plane stays within `binding_bytes`; at least one group.
#[must_use]
pub fn rows_within(format: BlockFormat, k: u32, binding_bytes: u64) -> u32 {
    let group = plane_bytes(format, GROUP_ROWS, k).codes;
    let groups = (binding_bytes / group).max(1);
    u32::try_from(groups * u64::from(GROUP_ROWS)).unwrap_or(u32::MAX - GROUP_ROWS + 1)
}

/// Words of the planes for a run of whole row groups.
#[derive(Debug, Clone, Default)]
pub struct Planes {
    /// Plane of codes.
    pub codes: Vec<u32>,
    /// Plane of scales.
    pub scales: Vec<u32>,
    /// Plane of fifth bits.
    pub high: Vec<u32>,
}

/// Packs `rows` rows of `k` weights, as the file stores them, into plane words. `rows` may end in a partial group only at
/// the end of the matrix. The result starts at a group boundary: append runs of whole groups one after the other.
///
/// # Errors
/// When `bytes` is not `rows` rows of the format.
pub fn pack(format: BlockFormat, rows: u32, k: u32, bytes: &[u8], out: &mut Planes) -> Result<()> {
    let row_bytes = format.row_bytes(u64::from(k));
    if row_bytes.map(|b| b * u64::from(rows)) != Some(bytes.len() as u64) {
        let expected = format!("{rows} rows of {k} weights in {}", format.name());
        return Err(Error::format("pack weights", expected, format!("{} bytes", bytes.len()), "a tensor"));
    }
    let row_bytes = bytes.len() / rows.max(1) as usize;
    let sizes = plane_bytes(format, rows, k);
    for (plane, bytes) in [(&mut out.codes, sizes.codes), (&mut out.scales, sizes.scales), (&mut out.high, sizes.high)]
    {
        plane.clear();
        plane.resize(usize::try_from(bytes / 4).expect("a chunk fits memory"), 0);
    }
    let (blocks, group_rows) = (k.div_ceil(BLOCK_WEIGHTS) as usize, GROUP_ROWS as usize);
    let vectors = code_vectors(format) as usize;
    for (r, row) in bytes.chunks_exact(row_bytes.max(1)).enumerate() {
        let (group, lane) = (r / group_rows, r % group_rows);
        for block in 0..blocks {
            let at = group * blocks + block;
            let mut codes = [0_u32; 32];
            let (scale, high) = block_words(format, row, block, &mut codes[..vectors * 4]);
            for v in 0..vectors {
                let to = ((at * vectors + v) * group_rows + lane) * 4;
                out.codes[to..to + 4].copy_from_slice(&codes[v * 4..v * 4 + 4]);
            }
            if has_scales(format) {
                out.scales[at * group_rows + lane] = scale;
            }
            if has_high(format) {
                out.high[at * group_rows + lane] = high;
            }
        }
    }
    Ok(())
}

/// Words of one block of a row: codes into `codes`; returns scale and fifth bits.
///
/// 4-bit codes: byte b of word j holds weight 8j + b in its low half and 8j + 4 + b in its high half, so that
/// `w & 0x0f0f0f0f` and `w >> 4 & 0x0f0f0f0f` are four consecutive weights each. 8-bit codes: byte b of word j is weight 4j + b.
fn block_words(format: BlockFormat, row: &[u8], block: usize, codes: &mut [u32]) -> (u32, u32) {
    let word = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    let half = |b: &[u8]| u32::from(u16::from_le_bytes([b[0], b[1]]));
    let nibbles = |qs: &[u8], codes: &mut [u32]| {
        for k in 0..32 {
            let q = u32::from(if k < 16 { qs[k] & 15 } else { qs[k - 16] >> 4 });
            codes[k / 8] |= q << (8 * (k % 4) + 4 * (k / 4 % 2));
        }
    };
    let size = usize::try_from(format.block_bytes()).expect("small");
    match format {
        BlockFormat::F32 | BlockFormat::F16 | BlockFormat::Bf16 => {
            let start = block * 32 * size;
            let bytes = &row[start..row.len().min(start + 32 * size)];
            for (i, chunk) in bytes.chunks(4).enumerate() {
                let mut four = [0; 4];
                four[..chunk.len()].copy_from_slice(chunk);
                codes[i] = u32::from_le_bytes(four);
            }
            (0, 0)
        }
        _ => {
            let b = &row[block * size..(block + 1) * size];
            match format {
                BlockFormat::Q4_0 => nibbles(&b[2..], codes),
                BlockFormat::Q4_1 => nibbles(&b[4..], codes),
                BlockFormat::Q5_0 => nibbles(&b[6..], codes),
                BlockFormat::Q5_1 => nibbles(&b[8..], codes),
                _ => codes.iter_mut().zip(b[2..].chunks_exact(4)).for_each(|(c, q)| *c = word(q)),
            }
            let scale = if has_minimum(format) { word(b) } else { half(b) };
            let high = match format {
                BlockFormat::Q5_0 => word(&b[2..]),
                BlockFormat::Q5_1 => word(&b[4..]),
                _ => 0,
            };
            (scale, high)
        }
    }
}

/// Where the planes of a matrix lie when the twin reads them.
pub(super) struct TwinPlanes<'a> {
    /// Format of the codes.
    pub format: BlockFormat,
    /// Blocks in a row.
    pub blocks: usize,
    /// Plane of codes.
    pub codes: &'a [u32],
    /// Plane of scales.
    pub scales: &'a [u32],
    /// Plane of fifth bits.
    pub high: &'a [u32],
}

impl TwinPlanes<'_> {
    /// The codes of one block as floats before scaling, and its (d, m). Float formats: the weights themselves and (1, 0).
    pub(super) fn block(&self, row: usize, block: usize, out: &mut [f32; 32]) -> (f32, f32) {
        let (group_rows, vectors) = (GROUP_ROWS as usize, code_vectors(self.format) as usize);
        let at = row / group_rows * self.blocks + block;
        let lane = row % group_rows;
        let word = |i: usize| self.codes[((at * vectors + i / 4) * group_rows + lane) * 4 + i % 4];
        let f16 = |bits: u32| half::f16::from_bits(u16::try_from(bits & 0xffff).expect("16 bits")).to_f32();
        for (k, o) in out.iter_mut().enumerate() {
            let nibble = || word(k / 8) >> (8 * (k % 4) + 4 * (k / 4 % 2)) & 15;
            let fifth = || self.high[at * group_rows + lane] >> k << 4 & 16;
            #[allow(clippy::cast_precision_loss, reason = "codes are below 256")]
            let code = |q: u32, zero: f32| q as f32 - zero;
            *o = match self.format {
                BlockFormat::F32 => f32::from_bits(word(k)),
                BlockFormat::F16 => f16(word(k / 2) >> (16 * (k % 2))),
                BlockFormat::Bf16 => f32::from_bits(word(k / 2) >> (16 * (k % 2)) << 16),
                BlockFormat::Q4_0 => code(nibble(), 8.0),
                BlockFormat::Q4_1 => code(nibble(), 0.0),
                BlockFormat::Q5_0 => code(nibble() | fifth(), 16.0),
                BlockFormat::Q5_1 => code(nibble() | fifth(), 0.0),
                BlockFormat::Q8_0 => f32::from(word(k / 4).to_le_bytes()[k % 4].cast_signed()),
            };
        }
        if !has_scales(self.format) {
            return (1.0, 0.0);
        }
        let scale = self.scales[at * group_rows + lane];
        (f16(scale), if has_minimum(self.format) { f16(scale >> 16) } else { 0.0 })
    }
}
