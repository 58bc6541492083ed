//! Models of random weights in the shapes of published ones: for `bench` on adapters that hold them, with nothing to download.

use serde_json::json;

use crate::error::{Error, Result};
use crate::format::model_files::ModelFiles;
use crate::format::random::{self, Shape};

/// Prefix of their names.
pub const PREFIX: &str = "random:";

/// What `--model random:` takes.
pub const SIZES: [&str; 3] = ["135M", "1B", "8B"];

struct Size {
    hidden: u64,
    intermediate: u64,
    layers: u64,
    heads: u64,
    kv_heads: u64,
    vocab: u64,
    tied: bool,
}

/// SmolLM2-135M, Llama 3.2 1B and Llama 3.1 8B.
fn size(name: &str) -> Option<Size> {
    let vocab = 128_256;
    Some(match name {
        "135M" => {
            Size { hidden: 576, intermediate: 1536, layers: 30, heads: 9, kv_heads: 3, vocab: 49_152, tied: true }
        }
        "1B" => Size { hidden: 2048, intermediate: 8192, layers: 16, heads: 32, kv_heads: 8, vocab, tied: true },
        "8B" => Size { hidden: 4096, intermediate: 14_336, layers: 32, heads: 32, kv_heads: 8, vocab, tied: false },
        _ => return None,
    })
}

/// The model of that size: matrices in Q4_0.
///
/// # Errors
/// `Usage` for a size that is not in [`SIZES`].
pub fn files(name: &str) -> Result<ModelFiles> {
    let Some(size) = size(name) else {
        return Err(Error::Usage(format!("--model {PREFIX}: expected one of {}, got {name}", SIZES.join(", "))));
    };
    let Size { hidden, intermediate, layers, heads, kv_heads, vocab, tied } = size;
    let head_dim = hidden / heads;
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim, "vocab_size": vocab,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500_000.0, "tie_word_embeddings": tied,
    });
    let mut shapes = Vec::new();
    let mut add = |name: String, axes: &[u64]| shapes.push(Shape { name, axes: axes.to_vec() });
    add("model.embed_tokens.weight".into(), &[vocab, hidden]);
    add("model.norm.weight".into(), &[hidden]);
    if !tied {
        add("lm_head.weight".into(), &[vocab, hidden]);
    }
    for layer in 0..layers {
        let name = |rest: &str| format!("model.layers.{layer}.{rest}.weight");
        let kv = kv_heads * head_dim;
        let matrices = [
            ("self_attn.q_proj", [hidden, hidden]),
            ("self_attn.k_proj", [kv, hidden]),
            ("self_attn.v_proj", [kv, hidden]),
            ("self_attn.o_proj", [hidden, hidden]),
            ("mlp.gate_proj", [intermediate, hidden]),
            ("mlp.up_proj", [intermediate, hidden]),
            ("mlp.down_proj", [hidden, intermediate]),
        ];
        matrices.iter().for_each(|(rest, axes)| add(name(rest), axes));
        ["input_layernorm", "post_attention_layernorm"].iter().for_each(|rest| add(name(rest), &[hidden]));
    }
    random::files(&format!("{PREFIX}{name}"), config, shapes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_parameters_of_their_names() {
        for (name, billions) in [("135M", 0.1345), ("1B", 1.236), ("8B", 8.03)] {
            let files = files(name).unwrap();
            let params: u64 = files.table.tensors.iter().map(|t| t.shape.iter().product::<u64>()).sum();
            assert!((params as f64 / 1e9 / billions - 1.0).abs() < 0.01, "{name}: {params}");
        }
        assert!(SIZES.iter().all(|name| files(name).is_ok()));
        assert_eq!(files("2B").unwrap_err().exit_code(), 2);
    }
}
