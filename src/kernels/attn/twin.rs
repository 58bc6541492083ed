//! The CPU twin of attention: the same workgroups over the same params, each row in canonical order.
//!
//! Multiplies, then adds, as software drivers do with `fma`; there it equals the shaders but for exp and tanh.

use super::{MASKED, MERGE_INVOCATIONS, MergeParams, Params, Shape, TANH_MAX, first_seen};
use crate::kernels::kv_page::{KvBlock, Side};
use crate::kernels::{Tile, floats, floats_mut};
use crate::limits::{HEAD_DIM_STEP, KEY_TILE_TOKENS, PAGE_TOKENS, SPLIT_TOKENS};

const KEYS: usize = KEY_TILE_TOKENS as usize;
const STEP: usize = HEAD_DIM_STEP as usize;

/// What a row knows of the keys of one split, or of the splits joined so far.
#[derive(Debug, Clone)]
struct State {
    m: f32,
    l: f32,
    o: Vec<f32>,
}

impl State {
    fn new(head_dim: usize) -> Self {
        Self { m: MASKED, l: 0.0, o: vec![0.0; head_dim] }
    }

    /// Joins a later split.
    fn join(&mut self, m: f32, l: f32, o: &[f32]) {
        let top = self.m.max(m);
        let (a, b) = ((self.m - top).exp(), (m - top).exp());
        self.m = top;
        self.l = self.l * a + l * b;
        for (sum, &o) in self.o.iter_mut().zip(o) {
            *sum = *sum * a + o * b;
        }
    }

    /// The output; 0 for a row that saw no key.
    fn output(&self, d: usize) -> f32 {
        if self.l == 0.0 { 0.0 } else { self.o[d] / self.l }
    }
}

/// Row of a workgroup: where it is, and what it sees.
struct Query {
    /// Row of the batch.
    row: usize,
    head: usize,
    /// First and last key it sees.
    first: u32,
    last: u32,
}

/// The work of one workgroup.
struct Job {
    tile_at: usize,
    slot: u32,
    kv_head: usize,
    queries: Vec<Query>,
    /// First and last key that any of its rows sees.
    first: u32,
    last: u32,
    split: u32,
}

fn job(shape: Shape, params: &Params, index: u32, tiles: &[Tile]) -> Option<Job> {
    let (split, rest) = (index % params.splits, index / params.splits);
    let (chunk, rest) = (rest % params.chunks, rest / params.chunks);
    let (kv_head, tile_at) = (rest % params.kv_heads, rest / params.kv_heads);
    let tile = tiles[(params.first_tile + tile_at) as usize];
    let (rows, live) = (u32::from(shape.rows), tile.rows * params.group);
    assert!(
        params.chunks * rows >= live,
        "tile of {} tokens: {live} rows, {} x {rows} places",
        tile.rows,
        params.chunks
    );
    let queries: Vec<_> = (chunk * rows..((chunk + 1) * rows).min(live))
        .map(|r| {
            let (token, head) = (r / params.group, kv_head * params.group + r % params.group);
            let last = tile.position + token;
            Query {
                row: (tile.row + token) as usize,
                head: head as usize,
                first: first_seen(last, params.window),
                last,
            }
        })
        .collect();
    let (first, last) = (queries.first()?.first, queries.last()?.last);
    Some(Job { tile_at: tile_at as usize, slot: tile.slot, kv_head: kv_head as usize, queries, first, last, split })
}

/// Reads keys and values of one key tile from their pages.
struct Pages<'a> {
    blocks: [KvBlock; 2],
    units: usize,
    kv_heads: usize,
    table_stride: usize,
    k: &'a [u32],
    v: &'a [u32],
    tables: &'a [u32],
}

/// A key tile as floats.
struct KeyTile {
    /// `[head_dim][key]`
    k: Vec<f32>,
    /// `[key][head_dim]`
    v: Vec<f32>,
}

impl Pages<'_> {
    /// Loads keys `start..=end` of `job`'s KV head; the rest of the tile keeps what it had, and is masked by all rows.
    fn load(&self, job: &Job, start: u32, end: u32, tile: &mut KeyTile) {
        let [k_block, v_block] = self.blocks;
        for position in start..=end {
            let page = self.tables[job.slot as usize * self.table_stride + (position / PAGE_TOKENS) as usize] as usize;
            let (block, token) = (page * self.kv_heads + job.kv_head, (position % PAGE_TOKENS) as usize);
            let key = (position - start) as usize;
            for unit in 0..self.units {
                let k = k_block.read(&self.k[block * k_block.words()..][..k_block.words()], token, unit);
                let v = v_block.read(&self.v[block * v_block.words()..][..v_block.words()], token, unit);
                for (d, &value) in k.iter().enumerate() {
                    tile.k[(unit * STEP + d) * KEYS + key] = value;
                }
                let at = (key * self.units + unit) * STEP;
                tile.v[at..at + STEP].copy_from_slice(&v);
            }
        }
    }
}

/// Adds keys `start..=end` to a row's state.
fn add_tile(
    shape: Shape,
    params: &Params,
    query: &Query,
    q: &[f32],
    (start, end): (u32, u32),
    tile: &KeyTile,
    state: &mut State,
) {
    let mut s = [0.0_f32; KEYS];
    for (&x, k) in q.iter().zip(tile.k.chunks_exact(KEYS)) {
        for (s, &k) in s.iter_mut().zip(k) {
            *s += x * k;
        }
    }
    let seen = |key: usize| {
        let position = start + u32::try_from(key).expect("a key of a tile");
        position >= query.first && position <= query.last.min(end)
    };
    for (key, s) in s.iter_mut().enumerate() {
        *s *= params.scale;
        if shape.capped {
            *s = params.softcap * (*s / params.softcap).clamp(-TANH_MAX, TANH_MAX).tanh();
        }
        if !seen(key) {
            *s = MASKED;
        }
    }
    let top = s.iter().fold(state.m, |a, &b| a.max(b));
    let alpha = (state.m - top).exp();
    state.m = top;
    state.l *= alpha;
    state.o.iter_mut().for_each(|o| *o *= alpha);
    for (key, v) in tile.v.chunks_exact(q.len()).enumerate().filter(|(key, _)| seen(*key)) {
        let p = (s[key] - top).exp();
        state.l += p;
        for (o, &v) in state.o.iter_mut().zip(v) {
            *o += p * v;
        }
    }
}

/// The states of all rows of `job` over the keys of one split.
fn walk_split(shape: Shape, params: &Params, pages: &Pages, job: &Job, q: &[f32], split: u32) -> Vec<State> {
    let head_dim = usize::from(shape.head_dim);
    let mut states = vec![State::new(head_dim); job.queries.len()];
    let mut tile = KeyTile { k: vec![0.0; head_dim * KEYS], v: vec![0.0; head_dim * KEYS] };
    let last = (split * SPLIT_TOKENS + SPLIT_TOKENS - 1).min(job.last);
    let mut start = (split * SPLIT_TOKENS).max(job.first / KEY_TILE_TOKENS * KEY_TILE_TOKENS);
    while start <= last {
        let end = last.min(start + KEY_TILE_TOKENS - 1);
        pages.load(job, start, end, &mut tile);
        for (query, state) in job.queries.iter().zip(&mut states) {
            let at = (query.row * params.heads as usize + query.head) * head_dim;
            add_tile(shape, params, query, &q[at..at + head_dim], (start, end), &tile, state);
        }
        start += KEY_TILE_TOKENS;
    }
    states
}

fn attend(
    shape: Shape,
    params: &[u8],
    grid: [u32; 3],
    mem: &mut [Vec<u32>],
    mut finish: impl FnMut(&Params, &Job, &dyn Fn(u32) -> Vec<State>, &mut [Vec<u32>]),
) {
    let params = Params::read(params);
    let [q, k, v, tables, tiles, outputs @ ..] = mem else { panic!("attention reads 5 bindings of {}", mem.len()) };
    let pages = Pages {
        blocks: [Side::K, Side::V].map(|side| KvBlock::new(shape.kv, side, shape.head_dim.into())),
        units: usize::from(shape.head_dim) / STEP,
        kv_heads: params.kv_heads as usize,
        table_stride: params.table_stride as usize,
        k,
        v,
        tables,
    };
    assert!(grid[0] == params.grid_x && grid[0] * grid[1] >= params.workgroups, "grid {grid:?}");
    for job in (0..params.workgroups).filter_map(|index| job(shape, &params, index, bytemuck::cast_slice(tiles))) {
        let split = |split| walk_split(shape, &params, &pages, &job, floats(q), split);
        finish(&params, &job, &split, outputs);
    }
}

/// Twin of `attn_prefill`.
pub(in crate::kernels) fn prefill_twin(shape: Shape, params: &[u8], grid: [u32; 3], mem: &mut [Vec<u32>]) {
    let head_dim = usize::from(shape.head_dim);
    attend(shape, params, grid, mem, |params, job, split, outputs| {
        let out = floats_mut(&mut outputs[0]);
        let mut sums = vec![State::new(head_dim); job.queries.len()];
        for at in job.first / SPLIT_TOKENS..=job.last / SPLIT_TOKENS {
            for (sum, part) in sums.iter_mut().zip(split(at)) {
                sum.join(part.m, part.l, &part.o);
            }
        }
        for (query, sum) in job.queries.iter().zip(&sums) {
            let at = query.row * params.out_stride as usize + query.head * head_dim;
            (0..head_dim).for_each(|d| out[at + d] = sum.output(d));
        }
    });
}

/// Twin of `attn_decode`.
pub(in crate::kernels) fn decode_twin(shape: Shape, params: &[u8], grid: [u32; 3], mem: &mut [Vec<u32>]) {
    let head_dim = usize::from(shape.head_dim);
    attend(shape, params, grid, mem, |params, job, split, outputs| {
        let [parts, out] = outputs else { panic!("decode attention writes 2 bindings, not {}", outputs.len()) };
        let (parts, out) = (floats_mut(parts), floats_mut(out));
        if job.split < job.first / SPLIT_TOKENS || job.split > job.last / SPLIT_TOKENS {
            return;
        }
        for (query, part) in job.queries.iter().zip(split(job.split)) {
            if params.splits == 1 {
                let mut sum = State::new(head_dim);
                sum.join(part.m, part.l, &part.o);
                let at = query.row * params.out_stride as usize + query.head * head_dim;
                (0..head_dim).for_each(|d| out[at + d] = sum.output(d));
                continue;
            }
            let row = job.tile_at * params.heads as usize + query.head;
            let at = (row * params.splits as usize + job.split as usize) * (head_dim + 2);
            parts[at..at + head_dim].copy_from_slice(&part.o);
            parts[at + head_dim] = part.m;
            parts[at + head_dim + 1] = part.l;
        }
    });
}

/// Twin of `attn_merge`.
pub(in crate::kernels) fn merge_twin(params: &[u8], grid: [u32; 3], mem: &mut [Vec<u32>]) {
    let params = MergeParams::read(params);
    let [parts, tiles, out] = mem else { panic!("the join has 3 bindings, not {}", mem.len()) };
    let (parts, tiles, out) = (floats(parts), bytemuck::cast_slice::<u32, Tile>(tiles), floats_mut(out));
    let places = u64::from(grid[0]) * u64::from(grid[1]) * u64::from(MERGE_INVOCATIONS);
    assert!(grid[0] == params.grid_x && places >= u64::from(params.pairs), "grid {grid:?}");
    let (heads, head_dim, splits) = (params.heads as usize, params.head_dim as usize, params.splits as usize);
    for row in 0..params.pairs as usize * 2 / head_dim {
        let tile = tiles[params.first_tile as usize + row / heads];
        if tile.rows == 0 {
            continue;
        }
        let first = (first_seen(tile.position, params.window) / SPLIT_TOKENS) as usize;
        let mut sum = State::new(head_dim);
        for split in first..=(tile.position / SPLIT_TOKENS) as usize {
            let part = &parts[(row * splits + split) * (head_dim + 2)..][..head_dim + 2];
            sum.join(part[head_dim], part[head_dim + 1], &part[..head_dim]);
        }
        let at = tile.row as usize * params.out_stride as usize + row % heads * head_dim;
        (0..head_dim).for_each(|d| out[at + d] = sum.output(d));
    }
}
