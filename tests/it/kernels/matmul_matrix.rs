//! Products by cooperative matrices, as the twin computes them: every format, size and output, at the edges of tiles and K. No driver
//! here has them: `matmul_matrix_emulated` runs the same table through the shader's text without them.

use twostroke::format::block::BlockFormat;
use twostroke::kernels::gate_act::Activation;
use twostroke::kernels::matmul::{self, matrix};
use twostroke::kernels::{Kernel, Tape, padded};
use twostroke::recording::Player;
use twostroke::twin::Twin;

use super::matmul::{Case, Inputs, ROUNDING, check, gated, k_of};
use super::{buffer, play, words};
use crate::pairwise::table;

/// Rows of `x` and `out` before those of the product.
const FIRST_ROW: u32 = 3;

fn half(value: f64) -> f64 {
    half::f16::from_f64(value).to_f64()
}

/// The output in f64 from the file's own bytes, with weights and activations as halves, and the error that each element may have.
pub(super) fn reference(inputs: &Inputs) -> Vec<(f64, f64)> {
    let case = &inputs.case;
    let (k, stride) = (case.k as usize, padded(case.k) as usize);
    let mut w = vec![0.0; k * case.weight_rows() as usize];
    let row_bytes = inputs.bytes.len() / case.weight_rows() as usize;
    for (bytes, row) in inputs.bytes.chunks_exact(row_bytes).zip(w.chunks_exact_mut(k)) {
        case.format.decode(bytes, row).expect("whole rows");
    }
    let mut out = Vec::new();
    for x in inputs.x.chunks_exact(stride) {
        let mut row = Vec::new();
        for (n, w) in w.chunks_exact(k).enumerate() {
            let bias = if case.bias { f64::from(inputs.bias[n]) } else { 0.0 };
            let (mut sum, mut size, mut flips) = (bias, bias.abs(), 0.0);
            for (x, w) in x.iter().zip(w) {
                let (x, w) = (half(f64::from(*x)), f64::from(*w));
                // A weight that f32 arithmetic may bring to the other side of a rounding to halves: code times scale may be 16 times it.
                let (low, high) = (half(w - w.abs() * 64.0 * ROUNDING), half(w + w.abs() * 64.0 * ROUNDING));
                flips += x.abs() * (high - low);
                (sum, size) = (sum + x * half(w), size + (x * half(w)).abs());
            }
            row.push((sum, f64::from(case.k + 4) * ROUNDING * size.max(1e-3) + flips));
        }
        if let Some(activation) = case.gate {
            let ups = row.split_off(case.columns as usize);
            for (gate, up) in row.iter_mut().zip(ups) {
                *gate = gated(activation, *gate, up);
            }
        }
        out.append(&mut row);
    }
    out
}

/// The product of `rows` rows from `first` on; the rows before are 7.0, in and out.
pub(super) fn run(inputs: &Inputs, player: &mut dyn Player<Kernel>, size: u8, first: u32, rows: u32) -> Vec<u32> {
    let case = &inputs.case;
    let (stride, out_stride) = (padded(case.k), inputs.out_stride());
    let taken = &inputs.x[(first * stride) as usize..((first + rows) * stride) as usize];
    let x: Vec<f32> = std::iter::repeat_n(7.0, (FIRST_ROW * stride) as usize).chain(taken.iter().copied()).collect();
    let count = (out_stride * (FIRST_ROW + rows)) as usize;
    let out = buffer(player, "out", &words(&vec![7.0; count]));
    let args = matmul::Args {
        weights: inputs.packed(player),
        x: buffer(player, "x", &words(&x)),
        x_stride: stride,
        packed: None,
        bias: case.bias.then(|| buffer(player, "bias", &words(&inputs.bias))),
        bias_start: 0,
        out,
        out_stride,
        out_column: case.out_column,
        rows,
        gate: case.gate,
        add: case.add,
        norm: None,
    };
    let mut tape = Tape::new();
    let shape = matrix::Shape { format: case.format, size, gated: case.gate.is_some() };
    matrix::record_shape(&mut tape, shape, &args, FIRST_ROW);
    let mut all = play(player, &mut tape, out, count);
    let own = all.split_off((out_stride * FIRST_ROW) as usize);
    assert!(all.iter().all(|word| *word == 7.0_f32.to_bits()), "{case:?}: rows before are touched");
    own
}

pub(super) fn cases() -> Vec<(Case, u8)> {
    let rows = [1, 2, 31, 32, 33, 70];
    let columns = [1, 31, 32, 33, 65, 130];
    let k = [32, 96, 224, 576, 1600];
    let gates = [None, Some(Activation::Silu), Some(Activation::GeluTanh)];
    table(&[BlockFormat::ALL.len(), rows.len(), columns.len(), k.len(), 2, 2, 2, gates.len()], 35, 110)
        .into_iter()
        .enumerate()
        .map(|(i, level)| {
            let format = BlockFormat::ALL[level[0]];
            let case = Case {
                format,
                rows: rows[level[1]],
                columns: columns[level[2]],
                k: k_of(format, k[level[3]]),
                bias: level[5] == 1,
                out_column: 5 * level[6] as u32,
                gate: gates[level[7]],
                add: level[7] == 0 && level[6] == 0,
                int8: false,
                seed: i as u64,
            };
            (case, [8, 16][level[4]])
        })
        .collect()
}

#[test]
fn products_of_halves_are_within_their_rounding_and_rows_are_alike_in_any_launch() {
    let cases = cases();
    let seen = |size| BlockFormat::ALL.iter().all(|f| cases.iter().any(|(case, s)| case.format == *f && *s == size));
    assert!(seen(8) && seen(16), "each format in each size");
    for (case, size) in cases {
        let (inputs, mut twin) = (Inputs::new(case), Twin::new());
        let whole = run(&inputs, &mut twin, size, 0, case.rows);
        check(&format!("twin, size {size}"), &inputs, &reference(&inputs), &whole);
        let stride = inputs.out_stride() as usize;
        let last = case.rows - 1;
        let alone = run(&inputs, &mut twin, size, last, 1);
        assert!(alone == whole[last as usize * stride..], "{case:?}: the last row alone");
    }
}

#[test]
fn what_halves_cannot_hold_saturates_and_nan_stays() {
    let case = Case {
        format: BlockFormat::F32,
        rows: 2,
        columns: 3,
        k: 32,
        bias: false,
        out_column: 0,
        gate: None,
        add: false,
        int8: false,
        seed: 1,
    };
    let mut inputs = Inputs::new(case);
    inputs.x.fill(0.0);
    (inputs.x[0], inputs.x[32]) = (1e9, f32::NAN);
    let got = run(&inputs, &mut Twin::new(), 16, 0, 2);
    for column in 0..3 {
        let mut w = [0.0; 32];
        case.format.decode(&inputs.bytes[128 * column..][..128], &mut w).expect("a row");
        assert_eq!(f32::from_bits(got[column]), 65_504.0 * half::f16::from_f32(w[0]).to_f32());
        assert!(f32::from_bits(got[inputs.out_stride() as usize + column]).is_nan());
    }
}
