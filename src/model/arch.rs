//! Architectures as data: one row of [`ARCHS`] a model family, for GGUF and for Hugging Face folders alike.
//!
//! Nothing here computes. A new architecture of this family is a row and its tests; only what no field can say yet
//! needs a field. Numbers of one checkpoint are [`super::config::Config`]'s.

use crate::error::{Error, Result};
use crate::kernels::gate_act::Activation;
use crate::kernels::rope_kv::Pairing;

/// Whether a linear layer adds a bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bias {
    /// It never does.
    Never,
    /// It always does.
    Always,
    /// When this key of config.json is true. A GGUF has no such key: there the tensor's presence decides.
    Key(&'static str),
}

/// Which layers see a sliding window, where the checkpoint itself does not list it layer by layer (`layer_types`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Windows {
    /// None in a checkpoint of Hugging Face, whatever it names: transformers ignores it there. A GGUF that names a window
    /// size (a mistral) has it in all layers.
    GgufOnly,
    /// None, unless the file names a window size, which then holds for all layers.
    All,
    /// Those from `max_window_layers` on, when `use_sliding_window` is true.
    Tail,
    /// All but each n-th.
    AllButEach(u32),
}

/// What the attention scores are multiplied with, unless the file says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryScale {
    /// 1/√head size.
    HeadDim,
    /// 1/√`query_pre_attn_scalar`. A GGUF does not carry that number: there it is hidden / heads for models of
    /// `hidden_over_heads_layers` layers, and the head size for all others.
    Scalar {
        /// Number of layers by which the odd one of the family is known.
        hidden_over_heads_layers: u32,
    },
}

/// Names of the tensors. `{prefix}` was cut off; those of a layer follow the layer's own prefix.
#[derive(Debug, Clone, Copy)]
pub struct TensorNames {
    /// What may stand before every name; the first under which the embedding is found holds.
    pub prefixes: &'static [&'static str],
    /// Embedding `[vocab, hidden]`.
    pub embed: &'static str,
    /// Last norm `[hidden]`.
    pub output_norm: &'static str,
    /// Head `[vocab, hidden]`; it takes its own prefixes.
    pub head: &'static str,
    /// Prefixes of the head.
    pub head_prefixes: &'static [&'static str],
    /// What stands before the number of a layer; a dot follows the number.
    pub layer: &'static str,
    /// Norm before attention `[hidden]`.
    pub attn_norm: &'static str,
    /// Query, key and value projections, without `.weight` and `.bias`.
    pub qkv: [&'static str; 3],
    /// Norms of query and key heads `[head_dim]`.
    pub qk_norms: [&'static str; 2],
    /// Projection after attention, without `.weight` and `.bias`.
    pub attn_out: &'static str,
    /// Norm of attention's result, before it is added `[hidden]`.
    pub post_attn_norm: &'static str,
    /// Norm before the MLP `[hidden]`.
    pub ffn_norm: &'static str,
    /// Gate and up projections, without `.weight` and `.bias`.
    pub gate_up: [&'static str; 2],
    /// Down projection, without `.weight` and `.bias`.
    pub down: &'static str,
    /// Norm of the MLP's result, before it is added `[hidden]`.
    pub post_ffn_norm: &'static str,
    /// Tensors of a layer that are known and not needed.
    pub ignored: &'static [&'static str],
}

/// Names in a GGUF; all architectures share them.
const GGUF_NAMES: TensorNames = TensorNames {
    prefixes: &[""],
    embed: "token_embd.weight",
    output_norm: "output_norm.weight",
    head: "output.weight",
    head_prefixes: &[""],
    layer: "blk.",
    attn_norm: "attn_norm.weight",
    qkv: ["attn_q", "attn_k", "attn_v"],
    qk_norms: ["attn_q_norm.weight", "attn_k_norm.weight"],
    attn_out: "attn_output",
    post_attn_norm: "post_attention_norm.weight",
    ffn_norm: "ffn_norm.weight",
    gate_up: ["ffn_gate", "ffn_up"],
    down: "ffn_down",
    post_ffn_norm: "post_ffw_norm.weight",
    ignored: &["rope_freqs.weight", "attn_rot_embd.weight"],
};

/// Names in a Hugging Face checkpoint of the llama kind. The prefixes are those of a language model alone, of one inside a
/// model that also sees images (older and newer), and of a bare trunk.
const HF_NAMES: TensorNames = TensorNames {
    prefixes: &["model.", "language_model.model.", "model.language_model.", ""],
    embed: "embed_tokens.weight",
    output_norm: "norm.weight",
    head: "lm_head.weight",
    head_prefixes: &["", "language_model."],
    layer: "layers.",
    attn_norm: "input_layernorm.weight",
    qkv: ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    qk_norms: ["self_attn.q_norm.weight", "self_attn.k_norm.weight"],
    attn_out: "self_attn.o_proj",
    post_attn_norm: "",
    ffn_norm: "post_attention_layernorm.weight",
    gate_up: ["mlp.gate_proj", "mlp.up_proj"],
    down: "mlp.down_proj",
    post_ffn_norm: "",
    ignored: &["self_attn.rotary_emb.inv_freq"],
};

/// Gemma norms before and after both halves of a layer, which moves the name of llama's second norm.
const HF_GEMMA_NAMES: TensorNames = TensorNames {
    post_attn_norm: "post_attention_layernorm.weight",
    ffn_norm: "pre_feedforward_layernorm.weight",
    post_ffn_norm: "post_feedforward_layernorm.weight",
    ..HF_NAMES
};

/// One architecture.
#[derive(Debug, Clone, Copy)]
pub struct ArchSpec {
    /// The name that people know.
    pub name: &'static str,
    /// `general.architecture` of its GGUFs, if it has its own.
    pub gguf: Option<&'static str>,
    /// `model_type` in config.json.
    pub model_types: &'static [&'static str],
    /// `architectures` in config.json, where there is no `model_type`.
    pub classes: &'static [&'static str],
    /// Key of config.json under which the language model's own configuration lies, where it is nested.
    pub nested: Option<&'static str>,
    /// Numbers that config.json may leave out: the reference implementation's defaults.
    pub hf_defaults: &'static [(&'static str, f64)],
    /// Names in GGUFs.
    pub gguf_names: TensorNames,
    /// Names in Hugging Face folders.
    pub hf_names: TensorNames,
    /// Which elements rotate together in GGUFs. In Hugging Face folders it is always [`Pairing::Halves`].
    pub gguf_pairing: Pairing,
    /// Bias of q, k and v.
    pub qkv_bias: Bias,
    /// Bias of attention's output projection.
    pub attn_out_bias: Bias,
    /// Bias of the MLP's projections.
    pub mlp_bias: Bias,
    /// Caps attention scores where the file says so; the others ignore the key.
    pub softcap: bool,
    /// Norm of each query and key head.
    pub qk_norm: bool,
    /// Norms of the results of attention and MLP.
    pub post_norms: bool,
    /// The embedding is multiplied by √hidden.
    pub embed_scale_sqrt_hidden: bool,
    /// What Hugging Face checkpoints add to norm weights before use; GGUFs hold the sum.
    pub hf_norm_offset: f32,
    /// The MLP's activation when the file names none.
    pub activation: Activation,
    /// Layers with a window.
    pub windows: Windows,
    /// RoPE base of layers with a window, where it differs from the others'.
    pub local_theta: Option<f64>,
    /// Scale of attention scores.
    pub query_scale: QueryScale,
    /// `tie_word_embeddings` when config.json leaves it out.
    pub tied_default: bool,
}

/// What most of the family has in common; not an architecture itself.
const LLAMA: ArchSpec = ArchSpec {
    name: "llama",
    gguf: Some("llama"),
    model_types: &["llama"],
    classes: &["LlamaForCausalLM"],
    nested: None,
    hf_defaults: &[("rms_norm_eps", 1e-6), ("rope_theta", 1e4)],
    gguf_names: GGUF_NAMES,
    hf_names: HF_NAMES,
    gguf_pairing: Pairing::Interleaved,
    qkv_bias: Bias::Key("attention_bias"),
    attn_out_bias: Bias::Key("attention_bias"),
    mlp_bias: Bias::Key("mlp_bias"),
    qk_norm: false,
    post_norms: false,
    embed_scale_sqrt_hidden: false,
    hf_norm_offset: 0.0,
    activation: Activation::Silu,
    windows: Windows::GgufOnly,
    local_theta: None,
    query_scale: QueryScale::HeadDim,
    softcap: false,
    tied_default: false,
};

/// The architectures of this build.
pub const ARCHS: &[ArchSpec] = &[
    LLAMA,
    ArchSpec {
        name: "mistral",
        gguf: None, // its GGUFs call themselves llama
        model_types: &["mistral"],
        classes: &["MistralForCausalLM"],
        qkv_bias: Bias::Never,
        attn_out_bias: Bias::Never,
        mlp_bias: Bias::Never,
        windows: Windows::All,
        ..LLAMA
    },
    ArchSpec {
        name: "qwen2",
        gguf: Some("qwen2"),
        model_types: &["qwen2"],
        classes: &["Qwen2ForCausalLM"],
        gguf_pairing: Pairing::Halves,
        qkv_bias: Bias::Always,
        attn_out_bias: Bias::Never,
        mlp_bias: Bias::Never,
        windows: Windows::Tail,
        ..LLAMA
    },
    ArchSpec {
        name: "qwen3",
        gguf: Some("qwen3"),
        model_types: &["qwen3"],
        classes: &["Qwen3ForCausalLM"],
        gguf_pairing: Pairing::Halves,
        mlp_bias: Bias::Never,
        qk_norm: true,
        windows: Windows::Tail,
        ..LLAMA
    },
    ArchSpec {
        name: "gemma3",
        gguf: Some("gemma3"),
        model_types: &["gemma3_text", "gemma3"],
        classes: &["Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"],
        nested: Some("text_config"),
        hf_defaults: &[
            ("vocab_size", 262_208.0),
            ("num_attention_heads", 8.0),
            ("num_key_value_heads", 4.0),
            ("head_dim", 256.0),
            ("max_position_embeddings", 131_072.0),
            ("rms_norm_eps", 1e-6),
            ("rope_theta", 1e6),
            ("query_pre_attn_scalar", 256.0),
            ("sliding_window", 4096.0),
        ],
        hf_names: HF_GEMMA_NAMES,
        gguf_pairing: Pairing::Halves,
        mlp_bias: Bias::Never,
        qk_norm: true,
        post_norms: true,
        embed_scale_sqrt_hidden: true,
        hf_norm_offset: 1.0,
        activation: Activation::GeluTanh,
        windows: Windows::AllButEach(6),
        softcap: true,
        local_theta: Some(1e4),
        query_scale: QueryScale::Scalar { hidden_over_heads_layers: 62 },
        tied_default: true,
        ..LLAMA
    },
];

impl ArchSpec {
    /// The row whose GGUFs say `general.architecture = name`.
    ///
    /// # Errors
    /// When there is none: names it, the file, and what there is.
    pub fn of_gguf(name: &str, file: &str) -> Result<&'static Self> {
        let found = ARCHS.iter().find(|a| a.gguf == Some(name));
        found.ok_or_else(|| unknown(name, file, ARCHS.iter().filter_map(|a| a.gguf)))
    }

    /// The row of a config.json's `model_type`, or of the first of its `architectures` where there is no type.
    ///
    /// # Errors
    /// As [`ArchSpec::of_gguf`].
    pub fn of_hf(model_type: Option<&str>, class: Option<&str>, file: &str) -> Result<&'static Self> {
        let found = match (model_type, class) {
            (Some(name), _) => ARCHS.iter().find(|a| a.model_types.contains(&name)),
            (None, Some(class)) => ARCHS.iter().find(|a| a.classes.contains(&class)),
            (None, None) => {
                let expected = "`model_type` or `architectures`";
                return Err(Error::format("model configuration", expected, "neither", file));
            }
        };
        let name = model_type.or(class).unwrap_or_default();
        found.ok_or_else(|| unknown(name, file, ARCHS.iter().flat_map(|a| a.model_types.iter().copied())))
    }
}

fn unknown(name: &str, file: &str, known: impl Iterator<Item = &'static str>) -> Error {
    let known: Vec<_> = known.collect();
    Error::unsupported(format!("architecture `{name}` ({file})"), &format!("this build knows {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_architecture_is_named_with_what_there_is() {
        let gguf = ArchSpec::of_gguf("mamba", "m.gguf").unwrap_err().to_string();
        assert_eq!(
            gguf,
            "architecture `mamba` (m.gguf) is not supported: this build knows llama, qwen2, qwen3, gemma3"
        );
        let hf = ArchSpec::of_hf(Some("mamba"), None, "config.json").unwrap_err().to_string();
        assert!(hf.contains("`mamba` (config.json)") && hf.contains("mistral, qwen2"), "{hf}");
        let class = ArchSpec::of_hf(None, Some("MambaForCausalLM"), "config.json").unwrap_err().to_string();
        assert!(class.contains("`MambaForCausalLM`"), "{class}");
        assert!(ArchSpec::of_hf(None, None, "config.json").is_err());
    }

    #[test]
    fn each_name_belongs_to_one_row() {
        let mut names: Vec<_> = ARCHS.iter().flat_map(|a| a.model_types.iter().chain(a.classes)).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
