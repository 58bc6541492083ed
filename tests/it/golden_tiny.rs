//! The seven tiny checkpoints of `tests/data/tiny` against transformers' logits, on the twin and on every adapter.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use twostroke::format::model_files::ModelFiles;
use twostroke::kernels::KvType;
use twostroke::model::{LoadOptions, Want};

use crate::model_stepper::{Device, Stepper, argmax, on_adapters, twin};

/// DESIGN.md §6: each logit l of random bf16 weights, relative to 1 + |l|. Rounding alone gives about a tenth of it.
const TOLERANCE: f32 = 2e-3;

const NAMES: [&str; 7] = ["gemma3", "llama-tied", "llama-untied-mha", "llama3-rope", "mistral-sw", "qwen2", "qwen3"];

#[derive(Deserialize)]
struct Golden {
    ids: Vec<u32>,
    last_logits: Vec<f32>,
    argmax_per_position: Vec<u32>,
    greedy: Vec<u32>,
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiny").join(name)
}

fn golden(name: &str) -> Golden {
    serde_json::from_slice(&std::fs::read(folder(name).join("golden.json")).unwrap()).unwrap()
}

fn load<'a>(name: &str, device: &'a mut Device) -> Stepper<'a> {
    let options = LoadOptions { kv: KvType::F32, ..LoadOptions::default() };
    Stepper::load(&ModelFiles::open(&folder(name)).unwrap(), device, &options).unwrap()
}

/// Every number of one golden.
fn check(name: &str, label: &str, device: &mut Device) {
    let (mut stepper, golden) = (load(name, device), golden(name));
    let all = stepper.all_logits(&golden.ids);
    let last = all.last().unwrap();
    assert_eq!(last.len(), golden.last_logits.len());
    for (i, (got, want)) in last.iter().zip(&golden.last_logits).enumerate() {
        let bound = TOLERANCE * (1.0 + want.abs());
        assert!((got - want).abs() <= bound, "{name} on {label}: logit {i} is {got}, expected {want} ± {bound}");
    }
    let got: Vec<u32> = all.iter().map(|logits| argmax(logits)).collect();
    assert_eq!(got, golden.argmax_per_position, "{name} on {label}: argmax of each position");
    assert_eq!(stepper.greedy(&golden.ids, golden.greedy.len()), golden.greedy, "{name} on {label}: greedy");
}

/// Logits of the last position do not depend, to the bit, on how the prompt was cut.
fn check_chunks(name: &str, label: &str, device: &mut Device) {
    let (mut stepper, golden) = (load(name, device), golden(name));
    let long: Vec<u32> = golden.ids.iter().copied().cycle().take(330).collect();
    for ids in [&golden.ids[..], &long] {
        let whole = stepper.feed(ids, usize::MAX, Want::LastLogits);
        for chunk in [1, 7, 16, 17, 64] {
            let chunked = stepper.feed(ids, chunk, Want::LastLogits);
            assert!(chunked == whole, "{name} on {label}: {} tokens in chunks of {chunk}", ids.len());
        }
    }
}

fn check_all(label: &str, device: &mut Device) {
    for name in NAMES {
        check(name, label, device);
        check_chunks(name, label, device);
    }
}

#[test]
fn tiny_checkpoints_have_their_logits_however_cut_on_the_twin() {
    check_all("twin", &mut twin());
}

#[test]
fn tiny_checkpoints_have_their_logits_however_cut_on_every_adapter() {
    on_adapters(&[""], check_all);
}
