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
{% if kv == "q8" %}
{% set vector_type = "u64" if long else "vec2<u32>" %}
// [page, kv_head] {{ units }} units, token; then {{ scales }} scales, token
@group(0) @binding(2) var<storage, read> k_pages: array<{{ vector_type }}>;
// [page, kv_head] token, {{ units }} units; then token, {{ scales }} scales
@group(0) @binding(3) var<storage, read> v_pages: array<{{ vector_type }}>;
{% else %}
{% set vector_type = "vec2<u64>" if long else "vec4<u32>" %}
// [page, kv_head, {{ units }} units, token, {{ vectors }}]
@group(0) @binding(2) var<storage, read> k_pages: array<{{ vector_type }}>;
// [page, kv_head, token, {{ units }} units, {{ vectors }}]
@group(0) @binding(3) var<storage, read> v_pages: array<{{ vector_type }}>;
{% endif %}
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

{% if long and kv != "q8" %}
{% include "shared/words" %}
{% endif %}
{% if kv == "q8" %}
fn two_words(stored: {{ vector_type }}) -> vec2<u32> {
    return {{ "vec2<u32>(u32(stored), u32(stored >> 32u))" if long else "stored" }};
}

// Scales lie behind the units, a word each, two to a load.
fn scale_of(stored: {{ vector_type }}, at: u32) -> f32 {
    let both = two_words(stored);
    return bitcast<f32>(select(both.x, both.y, (at & 1u) != 0u));
}

fn bytes(word: u32) -> vec4<f32> {
    return vec4<f32>(unpack4xI8(word));
}
{% endif %}

// First key that a row at `position` sees.
fn first_seen(position: u32) -> u32 {
    return select(0u, position + 1u - params.window, params.window != 0u && position >= params.window);
}
