//! The table of variants on each driver, down to its machine code: what naga takes, a driver may still refuse or die of.

use twostroke::gpu::{GpuPlayer, Options};
use twostroke::kernels::{Kernel, variants};
use twostroke::recording::Player;

use crate::adapters::for_each_adapter;

/// Every which variant is compiled in the short suite: software drivers take about a second for each.
const STRIDE: usize = 45;

#[test]
fn every_variant_compiles_on_each_driver() {
    let full = std::env::var_os("TWOSTROKE_FULL").is_some();
    for_each_adapter(|label, make_player| {
        let mut player: GpuPlayer = make_player(Options::default());
        let all: Vec<Kernel> = variants::of_tier(player.tier(), player.plan().int64);
        for kernel in all.iter().step_by(if full { 1 } else { STRIDE }) {
            // A driver that aborts the process leaves this as its last line.
            println!("{label}: {}", kernel.spec().label);
            player.prepare(&[*kernel]).unwrap_or_else(|e| panic!("{label}: {e}"));
        }
    });
}
