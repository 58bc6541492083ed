//! Configurations as people publish them, in both formats and both ages of config.json, and the refusals.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::format::gguf::{Metadata, Value as Meta};
use crate::format::model_files::Folder;
use crate::format::table::TensorTable;
use crate::model::rope::{Scaling, yarn_magnitude};

fn hf(config: Value) -> Result<Config> {
    let folder = Folder {
        path: "models/m".into(),
        config,
        generation_config: Value::Null,
        tokenizer_config: Value::Null,
        tokenizer_json: None,
        chat_template: None,
    };
    let config = crate::model::config_hf::read(&folder)?;
    config.check()?;
    Ok(config)
}

fn gguf(pairs: &[(&str, Meta)]) -> Result<Config> {
    let pairs: BTreeMap<_, _> = pairs.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    let metadata = Metadata { file: "m.gguf".into(), pairs };
    let config = crate::model::config_gguf::read(&metadata, &TensorTable { sources: vec![], tensors: vec![] })?;
    config.check()?;
    Ok(config)
}

/// A small llama's config.json with `changes`; null removes a key.
fn llama(changes: Value) -> Value {
    let mut config = json!({
        "model_type": "llama", "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 160,
        "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "vocab_size": 320,
    });
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

/// Metadata of a small GGUF of `arch` with `changes`; other keys are as above.
fn pairs(arch: &str, changes: &[(&str, Meta)]) -> Vec<(&'static str, Meta)> {
    let mut all = vec![
        ("general.architecture".to_owned(), Meta::Str(arch.into())),
        (format!("{arch}.block_count"), Meta::Int(8)),
        (format!("{arch}.context_length"), Meta::Int(512)),
        (format!("{arch}.embedding_length"), Meta::Int(64)),
        (format!("{arch}.feed_forward_length"), Meta::Int(160)),
        (format!("{arch}.attention.head_count"), Meta::Int(4)),
        (format!("{arch}.attention.head_count_kv"), Meta::Int(2)),
        (format!("{arch}.attention.layer_norm_rms_epsilon"), Meta::Float(1e-5)),
    ];
    for (key, value) in changes {
        let key = if key.contains("tokenizer.") { (*key).to_owned() } else { format!("{arch}.{key}") };
        all.retain(|(k, _)| *k != key);
        all.push((key, value.clone()));
    }
    all.into_iter().map(|(key, value)| (&*key.leak(), value)).collect()
}

#[test]
fn both_formats_say_the_same_of_a_llama() {
    let (a, b) =
        (hf(llama(json!({}))).unwrap(), gguf(&pairs("llama", &[("rope.freq_base", Meta::Float(5e5))])).unwrap());
    for c in [&a, &b] {
        assert_eq!((c.layers, c.hidden, c.intermediate, c.heads, c.kv_heads, c.head_dim), (8, 64, 160, 4, 2, 16));
        assert_eq!((c.context, c.eps, c.attn_scale, c.softcap, c.embed_scale), (512, 1e-5, 0.25, 0.0, 1.0));
        assert_eq!(c.rope, Rope { theta: 5e5, rotary_dim: 16, scaling: Scaling::None });
        assert_eq!((c.windows.clone(), c.activation), (vec![0; 8], Activation::Silu));
        assert!(c.local_rope.is_none());
    }
    assert_eq!((a.vocab, b.vocab), (Some(320), None));
    assert_eq!((a.tied, b.tied), (Some(false), None));
    assert_eq!((a.pairing, b.pairing), (Pairing::Halves, Pairing::Interleaved));
    assert_eq!((a.biases, b.biases), ([BiasRule::Absent; 3], [BiasRule::Optional; 3]));
}

#[track_caller]
fn check_scaling(changes: Value, want: &Scaling) {
    let got = hf(llama(changes.clone())).unwrap().rope;
    assert_eq!(got.scaling, *want, "{changes}");
    assert_eq!(got.theta, 5e5, "{changes}");
}

#[test]
fn f39_both_spellings_and_both_ages_of_rope_are_read() {
    let llama3 = Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original_context: 8192.0 };
    let numbers = |kind: &str| {
        json!({kind: "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 8192})
    };
    check_scaling(json!({"rope_scaling": numbers("rope_type")}), &llama3);
    check_scaling(json!({"rope_scaling": numbers("type")}), &llama3);
    let mut newer = numbers("rope_type");
    newer["rope_theta"] = json!(5e5);
    check_scaling(json!({"rope_theta": null, "rope_parameters": newer}), &llama3);
    check_scaling(json!({"rope_scaling": null}), &Scaling::None);
    check_scaling(json!({"rope_scaling": {"type": "linear", "factor": 2}}), &Scaling::Linear { factor: 2.0 });
    let yarn = |magnitude: f64, truncate: bool| Scaling::Yarn {
        factor: 4.0,
        original_context: 128.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        attention_factor: magnitude,
        truncate,
    };
    let base = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128});
    let with = |key: &str, value: Value| {
        let mut all = base.clone();
        all[key] = value;
        json!({"rope_scaling": all})
    };
    check_scaling(json!({"rope_scaling": base}), &yarn(yarn_magnitude(4.0, 1.0), true));
    check_scaling(with("attention_factor", json!(1.5)), &yarn(1.5, true));
    check_scaling(with("truncate", json!(false)), &yarn(yarn_magnitude(4.0, 1.0), false));
}

#[test]
fn gguf_rope_keys_are_read() {
    let rope = |changes: &[(&str, Meta)]| gguf(&pairs("llama", changes)).unwrap().rope;
    assert_eq!(rope(&[]).theta, 10_000.0);
    assert_eq!(rope(&[("rope.dimension_count", Meta::Int(8))]).rotary_dim, 8);
    let factor = ("rope.scaling.factor", Meta::Float(4.0));
    assert_eq!(rope(std::slice::from_ref(&factor)).scaling, Scaling::Linear { factor: 4.0 });
    assert_eq!(rope(&[("rope.scale_linear", Meta::Float(2.0))]).scaling, Scaling::Linear { factor: 2.0 });
    assert_eq!(rope(&[("rope.scaling.type", Meta::Str("none".into())), factor.clone()]).scaling, Scaling::None);
    let original = ("rope.scaling.original_context_length", Meta::Int(128));
    let yarn = rope(&[("rope.scaling.type", Meta::Str("yarn".into())), factor, original]);
    let Scaling::Yarn { factor, original_context, attention_factor, .. } = yarn.scaling else { panic!("{yarn:?}") };
    assert_eq!((factor, original_context, attention_factor), (4.0, 128.0, yarn_magnitude(4.0, 1.0)));
}

#[test]
fn windows_follow_layer_types_or_the_rule_of_the_architecture() {
    let windows = |changes: Value| hf(llama(changes)).unwrap().windows;
    assert_eq!(windows(json!({"model_type": "mistral", "sliding_window": 16})), [16; 8]);
    assert_eq!(windows(json!({"model_type": "mistral", "sliding_window": null})), [0; 8]);
    let qwen = json!({"model_type": "qwen3", "sliding_window": 16, "max_window_layers": 6, "use_sliding_window": true});
    assert_eq!(windows(qwen.clone()), [0, 0, 0, 0, 0, 0, 16, 16]);
    let mut off = qwen;
    off["use_sliding_window"] = json!(false);
    assert_eq!(windows(off), [0; 8]);
    assert_eq!(windows(json!({"model_type": "gemma3_text", "sliding_window": 16})), [16, 16, 16, 16, 16, 0, 16, 16]);
    let listed: Vec<_> = (0..8).map(|i| if i % 2 == 0 { "full_attention" } else { "sliding_attention" }).collect();
    let gemma = json!({"model_type": "gemma3_text", "sliding_window": 16, "layer_types": listed});
    assert_eq!(windows(gemma), [0, 16, 0, 16, 0, 16, 0, 16]);
    let gguf = |arch: &str| gguf(&pairs(arch, &[("attention.sliding_window", Meta::Int(16))])).unwrap().windows;
    assert_eq!(gguf("gemma3"), [16, 16, 16, 16, 16, 0, 16, 16]);
    assert_eq!(gguf("llama"), [16; 8]);
}

#[test]
fn gemma3_scales_offsets_and_turns_apart_where_windows_are() {
    let local = Rope { theta: 1e4, rotary_dim: 256, scaling: Scaling::None };
    // as google/gemma-3-4b-it publishes it: nested, and most numbers left to the reference's defaults
    let nested = hf(json!({
        "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
        "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
            "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024},
    }))
    .unwrap();
    assert_eq!((nested.heads, nested.kv_heads, nested.head_dim, nested.vocab), (8, 4, 256, Some(262_208)));
    assert_eq!((nested.context, nested.eps, nested.tied), (131_072, 1e-6, Some(true)));
    assert_eq!(nested.rope, Rope { theta: 1e6, rotary_dim: 256, scaling: Scaling::Linear { factor: 8.0 } });
    assert_eq!(nested.local_rope, Some(local.clone()));
    assert_eq!((nested.norm_offset, nested.activation), (1.0, Activation::GeluTanh));
    assert_eq!((nested.embed_scale, nested.attn_scale), (2560_f32.sqrt(), 1.0 / 16.0));
    assert_eq!(nested.windows.iter().filter(|&&w| w == 0).count(), 5);
    // newer files list both
    let listed = json!({"model_type": "gemma3_text", "head_dim": 256, "query_pre_attn_scalar": 64, "rope_theta": null,
        "rope_parameters": {"full_attention": {"rope_theta": 1e6, "rope_type": "default"},
                            "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"}}});
    let listed = hf(llama(listed)).unwrap();
    assert_eq!((listed.rope.theta, listed.local_rope, listed.attn_scale), (1e6, Some(local), 0.125));
    // a GGUF holds the sum of 1 and the weight; the 27B of 62 layers scales by hidden / heads
    let big = gguf(&pairs(
        "gemma3",
        &[
            ("block_count", Meta::Int(62)),
            ("embedding_length", Meta::Int(5376)),
            ("attention.head_count", Meta::Int(32)),
            ("attention.head_count_kv", Meta::Int(16)),
            ("attention.key_length", Meta::Int(128)),
            ("attention.value_length", Meta::Int(128)),
        ],
    ))
    .unwrap();
    assert_eq!((big.norm_offset, big.attn_scale), (0.0, (1.0 / 168_f64.sqrt()) as f32));
    assert_eq!(big.local_rope.unwrap().theta, 1e4);
}

#[test]
fn biases_follow_architecture_and_keys() {
    use BiasRule::{Absent, Optional, Required};
    let rules = |changes: Value| hf(llama(changes)).unwrap().biases;
    assert_eq!(rules(json!({"attention_bias": true})), [Required, Required, Absent]);
    assert_eq!(rules(json!({"mlp_bias": true})), [Absent, Absent, Required]);
    assert_eq!(rules(json!({"model_type": "qwen2"})), [Required, Absent, Absent]);
    assert_eq!(rules(json!({"model_type": "qwen3", "attention_bias": true})), [Required, Required, Absent]);
    assert_eq!(rules(json!({"model_type": "mistral"})), [Absent; 3]);
    assert_eq!(gguf(&pairs("qwen2", &[])).unwrap().biases, [Required, Absent, Absent]);
    assert_eq!(gguf(&pairs("qwen3", &[])).unwrap().biases, [Optional, Optional, Absent]);
}

/// A refusal whose message holds all of `words`.
#[track_caller]
fn refused(result: Result<Config>, words: &[&str]) {
    let message = result.map(|_| ()).expect_err("is refused").to_string();
    for word in words {
        assert!(message.contains(word), "{message:?} lacks {word:?}");
    }
}

#[test]
fn senseless_configurations_are_refused_with_file_and_key() {
    let table: &[(Value, &[&str])] = &[
        (json!({"hidden_size": null}), &["hidden_size", "no such key", "config.json"]),
        (json!({"hidden_size": "64"}), &["hidden_size", "unsigned integer", "\"64\""]),
        (json!({"hidden_size": -64}), &["hidden_size", "unsigned integer", "-64"]),
        (json!({"hidden_size": 0}), &["hidden_size", "1 to", "got 0"]),
        (json!({"hidden_size": u64::MAX}), &["hidden_size", "18446744073709551615"]),
        (json!({"intermediate_size": 1_u64 << 40}), &["intermediate_size", "1 to"]),
        (json!({"num_hidden_layers": 1025}), &["num_hidden_layers", "1 to 1024", "1025"]),
        (json!({"num_key_value_heads": 3}), &["kv heads", "a divisor of 4", "3"]),
        (json!({"head_dim": 12}), &["head size", "a multiple of 8", "12"]),
        (json!({"head_dim": 264}), &["head_dim", "1 to 256", "264"]),
        (json!({"hidden_size": 68}), &["head size", "a multiple of 8", "17"]),
        (json!({"vocab_size": 1_u64 << 22}), &["vocab_size"]),
        (json!({"rms_norm_eps": -1e-5}), &["epsilon", "-0.00001"]),
        (json!({"rope_theta": 0.0}), &["rope base", "above 1"]),
        (json!({"rope_scaling": {"type": "linear"}}), &["factor", "no such key"]),
        (json!({"rope_scaling": {"type": "linear", "factor": 0}}), &["factor", "above 0"]),
        (
            json!({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}),
            &["`dynamic`", "default, linear, llama3, yarn"],
        ),
        (json!({"rope_scaling": 8}), &["rope_scaling", "an object"]),
        (
            json!({"rope_scaling": {"type": "linear", "factor": 4.0}, "rope_parameters": {"rope_type": "default"}}),
            &["rope_scaling", "what rope_parameters says"],
        ),
        (
            json!({"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 0}}),
            &["original_max_position_embeddings", "above 0"],
        ),
        (json!({"partial_rotary_factor": 2.0}), &["partial_rotary_factor", "from 0 to 1"]),
        (json!({"partial_rotary_factor": 0.2}), &["rotary dimensions", "even", "3"]),
        (json!({"hidden_act": "relu"}), &["hidden_act", "silu or gelu_pytorch_tanh", "relu"]),
        (json!({"model_type": "gemma3_text", "final_logit_softcapping": 30.0}), &["final_logit_softcapping = 30"]),
        (json!({"model_type": "gemma3_text", "use_bidirectional_attention": true}), &["use_bidirectional_attention"]),
        (json!({"model_type": "gemma3_text", "layer_types": ["full_attention"]}), &["layer_types", "8 entries", "1"]),
        (json!({"quantization_config": {"quant_method": "gptq"}}), &["method gptq", "float checkpoint"]),
        (json!({"model_type": "mixtral"}), &["`mixtral`", "this build knows llama, mistral"]),
    ];
    for (changes, words) in table {
        refused(hf(llama(changes.clone())), words);
    }
    let table: &[(&str, Meta, &[&str])] = &[
        ("block_count", Meta::Str("8".into()), &["llama.block_count", "m.gguf"]),
        ("embedding_length", Meta::Int(0), &["llama.embedding_length", "1 to", "0"]),
        ("context_length", Meta::Int(1 << 30), &["llama.context_length"]),
        ("attention.head_count_kv", Meta::Int(3), &["kv heads", "a divisor of 4"]),
        ("attention.value_length", Meta::Int(8), &["attention.value_length", "the key length 16", "8"]),
        ("attention.layer_norm_rms_epsilon", Meta::Float(f64::NAN), &["epsilon", "NaN"]),
        ("rope.dimension_count", Meta::Int(18), &["rotary dimensions", "18"]),
        ("rope.scaling.type", Meta::Str("longrope".into()), &["llama.rope.scaling.type", "longrope"]),
        ("expert_count", Meta::Int(8), &["llama.expert_count = 8"]),
        ("vocab_size", Meta::Int(0), &["llama.vocab_size"]),
    ];
    for (key, value, words) in table {
        refused(gguf(&pairs("llama", &[(key, value.clone())])), words);
    }
    let tokens = Meta::Strs(vec!["a".into(), "b".into()]);
    let vocab = pairs("llama", &[("tokenizer.ggml.tokens", tokens), ("vocab_size", Meta::Int(3))]);
    refused(gguf(&vocab), &["vocabulary", "expected 2", "got 3"]);
    refused(gguf(&pairs("mamba", &[])), &["`mamba`", "m.gguf", "llama, qwen2, qwen3, gemma3"]);
    refused(gguf(&[]), &["general.architecture", "no such key"]);
}

#[test]
fn hugging_face_llama_ignores_what_transformers_ignores_there() {
    let plain = hf(llama(json!({}))).unwrap();
    let named = hf(llama(json!({"sliding_window": 2, "attn_logit_softcapping": 30.0}))).unwrap();
    assert_eq!((&named.windows, named.softcap), (&plain.windows, 0.0));
    let mistral = hf(llama(json!({"model_type": "mistral", "sliding_window": 2}))).unwrap();
    assert!(mistral.windows.iter().all(|&window| window == 2), "{:?}", mistral.windows);
}
