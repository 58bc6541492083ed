// sample_scan: partials[job, chunk].top = key and id of the largest logit of a chunk of the job's row, the lowest id on ties
//
// logits [rows, stride] f32 bits; jobs [jobs]; partials [jobs, chunks, {{ partial_words }}] u32
// One workgroup of {{ lanes }} owns one (job, chunk of {{ chunk }} logits). Reads 4 bytes a logit. Base limits only.
{% include "shared/sample" %}

@group(0) @binding(0) var<uniform> params: Params;
// [rows, stride]; as bits, because WGSL lets a compiler assume that no float is NaN
@group(0) @binding(1) var<storage, read> logits: array<u32>;
// [jobs]
@group(0) @binding(2) var<storage, read> jobs: array<Job>;
// [jobs, chunks, {{ partial_words }}]
@group(0) @binding(3) var<storage, read_write> partials: array<u32>;

var<workgroup> chunk_key: atomic<u32>;
var<workgroup> chunk_id: atomic<u32>;

@compute @workgroup_size({{ lanes }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let index = group.y * params.grid_x + group.x;
    if (index >= params.workgroups) {
        return;
    }
    let job = params.first_job + index / params.chunks;
    let chunk = index % params.chunks;
    if (jobs[job].scan != job) {
        return; // another job scans the same row
    }
    if (lane == 0u) {
        atomicStore(&chunk_key, 0u);
        atomicStore(&chunk_id, NONE);
    }
    let base = jobs[job].row * params.stride;
    let end = min(chunk * CHUNK + CHUNK, params.dim);
    var best_key = 0u;
    var best_id = NONE;
    for (var i = chunk * CHUNK + lane; i < end; i += {{ lanes * unroll }}u) {
{% for k in range(unroll) %}
        // Past the end the last logit comes again, and changes nothing.
        let id{{ k }} = min(i + {{ k * lanes }}u, end - 1u);
        let key{{ k }} = key_from_bits(logits[base + id{{ k }}]);
        best_id = select(best_id, id{{ k }}, key{{ k }} > best_key);
        best_key = max(best_key, key{{ k }});
{% endfor %}
    }
    workgroupBarrier();
    if (best_key != 0u) {
        atomicMax(&chunk_key, best_key);
    }
    workgroupBarrier();
    if (best_key != 0u && best_key == atomicLoad(&chunk_key)) {
        atomicMin(&chunk_id, best_id);
    }
    workgroupBarrier();
    if (lane == 0u) {
        let at = (job * params.chunks + chunk) * PARTIAL_WORDS + TOP_AT;
        partials[at] = atomicLoad(&chunk_key);
        partials[at + 1u] = atomicLoad(&chunk_id);
    }
}
