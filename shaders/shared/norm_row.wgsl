    // The factor of row 0's norm, by 8 lanes of one subgroup, in rms_norm's order: sum s of 64 takes vec4s s, s + 64, ...; lane l owns sums
    // l, l + 8, ... and joins them, then the lanes join theirs: the same tree.
{% for j in range(8) %}
    var sum{{ j }} = 0.0;
{% endfor %}
    for (var first = local.x; first < params.x_stride_vectors; first += 64u) {
{% for j in range(8) %}
        if (first + {{ 8 * j }}u < params.x_stride_vectors) {
            let h = {{ load("x", "first + " ~ 8 * j ~ "u") }};
            sum{{ j }} = fma(h.x, h.x, sum{{ j }});
            sum{{ j }} = fma(h.y, h.y, sum{{ j }});
            sum{{ j }} = fma(h.z, h.z, sum{{ j }});
            sum{{ j }} = fma(h.w, h.w, sum{{ j }});
        }
{% endfor %}
    }
{% for half in [4, 2, 1] %}
{% for j in range(half) %}
    sum{{ j }} += sum{{ j + half }};
{% endfor %}
{% endfor %}
{% for step in [4, 2, 1] %}
    sum0 += subgroupShuffleXor(sum0, {{ step }}u);
{% endfor %}
    let factor = 1.0 / sqrt(sum0 / f32(params.dim) + params.eps);
