// embed: out[r, k] = scale * w[token(r) - first_token, k]
//
// rows   [rows] (token, position, slot, -)           which embedding row each row of the batch takes; 2^32 - 1: the token that
//        history [slots, history_stride] holds for the row's slot and position, as sampled by an earlier step
// w      packed [tokens, k] {{ format }}, layout in src/kernels/layout.rs
// out    [rows, out_stride] f32
// One workgroup owns one row; an invocation owns one block of 32 weights at a time. Rows whose token lies in another part
// of a split embedding are left alone. Reads one row of codes, writes 4 bytes a weight. Assumes base limits only.
{% from "shared/dequant" import code, scale, minimum, functions %}

struct Params {
    row_count: u32,
    first_token: u32,
    token_count: u32,
    blocks: u32,
    out_stride: u32,
    grid_x: u32,
    scale: f32,
    history_stride: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
// [row_count]
@group(0) @binding(1) var<storage, read> rows: array<vec4<u32>>;
// [group, block, vector, row in group]
@group(0) @binding(2) var<storage, read> codes: array<vec4<u32>>;
// [group, {{ "super-block, 5" if scales == "super" else "block" }}, row in group]
@group(0) @binding(3) var<storage, read> scales: array<u32>;
// [group, block, word, row in group]
@group(0) @binding(4) var<storage, read> high: array<u32>;
// [row_count, out_stride]
@group(0) @binding(5) var<storage, read_write> out: array<f32>;
// [slots, history_stride]
@group(0) @binding(6) var<storage, read> history: array<u32>;

{{ functions(format, 1) }}
@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.y * params.grid_x + group.x;
    if (row >= params.row_count) {
        return;
    }
    var token = rows[row].x;
    if (token == {{ from_history }}u) {
        token = history[rows[row].z * params.history_stride + rows[row].y];
    }
    if (token < params.first_token || token - params.first_token >= params.token_count) {
        return;
    }
    let n = token - params.first_token;
    for (var block = lane; block < params.blocks; block += 32u) {
        let at = (n / 32u) * params.blocks + block;
        let to = row * params.out_stride + block * 32u;
{% if code_words == 2 %}
        let pair = codes[(at / 2u) * 32u + n % 32u];
        let v0 = select(pair.xyxy, pair.zwzw, (block & 1u) != 0u);
{% else %}
{% for v in range(vectors) %}
        let v{{ v }} = codes[(at * {{ vectors }}u + {{ v }}u) * 32u + n % 32u];
{% endfor %}
{% endif %}
{% for word in range(code_words) %}
        let w{{ word }} = v{{ word // 4 }}.{{ "xyzw"[word % 4] }};
{% endfor %}
{% for word in range(high_words) %}
        let h{{ word }} = high[(at * {{ high_words }}u + {{ word }}u) * 32u + n % 32u];
{% endfor %}
{% if scales == "block" %}
        let both = unpack2x16float(scales[at * 32u + n % 32u]);
{% elif scales == "super" %}
        let both = unpack2x16float(scales[(at / 8u) * 160u + n % 32u]);
        let bits = scales[(at / 8u) * 160u + 32u + (at % 8u / 2u) * 32u + n % 32u] >> (16u * (at & 1u));
{% endif %}
{% for part in range(parts) %}
        let d{{ part }} = {{ scale(format, "both", "bits", part) | trim }};
{% if has_minimum %}
        let m{{ part }} = {{ minimum(format, "both", "bits", part) | trim }};
{% endif %}
{% endfor %}
{% for k in range(32) %}
{% set part = k * parts // 32 %}
{% set value = code(format, 1, "w", "h", k) | trim %}
{% if has_minimum %}
        out[to + {{ k }}u] = params.scale * fma({{ value }}, d{{ part }}, m{{ part }});
{% elif parts %}
        out[to + {{ k }}u] = params.scale * ({{ value }} * d{{ part }});
{% else %}
        out[to + {{ k }}u] = params.scale * {{ value }};
{% endif %}
{% endfor %}
    }
}
