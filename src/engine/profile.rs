//! What each kernel of a step takes: the step's launches of one kernel, played by themselves, again and again.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::kernels::{Kernel, Tape};
use crate::model::{Model, SequenceRows};
use crate::recording::{Command, Dispatch, Player, least_nanos};

/// A kernel in a step.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelTime {
    /// Its label, with all constants of the variant.
    pub kernel: String,
    /// Launches in the step.
    pub launches: usize,
    /// Nanoseconds of all of them.
    pub nanos: f64,
    /// Multiplications and additions of all of them, where they are counted: products of matrices.
    pub flops: Option<u64>,
}

/// A step and its kernels.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Nanoseconds of the whole step.
    pub nanos: f64,
    /// The dearest first.
    pub kernels: Vec<KernelTime>,
}

/// Times that each is measured; the best counts.
const RUNS: u32 = 3;
/// A run is long enough from here on.
const ENOUGH_NANOS: f64 = 20e6;
/// Most repetitions in a run.
const REPEATS_MAX: usize = 64;

/// Plays a step over `sequences`, then the launches of each of its kernels, in submits of at most `max_submit_nanos` but for launches
/// that are longer. What lies in the model's buffers is not kept.
///
/// # Errors
/// The player's.
pub fn profile(
    model: &Model,
    player: &mut dyn Player<Kernel>,
    sequences: &[SequenceRows<'_>],
    max_submit_nanos: u64,
) -> Result<Profile> {
    let mut tape = Tape::new();
    model.record(&mut tape, sequences);
    // How long it takes is not known yet: as many submits as there may be.
    tape.cut(u64::MAX, max_submit_nanos);
    let first = least_nanos(player, &tape, 1)?;
    let all: Vec<&Dispatch<Kernel>> = tape.dispatches().collect();
    // No kernel takes longer than all of them.
    let mut time = |launches: &[&Dispatch<Kernel>]| time(player, &tape, launches, first, max_submit_nanos);
    let nanos = time(&all)?;
    let mut groups: BTreeMap<Kernel, Vec<&Dispatch<Kernel>>> = BTreeMap::new();
    for dispatch in all {
        groups.entry(dispatch.kernel).or_default().push(dispatch);
    }
    let mut kernels = Vec::with_capacity(groups.len());
    for (kernel, launches) in groups {
        let params = |dispatch: &Dispatch<Kernel>| {
            &tape.params[dispatch.params_offset as usize..][..dispatch.params_bytes as usize]
        };
        kernels.push(KernelTime {
            kernel: kernel.spec().label,
            launches: launches.len(),
            nanos: time(&launches)?,
            flops: launches.iter().map(|dispatch| kernel.flops(params(dispatch))).sum(),
        });
    }
    kernels.sort_by(|a, b| b.nanos.total_cmp(&a.nanos));
    Ok(Profile { nanos, kernels })
}

/// Nanoseconds of `launches`, by the adapter's clock where it has one, repeated until a run is long enough. They are expected to take
/// at most `expected_nanos`.
#[allow(clippy::cast_precision_loss, reason = "nanoseconds of a run are far below 2^52")]
fn time(
    player: &mut dyn Player<Kernel>,
    tape: &Tape,
    launches: &[&Dispatch<Kernel>],
    expected_nanos: u64,
    max_submit_nanos: u64,
) -> Result<f64> {
    let (mut repeats, mut expected_nanos) = (1, expected_nanos);
    loop {
        let mut run = Tape::new();
        run.params.clone_from(&tape.params);
        for _ in 0..repeats {
            run.commands.extend(launches.iter().map(|&dispatch| Command::Dispatch(dispatch.clone())));
        }
        run.cut(expected_nanos, max_submit_nanos);
        let least = least_nanos(player, &run, RUNS)?;
        if least as f64 >= ENOUGH_NANOS || repeats >= REPEATS_MAX {
            return Ok(least as f64 / repeats as f64);
        }
        let more = (repeats * 2).min(REPEATS_MAX);
        (repeats, expected_nanos) = (more, least.saturating_mul(2));
    }
}
