            // One block of floats: each code times its x, ascending.
{% for g in range(groups) %}
{% for word in range(code_words) %}
            let w{{ g }}_{{ word }} = {{ gather(g, "u32", "v", "_" ~ word // 4 ~ "." ~ "xyzw"[word % 4]) | trim }};
{% endfor %}
{% for word in range(high_words) %}
            let h{{ g }}_{{ word }} = {{ gather(g, "u32", "high_word" ~ word ~ "_", "") | trim }};
{% endfor %}
{% endfor %}
{% if parts %}
{% for r in range(rows) %}
{% for g in range(groups) %}
            var block{{ r }}_{{ g }} = {{ zero }};
{% endfor %}
{% endfor %}
{% endif %}
{% if has_minimum %}
{% for r in range(rows) %}
            var x_sum{{ r }} = 0.0;
{% endfor %}
{% endif %}
{% set sum = "block" if parts else "slice" %}
{% for q in range(8) %}
{% for g in range(groups) %}
{% for i in range(4) %}
            let c{{ q }}_{{ g }}_{{ i }} = {{ code(format, group, "w" ~ g ~ "_", "h" ~ g ~ "_", 4 * q + i) | trim }};
{% endfor %}
{% endfor %}
{% for r in range(rows) %}
{% if exchange == "workgroup" %}
            let x{{ q }}_{{ r }} = x_block[{{ r * 8 + q }}u];
{% elif exchange == "subgroup" %}
            let x{{ q }}_{{ r }} = subgroupBroadcast(own{{ r }}, {{ q }}u);
{% else %}
            let x{{ q }}_{{ r }} = x[x_row{{ r }} + block * 8u + {{ q }}u];
{% endif %}
{% for g in range(groups) %}
{% for i in range(4) %}
            {{ sum }}{{ r }}_{{ g }} = fma(c{{ q }}_{{ g }}_{{ i }}, {{ f }}(x{{ q }}_{{ r }}.{{ "xyzw"[i] }}), {{ sum }}{{ r }}_{{ g }});
{% endfor %}
{% endfor %}
{% if has_minimum %}
{% if exchange == "workgroup" %}
            x_sum{{ r }} += x_sums[{{ r * 8 + q }}u];
{% elif exchange == "subgroup" %}
            x_sum{{ r }} += subgroupBroadcast(own_sum{{ r }}, {{ q }}u);
{% else %}
            x_sum{{ r }} += ((x{{ q }}_{{ r }}.x + x{{ q }}_{{ r }}.y) + x{{ q }}_{{ r }}.z) + x{{ q }}_{{ r }}.w;
{% endif %}
{% endif %}
{% endfor %}
{% if parts and (q + 1) * parts % 8 == 0 %}
{% set part = q * parts // 8 %}
{{ part_scales(part) }}
{% for g in range(groups) %}
{% for r in range(rows) %}
            slice{{ r }}_{{ g }} = fma(block{{ r }}_{{ g }}, d{{ part }}_{{ g }}, slice{{ r }}_{{ g }});
{% if has_minimum %}
            slice{{ r }}_{{ g }} = fma({{ f }}(x_sum{{ r }}), m{{ part }}_{{ g }}, slice{{ r }}_{{ g }});
{% endif %}
{% if part + 1 < parts %}
            block{{ r }}_{{ g }} = {{ zero }};
{% endif %}
{% endfor %}
{% endfor %}
{% if has_minimum and part + 1 < parts %}
{% for r in range(rows) %}
            x_sum{{ r }} = 0.0;
{% endfor %}
{% endif %}
{% endif %}
{% endfor %}
