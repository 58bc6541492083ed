//! Attention: the twin against its definition in f64, the shaders against the twin, and the variants against each other.

mod case;

use case::{Batch, Case, Path, Sequence};
use twostroke::kernels::attn::{Geometry, Shape};
use twostroke::kernels::{Exchange, KvType};
use twostroke::twin::Twin;

use crate::pairwise;

/// Against the definition: sums of up to 256 products and 1,030 keys in f32, scores up to about 20, values up to 1.
const DEFINITION_TOLERANCE: f64 = 2.0e-5;

/// (query heads, KV heads)
const HEADS: [(u32, u32); 8] = [(1, 1), (9, 3), (4, 4), (32, 4), (5, 1), (16, 1), (14, 2), (32, 32)];
const HEAD_DIMS: [u32; 8] = [8, 16, 24, 64, 80, 96, 128, 256];
const WINDOWS: [u32; 4] = [0, 1, 16, 300];
/// (past, rows) of the sequences of a batch.
const BATCHES: [&[(u32, u32)]; 8] = [
    &[(0, 1)],
    &[(0, 130)],
    &[(0, 17), (37, 5), (0, 1)],
    &[(1029, 1)],
    &[(254, 4), (15, 2)],
    &[(500, 33)],
    &[(0, 31), (31, 1), (32, 2)],
    &[(255, 1), (256, 1), (511, 1), (7, 1)],
];

fn case(seed: u64, (heads, kv_heads): (u32, u32), head_dim: u32, kv: KvType, batch: &[(u32, u32)]) -> Case {
    let scale = 1.0 / (head_dim as f32).sqrt();
    Case {
        seed,
        geometry: Geometry { heads, kv_heads, head_dim, scale, softcap: 0.0, window: 0 },
        kv,
        sequences: batch.iter().map(|&(past, rows)| Sequence { past, rows }).collect(),
    }
}

/// A row of the pairwise table: the batch, and how it is attended to.
struct Row {
    case: Case,
    shape: Shape,
    path: Path,
}

fn rows(seed: u64, rows_max: usize) -> Vec<Row> {
    let levels = [HEADS.len(), HEAD_DIMS.len(), 2, WINDOWS.len(), 2, BATCHES.len(), 2, 2, 2];
    let rows = pairwise::table(&levels, seed, rows_max);
    rows.into_iter()
        .enumerate()
        .map(|(i, row)| {
            let [heads, head_dim, kv, window, cap, batch, path, lanes, exchange] = row[..] else { unreachable!() };
            let kv = [KvType::F16, KvType::F32][kv];
            let mut case = case(seed + i as u64, HEADS[heads], HEAD_DIMS[head_dim], kv, BATCHES[batch]);
            case.geometry.window = WINDOWS[window];
            case.geometry.softcap = [0.0, 5.0][cap];
            let path = [Path::Prefill, Path::Decode][path];
            let exchange = [Exchange::Workgroup, Exchange::Subgroup][exchange];
            Row { shape: shape(&case, path, [8, 32][lanes], exchange), case, path }
        })
        .collect()
}

/// The variant of a plan with these lanes and exchange.
fn shape(case: &Case, path: Path, lanes: u8, exchange: Exchange) -> Shape {
    use twostroke::kernels::{Tier, plan::Plan};
    let tier = if exchange == Exchange::Subgroup { Tier::Subgroup } else { Tier::Base };
    let plan = Plan { tier, software: lanes == 8 };
    let Geometry { head_dim, .. } = case.geometry;
    match path {
        Path::Prefill => plan.attn_prefill(case.kv, head_dim, case.geometry.group()),
        Path::Decode => plan.attn_decode(case.kv, head_dim, case.geometry.group()),
    }
}

#[test]
fn twin_is_attention_by_definition() {
    for Row { case, shape, path } in rows(11, 60) {
        let batch = Batch::new(&case);
        let got = batch.attend(&mut Twin::new(), shape, path);
        let want = batch.reference();
        assert_eq!(got.len(), want.len(), "{shape:?} {path:?} {case:?}");
        for (i, (&got, want)) in got.iter().zip(want).enumerate() {
            let off = (f64::from(got) - want).abs();
            assert!(off <= DEFINITION_TOLERANCE, "element {i}: {got} for {want}, {shape:?} {path:?} {case:?}");
        }
    }
}
