// sample_mass: partials[job, chunk] = mass of the chunk's logits that min-p keeps, 2^31 being the largest logit's, and, for jobs
// that need a list, how many of them and what mass / 2^13 lies within each of {{ bands | length }} distances from the top
//
// logits [rows, stride] f32 bits; jobs [jobs]; partials [jobs, chunks, {{ partial_words }}] u32; heads [lists] u32, set to 0
// One workgroup of {{ lanes }} owns one (job, chunk of {{ chunk }} logits). Reads 4 bytes a logit. Base limits only.
// Counts and masses of a lane share a word: 64 logits of at most 2^18 are 2^24, times 2^7, plus a count of at most 64.
{% include "shared/sample" %}

@group(0) @binding(0) var<uniform> params: Params;
// [rows, stride]
@group(0) @binding(1) var<storage, read> logits: array<u32>;
// [jobs]
@group(0) @binding(2) var<storage, read> jobs: array<Job>;
// [jobs, chunks, {{ partial_words }}]; this job's tops are there
@group(0) @binding(3) var<storage, read_write> partials: array<u32>;
// [lists]
@group(0) @binding(4) var<storage, read_write> heads: array<u32>;
{% include "shared/sample_top" %}

// [bands and the two halves of the total, lane]
var<workgroup> sums: array<u32, {{ (bands | length + 2) * lanes }}>;

@compute @workgroup_size({{ lanes }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let index = group.y * params.grid_x + group.x;
    if (index >= params.workgroups) {
        return;
    }
    let job = params.first_job + index / params.chunks;
    let chunk = index % params.chunks;
    let flags = jobs[job].flags;
    if ((flags & GREEDY) != 0u) {
        return;
    }
    let top = top_of(jobs[job].scan, lane);
    if (top.x == NONE) {
        return; // not finite: nobody reads masses
    }
    let listed = (flags & LIST) != 0u;
    if (listed && chunk == 0u && lane == 0u) {
        heads[jobs[job].list] = 0u;
    }
    let zero = params.zero;
    let base = jobs[job].row * params.stride;
    let end = min(chunk * CHUNK + CHUNK, params.dim);
    let top_value = bitcast<f32>(bits_from_key(top.x));
    let scale = jobs[job].scale;
    let min_p = jobs[job].min_p;
    var low = 0u;
    var high = 0u;
{% for band in bands %}
    var band{{ loop.index0 }} = 0u;
{% endfor %}
    if (listed) {
        for (var i = chunk * CHUNK + lane; i < end; i += {{ lanes }}u) {
            let far = distance(top_value, bitcast<f32>(logits[base + i]), scale, zero);
            let inside = far <= min_p;
            let mass = select(0u, mass_of(far, zero), inside);
            low += mass;
            high += select(0u, 1u, low < mass);
            let packed = select(0u, ((mass >> 13u) << 7u) | 1u, inside);
{% for band in bands %}
            band{{ loop.index0 }} += select(0u, packed, far <= {{ band }}u);
{% endfor %}
        }
    } else {
        for (var i = chunk * CHUNK + lane; i < end; i += {{ lanes * unroll }}u) {
{% for k in range(unroll) %}
            let id{{ k }} = i + {{ k * lanes }}u;
            let far{{ k }} = distance(top_value, bitcast<f32>(logits[base + min(id{{ k }}, end - 1u)]), scale, zero);
            let mass{{ k }} = select(0u, mass_of(far{{ k }}, zero), (far{{ k }} <= min_p) & (id{{ k }} < end));
            low += mass{{ k }};
            high += select(0u, 1u, low < mass{{ k }});
{% endfor %}
        }
    }
{% for band in bands %}
    sums[{{ loop.index0 * lanes }}u + lane] = band{{ loop.index0 }};
{% endfor %}
    sums[{{ (bands | length) * lanes }}u + lane] = low;
    sums[{{ (bands | length + 1) * lanes }}u + lane] = high;
    workgroupBarrier();
    let at = (job * params.chunks + chunk) * PARTIAL_WORDS;
    if (lane < {{ bands | length }}u) {
        var count = 0u;
        var mass = 0u;
        for (var other = 0u; other < {{ lanes }}u; other++) {
            let packed = sums[lane * {{ lanes }}u + other];
            count += packed & 127u;
            mass += packed >> 7u;
        }
        partials[at + lane] = count;
        partials[at + MASSES_AT + lane] = mass;
    } else if (lane == {{ bands | length }}u) {
        var total = vec2<u32>(0u);
        for (var other = 0u; other < {{ lanes }}u; other++) {
            let part = vec2<u32>(sums[{{ (bands | length) * lanes }}u + other], sums[{{ (bands | length + 1) * lanes }}u + other]);
            total = add64(total, part);
        }
        partials[at + TOTAL_AT] = total.x;
        partials[at + TOTAL_AT + 1u] = total.y;
    }
}
