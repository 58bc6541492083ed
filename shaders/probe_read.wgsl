// probe_read: out[lane] = sum of the lane's words of input, for the adapter's read bandwidth
//
// input [count] vec4<u32>; out [workgroups * 64] u32, so that no load is left out. One workgroup of 64 owns 64 neighbouring vec4s at a time and
// takes every grid_x-th run of them, {{ unroll }} runs a turn, and 64 words of out. Reads 16 bytes a vec4, writes 4 a lane.

struct Params {
    count: u32,
    grid_x: u32,
    steps: u32,
    pad0: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
// [count]
@group(0) @binding(1) var<storage, read> input: array<vec4<u32>>;
// [workgroups * 64]
@group(0) @binding(2) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let at = group.x * 64u + lane;
    let stride = params.grid_x * 64u;
    var i = at;
{% for n in range(unroll) %}
    var sum{{ n }} = vec4<u32>(0u);
{% endfor %}
    for (; i + {{ unroll - 1 }}u * stride < params.count; i += {{ unroll }}u * stride) {
{% for n in range(unroll) %}
        sum{{ n }} += input[i + {{ n }}u * stride];
{% endfor %}
    }
    for (; i < params.count; i += stride) {
        sum0 += input[i];
    }
    let sum = {% for n in range(unroll) %}sum{{ n }}{{ "" if loop.last else " + " }}{% endfor %};
    out[at] = (sum.x + sum.y) + (sum.z + sum.w);
}
