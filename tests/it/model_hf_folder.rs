//! SmolLM2's GGUF as the Hugging Face folder that it came from: weights dequantised and rounded to f16, q and k rows put
//! back from rotary pairs side by side to halves, in one file or several with an index.

use std::io::{BufWriter, Write};
use std::path::Path;

use serde_json::{Map, Value, json};
use twostroke::format::block::BlockFormat;
use twostroke::format::model_files::{Description, ModelFiles};
use twostroke::format::table::Tensor;

/// A tensor of the GGUF under its name in the folder, and the heads whose rows are to be put back.
struct Entry<'a> {
    name: String,
    tensor: &'a Tensor,
    heads: Option<usize>,
}

/// Writes config.json and the weights. A llama-architecture GGUF only.
pub(crate) fn write_f16_folder(gguf: &ModelFiles, folder: &Path, shards: usize) {
    let Description::Gguf(metadata) = &gguf.description else { panic!("not a GGUF") };
    let number = |key: &str| metadata.u64(&format!("llama.{key}")).unwrap().unwrap();
    let (heads, kv_heads) = (number("attention.head_count"), number("attention.head_count_kv"));
    let mut entries: Vec<Entry<'_>> = gguf.table.tensors.iter().map(|tensor| entry(tensor, heads, kv_heads)).collect();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let mut weight_map = Map::new();
    for shard in 0..shards {
        let file = match shards {
            1 => "model.safetensors".to_owned(),
            _ => format!("model-{:05}-of-{shards:05}.safetensors", shard + 1),
        };
        let part: Vec<_> = entries.iter().skip(shard).step_by(shards).collect();
        weight_map.extend(part.iter().map(|entry| (entry.name.clone(), json!(file))));
        write_shard(gguf, &folder.join(file), &part);
    }
    let write = |name: &str, value: Value| std::fs::write(folder.join(name), value.to_string()).unwrap();
    if shards > 1 {
        write("model.safetensors.index.json", json!({"metadata": {}, "weight_map": weight_map}));
    }
    let vocab = metadata.strs("tokenizer.ggml.tokens").unwrap().unwrap().len();
    let eps = metadata.f64("llama.attention.layer_norm_rms_epsilon").unwrap();
    write(
        "config.json",
        json!({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
            "hidden_size": number("embedding_length"), "intermediate_size": number("feed_forward_length"),
            "num_hidden_layers": number("block_count"), "num_attention_heads": heads,
            "num_key_value_heads": kv_heads, "max_position_embeddings": number("context_length"),
            "rms_norm_eps": eps, "rope_theta": metadata.f64("llama.rope.freq_base").unwrap(), "rope_scaling": null,
            "vocab_size": vocab, "tie_word_embeddings": gguf.table.get("output.weight").is_none(),
            "attention_bias": false, "mlp_bias": false, "torch_dtype": "float16",
        }),
    );
}

fn entry(tensor: &Tensor, heads: u64, kv_heads: u64) -> Entry<'_> {
    let stem = tensor.name.strip_suffix(".weight").expect("all tensors are weights");
    let name = match stem {
        "token_embd" => "model.embed_tokens".to_owned(),
        "output_norm" => "model.norm".to_owned(),
        "output" => "lm_head".to_owned(),
        _ => {
            let (layer, part) = stem.strip_prefix("blk.").and_then(|rest| rest.split_once('.')).expect("a layer");
            let part = match part {
                "attn_q" => "self_attn.q_proj",
                "attn_k" => "self_attn.k_proj",
                "attn_v" => "self_attn.v_proj",
                "attn_output" => "self_attn.o_proj",
                "ffn_gate" => "mlp.gate_proj",
                "ffn_up" => "mlp.up_proj",
                "ffn_down" => "mlp.down_proj",
                "attn_norm" => "input_layernorm",
                "ffn_norm" => "post_attention_layernorm",
                other => panic!("no name for {other}"),
            };
            format!("model.layers.{layer}.{part}")
        }
    };
    let heads = match stem.rsplit('.').next() {
        Some("attn_q") => Some(heads),
        Some("attn_k") => Some(kv_heads),
        _ => None,
    };
    Entry { name: name + ".weight", tensor, heads: heads.map(|n| usize::try_from(n).unwrap()) }
}

fn write_shard(gguf: &ModelFiles, path: &Path, entries: &[&Entry<'_>]) {
    let mut header = Map::new();
    let mut from = 0;
    for entry in entries {
        let to = from + 2 * entry.tensor.shape.iter().product::<u64>();
        let facts = json!({"dtype": "F16", "shape": entry.tensor.shape, "data_offsets": [from, to]});
        header.insert(entry.name.clone(), facts);
        from = to;
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut out = BufWriter::new(std::fs::File::create(path).unwrap());
    out.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    out.write_all(&header).unwrap();
    for entry in entries {
        out.write_all(&f16_bytes(gguf, entry)).unwrap();
    }
    out.flush().unwrap();
}

fn f16_bytes(gguf: &ModelFiles, entry: &Entry<'_>) -> Vec<u8> {
    let tensor = entry.tensor;
    let count = usize::try_from(tensor.shape.iter().product::<u64>()).unwrap();
    let mut bytes = Vec::new();
    let rows = if tensor.shape.len() == 1 { 1 } else { tensor.shape[0] };
    gguf.table.read_rows(tensor, 0, rows, &mut bytes).unwrap();
    let mut floats = vec![0.0; count];
    let format: BlockFormat = tensor.format;
    format.decode(&bytes, &mut floats).unwrap();
    if let Some(heads) = entry.heads {
        let columns = usize::try_from(tensor.shape[1]).unwrap();
        let half = count / columns / heads / 2;
        let from = |head: usize, row: usize| head * 2 * half + 2 * (row % half) + row / half;
        let order = (0..heads).flat_map(|head| (0..2 * half).map(move |row| from(head, row)));
        floats = order.flat_map(|row| floats[row * columns..][..columns].to_vec()).collect();
    }
    floats.iter().flat_map(|w| half::f16::from_f32(*w).to_le_bytes()).collect()
}
