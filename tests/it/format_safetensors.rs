//! Safetensors folders are read as they were written; the index decides; no bytes make the reader panic.

use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use serde_json::json;
use twostroke::error::{Error, Result};
use twostroke::format::block::BlockFormat;
use twostroke::format::model_files::{Description, ModelFiles};
use twostroke::format::table::TensorTable;
use twostroke::format::{safetensors, source};

use crate::alloc::peak_bytes;
use crate::model_writer::{Files, SafetensorsWriter, TinyLlama, write_files};

fn read(bytes: Vec<u8>) -> Result<TensorTable> {
    safetensors::read(source::memory("m.safetensors", bytes))
}

/// Name, shape and bytes of all tensors.
fn contents(table: &TensorTable) -> Vec<(String, Vec<u64>, Vec<u8>)> {
    let content = |tensor: &twostroke::format::table::Tensor| {
        let mut rows = Vec::new();
        table.read_rows(tensor, 0, tensor.rows(), &mut rows).expect("inside");
        (tensor.name.clone(), tensor.shape.clone(), rows)
    };
    table.tensors.iter().map(content).collect()
}

fn with_folder<T>(files: &Files, work: impl FnOnce(&Path) -> T) -> T {
    let folder = tempfile::tempdir().expect("a folder");
    write_files(folder.path(), files);
    work(folder.path())
}

fn file<'a>(files: &'a mut Files, name: &str) -> &'a mut Vec<u8> {
    &mut files.iter_mut().find(|(n, _)| n == name).unwrap_or_else(|| panic!("no {name}")).1
}

#[test]
fn single_and_sharded_folders_hold_the_same_tensors() {
    for format in [BlockFormat::F32, BlockFormat::F16, BlockFormat::Bf16] {
        let tiny = TinyLlama { tied: false, ..Default::default() };
        let open = |shards| {
            with_folder(&tiny.folder(format, shards), |path| {
                let files = ModelFiles::open(path).expect("a whole folder");
                assert_eq!(Some(files.name.as_str()), path.file_name().and_then(|n| n.to_str()));
                let Description::Folder(folder) = &files.description else { panic!("a folder") };
                assert_eq!(folder.config["model_type"], "llama");
                assert!(folder.generation_config.is_null() && folder.tokenizer_json.is_some());
                assert_eq!(files.table.sources.len(), shards);
                assert!(files.table.tensors.iter().all(|t| t.format == format));
                contents(&files.table)
            })
        };
        let single = open(1);
        assert_eq!(single.len(), 21);
        assert_eq!(single, open(3));
    }
}

#[test]
fn f31_stray_shard_is_ignored() {
    let tiny = TinyLlama::default();
    let mut files = tiny.folder(BlockFormat::F16, 2);
    let want = with_folder(&files, |path| contents(&safetensors::read_folder(path).expect("whole")));
    let other = TinyLlama { seed: 2, ..tiny }.folder(BlockFormat::F16, 1);
    let stray = other.iter().find(|f| f.0 == "model.safetensors").expect("one file").1.clone();
    files.push(("model.safetensors".into(), stray.clone()));
    files.push(("model-00003-of-00003.safetensors".into(), stray));
    files.push(("broken.safetensors".into(), b"not one".to_vec()));
    let got = with_folder(&files, |path| contents(&safetensors::read_folder(path).expect("whole")));
    assert!(got == want, "the index decides");
}

#[test]
fn tensor_that_the_index_does_not_name_is_ignored_whatever_its_dtype() {
    let mut files = TinyLlama::default().folder(BlockFormat::F16, 2);
    let mut shard = SafetensorsWriter::default();
    shard.tensor("extra.norm", &[4], BlockFormat::F32, vec![0; 16]);
    shard.tensors.push(("extra.ids".into(), "I64".into(), vec![2], vec![0; 16]));
    files.push(("extra.safetensors".into(), shard.bytes()));
    let index = file(&mut files, "model.safetensors.index.json");
    let mut json: serde_json::Value = serde_json::from_slice(index).expect("ours");
    json["weight_map"]["extra.norm"] = json!("extra.safetensors");
    *index = json.to_string().into_bytes();
    with_folder(&files, |path| {
        let table = safetensors::read_folder(path).expect("whole");
        assert!(table.get("extra.norm").is_some() && table.get("extra.ids").is_none());
    });
    let error = read(shard.bytes()).expect_err("alone it is all of the model");
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains("dtype I64") && message.contains("m.safetensors, tensor extra.ids"), "{message}");
}

#[test]
fn f32_safetensors_cut_by_a_byte_or_a_tensor_is_refused_by_name() {
    let mut files = TinyLlama::default().folder(BlockFormat::Bf16, 1);
    let whole = file(&mut files, "model.safetensors").clone();
    for cut in [1, 128, 129] {
        file(&mut files, "model.safetensors").clone_from(&whole);
        file(&mut files, "model.safetensors").truncate(whole.len() - cut);
        let message = with_folder(&files, |path| ModelFiles::open(path).expect_err("cut").to_string());
        assert!(message.contains("model.safetensors, tensor model."), "{message}");
        assert!(message.contains(&format!("got {} bytes", whole.len() - cut)), "{message}");
    }
}

#[test]
fn f34_tensors_that_share_bytes_are_refused_by_both_names() {
    let check = |header: serde_json::Value, data: usize, wants: &[&str]| {
        let message =
            read(SafetensorsWriter::file(&header.to_string(), &vec![0; data])).expect_err("broken").to_string();
        assert!(wants.iter().all(|want| message.contains(want)), "{message}");
    };
    let tensor = |from: u64, to: u64| json!({"dtype": "F32", "shape": [4], "data_offsets": [from, to]});
    check(json!({"a": tensor(0, 16), "b": tensor(0, 16)}), 16, &["overlap", "tensors a and b"]);
    check(json!({"a": tensor(0, 16), "b": tensor(12, 28), "c": tensor(28, 44)}), 44, &["overlap", "tensors a and b"]);
    check(json!({"a": tensor(0, 16), "b": tensor(16, 28)}), 28, &["tensor size", "16 bytes", "[16, 28]", "tensor b"]);
}

#[test]
fn equal_keys_are_refused_wherever_they_are() {
    let check = |header: &str, want: &str| {
        let message = read(SafetensorsWriter::file(header, &[0; 4])).expect_err("twice").to_string();
        assert!(message.contains(want) && message.contains("m.safetensors"), "{message}");
    };
    let a = r#"{"dtype":"F32","shape":[1],"data_offsets":[0,4]}"#;
    check(&format!(r#"{{"a":{a},"a":{a}}}"#), "tensor a twice");
    check(&format!(r#"{{"a":{a},"\u0061":{a}}}"#), "tensor a twice");
    check(&format!(r#"{{"__metadata__":{{}},"a":{a},"__metadata__":{{}}}}"#), "__metadata__ twice");
    check(r#"{"a":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}}"#, "tensor a: duplicate field `shape`");
    let mut files = TinyLlama::default().folder(BlockFormat::F16, 2);
    *file(&mut files, "model.safetensors.index.json") = br#"{"weight_map":{"a":"x","a":"y"}}"#.to_vec();
    let message = with_folder(&files, |path| safetensors::read_folder(path).expect_err("twice").to_string());
    assert!(message.contains("tensor a twice") && message.contains("model.safetensors.index.json"), "{message}");
}

fn reads_within_bounds(bytes: Vec<u8>) {
    let len = bytes.len();
    let (result, peak) = peak_bytes(|| read(bytes));
    assert!(peak <= 16 * len + (64 << 10), "{peak} bytes for a file of {len}");
    if let Ok(table) = result {
        drop(contents(&table));
    }
}

fn config(cases: u32, seed: u64) -> Config {
    Config { cases, rng_seed: RngSeed::Fixed(seed), failure_persistence: None, ..Config::default() }
}

proptest! {
    #![proptest_config(config(2000, 21))]

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        reads_within_bounds(bytes);
    }

    #[test]
    fn random_json_never_panics(text in r#"(\{|\}|\[|\]|"a"|"dtype"|"F32"|"shape"|"data_offsets"|"__metadata__"|:|,|0|4|1e9|-1|null){0,40}"#) {
        reads_within_bounds(SafetensorsWriter::file(&text, &[0; 8]));
    }

    #[test]
    fn random_ranges_never_panic(
        tensors in prop::collection::vec((0u64..40, 0u64..40, prop::collection::vec(any::<u64>().prop_map(|n| n >> (n & 63)), 0..6)), 0..6),
        data in 0usize..48,
    ) {
        let header: serde_json::Map<_, _> = tensors.iter().enumerate().map(|(i, (from, to, shape))| {
            (format!("t{i}"), json!({"dtype": "F16", "shape": shape, "data_offsets": [from, to]}))
        }).collect();
        reads_within_bounds(SafetensorsWriter::file(&serde_json::Value::Object(header).to_string(), &vec![0; data]));
    }
}

proptest! {
    #![proptest_config(config(500, 22))]

    #[test]
    fn mutated_files_never_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        truncate in any::<bool>(),
    ) {
        let mut files = TinyLlama { layers: 1, ..Default::default() }.folder(BlockFormat::F16, 1);
        let mut bytes = std::mem::take(file(&mut files, "model.safetensors"));
        let header = 2048.min(bytes.len());
        if truncate {
            bytes.truncate(cut.index(bytes.len()));
        } else {
            edits.iter().for_each(|(at, byte)| bytes[at.index(header)] = *byte);
        }
        reads_within_bounds(bytes);
    }
}
