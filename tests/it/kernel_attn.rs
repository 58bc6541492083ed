//! Attention: the twin against its definition in f64, the shaders against the twin, and the variants against each other.

mod case;

use case::{Batch, Case, Path, Sequence};
use twostroke::gpu::Options;
use twostroke::kernels::attn::{self, Geometry, Shape};
use twostroke::kernels::{Exchange, KvType};
use twostroke::twin::Twin;

use crate::adapters::for_each_adapter;
use crate::pairwise;

/// Against the definition: sums of up to 256 products and 1,030 keys in f32, scores up to about 20, values up to 1.
const DEFINITION_TOLERANCE: f64 = 2.0e-5;

/// Shader against twin: WGSL allows exp 3 + 2 |x| ULP and GPUs fuse multiply and add; values up to 1.
const TWIN_TOLERANCE: f64 = 2.0e-5;

const SEED: u64 = 11;
/// Cases of the pairwise table, for all exchanges together.
const CASES: usize = 48;
/// Cases on drivers that need a second for what others do in 30 ms.
const CASES_SLOW: usize = 16;

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

impl Row {
    /// Fails with all there is to know when `got` is not within `tolerance` of `want`.
    fn check(&self, label: &str, got: &[f32], want: &[f64], tolerance: f64) {
        let Self { case, shape, path } = self;
        assert_eq!(got.len(), want.len(), "{label}: {shape:?} {path:?} {case:?}");
        for (i, (&got, want)) in got.iter().zip(want).enumerate() {
            let off = (f64::from(got) - want).abs();
            assert!(off <= tolerance, "{label}: element {i}: {got} for {want}, {shape:?} {path:?} {case:?}");
        }
    }
}

/// Half of the cases take fewer rows than their plan would: other code, and less of it to compile.
fn rows(seed: u64, rows_max: usize) -> Vec<Row> {
    let levels = [HEADS.len(), HEAD_DIMS.len(), 3, WINDOWS.len(), 2, BATCHES.len(), 2, 2, 2, 2];
    let rows = pairwise::table(&levels, seed, rows_max);
    rows.into_iter()
        .enumerate()
        .map(|(i, row)| {
            let [heads, head_dim, kv, window, cap, batch, path, lanes, exchange, few] = row[..] else { unreachable!() };
            let kv = [KvType::F16, KvType::F32, KvType::Q8][kv];
            let mut case = case(seed + i as u64, HEADS[heads], HEAD_DIMS[head_dim], kv, BATCHES[batch]);
            case.geometry.window = WINDOWS[window];
            case.geometry.softcap = [0.0, 5.0][cap];
            let path = [Path::Prefill, Path::Decode][path];
            let exchange = [Exchange::Workgroup, Exchange::Subgroup][exchange];
            let mut shape = shape(&case, path, [8, 32][lanes], exchange);
            if few == 1 {
                shape.rows = shape.lanes / 8 * 2;
            }
            Row { case, shape, path }
        })
        .collect()
}

/// The variant of a plan with these lanes and exchange.
fn shape(case: &Case, path: Path, lanes: u8, exchange: Exchange) -> Shape {
    use twostroke::kernels::Tier;
    use twostroke::kernels::plan::Plan;
    let tier = if exchange == Exchange::Subgroup { Tier::Subgroup } else { Tier::Base };
    let plan = Plan::new(tier, lanes == 8, false);
    let Geometry { head_dim, .. } = case.geometry;
    match path {
        Path::Prefill | Path::Chunks(_) => plan.attn_prefill(case.kv, head_dim, case.geometry.group()),
        Path::Decode => plan.attn_decode(case.kv, head_dim, case.geometry.group()),
    }
}

#[test]
fn twin_is_attention_by_definition() {
    for row in rows(SEED, CASES) {
        let batch = Batch::new(&row.case);
        let got = batch.attend(&mut Twin::new(), row.shape, row.path);
        row.check("twin", &got, &batch.reference(), DEFINITION_TOLERANCE);
    }
}

/// Poison in every page and place that a row does not see is part of each batch.
#[test]
fn shaders_equal_their_twin() {
    let full = std::env::var_os("TWOSTROKE_FULL").is_some();
    for_each_adapter(|label, open| {
        let mut player = open(Options { checked: true, ..Options::default() });
        let exchange = exchange_of(label);
        let most = if label.contains("SwiftShader") && !full { CASES_SLOW } else { usize::MAX };
        let seeds = if full { SEED..SEED + 4 } else { SEED..SEED + 1 };
        let rows = seeds.flat_map(|seed| rows(seed, if full { usize::MAX } else { CASES }));
        for row in rows.filter(|row| row.shape.exchange == exchange).take(most) {
            let batch = Batch::new(&row.case);
            let want = batch.attend(&mut Twin::new(), row.shape, row.path);
            let want: Vec<f64> = want.into_iter().map(f64::from).collect();
            row.check(label, &batch.attend(&mut player, row.shape, row.path), &want, TWIN_TOLERANCE);
        }
    });
}

/// The exchange to try on an adapter: base has but one, and the others have it too.
fn exchange_of(label: &str) -> Exchange {
    if label.ends_with("base") { Exchange::Workgroup } else { Exchange::Subgroup }
}

/// All ways to the same output: (shape, path). With subgroups, one of those without too; base compares these.
fn ways(case: &Case, exchange: Exchange) -> Vec<(Shape, Path)> {
    let mut ways = Vec::new();
    for lanes in [8, 32] {
        let prefill = shape(case, Path::Prefill, lanes, exchange);
        ways.push((prefill, Path::Prefill));
        ways.push((prefill, Path::Chunks(1)));
        ways.push((prefill, Path::Chunks(3)));
        ways.push((Shape { rows: 24 - prefill.rows, ..prefill }, Path::Prefill));
        ways.push((shape(case, Path::Decode, lanes, exchange), Path::Decode));
    }
    ways.push((shape(case, Path::Prefill, 8, Exchange::Workgroup), Path::Prefill));
    ways
}

/// Rows a tile, lanes, exchange, chunks, prefill or decode: over a split's end, and from inside a page and key tile.
#[test]
fn every_way_gives_the_same_bits() {
    for_each_adapter(|label, open| {
        let mut player = open(Options::default());
        let slow = label.contains("SwiftShader");
        let batches: &[&[(u32, u32)]] =
            if slow { &[&[(190, 100)]] } else { &[&[(0, 330)], &[(190, 128)], &[(470, 130), (5, 9)]] };
        for (kv, head_dim, window, batch) in
            batches.iter().flat_map(|b| [(KvType::F16, 64, 0, b), (KvType::F32, 16, 40, b)])
        {
            let mut case = case(SEED, if slow { (3, 1) } else { (9, 3) }, head_dim, kv, batch);
            case.geometry.window = window;
            let batch = Batch::new(&case);
            let mut ways = ways(&case, exchange_of(label)).into_iter();
            let (shape, path) = ways.next().expect("many ways");
            let first = batch.attend(&mut player, shape, path);
            for (other, other_path) in ways {
                let got = batch.attend(&mut player, other, other_path);
                let off = first.iter().zip(&got).position(|(a, b)| a.to_bits() != b.to_bits());
                assert_eq!(off, None, "{label}: {other:?} {other_path:?} differs from {shape:?} {path:?}, {case:?}");
            }
        }
    });
}

/// One key a row, so each output is its value.
#[test]
fn more_workgroups_than_one_axis_holds() {
    let sequences = vec![(0, 1); 2100];
    let case = case(SEED, (32, 32), 8, KvType::F32, &sequences);
    let batch = Batch::new(&case);
    let want: Vec<f32> = batch.v.concat();
    for_each_adapter(|label, open| {
        let mut player = open(Options::default());
        let exchange = exchange_of(label);
        for path in [Path::Prefill, Path::Decode] {
            let got = batch.attend(&mut player, shape(&case, path, 8, exchange), path);
            assert!(got == want, "{label}: {path:?}");
        }
    });
}

#[test]
fn prefill_tiles_fill_whole_workgroups() {
    for ((heads, kv_heads), head_dim) in HEADS.iter().flat_map(|h| HEAD_DIMS.map(|d| (*h, d))) {
        let case = case(SEED, (heads, kv_heads), head_dim, KvType::F16, &[(0, 1)]);
        let shape = shape(&case, Path::Prefill, 32, Exchange::Workgroup);
        let tokens = attn::tile_tokens(shape, heads / kv_heads);
        assert!(
            tokens >= 1 && (tokens * (heads / kv_heads)).is_multiple_of(u32::from(shape.rows)),
            "{shape:?} {heads}"
        );
    }
}
