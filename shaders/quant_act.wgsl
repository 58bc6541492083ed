// quant_act: activations as signed bytes, a scale per 32: d = max |x| / 127, code = round(x / d)
//
// x      [rows, x_stride] f32, zero from k to whole blocks of 32
// out    [rows, blocks, 12] words: 8 of four codes each, ascending from the lowest byte; d; the sums of the first and the last 16 codes; 0
// One lane owns a block; a workgroup of 64 owns 64 neighbouring ones. Reads 128, writes 48 bytes a block.

struct Params {
    rows: u32,
    blocks: u32,
    x_stride_vectors: u32,
    grid_x: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
// [rows, x_stride / 4]
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
// [rows, blocks, 3]
@group(0) @binding(2) var<storage, read_write> out: array<vec4<u32>>;

{% include "shared/int8" %}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let index = (group.y * params.grid_x + group.x) * 64u + lane;
    let row = index / params.blocks;
    if (row >= params.rows) {
        return;
    }
    let start = row * params.x_stride_vectors + (index - row * params.blocks) * 8u;
{% for i in range(8) %}
    let x{{ i }} = x[start + {{ i }}u];
{% endfor %}
    var top = abs_bits(x0);
{% for i in range(1, 8) %}
    top = max(top, abs_bits(x{{ i }}));
{% endfor %}
    let inverse = int8_inverse(top);
{% for i in range(8) %}
    let codes{{ i }} = int8_codes(x{{ i }}, inverse);
{% endfor %}
{% for half in range(2) %}
    let sum{{ half }} = {% for i in range(4) %}dot4I8Packed(codes{{ 4 * half + i }}, 0x01010101u){{ "" if loop.last else " + " }}{% endfor %};
{% endfor %}
    out[3u * index] = vec4<u32>(codes0, codes1, codes2, codes3);
    out[3u * index + 1u] = vec4<u32>(codes4, codes5, codes6, codes7);
    out[3u * index + 2u] = vec4<u32>(bitcast<u32>(int8_scale(top)), bitcast<u32>(sum0), bitcast<u32>(sum1), 0u);
}
