// matmul by cooperative matrices: y[r, n] = bias[n] + sum_k f16(x[r, k]) * f16(w[n, k]), summed in f32;
// out[r, out_column + n] = {{ "act(y[r, n]) * y[r, columns + n]" if gated else "y[r, n]" }}
//
// x      [rows, x_stride] f32, zero from k to whole blocks of 32; rows first_row .. first_row + rows of it are taken
// w      packed [{{ "2 columns" if gated else "columns" }}, k] {{ format }}, layout in src/kernels/layout.rs; dequantised to f16 in workgroup memory
// out    [rows, out_stride] f32, the same rows. With params.add the product is added to what out holds.
// A workgroup owns {{ rows }} rows by {{ own }} columns of out, and reads {{ columns }} rows of w{{ " (gates, then ups)" if gated else "" }}. Its columns lie in {{ slots }} strips of {{ strip }}; a
// subgroup owns one strip at a time. Where subgroups are wide, so that there are fewer than strips, they take turns, and what is
// staged is staged again; where there are more, the last strip is computed by several and stored by one.
// Reads the weights once a row tile and turn, x once a column tile and turn. Workgroup memory: {{ bytes }} bytes.
//
// Order: matrices of {{ size }} x {{ size }} x {{ size }} are chained along K, ascending, from 0 to the end, in one accumulator a tile of out. Tile and order are
// the same whatever the number of rows, so that a row's result does not depend on its company; the order within a matrix is the
// driver's. Rows past the end are zeros; columns past the end are computed on clamped addresses; neither is stored.
// f16 saturates at {{ f16_max }}.
{% from "shared/dequant" import code, scale, minimum, functions %}
enable f16;
enable wgpu_cooperative_matrix;

struct Params {
    rows: u32,
    columns: u32,
    blocks: u32,
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
    first_row: u32,
    pad0: u32,
    pad1: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
// [group, block, vector, row in group]
@group(0) @binding(1) var<storage, read> codes: array<vec4<u32>>;
// [group, {{ "super-block, 5" if scales == "super" else "block" }}, row in group]
@group(0) @binding(2) var<storage, read> scales: array<u32>;
// [group, block, word, row in group]
@group(0) @binding(3) var<storage, read> high: array<u32>;
// [rows, x_stride / 4]
@group(0) @binding(4) var<storage, read> x: array<vec4<f32>>;
// [bias_start + {{ "2 columns" if gated else "columns" }}]
@group(0) @binding(5) var<storage, read> bias: array<f32>;
// [rows, out_stride]
@group(0) @binding(6) var<storage, read_write> out: array<f32>;

// One block of x: [row][k], rows {{ stride }} apart so that neighbours lie in other banks.
var<workgroup> x_tile: array<f16, {{ rows * stride }}>;
// One block of w: [column][k].
var<workgroup> w_tile: array<f16, {{ columns * stride }}>;
// [row][column]: zeros that accumulators begin with, then what they end with.
var<workgroup> sums: array<f32, {{ rows * columns }}>;

{% if gated %}
{% include "shared/act" %}
{% endif %}
{{ functions(format, 1) }}
fn to_half(value: f32) -> f16 {
    return f16(clamp(value, -{{ f16_max }}, {{ f16_max }}));
}

// Row of w that belongs to a column of the tile.
fn weight_row(tile_column: u32, column: u32) -> u32 {
{% if gated %}
    return min(tile_column + column % {{ own }}u, params.columns - 1u) + select(0u, params.columns, column >= {{ own }}u);
{% else %}
    return min(tile_column + column, params.columns - 1u);
{% endif %}
}

// Block `block` of row `row` of w, into column `column` of the tile.
fn stage_weights(row: u32, block: u32, column: u32) {
    let at = (row / 32u) * params.blocks * {{ 8 * code_words }}u + row % 32u;
    let to = column * {{ stride }}u;
{% if code_words == 2 %}
    let two = codes[at + (block / 2u) * 32u];
    let v0 = select(two.xyxy, two.zwzw, (block & 1u) != 0u);
{% else %}
{% for v in range(vectors) %}
    let v{{ v }} = codes[at + block * {{ 32 * vectors }}u + {{ 32 * v }}u];
{% endfor %}
{% endif %}
{% for word in range(code_words) %}
    let w{{ word }} = v{{ word // 4 }}.{{ "xyzw"[word % 4] }};
{% endfor %}
{% for word in range(high_words) %}
    let h{{ word }} = high[(row / 32u) * params.blocks * {{ 32 * high_words }}u + row % 32u + block * {{ 32 * high_words }}u + {{ 32 * word }}u];
{% endfor %}
{% if scales == "block" %}
    let both = unpack2x16float(scales[(row / 32u) * params.blocks * 32u + row % 32u + block * 32u]);
    let bits = 0u;
{% elif scales == "super" %}
    let super_at = (row / 32u) * (params.blocks / 8u) * 160u + row % 32u + (block / 8u) * 160u;
    let both = unpack2x16float(scales[super_at]);
    let bits = scales[super_at + 32u + (block % 8u / 2u) * 32u] >> (16u * (block & 1u));
{% endif %}
{% for part in range(parts) %}
    let d{{ part }} = {{ scale(format, "both", "bits", part) | trim }};
{% if has_minimum %}
    let m{{ part }} = {{ minimum(format, "both", "bits", part) | trim }};
{% endif %}
{% endfor %}
{% for k in range(32) %}
{% set part = k * parts // 32 %}
    w_tile[to + {{ k }}u] = to_half({{ code(format, 1, "w", "h", k) | trim }}{% if parts %} * d{{ part }}{% endif %}{% if has_minimum %} + m{{ part }}{% endif %});
{% endfor %}
}

// Block `block` of the tile's rows of x, by {{ x_lanes }} lanes.
fn stage_x(row0: u32, block: u32, lane: u32) {
    for (var i = lane; i < {{ rows * 8 }}u; i += {{ x_lanes }}u) {
        let row = row0 + i / 8u;
        var value = vec4<f32>(0.0);
        if (row < params.rows) {
            value = x[(params.first_row + row) * params.x_stride_vectors + block * 8u + i % 8u];
        }
        let to = (i / 8u) * {{ stride }}u + 4u * (i % 8u);
        x_tile[to] = to_half(value.x);
        x_tile[to + 1u] = to_half(value.y);
        x_tile[to + 2u] = to_half(value.z);
        x_tile[to + 3u] = to_half(value.w);
    }
}

fn biased(row: u32, column: u32, weight: u32) -> f32 {
    let y = sums[row * {{ columns }}u + column];
    if (params.has_bias != 0u) {
        return y + bias[params.bias_start + weight];
    }
    return y;
}

{% set mat = "coop_mat" ~ size ~ "x" ~ size %}
@compute @workgroup_size({{ lanes }})
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
) {
    let tile = workgroup.y * params.grid_x + workgroup.x;
    if (tile >= params.tiles) {
        return;
    }
    let row0 = (tile % params.row_tiles) * {{ rows }}u;
    let tile_column = (tile / params.row_tiles) * {{ own }}u;
    for (var i = local; i < {{ rows * columns }}u; i += {{ lanes }}u) {
        sums[i] = 0.0;
    }
    for (var first_slot = 0u; first_slot < {{ slots }}u; first_slot += subgroups) {
        let slot = first_slot + subgroup;
        let strip = min(slot, {{ slots - 1 }}u) * {{ strip }}u;
        workgroupBarrier();
{% for r in range(rows // size) %}
{% for c in range(strip // size) %}
        var sum{{ r }}_{{ c }} = coopLoadT<{{ mat }}<f32,C>>(&sums[{{ r * size * columns + c * size }}u + strip], {{ columns }}u);
{% endfor %}
{% endfor %}
        for (var block = 0u; block < params.blocks; block += 1u) {
            workgroupBarrier();
            if (local < {{ columns }}u) {
                stage_weights(weight_row(tile_column, local), block, local);
            } else {
                stage_x(row0, block, local - {{ columns }}u);
            }
            workgroupBarrier();
{% for k in range(0, 32, size) %}
{% for c in range(strip // size) %}
            let w{{ k }}_{{ c }} = coopLoad<{{ mat }}<f16,B>>(&w_tile[(strip + {{ c * size }}u) * {{ stride }}u + {{ k }}u], {{ stride }}u);
{% endfor %}
{% for r in range(rows // size) %}
            let x{{ k }}_{{ r }} = coopLoadT<{{ mat }}<f16,A>>(&x_tile[{{ r * size * stride + k }}u], {{ stride }}u);
{% for c in range(strip // size) %}
            sum{{ r }}_{{ c }} = coopMultiplyAdd(x{{ k }}_{{ r }}, w{{ k }}_{{ c }}, sum{{ r }}_{{ c }});
{% endfor %}
{% endfor %}
{% endfor %}
        }
        if (slot < {{ slots }}u) {
{% for r in range(rows // size) %}
{% for c in range(strip // size) %}
            coopStoreT(sum{{ r }}_{{ c }}, &sums[{{ r * size * columns + c * size }}u + strip], {{ columns }}u);
{% endfor %}
{% endfor %}
        }
    }
    workgroupBarrier();
    for (var i = local; i < {{ rows * own }}u; i += {{ lanes }}u) {
        let row = i / {{ own }}u;
        let column = i % {{ own }}u;
        if (row0 + row < params.rows && tile_column + column < params.columns) {
            let weight = tile_column + column;
            let at = (params.first_row + row0 + row) * params.out_stride + params.out_column + weight;
{% if gated %}
            let gate = biased(row, column, weight);
            let up = biased(row, column + {{ own }}u, weight + params.columns);
            out[at] = act(gate, params.gelu != 0u) * up;
{% else %}
            let y = biased(row, column, weight);
            if (params.add != 0u) {
                out[at] += y;
            } else {
                out[at] = y;
            }
{% endif %}
        }
    }
}
