// What attn_prefill and attn_decode declare alike.
{% if subgroup %}
// Exchange: subgroup shuffles within 8 neighbouring lanes. One-dimensional workgroups, so local index and subgroup index agree
// in their low 3 bits; right for every subgroup size from 8 on.
{% else %}
// Exchange: workgroup memory, two barriers a key tile.
{% endif %}

struct Params {
    heads: u32,
    kv_heads: u32,
    group: u32,
    chunks: u32,
    table_stride: u32,
    first_tile: u32,
    splits: u32,
    window: u32,
    out_stride: u32,
    workgroups: u32,
    grid_x: u32,
    scale: f32,
    softcap: f32,
    pad0: u32,
    pad1: u32,
    pad2: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
// [rows, heads, {{ head_dim }} / 4]
@group(0) @binding(1) var<storage, read> q: array<vec4<f32>>;
// [page, kv_head, {{ units }} units, token, {{ vectors }}]
@group(0) @binding(2) var<storage, read> k_pages: array<{{ "vec2<u64>" if long else "vec4<u32>" }}>;
// [page, kv_head, token, {{ units }} units, {{ vectors }}]
@group(0) @binding(3) var<storage, read> v_pages: array<{{ "vec2<u64>" if long else "vec4<u32>" }}>;
// [slot, table_stride] page
@group(0) @binding(4) var<storage, read> tables: array<u32>;
// [tile] (row, rows, slot, position)
@group(0) @binding(5) var<storage, read> tiles: array<vec4<u32>>;

{% if not subgroup %}
{% set vector = "f32" if width == 1 else "vec" ~ width ~ "<f32>" %}
// [{{ head_dim }}, cluster, piece]: queries, {{ width }} rows a piece
var<workgroup> q_shared: array<{{ vector }}, {{ head_dim * clusters * pieces }}>;
// [lane of the cluster, cluster, piece]: largest score of each lane
var<workgroup> top_shared: array<{{ vector }}, {{ 8 * clusters * pieces }}>;
// [key, cluster, piece]: p
var<workgroup> p_shared: array<{{ vector }}, {{ key_tile * clusters * pieces }}>;
{% endif %}

{% if long %}
{% include "shared/words" %}
{% endif %}

// First key that a row at `position` sees.
fn first_seen(position: u32) -> u32 {
    return select(0u, position + 1u - params.window, params.window != 0u && position >= params.window);
}
