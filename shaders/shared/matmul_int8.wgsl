            // One block of bytes: integer sums of codes times codes, exact in any order, then scaled part by part:
            // slice = fma(f32(sum) * d of x, d of w, slice), and fma(f32(sum of x's codes) * d of x, m, slice) where there is a minimum.
{% set zero_point = code_zero(format) | trim | int %}
{% set x_sums_used = has_minimum or zero_point > 0 %}
{% for r in range(rows) %}
{% if exchange == "workgroup" %}
            let stored{{ r }}_0 = x_block[{{ 3 * r }}u];
            let stored{{ r }}_1 = x_block[{{ 3 * r + 1 }}u];
            let stored{{ r }}_2 = x_block[{{ 3 * r + 2 }}u];
{% elif exchange == "storage" %}
            let stored{{ r }}_0 = x[x_row{{ r }} + block * 3u];
            let stored{{ r }}_1 = x[x_row{{ r }} + block * 3u + 1u];
            let stored{{ r }}_2 = x[x_row{{ r }} + block * 3u + 2u];
{% endif %}
{% if exchange != "subgroup" %}
            let x_scale{{ r }} = bitcast<f32>(stored{{ r }}_2.x);
{% if x_sums_used %}
{% if parts == 2 %}
            let x_sum{{ r }}_0 = bitcast<i32>(stored{{ r }}_2.y);
            let x_sum{{ r }}_1 = bitcast<i32>(stored{{ r }}_2.z);
{% else %}
            let x_sum{{ r }}_0 = bitcast<i32>(stored{{ r }}_2.y) + bitcast<i32>(stored{{ r }}_2.z);
{% endif %}
{% endif %}
{% elif int8 == "packed" %}
            let x_scale{{ r }} = bitcast<f32>(subgroupBroadcast(own_rest{{ r }}, 0u));
{% if x_sums_used %}
            let x_half{{ r }}_0 = bitcast<i32>(subgroupBroadcast(own_rest{{ r }}, 1u));
            let x_half{{ r }}_1 = bitcast<i32>(subgroupBroadcast(own_rest{{ r }}, 2u));
{% endif %}
{% else %}
            var top{{ r }} = abs_bits(float{{ r }});
            top{{ r }} = max(top{{ r }}, subgroupShuffleXor(top{{ r }}, 1u));
            top{{ r }} = max(top{{ r }}, subgroupShuffleXor(top{{ r }}, 2u));
            top{{ r }} = max(top{{ r }}, subgroupShuffleXor(top{{ r }}, 4u));
            let x_scale{{ r }} = int8_scale(top{{ r }});
            let own{{ r }} = int8_codes(float{{ r }}, int8_inverse(top{{ r }}));
{% if x_sums_used %}
            var own_sum{{ r }} = dot4I8Packed(own{{ r }}, 0x01010101u);
            own_sum{{ r }} += subgroupShuffleXor(own_sum{{ r }}, 1u);
            own_sum{{ r }} += subgroupShuffleXor(own_sum{{ r }}, 2u);
            let x_half{{ r }}_0 = subgroupBroadcast(own_sum{{ r }}, 0u);
            let x_half{{ r }}_1 = subgroupBroadcast(own_sum{{ r }}, 4u);
{% endif %}
{% endif %}
{% if exchange == "subgroup" and x_sums_used %}
{% if parts == 2 %}
            let x_sum{{ r }}_0 = x_half{{ r }}_0;
            let x_sum{{ r }}_1 = x_half{{ r }}_1;
{% else %}
            let x_sum{{ r }}_0 = x_half{{ r }}_0 + x_half{{ r }}_1;
{% endif %}
{% endif %}
{% endfor %}
{% if pairs %}
            // Codes of 4 bits, of two columns at a time: (a + b * 2^16) * x is both products at once. Sixteen of them stay within 16 bits
            // each, 16 * 15 * 127 < 2^15; then they are taken apart.
{% for r in range(rows) %}
{% for q in range(8) %}
{% if exchange == "subgroup" %}
{% if q == 0 %}
            let own_codes{{ r }} = unpack4xI8(own{{ r }});
{% endif %}
            let x{{ q }}_{{ r }} = subgroupBroadcast(own_codes{{ r }}, {{ q }}u);
{% else %}
            let x{{ q }}_{{ r }} = unpack4xI8(stored{{ r }}_{{ q // 4 }}.{{ "xyzw"[q % 4] }});
{% endif %}
{% endfor %}
{% endfor %}
{% for half in range(2) %}
{% for word in [2 * half, 2 * half + 1] %}
{% for p in range(cols // 2) %}
{% set a = "v" ~ (2 * p) ~ "_0." ~ "xyzw"[word] %}
{% set b = "v" ~ (2 * p + 1) ~ "_0." ~ "xyzw"[word] %}
            let pair{{ word }}_0_{{ p }} = ({{ a }} & 0xffffu) | ({{ b }} << 16u);
            let pair{{ word }}_1_{{ p }} = ({{ a }} >> 16u) | ({{ b }} & 0xffff0000u);
{% endfor %}
{# Nibble s of a pair's half: bytes 0 and 1 of the words, or 2 and 3; its lower nibbles are codes 0..3 of the word, its upper ones 4..7. #}
{% for k in range(8) %}
{% set byte = k % 4 %}
{% for p in range(cols // 2) %}
            let w{{ word }}_{{ k }}_{{ p }} = i32((pair{{ word }}_{{ byte // 2 }}_{{ p }} >> {{ 8 * (byte % 2) + 4 * (k // 4) }}u) & 0x000f000fu);
{% for r in range(rows) %}
{% set first = word % 2 == 0 and k == 0 %}
            {{ "var " if first }}both{{ half }}_{{ r }}_{{ p }} {{ "=" if first else "+=" }} w{{ word }}_{{ k }}_{{ p }} * x{{ 2 * word + k // 4 }}_{{ r }}.{{ "xyzw"[byte] }};
{% endfor %}
{% endfor %}
{% endfor %}
{% endfor %}
{% for p in range(cols // 2) %}
{% for r in range(rows) %}
            let even{{ half }}_{{ r }}_{{ p }} = (both{{ half }}_{{ r }}_{{ p }} << 16u) >> 16u;
            let odd{{ half }}_{{ r }}_{{ p }} = (both{{ half }}_{{ r }}_{{ p }} - even{{ half }}_{{ r }}_{{ p }}) >> 16u;
{% endfor %}
{% endfor %}
{% endfor %}
{% for p in range(cols // 2) %}
{% for r in range(rows) %}
            let sum0_{{ r }}_{{ 2 * p }} = even0_{{ r }}_{{ p }} + even1_{{ r }}_{{ p }};
            let sum0_{{ r }}_{{ 2 * p + 1 }} = odd0_{{ r }}_{{ p }} + odd1_{{ r }}_{{ p }};
{% endfor %}
{% endfor %}
{% endif %}
{% for q in range(8) %}
{% set part = q * parts // 8 %}
{% set first = q * parts % 8 == 0 %}
{% set at = q * code_words // 8 %}
{% if not pairs %}
{% for c in range(cols) %}
            let b{{ q }}_{{ c }} = {{ bytes(format, "v" ~ c ~ "_" ~ at // 4 ~ "." ~ "xyzw"[at % 4], "high_word" ~ q * high_words // 8 ~ "_" ~ c, q) | trim }};
{% endfor %}
{% for r in range(rows) %}
{% if exchange == "subgroup" %}
            let x{{ q }}_{{ r }} = subgroupBroadcast(own{{ r }}, {{ q }}u);
{% else %}
            let x{{ q }}_{{ r }} = stored{{ r }}_{{ q // 4 }}.{{ "xyzw"[q % 4] }};
{% endif %}
{% for c in range(cols) %}
            {{ "var " if first }}sum{{ part }}_{{ r }}_{{ c }} {{ "=" if first else "+=" }} dot4I8Packed(b{{ q }}_{{ c }}, x{{ q }}_{{ r }});
{% endfor %}
{% endfor %}
{% endif %}
{% if (q + 1) * parts % 8 == 0 %}
{{ part_scales(part) }}
{% for r in range(rows) %}
{% if zero_point %}
            let zero{{ part }}_{{ r }} = {{ zero_point }} * x_sum{{ r }}_{{ part }};
{% endif %}
{% if has_minimum %}
            let low{{ part }}_{{ r }} = {{ f }}(f32(x_sum{{ r }}_{{ part }}) * x_scale{{ r }});
{% endif %}
{% for g in range(groups) %}
{% set minus = " - zero" ~ part ~ "_" ~ r if zero_point else "" %}
            slice{{ r }}_{{ g }} = fma({% if group == 1 %}f32(sum{{ part }}_{{ r }}_{{ g }}{{ minus }}){% else %}vec4<f32>(
                {%- for c in range(4 * g, 4 * g + 4) %}f32(sum{{ part }}_{{ r }}_{{ c }}{{ minus }}){{ "" if loop.last else ", " }}{% endfor %}){% endif %} * x_scale{{ r }}, d{{ part }}_{{ g }}, slice{{ r }}_{{ g }});
{% if has_minimum %}
            slice{{ r }}_{{ g }} = fma(low{{ part }}_{{ r }}, m{{ part }}_{{ g }}, slice{{ r }}_{{ g }});
{% endif %}
{% endfor %}
{% endfor %}
{% endif %}
{% endfor %}
