//! What an adapter can do at most, measured on it: bandwidth of copies and of reads, arithmetic rates, what a launch and a submit cost.

use crate::error::Result;
use crate::kernels::probe::{self, DOT_OPS, FMA_OPS, INVOCATIONS, Probe};
use crate::recording::{BufferId, Player, Recording, least_nanos, least_wall_nanos};

/// The limits.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Measured {
    /// Bytes read and written in a second of copying a buffer that no cache holds.
    pub bandwidth_bytes_per_s: f64,
    /// Bytes read in a second of summing up a buffer that no cache holds: as decode does, which reads weights and hardly writes.
    pub read_bytes_per_s: f64,
    /// Single-precision multiplications and additions in a second, half as many `fma`s.
    pub f32_flops: f64,
    /// Of halves, where shaders have them.
    pub f16_flops: Option<f64>,
    /// Multiplications and additions in a second of dots of packed bytes.
    pub int8_ops: f64,
    /// Nanoseconds of a launch among many in one submit.
    pub launch_nanos: f64,
    /// Nanoseconds of a submit of one launch, until its result is there.
    pub submit_nanos: f64,
}

/// A run is long enough to be measured from here on.
const ENOUGH_NANOS: u64 = 20_000_000;
/// Times that each is measured; the best counts.
const RUNS: u32 = 5;
/// Bytes of each buffer of the copy: more than most caches hold.
const COPY_BYTES: u64 = 64 << 20;
/// Workgroups of arithmetic.
const WORKGROUPS: u32 = 4096;
/// Most steps of a lane.
const STEPS_MAX: u32 = 1 << 14;
const LAUNCHES: u32 = 256;

/// Measures the adapter of `player`; `f16` where its shaders may use halves.
///
/// # Errors
/// The player's.
#[allow(clippy::cast_precision_loss, reason = "rates for people")]
pub fn measure(player: &mut dyn Player<Probe>, f16: bool) -> Result<Measured> {
    let probes = Probe::ALL.into_iter().filter(|probe| f16 || *probe != Probe::F16);
    player.prepare(&probes.collect::<Vec<_>>())?;
    let bytes = COPY_BYTES.min(player.binding_bytes_max());
    let from = player.create_buffer("probe from", bytes)?;
    let out = player.create_buffer("probe out", bytes)?;
    // Numbers that stay where they are: x = x * 1 + 0, in every chain.
    let ones: Vec<u32> = [[1.0_f32; 4], [0.0; 4]].concat().iter().map(|x| x.to_bits()).collect();
    player.write(from, 0, bytemuck::cast_slice(&ones))?;
    let measured = all(player, from, out, bytes, f16);
    player.drop_buffer(from);
    player.drop_buffer(out);
    measured
}

#[allow(clippy::cast_precision_loss, reason = "rates for people")]
fn all(player: &mut dyn Player<Probe>, from: BufferId, out: BufferId, bytes: u64, f16: bool) -> Result<Measured> {
    let vectors = u32::try_from(bytes / 16).expect("a binding of at most 64 MiB");
    let copy = |player: &mut dyn Player<Probe>, times: u32| {
        best(player, out, |tape| {
            for _ in 0..times {
                probe::record_copy(tape, from, out, vectors, WORKGROUPS);
            }
        })
    };
    let (copies, nanos) = until_enough(|times| copy(player, times), 64)?;
    let read = |player: &mut dyn Player<Probe>, times: u32| {
        best(player, out, |tape| (0..times).for_each(|_| probe::record_read(tape, from, out, vectors, WORKGROUPS)))
    };
    let (reads, read_nanos) = until_enough(|times| read(player, times), 64)?;
    let read_bytes_per_s = 1e9 * bytes as f64 * f64::from(reads) / read_nanos as f64;
    let bandwidth_bytes_per_s = 2e9 * bytes as f64 * f64::from(copies) / nanos as f64;
    let mut rate = |probe: Probe, ops: u64| -> Result<f64> {
        let run = |steps: u32| best(player, out, |tape| probe::record_math(tape, probe, from, out, steps, WORKGROUPS));
        let (steps, nanos) = until_enough(run, STEPS_MAX)?;
        let lanes = u64::from(WORKGROUPS * INVOCATIONS);
        Ok(1e9 * (lanes * ops * u64::from(steps)) as f64 / nanos as f64)
    };
    let f32_flops = rate(Probe::F32, FMA_OPS)?;
    let f16_flops = if f16 { Some(rate(Probe::F16, FMA_OPS)?) } else { None };
    let int8_ops = rate(Probe::Dot, DOT_OPS)?;
    let launches = |player: &mut dyn Player<Probe>, count: u32| {
        wall(player, out, |tape| {
            for _ in 0..count {
                probe::record_copy(tape, from, out, 0, 1);
            }
        })
    };
    let one = launches(player, 1)?;
    let many = launches(player, 1 + LAUNCHES)?;
    Ok(Measured {
        bandwidth_bytes_per_s,
        read_bytes_per_s,
        f32_flops,
        f16_flops,
        int8_ops,
        launch_nanos: many.saturating_sub(one) as f64 / f64::from(LAUNCHES),
        submit_nanos: one as f64,
    })
}

/// Twice as much of something, again and again, until it takes long enough: how much, and its nanoseconds.
fn until_enough(mut run: impl FnMut(u32) -> Result<u64>, most: u32) -> Result<(u32, u64)> {
    let mut amount = 1;
    loop {
        let nanos = run(amount)?.max(1);
        if nanos >= ENOUGH_NANOS || amount >= most {
            return Ok((amount, nanos));
        }
        amount = (amount * 2).min(most);
    }
}

/// Least nanoseconds of several runs, by the adapter's clock where it has one.
fn best(player: &mut dyn Player<Probe>, out: BufferId, record: impl Fn(&mut Recording<Probe>)) -> Result<u64> {
    least_nanos(player, &tape(out, record), RUNS)
}

/// Least nanoseconds until the result is there.
fn wall(player: &mut dyn Player<Probe>, out: BufferId, record: impl Fn(&mut Recording<Probe>)) -> Result<u64> {
    least_wall_nanos(player, &tape(out, record), RUNS)
}

/// What `record` records, and a word of its result.
fn tape(out: BufferId, record: impl Fn(&mut Recording<Probe>)) -> Recording<Probe> {
    let mut tape = Recording::new();
    record(&mut tape);
    tape.read(out, 0, 4);
    tape
}
