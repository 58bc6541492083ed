// gate_act: out[r, i] = act(gate_up[r, i]) * gate_up[r, dim + i], for what a gated matmul could not do at once
//
// gate_up [rows, gate_up_stride] f32; out [rows, out_stride] f32
// One workgroup of 64 owns 64 neighbouring elements of a row. Reads 8, writes 4 bytes an element.

struct Params {
    row_count: u32,
    dim: u32,
    gate_up_stride: u32,
    out_stride: u32,
    row_groups: u32,
    grid_x: u32,
    gelu: u32,
    pad0: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
// [row_count, gate_up_stride]
@group(0) @binding(1) var<storage, read> gate_up: array<f32>;
// [row_count, out_stride]
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

{% include "shared/act" %}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let index = group.y * params.grid_x + group.x;
    let row = index / params.row_groups;
    let i = (index % params.row_groups) * 64u + lane;
    if (row >= params.row_count || i >= params.dim) {
        return;
    }
    let gate = gate_up[row * params.gate_up_stride + i];
    let up = gate_up[row * params.gate_up_stride + params.dim + i];
    out[row * params.out_stride + i] = act(gate, params.gelu != 0u) * up;
}
