//! Ways to one product that must give the same bits: a norm before it or on the way, bytes made before it or on the way.

use twostroke::format::block::BlockFormat;
use twostroke::gpu::Options;
use twostroke::kernels::gate_act::Activation;
use twostroke::kernels::matmul::Int8;
use twostroke::kernels::plan::{Activations, Plan};
use twostroke::kernels::{Kernel, Tape, Tier, matmul, padded, rms_norm};
use twostroke::recording::{BufferId, Player};
use twostroke::twin::Twin;

use super::matmul::{Case, Inputs, k_of};
use super::{assert_same_bits, buffer, padded_units, play, words};
use crate::adapters::for_each_adapter;
use crate::pairwise::Random;

/// The ways to a product of a normed row: at once, or the norm and then the product.
#[test]
fn normed_product_equals_norm_then_product() {
    let run = |label: &str, player: &mut dyn Player<Kernel>, plan: Plan| {
        let sizes = [(1, 32), (31, 96), (70, 224), (960, 576), (200, 2048)];
        for (format, (columns, k)) in BlockFormat::ALL.iter().flat_map(|f| sizes.map(|s| (*f, s))) {
            for gate in [None, Some(Activation::Silu)] {
                let k = k_of(format, k);
                let (bias, seed) = (columns % 2 == 0, u64::from(k));
                let inputs = Inputs::new(Case {
                    format,
                    rows: 1,
                    columns,
                    k,
                    bias,
                    out_column: 0,
                    gate,
                    add: false,
                    int8: false,
                    seed,
                });
                let weight = buffer(player, "norm", &words(&padded_units(&mut Random::new(9), k)));
                let (stride, eps) = (padded(k), 1e-5);
                let x = buffer(player, "x", &words(&inputs.x));
                let normed = buffer(player, "normed", &vec![0; stride as usize]);
                let weights = inputs.packed(player);
                let bias = inputs.case.bias.then(|| buffer(player, "bias", &words(&inputs.bias)));
                let count = inputs.out_stride() as usize;
                let mut product = |x: BufferId, norm: Option<matmul::Norm>| {
                    let out = buffer(player, "out", &words(&vec![7.0; count]));
                    let args = matmul::Args {
                        weights,
                        x,
                        x_stride: stride,
                        packed: None,
                        bias,
                        bias_start: 0,
                        out,
                        out_stride: inputs.out_stride(),
                        out_column: 0,
                        rows: 1,
                        gate,
                        add: false,
                        norm,
                    };
                    let mut tape = Tape::new();
                    if norm.is_none() {
                        let [unused_delta, unused_map] = [(); 2].map(|()| buffer(player, "unused", &[]));
                        let (delta, map, lanes) = (None, None, rms_norm::choose(plan));
                        rms_norm::record(
                            &mut tape,
                            &rms_norm::Args {
                                x: args.x,
                                delta,
                                weight,
                                map,
                                out: normed,
                                row_count: 1,
                                dim: k,
                                stride,
                                eps,
                                unused_delta,
                                unused_map,
                                lanes,
                            },
                        );
                    }
                    let args = matmul::Args { x: if norm.is_none() { normed } else { x }, ..args };
                    matmul::record(&mut tape, plan, &args);
                    play(player, &mut tape, out, count)
                };
                let apart = product(x, None);
                let whole = product(x, Some(matmul::Norm { weight, eps }));
                assert_same_bits(&format!("{label} {:?}", inputs.case), &whole, &apart);
            }
        }
    };
    run("twin", &mut Twin::new(), Plan::TWIN);
    for_each_adapter(|label, open| {
        let mut player = open(Options::default());
        let plan = player.plan();
        // Elsewhere no product norms, and asking for it is a broken invariant.
        if matmul::norms(plan, BlockFormat::Q4_1, false, 1, 2048) {
            run(label, &mut player, plan);
            // What an adapter without 64-bit integers gets.
            run(label, &mut player, Plan { int64: false, ..plan });
            run(label, &mut player, Plan { activations: Activations::Int8, ..plan });
        }
    });
}

/// Whoever makes bytes of the activations, they are the same.
#[test]
fn bytes_made_on_the_way_equal_bytes_made_before() {
    for_each_adapter(|label, open| {
        let mut player = open(Options::default());
        let plan = Plan { software: true, activations: Activations::Int8, ..player.plan() };
        if plan.tier < Tier::Subgroup {
            return;
        }
        let scaled = BlockFormat::ALL.into_iter().filter(|format| format.has_scales());
        for (format, rows) in scaled.flat_map(|format| [1, 2, 4].map(|rows| (format, rows))) {
            let k = k_of(format, 576);
            let case = Case {
                format,
                rows,
                columns: 70,
                k,
                bias: true,
                out_column: 0,
                gate: None,
                add: false,
                int8: true,
                seed: u64::from(rows),
            };
            let inputs = Inputs::new(case);
            let shape = plan.matmul(format, rows, false);
            let [inline, packed] = [Int8::Inline, Int8::Packed].map(|int8| matmul::Shape { int8: Some(int8), ..shape });
            let (inline, packed) = (inputs.run(&mut player, inline), inputs.run(&mut player, packed));
            assert_same_bits(&format!("{label} {case:?}"), &inline, &packed);
        }
    });
}
