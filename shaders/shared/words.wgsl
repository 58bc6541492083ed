// The words of a 64-bit load.
fn words(both: vec2<u64>) -> vec4<u32> {
    return vec4<u32>(u32(both.x), u32(both.x >> 32u), u32(both.y), u32(both.y >> 32u));
}
