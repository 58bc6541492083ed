//! One launch of a variant over made-up data: what the variant is checked by, against its twin, and timed by.

use crate::error::Result;
use crate::format::block::BlockFormat;
use crate::kernels::kv_page::{KvBlock, Side};
use crate::kernels::layout::{self, Packed, Scales};
use crate::kernels::matmul::Int8;
use crate::kernels::{Kernel, Tape, Tile, attn, gate_act, matmul, padded, quant_act};
use crate::limits::{GROUP_ROWS, PAGE_TOKENS, SPLIT_TOKENS};
use crate::recording::{BufferId, Player, least_nanos};

/// Rows, columns and K of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Rows of a variant for many.
    pub rows: u32,
    /// Rows of the weights.
    pub columns: u32,
    /// Weights in a row.
    pub k: u32,
}

/// A few microseconds of work, with a ragged last tile and two K slices.
pub const SMALL: Size = Size { rows: 11, columns: 70, k: 512 };

/// A launch, and what it reads and writes.
struct Launch {
    tape: Tape,
    buffers: Vec<BufferId>,
    out: BufferId,
    words: u64,
}

/// What `kernel` computes; `None` for kernels that are not tried.
///
/// # Errors
/// The player's.
pub fn outcome(player: &mut dyn Player<Kernel>, kernel: Kernel, size: Size) -> Result<Option<Vec<u32>>> {
    let Some(mut launch) = launch(player, kernel, size)? else { return Ok(None) };
    launch.tape.read(launch.out, 0, launch.words * 4);
    let played = player.submit(&launch.tape).and_then(|ticket| player.wait(ticket));
    launch.buffers.iter().for_each(|&buffer| player.drop_buffer(buffer));
    Ok(Some(played?.words))
}

/// Nanoseconds of one launch; `None` for kernels that are not tried.
///
/// # Errors
/// The player's.
#[allow(clippy::cast_precision_loss, reason = "nanoseconds of a run are far below 2^52")]
pub fn nanos(player: &mut dyn Player<Kernel>, kernel: Kernel, size: Size) -> Result<Option<f64>> {
    const LAUNCHES: u32 = 8;
    const RUNS: u32 = 5;
    let Some(launch) = launch(player, kernel, size)? else { return Ok(None) };
    let mut tape = Tape::new();
    tape.params.clone_from(&launch.tape.params);
    for _ in 0..LAUNCHES {
        tape.commands.extend(launch.tape.commands.iter().cloned());
    }
    let least = least_nanos(player, &tape, RUNS);
    launch.buffers.iter().for_each(|&buffer| player.drop_buffer(buffer));
    Ok(Some(least? as f64 / f64::from(LAUNCHES)))
}

/// Whether an outcome of a trial of `size` is the twin's, as far as roundings and the driver's own exp go. Of cooperative matrices rows
/// of equal activations must also have equal bits, wherever in a tile they lie: else a prompt would depend on how it is cut.
#[must_use]
pub fn agrees(kernel: Kernel, size: Size, got: &[u32], twin: &[u32]) -> bool {
    const RELATIVE: f32 = 2e-3;
    // Both multiply the same halves exactly: what differs is the order of f32 sums, which may also be cut off rather than rounded.
    // Sums kept in halves are off by more.
    const MATRIX_RELATIVE: f32 = 2e-4;
    let is_matrix = matches!(kernel, Kernel::MatmulMatrix(_));
    let relative = if is_matrix { MATRIX_RELATIVE } else { RELATIVE };
    let period = (size.rows * size.columns) as usize;
    let repeats = !is_matrix || got.iter().skip(period).zip(got).all(|(later, earlier)| later == earlier);
    let (got, twin): (&[f32], &[f32]) = (bytemuck::cast_slice(got), bytemuck::cast_slice(twin));
    let largest = twin.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
    let near = |(got, twin): (&f32, &f32)| (got - twin).abs() <= relative * largest;
    repeats && got.len() == twin.len() && got.iter().zip(twin).all(near)
}

/// Numbers of no meaning, the same each time.
struct Numbers(u32);

impl Numbers {
    fn word(&mut self) -> u32 {
        // xorshift32
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }

    /// From -1 to 1.
    #[allow(clippy::cast_precision_loss, reason = "16 bits")]
    fn unit(&mut self) -> f32 {
        (self.word() >> 16) as f32 / 32_768.0 - 1.0
    }

    /// From 0.01 to 0.02, as a half.
    fn scale(&mut self) -> u32 {
        u32::from(half::f16::from_f32(0.015 + 0.005 * self.unit()).to_bits())
    }
}

/// Buffers that go again when one cannot be made.
struct Made<'a> {
    player: &'a mut dyn Player<Kernel>,
    buffers: Vec<BufferId>,
}

impl Made<'_> {
    fn words(&mut self, words: &[u32]) -> Result<BufferId> {
        let buffer = self.player.create_buffer("trial", words.len().max(4) as u64 * 4)?;
        self.buffers.push(buffer);
        self.player.write(buffer, 0, bytemuck::cast_slice(words))?;
        Ok(buffer)
    }

    fn floats(&mut self, count: u64, mut value: impl FnMut() -> f32) -> Result<BufferId> {
        let values: Vec<u32> = (0..count).map(|_| value().to_bits()).collect();
        self.words(&values)
    }
}

fn launch(player: &mut dyn Player<Kernel>, kernel: Kernel, size: Size) -> Result<Option<Launch>> {
    let mut made = Made { player, buffers: Vec::new() };
    let launched = match kernel {
        Kernel::Matmul(shape) => product(&mut made, shape, size).map(Some),
        Kernel::MatmulMatrix(shape) => matrix_product(&mut made, shape, size).map(Some),
        Kernel::AttnPrefill(shape) => attention(&mut made, shape, true).map(Some),
        Kernel::AttnDecode(shape) => attention(&mut made, shape, false).map(Some),
        _ => Ok(None),
    };
    let Made { player, buffers } = made;
    match launched {
        Ok(launched) => Ok(launched.map(|(tape, out, words)| Launch { tape, buffers, out, words })),
        Err(error) => {
            buffers.iter().for_each(|&buffer| player.drop_buffer(buffer));
            Err(error)
        }
    }
}

/// The planes of a matrix of no meaning.
fn weights(made: &mut Made<'_>, format: BlockFormat, rows: u32, k: u32, numbers: &mut Numbers) -> Result<Packed> {
    let bytes = layout::plane_bytes(format, rows, k);
    let words = |bytes: u64| usize::try_from(bytes / 4).expect("a small matrix");
    let codes: Vec<u32> = (0..words(bytes.codes))
        .map(|_| match format {
            BlockFormat::F32 => numbers.unit().to_bits(),
            BlockFormat::F16 => numbers.scale() | numbers.scale() << 16,
            BlockFormat::Bf16 => numbers.unit().to_bits() >> 16 | numbers.unit().to_bits() & 0xffff_0000,
            _ => numbers.word(),
        })
        .collect();
    let scales: Vec<u32> = (0..words(bytes.scales))
        .map(|at| match layout::layout(format).scales {
            // Only the first word of a super-block's holds halves.
            Scales::Super if !(at / GROUP_ROWS as usize).is_multiple_of(layout::SUPER_WORDS as usize) => numbers.word(),
            _ => numbers.scale() | numbers.scale() << 16,
        })
        .collect();
    let high: Vec<u32> = (0..words(bytes.high)).map(|_| numbers.word()).collect();
    let (codes, scales, high) = (made.words(&codes)?, made.words(&scales)?, made.words(&high)?);
    Ok(Packed { format, rows, k, codes, scales, high })
}

fn product(made: &mut Made<'_>, shape: matmul::Shape, size: Size) -> Result<(Tape, BufferId, u64)> {
    let mut numbers = Numbers(0x2545_f491);
    let rows = if shape.rows < 8 { shape.rows.into() } else { size.rows };
    let weight_rows = if shape.gated { 2 * size.columns } else { size.columns };
    let weights = weights(made, shape.format, weight_rows, size.k, &mut numbers)?;
    let x_stride = padded(size.k);
    assert_eq!(x_stride, size.k, "whole blocks");
    let x = made.floats(u64::from(rows * x_stride), || numbers.unit())?;
    let words = u64::from(rows * size.columns);
    let out = made.floats(words, || 0.0)?;
    let mut tape = Tape::new();
    let packed = match shape.int8 {
        Some(Int8::Packed) => {
            let bytes = quant_act::bytes(rows, x_stride);
            let out = made.words(&vec![0; usize::try_from(bytes / 4).expect("a few rows")])?;
            quant_act::record(&mut tape, &quant_act::Args { x, x_stride, out, rows });
            Some(out)
        }
        Some(Int8::Inline) | None => None,
    };
    let norm = match shape.normed {
        true => Some(matmul::Norm { weight: made.floats(x_stride.into(), || numbers.unit())?, eps: 1e-5 }),
        false => None,
    };
    matmul::record_shape(
        &mut tape,
        shape,
        &matmul::Args {
            weights,
            x,
            x_stride,
            packed,
            bias: None,
            bias_start: 0,
            out,
            out_stride: size.columns,
            out_column: 0,
            rows,
            gate: shape.gated.then_some(gate_act::Activation::Silu),
            add: false,
            norm,
        },
    );
    Ok((tape, out, words))
}

/// Rows repeat after `size.rows` of them, over a whole tile and a ragged one.
fn matrix_product(made: &mut Made<'_>, shape: matmul::matrix::Shape, size: Size) -> Result<(Tape, BufferId, u64)> {
    let mut numbers = Numbers(0x2545_f491);
    let rows = size.rows + matmul::matrix::TILE_ROWS;
    let weight_rows = if shape.gated { 2 * size.columns } else { size.columns };
    let weights = weights(made, shape.format, weight_rows, size.k, &mut numbers)?;
    let period: Vec<u32> = (0..size.rows * size.k).map(|_| numbers.unit().to_bits()).collect();
    let x: Vec<u32> = period.iter().copied().cycle().take((rows * size.k) as usize).collect();
    let x = made.words(&x)?;
    let words = u64::from(rows * size.columns);
    let out = made.floats(words, || 0.0)?;
    let mut tape = Tape::new();
    let args = matmul::Args {
        weights,
        x,
        x_stride: size.k,
        packed: None,
        bias: None,
        bias_start: 0,
        out,
        out_stride: size.columns,
        out_column: 0,
        rows,
        gate: shape.gated.then_some(gate_act::Activation::Silu),
        add: false,
        norm: None,
    };
    matmul::matrix::record_shape(&mut tape, shape, &args, 0);
    Ok((tape, out, words))
}

/// Keys of one sequence that fill a split and some of the next.
fn attention(made: &mut Made<'_>, shape: attn::Shape, prefill: bool) -> Result<(Tape, BufferId, u64)> {
    let mut numbers = Numbers(0x1234_5679);
    let head_dim = u32::from(shape.head_dim);
    // Two KV heads, each with two heads of queries.
    let (heads, kv_heads, group) = (4, 2, 2);
    let tokens = if prefill { attn::tile_tokens(shape, group) } else { 1 };
    let position = SPLIT_TOKENS + 9;
    let pages = (position + tokens).div_ceil(PAGE_TOKENS);
    let q = made.floats(u64::from(tokens * heads * head_dim), || 2.0 * numbers.unit())?;
    let [k_pages, v_pages] = [Side::K, Side::V].map(|side| {
        let block = KvBlock::new(shape.kv, side, head_dim);
        let mut words = vec![0; block.words() * (pages * kv_heads) as usize];
        for one in words.chunks_exact_mut(block.words()) {
            for token in 0..PAGE_TOKENS as usize {
                let head: Vec<f32> = (0..head_dim).map(|_| numbers.unit()).collect();
                block.write(one, token, &head);
            }
        }
        words
    });
    let (k_pages, v_pages) = (made.words(&k_pages)?, made.words(&v_pages)?);
    let tables = made.words(&(0..pages).rev().collect::<Vec<_>>())?;
    let tile = Tile { row: 0, rows: tokens, slot: 0, position };
    let tiles = made.words(bytemuck::cast_slice(&[tile]))?;
    let parts = made.floats(u64::from(heads * attn::splits(position + 1) * (head_dim + 2)), || 0.0)?;
    let out_stride = padded(heads * head_dim);
    let words = u64::from(tokens * out_stride);
    let out = made.floats(words, || 0.0)?;
    let softcap = if shape.capped { 5.0 } else { 0.0 };
    let geometry = attn::Geometry { heads, kv_heads, head_dim, scale: 0.125, softcap, window: 0 };
    let buffers = attn::Buffers { q, k_pages, v_pages, tables, tiles, parts, out };
    let mut tape = Tape::new();
    if prefill {
        attn::record_prefill(&mut tape, shape, geometry, buffers, pages, 0, 1);
    } else {
        attn::record_decode(&mut tape, shape, geometry, buffers, pages, 0, 1, attn::splits(position + 1));
    }
    Ok((tape, out, words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::variants;
    use crate::twin::Twin;

    #[test]
    fn matrices_must_sum_in_floats_and_take_all_rows_alike() {
        for gated in [false, true] {
            let kernel = Kernel::MatmulMatrix(matmul::matrix::Shape { format: BlockFormat::Q4_1, size: 16, gated });
            let twin = outcome(&mut Twin::new(), kernel, SMALL).unwrap().expect("a trial");
            assert!(agrees(kernel, SMALL, &twin, &twin));
            let halves = |word: &u32| half::f16::from_f32(f32::from_bits(*word)).to_f32().to_bits();
            let rounded: Vec<u32> = twin.iter().map(halves).collect();
            assert!(!agrees(kernel, SMALL, &rounded, &twin), "sums rounded to halves, gated {gated}");
            let mut uneven = twin.clone();
            let last = uneven.len() - 1;
            uneven[last] += 1;
            assert!(!agrees(kernel, SMALL, &uneven, &twin), "a row of its own, gated {gated}");
            let mut wrong = twin.clone();
            wrong.iter_mut().for_each(|word| *word ^= 1 << 31);
            assert!(!agrees(kernel, SMALL, &wrong, &twin), "turned signs, gated {gated}");
        }
    }

    #[test]
    fn every_variant_with_a_choice_has_a_trial_whose_outcome_is_no_constant() {
        let tried = variants::all().into_iter().filter(|kernel| kernel.class().is_some());
        // One of each kind is enough here: the twin plays all alike.
        for kernel in tried.step_by(37) {
            let outcome = outcome(&mut Twin::new(), kernel, SMALL).unwrap().expect("a trial");
            // Of matrices, rows repeat behind these.
            let period = outcome.len().min((SMALL.rows * SMALL.columns) as usize);
            let floats: &[f32] = bytemuck::cast_slice(&outcome[..period]);
            assert!(floats.iter().all(|x| x.is_finite()), "{kernel:?}");
            let distinct: std::collections::BTreeSet<u32> = outcome.iter().copied().collect();
            assert!(distinct.len() > floats.len() / 2, "{kernel:?}: {} of {}", distinct.len(), floats.len());
        }
    }
}
