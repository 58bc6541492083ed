//! The CPU twin of products: the same slices, each column in canonical order. Multiplies, then adds, as software drivers do with
//! `fma`; of bytes all sums within a block are exact.

use std::borrow::Cow;

use super::{Int8, Params, Shape};
use crate::format::block::BlockFormat;
use crate::kernels::layout::{self, TwinPlanes};
use crate::kernels::{floats, floats_mut, gate_act, quant_act, rms_norm};

/// Columns that the twin computes side by side; they vectorise, and the order of each stays canonical.
const TWIN_COLUMNS: usize = 8;

pub(in crate::kernels) fn twin(shape: Shape, params: &[u8], grid: [u32; 3], mem: &mut [Vec<u32>]) {
    let p = Params::read(params);
    let gates = if shape.gated { 2 } else { 1 };
    let columns_a_tile = u32::from(shape.cols) * u32::from(shape.lanes) / gates;
    assert!(shape.normed || grid[0] * grid[1] >= p.tiles, "grid {grid:?} for {} tiles", p.tiles);
    assert!(grid[0] > 0 && p.grid_x == grid[0], "grid {grid:?}");
    assert!(p.row_tiles * u32::from(shape.rows) >= p.rows, "rows not covered");
    assert!(p.tiles / p.row_tiles * columns_a_tile >= p.columns, "columns not covered");
    let (inputs, outputs) = mem.split_at_mut(5);
    let planes = TwinPlanes {
        format: shape.format,
        blocks: p.blocks as usize,
        codes: &inputs[0],
        scales: &inputs[1],
        high: &inputs[2],
    };
    let (out, norm) = outputs.split_at_mut(1);
    let x = twin_x(shape, &p, &inputs[3], norm.first().map(Vec::as_slice));
    let bias = if p.has_bias == 0 { &[] } else { &floats(&inputs[4])[p.bias_start as usize..] };
    let columns = p.columns as usize;
    let width = columns * gates as usize;
    let y = shared_columns(p.rows as usize, width, &|range| twin_columns(&planes, &p, &x, bias, range));
    let out = floats_mut(&mut out[0]);
    for (row, y) in y.chunks_exact(width).enumerate() {
        let to = row * p.out_stride as usize + p.out_column as usize;
        finish_row(y, &mut out[to..to + columns], shape.gated, p.gelu != 0, p.add != 0);
    }
}

/// From a row's sums to its columns of the output: the gate's activation times ups, or the sums, replacing or adding.
pub(super) fn finish_row(y: &[f32], out: &mut [f32], gated: bool, gelu: bool, add: bool) {
    let (gate, up) = y.split_at(out.len());
    for (n, out) in out.iter_mut().enumerate() {
        *out = match (gated, add) {
            (true, _) => gate_act::twin_act(gate[n], gelu) * up[n],
            (false, false) => gate[n],
            (false, true) => *out + gate[n],
        };
    }
}

/// Activations as a product takes them.
struct TwinX<'a> {
    /// `[rows, stride]`.
    values: Cow<'a, [f32]>,
    stride: usize,
    /// What the values of each block are multiplied with; empty where that is 1.
    scales: Vec<f32>,
}

fn twin_x<'a>(shape: Shape, p: &Params, x: &'a [u32], norm: Option<&[u32]>) -> TwinX<'a> {
    if shape.int8 == Some(Int8::Packed) {
        let quant_act::Quantized { codes, scales } = quant_act::twin_read(x);
        let stride = p.x_stride_vectors as usize * 4 / quant_act::BLOCK_WORDS as usize * 32;
        return TwinX { values: codes.into(), stride, scales };
    }
    let (x, stride) = (floats(x), p.x_stride_vectors as usize * 4);
    let mut values: Cow<'_, [f32]> = match norm {
        Some(weight) => rms_norm::twin_row(&x[..stride], floats(weight), p.dim, p.eps).into(),
        None => x.into(),
    };
    let mut scales = Vec::new();
    if shape.int8 == Some(Int8::Inline) {
        let quant_act::Quantized { codes, scales: each } = quant_act::twin_blocks(&values);
        (values, scales) = (codes.into(), each);
    }
    TwinX { values, stride, scales }
}

/// `[rows, width]`: all columns, shared between threads. `columns` computes a range of them, `[rows, range]`.
pub(super) fn shared_columns(
    rows: usize,
    width: usize,
    columns: &(dyn Fn(std::ops::Range<usize>) -> Vec<f32> + Sync),
) -> Vec<f32> {
    let threads = thread_count(width);
    let share = width.div_ceil(TWIN_COLUMNS).div_ceil(threads) * TWIN_COLUMNS;
    let mut parts: Vec<Vec<f32>> = (0..threads).map(|_| Vec::new()).collect();
    let range = |i: usize| (i * share).min(width)..((i + 1) * share).min(width);
    let work = |i: usize, part: &mut Vec<f32>| *part = columns(range(i));
    if threads == 1 {
        work(0, &mut parts[0]);
        return parts.swap_remove(0);
    }
    std::thread::scope(|scope| {
        for (i, part) in parts.iter_mut().enumerate() {
            scope.spawn(move || work(i, part));
        }
    });
    let mut out = vec![0.0; rows * width];
    for (i, part) in parts.iter().enumerate() {
        let range = range(i);
        for (row, values) in part.chunks_exact(range.len().max(1)).enumerate() {
            out[row * width..][range.clone()].copy_from_slice(values);
        }
    }
    out
}

fn thread_count(columns: usize) -> usize {
    if columns < 256 {
        return 1;
    }
    // In a page, which has no threads, this is an error.
    std::thread::available_parallelism().map_or(1, usize::from).min(16)
}

/// Results of a range of columns, `[rows, range]`. Multiply, then add: what software drivers make of `fma`.
#[allow(clippy::cast_possible_truncation, reason = "blocks are counted in a u32")]
fn twin_columns(
    planes: &TwinPlanes<'_>,
    p: &Params,
    x: &TwinX<'_>,
    bias: &[f32],
    range: std::ops::Range<usize>,
) -> Vec<f32> {
    let (rows, width, format) = (p.rows as usize, range.len(), planes.format);
    let mut out = vec![0.0_f32; rows * width];
    let mut slices = vec![[0.0_f32; TWIN_COLUMNS]; rows];
    for first in range.clone().step_by(TWIN_COLUMNS) {
        let mut totals = vec![[0.0_f32; TWIN_COLUMNS]; rows];
        let live = TWIN_COLUMNS.min(range.end - first);
        for block in 0..planes.blocks {
            let mut codes = [[0.0_f32; TWIN_COLUMNS]; 32];
            let (mut d, mut m) = ([[0.0_f32; TWIN_COLUMNS]; 2], [[0.0_f32; TWIN_COLUMNS]; 2]);
            for c in 0..live {
                let column = planes.block(first + c, block);
                column.codes.iter().zip(&mut codes).for_each(|(code, row)| row[c] = *code);
                for part in 0..2 {
                    (d[part][c], m[part][c]) = (column.d[part], column.m[part]);
                }
            }
            if (block as u32).is_multiple_of(p.slice_blocks) {
                slices.fill([0.0; TWIN_COLUMNS]);
            }
            for (row, slice) in slices.iter_mut().enumerate() {
                let at = row * x.stride + block * 32;
                let x_scale = x.scales.get(at / 32).copied().unwrap_or(1.0);
                let parts = layout::parts(format).max(1) as usize;
                let weights = 32 / parts;
                for part in 0..parts {
                    let run = part * weights..(part + 1) * weights;
                    let x = (&x.values[at..at + 32][run.clone()], x_scale);
                    twin_part(x, &codes[run], &d[part], &m[part], format, slice);
                }
            }
            if (block as u32 + 1).is_multiple_of(p.slice_blocks) || block + 1 == planes.blocks {
                totals.iter_mut().zip(&slices).for_each(|(t, s)| t.iter_mut().zip(s).for_each(|(t, s)| *t += s));
            }
        }
        for (row, total) in totals.iter().enumerate() {
            for c in 0..live {
                let add = bias.get(first + c).copied().unwrap_or(0.0);
                out[row * width + first - range.start + c] = total[c] + add;
            }
        }
    }
    out
}

/// Codes that share a scale, into the slice. Of bytes all sums are exact, in whatever order.
fn twin_part(
    (x, x_scale): (&[f32], f32),
    codes: &[[f32; TWIN_COLUMNS]],
    d: &[f32; TWIN_COLUMNS],
    m: &[f32; TWIN_COLUMNS],
    format: BlockFormat,
    slice: &mut [f32; TWIN_COLUMNS],
) {
    let mut sum = if format.has_scales() { [0.0; TWIN_COLUMNS] } else { *slice };
    for (x, codes) in x.iter().zip(codes) {
        for c in 0..TWIN_COLUMNS {
            sum[c] += codes[c] * x;
        }
    }
    if !format.has_scales() {
        *slice = sum;
        return;
    }
    let mut x_sum = 0.0;
    if format.has_minimum() {
        x.chunks_exact(4).for_each(|v| x_sum += ((v[0] + v[1]) + v[2]) + v[3]);
    }
    for c in 0..TWIN_COLUMNS {
        slice[c] += sum[c] * x_scale * d[c];
        if format.has_minimum() {
            slice[c] += x_sum * x_scale * m[c];
        }
    }
}
