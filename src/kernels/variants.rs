//! The table of shipped variants: what tests validate, translate and run, and what browsers must compile.
//!
//! Those of tier matrix are validated and translated to SPIR-V and MSL (sizes of 8: Metal has no other). naga's HLSL backend knows no
//! cooperative matrices. They run on the CPU twin alone: no driver that tests have here offers them.

use super::{Kernel, KvType, Tier, argmax, attn, matmul, rms_norm, sample};
use crate::format::block::BlockFormat;

/// Every variant that a plan can choose, each once, sorted.
#[must_use]
pub fn all() -> Vec<Kernel> {
    let mut kernels = vec![Kernel::AttnMerge, Kernel::GateAct, Kernel::Argmax, Kernel::QuantAct];
    kernels.extend(rms_norm::LANES.map(|lanes| Kernel::RmsNorm { lanes }));
    kernels.extend(BlockFormat::ALL.map(|format| Kernel::Embed { format }));
    for norm in [false, true] {
        kernels.extend(KvType::ALL.map(|kv| Kernel::RopeKv { kv, norm }));
    }
    kernels.extend(matmul::shapes().into_iter().map(Kernel::Matmul));
    kernels.extend(matmul::matrix::shapes().into_iter().map(Kernel::MatmulMatrix));
    kernels.extend(attn::prefill_shapes().into_iter().map(Kernel::AttnPrefill));
    kernels.extend(attn::decode_shapes().into_iter().map(Kernel::AttnDecode));
    kernels.extend(sample::Stage::ALL.map(Kernel::Sample));
    kernels.sort_unstable();
    kernels.dedup();
    kernels
}

/// The variants that a device of `tier` may run, with or without 64-bit integers in shaders.
#[must_use]
pub fn of_tier(tier: Tier, int64: bool) -> Vec<Kernel> {
    let may_run = |kernel: &Kernel| {
        let spec = kernel.spec();
        spec.tier <= tier && (int64 || !spec.int64)
    };
    all().into_iter().filter(may_run).collect()
}

const _: () = assert!(argmax::INVOCATIONS <= crate::limits::BASE_INVOCATIONS);
