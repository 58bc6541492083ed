// probe_math: {{ rounds }} steps times {{ "sum = sum + dot4I8Packed(sum xor b, a)" if kind == "dot" else "x = fma(x, a, b)" }} in twelve chains a lane, for the adapter's {{ kind }} rate
//
// input [2] vec4: a and b ({{ "packed signed bytes" if kind == "dot" else "floats" }}); out [workgroups * 64] u32, what came of each lane, so that nothing is left out.
// One workgroup of 64 owns 64 words of out. A step is {{ rounds }} rounds, unrolled, for what a loop costs is not asked; a round is 12 {{ "dots of 4 products and 4 sums" if kind == "dot" else "products and 12 sums" }}.
{% if kind == "f16" %}
enable f16;
{% endif %}
{% set t = {"f32": "f32", "f16": "f16", "dot": "i32"}[kind] %}

struct Params {
    count: u32,
    grid_x: u32,
    steps: u32,
    pad0: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
// [2]
@group(0) @binding(1) var<storage, read> input: array<vec4<u32>>;
// [workgroups * 64]
@group(0) @binding(2) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
{% if kind == "dot" %}
    let a = input[0].x;
    let b = input[1].x;
{% for i in range(12) %}
    var x{{ i }} = i32(lane + {{ i }}u);
{% endfor %}
{% else %}
    let a = vec4<{{ t }}>(bitcast<vec4<f32>>(input[0]));
    let b = vec4<{{ t }}>(bitcast<vec4<f32>>(input[1]));
{% for i in range(3) %}
    var x{{ i }} = vec4<{{ t }}>({{ t }}(lane) + {{ i }}.0{{ "h" if kind == "f16" }});
{% endfor %}
{% endif %}
    for (var step = 0u; step < params.steps; step += 1u) {
{% for round in range(rounds) %}
{% if kind == "dot" %}
{% for i in range(12) %}
        x{{ i }} += dot4I8Packed(bitcast<u32>(x{{ i }}) ^ b, a);
{% endfor %}
{% else %}
{% for i in range(3) %}
        x{{ i }} = fma(x{{ i }}, a, b);
{% endfor %}
{% endif %}
{% endfor %}
    }
    let at = group.x * 64u + lane;
{% if kind == "dot" %}
    out[at] = bitcast<u32>({% for i in range(12) %}x{{ i }}{{ "" if loop.last else " + " }}{% endfor %});
{% else %}
    let sum = (x0 + x1) + x2;
    out[at] = bitcast<u32>(f32(((sum.x + sum.y) + sum.z) + sum.w));
{% endif %}
}
