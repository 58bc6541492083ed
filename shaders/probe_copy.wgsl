// probe_copy: out[i] = input[i], for the adapter's copy bandwidth; with count 0, for the cost of a launch
//
// input, out [count] vec4<u32>. One workgroup of 64 owns 64 neighbouring vec4s at a time and takes every grid_x-th run of them.
// Reads 16 and writes 16 bytes a vec4.

struct Params {
    count: u32,
    grid_x: u32,
    steps: u32,
    pad0: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
// [count]
@group(0) @binding(1) var<storage, read> input: array<vec4<u32>>;
// [count]
@group(0) @binding(2) var<storage, read_write> out: array<vec4<u32>>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    for (var i = group.x * 64u + lane; i < params.count; i += params.grid_x * 64u) {
        out[i] = input[i];
    }
}
