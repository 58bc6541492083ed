//! Which attention variant runs where, the table of those that tests hold, and the facts a player needs to build one.

use minijinja::context;

use super::{CLUSTER_LANES, Exchange, KvType, MERGE_INVOCATIONS, MergeParams, Params, Plan, Shape, Spec};
use super::{MASKED, TANH_MAX};
use crate::kernels::Access::{self, Read, Write};
use crate::kernels::choices::Class;
use crate::kernels::{Tier, kv_page};
use crate::limits::{HEAD_DIM_MAX, HEAD_DIM_STEP, KEY_TILE_TOKENS, PAGE_TOKENS, SPLIT_TOKENS};

/// Head sizes of the validation table: edges, and what published models have.
const HEAD_DIMS: [u16; 9] = [8, 16, 24, 32, 64, 80, 96, 128, 256];
/// Most rows of a decode workgroup.
const DECODE_ROWS_MAX: u32 = 8;
/// Clusters of a workgroup on adapters with narrow lanes.
const CLUSTERS: u32 = 4;

const _: () = assert!(KEY_TILE_TOKENS == CLUSTER_LANES * 4, "a lane scores 4 keys of a tile");
const _: () = assert!(KEY_TILE_TOKENS == PAGE_TOKENS * 2, "the shaders read two pages a key tile");

/// Rows of a prefill workgroup. Registers bound them, and on software drivers the time to compile, which grows faster than
/// the rows of a cluster. lavapipe, head size 64, 128 rows over 512 keys, 9 heads over 3: with subgroups 16 rows 2.5 ms a
/// layer, 1.5 s to compile (8 rows: 3.5 ms, 0.6 s); without, 16 rows 11.1 ms, 3.2 s (8 rows: 13.5 ms, 1.0 s).
const fn prefill_rows(software: bool, exchange: Exchange, head_dim: u32) -> u8 {
    match (software, exchange, head_dim) {
        (true, Exchange::Subgroup, ..=64) | (false, _, ..=128) => 16,
        (true, _, ..=128) | (false, ..) => 8,
        (true, ..) => 4,
    }
}

pub(in crate::kernels) fn choose_prefill(plan: Plan, kv: KvType, head_dim: u32, _group: u32) -> Shape {
    let place = plan.choices.get(Class::AttnPrefill { kv, head_dim: narrow_dim(head_dim) });
    let (lanes, exchange) = (if plan.software { 8 } else { 32 }, exchange(plan, place));
    let rows = prefill_rows(plan.software, exchange, head_dim);
    Shape { long: is_long(plan) && exchange == Exchange::Subgroup, ..shape(kv, head_dim, rows, lanes, exchange) }
}

pub(in crate::kernels) fn choose_decode(plan: Plan, kv: KvType, head_dim: u32, group: u32) -> Shape {
    let rows = group.div_ceil(group.div_ceil(DECODE_ROWS_MAX));
    let clusters = if plan.software { 1 } else { rows.min(CLUSTERS) };
    let rows = rows.next_multiple_of(clusters);
    let place = plan.choices.get(Class::AttnDecode { kv, head_dim: narrow_dim(head_dim) });
    let exchange = exchange(plan, place);
    let shape = shape(kv, head_dim, narrow(rows), narrow(clusters * CLUSTER_LANES), exchange);
    Shape { long: is_long(plan) && exchange == Exchange::Subgroup, ..shape }
}

/// Candidates of attention: where there are subgroups, workgroup memory is the last resort.
pub(in crate::kernels) fn candidates(plan: Plan) -> u8 {
    if plan.exchange() == Exchange::Subgroup { 2 } else { 1 }
}

fn exchange(plan: Plan, place: u8) -> Exchange {
    if place == 0 { plan.exchange() } else { Exchange::Workgroup }
}

fn narrow_dim(head_dim: u32) -> u16 {
    u16::try_from(head_dim).expect("at most 256")
}

/// lavapipe loads lane by lane, whatever the width.
const fn is_long(plan: Plan) -> bool {
    plan.software && plan.int64
}

fn narrow(small: u32) -> u8 {
    u8::try_from(small).expect("a few rows or lanes")
}

fn shape(kv: KvType, head_dim: u32, rows: u8, lanes: u8, exchange: Exchange) -> Shape {
    let fits = head_dim > 0 && head_dim <= HEAD_DIM_MAX && head_dim.is_multiple_of(HEAD_DIM_STEP);
    assert!(fits, "head size {head_dim} is not a multiple of {HEAD_DIM_STEP} up to {HEAD_DIM_MAX}");
    let head_dim = u16::try_from(head_dim).expect("at most 256");
    Shape { kv, head_dim, rows, lanes, exchange, capped: false, long: false }
}

/// The shapes of `tiles` (rows, lanes) for each head size, KV type and exchange, with the soft cap at one head size, and with
/// 64-bit loads where one cluster exchanges in a subgroup.
fn table(tiles: impl Fn(u32, Exchange) -> Vec<(u8, u8)>) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for head_dim in HEAD_DIMS.map(u32::from) {
        for kv in KvType::ALL {
            for exchange in [Exchange::Subgroup, Exchange::Workgroup] {
                for (rows, lanes) in tiles(head_dim, exchange) {
                    let may_be_long = exchange == Exchange::Subgroup && u32::from(lanes) == CLUSTER_LANES;
                    for long in [false, true].into_iter().filter(|&long| !long || may_be_long) {
                        let plain = Shape { long, ..shape(kv, head_dim, rows, lanes, exchange) };
                        shapes.push(plain);
                        if head_dim == 64 {
                            shapes.push(Shape { capped: true, ..plain });
                        }
                    }
                }
            }
        }
    }
    shapes
}

pub(in crate::kernels) fn prefill_shapes() -> Vec<Shape> {
    table(|head_dim, exchange| {
        [(true, 8), (false, 32)].map(|(software, lanes)| (prefill_rows(software, exchange, head_dim), lanes)).to_vec()
    })
}

pub(in crate::kernels) fn decode_shapes() -> Vec<Shape> {
    table(|head_dim, _| match head_dim {
        64 => vec![(1, 8), (2, 8), (3, 8), (4, 8), (5, 8), (8, 8), (2, 16), (3, 24), (4, 32), (8, 32)],
        _ => vec![(3, 8), (8, 8), (4, 32)],
    })
}

/// Widest vector of workgroup memory that holds one value a row of a cluster.
const fn width(own: u32) -> u32 {
    match own {
        1 => 1,
        2 => 2,
        _ => 4,
    }
}

fn attn_spec(shape: Shape, shader: &'static str, bindings: &'static [Access]) -> Spec {
    let (lanes, rows, head_dim) = (u32::from(shape.lanes), u32::from(shape.rows), u32::from(shape.head_dim));
    let clusters = lanes / CLUSTER_LANES;
    assert!(clusters > 0 && lanes == clusters * CLUSTER_LANES, "{lanes} lanes are not whole clusters");
    assert!(rows > 0 && rows.is_multiple_of(clusters), "{rows} rows over {clusters} clusters");
    let (own, units) = (rows / clusters, head_dim / HEAD_DIM_STEP);
    let subgroup = match shape.exchange {
        Exchange::Subgroup => true,
        Exchange::Workgroup => false,
        Exchange::Storage => panic!("attention does not exchange through storage"),
    };
    let (exchange, cap) = (if subgroup { "sg" } else { "wg" }, if shape.capped { "_cap" } else { "" });
    let long = if shape.long { "_long" } else { "" };
    Spec {
        label: format!("{shader}_{}_d{head_dim}_r{rows}l{lanes}_{exchange}{cap}{long}", shape.kv.name()),
        shader,
        constants: context! {
            subgroup, lanes, clusters, rows, own, head_dim, units,
            capped => shape.capped,
            long => shape.long,
            kv => shape.kv.name(),
            vectors => if shape.kv == KvType::F32 { 2 } else { 1 },
            // Scales of a token's head, and vectors of a page and head with them.
            scales => if shape.kv == KvType::Q8 { kv_page::scales(head_dim) } else { 0 },
            page_vectors => match shape.kv {
                KvType::F32 => 2 * units * PAGE_TOKENS,
                KvType::F16 => units * PAGE_TOKENS,
                KvType::Q8 => (2 * units + kv_page::scales(head_dim)) * PAGE_TOKENS / 2,
            },
            slots => units.div_ceil(CLUSTER_LANES),
            width => width(own),
            pieces => own.div_ceil(width(own)),
            masked => format!("{MASKED:?}"),
            tanh_max => format!("{TANH_MAX:?}"),
            key_tile => KEY_TILE_TOKENS,
            split_tokens => SPLIT_TOKENS,
            page_tokens => PAGE_TOKENS,
            xyzw => ["x", "y", "z", "w"],
        },
        bindings,
        params_bytes: Params::BYTES,
        params_fields: Params::FIELDS,
        invocations: lanes,
        tier: if subgroup { Tier::Subgroup } else { Tier::Base },
        int64: shape.long,
    }
}

pub(in crate::kernels) fn prefill_spec(shape: Shape) -> Spec {
    attn_spec(shape, "attn_prefill", &[Read, Read, Read, Read, Read, Write])
}

pub(in crate::kernels) fn decode_spec(shape: Shape) -> Spec {
    attn_spec(shape, "attn_decode", &[Read, Read, Read, Read, Read, Write, Write])
}

pub(in crate::kernels) fn merge_spec() -> Spec {
    Spec {
        label: "attn_merge".to_owned(),
        shader: "attn_merge",
        constants: context! {
            invocations => MERGE_INVOCATIONS,
            masked => format!("{MASKED:?}"),
            split_tokens => SPLIT_TOKENS,
        },
        bindings: &[Read, Read, Write],
        params_bytes: MergeParams::BYTES,
        params_fields: MergeParams::FIELDS,
        invocations: MERGE_INVOCATIONS,
        tier: Tier::Base,
        int64: false,
    }
}
