    // {{ "job = ((tile, kv head), chunk), split" if decode else "job = (tile, kv head), chunk" }}
    let index = group_id.y * params.grid_x + group_id.x;
    if (index >= params.workgroups) {
        return;
    }
    {% if decode %}
    let chunked = index / params.splits;
    let split = index - chunked * params.splits;
    {% else %}
    let chunked = index;
    {% endif %}
    let headed = chunked / params.chunks;
    let chunk = chunked - headed * params.chunks;
    let tile_at = headed / params.kv_heads;
    let kv_head = headed - tile_at * params.kv_heads;
    let tile = tiles[params.first_tile + tile_at];
    let live = tile.y * params.group;
    let first_row = chunk * {{ rows }}u;
    if (first_row >= live) {
        return;
    }
    // First and last key that any row of the workgroup sees.
    let first = first_seen(tile.w + first_row / params.group);
    let last = tile.w + (min(first_row + {{ rows }}u, live) - 1u) / params.group;
    {% if decode %}
    if (split < first / {{ split_tokens }}u || split > last / {{ split_tokens }}u) {
        return;
    }
    {% endif %}

    let lane = local & 7u;
    let cluster = local >> 3u;
    {% if subgroup %}
    let from_lane = {{ "0u" if clusters == 1 else "subgroup_lane & ~7u" }};
    {% endif %}
    {% for s in range(slots) %}
    // Lanes past the last unit repeat it and store nothing.
    let unit{{ s }} = min(lane + {{ 8 * s }}u, {{ units - 1 }}u);
    {% endfor %}

    // Row r of the cluster: its token and head, keys [low, low + seen), 0 of them where there is no such row; and its query.
    let row0 = first_row + cluster * {{ own }}u;
    let token0 = min(row0, live - 1u) / params.group;
    let head0 = min(row0, live - 1u) - token0 * params.group;
    {% for r in range(own) %}
    {% if r > 0 %}
    let turn{{ r }} = head{{ r - 1 }} + 1u == params.group && row0 + {{ r }}u < live;
    let step{{ r }} = row0 + {{ r }}u < live;
    let head{{ r }} = select(head{{ r - 1 }} + select(0u, 1u, step{{ r }}), 0u, turn{{ r }});
    let token{{ r }} = token{{ r - 1 }} + select(0u, 1u, turn{{ r }});
    {% endif %}
    let low{{ r }} = first_seen(tile.w + token{{ r }});
    let seen{{ r }} = select(0u, tile.w + token{{ r }} + 1u - low{{ r }}, row0 + {{ r }}u < live);
    let q{{ r }} = ((tile.x + token{{ r }}) * params.heads + kv_head * params.group + head{{ r }}) * {{ head_dim // 4 }}u;
    {% for s in range(slots) %}
    let q{{ r }}_{{ 2 * s }} = q[q{{ r }} + 2u * unit{{ s }}];
    let q{{ r }}_{{ 2 * s + 1 }} = q[q{{ r }} + 2u * unit{{ s }} + 1u];
    {% endfor %}
    {% endfor %}
    {% if not subgroup %}
    {% for s in range(slots) %}
    if (lane + {{ 8 * s }}u < {{ units }}u) {
        {% for d in range(8) %}
        {% for piece in range(pieces) %}
        {% set places = range(width * piece, width * piece + width) %}
        q_shared[((unit{{ s }} * 8u + {{ d }}u) * {{ clusters }}u + cluster) * {{ pieces }}u + {{ piece }}u] = {{ "f32" if width == 1 else "vec" ~ width ~ "<f32>" }}(
            {%- for r in places %}{{ "q" ~ r ~ "_" ~ (2 * s + d // 4) ~ "." ~ xyzw[d % 4] if r < own else "0.0" }}{{ "" if loop.last else ", " }}{% endfor %});
        {% endfor %}
        {% endfor %}
    }
    {% endfor %}
    workgroupBarrier();
    {% endif %}
