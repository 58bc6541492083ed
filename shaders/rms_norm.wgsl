// rms_norm: h = x[i] + delta[i]; out[r] = h / sqrt(mean(h^2) + eps) * weight; x[i] = h, with i = map[r] or r
//
// x, delta [rows, stride] f32; weight [stride] f32, zero from dim on; map [row_count] u32; out [row_count, stride] f32
// One workgroup of {{ lanes }} owns one row. Sum s of 64 takes the squares of vec4s s, s + 64, ... ascending; the 64 are joined by a
// fixed tree, so the order depends on dim only. A lane owns {{ own }} of the sums{{ " and joins them before the lanes meet" if own > 1 }}. Reads 12, writes 8 bytes an element.
// Strides are multiples of 32; padding is zero.

struct Params {
    row_count: u32,
    dim: u32,
    stride_vectors: u32,
    has_delta: u32,
    has_map: u32,
    grid_x: u32,
    eps: f32,
    pad0: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
// [rows, stride / 4]
@group(0) @binding(1) var<storage, read_write> x: array<vec4<f32>>;
// [rows, stride / 4]
@group(0) @binding(2) var<storage, read> delta: array<vec4<f32>>;
// [stride / 4]
@group(0) @binding(3) var<storage, read> weight: array<vec4<f32>>;
// [row_count]
@group(0) @binding(4) var<storage, read> map: array<u32>;
// [row_count, stride / 4]
@group(0) @binding(5) var<storage, read_write> out: array<vec4<f32>>;

var<workgroup> sums: array<f32, {{ lanes }}>;

@compute @workgroup_size({{ lanes }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.y * params.grid_x + group.x;
    if (row >= params.row_count) {
        return;
    }
    var from_row = row;
    if (params.has_map != 0u) {
        from_row = map[row];
    }
    let base = from_row * params.stride_vectors;
{% for j in range(own) %}
    var sum{{ j }} = 0.0;
{% endfor %}
    for (var first = lane; first < params.stride_vectors; first += 64u) {
{% for j in range(own) %}
        if (first + {{ lanes * j }}u < params.stride_vectors) {
            let i = first + {{ lanes * j }}u;
            var h = x[base + i];
            if (params.has_delta != 0u) {
                h += delta[base + i];
                if (params.has_map == 0u) {
                    x[base + i] = h;
                }
            }
            sum{{ j }} = fma(h.x, h.x, sum{{ j }});
            sum{{ j }} = fma(h.y, h.y, sum{{ j }});
            sum{{ j }} = fma(h.z, h.z, sum{{ j }});
            sum{{ j }} = fma(h.w, h.w, sum{{ j }});
        }
{% endfor %}
    }
{% for half in [32, 16, 8, 4, 2, 1] %}
{% if half >= lanes %}
{% for j in range(half // lanes) %}
    sum{{ j }} += sum{{ j + half // lanes }};
{% endfor %}
{% endif %}
{% endfor %}
    sums[lane] = sum0;
    workgroupBarrier();
{% for half in [32, 16, 8, 4, 2, 1] %}
{% if half < lanes %}
    if (lane < {{ half }}u) {
        sums[lane] += sums[lane + {{ half }}u];
    }
    workgroupBarrier();
{% endif %}
{% endfor %}
    let factor = 1.0 / sqrt(sums[0] / f32(params.dim) + params.eps);
    for (var i = lane; i < params.stride_vectors; i += {{ lanes }}u) {
        var h = x[base + i];
        if (params.has_delta != 0u && params.has_map != 0u) {
            h += delta[base + i];
        }
        out[row * params.stride_vectors + i] = h * factor * weight[i];
    }
}
