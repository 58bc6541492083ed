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
    std::fs::write(path, json).expect("the target folder takes files");
}
