// sample_count: counts[scratch(job), id] = how often id was generated, and the highest bit where the prompt holds it
//
// jobs [jobs]; history [slots, context] u32; counts [penalised rows, dim] u32, all 0 before, left so by sample_penalise
// One workgroup of {{ lanes }} owns {{ chunk }} tokens of one job's history. Integer atomics, so the order does not matter. Base limits only.
{% include "shared/sample" %}

@group(0) @binding(0) var<uniform> params: Params;
// [jobs]
@group(0) @binding(1) var<storage, read> jobs: array<Job>;
// [slots, context]
@group(0) @binding(2) var<storage, read> history: array<u32>;
// [penalised rows, dim]
@group(0) @binding(3) var<storage, read_write> counts: array<atomic<u32>>;

@compute @workgroup_size({{ lanes }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let index = group.y * params.grid_x + group.x;
    if (index >= params.workgroups) {
        return;
    }
    let job = params.first_job + index / params.history_chunks;
    let chunk = index % params.history_chunks;
    let flags = jobs[job].flags;
    if ((flags & PENALISED) == 0u) {
        return;
    }
    let prompt_tokens = jobs[job].prompt_tokens;
    let base = jobs[job].slot * params.context;
    let to = jobs[job].scratch * params.dim;
    let end = min(chunk * CHUNK + CHUNK, jobs[job].position);
    for (var i = chunk * CHUNK + lane; i < end; i += {{ lanes }}u) {
        let generated = i >= prompt_tokens;
        if (generated || (flags & REPETITION) != 0u) {
            let id = history[base + i];
            if (id < params.dim) {
                if (generated) {
                    atomicAdd(&counts[to + id], 1u);
                } else {
                    atomicOr(&counts[to + id], 0x80000000u);
                }
            }
        }
    }
}
