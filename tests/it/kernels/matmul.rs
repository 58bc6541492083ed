//! The matmul: every format, tile and exchange, at the edges of rows, columns and K.

use twostroke::format::block::BlockFormat;
use twostroke::gpu::Options;
use twostroke::kernels::gate_act::Activation;
use twostroke::kernels::layout::{self, Packed, Planes};
use twostroke::kernels::matmul::Int8;
use twostroke::kernels::plan::{Activations, Plan};
use twostroke::kernels::{Kernel, Tape, Tier, gate_act, matmul, padded, quant_act};
use twostroke::recording::{BufferId, Player};
use twostroke::twin::Twin;

use super::{assert_same_bits, buffer, file_rows, play, rounds_like_twin, words};
use crate::adapters::for_each_adapter;
use crate::pairwise::{Random, table};

/// One product.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    pub(super) format: BlockFormat,
    pub(super) rows: u32,
    pub(super) columns: u32,
    pub(super) k: u32,
    pub(super) bias: bool,
    pub(super) out_column: u32,
    /// Columns of gates, and as many of ups.
    pub(super) gate: Option<Activation>,
    /// The output adds to what is there (not with a gate).
    pub(super) add: bool,
    /// Activations as bytes, where the format has scales.
    pub(super) int8: bool,
    pub(super) seed: u64,
}

impl Case {
    fn is_int8(&self) -> bool {
        self.int8 && self.format.has_scales()
    }

    /// Rows of the weights.
    pub(super) fn weight_rows(&self) -> u32 {
        if self.gate.is_some() { 2 * self.columns } else { self.columns }
    }
}

/// Inputs of a case, the same for every player.
pub(super) struct Inputs {
    pub(super) case: Case,
    pub(super) planes: Planes,
    pub(super) bytes: Vec<u8>,
    pub(super) x: Vec<f32>,
    pub(super) bias: Vec<f32>,
}

impl Inputs {
    pub(super) fn new(case: Case) -> Self {
        let mut random = Random::new(case.seed);
        let row_bytes = case.format.row_bytes(u64::from(case.k)).expect("whole blocks");
        let bytes = file_rows(case.format, row_bytes * u64::from(case.weight_rows()), &mut random);
        let mut planes = Planes::default();
        layout::pack(case.format, case.weight_rows(), case.k, &bytes, &mut planes).expect("whole rows");
        let (stride, k) = (padded(case.k) as usize, case.k as usize);
        let mut x = vec![0.0; stride * case.rows as usize];
        x.chunks_exact_mut(stride).for_each(|row| row[..k].fill_with(|| random.unit()));
        let bias = random.units(case.weight_rows() as usize);
        Self { case, planes, bytes, x, bias }
    }

    pub(super) fn out_stride(&self) -> u32 {
        self.case.out_column + self.case.columns + 3
    }

    pub(super) fn packed(&self, player: &mut dyn Player<Kernel>) -> Packed {
        Packed {
            format: self.case.format,
            rows: self.case.weight_rows(),
            k: self.case.k,
            codes: buffer(player, "codes", &self.planes.codes),
            scales: buffer(player, "scales", &self.planes.scales),
            high: buffer(player, "high", &self.planes.high),
        }
    }

    /// The product by a variant. The output starts at 7.0, so that what nobody owns can be seen to stay.
    pub(super) fn run(&self, player: &mut dyn Player<Kernel>, shape: matmul::Shape) -> Vec<u32> {
        let weights = self.packed(player);
        let count = (self.out_stride() * self.case.rows) as usize;
        let out = buffer(player, "out", &words(&vec![7.0; count]));
        let mut tape = Tape::new();
        let x = buffer(player, "x", &words(&self.x));
        let packed = (shape.int8 == Some(Int8::Packed)).then(|| {
            let (rows, x_stride) = (self.case.rows, padded(self.case.k));
            let out = buffer(player, "packed", &vec![u32::MAX; quant_act::bytes(rows, x_stride) as usize / 4]);
            quant_act::record(&mut tape, &quant_act::Args { x, x_stride, out, rows });
            out
        });
        let args = matmul::Args {
            weights,
            x,
            x_stride: padded(self.case.k),
            packed,
            bias: self.case.bias.then(|| buffer(player, "bias", &words(&self.bias))),
            bias_start: 0,
            out,
            out_stride: self.out_stride(),
            out_column: self.case.out_column,
            rows: self.case.rows,
            gate: self.case.gate,
            add: self.case.add,
            norm: None,
        };
        matmul::record_shape(&mut tape, shape, &args);
        let result = play(player, &mut tape, out, count);
        for id in [weights.codes, weights.scales, weights.high, args.x, out].into_iter().chain(packed) {
            player.drop_buffer(id);
        }
        result
    }

    /// The output in f64 from the file's own bytes, and the error that each element may have.
    fn reference(&self) -> Vec<(f64, f64)> {
        let (k, stride) = (self.case.k as usize, padded(self.case.k) as usize);
        let mut w = vec![0.0; k * self.case.weight_rows() as usize];
        let row_bytes = self.bytes.len() / self.case.weight_rows() as usize;
        for (bytes, row) in self.bytes.chunks_exact(row_bytes).zip(w.chunks_exact_mut(k)) {
            self.case.format.decode(bytes, row).expect("whole rows");
        }
        let mut out = Vec::new();
        let x = if self.case.is_int8() { as_bytes(&self.x) } else { self.x.clone() };
        for x in x.chunks_exact(stride) {
            let mut row = Vec::new();
            for (n, w) in w.chunks_exact(k).enumerate() {
                let products = x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w));
                let bias = if self.case.bias { f64::from(self.bias[n]) } else { 0.0 };
                let (sum, size) = products.fold((bias, bias.abs()), |(s, a), p| (s + p, a + p.abs()));
                row.push((sum, f64::from(self.case.k + 4) * ROUNDING * SHIFT_GROWTH * size.max(1e-3)));
            }
            if let Some(activation) = self.case.gate {
                let ups = row.split_off(self.case.columns as usize);
                for (gate, up) in row.iter_mut().zip(ups) {
                    *gate = gated(activation, *gate, up);
                }
            }
            out.append(&mut row);
        }
        out
    }
}

/// Rows of whole blocks of 32, each value the nearest of 255 steps of its block.
fn as_bytes(x: &[f32]) -> Vec<f32> {
    let block = |x: &[f32]| {
        let top = x.iter().fold(0.0_f32, |top, x| top.max(x.abs()));
        let code = |x: &f32| if top == 0.0 { 0.0 } else { (x * (127.0 / top)).round_ties_even() };
        x.iter().map(|x| code(x) * (top * (1.0 / 127.0))).collect::<Vec<_>>()
    };
    x.chunks_exact(32).flat_map(block).collect()
}

/// Rounding of a sum of K products in f32: K + 4 roundings of at most Σ|x w|, plus one a term for codes that are shifted
/// (Σ|d q x| is up to 16 times Σ|w x| when w is close to a zero of the scale).
pub(super) const ROUNDING: f64 = 1.0 / 16_777_216.0;
const SHIFT_GROWTH: f64 = 16.0;

/// `act(gate) * up` and its error, from (value, error) of both; no activation is steeper than 1.13.
pub(super) fn gated(activation: Activation, gate: (f64, f64), up: (f64, f64)) -> (f64, f64) {
    let x = gate.0;
    let act = match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluTanh => 0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044_715 * x * x * x)).tanh()),
    };
    let act_error = 1.13 * gate.1 + 16.0 * ROUNDING * x.abs().max(1e-6);
    (act * up.0, act_error * (up.0.abs() + up.1) + act.abs() * up.1 + 2.0 * ROUNDING * (act * up.0).abs())
}

pub(super) fn check(label: &str, inputs: &Inputs, reference: &[(f64, f64)], got: &[u32]) {
    let case = inputs.case;
    let mut elements = reference.iter().copied();
    for (row, got) in got.chunks_exact(inputs.out_stride() as usize).enumerate() {
        for (column, bits) in got.iter().enumerate() {
            let owned = column as u32 >= case.out_column && (column as u32) < case.out_column + case.columns;
            let value = f32::from_bits(*bits);
            if !owned {
                assert_eq!(value, 7.0, "{label} {case:?}: row {row} column {column} is not this product's");
                continue;
            }
            let (want, bound) = elements.next().expect("one reference an element");
            let (want, bound) = if case.add { (want + 7.0, bound + 16.0 * ROUNDING) } else { (want, bound) };
            let error = (f64::from(value) - want).abs();
            assert!(
                error <= bound,
                "{label} {case:?}: row {row} column {column}: {value}, want {want} within {bound:e}"
            );
        }
    }
}

/// The variant for a case; `int64` where the adapter has it.
fn shape_of(case: &Case, tier: Tier, software: bool, int64: bool, rows: u32) -> matmul::Shape {
    let activations = if case.int8 { Activations::Int8 } else { Activations::F32 };
    Plan { activations, ..Plan::new(tier, software, int64) }.matmul(case.format, rows, case.gate.is_some())
}

/// A length of rows near `k`: of float formats no whole blocks of 32, else whole blocks of the file.
pub(super) fn k_of(format: BlockFormat, k: u32) -> u32 {
    if format.has_scales() { k.next_multiple_of(format.block_weights() as u32) } else { k - 24 }
}

/// The table: formats by rows by columns by K by tile by family.
fn cases(rows_max: usize) -> Vec<(Case, u32, bool)> {
    let rows = [1, 2, 5, 8, 17, 64, 130];
    let columns = [1, 31, 33, 65, 96, 127, 300];
    let k = [32, 96, 192, 224, 576, 3200];
    let tiles = [1, 2, 4, 8];
    let gates = [None, Some(Activation::Silu), Some(Activation::GeluTanh)];
    table(
        &[BlockFormat::ALL.len(), rows.len(), columns.len(), k.len(), tiles.len(), 2, 2, 2, gates.len(), 2],
        35,
        rows_max,
    )
    .into_iter()
    .enumerate()
    .map(|(i, level)| {
        let format = BlockFormat::ALL[level[0]];
        let case = Case {
            format,
            rows: rows[level[1]],
            columns: columns[level[2]],
            k: k_of(format, k[level[3]]),
            bias: level[6] == 1,
            out_column: 5 * level[7] as u32,
            gate: gates[level[8]],
            add: level[8] == 0 && level[7] == 0,
            int8: level[9] == 1,
            seed: i as u64,
        };
        (case, tiles[level[4]], level[5] == 1)
    })
    .collect()
}

#[test]
fn matmul_equals_its_twin_on_every_adapter() {
    let most = if std::env::var("TWOSTROKE_FULL").is_ok() { 240 } else { 110 };
    let cases = cases(most);
    let twins: Vec<_> = cases
        .iter()
        .map(|(case, tile, _)| {
            let inputs = Inputs::new(*case);
            let shape = shape_of(case, Tier::Base, true, false, *tile);
            let want = inputs.run(&mut Twin::new(), shape);
            let reference = inputs.reference();
            check("twin", &inputs, &reference, &want);
            (inputs, reference, want)
        })
        .collect();
    for tier in [Tier::Base, Tier::Subgroup] {
        for_each_adapter(|label, open| {
            if !label.ends_with(tier.name()) {
                return;
            }
            let mut player = open(Options::default());
            for ((case, tile, software), (inputs, reference, want)) in cases.iter().zip(&twins) {
                let int64 = player.plan().int64;
                let got = inputs.run(&mut player, shape_of(case, tier, *software, int64, *tile));
                check(label, inputs, reference, &got);
                // exp is the driver's own.
                if rounds_like_twin(label) && case.gate.is_none() {
                    assert_same_bits(&format!("{label} {case:?} tile {tile} software {software}"), &got, want);
                }
            }
        });
    }
}

#[test]
fn f35_every_column_of_odd_widths_is_written() {
    let all = [1, 31, 32, 33, 63, 65, 96, 127].into_iter().flat_map(|columns| [1, 2, 17].map(|rows| (columns, rows)));
    let cases: Vec<_> = all
        .map(|(columns, rows)| {
            let seed = u64::from(columns);
            let inputs = Inputs::new(Case {
                format: BlockFormat::Q4_0,
                rows,
                columns,
                k: 64,
                bias: false,
                out_column: 0,
                gate: None,
                add: false,
                int8: false,
                seed,
            });
            let reference = inputs.reference();
            (inputs, reference)
        })
        .collect();
    let run = |label: &str, player: &mut dyn Player<Kernel>| {
        for (inputs, reference) in &cases {
            let shape = shape_of(&inputs.case, Tier::Base, true, false, inputs.case.rows);
            check(label, inputs, reference, &inputs.run(player, shape));
        }
    };
    run("twin", &mut Twin::new());
    for_each_adapter(|label, open| run(label, &mut open(Options::default())));
}

#[test]
fn f66_more_than_65535_workgroups_are_right_to_the_last_row() {
    for_each_adapter(|label, open| {
        let mut player = open(Options::default());
        for rows in [65_535, 65_536, 102_400] {
            let case = Case {
                format: BlockFormat::F32,
                rows,
                columns: 3,
                k: 32,
                bias: true,
                out_column: 0,
                gate: None,
                add: false,
                int8: false,
                seed: 66,
            };
            let inputs = Inputs::new(case);
            // One row a workgroup: as many workgroups as rows.
            check(
                label,
                &inputs,
                &inputs.reference(),
                &inputs.run(&mut player, shape_of(&case, Tier::Base, true, false, 1)),
            );
        }
    });
}

#[test]
fn matrix_beyond_the_binding_limit_is_split_and_right_to_the_last_row() {
    let limit = 1 << 20;
    let case = Case {
        format: BlockFormat::Q8_0,
        rows: 2,
        columns: 3000,
        k: 1024,
        bias: false,
        out_column: 0,
        gate: None,
        add: false,
        int8: false,
        seed: 1,
    };
    let inputs = Inputs::new(case);
    assert!(layout::plane_bytes(case.format, case.columns, case.k).codes > 2 * limit);
    for_each_adapter(|label, open| {
        let mut player = open(Options { binding_bytes_max: Some(limit), ..Options::default() });
        let stride = inputs.out_stride();
        let count = (stride * case.rows) as usize;
        let out = buffer(&mut player, "out", &words(&vec![7.0; count]));
        let x = buffer(&mut player, "x", &words(&inputs.x));
        let part_rows = layout::rows_within(case.format, case.k, player.binding_bytes_max());
        let row_bytes = inputs.bytes.len() / case.columns as usize;
        let mut tape = Tape::new();
        for first in (0..case.columns).step_by(part_rows as usize) {
            let rows = part_rows.min(case.columns - first);
            let bytes = &inputs.bytes[first as usize * row_bytes..(first + rows) as usize * row_bytes];
            let mut planes = Planes::default();
            layout::pack(case.format, rows, case.k, bytes, &mut planes).expect("whole rows");
            let part = |player: &mut dyn Player<Kernel>, plane: &[u32]| -> BufferId { buffer(player, "part", plane) };
            let weights = Packed {
                format: case.format,
                rows,
                k: case.k,
                codes: part(&mut player, &planes.codes),
                scales: part(&mut player, &planes.scales),
                high: part(&mut player, &planes.high),
            };
            let args = matmul::Args {
                weights,
                x,
                x_stride: padded(case.k),
                packed: None,
                bias: None,
                bias_start: 0,
                out,
                out_stride: stride,
                out_column: first,
                rows: case.rows,
                gate: None,
                add: false,
                norm: None,
            };
            matmul::record_shape(&mut tape, shape_of(&case, Tier::Base, true, false, case.rows), &args);
        }
        assert!(tape.dispatch_count() > 2, "the limit did not split the matrix");
        check(label, &inputs, &inputs.reference(), &play(&mut player, &mut tape, out, count));
    });
}

/// The ways to a gated MLP: one product that ends in the activation, or the products and then the activation.
#[test]
fn gated_product_equals_product_then_activation() {
    for_each_adapter(|label, open| {
        let mut player = open(Options::default());
        let (tier, int64) = (player.tier(), player.plan().int64);
        let all = [BlockFormat::Q4_1, BlockFormat::Q8_0, BlockFormat::F16].into_iter().enumerate();
        for ((i, format), activation) in all.flat_map(|f| [Activation::Silu, Activation::GeluTanh].map(|a| (f, a))) {
            for (rows, software) in [(1, true), (1, false), (3, true), (3, false), (17, true), (17, false)] {
                let case = Case {
                    format,
                    rows,
                    columns: 70,
                    k: 224,
                    bias: true,
                    out_column: 0,
                    gate: Some(activation),
                    add: false,
                    int8: false,
                    seed: i as u64,
                };
                let inputs = Inputs::new(case);
                let whole = inputs.run(&mut player, shape_of(&case, tier, software, int64, rows));
                let plain = Case { columns: 140, gate: None, ..case };
                let products = Inputs { case: plain, ..inputs };
                let stride = products.out_stride();
                let y = products.run(&mut player, shape_of(&plain, tier, software, int64, rows));
                let (gate_up, out) =
                    (buffer(&mut player, "y", &y), buffer(&mut player, "out", &words(&vec![7.0; whole.len()])));
                let mut tape = Tape::new();
                let args = gate_act::Args {
                    gate_up,
                    gate_up_stride: stride,
                    out,
                    out_stride: case.columns + 3,
                    dim: 70,
                    row_count: rows,
                    activation,
                };
                gate_act::record(&mut tape, &args);
                let apart = play(&mut player, &mut tape, out, whole.len());
                assert_same_bits(&format!("{label} {case:?} software {software}"), &whole, &apart);
            }
        }
    });
}
