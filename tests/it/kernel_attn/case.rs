//! A seeded batch for attention: sequences with scattered pages, and the launch of either path on a player.

use twostroke::kernels::attn::{self, Buffers, Geometry, Shape};
use twostroke::kernels::kv_page::{KvBlock, Side};
use twostroke::kernels::{Kernel, KvType, Tape, Tile, padded};
use twostroke::limits::{KEY_TILE_TOKENS, PAGE_TOKENS};
use twostroke::recording::{BufferId, Player};

use crate::pairwise::Random;

/// A word that no kernel may read: NaN as f32 and as two halves.
pub(super) const POISON: u32 = 0x7fff_7fff;
const PAGE: usize = PAGE_TOKENS as usize;

/// One sequence of a batch: `rows` new tokens after `past` cached ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sequence {
    pub(super) past: u32,
    pub(super) rows: u32,
}

/// A batch and the model's sizes.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) seed: u64,
    pub(super) geometry: Geometry,
    pub(super) kv: KvType,
    pub(super) sequences: Vec<Sequence>,
}

/// Which kernels do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Path {
    /// Tiles of as many tokens as fit.
    Prefill,
    /// Tiles of this many tokens.
    Chunks(u32),
    /// Tiles of one token, splits apart.
    Decode,
}

/// A case with all its data.
pub(super) struct Batch {
    pub(super) case: Case,
    /// `[rows, heads * head_dim]`
    pub(super) q: Vec<f32>,
    /// `[sequence][position, kv_heads, head_dim]` as stored.
    pub(super) k: Vec<Vec<f32>>,
    pub(super) v: Vec<Vec<f32>>,
    k_pages: Vec<u32>,
    v_pages: Vec<u32>,
    tables: Vec<u32>,
    table_stride: u32,
}

/// Heads of `values` as they are after they were stored.
fn stored(kv: KvType, head_dim: usize, values: Vec<f32>) -> Vec<f32> {
    match kv {
        KvType::F32 => values,
        KvType::F16 => values.into_iter().map(|x| half::f16::from_f32(x).to_f32()).collect(),
        KvType::Q8 => {
            let block = KvBlock::new(kv, Side::K, u32::try_from(head_dim).expect("a head size"));
            let mut words = vec![0; block.words()];
            let read = |head: &[f32]| {
                block.write(&mut words, 0, head);
                (0..head_dim / 8).flat_map(|unit| block.read(&words, 0, unit)).collect::<Vec<_>>()
            };
            values.chunks_exact(head_dim).flat_map(read).collect()
        }
    }
}

/// First page that attention may read: that of the first key tile that a row at `position` sees.
fn first_page(position: u32, window: u32) -> usize {
    let first = if window == 0 { 0 } else { (position + 1).saturating_sub(window) };
    (first / KEY_TILE_TOKENS * KEY_TILE_TOKENS / PAGE_TOKENS) as usize
}

/// Writes 8 values as unit `unit` of `pages`.
fn put(kv: KvType, pages: &mut [u32], unit: usize, values: &[f32]) {
    match kv {
        KvType::F32 => values.iter().enumerate().for_each(|(d, x)| pages[unit * 8 + d] = x.to_bits()),
        KvType::F16 => values.chunks_exact(2).enumerate().for_each(|(i, two)| {
            let half = |x: f32| u32::from(half::f16::from_f32(x).to_bits());
            pages[unit * 4 + i] = half(two[0]) | half(two[1]) << 16;
        }),
        KvType::Q8 => panic!("bytes are stored by heads"),
    }
}

impl Batch {
    /// The data of `case`. Pages are scattered over a pool in which all else, the rest of last pages included, is poison;
    /// so is what tables say of pages that are not there yet, or before the window.
    pub(super) fn new(case: &Case) -> Self {
        let mut random = Random::new(case.seed);
        let Geometry { heads, kv_heads, head_dim, .. } = case.geometry;
        let (kv_heads, head_dim) = (kv_heads as usize, head_dim as usize);
        let rows: u32 = case.sequences.iter().map(|s| s.rows).sum();
        let q = random.units(rows as usize * heads as usize * head_dim).into_iter().map(|x| 3.0 * x).collect();
        let pages_of = |s: &Sequence| (s.past + s.rows).div_ceil(PAGE_TOKENS) as usize;
        let pool = case.sequences.iter().map(pages_of).sum::<usize>() + 3;
        let table_stride = case.sequences.iter().map(pages_of).max().unwrap_or(0) + 1;
        let mut free = random.shuffled(pool);
        let stray = u32::try_from(free.pop().expect("3 spare pages")).expect("a page");
        let head_bytes = case.kv.head_bytes(case.geometry.head_dim);
        let words = pool * PAGE * kv_heads * usize::try_from(head_bytes).expect("bytes") / 4;
        let mut batch = Self {
            case: case.clone(),
            q,
            k: Vec::new(),
            v: Vec::new(),
            k_pages: vec![POISON; words],
            v_pages: vec![POISON; words],
            tables: vec![stray; table_stride * case.sequences.len()],
            table_stride: u32::try_from(table_stride).expect("pages a slot"),
        };
        for (slot, s) in case.sequences.iter().enumerate() {
            let pages = free.split_off(free.len() - pages_of(s));
            for (at, &page) in pages.iter().enumerate().skip(first_page(s.past, case.geometry.window)) {
                batch.tables[slot * table_stride + at] = u32::try_from(page).expect("a page");
            }
            let values = (s.past + s.rows) as usize * kv_heads * head_dim;
            let k = stored(case.kv, head_dim, random.units(values).into_iter().map(|x| 2.0 * x).collect());
            let v = stored(case.kv, head_dim, random.units(values));
            batch.fill(&pages, &k, &v);
            batch.k.push(k);
            batch.v.push(v);
        }
        batch
    }

    fn fill(&mut self, pages: &[usize], k: &[f32], v: &[f32]) {
        let (kv_heads, head_dim) = (self.case.geometry.kv_heads as usize, self.case.geometry.head_dim as usize);
        let units = head_dim / 8;
        if self.case.kv == KvType::Q8 {
            let sides = [(Side::K, &mut self.k_pages, k), (Side::V, &mut self.v_pages, v)];
            for (side, to, values) in sides {
                let block = KvBlock::new(KvType::Q8, side, self.case.geometry.head_dim);
                for (i, head) in values.chunks_exact(head_dim).enumerate() {
                    let (kv_head, position) = (i % kv_heads, i / kv_heads);
                    let at = (pages[position / PAGE] * kv_heads + kv_head) * block.words();
                    block.write(&mut to[at..at + block.words()], position % PAGE, head);
                }
            }
            return;
        }
        for (i, (k, v)) in k.chunks_exact(8).zip(v.chunks_exact(8)).enumerate() {
            let (unit, kv_head, position) = (i % units, i / units % kv_heads, i / units / kv_heads);
            let block = pages[position / PAGE] * kv_heads + kv_head;
            put(self.case.kv, &mut self.k_pages, (block * units + unit) * PAGE + position % PAGE, k);
            put(self.case.kv, &mut self.v_pages, (block * PAGE + position % PAGE) * units + unit, v);
        }
    }

    /// Rows of the batch.
    pub(super) fn rows(&self) -> u32 {
        self.case.sequences.iter().map(|s| s.rows).sum()
    }

    /// Tiles of at most `tokens` rows.
    fn tiles(&self, tokens: u32) -> Vec<Tile> {
        let (mut tiles, mut row) = (Vec::new(), 0);
        for (slot, s) in (0..).zip(&self.case.sequences) {
            for at in (0..s.rows).step_by(tokens as usize) {
                let rows = tokens.min(s.rows - at);
                tiles.push(Tile { row: row + at, rows, slot, position: s.past + at });
            }
            row += s.rows;
        }
        tiles
    }

    /// Output of the batch, `[rows, heads * head_dim]`. The tiles start behind a stray one, to hold `first_tile`.
    pub(super) fn attend(&self, player: &mut dyn Player<Kernel>, shape: Shape, path: Path) -> Vec<f32> {
        let Geometry { heads, head_dim, .. } = self.case.geometry;
        let columns = heads * head_dim;
        let stride = padded(columns);
        let tokens_max = attn::tile_tokens(shape, self.case.geometry.group());
        let tokens = match path {
            Path::Prefill => tokens_max,
            Path::Chunks(tokens) => tokens.min(tokens_max),
            Path::Decode => 1,
        };
        let mut tiles = vec![Tile { row: u32::MAX, rows: 1, slot: u32::MAX, position: u32::MAX }];
        tiles.extend(self.tiles(tokens));
        let count = u32::try_from(tiles.len() - 1).expect("a few tiles");
        let splits = self.case.sequences.iter().map(|s| attn::splits(s.past + s.rows)).max().unwrap_or(1);
        let parts = if path == Path::Decode { count * heads * splits * (head_dim + 2) } else { 1 };
        let mut buffers = Vec::new();
        let mut make = |words: &[u32]| {
            let id = player.create_buffer("case", words.len() as u64 * 4).expect("a small buffer");
            player.write(id, 0, bytemuck::cast_slice(words)).expect("a small write");
            buffers.push(id);
            id
        };
        let ids = Buffers {
            q: make(bytemuck::cast_slice(&self.q)),
            k_pages: make(&self.k_pages),
            v_pages: make(&self.v_pages),
            tables: make(&self.tables),
            tiles: make(bytemuck::cast_slice(&tiles)),
            parts: make(&vec![POISON; parts as usize]),
            out: make(&vec![0; (self.rows() * stride) as usize]),
        };
        let mut tape = Tape::new();
        match path {
            Path::Prefill | Path::Chunks(_) => {
                attn::record_prefill(&mut tape, shape, self.case.geometry, ids, self.table_stride, 1, count)
            }
            Path::Decode => {
                attn::record_decode(&mut tape, shape, self.case.geometry, ids, self.table_stride, 1, count, splits);
            }
        }
        tape.read(ids.out, 0, u64::from(self.rows() * stride) * 4);
        let ticket = player.submit(&tape).expect("a launch");
        let words = player.wait(ticket).expect("a result").words;
        buffers.into_iter().for_each(|id: BufferId| player.drop_buffer(id));
        let (kept, padding): (Vec<_>, Vec<_>) = (0_u32..).zip(words).partition(|(i, _)| i % stride < columns);
        assert!(padding.iter().all(|&(_, word)| word == 0), "the padding of a row was written");
        kept.into_iter().map(|(_, word)| f32::from_bits(word)).collect()
    }

    /// The same by definition, in f64.
    pub(super) fn reference(&self) -> Vec<f64> {
        let Geometry { heads, kv_heads, head_dim, scale, softcap, window } = self.case.geometry;
        let (hd, kv_heads, group) = (head_dim as usize, kv_heads as usize, (heads / kv_heads) as usize);
        let mut out = Vec::new();
        let mut queries = self.q.chunks_exact(hd);
        for (slot, s) in self.case.sequences.iter().enumerate() {
            for position in s.past..s.past + s.rows {
                let first = if window == 0 { 0 } else { (position + 1).saturating_sub(window) };
                for head in 0..heads as usize {
                    let q = queries.next().expect("a query a row and head");
                    let at = |key: u32| (key as usize * kv_heads + head / group) * hd;
                    let score = |key: u32| {
                        let k = &self.k[slot][at(key)..][..hd];
                        let s: f64 = q.iter().zip(k).map(|(&q, &k)| f64::from(q) * f64::from(k)).sum();
                        let s = s * f64::from(scale);
                        if softcap > 0.0 { f64::from(softcap) * (s / f64::from(softcap)).tanh() } else { s }
                    };
                    let scores: Vec<f64> = (first..=position).map(score).collect();
                    let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let p: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
                    let sum: f64 = p.iter().sum();
                    out.extend((0..hd).map(|d| {
                        let v = |key: u32| f64::from(self.v[slot][at(key) + d]);
                        (first..=position).zip(&p).map(|(key, p)| p * v(key)).sum::<f64>() / sum
                    }));
                }
            }
        }
        out
    }
}
