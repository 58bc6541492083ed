// sample_choose: records[record(job)] = the id that a row yields, or what its logprobs need; history[slot, position] = the id
//
//   greedy  the top id                       sampled  the first id, ascending, at which the masses kept so far pass a random share of theirs
//   raw     top logit, total mass, and, in falling order, the top_k largest logits
//
// logits [rows, stride] f32 bits; jobs [jobs]; partials [jobs, chunks, {{ partial_words }}] u32; lists [lists, {{ list_items }}] (key, id); heads [lists] u32
// records [rows, record_words] u32: id, logit, top logit, total low, total high, entries, -, -, (id, logit) of each entry
// history [slots, context] u32
// One workgroup of {{ lanes }} owns one job. Cuts are found by halving the interval of keys (then of ids, among equal keys), each time
// with an exact sum over the list; a list that ran over is replaced by the whole row. Base limits only.
{% include "shared/sample" %}

@group(0) @binding(0) var<uniform> params: Params;
// [rows, stride]
@group(0) @binding(1) var<storage, read> logits: array<u32>;
// [jobs]
@group(0) @binding(2) var<storage, read> jobs: array<Job>;
// [jobs, chunks, {{ partial_words }}]
@group(0) @binding(3) var<storage, read> partials: array<u32>;
// [lists, {{ list_items }}]
@group(0) @binding(4) var<storage, read> lists: array<vec2<u32>>;
// [lists]
@group(0) @binding(5) var<storage, read> heads: array<u32>;
// [rows, record_words]
@group(0) @binding(6) var<storage, read_write> records: array<u32>;
// [slots, context]
@group(0) @binding(7) var<storage, read_write> history: array<u32>;
{% include "shared/sample_top" %}

const NOT_FINITE = 0xffffffffu;

var<workgroup> parts: array<vec4<u32>, {{ lanes }}>;
var<workgroup> eighths: array<vec4<u32>, 8>;
var<workgroup> answer: vec4<u32>;
var<workgroup> tops: array<vec2<u32>, {{ tops }}>;
var<workgroup> tops_end: atomic<u32>;

// What the job's items are.
var<private> base: u32;
var<private> whole_row: bool;
var<private> first_item: u32;
var<private> items: u32;
var<private> top_value: f32;
var<private> scale: f32;
var<private> min_p: u32;
// Kept are keys above cut_key, and those equal to it with an id up to cut_id.
var<private> cut_key: u32;
var<private> cut_id: u32;

// Sums of x, of yz as 64 bits, and the least w, of all lanes; the same for all.
fn reduce(lane: u32, part: vec4<u32>) -> vec4<u32> {
    parts[lane] = part;
    workgroupBarrier();
    if (lane < 8u) {
        var sum = parts[lane * {{ lanes // 8 }}u];
        for (var i = 1u; i < {{ lanes // 8 }}u; i++) {
            let other = parts[lane * {{ lanes // 8 }}u + i];
            sum = vec4<u32>(sum.x + other.x, add64(sum.yz, other.yz), min(sum.w, other.w));
        }
        eighths[lane] = sum;
    }
    workgroupBarrier();
    if (lane == 0u) {
        var sum = eighths[0];
        for (var i = 1u; i < 8u; i++) {
            let other = eighths[i];
            sum = vec4<u32>(sum.x + other.x, add64(sum.yz, other.yz), min(sum.w, other.w));
        }
        answer = sum;
    }
    return workgroupUniformLoad(&answer);
}

// First lane at which the masses so far pass `left` (x), what is then left (yz), whether there is one (w); the same for all.
fn walk(lane: u32, mass: vec2<u32>, left: vec2<u32>) -> vec4<u32> {
    parts[lane] = vec4<u32>(mass, 0u, 0u);
    workgroupBarrier();
    if (lane == 0u) {
        var at = 0u;
        var rest = left;
        for (; at < {{ lanes }}u; at++) {
            let next = parts[at].xy;
            if (less64(rest, next)) {
                break;
            }
            rest = vec2<u32>(rest.x - next.x, rest.y - next.y - select(0u, 1u, rest.x < next.x));
        }
        answer = vec4<u32>(at, rest, select(0u, 1u, at < {{ lanes }}u));
    }
    return workgroupUniformLoad(&answer);
}

fn is_kept(item: vec2<u32>) -> bool {
    return (item.x > cut_key) | ((item.x == cut_key) & (item.y <= cut_id));
}

// Adds an item to count, sum and least if it is one of those that measure() is asked for.
{% macro add_item(valid) %}
            let far = distance(top_value, bitcast<f32>(bits_from_key(item.x)), scale, zero);
            // No short cuts: they would be branches, dear to compile and to run.
            let take = {{ valid }}(far <= min_p) & (item.x >= low) & (item.x <= high) & (item.y <= id_max) & is_kept(item);
            count += select(0u, 1u, take);
            sum = add64(sum, vec2<u32>(select(0u, mass_of(far, zero), take), 0u));
            least = min(least, select(NONE, item.x, take));
{%- endmacro %}
// Count, mass and least key of the kept items with keys in low ..= high and ids up to id_max; the same for all lanes.
// Called from one place, or drivers would compile it many times. A row is taken {{ row_unroll }} logits a turn: lavapipe
// ends all loops of an invocation after 65,536 turns together.
fn measure(lane: u32, low: u32, high: u32, id_max: u32) -> vec4<u32> {
    let zero = params.zero;
    var count = 0u;
    var sum = vec2<u32>(0u);
    var least = NONE;
    if (whole_row) {
        for (var i = lane; i < items; i += {{ lanes * row_unroll }}u) {
{% for k in range(row_unroll) %}
            {
            let id = i + {{ k * lanes }}u;
            let item = vec2<u32>(key_from_bits(logits[base + min(id, items - 1u)]), id);
{{ add_item("(id < items) & ") }}
            }
{% endfor %}
        }
    } else {
        for (var i = lane; i < items; i += {{ lanes }}u) {
            let item = lists[first_item + i];
{{ add_item("") }}
        }
    }
    return reduce(lane, vec4<u32>(count, sum, least));
}

// 64 random bits of (seed; position, choice): Philox 4x32, 10 rounds.
fn random(seed_low: u32, seed_high: u32, position: u32, choice: u32) -> vec2<u32> {
    var c = vec4<u32>(position, choice, 0u, 0u);
    var k = vec2<u32>(seed_low, seed_high);
    for (var i = 0u; i < 10u; i++) {
        let a = wide(0xd2511f53u, c.x);
        let b = wide(0xcd9e8d57u, c.z);
        c = vec4<u32>(b.y ^ c.y ^ k.x, b.x, a.y ^ c.w ^ k.y, a.x);
        k += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
    }
    return c.xy;
}

// total * bits / 2^64: at least 0, below total.
fn below(total: vec2<u32>, bits: vec2<u32>) -> vec2<u32> {
    let hh = wide(total.y, bits.y);
    let hl = wide(total.y, bits.x);
    let lh = wide(total.x, bits.y);
    var low = vec2<u32>(wide(total.x, bits.x).y, 0u);
    low = add64(low, vec2<u32>(hl.x, 0u));
    low = add64(low, vec2<u32>(lh.x, 0u));
    let high = add64(vec2<u32>(hl.y, 0u), vec2<u32>(lh.y, 0u));
    return add64(add64(hh, high), vec2<u32>(low.y, 0u));
}

fn emit(job: u32, id: u32) {
    let at = jobs[job].record * params.record_words;
    let finite = id != NOT_FINITE;
    records[at] = id;
    records[at + 1u] = logits[jobs[job].source * params.stride + select(0u, id, finite)];
    let position = jobs[job].position;
    if (position < params.context) {
        history[jobs[job].slot * params.context + position] = select(0u, id, finite);
    }
}

// Chunk of the row in which the masses before it and in it pass `left` (x), and what is then left (yz).
fn find_chunk(job: u32, lane: u32, left: vec2<u32>) -> vec4<u32> {
    var found = vec4<u32>(0u, left, 0u);
    for (var at = 0u; at < params.chunks; at += {{ lanes }}u) {
        var mass = vec2<u32>(0u);
        if (at + lane < params.chunks) {
            let total_at = (job * params.chunks + at + lane) * PARTIAL_WORDS + TOTAL_AT;
            mass = vec2<u32>(partials[total_at], partials[total_at + 1u]);
        }
        found = walk(lane, mass, found.yz);
        if (found.w != 0u) {
            found.x += at;
            break;
        }
    }
    return found;
}

// The id from `start` on, of `length`, at which the masses of what is kept pass `left`.
fn find_id(lane: u32, start: u32, length: u32, left: vec2<u32>) -> u32 {
    let zero = params.zero;
    var first = start;
    var count = length;
    var rest = left;
    loop {
        if (count <= 1u) {
            break;
        }
        let part = (count + {{ lanes - 1 }}u) / {{ lanes }}u;
        let own = first + min(lane * part, count);
        let end = first + min(lane * part + part, count);
        var sum = vec2<u32>(0u);
        for (var id = own; id < end; id++) {
            let key = key_from_bits(logits[base + id]);
            let far = distance(top_value, bitcast<f32>(bits_from_key(key)), scale, zero);
            sum = add64(sum, vec2<u32>(select(0u, mass_of(far, zero), (far <= min_p) & is_kept(vec2<u32>(key, id))), 0u));
        }
        let found = walk(lane, sum, rest);
        if (found.w == 0u) {
            break;
        }
        rest = found.yz;
        first += found.x * part;
        count = min(part, count - found.x * part);
    }
    return first;
}

// Cuts the items by top-k, then by top-p, as far as the job asks for, and draws an id (x), or, where the items are the whole
// row, leaves that to find_id: then yz is what the masses before it must not pass.
// One search after another, a measurement a turn: of all items first; then by halving the interval of keys, until it holds
// one item or one key; then, where equal keys straddle the cut, by halving that of ids.
const TOP_K = 0u;
const TOP_P = 1u;
const DRAW = 2u;
const ALL = 0u;
const KEYS = 1u;
const IDS = 2u;

fn search(job: u32, lane: u32, top: u32, total: vec2<u32>, bits: vec2<u32>, goals_end: u32, ran_over: bool) -> vec3<u32> {
    let top_k = jobs[job].top_k;
    let top_p = jobs[job].top_p;
    var goal = select(TOP_K, select(TOP_P, DRAW, top_p == NONE), top_k == NONE);
    var step = ALL;
    // What is measured next: keys and ids.
    var from_key = 0u;
    var to_key = NONE;
    var to_id = NONE;
    // Keys from low on reach what is wanted, those from high on do not. The same for ids up to last, and before first.
    var wanted = vec2<u32>(0u);
    var left = vec2<u32>(0u);
    var low = 0u;
    var low_count = 0u;
    var high = 0u;
    var high_count = 0u;
    var high_sum = vec2<u32>(0u);
    var first = 0u;
    var last = 0u;
    loop {
        if (goal >= goals_end) {
            break;
        }
        let found = measure(lane, from_key, to_key, to_id);
        let sum = select(found.yz, vec2<u32>(found.x, 0u), goal == TOP_K);
        var met = false;
        if (step == ALL) {
            low = found.w;
            low_count = found.x;
            high = top + 1u;
            high_count = 0u;
            high_sum = vec2<u32>(0u);
            first = 0u;
            last = params.dim - 1u;
            step = KEYS;
            if (goal == TOP_K) {
                wanted = vec2<u32>(top_k, 0u);
                met = found.x <= top_k;
            } else if (goal == TOP_P) {
                wanted = share(select(found.yz, total, top_k == NONE), top_p);
            } else {
                left = below(found.yz, bits);
                wanted = add64(left, vec2<u32>(1u, 0u));
                step = IDS;
                if (ran_over) {
                    break;
                }
            }
        } else if (step == KEYS) {
            if (less64(sum, wanted)) {
                high = from_key;
                high_count = found.x;
                high_sum = sum;
            } else {
                low = found.w;
                low_count = found.x;
            }
        } else if (less64(add64(high_sum, sum), wanted)) {
            first = to_id + 1u;
        } else {
            last = to_id;
        }
        if (!met && step == KEYS) {
            let exact = goal == TOP_K && low_count == wanted.x;
            if (exact || low_count - high_count <= 1u) {
                cut_id = select(NONE, cut_id, low == cut_key);
                cut_key = low;
                met = true;
            } else if (high - low <= 1u) {
                step = IDS;
                to_key = low;
            } else {
                from_key = low + (high - low) / 2u;
            }
        }
        if (!met && step == IDS) {
            from_key = select(low, 0u, goal == DRAW);
            to_id = first + (last - first) / 2u;
            if (first >= last) {
                met = true;
                if (goal != DRAW) {
                    cut_key = low;
                    cut_id = first;
                }
            }
        }
        if (met) {
            goal = select(goal + 1u, DRAW, goal == TOP_K && top_p == NONE);
            step = ALL;
            from_key = 0u;
            to_key = NONE;
            to_id = NONE;
        }
    }
    return vec3<u32>(first, left);
}

// Writes the kept items, at most {{ tops }}, in falling order; ties by id.
fn write_tops(lane: u32, at: u32) {
    if (lane == 0u) {
        atomicStore(&tops_end, 0u);
    }
    workgroupBarrier();
    for (var i = lane; i < items; i += {{ lanes }}u) {
        var item = vec2<u32>(0u, i);
        if (whole_row) {
            item.x = key_from_bits(logits[base + i]);
        } else {
            item = lists[first_item + i];
        }
        if (is_kept(item)) {
            let slot = atomicAdd(&tops_end, 1u);
            if (slot < {{ tops }}u) {
                tops[slot] = item;
            }
        }
    }
    workgroupBarrier();
    let count = min(atomicLoad(&tops_end), {{ tops }}u);
    if (lane < count) {
        let own = tops[lane];
        var rank = 0u;
        for (var i = 0u; i < count; i++) {
            let other = tops[i];
            rank += select(0u, 1u, other.x > own.x || (other.x == own.x && other.y < own.y));
        }
        records[at + 8u + 2u * rank] = own.y;
        records[at + 9u + 2u * rank] = bits_from_key(own.x);
    }
    if (lane == 0u) {
        records[at + 5u] = count;
    }
}

@compute @workgroup_size({{ lanes }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let index = group.y * params.grid_x + group.x;
    if (index >= params.workgroups) {
        return;
    }
    let job = params.first_job + index;
    let flags = jobs[job].flags;
    let raw = (flags & RAW) != 0u;
    let at = jobs[job].record * params.record_words;
    let top = top_of(jobs[job].scan, lane);
    if (top.x == NONE) {
        if (lane == 0u && raw) {
            records[at + 5u] = 0u;
        } else if (lane == 0u) {
            emit(job, NOT_FINITE);
        }
        return;
    }
    if ((flags & GREEDY) != 0u) {
        if (lane == 0u) {
            emit(job, top.y);
        }
        return;
    }
    var own = vec2<u32>(0u);
    for (var chunk = lane; chunk < params.chunks; chunk += {{ lanes }}u) {
        let total_at = (job * params.chunks + chunk) * PARTIAL_WORDS + TOTAL_AT;
        own = add64(own, vec2<u32>(partials[total_at], partials[total_at + 1u]));
    }
    let total = reduce(lane, vec4<u32>(0u, own, 0u)).yz;
    base = jobs[job].row * params.stride;
    top_value = bitcast<f32>(bits_from_key(top.x));
    scale = jobs[job].scale;
    min_p = jobs[job].min_p;
    cut_key = 0u;
    cut_id = NONE;
    if (raw && lane == 0u) {
        records[at + 2u] = bits_from_key(top.x);
        records[at + 3u] = total.x;
        records[at + 4u] = total.y;
        records[at + 5u] = 0u;
    }
    let bits = random(jobs[job].seed_low, jobs[job].seed_high, jobs[job].position, jobs[job].choice);
    if ((flags & LIST) == 0u) {
        if (!raw) {
            let chunk = find_chunk(job, lane, below(total, bits));
            let start = chunk.x * CHUNK;
            let id = find_id(lane, start, min(CHUNK, params.dim - start), chunk.yz);
            if (lane == 0u) {
                emit(job, id);
            }
        }
        return;
    }
    let listed = heads[jobs[job].list];
    let ran_over = listed > {{ list_items }}u;
    whole_row = ran_over;
    items = select(listed, params.dim, ran_over);
    first_item = jobs[job].list * {{ list_items }}u;
    let found = search(job, lane, top.x, total, bits, select(DRAW + 1u, TOP_P, raw), ran_over);
    if (raw) {
        write_tops(lane, at);
        return;
    }
    var id = found.x;
    if (ran_over) {
        id = find_id(lane, 0u, params.dim, found.yz);
    }
    if (lane == 0u) {
        emit(job, id);
    }
}
