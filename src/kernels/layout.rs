//! The packed layout of weights in GPU memory, and the repacking from a file's rows.
//!
//! A matrix `[rows, k]` becomes up to three planes of words. Rows are taken in groups of [`GROUP_ROWS`], K in blocks of 32:
//!
//! ```text
//! codes  [group][block][v][row in group]   vec4<u32>  v < code_words / 4: the block's weights at their bits; of 2-bit codes two
//!                                                     neighbouring blocks share a vec4
//! scales [group][block][row in group]      u32        f16 d in the low half, f16 m in the high half
//!     or [group][super-block][5][row in group] u32    f16 d and f16 dmin; then 16 bits a block of 32 for its scales and minima
//! high   [group][block][h][row in group]   u32        h < high_words: bits above those of the codes
//! ```
//!
//! 4-bit codes: byte b of word j holds weight 8j + b in its low half and 8j + 4 + b in its high half, so that `w & 0x0f0f0f0f` and
//! `w >> 4 & 0x0f0f0f0f` are four consecutive weights each. 2-bit codes, and two high bits, alike: byte b of word j holds weight
//! 16j + 4i + b at bit 2i. 8-bit codes: byte b of word j is weight 4j + b. One high bit: weight k at bit k.
//!
//! The 16 bits of a block in a super-block: a scale in the low byte and a minimum in the high one (Q4_K, Q5_K); two signed scales of
//! 16 weights each (Q3_K, Q6_K); two bytes for 16 weights each, scale in the low half, minimum in the high one (Q2_K).
//!
//! Neighbouring lanes take neighbouring rows, so their loads join into one run, and each lane walks K alone.
//! Rows are padded to whole groups and K to whole blocks, with zeros.

use crate::error::{Error, Result};
use crate::format::block::{BlockFormat, IQ4_NL_VALUES};
use crate::format::k_quants::SuperBlock;
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
    /// Plane of high bits; any small buffer for formats without.
    pub high: BufferId,
}

/// Where the scales of a format lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scales {
    /// There are none.
    None,
    /// One word a block of 32.
    Block,
    /// [`SUPER_WORDS`] a super-block.
    Super,
}

/// How a format lies in the planes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Words of codes a block of 32 weights: 2, 4, 8, 16 or 32.
    pub code_words: u32,
    /// Words of high bits a block: 0, 1 or 2.
    pub high_words: u32,
    /// Where its scales lie.
    pub scales: Scales,
}

/// Words of scales a super-block.
pub const SUPER_WORDS: u32 = 5;
/// Blocks of a super-block.
pub const SUPER_BLOCKS: u32 = 8;

/// How `format` lies in the planes.
#[must_use]
pub const fn layout(format: BlockFormat) -> Layout {
    let (code_words, high_words, scales) = match format {
        BlockFormat::F32 => (32, 0, Scales::None),
        BlockFormat::F16 | BlockFormat::Bf16 => (16, 0, Scales::None),
        BlockFormat::Q8_0 => (8, 0, Scales::Block),
        BlockFormat::Q4_0 | BlockFormat::Q4_1 | BlockFormat::Iq4Nl => (4, 0, Scales::Block),
        BlockFormat::Q5_0 | BlockFormat::Q5_1 => (4, 1, Scales::Block),
        BlockFormat::Q2K => (2, 0, Scales::Super),
        BlockFormat::Q3K => (2, 1, Scales::Super),
        BlockFormat::Q4K => (4, 0, Scales::Super),
        BlockFormat::Q5K => (4, 1, Scales::Super),
        BlockFormat::Q6K => (4, 2, Scales::Super),
    };
    Layout { code_words, high_words, scales }
}

/// What the shaders' templates know of a format.
pub(super) fn constants(format: BlockFormat) -> minijinja::Value {
    let Layout { code_words, high_words, scales } = layout(format);
    minijinja::context! {
        format => format.name(), code_words, high_words,
        vectors => code_words.div_ceil(4),
        scales => match scales {
            Scales::None => "none",
            Scales::Block => "block",
            Scales::Super => "super",
        },
        has_minimum => format.has_minimum(),
        parts => parts(format),
    }
}

/// Scales a block of 32 weights, 0 for formats without.
#[must_use]
pub const fn parts(format: BlockFormat) -> u32 {
    match (format.has_scales(), format.part_weights()) {
        (false, _) => 0,
        (true, 16) => 2,
        (true, _) => 1,
    }
}

/// Bytes of the three planes of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaneBytes {
    /// Plane of codes.
    pub codes: u64,
    /// Plane of scales, 0 for none.
    pub scales: u64,
    /// Plane of high bits, 0 for none.
    pub high: u64,
}

/// Bytes of the planes of `rows` rows of `k` weights.
#[must_use]
pub fn plane_bytes(format: BlockFormat, rows: u32, k: u32) -> PlaneBytes {
    let Layout { code_words, high_words, scales } = layout(format);
    let blocks = u64::from(rows.next_multiple_of(GROUP_ROWS)) * u64::from(k.div_ceil(BLOCK_WEIGHTS));
    PlaneBytes {
        codes: blocks * 4 * u64::from(code_words),
        scales: match scales {
            Scales::None => 0,
            Scales::Block => blocks * 4,
            Scales::Super => blocks / u64::from(SUPER_BLOCKS) * 4 * u64::from(SUPER_WORDS),
        },
        high: blocks * 4 * u64::from(high_words),
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
    /// Plane of high bits.
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
    let mut place = Place { layout: layout(format), blocks: k.div_ceil(BLOCK_WEIGHTS) as usize, row: 0 };
    let step = if place.layout.scales == Scales::Super { SUPER_BLOCKS as usize } else { 1 };
    for (r, row) in bytes.chunks_exact(row_bytes.max(1)).enumerate() {
        place.row = r;
        for block in (0..place.blocks).step_by(step) {
            match place.layout.scales {
                Scales::None => float_words(format, row, block, &place, out),
                Scales::Block => block_words(format, row, block, &place, out),
                Scales::Super => super_words(format, row, block, &place, out),
            }
        }
    }
    Ok(())
}

/// Where words of a row lie in the planes.
struct Place {
    layout: Layout,
    /// Blocks in a row.
    blocks: usize,
    row: usize,
}

impl Place {
    /// Index of word `word` of a run of `words` in a plane that has one run a block (or whatever `unit` counts).
    fn at(&self, units: usize, unit: usize, words: usize, word: usize) -> usize {
        let group_rows = GROUP_ROWS as usize;
        ((self.row / group_rows * units + unit) * words + word) * group_rows + self.row % group_rows
    }

    fn code(&self, block: usize, word: usize) -> usize {
        let words = self.layout.code_words as usize;
        // A vec4 holds the words of this many blocks.
        let shared = (4 / words).max(1);
        let word = block % shared * words + word;
        self.at(self.blocks / shared, block / shared, words.div_ceil(4), word / 4) * 4 + word % 4
    }

    fn high(&self, block: usize, word: usize) -> usize {
        self.at(self.blocks, block, self.layout.high_words as usize, word)
    }

    fn scale(&self, block: usize) -> usize {
        self.at(self.blocks, block, 1, 0)
    }

    /// Word `word` of the super-block that holds `block`.
    fn super_scale(&self, block: usize, word: usize) -> usize {
        let each = SUPER_BLOCKS as usize;
        self.at(self.blocks / each, block / each, SUPER_WORDS as usize, word)
    }
}

fn float_words(format: BlockFormat, row: &[u8], block: usize, place: &Place, out: &mut Planes) {
    let size = usize::try_from(format.block_bytes()).expect("small");
    let start = block * 32 * size;
    let bytes = &row[start..row.len().min(start + 32 * size)];
    for (i, chunk) in bytes.chunks(4).enumerate() {
        let mut four = [0; 4];
        four[..chunk.len()].copy_from_slice(chunk);
        out.codes[place.code(block, i)] = u32::from_le_bytes(four);
    }
}

/// Where in its word code `k` of `bits` bits lies: (word, shift).
const fn code_place(bits: usize, k: usize) -> (usize, usize) {
    let a_word = 32 / bits;
    (k / a_word, 8 * (k % 4) + bits * (k % a_word / 4))
}

fn block_words(format: BlockFormat, row: &[u8], block: usize, place: &Place, out: &mut Planes) {
    let word = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    let size = usize::try_from(format.block_bytes()).expect("small");
    let b = &row[block * size..(block + 1) * size];
    // Where fifth bits and codes begin.
    let (high, codes) = match format {
        BlockFormat::Q5_0 => (2, 6),
        BlockFormat::Q5_1 => (4, 8),
        BlockFormat::Q4_1 => (0, 4),
        _ => (0, 2),
    };
    if format == BlockFormat::Q8_0 {
        for (i, q) in b[2..].chunks_exact(4).enumerate() {
            out.codes[place.code(block, i)] = word(q);
        }
    } else {
        let qs = &b[codes..];
        for k in 0..32 {
            let q = u32::from(if k < 16 { qs[k] & 15 } else { qs[k - 16] >> 4 });
            let (at, shift) = code_place(4, k);
            out.codes[place.code(block, at)] |= q << shift;
        }
    }
    out.scales[place.scale(block)] = if format.has_minimum() { word(b) } else { word(b) & 0xffff };
    if place.layout.high_words > 0 {
        out.high[place.high(block, 0)] = word(&b[high..]);
    }
}

/// All blocks of the super-block that begins with `block`.
fn super_words(format: BlockFormat, row: &[u8], block: usize, place: &Place, out: &mut Planes) {
    let size = usize::try_from(format.block_bytes()).expect("small");
    let from = block / SUPER_BLOCKS as usize * size;
    let parsed = SuperBlock::parse(format, &row[from..from + size]);
    let Layout { code_words, high_words, .. } = place.layout;
    // Of a code: bits that lie in the plane of codes, and bits above them.
    let (low_bits, high_bits) = (code_words as usize, high_words as usize);
    for (k, &code) in parsed.codes.iter().enumerate() {
        let (block, k, code) = (block + k / 32, k % 32, u32::from(code));
        let (at, shift) = code_place(low_bits, k);
        out.codes[place.code(block, at)] |= (code & ((1 << low_bits) - 1)) << shift;
        if high_bits > 0 {
            let (at, shift) = if high_bits == 1 { (0, k) } else { code_place(high_bits, k) };
            out.high[place.high(block, at)] |= code >> low_bits << shift;
        }
    }
    out.scales[place.super_scale(block, 0)] = u32::from(parsed.d) | u32::from(parsed.dmin) << 16;
    for i in 0..SUPER_BLOCKS as usize {
        let scale = |part: usize| u32::from(parsed.scales[part].cast_unsigned());
        let minimum = |part: usize| u32::from(parsed.minima[part]);
        let bits = match (parts(format), format.has_minimum()) {
            (1, _) => scale(i) | minimum(i) << 8,
            (_, false) => scale(2 * i) | scale(2 * i + 1) << 8,
            (_, true) => scale(2 * i) | minimum(2 * i) << 4 | scale(2 * i + 1) << 8 | minimum(2 * i + 1) << 12,
        };
        out.scales[place.super_scale(block, 1 + i / 2)] |= bits << (16 * (i % 2));
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
    /// Plane of high bits.
    pub high: &'a [u32],
}

/// A block as the twin reads it.
pub(super) struct TwinBlock {
    /// Codes before scaling; of float formats the weights themselves.
    pub codes: [f32; 32],
    /// What the first and the last 16 codes are multiplied with; 1 for float formats.
    pub d: [f32; 2],
    /// What is added to them then.
    pub m: [f32; 2],
}

impl TwinPlanes<'_> {
    /// One block of a row.
    pub(super) fn block(&self, row: usize, block: usize) -> TwinBlock {
        let place = Place { layout: layout(self.format), blocks: self.blocks, row };
        let word = |i: usize| self.codes[place.code(block, i)];
        let high = |i: usize| self.high[place.high(block, i)];
        let low = |k: usize| {
            let bits = place.layout.code_words as usize;
            let (at, shift) = code_place(bits, k);
            word(at) >> shift & ((1 << bits) - 1)
        };
        let one_high = |k: usize| high(0) >> k & 1;
        let two_high = |k: usize| {
            let (at, shift) = code_place(2, k);
            high(at) >> shift & 3
        };
        #[allow(clippy::cast_precision_loss, reason = "codes are below 256")]
        let code = |q: u32, zero: f32| q as f32 - zero;
        let codes = std::array::from_fn(|k| match self.format {
            BlockFormat::F32 => f32::from_bits(word(k)),
            BlockFormat::F16 => f16(word(k / 2) >> (16 * (k % 2))),
            BlockFormat::Bf16 => f32::from_bits(word(k / 2) >> (16 * (k % 2)) << 16),
            BlockFormat::Q4_0 => code(low(k), 8.0),
            BlockFormat::Q4_1 | BlockFormat::Q2K | BlockFormat::Q4K => code(low(k), 0.0),
            BlockFormat::Q5_0 => code(low(k) | one_high(k) << 4, 16.0),
            BlockFormat::Q5_1 | BlockFormat::Q5K => code(low(k) | one_high(k) << 4, 0.0),
            BlockFormat::Q8_0 => f32::from(low(k).to_le_bytes()[0].cast_signed()),
            BlockFormat::Iq4Nl => f32::from(IQ4_NL_VALUES[low(k) as usize]),
            BlockFormat::Q3K => code(low(k) | one_high(k) << 2, 4.0),
            BlockFormat::Q6K => code(low(k) | two_high(k) << 4, 32.0),
        });
        let (d, m) = self.scales(&place, block);
        TwinBlock { codes, d, m }
    }

    /// Scales and minima of the halves of a block.
    fn scales(&self, place: &Place, block: usize) -> ([f32; 2], [f32; 2]) {
        match place.layout.scales {
            Scales::None => ([1.0; 2], [0.0; 2]),
            Scales::Block => {
                let word = self.scales[place.scale(block)];
                ([f16(word); 2], [if self.format.has_minimum() { f16(word >> 16) } else { 0.0 }; 2])
            }
            Scales::Super => {
                let both = self.scales[place.super_scale(block, 0)];
                let (d, dmin) = (f16(both), f16(both >> 16));
                let in_super = block % SUPER_BLOCKS as usize;
                let bits = self.scales[place.super_scale(block, 1 + in_super / 2)] >> (16 * (in_super % 2));
                let [low, high, ..] = bits.to_le_bytes();
                let of = |scale: u8, minimum: u8| (d * f32::from(scale), -(dmin * f32::from(minimum)));
                let halves = match (parts(self.format), self.format.has_minimum()) {
                    (1, _) => [of(low, high); 2],
                    (_, true) => [low, high].map(|byte| of(byte & 15, byte >> 4)),
                    (_, false) => [low, high].map(|byte| (d * f32::from(byte.cast_signed()), 0.0)),
                };
                (halves.map(|half| half.0), halves.map(|half| half.1))
            }
        }
    }
}

fn f16(bits: u32) -> f32 {
    half::f16::from_bits(u16::try_from(bits & 0xffff).expect("16 bits")).to_f32()
}
