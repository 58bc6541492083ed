//! Configuration from the metadata of a GGUF.

use super::arch::{ArchSpec, Windows};
use super::config::{self, Config, bounded};
use super::rope::{Rope, Scaling, yarn_magnitude};
use crate::error::{Error, Result};
use crate::format::gguf::Metadata;
use crate::format::table::TensorTable;
use crate::limits;

/// Look-ups of the keys that start with the architecture's name.
struct Keys<'a> {
    metadata: &'a Metadata,
    arch: &'a str,
}

impl Keys<'_> {
    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.arch)
    }
    fn u64(&self, key: &str) -> Result<Option<u64>> {
        self.metadata.u64(&self.key(key))
    }
    fn f64(&self, key: &str) -> Result<Option<f64>> {
        self.metadata.f64(&self.key(key))
    }
    fn bounded(&self, key: &str, max: u32) -> Result<u32> {
        bounded(self.u64(key)?, max, &self.metadata.file, &self.key(key))
    }
    fn bounded_or(&self, key: &str, max: u32, default: u32) -> Result<u32> {
        match self.u64(key)? {
            None => Ok(default),
            value => bounded(value, max, &self.metadata.file, &self.key(key)),
        }
    }
    fn unsupported<T>(&self, key: &str, value: impl std::fmt::Display) -> Result<T> {
        Err(Error::unsupported(format!("{} = {value} ({})", self.key(key), self.metadata.file), ""))
    }
}

/// Reads the configuration. `table` tells of tensors that stand for keys (RoPE factors).
pub(super) fn read(metadata: &Metadata, table: &TensorTable) -> Result<Config> {
    let file = &metadata.file;
    let name = metadata.str("general.architecture")?.ok_or_else(|| {
        Error::format("model configuration", "a text", "no such key", format!("{file}, key general.architecture"))
    })?;
    let arch = ArchSpec::of_gguf(name, file)?;
    let keys = Keys { metadata, arch: name };
    if let Some(experts) = keys.u64("expert_count")?.filter(|&n| n > 0) {
        return keys.unsupported("expert_count", experts);
    }
    if let Some(cap) = keys.f64("final_logit_softcapping")?.filter(|&cap| cap != 0.0) {
        return keys.unsupported("final_logit_softcapping", cap);
    }
    let layers = keys.bounded("block_count", limits::LAYERS_MAX)?;
    let hidden = keys.bounded("embedding_length", limits::HIDDEN_MAX)?;
    let heads = keys.bounded("attention.head_count", limits::HEADS_MAX)?;
    let head_dim = keys.bounded_or("attention.key_length", limits::HEAD_DIM_MAX, (hidden / heads).max(1))?;
    let value_dim = keys.bounded_or("attention.value_length", limits::HEAD_DIM_MAX, head_dim)?;
    if value_dim != head_dim {
        let place = format!("{file}, key {}", keys.key("attention.value_length"));
        return Err(Error::format("model configuration", format!("the key length {head_dim}"), value_dim, place));
    }
    let eps = keys.f64("attention.layer_norm_rms_epsilon")?.ok_or_else(|| {
        let place = format!("{file}, key {}", keys.key("attention.layer_norm_rms_epsilon"));
        Error::format("model configuration", "a number", "no such key", place)
    })?;
    let attn_scale = match keys.f64("attention.scale")?.filter(|&scale| scale != 0.0) {
        Some(scale) => config::single(scale),
        None => config::gguf_query_scale(arch, layers, hidden, heads, head_dim),
    };
    let context = keys.bounded("context_length", limits::CONTEXT_MAX)?;
    let (rope, local_rope) = ropes(&keys, arch, head_dim, context, table)?;
    Ok(Config {
        arch,
        names: arch.gguf_names,
        file: file.clone(),
        layers,
        hidden,
        intermediate: keys.bounded("feed_forward_length", limits::INTERMEDIATE_MAX)?,
        heads,
        kv_heads: keys.bounded_or("attention.head_count_kv", limits::HEADS_MAX, heads)?,
        head_dim,
        vocab: vocab(&keys)?,
        context,
        eps: config::single(eps),
        norm_offset: 0.0,
        tied: None,
        activation: arch.activation,
        pairing: arch.gguf_pairing,
        rope,
        local_rope,
        windows: windows(&keys, arch, layers)?,
        attn_scale,
        softcap: config::single(keys.f64("attn_logit_softcapping")?.unwrap_or(0.0)),
        embed_scale: config::embed_scale(arch, hidden),
        biases: config::bias_rules(arch, |_| Ok(None))?,
    })
}

/// Tokens of the tokenizer, which must be the rows of the embedding; the key `vocab_size` must agree.
fn vocab(keys: &Keys<'_>) -> Result<Option<u32>> {
    let file = &keys.metadata.file;
    let tokens = keys.metadata.strs("tokenizer.ggml.tokens")?.map(|tokens| tokens.len() as u64);
    let stated = keys.u64("vocab_size")?;
    if let (Some(tokens), Some(stated)) = (tokens, stated)
        && tokens != stated
    {
        let place = format!("{file}, key {}", keys.key("vocab_size"));
        return Err(Error::format("vocabulary", format!("{tokens}, as tokenizer.ggml.tokens holds"), stated, place));
    }
    let key = if tokens.is_some() { "tokenizer.ggml.tokens".to_owned() } else { keys.key("vocab_size") };
    match tokens.or(stated) {
        None => Ok(None),
        vocab => bounded(vocab, limits::VOCAB_MAX, file, &key).map(Some),
    }
}

fn windows(keys: &Keys<'_>, arch: &ArchSpec, layers: u32) -> Result<Vec<u32>> {
    let window = match keys.u64("attention.sliding_window")? {
        None | Some(0) => 0,
        Some(n) => u32::try_from(n).unwrap_or(limits::CONTEXT_MAX).min(limits::CONTEXT_MAX),
    };
    let pattern = match arch.windows {
        Windows::All | Windows::GgufOnly => None,
        Windows::Tail => return Ok(vec![0; layers as usize]),
        Windows::AllButEach(n) => Some(keys.bounded_or("attention.sliding_window_pattern", limits::LAYERS_MAX, n)?),
    };
    let whole = |layer: u32| pattern.is_some_and(|n| (layer + 1).is_multiple_of(n));
    Ok((0..layers).map(|layer| if whole(layer) { 0 } else { window }).collect())
}

/// RoPE of all layers, and of those with a window where it differs: its own base, never stretched.
fn ropes(
    keys: &Keys<'_>,
    arch: &ArchSpec,
    head_dim: u32,
    context: u32,
    table: &TensorTable,
) -> Result<(Rope, Option<Rope>)> {
    let rotary_dim = keys.bounded_or("rope.dimension_count", limits::HEAD_DIM_MAX, head_dim)?;
    let theta = keys.f64("rope.freq_base")?.unwrap_or(10_000.0);
    let mut scaling = scaling(keys, context)?;
    if let Some(tensor) = table.get("rope_freqs.weight") {
        if tensor.shape != [u64::from(rotary_dim / 2)] {
            let (expected, got) = (format!("[{}]", rotary_dim / 2), format!("{:?}", tensor.shape));
            return Err(Error::format("tensor shape", expected, got, table.place(tensor)));
        }
        if scaling != Scaling::None {
            return keys.unsupported("rope.scaling.type", "(beside rope_freqs.weight)");
        }
        scaling = Scaling::Factors(table.read_floats(tensor)?);
    }
    let local = match arch.local_theta {
        None => None,
        Some(theta) => {
            let theta = keys.f64("rope.freq_base_swa")?.unwrap_or(theta);
            Some(Rope { theta, rotary_dim, scaling: Scaling::None })
        }
    };
    Ok((Rope { theta, rotary_dim, scaling }, local))
}

fn scaling(keys: &Keys<'_>, context: u32) -> Result<Scaling> {
    let factor = match keys.f64("rope.scaling.factor")? {
        None => keys.f64("rope.scale_linear")?,
        factor => factor,
    };
    let factor = factor.filter(|&f| f != 0.0).unwrap_or(1.0);
    match keys.metadata.str(&keys.key("rope.scaling.type"))? {
        Some("none") => Ok(Scaling::None),
        None | Some("linear") if factor == 1.0 => Ok(Scaling::None),
        None | Some("linear") => Ok(Scaling::Linear { factor }),
        Some("yarn") => {
            let original = keys.f64("rope.scaling.original_context_length")?;
            let number = |key: &str, default: f64| Ok::<_, Error>(keys.f64(key)?.unwrap_or(default));
            if let Some(ext) = keys.f64("rope.scaling.yarn_ext_factor")?.filter(|&f| f != 1.0) {
                return keys.unsupported("rope.scaling.yarn_ext_factor", ext);
            }
            let attn_factor = number("rope.scaling.attn_factor", 1.0)? * number("rope.scaling.yarn_attn_factor", 1.0)?;
            Ok(Scaling::Yarn {
                factor,
                original_context: original.unwrap_or(f64::from(context)),
                beta_fast: number("rope.scaling.yarn_beta_fast", 32.0)?,
                beta_slow: number("rope.scaling.yarn_beta_slow", 1.0)?,
                attention_factor: attn_factor * yarn_magnitude(factor, 1.0),
                truncate: true,
            })
        }
        Some(other) => keys.unsupported("rope.scaling.type", other),
    }
}
