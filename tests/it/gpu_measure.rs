//! Probes against their twin, and that what they measure makes sense. No figure is held against another: machines are what they are.

use twostroke::gpu::{GpuPlayer, Options, measure};
use twostroke::kernels::Tier;
use twostroke::kernels::probe::{self, Probe};
use twostroke::recording::{Player, Recording};
use twostroke::twin::Twin;

use crate::adapters::for_each_adapter;

fn has_halves(player: &GpuPlayer<Probe>) -> bool {
    player.plan().tier >= Tier::Subgroup && player.capabilities().features.contains(&"shader-f16")
}

/// The words that a probe leaves.
fn played(player: &mut dyn Player<Probe>, probe: Probe) -> Vec<u32> {
    let floats: [f32; 8] = [0.5, 1.0, -0.25, 0.75, 1.0, -2.0, 3.0, 0.125];
    let words: Vec<u32> = match probe {
        Probe::Dot => vec![0x01fe_7f80, 0, 0, 0, 0x5aa5_0ff0, 0, 0, 0],
        _ => floats.iter().map(|x| x.to_bits()).cycle().take(4000).collect(),
    };
    let from = player.create_buffer("from", 16_000).unwrap();
    let out = player.create_buffer("out", 16_000).unwrap();
    player.write(from, 0, bytemuck::cast_slice(&words)).unwrap();
    let mut tape = Recording::new();
    match probe {
        Probe::Copy => probe::record_copy(&mut tape, from, out, 999, 3),
        Probe::Read => probe::record_read(&mut tape, from, out, 999, 3),
        _ => probe::record_math(&mut tape, probe, from, out, 7, 3),
    }
    tape.read(out, 0, 16_000);
    let ticket = player.submit(&tape).unwrap();
    let words = player.wait(ticket).unwrap().words;
    player.drop_buffer(from);
    player.drop_buffer(out);
    words
}

#[test]
fn probes_equal_their_twin_on_software_drivers() {
    for_each_adapter(|label, open| {
        let mut player = open(Options::default());
        let fuses = !label.contains("llvmpipe") && !label.contains("SwiftShader");
        for probe in Probe::ALL {
            if (probe == Probe::F16 && !has_halves(&player)) || (fuses && matches!(probe, Probe::F32 | Probe::F16)) {
                continue;
            }
            let (got, want) = (played(&mut player, probe), played(&mut Twin::new(), probe));
            assert!(got == want, "{probe:?} on {label}: {:?}", (0..got.len()).find(|&i| got[i] != want[i]));
        }
    });
}

#[test]
fn what_is_measured_is_positive_and_finite() {
    for_each_adapter(|label, open| {
        let mut player = open(Options::default());
        let halves = has_halves(&player);
        let limits = measure(&mut player, halves).unwrap();
        let bandwidths = [limits.bandwidth_bytes_per_s, limits.read_bytes_per_s];
        let all = [bandwidths, [limits.f32_flops, limits.int8_ops]].concat();
        assert!(all.iter().chain(&limits.f16_flops).all(|x| x.is_finite() && *x > 0.0), "{label}: {limits:?}");
        assert!(
            limits.launch_nanos >= 0.0 && limits.submit_nanos > 0.0 && limits.f16_flops.is_some() == halves,
            "{label}: {limits:?}"
        );
    });
}
