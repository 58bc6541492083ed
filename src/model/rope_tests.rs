//! Frequencies against numbers computed apart from this code: the formulas of transformers' `modeling_rope_utils`, in Python.

use super::*;

#[track_caller]
fn check(theta: f64, rotary_dim: u32, scaling: Scaling, want: &[f64]) {
    let got = Rope { theta, rotary_dim, scaling }.inverse_frequencies();
    assert_eq!(got.len(), want.len());
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() <= 1e-9 * want, "frequency {i}: {got:e}, expected {want:e}");
    }
}

#[test]
fn f39_llama3_keeps_high_divides_low_and_blends_between() {
    let scaling = Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original_context: 8192.0 };
    check(
        500_000.0,
        64,
        scaling,
        &[
            1.000000000e+00,
            6.636012377e-01,
            4.403666027e-01,
            2.922278226e-01,
            1.939227447e-01,
            1.286873734e-01,
            8.539710029e-02,
            5.666962145e-02,
            3.760603093e-02,
            2.495540867e-02,
            1.656044008e-02,
            1.098952853e-02,
            7.292664737e-03,
            4.839421346e-03,
            3.211445995e-03,
            1.371893568e-03,
            5.248461610e-04,
            1.785078128e-04,
            7.784655274e-05,
            5.165906875e-05,
            3.428102196e-05,
            2.274892860e-05,
            1.509621718e-05,
            1.001786840e-05,
            6.647869871e-06,
            4.411534675e-06,
            2.927499870e-06,
            1.942692537e-06,
            1.289173172e-06,
            8.554969126e-07,
            5.677088101e-07,
            3.767322690e-07,
        ],
    );
}

#[test]
fn yarn_ramps_over_dimensions() {
    let yarn = |factor: f64, original_context: f64, truncate| Scaling::Yarn {
        factor,
        original_context,
        beta_fast: 32.0,
        beta_slow: 1.0,
        attention_factor: yarn_magnitude(factor, 1.0),
        truncate,
    };
    check(
        1e6,
        128,
        yarn(4.0, 32_768.0, true),
        &[
            1.000000000e+00,
            8.058421878e-01,
            6.493816316e-01,
            5.232991147e-01,
            4.216965034e-01,
            3.398208329e-01,
            2.738419634e-01,
            2.206734069e-01,
            1.778279410e-01,
            1.433012570e-01,
            1.154781985e-01,
            9.305720409e-02,
            7.498942093e-02,
            6.042963902e-02,
            4.869675252e-02,
            3.924189758e-02,
            3.162277660e-02,
            2.548296748e-02,
            2.053525026e-02,
            1.654817100e-02,
            1.333521432e-02,
            1.074607828e-02,
            8.659643234e-03,
            6.978305849e-03,
            5.375321491e-03,
            4.131738023e-03,
            3.168422575e-03,
            2.423422380e-03,
            1.848276565e-03,
            1.405112482e-03,
            1.064360981e-03,
            8.029597275e-04,
            6.029411765e-04,
            4.503235755e-04,
            3.342405457e-04,
            2.462584069e-04,
            1.798411559e-04,
            1.299314949e-04,
            9.262301704e-05,
            6.490394321e-05,
            4.445698525e-05,
            3.582531426e-05,
            2.886954962e-05,
            2.326430102e-05,
            1.874735523e-05,
            1.510740976e-05,
            1.217418813e-05,
            9.810474396e-06,
            7.905694150e-06,
            6.370741870e-06,
            5.133812566e-06,
            4.137042750e-06,
            3.333803580e-06,
            2.686519571e-06,
            2.164910808e-06,
            1.744576462e-06,
            1.405853313e-06,
            1.132895909e-06,
            9.129353181e-07,
            7.356817941e-07,
            5.928434264e-07,
            4.777382437e-07,
            3.849816315e-07,
            3.102344402e-07,
        ],
    );
    check(
        1e4,
        16,
        yarn(8.0, 64.0, false),
        &[
            1.000000000e+00,
            1.789761458e-01,
            1.319445354e-02,
            3.952847075e-03,
            1.250000000e-03,
            3.952847075e-04,
            1.250000000e-04,
            3.952847075e-05,
        ],
    );
    assert!((yarn_magnitude(4.0, 1.0) - 1.138_629_436_111_989).abs() < 1e-15);
}

#[test]
fn linear_and_own_factors_divide() {
    check(1e4, 4, Scaling::None, &[1.0, 0.01]);
    check(1e4, 4, Scaling::Linear { factor: 8.0 }, &[0.125, 0.00125]);
    check(1e4, 4, Scaling::Factors(vec![1.0, 4.0]), &[1.0, 0.0025]);
}

#[test]
fn table_rows_are_positions_and_yarn_stretches_them() {
    let mut rope = Rope { theta: 1e4, rotary_dim: 4, scaling: Scaling::None };
    let whole = rope.table(0, 5);
    assert_eq!(whole.len(), 10);
    assert_eq!(whole[0], [1.0, 0.0]);
    assert_eq!(rope.table(3, 2), whole[6..]);
    // far positions keep their digits: the angle is 1e6 radians, of which f32 would have lost 1/16
    let far = rope.table(1_000_000, 1)[0];
    let angle = 1e6_f64;
    assert_eq!(far.map(f64::from), [angle.cos(), angle.sin()].map(|v| f64::from(v as f32)));
    let factor = yarn_magnitude(4.0, 1.0);
    rope.scaling = Scaling::Yarn {
        factor: 4.0,
        original_context: 1e9,
        beta_fast: 32.0,
        beta_slow: 1.0,
        attention_factor: factor,
        truncate: true,
    };
    assert!((f64::from(rope.table(0, 1)[0][0]) - factor).abs() < 1e-6);
}
