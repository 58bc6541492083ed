// Largest key of a job's row and the lowest id that has it, from the chunks' own; the same for all lanes.
var<workgroup> top_key: atomic<u32>;
var<workgroup> top_id: atomic<u32>;
var<workgroup> top_both: vec2<u32>;

fn top_of(job: u32, lane: u32) -> vec2<u32> {
    if (lane == 0u) {
        atomicStore(&top_key, 0u);
        atomicStore(&top_id, NONE);
    }
    var key = 0u;
    var id = NONE;
    for (var chunk = lane; chunk < params.chunks; chunk += {{ lanes }}u) {
        let at = (job * params.chunks + chunk) * PARTIAL_WORDS + TOP_AT;
        let found = partials[at];
        if (found > key) {
            key = found;
            id = partials[at + 1u];
        }
    }
    workgroupBarrier();
    if (key != 0u) {
        atomicMax(&top_key, key);
    }
    workgroupBarrier();
    if (key != 0u && key == atomicLoad(&top_key)) {
        atomicMin(&top_id, id);
    }
    workgroupBarrier();
    if (lane == 0u) {
        top_both = vec2<u32>(atomicLoad(&top_key), atomicLoad(&top_id));
    }
    return workgroupUniformLoad(&top_both);
}
