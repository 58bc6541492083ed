//! The numbers of one checkpoint, whichever format they came in, checked against each other.

use super::arch::{ArchSpec, Bias, QueryScale, TensorNames};
use super::rope::Rope;
use crate::error::{Error, Result};
use crate::format::model_files::{Description, ModelFiles};
use crate::kernels::gate_act::Activation;
use crate::kernels::rope_kv::Pairing;
use crate::limits;

/// Everything about a model but its weights.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its row of the table.
    pub arch: &'static ArchSpec,
    /// Names of its tensors in this format.
    pub names: TensorNames,
    /// Where it was read from, for messages.
    pub file: String,
    /// Layers.
    pub layers: u32,
    /// Width of the residual stream.
    pub hidden: u32,
    /// Width of the MLP.
    pub intermediate: u32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads; divides `heads`.
    pub kv_heads: u32,
    /// Head size.
    pub head_dim: u32,
    /// Rows of the embedding; `None` when the file leaves it to the tensor.
    pub vocab: Option<u32>,
    /// Positions that the model was made for.
    pub context: u32,
    /// Epsilon of all norms.
    pub eps: f32,
    /// Added to norm weights at load.
    pub norm_offset: f32,
    /// Whether the head is the embedding; `None` when the tensors tell.
    pub tied: Option<bool>,
    /// Activation of the MLP.
    pub activation: Activation,
    /// Which elements rotate together.
    pub pairing: Pairing,
    /// RoPE of layers that see everything.
    pub rope: Rope,
    /// RoPE of layers with a window, where it differs.
    pub local_rope: Option<Rope>,
    /// Window of each layer, 0 for none.
    pub windows: Vec<u32>,
    /// Multiplies attention scores.
    pub attn_scale: f32,
    /// Soft cap of attention scores, 0 for none.
    pub softcap: f32,
    /// Multiplies the embedding.
    pub embed_scale: f32,
    /// Bias of q, k and v; of attention's output; of the MLP's three.
    pub biases: [BiasRule; 3],
}

/// What the loader does about a bias tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BiasRule {
    /// There must be none.
    Absent,
    /// There must be one.
    Required,
    /// Taken when it is there.
    Optional,
}

impl Config {
    /// The configuration of a model.
    ///
    /// # Errors
    /// An architecture that is not in the table, a missing key, or numbers that make no sense, with file and key.
    pub fn read(files: &ModelFiles) -> Result<Self> {
        let config = match &files.description {
            Description::Gguf(metadata) => super::config_gguf::read(metadata, &files.table)?,
            Description::Folder(folder) => super::config_hf::read(folder)?,
        };
        config.check()?;
        Ok(config)
    }

    /// Rows of query, key and value projections.
    #[must_use]
    pub fn qkv_rows(&self) -> [u32; 3] {
        [self.heads * self.head_dim, self.kv_heads * self.head_dim, self.kv_heads * self.head_dim]
    }

    /// Refuses what the kernels or the arithmetic cannot do. All fields are at most their limit, so products fit.
    fn check(&self) -> Result<()> {
        let bad = |key: &str, expected: &str, got: String| {
            Err(Error::format("model configuration", expected, got, format!("{}, {key}", self.file)))
        };
        if !self.heads.is_multiple_of(self.kv_heads) {
            return bad("kv heads", &format!("a divisor of {} query heads", self.heads), self.kv_heads.to_string());
        }
        if !self.head_dim.is_multiple_of(limits::HEAD_DIM_STEP) || self.head_dim > limits::HEAD_DIM_MAX {
            let expected = format!("a multiple of {} up to {}", limits::HEAD_DIM_STEP, limits::HEAD_DIM_MAX);
            return bad("head size", &expected, self.head_dim.to_string());
        }
        for rope in std::iter::once(&self.rope).chain(&self.local_rope) {
            let dim = rope.rotary_dim;
            if dim == 0 || !dim.is_multiple_of(2) || dim > self.head_dim {
                let expected = format!("even, from 2 to the head size {}", self.head_dim);
                return bad("rotary dimensions", &expected, dim.to_string());
            }
            if !(rope.theta.is_finite() && rope.theta > 1.0) {
                return bad("rope base", "finite and above 1", rope.theta.to_string());
            }
            if rope.inverse_frequencies().iter().any(|f| !f.is_finite()) || !rope.magnitude().is_finite() {
                return bad("rope scaling", "finite frequencies", format!("{:?}", rope.scaling));
            }
        }
        if !(self.eps.is_finite() && self.eps > 0.0 && self.eps < 1.0) {
            return bad("norm epsilon", "between 0 and 1", self.eps.to_string());
        }
        if !(self.attn_scale.is_finite() && self.attn_scale > 0.0) {
            return bad("attention scale", "finite and above 0", self.attn_scale.to_string());
        }
        if !(self.softcap.is_finite() && self.softcap >= 0.0) {
            return bad("attention soft cap", "finite and not negative", self.softcap.to_string());
        }
        assert_eq!(self.windows.len(), self.layers as usize, "a window for each layer");
        Ok(())
    }
}

/// An integer of a configuration as u32, from 1 to `max`.
pub(super) fn bounded(value: Option<u64>, max: u32, file: &str, key: &str) -> Result<u32> {
    let place = || format!("{file}, key {key}");
    let value = value.ok_or_else(|| Error::format("model configuration", "an integer", "no such key", place()))?;
    match u32::try_from(value) {
        Ok(n) if (1..=max).contains(&n) => Ok(n),
        _ => Err(Error::format("model configuration", format!("1 to {max}"), value, place())),
    }
}

/// A float of a configuration, finite as f64; f32 keeps what it can.
#[allow(clippy::cast_possible_truncation, reason = "f64 to f32 is the rounding wanted")]
pub(super) const fn single(value: f64) -> f32 {
    value as f32
}

/// 1/√n for the attention scale.
pub(super) fn inverse_sqrt(n: f64) -> f32 {
    single(1.0 / n.sqrt())
}

/// Scale of attention scores of a GGUF without `attention.scale`.
pub(super) fn gguf_query_scale(arch: &ArchSpec, layers: u32, hidden: u32, heads: u32, head_dim: u32) -> f32 {
    match arch.query_scale {
        QueryScale::Scalar { hidden_over_heads_layers } if hidden_over_heads_layers == layers => {
            inverse_sqrt(f64::from(hidden) / f64::from(heads))
        }
        QueryScale::Scalar { .. } | QueryScale::HeadDim => inverse_sqrt(f64::from(head_dim)),
    }
}

/// √hidden for models that scale their embedding.
pub(super) fn embed_scale(arch: &ArchSpec, hidden: u32) -> f32 {
    if arch.embed_scale_sqrt_hidden { single(f64::from(hidden).sqrt()) } else { 1.0 }
}

/// Rules for the three groups of biases, given what a key of the configuration says; `None` where keys say nothing.
pub(super) fn bias_rules(
    arch: &ArchSpec,
    mut key: impl FnMut(&'static str) -> Result<Option<bool>>,
) -> Result<[BiasRule; 3]> {
    let mut rule = |bias| {
        Ok::<_, Error>(match bias {
            Bias::Never => BiasRule::Absent,
            Bias::Always => BiasRule::Required,
            Bias::Key(name) => match key(name)? {
                None => BiasRule::Optional,
                Some(true) => BiasRule::Required,
                Some(false) => BiasRule::Absent,
            },
        })
    };
    Ok([rule(arch.qkv_bias)?, rule(arch.attn_out_bias)?, rule(arch.mlp_bias)?])
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
