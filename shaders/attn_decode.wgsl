// Flash attention of single rows over one split of paged KV; attn_merge joins the splits. Where no row has more than one
// split, it ends the work itself, by the arithmetic of the join, so that the bits are the same.
//
// in:  q [rows, heads, head_dim] f32; K, V pages; tiles of one row each
// out: parts [tile * heads, splits, head_dim + 2] f32: o, then m and l, of the splits that the row sees; with splits = 1
//      instead: out [rows, out_stride] f32
// A workgroup owns {{ rows }} query heads of (tile, kv head) over one split of {{ split_tokens }} absolute positions, {{ own }} of them a cluster of 8 lanes.
// It reads each K and V unit of its split once a cluster. Workgroups of splits that the row does not see leave at once.
{% set decode = true %}
{% include "shared/attn" %}

// [tile * heads, splits, head_dim / 2 + 1]
@group(0) @binding(6) var<storage, read_write> parts: array<vec2<f32>>;
// [rows, out_stride / 4]
@group(0) @binding(7) var<storage, read_write> out: array<vec4<f32>>;

@compute @workgroup_size({{ lanes }})
fn main(
    @builtin(workgroup_id) group_id: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
    {% if subgroup and clusters > 1 %}
    @builtin(subgroup_invocation_id) subgroup_lane: u32,
    {% endif %}
) {
{% include "shared/attn_rows" %}

    {% for r in range(own) %}
    var m{{ r }} = {{ masked }};
    var l{{ r }} = 0.0;
    {% for o in range(2 * slots) %}
    var o{{ r }}_{{ o }} = vec4<f32>(0.0);
    {% endfor %}
    {% endfor %}
{% include "shared/attn_split" %}
    if (params.splits == 1u) {
        {% for r in range(own) %}
        if (row0 + {{ r }}u < live) {
            let top = max({{ masked }}, m{{ r }});
            let a = exp({{ masked }} - top);
            let b = exp(m{{ r }} - top);
            let sum = fma(0.0, a, l{{ r }} * b);
            let l = select(sum, 1.0, sum == 0.0);
            let to = (tile.x * params.out_stride + (kv_head * params.group + head{{ r }}) * {{ head_dim }}u) / 4u;
            {% for s in range(slots) %}
            if (lane + {{ 8 * s }}u < {{ units }}u) {
                out[to + 2u * unit{{ s }}] = fma(vec4<f32>(0.0), vec4<f32>(a), o{{ r }}_{{ 2 * s }} * b) / l;
                out[to + 2u * unit{{ s }} + 1u] = fma(vec4<f32>(0.0), vec4<f32>(a), o{{ r }}_{{ 2 * s + 1 }} * b) / l;
            }
            {% endfor %}
        }
        {% endfor %}
        return;
    }
    {% for r in range(own) %}
    if (row0 + {{ r }}u < live) {
        let to = ((tile_at * params.heads + kv_head * params.group + head{{ r }}) * params.splits + split) * {{ head_dim // 2 + 1 }}u;
        {% for s in range(slots) %}
        if (lane + {{ 8 * s }}u < {{ units }}u) {
            parts[to + 4u * unit{{ s }}] = o{{ r }}_{{ 2 * s }}.xy;
            parts[to + 4u * unit{{ s }} + 1u] = o{{ r }}_{{ 2 * s }}.zw;
            parts[to + 4u * unit{{ s }} + 2u] = o{{ r }}_{{ 2 * s + 1 }}.xy;
            parts[to + 4u * unit{{ s }} + 3u] = o{{ r }}_{{ 2 * s + 1 }}.zw;
        }
        {% endfor %}
        if (lane == 0u) {
            parts[to + {{ head_dim // 2 }}u] = vec2<f32>(m{{ r }}, l{{ r }});
        }
    }
    {% endfor %}
}
