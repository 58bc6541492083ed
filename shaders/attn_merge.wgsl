// Joins the splits of attn_decode, ascending and pairwise, and divides:
//
//   M' = max(M, m), a = exp(M - M'), b = exp(m - M'), L = L a + l b, O = O a + o b;  out = O / L
//
// in:  parts [tile * heads, splits, head_dim + 2] f32: o, then m and l; tiles [tile] of one row each
// out: out [rows, out_stride] f32
// A workgroup owns {{ invocations }} pairs of neighbouring dimensions of (tile, head); an invocation reads 2 pairs a split and writes one.
// Limits: head_dim and out_stride even. Splits that the row does not see are not read.

struct Params {
    heads: u32,
    head_dim: u32,
    first_tile: u32,
    splits: u32,
    window: u32,
    out_stride: u32,
    pairs: u32,
    grid_x: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
// [tile * heads, splits, head_dim / 2 + 1]
@group(0) @binding(1) var<storage, read> parts: array<vec2<f32>>;
// [tile] (row, rows, slot, position)
@group(0) @binding(2) var<storage, read> tiles: array<vec4<u32>>;
// [rows, out_stride / 2]
@group(0) @binding(3) var<storage, read_write> out: array<vec2<f32>>;

@compute @workgroup_size({{ invocations }})
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let index = (group_id.y * params.grid_x + group_id.x) * {{ invocations }}u + local;
    if (index >= params.pairs) {
        return;
    }
    let width = params.head_dim / 2u;
    let row = index / width;
    let pair = index - row * width;
    let tile_at = row / params.heads;
    let head = row - tile_at * params.heads;
    let tile = tiles[params.first_tile + tile_at];
    if (tile.y == 0u) {
        return;
    }
    let position = tile.w;
    let first = select(0u, position + 1u - params.window, params.window != 0u && position >= params.window) / {{ split_tokens }}u;
    let last = position / {{ split_tokens }}u;
    var m = {{ masked }};
    var l = 0.0;
    var o = vec2<f32>(0.0);
    for (var split = first; split <= last; split++) {
        let at = (row * params.splits + split) * (width + 1u);
        let o_part = parts[at + pair];
        let m_l = parts[at + width];
        let top = max(m, m_l.x);
        let a = exp(m - top);
        let b = exp(m_l.x - top);
        m = top;
        l = fma(l, a, m_l.y * b);
        o = fma(o, vec2<f32>(a), o_part * b);
    }
    // A row that saw no key gives 0.
    out[(tile.x * params.out_stride + head * params.head_dim) / 2u + pair] = o / select(l, 1.0, l == 0.0);
}
