//! Kernels that compute nothing of a model: what the adapter can do at most, so that the others' speed can be told as a share of it.

use super::program::Program;
use super::{Access, Spec, Tier, floats, params_struct, template};
use crate::recording::{BufferId, Recording};

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Probe {
    /// Bytes moved from one buffer to another.
    Copy,
    /// Bytes read, and a word a lane written.
    Read,
    /// Single-precision `fma`.
    F32,
    /// Half-precision `fma`; needs the feature.
    F16,
    /// Dots of four packed signed bytes.
    Dot,
}

params_struct! {
    /// As in `shaders/probe_copy.wgsl`, `shaders/probe_read.wgsl` and `shaders/probe_math.wgsl`.
    struct Params {
        count: u32,
        grid_x: u32,
        steps: u32,
        pad0: u32,
    }
}

/// Invocations of a workgroup.
pub const INVOCATIONS: u32 = 64;
/// Multiplications and additions of a lane in one step of [`Probe::F32`] and [`Probe::F16`].
pub const FMA_OPS: u64 = 24 * ROUNDS as u64;
/// Multiplications and additions of a lane in one step of [`Probe::Dot`].
pub const DOT_OPS: u64 = 96 * ROUNDS as u64;
const CHAINS: usize = 12;
/// Rounds of a step, unrolled in the shader.
const ROUNDS: u32 = 16;
/// Loads of a turn of [`Probe::Read`].
const UNROLL: u32 = 4;

impl Probe {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Copy, Self::Read, Self::F32, Self::F16, Self::Dot];

    const fn kind(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Read => "read",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Dot => "dot",
        }
    }
}

/// Records a copy of `vectors` vec4s by `workgroups`.
pub fn record_copy(tape: &mut Recording<Probe>, from: BufferId, out: BufferId, vectors: u32, workgroups: u32) {
    let params = Params { count: vectors, grid_x: workgroups, steps: 0, pad0: 0 };
    tape.dispatch(Probe::Copy, &[from, out], &params, [workgroups, 1, 1]);
}

/// Records a sum of `vectors` vec4s by `workgroups`; `out` holds a word a lane.
pub fn record_read(tape: &mut Recording<Probe>, from: BufferId, out: BufferId, vectors: u32, workgroups: u32) {
    let params = Params { count: vectors, grid_x: workgroups, steps: 0, pad0: 0 };
    tape.dispatch(Probe::Read, &[from, out], &params, [workgroups, 1, 1]);
}

/// Records `steps` steps of arithmetic in each lane of `workgroups`; `from` holds two vec4s, `out` a word a lane.
pub fn record_math(
    tape: &mut Recording<Probe>,
    probe: Probe,
    from: BufferId,
    out: BufferId,
    steps: u32,
    workgroups: u32,
) {
    assert!(!matches!(probe, Probe::Copy | Probe::Read), "{probe:?} has no steps");
    let params = Params { count: 0, grid_x: workgroups, steps, pad0: 0 };
    tape.dispatch(probe, &[from, out], &params, [workgroups, 1, 1]);
}

impl Program for Probe {
    fn spec(self) -> Spec {
        Spec {
            label: format!("probe_{}", self.kind()),
            shader: match self {
                Self::Copy => "probe_copy",
                Self::Read => "probe_read",
                Self::F32 | Self::F16 | Self::Dot => "probe_math",
            },
            constants: minijinja::context! { kind => self.kind(), rounds => ROUNDS, unroll => UNROLL },
            bindings: &[Access::Read, Access::Write],
            params_bytes: Params::BYTES,
            params_fields: Params::FIELDS,
            invocations: INVOCATIONS,
            tier: Tier::Base,
            int64: false,
        }
    }

    fn wgsl(self) -> String {
        let spec = self.spec();
        template::render(spec.shader, &spec.constants)
    }

    fn twin(self, params: &[u8], grid: [u32; 3], mem: &mut [Vec<u32>]) {
        let p = Params::read(params);
        assert_eq!([p.grid_x, 1, 1], grid, "one row of workgroups");
        let [from, out] = mem else { panic!("a probe binds two buffers, not {}", mem.len()) };
        if self == Self::Copy {
            let words = 4 * p.count as usize;
            out[..words].copy_from_slice(&from[..words]);
            return;
        }
        for (at, out) in out.iter_mut().take((grid[0] * INVOCATIONS) as usize).enumerate() {
            let lane = u32::try_from(at).expect("a word a lane") % INVOCATIONS;
            *out = match self {
                Self::Dot => dots(from, lane, p.steps * ROUNDS),
                Self::Read => sum(&from[..4 * p.count as usize], at, (grid[0] * INVOCATIONS) as usize),
                _ => fmas(floats(from), lane, p.steps * ROUNDS, self == Self::F16),
            };
        }
    }
}

/// Multiply, then add: what software drivers make of `fma`; of halves each rounded.
fn fmas(from: &[f32], lane: u32, steps: u32, half: bool) -> u32 {
    let round = |value: f32| if half { half::f16::from_f32(value).to_f32() } else { value };
    #[allow(clippy::cast_precision_loss, reason = "small")]
    let mut x: [f32; CHAINS] = std::array::from_fn(|i| lane as f32 + (i / 4) as f32);
    for _ in 0..steps {
        for (i, x) in x.iter_mut().enumerate() {
            *x = round(round(*x * round(from[i % 4])) + round(from[4 + i % 4]));
        }
    }
    let sum: [f32; 4] = std::array::from_fn(|c| round(round(x[c] + x[4 + c]) + x[8 + c]));
    round(round(round(sum[0] + sum[1]) + sum[2]) + sum[3]).to_bits()
}

/// Words of every `stride`-th vec4 from `at` on. Sums of integers have one value in any order.
fn sum(from: &[u32], at: usize, stride: usize) -> u32 {
    from.chunks_exact(4).skip(at).step_by(stride).flatten().fold(0, |sum, word| sum.wrapping_add(*word))
}

fn dots(from: &[u32], lane: u32, steps: u32) -> u32 {
    let bytes = |word: u32| word.to_le_bytes().map(|byte| i32::from(byte.cast_signed()));
    let dot = |a: u32, b: u32| bytes(a).into_iter().zip(bytes(b)).map(|(a, b)| a * b).sum::<i32>();
    let mut x: [i32; CHAINS] = std::array::from_fn(|i| (lane + u32::try_from(i).expect("small")).cast_signed());
    for _ in 0..steps {
        for x in &mut x {
            *x = x.wrapping_add(dot(x.cast_unsigned() ^ from[4], from[0]));
        }
    }
    x.into_iter().fold(0, i32::wrapping_add).cast_unsigned()
}
