//! Hugging Face folders that are whole as files but no model: for the loader.

use half::f16;
use serde_json::{Value, json};
use twostroke::format::block::BlockFormat;

use super::Stage::Model;
use super::folder::file;
use super::{Case, base, base_folder, folder_case};
use crate::model_writer::{Files, SafetensorsWriter, encode};

pub(super) fn add(cases: &mut Vec<Case>) {
    add_configs(cases);
    add_tensors(cases);
}

fn config(cases: &mut Vec<Case>, name: &str, change: impl FnOnce(&mut Value), expect: &[&str]) {
    let mut files = base_folder(1);
    let bytes = file(&mut files, "config.json");
    let mut json: Value = serde_json::from_slice(bytes).expect("ours");
    change(&mut json);
    *bytes = json.to_string().into_bytes();
    cases.push(folder_case(Model, name, files, &[expect, &["config.json"]].concat()));
}

fn remove(json: &mut Value, key: &str) {
    json.as_object_mut().expect("an object").remove(key).unwrap_or_else(|| panic!("no {key}"));
}

fn add_configs(cases: &mut Vec<Case>) {
    for model_type in ["mamba2", "bert"] {
        let set = |c: &mut Value| c["model_type"] = json!(model_type);
        config(cases, &format!("model_type {model_type}"), set, &[model_type]);
    }
    let no_type = |c: &mut Value| ["model_type", "architectures"].iter().for_each(|key| remove(c, key));
    config(cases, "no model_type", no_type, &["model_type"]);
    config(cases, "model_type as a number", |c| c["model_type"] = json!(1), &["model_type"]);
    for key in ["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"] {
        config(cases, &format!("no {key}"), |c| remove(c, key), &[key]);
        for value in
            [json!(0), json!(-1), json!(u64::MAX), json!(1e300), json!("32"), json!([32]), json!(null), json!(2.5)]
        {
            config(cases, &format!("{key} of {value}"), |c| c[key] = value.clone(), &[key]);
        }
    }
    config(cases, "3 key heads for 4 heads", |c| c["num_key_value_heads"] = json!(3), &["kv heads", "got 3"]);
    config(cases, "head_dim 0", |c| c["head_dim"] = json!(0), &["head_dim"]);
    config(cases, "head_dim 12", |c| c["head_dim"] = json!(12), &["12"]);
    config(cases, "head_dim 100000", |c| c["head_dim"] = json!(100_000), &["100000"]);
    config(cases, "epsilon as text", |c| c["rms_norm_eps"] = json!("small"), &["rms_norm_eps"]);
    config(cases, "negative epsilon", |c| c["rms_norm_eps"] = json!(-1e-5), &["epsilon"]);
    config(cases, "rope base 0", |c| c["rope_theta"] = json!(0), &["rope base"]);
    config(
        cases,
        "rope type unknown",
        |c| c["rope_scaling"] = json!({"rope_type": "spiral", "factor": 2.0}),
        &["spiral"],
    );
    config(cases, "activation unknown", |c| c["hidden_act"] = json!("swish9"), &["swish9"]);
    config(
        cases,
        "quantised by another program",
        |c| c["quantization_config"] = json!({"quant_method": "gptq"}),
        &["gptq"],
    );
}

/// The base folder with a change to its tensors before they are written.
fn tensors(cases: &mut Vec<Case>, name: &str, change: impl FnOnce(&mut SafetensorsWriter), expect: &[&str]) {
    let mut writer = SafetensorsWriter::default();
    for weights in base().weights() {
        writer.tensor(&weights.name, &weights.shape, BlockFormat::F16, encode(BlockFormat::F16, &weights.floats));
    }
    change(&mut writer);
    let mut files: Files = base_folder(1);
    *file(&mut files, "model.safetensors") = writer.bytes();
    cases.push(folder_case(Model, name, files, expect));
}

fn add_tensors(cases: &mut Vec<Case>) {
    for weights in base().weights() {
        let name = weights.name.as_str();
        tensors(cases, &format!("no {name}"), |w| w.tensors.retain(|t| t.0 != name), &[name]);
        if let [rows, k] = weights.shape[..] {
            let fold = |w: &mut SafetensorsWriter| {
                let tensor = w.tensors.iter_mut().find(|t| t.0 == name).expect("listed");
                tensor.2 = vec![rows / 2, k * 2];
            };
            let expect = [name, "model.safetensors", "expected", "got"];
            tensors(cases, &format!("{name} with rows twice as long"), fold, &expect);
        }
        for (what, value) in [("NaN", f16::NAN), ("infinity", f16::INFINITY)] {
            let set = |w: &mut SafetensorsWriter| {
                let data = &mut w.tensors.iter_mut().find(|t| t.0 == name).expect("listed").3;
                let at = data.len() - 2;
                data[at..].copy_from_slice(&value.to_le_bytes());
            };
            tensors(cases, &format!("{what} at the end of {name}"), set, &[name, "model.safetensors"]);
        }
    }
    let mut vocab = |count: u64| {
        let mut files = base_folder(1);
        let mut config = base().config(BlockFormat::F16);
        config["vocab_size"] = json!(count);
        *file(&mut files, "config.json") = config.to_string().into_bytes();
        let expect = ["model.embed_tokens.weight", "320", &count.to_string()];
        cases.push(folder_case(Model, &format!("vocabulary of {count} for 320 embeddings"), files, &expect));
    };
    vocab(319);
    vocab(321);
}
