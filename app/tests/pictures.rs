//! Pictures of the app, compared with those that were looked at.

use egui_kittest::SnapshotResults;
use twostroke::sched::Policy;

use crate::timeline::shown;

#[test]
fn the_stall_and_its_absence_are_plain_to_see() {
    let mut results = SnapshotResults::new();
    for policy in [Policy::PrefillFirst, Policy::Slo] {
        let mut harness = shown(policy);
        harness.snapshot(format!("long_prompt_{}", policy.name().replace('-', "_")));
        results.extend_harness(&mut harness);
    }
}
