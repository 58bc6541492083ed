//! Shader texts: the files of `shaders/` as minijinja templates, so that a variant's constants unroll its loops.
//!
//! Text and not `override`, because register tiles must be scalars with literal names: drivers do not unroll what naga
//! writes as `loop`, and an array indexed by a loop variable costs 10 to 20 times a register on software drivers.

use std::sync::OnceLock;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, UndefinedBehavior, Value};
use sha2::{Digest, Sha256};

/// All shader files, by name. `shared/` holds includes.
const SOURCES: &[(&str, &str)] = &[
    ("argmax", include_str!("../../shaders/argmax.wgsl")),
    ("attn_decode", include_str!("../../shaders/attn_decode.wgsl")),
    ("attn_merge", include_str!("../../shaders/attn_merge.wgsl")),
    ("attn_prefill", include_str!("../../shaders/attn_prefill.wgsl")),
    ("embed", include_str!("../../shaders/embed.wgsl")),
    ("gate_act", include_str!("../../shaders/gate_act.wgsl")),
    ("matmul", include_str!("../../shaders/matmul.wgsl")),
    ("matmul_matrix", include_str!("../../shaders/matmul_matrix.wgsl")),
    ("probe_copy", include_str!("../../shaders/probe_copy.wgsl")),
    ("probe_math", include_str!("../../shaders/probe_math.wgsl")),
    ("probe_read", include_str!("../../shaders/probe_read.wgsl")),
    ("quant_act", include_str!("../../shaders/quant_act.wgsl")),
    ("rms_norm", include_str!("../../shaders/rms_norm.wgsl")),
    ("rope_kv", include_str!("../../shaders/rope_kv.wgsl")),
    ("shared/act", include_str!("../../shaders/shared/act.wgsl")),
    ("sample_choose", include_str!("../../shaders/sample_choose.wgsl")),
    ("sample_count", include_str!("../../shaders/sample_count.wgsl")),
    ("sample_gather", include_str!("../../shaders/sample_gather.wgsl")),
    ("sample_mass", include_str!("../../shaders/sample_mass.wgsl")),
    ("sample_penalise", include_str!("../../shaders/sample_penalise.wgsl")),
    ("sample_scan", include_str!("../../shaders/sample_scan.wgsl")),
    ("shared/dequant", include_str!("../../shaders/shared/dequant.wgsl")),
    ("shared/attn", include_str!("../../shaders/shared/attn.wgsl")),
    ("shared/attn_rows", include_str!("../../shaders/shared/attn_rows.wgsl")),
    ("shared/attn_split", include_str!("../../shaders/shared/attn_split.wgsl")),
    ("shared/int8", include_str!("../../shaders/shared/int8.wgsl")),
    ("shared/matmul_float", include_str!("../../shaders/shared/matmul_float.wgsl")),
    ("shared/matmul_int8", include_str!("../../shaders/shared/matmul_int8.wgsl")),
    ("shared/norm_row", include_str!("../../shaders/shared/norm_row.wgsl")),
    ("shared/sample", include_str!("../../shaders/shared/sample.wgsl")),
    ("shared/sample_top", include_str!("../../shaders/shared/sample_top.wgsl")),
    ("shared/words", include_str!("../../shaders/shared/words.wgsl")),
];

fn environment() -> &'static Environment<'static> {
    static ENVIRONMENT: OnceLock<Environment<'static>> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        let mut env = Environment::new();
        env.set_undefined_behavior(UndefinedBehavior::Strict);
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        env.set_syntax(syntax.unwrap_or_else(|e| panic!("shader template syntax: {e:#}")));
        for (name, text) in SOURCES {
            env.add_template(name, text).unwrap_or_else(|e| panic!("shader template {name}: {e:#}"));
        }
        env
    })
}

/// A digest of all files.
pub(super) fn digest() -> String {
    let mut hash = Sha256::new();
    for (name, text) in SOURCES {
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name);
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// The WGSL text of `shader` with `constants` filled in.
pub(super) fn render(shader: &str, constants: &Value) -> String {
    let template = environment().get_template(shader).unwrap_or_else(|e| panic!("shader {shader}: {e:#}"));
    template.render(constants).unwrap_or_else(|e| panic!("shader {shader}: {e:#}"))
}
