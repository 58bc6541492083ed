// matmul: y[r, n] = bias[n] + sum_k x[r, k] * w[n, k];  out[r, out_column + n] = {{ "act(y[r, n]) * y[r, columns + n]" if gated else "y[r, n]" }}
//
// x      [rows, x_stride] f32, zero from k to whole blocks of 32
// With params.add the product is added to what out holds.
{% if normed %}
// The row is normed on the way: x[k] / sqrt(mean(x^2) + eps) * weight[k], with rms_norm's bits. No workgroup memory: on lavapipe a
// barrier costs all that the spared launch had gained.
{% endif %}
//
// w      packed [{{ "2 columns" if gated else "columns" }}, k] {{ format }}, layout in src/kernels/layout.rs; dequantised in registers
// out    [rows, out_stride] f32
// A lane owns {{ rows }} rows by {{ cols }} columns{{ ", half of them gates, half ups" if gated else "" }}; a workgroup owns {{ rows }} rows by {{ lanes * cols }} columns: {{ lanes }} lanes side by side,
// {{ slices }} invocation(s) a column, each with its own K slices. Reads the weights once a row tile, x once a column tile{{ ", and once more a workgroup, which takes every grid_x-th tile, for its norm" if normed }}.
//
// Canonical order, the same in every variant: K is cut into slices of slice_blocks blocks of 32. A block's codes are summed
// ascending in k (fma), then scaled into the slice: slice = fma(block, d, slice), and fma(sum of x, m, slice) where there is a
// minimum, the sum of x taken in vec4s, each ((x + y) + z) + w, ascending. Formats whose scales cover 16 weights do so twice a
// block. Float weights go into the slice one by one.
// Slices are joined ascending from 0. Rows and columns past the end are computed on clamped addresses and not stored.
//
// Ladder (lavapipe, kproto.md): plain register tile 2 GFLOP/s; x by one vec4 a row and block, broadcast in the subgroup: 26-33.
{% from "shared/dequant" import code, bytes, code_zero, scale, minimum, functions, byte_functions %}
{% set group = 1 if cols < 4 else 4 %}
{% set own = cols // 2 if gated else cols %}
{% set groups = cols // group %}
{% set f = "f32" if group == 1 else "vec4<f32>" %}
{% set zero = "0.0" if group == 1 else "vec4<f32>(0.0)" %}
{# Column c of a lane, from the tile's first; with 64-bit loads columns come in neighbouring pairs, whose scales are one word. #}
{% macro offset(c) %}{{ (c % own // 2 * 2 * lanes + c % 2) if long else (c % own * lanes) }}u{% endmacro %}

struct Params {
    rows: u32,
    columns: u32,
    blocks: u32,
    slice_blocks: u32,
    x_stride_vectors: u32,
    out_stride: u32,
    out_column: u32,
    has_bias: u32,
    bias_start: u32,
    row_tiles: u32,
    tiles: u32,
    grid_x: u32,
    gelu: u32,
    add: u32,
    dim: u32,
    eps: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
// [group, block, vector, row in group]
@group(0) @binding(1) var<storage, read> codes: array<{{ "vec2<u64>" if long else "vec4<u32>" }}>;
// [group, {{ "super-block, 5" if scales == "super" else "block" }}, row in group]
@group(0) @binding(2) var<storage, read> scales: array<{{ "u64" if long else "u32" }}>;
// [group, block, word, row in group]
@group(0) @binding(3) var<storage, read> high: array<{{ "u64" if long else "u32" }}>;
{% if int8 == "packed" %}
// [rows, blocks] blocks of quant_act: 8 words of codes, d, two sums of codes, 0
@group(0) @binding(4) var<storage, read> x: array<{{ "u32" if exchange == "subgroup" else "vec4<u32>" }}>;
{% else %}
// [rows, x_stride / 4]
@group(0) @binding(4) var<storage, read> x: array<{{ "vec2<u64>" if long else "vec4<f32>" }}>;
{% endif %}
// [bias_start + {{ "2 columns" if gated else "columns" }}]
@group(0) @binding(5) var<storage, read> bias: array<f32>;
// [rows, out_stride]
@group(0) @binding(6) var<storage, read_write> out: array<f32>;
{% if normed %}
// [x_stride / 4]
@group(0) @binding(7) var<storage, read> weight: array<{{ "vec2<u64>" if long else "vec4<f32>" }}>;
{% endif %}

{% if exchange == "workgroup" and int8 %}
// One block of x: [rows][3 vec4s].
var<workgroup> x_block: array<vec4<u32>, {{ rows * 3 }}>;
{% elif exchange == "workgroup" %}
// One block of x: [rows][8 vec4s], and the sums of its vec4s.
var<workgroup> x_block: array<vec4<f32>, {{ rows * 8 }}>;
{% if has_minimum %}
var<workgroup> x_sums: array<f32, {{ rows * 8 }}>;
{% endif %}
{% endif %}
{% if slices > 1 %}
// Slice sums: [slice][row][column of the workgroup]
var<workgroup> slice_sums: array<f32, {{ slices_max * rows * cols * lanes }}>;
{% endif %}

{# Word of a plane for column c at an offset; 64-bit loads bring it for two neighbouring columns, named after the first. #}
{% macro load_word(name, plane, base, offset) %}
{% for c in range(0, cols, 2 if long else 1) %}
{% if long %}
            let pair_{{ name }}{{ c }} = {{ plane }}[({{ base }}{{ c }} + {{ offset }}) / 2u];
            let {{ name }}{{ c }} = u32(pair_{{ name }}{{ c }});
            let {{ name }}{{ c + 1 }} = u32(pair_{{ name }}{{ c }} >> 32u);
{% else %}
            let {{ name }}{{ c }} = {{ plane }}[{{ base }}{{ c }} + {{ offset }}];
{% endif %}
{% endfor %}
{% endmacro %}
{# Four columns' values as one, or a column's own. #}
{% macro gather(g, type, before, after) %}
{%- if group == 1 %}{{ before }}{{ g }}{{ after }}
{%- else %}vec4<{{ type }}>({% for c in range(4) %}{{ before }}{{ 4 * g + c }}{{ after }}{{ "" if loop.last else ", " }}{% endfor %})
{%- endif %}
{% endmacro %}
{% macro load(from, at) %}{% if long %}bitcast<vec4<f32>>(words({{ from }}[{{ at }}])){% else %}{{ from }}[{{ at }}]{% endif %}{% endmacro %}
{% macro own_x(r) %}
{{- load("x", "x_row" ~ r ~ " + block * 8u + (subgroup_lane & 7u)") }}
{%- if normed %} * factor * {{ load("weight", "block * 8u + (subgroup_lane & 7u)") }}{% endif %}
{%- endmacro %}
{# What the codes of a part are multiplied with, d, and what is added then, m; by groups of columns. #}
{% macro part_scales(part) %}
{% for g in range(groups) %}
{% for c in range(group * g, group * g + group) %}
            let d{{ part }}_c{{ c }} = {{ scale(format, "scale" ~ c, "bits" ~ c, part) | trim }};
{% if has_minimum %}
            let m{{ part }}_c{{ c }} = {{ minimum(format, "scale" ~ c, "bits" ~ c, part) | trim }};
{% endif %}
{% endfor %}
            let d{{ part }}_{{ g }} = {{ gather(g, "f32", "d" ~ part ~ "_c", "") | trim }};
{% if has_minimum %}
            let m{{ part }}_{{ g }} = {{ gather(g, "f32", "m" ~ part ~ "_c", "") | trim }};
{% endif %}
{% endfor %}
{% endmacro %}
{% if gated %}
{% include "shared/act" %}
{% endif %}
{% if long %}
{% include "shared/words" %}
{% endif %}
{% if int8 %}
{{ byte_functions(format) }}
{% if int8 == "inline" %}
{% include "shared/int8" %}
{% endif %}
{% else %}
{{ functions(format, group) }}
{% endif %}
@compute @workgroup_size({{ lanes }}, {{ slices }})
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
{% if exchange == "subgroup" %}
    @builtin(subgroup_invocation_id) subgroup_lane: u32,
{% endif %}
) {
{% if normed %}
{% include "shared/norm_row" %}
    for (var tile = workgroup.x; tile < params.tiles; tile += params.grid_x) {
{% else %}
    let tile = workgroup.y * params.grid_x + workgroup.x;
    if (tile >= params.tiles) {
        return;
    }
{% endif %}
    let row0 = (tile % params.row_tiles) * {{ rows }}u;
    let tile_column = (tile / params.row_tiles) * {{ lanes * own }}u + local.x{{ " * 2u" if long }};
    let last_row = params.rows - 1u;
{% for r in range(rows) %}
    let x_row{{ r }} = min(row0 + {{ r }}u, last_row) * params.x_stride_vectors;
{% endfor %}
{% for c in range(cols) %}
{% if long and c % 2 %}
    let column{{ c }} = column{{ c - 1 }} + 1u;
{% else %}
    let column{{ c }} = min(tile_column + {{ offset(c) }}, {{ "(params.columns - 1u) & ~1u" if long else "params.columns - 1u" }}){{ " + params.columns" if c >= own else "" }};
{% endif %}
    let codes{{ c }} = (column{{ c }} / 32u) * params.blocks * {{ 8 * code_words }}u + column{{ c }} % 32u;
{% if scales == "block" %}
    let scales{{ c }} = (column{{ c }} / 32u) * params.blocks * 32u + column{{ c }} % 32u;
{% elif scales == "super" %}
    let scales{{ c }} = (column{{ c }} / 32u) * (params.blocks / 8u) * 160u + column{{ c }} % 32u;
{% endif %}
{% if high_words %}
    let high{{ c }} = (column{{ c }} / 32u) * params.blocks * {{ 32 * high_words }}u + column{{ c }} % 32u;
{% endif %}
{% endfor %}
{% for r in range(rows) %}
{% for g in range(groups) %}
    var total{{ r }}_{{ g }} = {{ zero }};
{% endfor %}
{% endfor %}
{% if slices > 1 %}
    for (var slice = local.y; slice * params.slice_blocks < params.blocks; slice += {{ slices }}u) {
        let first_block = slice * params.slice_blocks;
{% else %}
    for (var first_block = 0u; first_block < params.blocks; first_block += params.slice_blocks) {
{% endif %}
        let end_block = min(first_block + params.slice_blocks, params.blocks);
{% for r in range(rows) %}
{% for g in range(groups) %}
        var slice{{ r }}_{{ g }} = {{ zero }};
{% endfor %}
{% endfor %}
        for (var block = first_block; block < end_block; block += 1u) {
{% if exchange == "workgroup" and int8 %}
            workgroupBarrier();
            for (var i = local.x; i < {{ rows * 3 }}u; i += {{ lanes }}u) {
                x_block[i] = x[min(row0 + i / 3u, last_row) * params.x_stride_vectors + block * 3u + i % 3u];
            }
            workgroupBarrier();
{% elif exchange == "workgroup" %}
            workgroupBarrier();
            for (var i = local.x; i < {{ rows * 8 }}u; i += {{ lanes }}u) {
                let value = x[min(row0 + i / 8u, last_row) * params.x_stride_vectors + block * 8u + i % 8u];
                x_block[i] = value;
{% if has_minimum %}
                x_sums[i] = ((value.x + value.y) + value.z) + value.w;
{% endif %}
            }
            workgroupBarrier();
{% elif exchange == "subgroup" and int8 == "packed" %}
{% for r in range(rows) %}
            let from{{ r }} = (x_row{{ r }} + block * 3u) * 4u;
            let own{{ r }} = x[from{{ r }} + (subgroup_lane & 7u)];
            let own_rest{{ r }} = x[from{{ r }} + 8u + (subgroup_lane & 3u)];
{% endfor %}
{% elif exchange == "subgroup" %}
{% for r in range(rows) %}
{% if int8 %}
            let float{{ r }} = {{ own_x(r) }};
{% else %}
            let own{{ r }} = {{ own_x(r) }};
{% endif %}
{% if has_minimum and not int8 %}
            let own_sum{{ r }} = ((own{{ r }}.x + own{{ r }}.y) + own{{ r }}.z) + own{{ r }}.w;
{% endif %}
{% endfor %}
{% endif %}
{% if scales == "block" %}
{{ load_word("scale_word", "scales", "scales", "block * 32u") }}
{% elif scales == "super" %}
            let super_at = (block / 8u) * 160u;
            let bits_at = super_at + 32u + (block % 8u / 2u) * 32u;
            let bits_shift = 16u * (block & 1u);
{{ load_word("scale_word", "scales", "scales", "super_at") }}
{{ load_word("part_word", "scales", "scales", "bits_at") }}
{% for c in range(cols) %}
            let bits{{ c }} = part_word{{ c }} >> bits_shift;
{% endfor %}
{% endif %}
{% for word in range(high_words) %}
{{ load_word("high_word" ~ word ~ "_", "high", "high", "block * " ~ 32 * high_words ~ "u + " ~ 32 * word ~ "u") }}
{% endfor %}
{% for c in range(cols) %}
{% if code_words == 2 %}
{% set at = "codes[codes" ~ c ~ " + (block / 2u) * 32u]" %}
            let two{{ c }} = {% if long %}words({{ at }}){% else %}{{ at }}{% endif %};
            let v{{ c }}_0 = select(two{{ c }}.xyxy, two{{ c }}.zwzw, (block & 1u) != 0u);
{% else %}
{% for v in range(vectors) %}
{% set at = "codes[codes" ~ c ~ " + block * " ~ 32 * vectors ~ "u + " ~ 32 * v ~ "u]" %}
            let v{{ c }}_{{ v }} = {% if long %}words({{ at }}){% else %}{{ at }}{% endif %};
{% endfor %}
{% endif %}
{% if parts %}
            let scale{{ c }} = unpack2x16float(scale_word{{ c }});
{% endif %}
{% endfor %}
{% include "shared/matmul_int8" if int8 else "shared/matmul_float" %}
        }
{% if slices > 1 %}
{% for r in range(rows) %}
{% for c in range(cols) %}
        slice_sums[(slice * {{ rows }}u + {{ r }}u) * {{ cols * lanes }}u + {{ c * lanes }}u + local.x] = slice{{ r }}_{{ c // group }}{% if group == 4 %}.{{ "xyzw"[c % 4] }}{% endif %};
{% endfor %}
{% endfor %}
{% else %}
{% for r in range(rows) %}
{% for g in range(groups) %}
        total{{ r }}_{{ g }} += slice{{ r }}_{{ g }};
{% endfor %}
{% endfor %}
{% endif %}
    }
{% if slices > 1 %}
    workgroupBarrier();
    if (local.y != 0u) {
        return;
    }
    for (var slice = 0u; slice * params.slice_blocks < params.blocks; slice += 1u) {
{% for r in range(rows) %}
{% for c in range(cols) %}
        total{{ r }}_{{ c // group }}{% if group == 4 %}.{{ "xyzw"[c % 4] }}{% endif %} += slice_sums[(slice * {{ rows }}u + {{ r }}u) * {{ cols * lanes }}u + {{ c * lanes }}u + local.x];
{% endfor %}
{% endfor %}
    }
{% endif %}
{% macro y(r, c) %}total{{ r }}_{{ c // group }}{% if group == 4 %}.{{ "xyzw"[c % 4] }}{% endif %} + add{{ c }}{% endmacro %}
{% for c in range(own) %}
    if (tile_column + {{ offset(c) }} < params.columns) {
{% for add in range(c, cols, own) %}
        var add{{ add }} = 0.0;
        if (params.has_bias != 0u) {
            add{{ add }} = bias[params.bias_start + column{{ add }}];
        }
{% endfor %}
        let to{{ c }} = params.out_column + column{{ c }};
{% for r in range(rows) %}
        if (row0 + {{ r }}u <= last_row) {
            let at{{ c }}_{{ r }} = (row0 + {{ r }}u) * params.out_stride + to{{ c }};
{% if gated %}
            out[at{{ c }}_{{ r }}] = act({{ y(r, c) }}, params.gelu != 0u) * ({{ y(r, c + own) }});
{% else %}
            if (params.add != 0u) {
                out[at{{ c }}_{{ r }}] += {{ y(r, c) }};
            } else {
                out[at{{ c }}_{{ r }}] = {{ y(r, c) }};
            }
{% endif %}
        }
{% endfor %}
    }
{% endfor %}
{% if normed %}
    }
{% endif %}
}
