//! Writes the base tier's shader texts where `scripts/browser.sh` finds them: a browser's compiler judges them there.

use std::collections::BTreeMap;

use twostroke::kernels::{Tier, variants};

#[test]
fn base_tier_texts_are_there_for_the_browser() {
    let kernels = variants::of_tier(Tier::Base, false);
    let texts: BTreeMap<String, String> = kernels.iter().map(|&kernel| (kernel.spec().label, kernel.wgsl())).collect();
    assert_eq!(texts.len(), kernels.len(), "two kernels share a label");
    let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/wgsl-base.json");
    let json = serde_json::to_string_pretty(&texts).expect("strings are JSON");
    // Whole or not at all: another run of this test may be reading or writing it.
    let own = format!("{path}.{}", std::process::id());
    std::fs::write(&own, json).and_then(|()| std::fs::rename(&own, path)).expect("the target folder takes files");
}
