//! `ln` and `exp` from IEEE's exact operations only. The system's own differ in the last bit from machine to machine, and a
//! simulation promises the same bytes everywhere.

/// `ln 2` in two parts; the first has zeros at its end, so that small multiples of it are exact.
const LN_2_HIGH: f64 = 0.693_147_180_369_123_8;
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;

/// Natural logarithm of a positive, normal number.
#[must_use]
pub(super) fn ln(x: f64) -> f64 {
    assert!(x.is_normal() && x > 0.0, "ln of {x}");
    let bits = x.to_bits();
    let mut exponent = i32::try_from(bits >> 52).unwrap_or(0) - 1023;
    let mut mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    // ln m = 2 artanh s, with |s| <= 0.172.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let mut sum = 0.0;
    for k in (0..13).rev() {
        sum = sum * square + 1.0 / f64::from(2 * k + 1);
    }
    f64::from(exponent) * LN_2_HIGH + (2.0 * s * sum + f64::from(exponent) * LN_2_LOW)
}

/// `e` to the power of `x`, for `x` at most 0; smaller than a normal number is 0.
#[must_use]
pub(super) fn exp(x: f64) -> f64 {
    assert!(x <= 0.0, "exp of {x}");
    if x < -700.0 {
        return 0.0;
    }
    // Halved ten times the argument is small enough for a short series; the square of the result is taken as often.
    let mut halvings = 0;
    let mut small = x;
    while small < -0.35 {
        small /= 2.0;
        halvings += 1;
    }
    let mut sum = 1.0;
    for k in (1..18).rev() {
        sum = 1.0 + sum * small / f64::from(k);
    }
    for _ in 0..halvings {
        sum *= sum;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Far more than sampling needs; `exp` squares its error up to twelve times.
    const RELATIVE: f64 = 1e-12;

    #[test]
    fn logarithm_and_power_agree_with_the_systems() {
        let mut x: f64 = 1e-300;
        while x < 1e300 {
            let expected = x.ln();
            assert!((ln(x) - expected).abs() <= RELATIVE * expected.abs().max(1e-3), "ln {x}");
            x *= 1.37;
        }
        let mut x: f64 = -699.0;
        while x < 0.0 {
            let expected = x.exp();
            assert!((exp(x) - expected).abs() <= RELATIVE * expected, "exp {x}");
            x += 0.173;
        }
        assert_eq!((ln(1.0), exp(0.0), exp(-1e9)), (0.0, 1.0, 0.0));
    }
}
