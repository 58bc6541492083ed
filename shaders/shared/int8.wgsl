// Floats as signed bytes, a scale d per 32: d = max |x| * (1 / 127), code = round(x * (127 / max |x|)). A product, not a quotient: drivers
// round those their own way. The maximum is taken of the bits, as integers:
// NaN is above all, and makes d NaN. Rows that are as good as zero become zeros.
fn abs_bits(v: vec4<f32>) -> u32 {
    let bits = bitcast<vec4<u32>>(v) & vec4<u32>(0x7fffffffu);
    return max(max(bits.x, bits.y), max(bits.z, bits.w));
}

// d from the largest of abs_bits; 1e-30 is 0x0da24260.
fn int8_scale(top: u32) -> f32 {
    return select(0.0, bitcast<f32>(top) * 0.007874016, top > 0x0da24260u);
}

fn int8_inverse(top: u32) -> f32 {
    return select(0.0, 127.0 / bitcast<f32>(top), top > 0x0da24260u);
}

fn int8_codes(v: vec4<f32>, inverse: f32) -> u32 {
    return pack4xI8(vec4<i32>(round(v * inverse)));
}
