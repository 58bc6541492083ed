// sample_gather: lists[list, ..heads[list]] = key and id of every logit that top-k or top-p may keep, in no order
//
// logits [rows, stride] f32 bits; jobs [jobs]; partials [jobs, chunks, {{ partial_words }}] u32; lists [lists, {{ list_items }}] (key, id); heads [lists] u32
// One workgroup of {{ lanes }} owns one (job, chunk of {{ chunk }} logits). Reads 4 bytes a logit. The narrowest band that surely
// holds all that will be kept is taken whole; heads counts also what finds no room in the list. Base limits only.
{% include "shared/sample" %}

@group(0) @binding(0) var<uniform> params: Params;
// [rows, stride]
@group(0) @binding(1) var<storage, read> logits: array<u32>;
// [jobs]
@group(0) @binding(2) var<storage, read> jobs: array<Job>;
// [jobs, chunks, {{ partial_words }}]
@group(0) @binding(3) var<storage, read> partials: array<u32>;
// [lists, {{ list_items }}]
@group(0) @binding(4) var<storage, read_write> lists: array<vec2<u32>>;
// [lists]
@group(0) @binding(5) var<storage, read_write> heads: array<atomic<u32>>;
{% include "shared/sample_top" %}

// [band] count, mass low, mass high; last the total
var<workgroup> bands: array<vec3<u32>, {{ bands | length + 1 }}>;
var<workgroup> limit: u32;

@compute @workgroup_size({{ lanes }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let index = group.y * params.grid_x + group.x;
    if (index >= params.workgroups) {
        return;
    }
    let job = params.first_job + index / params.chunks;
    let chunk = index % params.chunks;
    if ((jobs[job].flags & LIST) == 0u) {
        return;
    }
    let top = top_of(jobs[job].scan, lane);
    if (top.x == NONE) {
        return;
    }
    if (lane <= {{ bands | length }}u) {
        let whole = lane == {{ bands | length }}u;
        let first = select(lane, TOTAL_AT, whole);
        let second = select(lane + MASSES_AT, TOTAL_AT + 1u, whole);
        var count = 0u;
        var mass = vec2<u32>(0u);
        for (var other = 0u; other < params.chunks; other++) {
            let at = (job * params.chunks + other) * PARTIAL_WORDS;
            let a = partials[at + first];
            let b = partials[at + second];
            count += a;
            mass = add64(mass, select(vec2<u32>(b, 0u), vec2<u32>(a, b), whole));
        }
        bands[lane] = vec3<u32>(count, mass);
    }
    workgroupBarrier();
    let top_k = jobs[job].top_k;
    if (lane == 0u) {
        // Masses of bands are rounded down, so what reaches the target here surely does.
        let target_mass = share(bands[{{ bands | length }}].yz, jobs[job].top_p);
        let needed = add64(vec2<u32>((target_mass.x >> 13u) | (target_mass.y << 19u), target_mass.y >> 13u), vec2<u32>(1u, 0u));
        var found = NONE;
{% for band in bands | reverse %}
        if (select(!less64(bands[{{ loop.revindex0 }}].yz, needed), bands[{{ loop.revindex0 }}].x >= top_k, top_k != NONE)) {
            found = {{ band }}u;
        }
{% endfor %}
        limit = found;
    }
    workgroupBarrier();
    let zero = params.zero;
    let base = jobs[job].row * params.stride;
    let end = min(chunk * CHUNK + CHUNK, params.dim);
    let top_value = bitcast<f32>(bits_from_key(top.x));
    let scale = jobs[job].scale;
    let most = min(limit, jobs[job].min_p);
    let list = jobs[job].list;
    for (var i = chunk * CHUNK + lane; i < end; i += {{ lanes }}u) {
        let bits = logits[base + i];
        if (distance(top_value, bitcast<f32>(bits), scale, zero) <= most) {
            let at = atomicAdd(&heads[list], 1u);
            if (at < {{ list_items }}u) {
                lists[list * {{ list_items }}u + at] = vec2<u32>(key_from_bits(bits), i);
            }
        }
    }
}
