// q and k heads: {{ "RMS norm over the head, then " if norm }}RoPE; q to its own buffer, k and v into their pages.
//
//   h[i] = {{ "x[i] / sqrt(mean(x^2) + eps) * weight[i]" if norm else "x[i]" }}
//   y[a] = h[a] cos - h[b] sin,  y[b] = h[b] cos + h[a] sin   for each rotating pair (a, b); the others stay
//
// in:  qkv [rows, qkv_stride] f32, rope [position, pairs] (cos, sin), rows [row], tables [slot, table_stride]
// out: q [rows, heads, head_dim] f32, K [page, kv_head, head_dim / 8, token] and V [page, kv_head, token, head_dim / 8] of 8
//      values each ({{ "f32" if kv == "f32" else ("f16 pairs, saturated" if kv == "f16" else "bytes; behind the units of a page and head, scales as f32: src/kernels/kv_page.rs") }})
// A workgroup owns jobs_each heads; an invocation owns 8 neighbouring elements of one, head_dim / 8 invocations a head. It
// reads 16 floats of qkv and 8 pairs of rope and writes 8 values. Where there is a norm it sums 8 squares an invocation ascending,
// then the invocations' sums ascending. Limits: head_dim a multiple of 8 up to 256; a page of a sequence is written by its rows alone.

struct Params {
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    pairs: u32,
    qkv_stride: u32,
    table_stride: u32,
    jobs: u32,
    jobs_each: u32,
    grid_x: u32,
    pad0: u32,
    interleaved: u32,
    eps: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
// [rows, qkv_stride]: q heads, k heads, v heads
@group(0) @binding(1) var<storage, read> qkv: array<f32>;
// [position, pairs] (cos, sin)
@group(0) @binding(2) var<storage, read> rope: array<vec2<f32>>;
// [row] (token, position, slot, -)
@group(0) @binding(3) var<storage, read> rows: array<vec4<u32>>;
// [slot, table_stride] page
@group(0) @binding(4) var<storage, read> tables: array<u32>;
// [2, head_dim]: q, then k
@group(0) @binding(5) var<storage, read> weights: array<f32>;
// [rows, heads, head_dim / 4]
@group(0) @binding(6) var<storage, read_write> q_out: array<vec4<f32>>;
{% if kv == "q8" %}
// [page, kv_head] head_dim / 8, token, 2; then head_dim / 32, token
@group(0) @binding(7) var<storage, read_write> k_pages: array<u32>;
// [page, kv_head] token, head_dim / 8, 2; then token, head_dim / 32
@group(0) @binding(8) var<storage, read_write> v_pages: array<u32>;
{% else %}
// [page, kv_head, head_dim / 8, token, {{ 2 if kv == "f32" else 1 }}]
@group(0) @binding(7) var<storage, read_write> k_pages: array<vec4<u32>>;
// [page, kv_head, token, head_dim / 8, {{ 2 if kv == "f32" else 1 }}]
@group(0) @binding(8) var<storage, read_write> v_pages: array<vec4<u32>>;
{% endif %}

{% if norm %}
// Sum of squares of each invocation's elements.
var<workgroup> squares: array<f32, {{ invocations }}>;

{% endif %}
{% if kv == "q8" %}
// Largest |x| of each invocation's elements, as bits.
var<workgroup> tops: array<u32, {{ invocations }}>;

{% include "shared/int8" %}
{% elif kv == "f16" %}
fn halves(a: f32, b: f32) -> u32 {
    return pack2x16float(clamp(vec2<f32>(a, b), vec2<f32>(-{{ f16_max }}), vec2<f32>({{ f16_max }})));
}
{% endif %}

@compute @workgroup_size({{ invocations }})
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let units = params.head_dim / 8u;
    let place = local / units;
    let unit = local - place * units;
    let columns = params.heads + 2u * params.kv_heads;
    let wanted = (group_id.y * params.grid_x + group_id.x) * params.jobs_each + place;
    let live = place < params.jobs_each && wanted < params.jobs;
    // Lanes without work read a head that exists and write nothing.
    let job = select(0u, wanted, live);
    let at = job / columns;
    let head = job - at * columns;
    let row = rows[at];
    let base = at * params.qkv_stride + head * params.head_dim;
    let first = unit * 8u;
    let is_q = head < params.heads;
    let is_v = head >= params.heads + params.kv_heads;
    {% for e in range(8) %}
    var x{{ e }} = qkv[base + first + {{ e }}u];
    {% endfor %}

    {% if norm %}
    let weight_at = select(params.head_dim, 0u, is_q);
    var sum = 0.0;
    {% for e in range(8) %}
    sum = fma(x{{ e }}, x{{ e }}, sum);
    {% endfor %}
    squares[local] = sum;
    workgroupBarrier();
    let start = min(place * units, {{ invocations }}u - units);
    var total = 0.0;
    for (var other = 0u; other < units; other++) {
        total = total + squares[start + other];
    }
    let inverse = 1.0 / sqrt(total / f32(params.head_dim) + params.eps);
    if (!is_v) {
        {% for e in range(8) %}
        x{{ e }} = x{{ e }} * inverse * weights[weight_at + first + {{ e }}u];
        {% endfor %}
    }
    {% endif %}

    if (!is_v) {
        let rope_at = row.y * params.pairs;
        {% for e in range(8) %}
        {
            let i = first + {{ e }}u;
            var other = i ^ 1u;
            var pair = i >> 1u;
            var leads = {{ "true" if e % 2 == 0 else "false" }};
            if (params.interleaved == 0u) {
                leads = i < params.pairs;
                other = select(i - params.pairs, i + params.pairs, leads);
                pair = select(i - params.pairs, i, leads);
            }
            if (i < 2u * params.pairs) {
                var y = qkv[base + other];
                {% if norm %}
                y = y * inverse * weights[weight_at + other];
                {% endif %}
                let cos_sin = rope[rope_at + pair];
                let turned = y * cos_sin.y;
                x{{ e }} = fma(x{{ e }}, cos_sin.x, select(turned, -turned, leads));
            }
        }
        {% endfor %}
    }
    {% if kv == "q8" %}
    // Four invocations share a scale.
    let part = unit / 4u;
    let place0 = min(place * units, {{ invocations }}u - units);
    tops[local] = max(abs_bits(vec4<f32>(x0, x1, x2, x3)), abs_bits(vec4<f32>(x4, x5, x6, x7)));
    workgroupBarrier();
    var top = tops[place0 + part * 4u];
    for (var other = part * 4u + 1u; other < min(part * 4u + 4u, units); other++) {
        top = max(top, tops[place0 + other]);
    }
    {% endif %}
    if (!live) {
        return;
    }
    if (is_q) {
        let to = ((at * params.heads + head) * units + unit) * 2u;
        q_out[to] = vec4<f32>(x0, x1, x2, x3);
        q_out[to + 1u] = vec4<f32>(x4, x5, x6, x7);
        return;
    }
    let page = tables[row.z * params.table_stride + row.y / {{ page_tokens }}u];
    let token = row.y % {{ page_tokens }}u;
    let kv_head = select(head - params.heads, head - params.heads - params.kv_heads, is_v);
    let block = page * params.kv_heads + kv_head;
    let k_at = (block * units + unit) * {{ page_tokens }}u + token;
    let v_at = (block * {{ page_tokens }}u + token) * units + unit;
    {% if kv == "q8" %}
    let parts = (units + 3u) / 4u;
    let inverse_scale = int8_inverse(top);
    let low = int8_codes(vec4<f32>(x0, x1, x2, x3), inverse_scale);
    let high = int8_codes(vec4<f32>(x4, x5, x6, x7), inverse_scale);
    let scale = bitcast<u32>(int8_scale(top));
    // Words before this page and head: its scales lie behind its units.
    let skipped = block * parts * {{ page_tokens }}u;
    let scales_at = skipped + (block + 1u) * units * {{ 2 * page_tokens }}u;
    if (is_v) {
        v_pages[skipped + 2u * v_at] = low;
        v_pages[skipped + 2u * v_at + 1u] = high;
        if (unit % 4u == 0u) {
            v_pages[scales_at + token * parts + part] = scale;
        }
    } else {
        k_pages[skipped + 2u * k_at] = low;
        k_pages[skipped + 2u * k_at + 1u] = high;
        if (unit % 4u == 0u) {
            k_pages[scales_at + part * {{ page_tokens }}u + token] = scale;
        }
    }
    {% elif kv == "f32" %}
    let low = bitcast<vec4<u32>>(vec4<f32>(x0, x1, x2, x3));
    let high = bitcast<vec4<u32>>(vec4<f32>(x4, x5, x6, x7));
    if (is_v) {
        v_pages[2u * v_at] = low;
        v_pages[2u * v_at + 1u] = high;
    } else {
        k_pages[2u * k_at] = low;
        k_pages[2u * k_at + 1u] = high;
    }
    {% else %}
    let words = vec4<u32>(halves(x0, x1), halves(x2, x3), halves(x4, x5), halves(x6, x7));
    if (is_v) {
        v_pages[v_at] = words;
    } else {
        k_pages[k_at] = words;
    }
    {% endif %}
}
