//! RoPE and the paged write of K and V: the twin against its definition in f64, the shader against the twin.

use twostroke::gpu::Options;
use twostroke::kernels::kv_page::{KvBlock, Side};
use twostroke::kernels::rope_kv::{self, Args, Pairing};
use twostroke::kernels::{Kernel, KvType, Row, Tape, padded};
use twostroke::limits::PAGE_TOKENS;
use twostroke::recording::{BufferId, Player};
use twostroke::twin::Twin;

use crate::adapters::for_each_adapter;
use crate::pairwise::{self, Random};

/// f32: a few roundings of values up to about 10, and 1 / sqrt, for which WGSL allows 2 ULP and GPUs take more.
const F32_TOLERANCE: f64 = 1.0e-5;
/// f16 pages, relative: half an ULP, or a whole one where the other side of a tie was taken.
const F16_TOLERANCE: f64 = 1.0 / 1024.0;
/// What no launch may write over.
const UNTOUCHED: u32 = 0x7fc0_dead;
const PAGE: usize = PAGE_TOKENS as usize;
const SEED: u64 = 23;
const CASES: usize = 48;

const HEADS: [(usize, usize); 6] = [(1, 1), (9, 3), (4, 4), (32, 8), (5, 1), (32, 32)];
const HEAD_DIMS: [usize; 8] = [8, 16, 24, 64, 80, 96, 128, 256];
/// Positions of the rows of each sequence.
#[allow(clippy::single_range_in_vec_init, reason = "one sequence is a range of positions")]
const BATCHES: [&[std::ops::Range<u32>]; 5] =
    [&[0..1], &[0..130], &[15..17, 1029..1030, 0..5], &[255..260], &[7..8, 16..17]];

/// Sizes of a launch.
#[derive(Debug, Clone)]
struct Case {
    seed: u64,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    rotary_dim: usize,
    pairing: Pairing,
    norm: bool,
    kv: KvType,
    batch: &'static [std::ops::Range<u32>],
    /// Largest |x|.
    scale: f32,
}

fn cases() -> Vec<Case> {
    let levels = [HEADS.len(), HEAD_DIMS.len(), 3, 2, 2, 3, BATCHES.len(), 2];
    let rows = pairwise::table(&levels, SEED, CASES);
    let case = |(i, row): (usize, Vec<usize>)| {
        let [heads, head_dim, rotary, pairing, norm, kv, batch, scale] = row[..] else { unreachable!() };
        let ((heads, kv_heads), head_dim) = (HEADS[heads], HEAD_DIMS[head_dim]);
        Case {
            seed: SEED + i as u64,
            heads,
            kv_heads,
            head_dim,
            rotary_dim: [head_dim, head_dim / 4 * 2, 0][rotary],
            pairing: [Pairing::Halves, Pairing::Interleaved][pairing],
            norm: norm == 1,
            kv: [KvType::F16, KvType::F32, KvType::Q8][kv],
            batch: BATCHES[batch],
            scale: [4.0, 2.0e5][scale],
        }
    };
    rows.into_iter().enumerate().map(case).collect()
}

/// The data of a case.
struct Data {
    qkv: Vec<f32>,
    stride: usize,
    rope: Vec<f32>,
    rows: Vec<Row>,
    tables: Vec<u32>,
    table_stride: usize,
    weights: Vec<f32>,
    pages: usize,
}

/// q, and the pages, as words.
struct Output {
    q: Vec<u32>,
    k: Vec<u32>,
    v: Vec<u32>,
}

const EPS: f32 = 1.0e-6;

impl Case {
    fn columns(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    fn data(&self) -> Data {
        let mut random = Random::new(self.seed);
        let stride = padded(u32::try_from(self.columns()).expect("columns")) as usize;
        let table_stride = self.batch.iter().map(|r| r.end.div_ceil(PAGE_TOKENS) as usize).max().expect("a sequence");
        let pages = table_stride * self.batch.len() + 1;
        let rows: Vec<Row> = (0..)
            .zip(self.batch)
            .flat_map(|(slot, range)| range.clone().map(move |position| Row { token: 0, position, slot, pad: 0 }))
            .collect();
        let positions = self.batch.iter().map(|r| r.end as usize).max().expect("a sequence");
        let angle = |i: usize| {
            let (position, pair) = (i / (self.rotary_dim / 2), i % (self.rotary_dim / 2));
            let (sin, cos) = (position as f64 * 10_000_f64.powf(-2.0 * pair as f64 / self.rotary_dim as f64)).sin_cos();
            [cos as f32, sin as f32]
        };
        Data {
            qkv: random.units(rows.len() * stride).into_iter().map(|x| x * self.scale).collect(),
            stride,
            rope: (0..positions * (self.rotary_dim / 2)).flat_map(angle).collect(),
            tables: random
                .shuffled(pages)
                .into_iter()
                .take(pages - 1)
                .map(|p| u32::try_from(p).expect("a page"))
                .collect(),
            rows,
            table_stride,
            weights: random.units(2 * self.head_dim).into_iter().map(|x| 1.0 + x / 2.0).collect(),
            pages,
        }
    }

    fn play(&self, player: &mut dyn Player<Kernel>, data: &Data) -> Output {
        let narrow = |n: usize| u32::try_from(n).expect("small");
        let page_words = data.pages * PAGE * self.kv_heads * self.kv.head_bytes(narrow(self.head_dim)) as usize / 4;
        let q_words = data.rows.len() * self.heads * self.head_dim;
        let mut made = Vec::new();
        let mut make = |words: &[u32]| -> BufferId {
            let id = player.create_buffer("case", words.len().max(1) as u64 * 4).expect("a small buffer");
            player.write(id, 0, bytemuck::cast_slice(words)).expect("a small write");
            made.push(id);
            id
        };
        let args = Args {
            qkv: make(bytemuck::cast_slice(&data.qkv)),
            qkv_stride: narrow(data.stride),
            rope: make(bytemuck::cast_slice(&data.rope)),
            rows: make(bytemuck::cast_slice(&data.rows)),
            row_count: narrow(data.rows.len()),
            tables: make(&data.tables),
            table_stride: narrow(data.table_stride),
            norm_weights: make(bytemuck::cast_slice(&data.weights)),
            norm: self.norm,
            eps: EPS,
            q_out: make(&vec![UNTOUCHED; q_words]),
            k_pages: make(&vec![UNTOUCHED; page_words]),
            v_pages: make(&vec![UNTOUCHED; page_words]),
            heads: narrow(self.heads),
            kv_heads: narrow(self.kv_heads),
            head_dim: narrow(self.head_dim),
            rotary_dim: narrow(self.rotary_dim),
            pairing: self.pairing,
            kv: self.kv,
        };
        let mut tape = Tape::new();
        rope_kv::record(&mut tape, &args);
        for (id, words) in [(args.q_out, q_words), (args.k_pages, page_words), (args.v_pages, page_words)] {
            tape.read(id, 0, words as u64 * 4);
        }
        let ticket = player.submit(&tape).expect("a launch");
        let mut q = player.wait(ticket).expect("a result").words;
        made.into_iter().for_each(|id| player.drop_buffer(id));
        let mut k = q.split_off(q_words);
        let v = k.split_off(page_words);
        Output { q, k, v }
    }

    /// One head of one row after norm and rotation, by definition.
    fn head(&self, data: &Data, row: usize, head: usize) -> Vec<f64> {
        let x = &data.qkv[row * data.stride + head * self.head_dim..][..self.head_dim];
        let mut x: Vec<f64> = x.iter().copied().map(f64::from).collect();
        if head >= self.heads + self.kv_heads {
            return x;
        }
        if self.norm {
            let weights = &data.weights[if head < self.heads { 0 } else { self.head_dim }..];
            let mean = x.iter().map(|x| x * x).sum::<f64>() / self.head_dim as f64;
            let inverse = 1.0 / (mean + f64::from(EPS)).sqrt();
            x.iter_mut().zip(weights).for_each(|(x, &w)| *x *= inverse * f64::from(w));
        }
        let pairs = self.rotary_dim / 2;
        for pair in 0..pairs {
            let at = (data.rows[row].position as usize * pairs + pair) * 2;
            let (cos, sin) = (f64::from(data.rope[at]), f64::from(data.rope[at + 1]));
            let (a, b) = match self.pairing {
                Pairing::Halves => (pair, pair + pairs),
                Pairing::Interleaved => (2 * pair, 2 * pair + 1),
            };
            (x[a], x[b]) = (x[a] * cos - x[b] * sin, x[b] * cos + x[a] * sin);
        }
        x
    }

    /// Value `i` of `pages`, not of bytes.
    fn stored(&self, pages: &[u32], i: usize) -> f32 {
        match self.kv {
            KvType::F32 => f32::from_bits(pages[i]),
            KvType::F16 => half::f16::from_bits((pages[i / 2] >> (16 * (i % 2)) & 0xffff) as u16).to_f32(),
            KvType::Q8 => panic!("a byte has a scale elsewhere"),
        }
    }

    /// Compares `got` with what `want(row, head)` says, and that nothing else was written.
    fn check(&self, label: &str, data: &Data, got: &Output, want: impl Fn(usize, usize) -> Vec<f64>) {
        let (hd, units) = (self.head_dim, self.head_dim / 8);
        let size = |kv: KvType, x: f64| if kv == KvType::F16 { x.clamp(-65_504.0, 65_504.0) } else { x };
        let near = |kv: KvType, got: f32, want: f64| {
            let tolerance = if kv == KvType::F16 { F16_TOLERANCE } else { F32_TOLERANCE };
            let (want, slack) = (size(kv, want), 1.0_f64.max(f64::from(if self.norm { 1.0 } else { self.scale })));
            let within = (f64::from(got) - want).abs() <= tolerance * want.abs() + F32_TOLERANCE * slack;
            assert!(within, "{label}: {got} for {want}, {self:?}");
        };
        let mut written = [vec![false; got.k.len()], vec![false; got.v.len()]];
        for (row, Row { position, slot, .. }) in data.rows.iter().enumerate() {
            let page = data.tables[*slot as usize * data.table_stride + (*position / PAGE_TOKENS) as usize] as usize;
            let token = (*position % PAGE_TOKENS) as usize;
            for head in 0..self.heads + 2 * self.kv_heads {
                let head_wants = want(row, head);
                for (d, &want) in head_wants.iter().enumerate() {
                    if head < self.heads {
                        near(KvType::F32, f32::from_bits(got.q[(row * self.heads + head) * hd + d]), want);
                        continue;
                    }
                    let (v, kv_head) = ((head - self.heads) / self.kv_heads, (head - self.heads) % self.kv_heads);
                    let block = page * self.kv_heads + kv_head;
                    if self.kv == KvType::Q8 {
                        let layout = KvBlock::new(self.kv, [Side::K, Side::V][v], hd as u32);
                        let at = block * layout.words();
                        let stored = layout.read(&[&got.k, &got.v][v][at..at + layout.words()], token, d / 8)[d % 8];
                        let run = &head_wants[d / 32 * 32..hd.min(d / 32 * 32 + 32)];
                        let top = run.iter().fold(0.0_f64, |top, x| top.max(x.abs()));
                        let within = (f64::from(stored) - want).abs() <= top * (0.501 / 127.0) + F32_TOLERANCE * top;
                        assert!(within, "{label}: {stored} for {want}, {self:?}");
                        written[v][at + layout.unit_at(token, d / 8) + d % 8 / 4] = true;
                        written[v][at + layout.scale_at(token, d / 32)] = true;
                        continue;
                    }
                    let unit = [(block * units + d / 8) * PAGE + token, (block * PAGE + token) * units + d / 8][v];
                    near(self.kv, self.stored([&got.k, &got.v][v], unit * 8 + d % 8), want);
                    written[v][(unit * 8 + d % 8) * self.kv.unit_words() as usize / 8] = true;
                }
            }
        }
        for (pages, written) in [&got.k, &got.v].into_iter().zip(written) {
            let stray = pages.iter().zip(written).position(|(&word, written)| !written && word != UNTOUCHED);
            assert_eq!(stray, None, "{label}: a word of the pages that is nobody's was written, {self:?}");
        }
    }
}

#[test]
fn twin_is_norm_and_rope_by_definition() {
    for case in cases() {
        let data = case.data();
        let got = case.play(&mut Twin::new(), &data);
        case.check("twin", &data, &got, |row, head| case.head(&data, row, head));
    }
}

#[test]
fn shader_equals_its_twin() {
    for_each_adapter(|label, open| {
        let mut player = open(Options { checked: true, ..Options::default() });
        for case in cases() {
            let data = case.data();
            let got = case.play(&mut player, &data);
            case.check(label, &data, &got, |row, head| case.head(&data, row, head));
            let twin = case.play(&mut Twin::new(), &data);
            let apart = |a: &[u32], b: &[u32]| a.iter().zip(b).filter(|(a, b)| a != b).count();
            let apart = [apart(&got.q, &twin.q), apart(&got.k, &twin.k), apart(&got.v, &twin.v)];
            let software = label.contains("llvmpipe") || label.contains("SwiftShader");
            // Neither driver fuses: without the norm's root, bit for bit.
            assert!(!software || case.norm || apart == [0, 0, 0], "{label}: {apart:?} words differ, {case:?}");
        }
    });
}

#[test]
fn halves_saturate_instead_of_overflowing() {
    let case = cases().into_iter().find(|case| case.kv == KvType::F16 && case.scale > 1.0e5).expect("such a case");
    let data = case.data();
    let got = case.play(&mut Twin::new(), &data);
    let values = (0..got.v.len() * 2).map(|i| case.stored(&got.v, i)).filter(|v| v.is_finite());
    assert_eq!(values.fold(0.0, |top: f32, v| top.max(v.abs())), 65_504.0);
    let infinite =
        (0..got.v.len()).filter(|&i| got.v[i] != UNTOUCHED && !case.stored(&got.v, 2 * i).is_finite()).count();
    assert_eq!(infinite, 0);
}
