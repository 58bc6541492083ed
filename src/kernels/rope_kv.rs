//! Norm of q and k heads (where the model has one), RoPE, and K and V written into their pages.

use minijinja::context;

use super::Access::{Read, Write};
use super::kv_page::{F16_MAX, KvBlock, Side};
use super::{Kernel, KvType, Row, Spec, Tape, Tier, floats, floats_mut, fold, params_struct};
use crate::limits::{HEAD_DIM_MAX, HEAD_DIM_STEP, PAGE_TOKENS};
use crate::recording::BufferId;

/// Which elements of a head rotate together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairing {
    /// (i, i + rotary_dim / 2): Hugging Face, and GGUF of the neox kind.
    Halves,
    /// (2i, 2i + 1): GGUF of the llama kind.
    Interleaved,
}

/// Arguments of a launch.
#[derive(Debug, Clone, Copy)]
pub struct Args {
    /// `[rows, qkv_stride]` f32: all q heads, then all k heads, then all v heads.
    pub qkv: BufferId,
    /// Floats between rows of `qkv`.
    pub qkv_stride: u32,
    /// `[position, rotary_dim / 2]` (cos, sin) f32, made on the host in f64.
    pub rope: BufferId,
    /// [`super::Row`]s.
    pub rows: BufferId,
    /// How many.
    pub row_count: u32,
    /// Block tables `[slot, table_stride]`.
    pub tables: BufferId,
    /// Pages a slot.
    pub table_stride: u32,
    /// `[2, head_dim]` f32: weights of the q norm, then of the k norm; any small buffer when `norm` is false.
    pub norm_weights: BufferId,
    /// Normalise q and k heads before rotating.
    pub norm: bool,
    /// Epsilon of that norm.
    pub eps: f32,
    /// `[rows, heads * head_dim]` f32.
    pub q_out: BufferId,
    /// K pages, see [`super::attn::Buffers`].
    pub k_pages: BufferId,
    /// V pages.
    pub v_pages: BufferId,
    /// Query heads.
    pub heads: u32,
    /// KV heads.
    pub kv_heads: u32,
    /// Head size.
    pub head_dim: u32,
    /// Leading elements of a head that rotate; even, at most `head_dim`.
    pub rotary_dim: u32,
    /// Which elements rotate together.
    pub pairing: Pairing,
    /// How the pages store K and V.
    pub kv: KvType,
}

/// Invocations of a workgroup.
const INVOCATIONS: u32 = 64;

params_struct! {
    /// Params of the launch.
    struct Params {
        heads: u32,
        kv_heads: u32,
        head_dim: u32,
        /// Pairs of a head that rotate.
        pairs: u32,
        qkv_stride: u32,
        table_stride: u32,
        /// Heads of all kinds in all rows.
        jobs: u32,
        /// Heads a workgroup takes.
        jobs_each: u32,
        /// Workgroups along x.
        grid_x: u32,
        pad0: u32,
        /// 1 for pairs of neighbours, 0 for pairs half a rotation apart.
        interleaved: u32,
        eps: f32,
    }
}

/// Records the launch.
pub fn record(tape: &mut Tape, args: &Args) {
    let &Args { heads, kv_heads, head_dim, rotary_dim, .. } = args;
    assert!(head_dim > 0 && head_dim <= HEAD_DIM_MAX, "head size {head_dim} above {HEAD_DIM_MAX}");
    assert!(head_dim.is_multiple_of(HEAD_DIM_STEP), "head size {head_dim} is not a multiple of {HEAD_DIM_STEP}");
    assert!(rotary_dim <= head_dim && rotary_dim.is_multiple_of(2), "{rotary_dim} rotary of {head_dim} elements");
    assert!(kv_heads > 0 && heads.is_multiple_of(kv_heads), "{heads} query heads over {kv_heads} KV heads");
    let columns = (heads + 2 * kv_heads) * head_dim;
    assert!(args.qkv_stride >= columns, "stride {} under {columns} columns", args.qkv_stride);
    let jobs = u64::from(args.row_count) * u64::from(heads + 2 * kv_heads);
    let jobs_each = INVOCATIONS / (head_dim / HEAD_DIM_STEP);
    let grid = fold(jobs.div_ceil(u64::from(jobs_each)));
    let params = Params {
        heads,
        kv_heads,
        head_dim,
        pairs: rotary_dim / 2,
        qkv_stride: args.qkv_stride,
        table_stride: args.table_stride,
        jobs: u32::try_from(jobs).expect("heads of a step fit 32 bits"),
        jobs_each,
        grid_x: grid[0],
        pad0: 0,
        interleaved: u32::from(args.pairing == Pairing::Interleaved),
        eps: args.eps,
    };
    let bindings =
        [args.qkv, args.rope, args.rows, args.tables, args.norm_weights, args.q_out, args.k_pages, args.v_pages];
    tape.dispatch(Kernel::RopeKv { kv: args.kv, norm: args.norm }, &bindings, &params, grid);
}

pub(super) fn spec(kv: KvType, norm: bool) -> Spec {
    Spec {
        label: format!("rope_kv_{}{}", kv.name(), if norm { "_norm" } else { "" }),
        shader: "rope_kv",
        constants: context! {
            norm,
            kv => kv.name(),
            invocations => INVOCATIONS,
            page_tokens => PAGE_TOKENS,
            f16_max => format!("{F16_MAX:?}"),
        },
        bindings: &[Read, Read, Read, Read, Read, Write, Write, Write],
        params_bytes: Params::BYTES,
        params_fields: Params::FIELDS,
        invocations: INVOCATIONS,
        tier: Tier::Base,
        int64: false,
    }
}

/// Twin of `rope_kv`. Multiplies, then adds, as software drivers do with `fma`.
pub(super) fn twin(kv: KvType, norm: bool, params: &[u8], grid: [u32; 3], mem: &mut [Vec<u32>]) {
    let params = Params::read(params);
    let [qkv, rope, rows, tables, weights, q_out, k_pages, v_pages] = mem else {
        panic!("rope_kv has 8 bindings, not {}", mem.len())
    };
    let places = u64::from(grid[0]) * u64::from(grid[1]) * u64::from(params.jobs_each);
    assert!(grid[0] == params.grid_x && places >= u64::from(params.jobs), "grid {grid:?}");
    let rows: &[Row] = bytemuck::cast_slice(rows);
    let (heads, kv_heads, head_dim) = (params.heads as usize, params.kv_heads as usize, params.head_dim as usize);
    let columns = heads + 2 * kv_heads;
    for job in 0..params.jobs as usize {
        let (at, head, row) = (job / columns, job % columns, rows[job / columns]);
        let x = &floats(qkv)[at * params.qkv_stride as usize + head * head_dim..][..head_dim];
        let mut x = x.to_vec();
        if head < heads + kv_heads {
            if norm {
                let kind = usize::from(head >= heads);
                normalise(&mut x, &floats(weights)[kind * head_dim..][..head_dim], params.eps);
            }
            rotate(&params, &mut x, &floats(rope)[(row.position * params.pairs * 2) as usize..]);
        }
        if head < heads {
            floats_mut(q_out)[(at * heads + head) * head_dim..][..head_dim].copy_from_slice(&x);
            continue;
        }
        let page = tables[row.slot as usize * params.table_stride as usize + (row.position / PAGE_TOKENS) as usize];
        let is_v = head >= heads + kv_heads;
        let (pages, side) = if is_v { (&mut *v_pages, Side::V) } else { (&mut *k_pages, Side::K) };
        let block = KvBlock::new(kv, side, params.head_dim);
        let at = (page as usize * kv_heads + (head - heads) % kv_heads) * block.words();
        block.write(&mut pages[at..at + block.words()], (row.position % PAGE_TOKENS) as usize, &x);
    }
}

const STEP: usize = HEAD_DIM_STEP as usize;

/// Each unit of 8 sums its squares ascending, then the units are summed ascending.
fn normalise(x: &mut [f32], weights: &[f32], eps: f32) {
    let unit = |unit: &[f32]| unit.iter().fold(0.0_f32, |sum, x| sum + x * x);
    let sum = x.chunks_exact(STEP).fold(0.0_f32, |sum, x| sum + unit(x));
    #[allow(clippy::cast_precision_loss, reason = "at most 256")]
    let inverse = 1.0 / (sum / x.len() as f32 + eps).sqrt();
    for (x, w) in x.iter_mut().zip(weights) {
        *x = *x * inverse * w;
    }
}

/// Rotates by the (cos, sin) pairs at the start of `rope`.
fn rotate(params: &Params, x: &mut [f32], rope: &[f32]) {
    let pairs = params.pairs as usize;
    for (pair, cos_sin) in rope.chunks_exact(2).take(pairs).enumerate() {
        let (a, b) = if params.interleaved == 1 { (2 * pair, 2 * pair + 1) } else { (pair, pair + pairs) };
        let (cos, sin) = (cos_sin[0], cos_sin[1]);
        (x[a], x[b]) = (x[a] * cos - x[b] * sin, x[b] * cos + x[a] * sin);
    }
}
