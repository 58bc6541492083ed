//! Configuration from the config.json of a Hugging Face folder, in its older and newer spellings.

use serde_json::Value;

use super::arch::{ArchSpec, QueryScale, Windows};
use super::config::{self, Config, bounded};
use super::json::Json;
use super::rope::{Rope, Scaling, yarn_magnitude};
use crate::error::{Error, Result};
use crate::format::model_files::Folder;
use crate::kernels::gate_act::Activation;
use crate::kernels::rope_kv::Pairing;
use crate::limits;

/// Look-ups that fall back on the architecture's defaults.
struct Keys<'a> {
    json: Json<'a>,
    arch: &'static ArchSpec,
}

impl Keys<'_> {
    fn default(&self, key: &str) -> Option<f64> {
        self.arch.hf_defaults.iter().find(|(name, _)| *name == key).map(|&(_, value)| value)
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "defaults of integers are small integers"
    )]
    fn u64(&self, key: &str) -> Result<Option<u64>> {
        Ok(self.json.u64(key)?.or_else(|| self.default(key).map(|f| f as u64)))
    }
    fn f64(&self, key: &str) -> Result<Option<f64>> {
        Ok(self.json.f64(key)?.or_else(|| self.default(key)))
    }
    fn bounded(&self, key: &str, max: u32) -> Result<u32> {
        bounded(self.u64(key)?, max, self.json.file, key)
    }
    fn bounded_or(&self, key: &str, max: u32, default: u32) -> Result<u32> {
        match self.u64(key)? {
            None => Ok(default),
            value => bounded(value, max, self.json.file, key),
        }
    }
    fn bad<T>(&self, key: &str, expected: impl ToString, got: impl ToString) -> Result<T> {
        Err(Error::format("model configuration", expected, got, format!("{}, key {key}", self.json.file)))
    }
}

/// Reads the configuration.
pub(super) fn read(folder: &Folder) -> Result<Config> {
    let file = folder.path.join("config.json").display().to_string();
    let outer = Json { file: &file, value: &folder.config };
    let class = outer.array("architectures")?.and_then(|a| a.first()).and_then(Value::as_str);
    let arch = ArchSpec::of_hf(outer.str("model_type")?, class, &file)?;
    let inner = match arch.nested {
        Some(key) => outer.object(key)?.unwrap_or(outer),
        None => outer,
    };
    let keys = Keys { json: inner, arch };
    refuse_unsupported(&keys, outer)?;
    let layers = keys.bounded("num_hidden_layers", limits::LAYERS_MAX)?;
    let hidden = keys.bounded("hidden_size", limits::HIDDEN_MAX)?;
    let heads = keys.bounded("num_attention_heads", limits::HEADS_MAX)?;
    let head_dim = keys.bounded_or("head_dim", limits::HEAD_DIM_MAX, (hidden / heads).max(1))?;
    let context = keys.bounded("max_position_embeddings", limits::CONTEXT_MAX)?;
    let (rope, local_rope) = ropes(&keys, head_dim, context)?;
    let tied = inner.bool("tie_word_embeddings")?.or(outer.bool("tie_word_embeddings")?);
    let attn_scale = match arch.query_scale {
        QueryScale::HeadDim => f64::from(head_dim),
        QueryScale::Scalar { .. } => keys.f64("query_pre_attn_scalar")?.unwrap_or(f64::from(head_dim)),
    };
    Ok(Config {
        arch,
        names: arch.hf_names,
        file: file.clone(),
        layers,
        hidden,
        intermediate: keys.bounded("intermediate_size", limits::INTERMEDIATE_MAX)?,
        heads,
        kv_heads: keys.bounded_or("num_key_value_heads", limits::HEADS_MAX, heads)?,
        head_dim,
        vocab: Some(keys.bounded("vocab_size", limits::VOCAB_MAX)?),
        context,
        eps: config::single(keys.f64("rms_norm_eps")?.unwrap_or(f64::NAN)),
        norm_offset: arch.hf_norm_offset,
        tied: Some(tied.unwrap_or(arch.tied_default)),
        activation: activation(&keys)?,
        pairing: Pairing::Halves,
        rope,
        local_rope,
        windows: windows(&keys, layers)?,
        attn_scale: config::inverse_sqrt(attn_scale),
        softcap: config::single(inner.f64("attn_logit_softcapping")?.filter(|_| arch.softcap).unwrap_or(0.0)),
        embed_scale: config::embed_scale(arch, hidden),
        biases: config::bias_rules(arch, |key| Ok(Some(inner.bool(key)?.unwrap_or(false))))?,
    })
}

/// What would silently give other numbers.
fn refuse_unsupported(keys: &Keys<'_>, outer: Json<'_>) -> Result<()> {
    let refuse = |what: String, hint: &str| Err(Error::unsupported(format!("{what} ({})", outer.file), hint));
    if let Some(method) = outer.object("quantization_config")? {
        let name = method.str("quant_method")?.unwrap_or("unnamed").to_owned();
        return refuse(format!("quantization_config of method {name}"), "take the float checkpoint or a GGUF");
    }
    if let Some(cap) = keys.json.f64("final_logit_softcapping")? {
        return refuse(format!("final_logit_softcapping = {cap}"), "");
    }
    if keys.json.bool("use_bidirectional_attention")? == Some(true) {
        return refuse("use_bidirectional_attention = true".into(), "");
    }
    Ok(())
}

fn activation(keys: &Keys<'_>) -> Result<Activation> {
    let (key, name) = match keys.json.str("hidden_activation")? {
        Some(name) => ("hidden_activation", Some(name)),
        None => ("hidden_act", keys.json.str("hidden_act")?),
    };
    match name {
        None => Ok(keys.arch.activation),
        Some("silu" | "swish") => Ok(Activation::Silu),
        Some("gelu_pytorch_tanh") => Ok(Activation::GeluTanh),
        Some(other) => keys.bad(key, "silu or gelu_pytorch_tanh", other),
    }
}

/// Window of each layer: `layer_types` where the file has it, else the architecture's rule.
fn windows(keys: &Keys<'_>, layers: u32) -> Result<Vec<u32>> {
    let used = match keys.arch.windows {
        Windows::Tail => keys.json.bool("use_sliding_window")?.unwrap_or(false),
        Windows::GgufOnly => false,
        Windows::All | Windows::AllButEach(_) => true,
    };
    let window = match keys.u64("sliding_window")? {
        Some(n) if used => Some(bounded(Some(n), u32::MAX, keys.json.file, "sliding_window")?.min(limits::CONTEXT_MAX)),
        _ => None,
    };
    if let Some(types) = keys.json.array("layer_types")? {
        if types.len() != layers as usize {
            return keys.bad("layer_types", format!("{layers} entries"), types.len());
        }
        let one = |kind: &Value| match (kind.as_str(), window) {
            (Some("full_attention"), _) => Ok(0),
            (Some("sliding_attention"), Some(window)) => Ok(window),
            (Some("sliding_attention"), None) => keys.bad("sliding_window", "a size", "none"),
            _ => keys.bad("layer_types", "full_attention or sliding_attention", kind),
        };
        return types.iter().map(one).collect();
    }
    let Some(window) = window else { return Ok(vec![0; layers as usize]) };
    let whole: Box<dyn Fn(u32) -> bool> = match keys.arch.windows {
        Windows::All | Windows::GgufOnly => Box::new(|_| false),
        Windows::Tail => {
            let first = keys.json.u64("max_window_layers")?.unwrap_or(0);
            Box::new(move |layer| u64::from(layer) < first)
        }
        Windows::AllButEach(n) => {
            let stated = keys.json.u64("sliding_window_pattern")?.or(keys.json.u64("_sliding_window_pattern")?);
            let n = bounded(stated.or(Some(n.into())), limits::LAYERS_MAX, keys.json.file, "sliding_window_pattern")?;
            Box::new(move |layer| (layer + 1).is_multiple_of(n))
        }
    };
    Ok((0..layers).map(|layer| if whole(layer) { 0 } else { window }).collect())
}

/// RoPE of all layers, and of those with a window where it differs.
///
/// Newer files have `rope_parameters`, one object or one a layer type; older ones `rope_theta` and `rope_scaling`, and
/// `rope_local_base_freq` for layers with a window.
fn ropes(keys: &Keys<'_>, head_dim: u32, context: u32) -> Result<(Rope, Option<Rope>)> {
    let parameters = keys.json.object("rope_parameters")?;
    if let Some(parameters) = parameters
        && let Some(full) = parameters.object("full_attention")?
    {
        let local = parameters.object("sliding_attention")?;
        let local = local.map(|p| rope(keys, Some(p), keys.arch.local_theta, head_dim, context)).transpose()?;
        let full = rope(keys, Some(full), None, head_dim, context)?;
        return Ok((full.clone(), local.filter(|l| *l != full)));
    }
    let older = keys.json.object("rope_scaling")?;
    let stretch = match (parameters, older) {
        // transformers takes the older key where both are there; files that mean one thing twice are fine.
        (Some(parameters), Some(older)) => {
            if scaling(keys, parameters, context)? != scaling(keys, older, context)? {
                return keys.bad("rope_scaling", "what rope_parameters says", "another scaling");
            }
            Some(parameters)
        }
        (parameters, older) => parameters.or(older),
    };
    let full = rope(keys, stretch, None, head_dim, context)?;
    let local = match keys.arch.local_theta {
        None => None,
        Some(theta) => {
            let theta = keys.json.f64("rope_local_base_freq")?.unwrap_or(theta);
            Some(Rope { theta, rotary_dim: full.rotary_dim, scaling: Scaling::None })
        }
    };
    Ok((full, local))
}

fn rope(
    keys: &Keys<'_>,
    parameters: Option<Json<'_>>,
    default_theta: Option<f64>,
    head_dim: u32,
    context: u32,
) -> Result<Rope> {
    let number = |key: &str| match parameters {
        Some(parameters) => parameters.f64(key),
        None => Ok(None),
    };
    let theta = match (number("rope_theta")?, default_theta) {
        (Some(theta), _) | (None, Some(theta)) => theta,
        (None, None) => keys.f64("rope_theta")?.unwrap_or(10_000.0),
    };
    let partial = number("partial_rotary_factor")?.or(keys.json.f64("partial_rotary_factor")?).unwrap_or(1.0);
    let rotary_dim = f64::from(head_dim) * partial;
    if !(rotary_dim.is_finite() && (0.0..=f64::from(head_dim)).contains(&rotary_dim)) {
        return keys.bad("partial_rotary_factor", "from 0 to 1", partial);
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to the head size")]
    let rotary_dim = rotary_dim as u32;
    let scaling = match parameters {
        None => Scaling::None,
        Some(parameters) => scaling(keys, parameters, context)?,
    };
    Ok(Rope { theta, rotary_dim, scaling })
}

fn scaling(keys: &Keys<'_>, parameters: Json<'_>, context: u32) -> Result<Scaling> {
    let kind = parameters.str("rope_type")?.or(parameters.str("type")?);
    let need = |key: &str| match parameters.f64(key)? {
        Some(value) if value.is_finite() && value > 0.0 => Ok(value),
        Some(value) => keys.bad(key, "finite and above 0", value),
        None => keys.bad(key, "a number", "no such key"),
    };
    let or = |key: &str, default: f64| match parameters.f64(key)? {
        None => Ok(default),
        Some(_) => need(key),
    };
    match kind {
        None | Some("default") => Ok(Scaling::None),
        Some("linear") => Ok(Scaling::Linear { factor: need("factor")? }),
        Some("llama3") => {
            let (low, high) = (need("low_freq_factor")?, need("high_freq_factor")?);
            if low >= high {
                return keys.bad("high_freq_factor", format!("above low_freq_factor {low}"), high);
            }
            let original_context = need("original_max_position_embeddings")?;
            Ok(Scaling::Llama3 { factor: need("factor")?, low, high, original_context })
        }
        Some("yarn") => {
            let factor = need("factor")?;
            let (m, all) = (parameters.f64("mscale")?, parameters.f64("mscale_all_dim")?);
            let magnitude = match (parameters.f64("attention_factor")?, m, all) {
                (Some(stated), _, _) => stated,
                (None, Some(m), Some(all)) if m != 0.0 && all != 0.0 => {
                    yarn_magnitude(factor, m) / yarn_magnitude(factor, all)
                }
                _ => yarn_magnitude(factor, 1.0),
            };
            Ok(Scaling::Yarn {
                factor,
                original_context: or("original_max_position_embeddings", f64::from(context))?,
                beta_fast: or("beta_fast", 32.0)?,
                beta_slow: or("beta_slow", 1.0)?,
                attention_factor: magnitude,
                truncate: parameters.bool("truncate")?.unwrap_or(true),
            })
        }
        Some(other) => Err(Error::unsupported(
            format!("rope type `{other}` ({})", parameters.file),
            "this build knows default, linear, llama3, yarn",
        )),
    }
}
