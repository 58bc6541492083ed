//! Embedding, RMS norm, gated activation and argmax.

use twostroke::format::block::BlockFormat;
use twostroke::gpu::Options;
use twostroke::kernels::gate_act::Activation;
use twostroke::kernels::layout::{self, Packed, Planes};
use twostroke::kernels::{Kernel, Row, Tape, argmax, embed, gate_act, padded, rms_norm};
use twostroke::recording::Player;
use twostroke::twin::Twin;

use super::{assert_same_bits, buffer, file_rows, padded_units, play, rounds_like_twin, words};
use crate::adapters::for_each_adapter;
use crate::pairwise::{Random, table};

/// What a case computes on a player: words to compare.
type Run<'a> = dyn Fn(&mut dyn Player<Kernel>) -> Vec<u32> + 'a;

/// Largest difference relative to 1 + |want|: exp, tanh, sqrt and division differ by a few units in the last place.
const TRANSCENDENTAL: f32 = 4e-6;

/// Runs each case on the twin and on every adapter. Bits must be equal on the software drivers when `exact`.
fn check(name: &str, exact: bool, cases: &[(String, Box<Run<'_>>)]) {
    let twins: Vec<_> = cases.iter().map(|(_, run)| run(&mut Twin::new())).collect();
    for_each_adapter(|label, open| {
        let mut player = open(Options::default());
        for ((case, run), want) in cases.iter().zip(&twins) {
            let got = run(&mut player);
            assert_eq!(got.len(), want.len());
            if exact && rounds_like_twin(label) {
                assert_same_bits(&format!("{name} on {label}, {case}"), &got, want);
            }
            for (i, (got, want)) in got.iter().zip(want).enumerate() {
                let (got, want) = (f32::from_bits(*got), f32::from_bits(*want));
                let bound = TRANSCENDENTAL * (1.0 + want.abs());
                assert!(
                    (got - want).abs() <= bound,
                    "{name} on {label}, {case}: element {i} is {got}, the twin's {want}"
                );
            }
        }
    });
}

#[test]
fn embed_equals_its_twin_on_every_adapter() {
    let (rows, ks) = ([1_u32, 2, 33, 130], [32_u32, 64, 192, 576]);
    let cases: Vec<(String, Box<Run<'_>>)> = table(&[BlockFormat::ALL.len(), rows.len(), ks.len(), 2], 5, 60)
        .into_iter()
        .map(|level| {
            let (format, row_count, k) = (BlockFormat::ALL[level[0]], rows[level[1]], ks[level[2]]);
            let k = k.next_multiple_of(format.block_weights() as u32);
            let first_token = 40 * level[3] as u32;
            let name = format!("{} rows {row_count} k {k} from token {first_token}", format.name());
            let run = move |player: &mut dyn Player<Kernel>| {
                let mut random = Random::new(u64::from(row_count * k));
                let tokens = 100;
                let row_bytes = format.row_bytes(u64::from(k)).expect("whole blocks");
                let bytes = file_rows(format, row_bytes * u64::from(tokens), &mut random);
                let mut planes = Planes::default();
                layout::pack(format, tokens, k, &bytes, &mut planes).expect("whole rows");
                let weights = Packed {
                    format,
                    rows: tokens,
                    k,
                    codes: buffer(player, "codes", &planes.codes),
                    scales: buffer(player, "scales", &planes.scales),
                    high: buffer(player, "high", &planes.high),
                };
                // Every third row takes its token from the history of its slot.
                let history: Vec<u32> = (0..2 * row_count).map(|_| random.below(150) as u32).collect();
                let mut token = |i| if i % 3 == 2 { embed::FROM_HISTORY } else { random.below(150) as u32 };
                let batch: Vec<Row> =
                    (0..row_count).map(|i| Row { token: token(i), position: i, slot: i % 2, pad: 0 }).collect();
                let count = (row_count * padded(k)) as usize;
                let out = buffer(player, "out", &words(&vec![3.0; count]));
                let args = embed::Args {
                    weights,
                    first_token,
                    rows: buffer(player, "rows", bytemuck::cast_slice(&batch)),
                    row_count,
                    out,
                    out_stride: padded(k),
                    scale: 24.0,
                    history: buffer(player, "history", &history),
                    history_stride: row_count,
                };
                let mut tape = Tape::new();
                embed::record(&mut tape, &args);
                play(player, &mut tape, out, count)
            };
            (name, Box::new(run) as Box<Run<'_>>)
        })
        .collect();
    check("embed", true, &cases);
}

#[test]
fn rms_norm_equals_its_twin_on_every_adapter() {
    let (rows, dims) = ([1_u32, 2, 17, 130], [1_u32, 8, 64, 96, 576, 1000, 4096]);
    let cases: Vec<(String, Box<Run<'_>>)> = table(&[rows.len(), dims.len(), 2, 2, 2], 6, 60)
        .into_iter()
        .map(|level| {
            let (row_count, dim, with_delta, with_map) = (rows[level[0]], dims[level[1]], level[2] == 1, level[3] == 1);
            let lanes = rms_norm::LANES[level[4]];
            let name = format!("rows {row_count} dim {dim} delta {with_delta} map {with_map} lanes {lanes}");
            let run = move |player: &mut dyn Player<Kernel>| {
                let mut random = Random::new(u64::from(row_count * dim));
                let stride = padded(dim);
                let batch_rows = row_count + 5;
                let mut activations = || {
                    let mut x = vec![0.0; (batch_rows * stride) as usize];
                    x.chunks_exact_mut(stride as usize)
                        .for_each(|row| row[..dim as usize].fill_with(|| 4.0 * random.unit()));
                    words(&x)
                };
                let (x, delta) = (activations(), activations());
                let map: Vec<u32> = (0..row_count).map(|_| random.below(batch_rows as usize) as u32).collect();
                let x_id = buffer(player, "x", &x);
                let out = buffer(player, "out", &vec![0; (row_count * stride) as usize]);
                let args = rms_norm::Args {
                    x: x_id,
                    delta: with_delta.then(|| buffer(player, "delta", &delta)),
                    weight: buffer(player, "weight", &words(&padded_units(&mut random, dim))),
                    map: with_map.then(|| buffer(player, "map", &map)),
                    out,
                    row_count,
                    dim,
                    stride,
                    eps: 1e-5,
                    unused_delta: buffer(player, "unused delta", &[]),
                    unused_map: buffer(player, "unused map", &[]),
                    lanes,
                };
                let mut tape = Tape::new();
                rms_norm::record(&mut tape, &args);
                // The residual stream is an output too.
                tape.read(x_id, 0, (x.len() * 4) as u64);
                play(player, &mut tape, out, (row_count * stride) as usize)
            };
            (name, Box::new(run) as Box<Run<'_>>)
        })
        .collect();
    check("rms_norm", false, &cases);
}

#[test]
fn gate_act_equals_its_twin_on_every_adapter() {
    let (rows, dims) = ([1_u32, 3, 130], [1_u32, 32, 63, 65, 1536]);
    let cases: Vec<(String, Box<Run<'_>>)> = table(&[rows.len(), dims.len(), 2, 2], 7, 60)
        .into_iter()
        .map(|level| {
            let (row_count, dim) = (rows[level[0]], dims[level[1]]);
            let activation = [Activation::Silu, Activation::GeluTanh][level[2]];
            let size = [4.0, 300.0][level[3]];
            let name = format!("rows {row_count} dim {dim} {activation:?} up to ±{size}");
            let run = move |player: &mut dyn Player<Kernel>| {
                let mut random = Random::new(u64::from(row_count * dim));
                let gate_up: Vec<f32> =
                    (0..row_count * dim).flat_map(|_| [size * random.unit(), random.unit()]).collect();
                let count = (row_count * padded(dim)) as usize;
                let out = buffer(player, "out", &vec![0; count]);
                let args = gate_act::Args {
                    gate_up: buffer(player, "gate_up", &words(&gate_up)),
                    gate_up_stride: 2 * dim,
                    out,
                    out_stride: padded(dim),
                    dim,
                    row_count,
                    activation,
                };
                let mut tape = Tape::new();
                gate_act::record(&mut tape, &args);
                play(player, &mut tape, out, count)
            };
            (name, Box::new(run) as Box<Run<'_>>)
        })
        .collect();
    check("gate_act", false, &cases);
}

fn argmax_of(player: &mut dyn Player<Kernel>, logits: &[f32], dim: u32, stride: u32) -> Vec<u32> {
    let rows = logits.len() as u32 / stride;
    let out = buffer(player, "out", &vec![9; rows as usize]);
    let logits = buffer(player, "logits", &words(logits));
    let mut tape = Tape::new();
    argmax::record(&mut tape, logits, stride, dim, rows, out);
    play(player, &mut tape, out, rows as usize)
}

#[test]
fn argmax_takes_the_lowest_id_on_ties_and_reports_what_is_not_finite() {
    let mut rows: Vec<(Vec<f32>, u32)> = Vec::new();
    let mut random = Random::new(8);
    for dim in [1_usize, 2, 255, 256, 257, 1000] {
        let mut row = random.units(dim);
        let at = random.below(dim);
        row[at] = 5.0;
        rows.push((row.clone(), at as u32));
        row[dim - 1] = 5.0;
        rows.push((row.clone(), at as u32));
        row.fill(-3.0);
        rows.push((row.clone(), 0));
        row.fill(-0.0);
        row[dim - 1] = 0.0;
        rows.push((row.clone(), 0));
        row.fill(-f32::MAX);
        rows.push((row.clone(), 0));
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -f32::NAN] {
            let mut row = random.units(dim);
            row[at] = bad;
            rows.push((row, argmax::NOT_FINITE));
        }
    }
    let check = |label: &str, player: &mut dyn Player<Kernel>| {
        for (row, want) in &rows {
            let dim = row.len() as u32;
            let mut padded = row.clone();
            padded.extend([9.0; 3]);
            assert_eq!(argmax_of(player, &padded, dim, dim + 3), [*want], "{label}: {dim} logits");
        }
    };
    check("twin", &mut Twin::new());
    for_each_adapter(|label, open| check(label, &mut open(Options::default())));
}
