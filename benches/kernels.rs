//! What the hot kernels take on the default adapter, in the sizes of the default model, with the variants that its plan takes.
//!
//! usage: `cargo bench --bench kernels [-- FILTER]`
//!
//! ```text
//! gemv     one row through a product          gemm     128 rows
//! prefill  attention of the last 128 tokens   decode   of one more token, and the join of its splits
//! ```
//! Each sample plays a recording of a few launches, by the adapter's clock where it has one, else until the result is there; what a
//! submit costs is shared by these.

use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use twostroke::error::Result;
use twostroke::format::block::BlockFormat;
use twostroke::gpu::adapters::list_now;
use twostroke::gpu::{GpuPlayer, Options};
use twostroke::kernels::gate_act::Activation;
use twostroke::kernels::layout::{self, Packed};
use twostroke::kernels::plan::Plan;
use twostroke::kernels::{Kernel, KvType, Tape, Tile, attn, matmul};
use twostroke::limits::PAGE_TOKENS;
use twostroke::recording::{BufferId, Player, least_nanos};

/// Launches of a recording.
const LAUNCHES: u32 = 8;
/// Rows of a chunk.
const CHUNK: u32 = 128;
/// The default model's.
const GEOMETRY: attn::Geometry =
    attn::Geometry { heads: 9, kv_heads: 3, head_dim: 64, scale: 0.125, softcap: 0.0, window: 0 };
/// Products of the default model: the format, K and rows of the weights, and whether these are gates and ups.
const PRODUCTS: [(&str, BlockFormat, u32, u32, bool); 4] = [
    ("qkv", BlockFormat::Q4_1, 576, 960, false),
    ("gate up", BlockFormat::Q4_1, 576, 3072, true),
    ("down", BlockFormat::Q4_1, 1536, 576, false),
    ("head", BlockFormat::Q8_0, 576, 49_152, false),
];
/// Halves of 0.1 and 0.13: scales, keys and values.
const HALVES: u32 = 0x2e66_3029;

struct Bench {
    player: GpuPlayer<Kernel>,
    plan: Plan,
}

impl Bench {
    /// A buffer full of one word.
    fn words(&mut self, count: u64, word: u32) -> Result<BufferId> {
        let buffer = self.player.create_buffer("bench", count * 4)?;
        let words = vec![word; usize::try_from(count).expect("a small buffer")];
        self.player.write(buffer, 0, bytemuck::cast_slice(&words))?;
        Ok(buffer)
    }

    fn product(&mut self, format: BlockFormat, k: u32, weight_rows: u32, gated: bool, rows: u32) -> Result<Tape> {
        let bytes = layout::plane_bytes(format, weight_rows, k);
        let codes = self.words(bytes.codes / 4, 0x9e37_79b9)?;
        let (scales, high) = (self.words(bytes.scales / 4, HALVES)?, self.words(bytes.high / 4, 0)?);
        let columns = if gated { weight_rows / 2 } else { weight_rows };
        let x = self.words(u64::from(rows * k), 0.5_f32.to_bits())?;
        let out = self.words(u64::from(rows * columns), 0)?;
        let args = matmul::Args {
            weights: Packed { format, rows: weight_rows, k, codes, scales, high },
            x,
            x_stride: k,
            packed: None,
            bias: None,
            bias_start: 0,
            out,
            out_stride: columns,
            out_column: 0,
            rows,
            gate: gated.then_some(Activation::Silu),
            add: false,
            norm: None,
        };
        let mut tape = Tape::new();
        (0..LAUNCHES).for_each(|_| matmul::record(&mut tape, self.plan, &args));
        Ok(tape)
    }

    /// Attention of the last `rows` of `tokens` positions.
    fn attention(&mut self, tokens: u32, rows: u32) -> Result<Tape> {
        let attn::Geometry { heads, kv_heads, head_dim, .. } = GEOMETRY;
        let (group, pages) = (heads / kv_heads, tokens / PAGE_TOKENS);
        let prefill = self.plan.attn_prefill(KvType::F16, head_dim, group);
        let step = if rows == 1 { 1 } else { attn::tile_tokens(prefill, group) };
        let tile = |row: u32| Tile { row, rows: step.min(rows - row), slot: 0, position: tokens - rows + row };
        let tiles: Vec<Tile> = (0..rows).step_by(step as usize).map(tile).collect();
        let page_words = u64::from(pages * kv_heads * PAGE_TOKENS) * KvType::F16.head_bytes(head_dim) / 4;
        let tile_list = self.words(4 * tiles.len() as u64, 0)?;
        self.player.write(tile_list, 0, bytemuck::cast_slice(&tiles))?;
        let tables = self.words(pages.into(), 0)?;
        self.player.write(tables, 0, bytemuck::cast_slice(&(0..pages).rev().collect::<Vec<u32>>()))?;
        let splits = attn::splits(tokens);
        let buffers = attn::Buffers {
            q: self.words(u64::from(rows * heads * head_dim), 0.5_f32.to_bits())?,
            k_pages: self.words(page_words, HALVES)?,
            v_pages: self.words(page_words, HALVES)?,
            tables,
            tiles: tile_list,
            parts: self.words(u64::from(heads * splits * (head_dim + 2)), 0)?,
            out: self.words(u64::from(rows * heads * head_dim), 0)?,
        };
        let (mut tape, count) = (Tape::new(), u32::try_from(tiles.len()).expect("a few"));
        for _ in 0..LAUNCHES {
            if rows == 1 {
                let decode = self.plan.attn_decode(KvType::F16, head_dim, group);
                attn::record_decode(&mut tape, decode, GEOMETRY, buffers, pages, 0, count, splits);
            } else {
                attn::record_prefill(&mut tape, prefill, GEOMETRY, buffers, pages, 0, count);
            }
        }
        Ok(tape)
    }

    /// Plays `tape` once, then again and again.
    fn run(&mut self, criterion: &mut Criterion, name: &str, per: Throughput, tape: &Tape) {
        let mut play = || least_nanos(&mut self.player, tape, 1).unwrap_or_else(|error| panic!("{name}: {error}"));
        play();
        let mut group = criterion.benchmark_group("kernels");
        group.throughput(per);
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|times| {
                let nanos: u64 = (0..times).map(|_| play()).sum();
                Duration::from_nanos(nanos / u64::from(LAUNCHES))
            });
        });
    }
}

fn kernels(criterion: &mut Criterion) {
    let listing = list_now();
    let (adapter, said) = match listing.choose(None) {
        Ok(chosen) => chosen,
        Err(error) => return println!("SKIP {error}"),
    };
    println!("{said}");
    let player = GpuPlayer::open_now(adapter, Options::default()).unwrap_or_else(|error| panic!("{said}: {error}"));
    let mut bench = Bench { plan: player.plan(), player };
    for (stroke, rows) in [("gemv", 1), ("gemm", CHUNK)] {
        for (name, format, k, weight_rows, gated) in PRODUCTS {
            // Of the head only rows that yield tokens are asked for.
            if rows > 1 && name == "head" {
                continue;
            }
            let tape = bench.product(format, k, weight_rows, gated, rows).expect("buffers");
            let products = Throughput::Elements(u64::from(rows) * u64::from(weight_rows) * u64::from(k));
            bench.run(criterion, &format!("{stroke} {name}"), products, &tape);
        }
    }
    for tokens in [512, 4096] {
        for (stroke, rows) in [("prefill", CHUNK), ("decode", 1)] {
            let tape = bench.attention(tokens, rows).expect("buffers");
            let pairs = Throughput::Elements(u64::from(rows) * u64::from(tokens));
            bench.run(criterion, &format!("{stroke} {tokens}"), pairs, &tape);
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = kernels
}
criterion_main!(benches);
