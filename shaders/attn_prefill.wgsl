// Flash attention of prompt tiles over paged KV: out = softmax(cap(scale q*k)) v over the keys that each row sees.
//
// in:  q [rows, heads, head_dim] f32; K, V pages; tiles of at most chunks * {{ rows }} / group tokens of one sequence each
// out: out [rows, out_stride] f32
// A workgroup owns {{ rows }} rows of (tile, kv head), a row being (token, query head of the group), {{ own }} of them a cluster of 8 lanes;
// it walks all splits that they see and joins them in registers, as attn_merge does:
//
//   M' = max(M, m), a = exp(M - M'), b = exp(m - M'), L = L a + l b, O = O a + o b;  out = O / L
//
// It reads each K and V unit of those splits once a cluster. No key past the last one that its rows see is read.
{% set decode = false %}
{% include "shared/attn" %}

// [rows, out_stride / 4]
@group(0) @binding(6) var<storage, read_write> out: array<vec4<f32>>;

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
    var m_all{{ r }} = {{ masked }};
    var l_all{{ r }} = 0.0;
    {% for o in range(2 * slots) %}
    var o_all{{ r }}_{{ o }} = vec4<f32>(0.0);
    {% endfor %}
    {% endfor %}
    for (var split = first / {{ split_tokens }}u; split <= last / {{ split_tokens }}u; split++) {
        {% for r in range(own) %}
        var m{{ r }} = {{ masked }};
        var l{{ r }} = 0.0;
        {% for o in range(2 * slots) %}
        var o{{ r }}_{{ o }} = vec4<f32>(0.0);
        {% endfor %}
        {% endfor %}
{% include "shared/attn_split" %}
        {% for r in range(own) %}
        {
            let top = max(m_all{{ r }}, m{{ r }});
            let a = exp(m_all{{ r }} - top);
            let b = exp(m{{ r }} - top);
            m_all{{ r }} = top;
            l_all{{ r }} = fma(l_all{{ r }}, a, l{{ r }} * b);
            {% for o in range(2 * slots) %}
            o_all{{ r }}_{{ o }} = fma(o_all{{ r }}_{{ o }}, vec4<f32>(a), o{{ r }}_{{ o }} * b);
            {% endfor %}
        }
        {% endfor %}
    }
    {% for r in range(own) %}
    if (row0 + {{ r }}u < live) {
        // A row that saw no key gives 0.
        let l = select(l_all{{ r }}, 1.0, l_all{{ r }} == 0.0);
        let to = ((tile.x + token{{ r }}) * params.out_stride + (kv_head * params.group + head{{ r }}) * {{ head_dim }}u) / 4u;
        {% for s in range(slots) %}
        if (lane + {{ 8 * s }}u < {{ units }}u) {
            out[to + 2u * unit{{ s }}] = o_all{{ r }}_{{ 2 * s }} / l;
            out[to + 2u * unit{{ s }} + 1u] = o_all{{ r }}_{{ 2 * s + 1 }} / l;
        }
        {% endfor %}
    }
    {% endfor %}
}
