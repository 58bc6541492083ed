//! The integers that sampling is made of, as in `shaders/shared/sample.wgsl`: keys that order as logits do, masses of
//! probability, the random numbers.

/// Neither a key, an id nor a limit.
pub(super) const NONE: u32 = u32::MAX;

/// 2^-u over [0, 1) less its 1, by powers of u from the first on; worst relative error 1.8e-7 with each step rounded to f32.
#[allow(clippy::approx_constant, reason = "the first is near ln 2, and not it")]
pub(super) const EXP2: [f32; 6] =
    [-0.693_147_2, 0.240_226_09, -0.055_499_23, 0.009_597_035, -0.001_291_636_8, 0.000_114_919_95];

/// Octaves of probability a unit of distance: 24 bits of fraction.
pub(super) const OCTAVE: f32 = 16_777_216.0;

/// A key that orders as finite floats do; +0 and -0 are equal, NaN and infinity are [`NONE`], above all.
pub(super) fn key_from_bits(stored: u32) -> u32 {
    let bits = if stored == 0x8000_0000 { 0 } else { stored };
    match bits {
        _ if bits & 0x7f80_0000 == 0x7f80_0000 => NONE,
        0x8000_0000.. => !bits,
        _ => bits | 0x8000_0000,
    }
}

/// The float of a key of a finite one.
pub(super) fn value_from_key(key: u32) -> f32 {
    f32::from_bits(if key >= 0x8000_0000 { key ^ 0x8000_0000 } else { !key })
}

/// How far `x` is below `top`, in octaves of probability times 2^24; `scale` is log2(e) / temperature times 2^24.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at least 0, and held below 2^31")]
pub(super) fn distance(top: f32, x: f32, scale: f32) -> u32 {
    ((top - x) * scale).min(2_147_483_520.0) as u32
}

/// 2^31 times 2^-(distance / 2^24), rounded; 0 from 32 octaves on.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "24 bits")]
pub(super) fn mass(distance: u32) -> u32 {
    let octaves = distance >> 24;
    if octaves > 31 {
        return 0;
    }
    let u = (distance & 0xff_ffff) as f32 / OCTAVE;
    let mut p = EXP2[5];
    for k in (0..5).rev() {
        p = EXP2[k] + p * u;
    }
    p = 1.0 + p * u;
    let whole = ((p * 1_073_741_824.0) as u32) << 1;
    (whole + ((1 << octaves) >> 1)) >> octaves
}

/// `total * fraction / 2^32`, at least 1: the mass that a nucleus must reach.
pub(super) fn share(total: u64, fraction: u32) -> u64 {
    let part = (u128::from(total) * u128::from(fraction)) >> 32;
    u64::try_from(part).expect("less than the total").max(1)
}

/// 64 random bits of (seed; position, choice): Philox 4x32 with 10 rounds.
pub(super) fn random(seed: u64, position: u32, choice: u32) -> u64 {
    let [low, high, ..] = philox([position, choice, 0, 0], [low(seed), high(seed)]);
    u64::from(high) << 32 | u64::from(low)
}

/// `total * bits / 2^64`.
pub(super) fn below(total: u64, bits: u64) -> u64 {
    u64::try_from((u128::from(total) * u128::from(bits)) >> 64).expect("less than the total")
}

/// The lower half.
#[allow(clippy::cast_possible_truncation, reason = "half of the bits")]
pub(super) const fn low(x: u64) -> u32 {
    x as u32
}

/// The upper half.
pub(super) const fn high(x: u64) -> u32 {
    low(x >> 32)
}

fn philox(mut c: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let a = 0xd251_1f53 * u64::from(c[0]);
        let b = 0xcd9e_8d57 * u64::from(c[2]);
        c = [high(b) ^ c[1] ^ key[0], low(b), high(a) ^ c[3] ^ key[1], low(a)];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_known_answers() {
        // The vectors that the Random123 library is published with.
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn keys_order_as_floats_and_lead_back() {
        let floats = [-f32::MAX, -3.5, -1e-40, 0.0, 1e-40, 2.0, f32::MAX];
        let keys = floats.map(|x| key_from_bits(x.to_bits()));
        assert!(keys.is_sorted() && keys[0] > 0 && keys[6] < NONE, "{keys:x?}");
        assert_eq!(keys.map(value_from_key), floats);
        assert_eq!(key_from_bits((-0.0_f32).to_bits()), key_from_bits(0));
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(key_from_bits(bad.to_bits()), NONE);
        }
    }

    #[test]
    fn masses_are_powers_of_two_to_single_precision() {
        assert_eq!((mass(0), mass(1 << 24), mass(32 << 24), mass(NONE)), (1 << 31, 1 << 30, 0, 0));
        for i in 0..40_000_u32 {
            let far = i * 7919;
            let exact = (31.0 - f64::from(far) / f64::from(1 << 24)).exp2();
            let error = (f64::from(mass(far)) - exact).abs();
            assert!(error <= 0.51 + exact * 2e-7, "{far}: {} for {exact}", mass(far));
        }
    }

    #[test]
    fn shares_stay_below_their_total() {
        assert_eq!((below(10, u64::MAX), below(10, 0), below(10, 1 << 63)), (9, 0, 5));
        assert_eq!((share(1 << 40, 1 << 31), share(1, 5)), (1 << 39, 1));
    }
}
