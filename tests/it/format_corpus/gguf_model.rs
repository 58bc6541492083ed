//! GGUFs that are whole as files but no model: for the loader.

use half::f16;
use twostroke::format::block::BlockFormat;

use super::Stage::Model;
use super::{Case, base, base_gguf, gguf_case};
use crate::model_writer::{GgufWriter, Meta, TinyLlama};

pub(super) fn add(cases: &mut Vec<Case>) {
    add_architectures(cases);
    add_hyperparameters(cases);
    add_tensors(cases);
    add_numbers(cases);
    add_vocabularies(cases);
}

fn changed(cases: &mut Vec<Case>, name: &str, change: impl FnOnce(&mut GgufWriter), expect: &[&str]) {
    let mut gguf = base_gguf();
    change(&mut gguf);
    cases.push(gguf_case(Model, name, gguf.bytes(), expect));
}

/// With another value of a key.
fn valued(cases: &mut Vec<Case>, name: &str, key: &str, value: Meta, expect: &[&str]) {
    let bytes = base_gguf().set(key, value).bytes();
    cases.push(gguf_case(Model, name, bytes, expect));
}

/// Without a key.
fn keyless(cases: &mut Vec<Case>, name: &str, key: &str) {
    let bytes = base_gguf().remove(key).bytes();
    cases.push(gguf_case(Model, name, bytes, &[key]));
}

fn add_architectures(cases: &mut Vec<Case>) {
    let key = "general.architecture";
    for arch in ["mamba", "gpt-j", "LLAMA", ""] {
        let expect = ["architecture", arch];
        valued(cases, &format!("architecture {arch:?}"), key, Meta::str(arch), &expect);
    }
    keyless(cases, "no architecture", key);
    valued(cases, "architecture as a number", key, Meta::U32(1), &[key]);
}

fn add_hyperparameters(cases: &mut Vec<Case>) {
    let counts = [
        "llama.block_count",
        "llama.context_length",
        "llama.embedding_length",
        "llama.feed_forward_length",
        "llama.attention.head_count",
    ];
    for key in counts {
        keyless(cases, &format!("no {key}"), key);
        for value in [Meta::U32(0), Meta::U32(u32::MAX), Meta::U64(u64::MAX), Meta::I32(-1), Meta::str("2")] {
            // A context that is too large is not the file's fault alone; the others cannot be true.
            if key == "llama.context_length" && matches!(value, Meta::U32(u32::MAX)) {
                continue;
            }
            valued(cases, &format!("{key} of {value:?}"), key, value.clone(), &[key]);
        }
    }
    let heads = "llama.attention.head_count";
    let kv_heads = "llama.attention.head_count_kv";
    valued(cases, "3 key heads for 4 heads", kv_heads, Meta::U32(3), &["kv heads", "got 3"]);
    valued(cases, "8 key heads for 4 heads", kv_heads, Meta::U32(8), &["kv heads", "got 8"]);
    valued(cases, "no key heads", kv_heads, Meta::U32(0), &[kv_heads]);
    valued(cases, "5 heads of a width of 32", heads, Meta::U32(5), &["head"]);
    let eps = "llama.attention.layer_norm_rms_epsilon";
    keyless(cases, "no epsilon", eps);
    for value in [f32::NAN, f32::INFINITY, -1.0] {
        valued(cases, &format!("epsilon of {value}"), eps, Meta::F32(value), &["epsilon", "got"]);
    }
    let base_key = "llama.rope.freq_base";
    for value in [f32::NAN, 0.0, -1.0] {
        valued(cases, &format!("rope base of {value}"), base_key, Meta::F32(value), &["rope base", "got"]);
    }
    let rope = "llama.rope.dimension_count";
    valued(cases, "odd rope dimensions", rope, Meta::U32(7), &["rotary dimensions", "got 7"]);
    valued(cases, "more rope dimensions than a head has", rope, Meta::U32(16), &["rotary dimensions", "got 16"]);
    valued(cases, "5 layers where the file has 1", counts[0], Meta::U32(5), &["blk.1."]);
    let odd = TinyLlama { heads: 8, kv_heads: 4, head_dim: 12, ..base() }.gguf(BlockFormat::Q4_0);
    cases.push(gguf_case(Model, "heads of 12", odd.bytes(), &["12"]));
    let wide = TinyLlama { heads: 1, kv_heads: 1, head_dim: 512, ..base() }.gguf(BlockFormat::Q4_0);
    cases.push(gguf_case(Model, "heads of 512", wide.bytes(), &["512"]));
}

fn add_tensors(cases: &mut Vec<Case>) {
    for tensor in base_gguf().tensors {
        let name = String::from_utf8(tensor.name.clone()).expect("ours");
        let without = |g: &mut GgufWriter| {
            g.remove_tensor(&name);
        };
        changed(cases, &format!("no {name}"), without, &[&name]);
        // The same bytes, folded otherwise: rows halved and doubled, or an axis more.
        let mut shape = |what: &str, shape: Vec<u64>| {
            let expect = [name.as_str(), "expected", "got"];
            changed(cases, &format!("{name} {what}"), |g| g.tensor_mut(&name).shape = shape, &expect);
        };
        match tensor.shape[..] {
            [k] => shape("as two halves", vec![2, k / 2]),
            [rows, k] => {
                shape("with rows twice as long", vec![rows / 2, 2 * k]);
                shape("as one row", vec![rows * k]);
                shape("with one row less", vec![rows - 1, k]);
            }
            _ => unreachable!("norms and matrices only"),
        }
    }
}

/// Weights that are no numbers, in each place that holds floats.
fn add_numbers(cases: &mut Vec<Case>) {
    let nan = f16::NAN.to_le_bytes();
    let infinite = f16::INFINITY.to_le_bytes();
    let scales = [
        (BlockFormat::Q4_0, 0, 18),
        (BlockFormat::Q4_1, 0, 20),
        (BlockFormat::Q4_1, 2, 20),
        (BlockFormat::Q5_0, 0, 22),
        (BlockFormat::Q5_1, 2, 24),
        (BlockFormat::Q8_0, 0, 34),
        (BlockFormat::F16, 0, 2),
        (BlockFormat::Bf16, 0, 2),
    ];
    for (format, field, block) in scales {
        for (what, bits) in [("NaN", nan), ("infinity", infinite)] {
            let bits = match (format, what) {
                (BlockFormat::Bf16, "NaN") => half::bf16::NAN.to_le_bytes(),
                (BlockFormat::Bf16, _) => half::bf16::INFINITY.to_le_bytes(),
                _ => bits,
            };
            let mut gguf = base().gguf(format);
            let data = &mut gguf.tensor_mut("blk.0.ffn_down.weight").data;
            let at = data.len() - block + field;
            data[at..at + 2].copy_from_slice(&bits);
            let name = format!("{what} at byte {field} of a {} block", format.name());
            cases.push(gguf_case(Model, &name, gguf.bytes(), &["blk.0.ffn_down.weight"]));
        }
    }
    for (name, value) in [("NaN", f32::NAN), ("infinity", f32::INFINITY)] {
        let set = |g: &mut GgufWriter| {
            g.tensor_mut("blk.0.ffn_norm.weight").data[4..8].copy_from_slice(&value.to_le_bytes());
        };
        changed(cases, &format!("{name} in a norm"), set, &["blk.0.ffn_norm.weight"]);
    }
}

fn add_vocabularies(cases: &mut Vec<Case>) {
    let key = "tokenizer.ggml.tokens";
    for count in [1usize, 319, 321] {
        let tokens: Vec<String> = (0..count).map(|i| format!("t{i}")).collect();
        let counts = [count.to_string(), "320".to_owned()];
        let stated = "llama.vocab_size";
        let mut gguf = base_gguf();
        gguf.set(key, Meta::Strs(tokens));
        let expect = [key, stated, &counts[0], &counts[1]];
        let name = format!("{count} tokens for a stated 320");
        cases.push(gguf_case(Model, &name, gguf.bytes(), &expect));
        let bytes = gguf.remove(stated).bytes();
        let expect = ["token_embd.weight", &counts[0], &counts[1]];
        cases.push(gguf_case(Model, &format!("{count} tokens for 320 embeddings"), bytes, &expect));
    }
}
