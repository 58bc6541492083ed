{% macro load(from) %}{% if long %}words({{ from }}){% else %}{{ from }}{% endif %}{% endmacro %}
    // Adds the keys of one split to each row's m, l and o.
    let split_first = max(split * {{ split_tokens }}u, first & ~{{ key_tile - 1 }}u);
    let split_last = min(split * {{ split_tokens }}u + {{ split_tokens - 1 }}u, last);
    for (var start = split_first; start <= split_last; start += {{ key_tile }}u) {
        // Last key of the tile that any row sees. Lanes past it repeat it, masked: what follows in the page is not ours.
        let end = min(split_last - start, {{ key_tile - 1 }}u);
        let entry = tile.z * params.table_stride + start / {{ page_tokens }}u;
        let page0 = tables[entry] * params.kv_heads + kv_head;
        let page1 = tables[entry + end / {{ page_tokens }}u] * params.kv_heads + kv_head;

        // Scores of keys 4 lane + (0..4), a row a vec4.
        let k_page = select(page0, page1, min(4u * lane, end) >= {{ page_tokens }}u) * {{ page_vectors }}u;
        {% for j in range(4) %}
        let k_at{{ j }} = k_page + min(4u * lane + {{ j }}u, end) % {{ page_tokens }}u * {{ vectors }}u;
        {% endfor %}
        {% for r in range(own) %}
        var s{{ r }} = vec4<f32>(0.0);
        {% endfor %}
        {% if kv == "q8" %}
        {% for j in range(4) %}
        var d{{ j }} = 0.0;
        {% endfor %}
        {% endif %}
        {% for s in range(slots if subgroup else 1) %}
        for (var unit = {{ 8 * s }}u; unit < {{ [8 * s + 8, units]|min if subgroup else units }}u; unit++) {
            let k_unit = unit * {{ page_tokens * vectors }}u;
            {% if kv == "q8" %}
            if (unit % 4u == 0u) {
                {% for j in range(4) %}
                let d_at{{ j }} = unit / 4u * {{ page_tokens }}u + k_at{{ j }} - k_page;
                d{{ j }} = scale_of(k_pages[k_page + {{ units * page_tokens }}u + d_at{{ j }} / 2u], d_at{{ j }});
                {% endfor %}
            }
            {% endif %}
            {% for j in range(4) %}
            {% if kv == "q8" %}
            let k{{ j }} = two_words(k_pages[k_at{{ j }} + k_unit]);
            let k{{ j }}_0 = bytes(k{{ j }}.x) * d{{ j }};
            let k{{ j }}_1 = bytes(k{{ j }}.y) * d{{ j }};
            {% elif kv == "f32" %}
            let k{{ j }}_0 = bitcast<vec4<f32>>({{ load("k_pages[k_at" ~ j ~ " + k_unit]") }});
            let k{{ j }}_1 = bitcast<vec4<f32>>({{ load("k_pages[k_at" ~ j ~ " + k_unit + 1u]") }});
            {% else %}
            let k{{ j }} = {{ load("k_pages[k_at" ~ j ~ " + k_unit]") }};
            let k{{ j }}_0 = vec4<f32>(unpack2x16float(k{{ j }}.x), unpack2x16float(k{{ j }}.y));
            let k{{ j }}_1 = vec4<f32>(unpack2x16float(k{{ j }}.z), unpack2x16float(k{{ j }}.w));
            {% endif %}
            {% endfor %}
            {% for d in range(8) %}
            {% set at = "_" ~ d // 4 ~ "." ~ xyzw[d % 4] %}
            let key{{ d }} = vec4<f32>(k0{{ at }}, k1{{ at }}, k2{{ at }}, k3{{ at }});
            {% endfor %}
            {% if subgroup %}
            {% for r in range(own) %}
            {% for half in range(2) %}
            let x{{ r }}_{{ half }} = subgroupShuffle(q{{ r }}_{{ 2 * s + half }}, from_lane + unit{{ "" if s == 0 else " - " ~ 8 * s ~ "u" }});
            {% for d in range(4) %}
            s{{ r }} = fma(vec4<f32>(x{{ r }}_{{ half }}.{{ xyzw[d] }}), key{{ 4 * half + d }}, s{{ r }});
            {% endfor %}
            {% endfor %}
            {% endfor %}
            {% else %}
            let q_at = (unit * {{ 8 * clusters }}u + cluster) * {{ pieces }}u;
            {% for piece in range(pieces) %}
            {% for d in range(8) %}
            let x{{ piece }}_{{ d }} = q_shared[q_at + {{ d * clusters * pieces + piece }}u];
            {% for r in range(width * piece, [width * piece + width, own]|min) %}
            s{{ r }} = fma(vec4<f32>(x{{ piece }}_{{ d }}{{ "" if width == 1 else "." ~ xyzw[r % width] }}), key{{ d }}, s{{ r }});
            {% endfor %}
            {% endfor %}
            {% endfor %}
            {% endif %}
        }
        {% endfor %}

        // Row maxima, in any order: max is exact.
        let key = vec4<u32>(start + 4u * lane) + vec4<u32>(0u, 1u, 2u, 3u);
        {% for r in range(own) %}
        s{{ r }} = s{{ r }} * params.scale;
        {% if capped %}
        s{{ r }} = params.softcap * tanh(clamp(s{{ r }} / params.softcap, vec4<f32>(-{{ tanh_max }}), vec4<f32>({{ tanh_max }})));
        {% endif %}
        let sees{{ r }} = key - vec4<u32>(low{{ r }}) < vec4<u32>(seen{{ r }});
        s{{ r }} = select(vec4<f32>({{ masked }}), s{{ r }}, sees{{ r }});
        var top{{ r }} = max(max(s{{ r }}.x, s{{ r }}.y), max(s{{ r }}.z, s{{ r }}.w));
        {% if subgroup %}
        {% for step in [1, 2, 4] %}
        top{{ r }} = max(top{{ r }}, subgroupShuffleXor(top{{ r }}, {{ step }}u));
        {% endfor %}
        {% endif %}
        {% endfor %}
        {% if not subgroup %}
        {% for piece in range(pieces) %}
        top_shared[(lane * {{ clusters }}u + cluster) * {{ pieces }}u + {{ piece }}u] = {{ "f32" if width == 1 else "vec" ~ width ~ "<f32>" }}(
            {%- for r in range(width * piece, width * piece + width) %}{{ "top" ~ r if r < own else masked }}{{ "" if loop.last else ", " }}{% endfor %});
        {% endfor %}
        workgroupBarrier();
        {% for piece in range(pieces) %}
        var tops{{ piece }} = top_shared[cluster * {{ pieces }}u + {{ piece }}u];
        for (var other = 1u; other < 8u; other++) {
            tops{{ piece }} = max(tops{{ piece }}, top_shared[(other * {{ clusters }}u + cluster) * {{ pieces }}u + {{ piece }}u]);
        }
        {% for r in range(width * piece, [width * piece + width, own]|min) %}
        top{{ r }} = tops{{ piece }}{{ "" if width == 1 else "." ~ xyzw[r % width] }};
        {% endfor %}
        {% endfor %}
        {% endif %}

        // p, and the state scaled to the new maximum.
        {% for r in range(own) %}
        let m_next{{ r }} = max(m{{ r }}, top{{ r }});
        let alpha{{ r }} = exp(m{{ r }} - m_next{{ r }});
        m{{ r }} = m_next{{ r }};
        let p{{ r }} = select(vec4<f32>(0.0), exp(s{{ r }} - m_next{{ r }}), sees{{ r }});
        l{{ r }} = l{{ r }} * alpha{{ r }};
        {% for o in range(2 * slots) %}
        o{{ r }}_{{ o }} = o{{ r }}_{{ o }} * alpha{{ r }};
        {% endfor %}
        {% endfor %}
        {% if not subgroup %}
        {% for j in range(4) %}
        {% for piece in range(pieces) %}
        p_shared[((4u * lane + {{ j }}u) * {{ clusters }}u + cluster) * {{ pieces }}u + {{ piece }}u] = {{ "f32" if width == 1 else "vec" ~ width ~ "<f32>" }}(
            {%- for r in range(width * piece, width * piece + width) %}{{ "p" ~ r ~ "." ~ xyzw[j] if r < own else "0.0" }}{{ "" if loop.last else ", " }}{% endfor %});
        {% endfor %}
        {% endfor %}
        workgroupBarrier();
        {% endif %}

        // p and p*v, key by key, four keys a turn.
        for (var quad = 0u; 4u * quad <= end; quad++) {
            let v_page = select(page0, page1, 4u * quad >= {{ page_tokens }}u) * {{ page_vectors // vectors }}u;
            {% for j in range(4) %}
            let v_at{{ j }} = v_page + min(4u * quad + {{ j }}u, end) % {{ page_tokens }}u * {{ units }}u;
            {% endfor %}
            {% for s in range(slots) %}
            {% for j in range(4) %}
            {% set name = "v" ~ s ~ "_" ~ j %}
            {% if kv == "q8" %}
            let {{ name }} = two_words(v_pages[v_at{{ j }} + unit{{ s }}]);
            let {{ name }}_at = min(4u * quad + {{ j }}u, end) % {{ page_tokens }}u * {{ scales }}u + unit{{ s }} / 4u;
            let {{ name }}_d = scale_of(v_pages[v_page + {{ units * page_tokens }}u + {{ name }}_at / 2u], {{ name }}_at);
            let {{ name }}_0 = bytes({{ name }}.x) * {{ name }}_d;
            let {{ name }}_1 = bytes({{ name }}.y) * {{ name }}_d;
            {% elif kv == "f32" %}
            let {{ name }}_0 = bitcast<vec4<f32>>({{ load("v_pages[2u * (v_at" ~ j ~ " + unit" ~ s ~ ")]") }});
            let {{ name }}_1 = bitcast<vec4<f32>>({{ load("v_pages[2u * (v_at" ~ j ~ " + unit" ~ s ~ ") + 1u]") }});
            {% else %}
            let {{ name }} = {{ load("v_pages[v_at" ~ j ~ " + unit" ~ s ~ "]") }};
            let {{ name }}_0 = vec4<f32>(unpack2x16float({{ name }}.x), unpack2x16float({{ name }}.y));
            let {{ name }}_1 = vec4<f32>(unpack2x16float({{ name }}.z), unpack2x16float({{ name }}.w));
            {% endif %}
            {% endfor %}
            {% endfor %}
            {% if not subgroup %}
            let p_at = (quad * {{ 4 * clusters }}u + cluster) * {{ pieces }}u;
            {% endif %}
            {% for piece in range(pieces) %}
            {% if not subgroup %}
            {% for j in range(4) %}
            let w{{ piece }}_{{ j }} = p_shared[p_at + {{ j * clusters * pieces + piece }}u];
            {% endfor %}
            {% endif %}
            {% for r in range(width * piece, [width * piece + width, own]|min) %}
            {% if subgroup %}
            let w{{ r }} = subgroupShuffle(p{{ r }}, from_lane + quad);
            {% endif %}
            {% for j in range(4) %}
            {% set w = "w" ~ r ~ "." ~ xyzw[j] if subgroup else "w" ~ piece ~ "_" ~ j ~ ("" if width == 1 else "." ~ xyzw[r % width]) %}
            l{{ r }} = l{{ r }} + {{ w }};
            {% for o in range(2 * slots) %}
            o{{ r }}_{{ o }} = fma(vec4<f32>({{ w }}), v{{ o // 2 }}_{{ j }}_{{ o % 2 }}, o{{ r }}_{{ o }});
            {% endfor %}
            {% endfor %}
            {% endfor %}
            {% endfor %}
        }
    }
