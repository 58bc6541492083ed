//! A whole random llama of a few tens of kilobytes.

use serde_json::{Map, Value, json};
use twostroke::format::block::BlockFormat;

use super::gguf::{GgufWriter, Meta};
use super::quant::encode;
use super::safetensors::SafetensorsWriter;
use super::vocab::{VOCAB, Vocab};
use super::{Files, Rng};

/// Sizes and seed of a random llama. The defaults make every matrix row whole blocks of 32.
#[derive(Clone, Debug)]
pub(crate) struct TinyLlama {
    pub(crate) vocab: Vocab,
    pub(crate) hidden: u64,
    pub(crate) ffn: u64,
    pub(crate) layers: u64,
    pub(crate) heads: u64,
    pub(crate) kv_heads: u64,
    pub(crate) head_dim: u64,
    pub(crate) context: u64,
    /// Whether the logits use the embedding, so that there is no output matrix.
    pub(crate) tied: bool,
    pub(crate) seed: u64,
}

impl Default for TinyLlama {
    fn default() -> Self {
        Self {
            vocab: Vocab::Bpe,
            hidden: 64,
            ffn: 96,
            layers: 2,
            heads: 4,
            kv_heads: 2,
            head_dim: 16,
            context: 256,
            tied: true,
            seed: 1,
        }
    }
}

/// A tensor by its Hugging Face name, with q and k in the half-split rotary order.
pub(crate) struct Weights {
    pub(crate) name: String,
    pub(crate) shape: Vec<u64>,
    pub(crate) floats: Vec<f32>,
}

impl TinyLlama {
    /// All weights, the embedding first.
    pub(crate) fn weights(&self) -> Vec<Weights> {
        let mut rng = Rng(self.seed);
        let mut out = Vec::new();
        let mut add = |name: String, shape: &[u64]| {
            let count = shape.iter().product::<u64>();
            // Norms near 1; rows of matrices of length about 1, embeddings of length about 8.
            let (middle, spread) = match shape {
                [_] => (1.0, 0.125),
                _ if name.contains("embed") => (0.0, 1.0),
                _ => (0.0, (3.0 / shape[1] as f32).sqrt()),
            };
            let floats = (0..count).map(|_| middle + spread * rng.signed_unit()).collect();
            out.push(Weights { name, shape: shape.to_vec(), floats });
        };
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        add("model.embed_tokens.weight".into(), &[VOCAB as u64, self.hidden]);
        for layer in 0..self.layers {
            let name = |part: &str| format!("model.layers.{layer}.{part}.weight");
            add(name("input_layernorm"), &[self.hidden]);
            add(name("self_attn.q_proj"), &[q, self.hidden]);
            add(name("self_attn.k_proj"), &[kv, self.hidden]);
            add(name("self_attn.v_proj"), &[kv, self.hidden]);
            add(name("self_attn.o_proj"), &[self.hidden, q]);
            add(name("post_attention_layernorm"), &[self.hidden]);
            add(name("mlp.gate_proj"), &[self.ffn, self.hidden]);
            add(name("mlp.up_proj"), &[self.ffn, self.hidden]);
            add(name("mlp.down_proj"), &[self.hidden, self.ffn]);
        }
        add("model.norm.weight".into(), &[self.hidden]);
        if !self.tied {
            add("lm_head.weight".into(), &[VOCAB as u64, self.hidden]);
        }
        out
    }

    /// The model as a GGUF: matrices in `format`, norms in f32, q and k permuted as llama.cpp's converter does.
    pub(crate) fn gguf(&self, format: BlockFormat) -> GgufWriter {
        let mut gguf = GgufWriter::new();
        gguf.set("general.architecture", Meta::str("llama"));
        gguf.set("general.name", Meta::str("tiny"));
        let number = |n: u64| Meta::U32(u32::try_from(n).expect("tiny"));
        for (key, value) in [
            ("llama.block_count", self.layers),
            ("llama.context_length", self.context),
            ("llama.embedding_length", self.hidden),
            ("llama.feed_forward_length", self.ffn),
            ("llama.attention.head_count", self.heads),
            ("llama.attention.head_count_kv", self.kv_heads),
            ("llama.rope.dimension_count", self.head_dim),
            ("llama.vocab_size", VOCAB as u64),
        ] {
            gguf.set(key, number(value));
        }
        if self.heads * self.head_dim != self.hidden {
            gguf.set("llama.attention.key_length", number(self.head_dim));
            gguf.set("llama.attention.value_length", number(self.head_dim));
        }
        gguf.set("llama.attention.layer_norm_rms_epsilon", Meta::F32(1e-5));
        gguf.set("llama.rope.freq_base", Meta::F32(10_000.0));
        self.vocab.describe(&mut gguf);
        for mut weights in self.weights() {
            if weights.name.contains("q_proj") || weights.name.contains("k_proj") {
                weights.floats = self.interleaved(&weights);
            }
            let format = if weights.shape.len() == 1 { BlockFormat::F32 } else { format };
            gguf.tensor(&gguf_name(&weights.name), &weights.shape, format, encode(format, &weights.floats));
        }
        gguf
    }

    /// The model as a Hugging Face folder in `format` (a float one), in one file or several with an index.
    pub(crate) fn folder(&self, format: BlockFormat, shards: usize) -> Files {
        let mut writers = vec![SafetensorsWriter::default(); shards];
        let mut weight_map = Map::new();
        let shard_name = |shard: usize| match shards {
            1 => "model.safetensors".to_owned(),
            _ => format!("model-{:05}-of-{shards:05}.safetensors", shard + 1),
        };
        for (i, weights) in self.weights().into_iter().enumerate() {
            let shard = i % shards;
            writers[shard].tensor(&weights.name, &weights.shape, format, encode(format, &weights.floats));
            weight_map.insert(weights.name, json!(shard_name(shard)));
        }
        let mut files: Files = vec![
            json_file("config.json", &self.config(format)),
            json_file("tokenizer.json", &self.vocab.tokenizer_json()),
            json_file("tokenizer_config.json", &self.vocab.tokenizer_config()),
        ];
        if shards > 1 {
            files.push(json_file("model.safetensors.index.json", &json!({"metadata": {}, "weight_map": weight_map})));
        }
        files.extend(writers.iter().enumerate().map(|(shard, writer)| (shard_name(shard), writer.bytes())));
        files
    }

    /// `config.json`.
    pub(crate) fn config(&self, format: BlockFormat) -> Value {
        let dtype = match format {
            BlockFormat::F16 => "float16",
            BlockFormat::Bf16 => "bfloat16",
            _ => "float32",
        };
        json!({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
            "hidden_size": self.hidden, "intermediate_size": self.ffn, "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads, "num_key_value_heads": self.kv_heads, "head_dim": self.head_dim,
            "max_position_embeddings": self.context, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": null,
            "vocab_size": VOCAB, "tie_word_embeddings": self.tied, "attention_bias": false, "mlp_bias": false,
            "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": dtype,
        })
    }

    /// Rows of each head from the half-split rotary order to pairs side by side.
    fn interleaved(&self, weights: &Weights) -> Vec<f32> {
        let columns = usize::try_from(weights.shape[1]).expect("tiny");
        let half = usize::try_from(self.head_dim / 2).expect("tiny");
        let mut out = Vec::with_capacity(weights.floats.len());
        for head in weights.floats.chunks_exact(2 * half * columns) {
            for i in 0..half {
                out.extend_from_slice(&head[i * columns..][..columns]);
                out.extend_from_slice(&head[(half + i) * columns..][..columns]);
            }
        }
        out
    }
}

/// A file of JSON text.
pub(super) fn json_file(name: &str, value: &Value) -> (String, Vec<u8>) {
    (name.to_owned(), value.to_string().into_bytes())
}

/// llama.cpp's name of a tensor.
fn gguf_name(name: &str) -> String {
    let name = name.strip_suffix(".weight").expect("all are weights");
    let new = match name {
        "model.embed_tokens" => "token_embd".to_owned(),
        "model.norm" => "output_norm".to_owned(),
        "lm_head" => "output".to_owned(),
        _ => {
            let (layer, part) = name.strip_prefix("model.layers.").and_then(|n| n.split_once('.')).expect("a layer");
            let part = match part {
                "input_layernorm" => "attn_norm",
                "self_attn.q_proj" => "attn_q",
                "self_attn.k_proj" => "attn_k",
                "self_attn.v_proj" => "attn_v",
                "self_attn.o_proj" => "attn_output",
                "post_attention_layernorm" => "ffn_norm",
                "mlp.gate_proj" => "ffn_gate",
                "mlp.up_proj" => "ffn_up",
                "mlp.down_proj" => "ffn_down",
                other => panic!("no GGUF name for {other}"),
            };
            format!("blk.{layer}.{part}")
        }
    };
    new + ".weight"
}
