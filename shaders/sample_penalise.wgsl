// sample_penalise: logits[row(job)] = logits[source(job)] with penalties and bias:
//
//   y = x / repetition (x > 0) or x * repetition, where id was seen; y -= frequency * count; y -= presence (count > 0); y += bias
//
// logits [rows, stride] f32 bits; jobs [jobs]; counts [penalised rows, dim] u32, left 0; bias [entries] (id, f32 bits), ids of a job differ
// One workgroup of {{ lanes }} owns one (job, chunk of {{ chunk }} logits). Reads 8 bytes a logit, writes 4. Base limits only.
{% include "shared/sample" %}

@group(0) @binding(0) var<uniform> params: Params;
// [rows, stride]
@group(0) @binding(1) var<storage, read_write> logits: array<u32>;
// [jobs]
@group(0) @binding(2) var<storage, read> jobs: array<Job>;
// [penalised rows, dim]
@group(0) @binding(3) var<storage, read_write> counts: array<u32>;
// [entries]
@group(0) @binding(4) var<storage, read> bias: array<vec2<u32>>;

@compute @workgroup_size({{ lanes }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let index = group.y * params.grid_x + group.x;
    if (index >= params.workgroups) {
        return;
    }
    let job = params.first_job + index / params.chunks;
    let chunk = index % params.chunks;
    if ((jobs[job].flags & PENALISED) == 0u) {
        return;
    }
    let zero = params.zero;
    let source_at = jobs[job].source * params.stride;
    let to = jobs[job].row * params.stride;
    let seen_at = jobs[job].scratch * params.dim;
    let end = min(chunk * CHUNK + CHUNK, params.dim);
    for (var i = chunk * CHUNK + lane; i < end; i += {{ lanes }}u) {
        var bits = logits[source_at + i];
        let seen = counts[seen_at + i];
        if (seen != 0u) {
            counts[seen_at + i] = 0u;
            let x = bitcast<f32>(bits);
            let factor = select(jobs[job].repetition, jobs[job].repetition_inverse, x > 0.0);
            var y = rounded(x * factor, zero);
            let count = seen & 0x7fffffffu;
            if (count != 0u) {
                y = rounded(y - rounded(f32(i32(count)) * jobs[job].frequency, zero), zero);
                y = rounded(y - jobs[job].presence, zero);
            }
            // What is not finite stays what it was.
            bits = select(bitcast<u32>(y), bits, (bits & 0x7f800000u) == 0x7f800000u);
        }
        logits[to + i] = bits;
    }
    storageBarrier();
    workgroupBarrier();
    let last = jobs[job].bias_start + jobs[job].bias_count;
    for (var entry = jobs[job].bias_start + lane; entry < last; entry += {{ lanes }}u) {
        let id = bias[entry].x;
        if (id >= chunk * CHUNK && id < end) {
            let bits = logits[to + id];
            let y = rounded(bitcast<f32>(bits) + bitcast<f32>(bias[entry].y), zero);
            logits[to + id] = select(bitcast<u32>(y), bits, (bits & 0x7f800000u) == 0x7f800000u);
        }
    }
}
