// What the sampling kernels declare alike. Integers decide everything: a logit's place is a monotone key, its weight an
// integer mass, so sums are exact in any order, and no row depends on how it was cut into chunks or lists.

struct Params {
    first_job: u32,
    job_count: u32,
    chunks: u32,
    dim: u32,
    stride: u32,
    context: u32,
    record_words: u32,
    history_chunks: u32,
    workgroups: u32,
    grid_x: u32,
    // 0, which no compiler knows: see rounded().
    zero: u32,
    pad0: u32,
}

struct Job {
    flags: u32,
    row: u32,
    source: u32,
    scan: u32,
    record: u32,
    list: u32,
    scratch: u32,
    slot: u32,
    position: u32,
    prompt_tokens: u32,
    top_k: u32,
    top_p: u32,
    min_p: u32,
    scale: f32,
    seed_low: u32,
    seed_high: u32,
    choice: u32,
    bias_start: u32,
    bias_count: u32,
    repetition: f32,
    repetition_inverse: f32,
    frequency: f32,
    presence: f32,
    pad0: u32,
}

// Flags of a job.
const GREEDY = 1u;
const RAW = 2u;
const LIST = 4u;
const PENALISED = 8u;
const REPETITION = 16u;

// Logits that a workgroup of {{ lanes }} takes of a row.
const CHUNK = {{ chunk }}u;
// Words that a (job, chunk) leaves behind: {{ bands | length }} counts, {{ bands | length }} masses / 2^13, total low and high, -, -, top key and id, -, -
const PARTIAL_WORDS = {{ partial_words }}u;
const MASSES_AT = {{ bands | length }}u;
const TOTAL_AT = {{ total_at }}u;
const TOP_AT = {{ top_at }}u;
const NONE = 0xffffffffu;

// Keys order as finite floats do; +0 and -0 are equal; NaN and infinity are above all.
fn key_from_bits(stored: u32) -> u32 {
    let bits = select(stored, 0u, stored == 0x80000000u);
    let key = select(bits | 0x80000000u, ~bits, bits >= 0x80000000u);
    return select(key, NONE, (bits & 0x7f800000u) == 0x7f800000u);
}

fn bits_from_key(key: u32) -> u32 {
    return select(~key, key ^ 0x80000000u, key >= 0x80000000u);
}

// The value as it stands: no compiler may join its multiplication with the addition that follows.
fn rounded(x: f32, zero: u32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ zero);
}

// How far x is below the top, in octaves of probability times 2^24.
fn distance(top: f32, x: f32, scale: f32, zero: u32) -> u32 {
    return u32(i32(min(rounded(top - x, zero) * scale, 2147483520.0)));
}

// 2^31 times 2^-(distance / 2^24), rounded; 0 from 32 octaves on.
fn mass_of(distance: u32, zero: u32) -> u32 {
    let octaves = distance >> 24u;
    let u = f32(i32(distance & 0xffffffu)) * 5.9604644775390625e-8;
    var p = {{ exp2[5] }};
{% for k in [4, 3, 2, 1, 0] %}
    p = {{ exp2[k] }} + rounded(p * u, zero);
{% endfor %}
    p = 1.0 + rounded(p * u, zero);
    let whole = u32(i32(p * 1073741824.0)) << 1u;
    let shift = min(octaves, 31u);
    let mass = (whole + ((1u << shift) >> 1u)) >> shift;
    return select(mass, 0u, octaves > 31u);
}

// 64 bits as (low, high).
fn add64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}

fn less64(a: vec2<u32>, b: vec2<u32>) -> bool {
    return (a.y < b.y) | ((a.y == b.y) & (a.x < b.x));
}

// a * b in full.
fn wide(a: u32, b: u32) -> vec2<u32> {
    let ll = (a & 0xffffu) * (b & 0xffffu);
    let lh = (a & 0xffffu) * (b >> 16u);
    let hl = (a >> 16u) * (b & 0xffffu);
    let hh = (a >> 16u) * (b >> 16u);
    let middle = (ll >> 16u) + (lh & 0xffffu) + (hl & 0xffffu);
    return vec2<u32>((ll & 0xffffu) | (middle << 16u), hh + (lh >> 16u) + (hl >> 16u) + (middle >> 16u));
}

// total * fraction / 2^32, at least 1: the mass that a nucleus must reach.
fn share(total: vec2<u32>, fraction: u32) -> vec2<u32> {
    let part = add64(vec2<u32>(wide(total.x, fraction).y, 0u), wide(total.y, fraction));
    return select(part, vec2<u32>(1u, 0u), (part.x | part.y) == 0u);
}
