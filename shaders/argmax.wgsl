// argmax: out[r] = index of the largest logits[r, 0 .. dim], the lowest one on ties; 0xffffffff where any is NaN or infinite
//
// logits [rows, stride] f32; out [rows] u32
// One workgroup of 256 owns one row. Comparison is exact, so the order does not matter. Reads 4 bytes a logit.

struct Params {
    row_count: u32,
    dim: u32,
    stride: u32,
    grid_x: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
// [row_count, stride]; as bits, because WGSL lets a compiler assume that no float is NaN
@group(0) @binding(1) var<storage, read> logits: array<u32>;
// [row_count]
@group(0) @binding(2) var<storage, read_write> out: array<u32>;

var<workgroup> best_keys: array<u32, 256>;
var<workgroup> best_ids: array<u32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.y * params.grid_x + group.x;
    if (row >= params.row_count) {
        return;
    }
    // Keys order as the floats do; +0 and -0 count as equal, NaN and infinity are above all.
    var best_key = 0u;
    var best_id = 0xffffffffu;
    for (var i = lane; i < params.dim; i += 256u) {
        var bits = logits[row * params.stride + i];
        if (bits == 0x80000000u) {
            bits = 0u;
        }
        var key = select(bits | 0x80000000u, ~bits, bits >= 0x80000000u);
        if ((bits & 0x7f800000u) == 0x7f800000u) {
            key = 0xffffffffu;
        }
        if (key > best_key || best_id == 0xffffffffu) {
            best_key = key;
            best_id = i;
        }
    }
    best_keys[lane] = best_key;
    best_ids[lane] = best_id;
    workgroupBarrier();
{% for half in [128, 64, 32, 16, 8, 4, 2, 1] %}
    if (lane < {{ half }}u) {
        let key = best_keys[lane + {{ half }}u];
        let id = best_ids[lane + {{ half }}u];
        if (key > best_keys[lane] || (key == best_keys[lane] && id < best_ids[lane])) {
            best_keys[lane] = key;
            best_ids[lane] = id;
        }
    }
    workgroupBarrier();
{% endfor %}
    if (lane == 0u) {
        out[row] = select(best_ids[0], 0xffffffffu, best_keys[0] == 0xffffffffu);
    }
}
