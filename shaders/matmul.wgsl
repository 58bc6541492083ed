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
// minimum, the sum of x taken in vec4s, each ((x + y) + z) + w, ascending. Float weights go into the slice one by one.
// Slices are joined ascending from 0. Rows and columns past the end are computed on clamped addresses and not stored.
//
// Ladder (lavapipe, kproto.md): plain register tile 2 GFLOP/s; x by one vec4 a row and block, broadcast in the subgroup: 26-33.
{% from "shared/dequant" import code %}
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
// [group, block, row in group]
@group(0) @binding(2) var<storage, read> scales: array<{{ "u64" if long else "u32" }}>;
// [group, block, row in group]
@group(0) @binding(3) var<storage, read> high: array<{{ "u64" if long else "u32" }}>;
// [rows, x_stride / 4]
@group(0) @binding(4) var<storage, read> x: array<{{ "vec2<u64>" if long else "vec4<f32>" }}>;
// [bias_start + {{ "2 columns" if gated else "columns" }}]
@group(0) @binding(5) var<storage, read> bias: array<f32>;
// [rows, out_stride]
@group(0) @binding(6) var<storage, read_write> out: array<f32>;
{% if normed %}
// [x_stride / 4]
@group(0) @binding(7) var<storage, read> weight: array<{{ "vec2<u64>" if long else "vec4<f32>" }}>;
{% endif %}

{% if exchange == "workgroup" %}
// One block of x: [rows][8 vec4s], and the sums of its vec4s.
var<workgroup> x_block: array<vec4<f32>, {{ rows * 8 }}>;
{% if has_minimum %}
var<workgroup> x_sums: array<f32, {{ rows * 8 }}>;
{% endif %}
{% endif %}
{% if slices > 1 %}
// Slice sums: [slice][row][column of the workgroup]
var<workgroup> slice_sums: array<f32, {{ slices * rows * cols * lanes }}>;
{% endif %}

{% macro word(plane, c) %}
{%- if long %}u32(pair_{{ plane }}{{ c - c % 2 }}{{ " >> 32u" if c % 2 }}){% else %}{{ plane }}[plane{{ c }} + block * 32u]{% endif %}
{%- endmacro %}
{% macro load(from, at) %}{% if long %}bitcast<vec4<f32>>(words({{ from }}[{{ at }}])){% else %}{{ from }}[{{ at }}]{% endif %}{% endmacro %}
{% macro own_x(r) %}
{{- load("x", "x_row" ~ r ~ " + block * 8u + (subgroup_lane & 7u)") }}
{%- if normed %} * factor * {{ load("weight", "block * 8u + (subgroup_lane & 7u)") }}{% endif %}
{%- endmacro %}
{% if gated %}
{% include "shared/act" %}
{% endif %}
{% if long %}
{% include "shared/words" %}
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
    let plane{{ c }} = (column{{ c }} / 32u) * params.blocks * 32u + column{{ c }} % 32u;
    let codes{{ c }} = (column{{ c }} / 32u) * params.blocks * {{ 32 * vectors }}u + column{{ c }} % 32u;
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
{% if exchange == "workgroup" %}
            workgroupBarrier();
            for (var i = local.x; i < {{ rows * 8 }}u; i += {{ lanes }}u) {
                let value = x[min(row0 + i / 8u, last_row) * params.x_stride_vectors + block * 8u + i % 8u];
                x_block[i] = value;
{% if has_minimum %}
                x_sums[i] = ((value.x + value.y) + value.z) + value.w;
{% endif %}
            }
            workgroupBarrier();
{% elif exchange == "subgroup" %}
{% for r in range(rows) %}
            let own{{ r }} = {{ own_x(r) }};
{% if has_minimum %}
            let own_sum{{ r }} = ((own{{ r }}.x + own{{ r }}.y) + own{{ r }}.z) + own{{ r }}.w;
{% endif %}
{% endfor %}
{% endif %}
{% if long %}
{% for c in range(0, cols, 2) %}
{% if has_scales %}
            let pair_scales{{ c }} = scales[(plane{{ c }} + block * 32u) / 2u];
{% endif %}
{% if has_high %}
            let pair_high{{ c }} = high[(plane{{ c }} + block * 32u) / 2u];
{% endif %}
{% endfor %}
{% endif %}
{% for c in range(cols) %}
{% for v in range(vectors) %}
{% set at = "codes[codes" ~ c ~ " + block * " ~ 32 * vectors ~ "u + " ~ 32 * v ~ "u]" %}
            let v{{ c }}_{{ v }} = {% if long %}words({{ at }}){% else %}{{ at }}{% endif %};
{% endfor %}
{% if has_scales %}
            let scale{{ c }} = unpack2x16float({{ word("scales", c) }});
{% endif %}
{% if has_high %}
            let high{{ c }} = {{ word("high", c) }};
{% endif %}
{% endfor %}
{% for g in range(groups) %}
{% for v in range(vectors) %}
{% for i in range(4) %}
{% if group == 1 %}
            let w{{ g }}_{{ 4 * v + i }} = v{{ g }}_{{ v }}.{{ "xyzw"[i] }};
{% else %}
            let w{{ g }}_{{ 4 * v + i }} = vec4<u32>({% for c in range(4) %}v{{ 4 * g + c }}_{{ v }}.{{ "xyzw"[i] }}{{ "" if loop.last else ", " }}{% endfor %});
{% endif %}
{% endfor %}
{% endfor %}
{% if has_high %}
            let h{{ g }} = {% if group == 1 %}high{{ g }}{% else %}vec4<u32>({% for c in range(4) %}high{{ 4 * g + c }}{{ "" if loop.last else ", " }}{% endfor %}){% endif %};
{% endif %}
{% if has_scales %}
{% for r in range(rows) %}
            var block{{ r }}_{{ g }} = {{ zero }};
{% endfor %}
{% endif %}
{% endfor %}
{% if has_minimum %}
{% for r in range(rows) %}
            var x_sum{{ r }} = 0.0;
{% endfor %}
{% endif %}
{% set sum = "block" if has_scales else "slice" %}
{% for q in range(8) %}
{% for g in range(groups) %}
{% for i in range(4) %}
            let c{{ q }}_{{ g }}_{{ i }} = {{ code(format, group, "w" ~ g ~ "_", "h" ~ g, 4 * q + i) | trim }};
{% endfor %}
{% endfor %}
{% for r in range(rows) %}
{% if exchange == "workgroup" %}
            let x{{ q }}_{{ r }} = x_block[{{ r * 8 + q }}u];
{% elif exchange == "subgroup" %}
            let x{{ q }}_{{ r }} = subgroupBroadcast(own{{ r }}, {{ q }}u);
{% else %}
            let x{{ q }}_{{ r }} = x[x_row{{ r }} + block * 8u + {{ q }}u];
{% endif %}
{% for g in range(groups) %}
{% for i in range(4) %}
            {{ sum }}{{ r }}_{{ g }} = fma(c{{ q }}_{{ g }}_{{ i }}, {{ f }}(x{{ q }}_{{ r }}.{{ "xyzw"[i] }}), {{ sum }}{{ r }}_{{ g }});
{% endfor %}
{% endfor %}
{% if has_minimum %}
{% if exchange == "workgroup" %}
            x_sum{{ r }} += x_sums[{{ r * 8 + q }}u];
{% elif exchange == "subgroup" %}
            x_sum{{ r }} += subgroupBroadcast(own_sum{{ r }}, {{ q }}u);
{% else %}
            x_sum{{ r }} += ((x{{ q }}_{{ r }}.x + x{{ q }}_{{ r }}.y) + x{{ q }}_{{ r }}.z) + x{{ q }}_{{ r }}.w;
{% endif %}
{% endif %}
{% endfor %}
{% endfor %}
{% if has_scales %}
{% for g in range(groups) %}
{% set d %}{% if group == 1 %}scale{{ g }}.x{% else %}vec4<f32>({% for c in range(4) %}scale{{ 4 * g + c }}.x{{ "" if loop.last else ", " }}{% endfor %}){% endif %}{% endset %}
            let d{{ g }} = {{ d }};
{% if has_minimum %}
{% set m %}{% if group == 1 %}scale{{ g }}.y{% else %}vec4<f32>({% for c in range(4) %}scale{{ 4 * g + c }}.y{{ "" if loop.last else ", " }}{% endfor %}){% endif %}{% endset %}
            let m{{ g }} = {{ m }};
{% endif %}
{% for r in range(rows) %}
            slice{{ r }}_{{ g }} = fma(block{{ r }}_{{ g }}, d{{ g }}, slice{{ r }}_{{ g }});
{% if has_minimum %}
            slice{{ r }}_{{ g }} = fma({{ f }}(x_sum{{ r }}), m{{ g }}, slice{{ r }}_{{ g }});
{% endif %}
{% endfor %}
{% endfor %}
{% endif %}
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
