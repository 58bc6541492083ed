//! Every shader text, without a GPU: naga parses and validates it, its facts are those that Rust states, it keeps within
//! WebGPU's default limits, and it translates to what Vulkan, Metal and DX12 take.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::OnceLock;

use naga::back::{hlsl, msl, spv};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, Module, ShaderStage, StorageAccess, TypeInner};
use twostroke::format::block::BlockFormat;
use twostroke::kernels::probe::Probe;
use twostroke::kernels::program::Program;
use twostroke::kernels::{Access, Spec, Tier, variants};
use twostroke::limits;

/// `pack2x16float` and `unpack2x16float` are in WebGPU's core.
const BASE: Capabilities = Capabilities::SHADER_FLOAT16_IN_FLOAT32;

/// A variant as naga sees it.
struct Parsed {
    spec: Spec,
    wgsl: String,
    module: Module,
    info: ModuleInfo,
}

/// All variants, parsed and validated once for all tests.
fn parsed() -> &'static [Parsed] {
    static PARSED: OnceLock<Vec<Parsed>> = OnceLock::new();
    PARSED.get_or_init(|| variants::all().into_iter().map(parse).chain(Probe::ALL.map(parse)).collect())
}

fn parse<K: Program>(kernel: K) -> Parsed {
    let (spec, wgsl) = (kernel.spec(), kernel.wgsl());
    let label = &spec.label;
    let module = naga::front::wgsl::parse_str(&wgsl)
        .unwrap_or_else(|e| panic!("{label}: {}\n{}", e.emit_to_string(&wgsl), numbered(&wgsl)));
    let mut capabilities = BASE;
    capabilities.set(Capabilities::SUBGROUP, spec.tier >= Tier::Subgroup);
    capabilities.set(Capabilities::SHADER_INT64, spec.int64);
    capabilities.set(Capabilities::SHADER_FLOAT16, spec.label == "probe_f16" || spec.tier == Tier::Matrix);
    capabilities.set(Capabilities::COOPERATIVE_MATRIX, spec.tier == Tier::Matrix);
    let info = Validator::new(ValidationFlags::all(), capabilities)
        .validate(&module)
        .unwrap_or_else(|e| panic!("{label}: {}", e.emit_to_string(&wgsl)));
    Parsed { spec, wgsl, module, info }
}

/// Calls `check` with each variant, its module and what validation found.
fn for_each_variant(check: impl Fn(&Spec, &Module, &ModuleInfo)) {
    for Parsed { spec, module, info, .. } in parsed() {
        check(spec, module, info);
    }
}

fn numbered(text: &str) -> String {
    (1..).zip(text.lines()).map(|(n, line)| format!("{n:4} {line}\n")).collect()
}

/// Variable at a binding of group 0.
fn bound(module: &Module, binding: u32) -> Option<&naga::GlobalVariable> {
    let at = |b: &naga::ResourceBinding| b.group == 0 && b.binding == binding;
    module.global_variables.iter().map(|(_, v)| v).find(|v| v.binding.as_ref().is_some_and(at))
}

#[test]
fn variants_are_sorted_and_each_has_its_own_label_and_text() {
    let all = parsed();
    assert!(variants::all().is_sorted());
    let labels: BTreeSet<&str> = all.iter().map(|one| &*one.spec.label).collect();
    assert_eq!(labels.len(), all.len(), "two variants share a label");
    let texts: BTreeSet<&str> = all.iter().map(|one| &*one.wgsl).collect();
    assert_eq!(texts.len(), all.len(), "two variants share a text");
}

#[test]
fn every_shader_file_has_a_variant() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("shaders");
    let entries = std::fs::read_dir(folder).expect("the shaders");
    let files: BTreeSet<String> = entries
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter_map(|name| name.strip_suffix(".wgsl").map(str::to_owned))
        .collect();
    let used: BTreeSet<String> = parsed().iter().map(|one| one.spec.shader.to_owned()).collect();
    assert_eq!(files, used, "files of shaders/ and shaders of VARIANTS");
}

#[test]
fn params_have_the_same_fields_in_wgsl_and_in_rust() {
    for_each_variant(|spec, module, _| {
        let label = &spec.label;
        let params = bound(module, 0).unwrap_or_else(|| panic!("{label}: nothing at binding 0"));
        assert_eq!(params.space, AddressSpace::Uniform, "{label}");
        assert_eq!(params.name.as_deref(), Some("params"), "{label}");
        let ty = &module.types[params.ty];
        let TypeInner::Struct { members, span } = &ty.inner else { panic!("{label}: params is no struct") };
        let fields: Vec<_> = members.iter().map(|m| (m.name.as_deref().unwrap_or(""), m.offset)).collect();
        assert_eq!(fields, spec.params_fields, "{label}: fields in WGSL and in Rust");
        assert_eq!(*span, spec.params_bytes, "{label}: bytes of params");
    });
}

#[test]
fn bindings_are_those_of_the_spec() {
    for_each_variant(|spec, module, _| {
        let label = &spec.label;
        for (binding, access) in (1..).zip(spec.bindings) {
            let variable = bound(module, binding).unwrap_or_else(|| panic!("{label}: nothing at binding {binding}"));
            let expected = match access {
                Access::Read => StorageAccess::LOAD,
                Access::Write => StorageAccess::LOAD | StorageAccess::STORE,
            };
            assert_eq!(variable.space, AddressSpace::Storage { access: expected }, "{label}: binding {binding}");
        }
        let resources = module.global_variables.iter().filter(|(_, v)| v.binding.is_some()).count();
        assert_eq!(resources, spec.bindings.len() + 1, "{label}: bindings");
        assert!(spec.bindings.len() <= limits::BASE_STORAGE_BUFFERS, "{label}: {} buffers", spec.bindings.len());
    });
}

#[test]
fn variants_keep_within_webgpu_default_limits() {
    for_each_variant(|spec, module, _| {
        let label = &spec.label;
        let [entry] = &module.entry_points[..] else { panic!("{label}: one entry point, not more") };
        assert_eq!((entry.name.as_str(), entry.stage), ("main", ShaderStage::Compute), "{label}");
        let invocations: u32 = entry.workgroup_size.iter().product();
        assert_eq!(invocations, spec.invocations, "{label}: workgroup_size in WGSL and invocations in Rust");
        assert!(invocations <= limits::BASE_INVOCATIONS, "{label}: {invocations} invocations");
        let context = module.to_ctx();
        let workgroup = module.global_variables.iter().filter(|(_, v)| v.space == AddressSpace::WorkGroup);
        let bytes: u32 = workgroup.map(|(_, v)| module.types[v.ty].inner.size(context).next_multiple_of(16)).sum();
        assert!(bytes <= limits::BASE_WORKGROUP_BYTES, "{label}: {bytes} bytes of workgroup memory");
    });
}

/// Multiplications of cooperative matrices that a text asks for.
fn matrix_products(wgsl: &str) -> usize {
    wgsl.matches("coopMultiplyAdd(").count()
}

#[test]
fn every_format_has_products_by_cooperative_matrices_of_both_sizes() {
    let matrix = || parsed().iter().filter(|one| one.spec.tier == Tier::Matrix);
    assert_eq!(matrix().count(), 2 * 2 * BlockFormat::ALL.len(), "sizes, gated or not, formats");
    for Parsed { spec, wgsl, .. } in matrix() {
        // 32 rows by 16 columns a subgroup, K of 32.
        let size = if spec.label.ends_with("_m16") { 16 } else { 8 };
        assert_eq!(matrix_products(wgsl), (32 / size) * (16 / size) * (32 / size), "{}", spec.label);
    }
    assert!(parsed().iter().all(|one| (matrix_products(&one.wgsl) > 0) == (one.spec.tier == Tier::Matrix)));
}

/// HLSL not for cooperative matrices: naga 30 writes none (it would panic), and wgpu's DX12 lists none. Metal has them of 8 alone, so
/// that MSL of 16 would be text that no compiler takes; naga writes it all the same.
#[test]
fn variants_translate_to_spirv_msl_and_hlsl() {
    /// OpCooperativeMatrixMulAddKHR
    const MATRIX_MUL_ADD: u32 = 4459;
    for_each_variant(|spec, module, info| {
        let label = &spec.label;
        let options = spv::Options { lang_version: (1, 3), ..spv::Options::default() };
        let words = spv::write_vec(module, info, &options, None).unwrap_or_else(|e| panic!("{label}: SPIR-V: {e}"));
        // Behind five words of head each instruction tells its length and number.
        let (mut at, mut products) = (5, 0);
        while at < words.len() {
            products += usize::from(words[at] & 0xffff == MATRIX_MUL_ADD);
            at += (words[at] >> 16).max(1) as usize;
        }
        assert_eq!(products > 0, spec.tier == Tier::Matrix, "{label}: {products} products of matrices");
        let options = msl::Options { lang_version: (2, 4), fake_missing_bindings: true, ..msl::Options::default() };
        let (text, _) = msl::write_string(module, info, &options, &msl::PipelineOptions::default())
            .unwrap_or_else(|e| panic!("{label}: MSL: {e}"));
        assert!(text.contains("kernel void main_"), "{label}: MSL has no kernel");
        if spec.tier == Tier::Matrix {
            assert!(text.contains("simdgroup_multiply_accumulate("), "{label}: MSL has no matrices");
            return;
        }
        let shader_model = if spec.tier >= Tier::Subgroup { hlsl::ShaderModel::V6_0 } else { hlsl::ShaderModel::V5_1 };
        let options = hlsl::Options { shader_model, fake_missing_bindings: true, ..hlsl::Options::default() };
        let mut text = String::new();
        let pipeline = hlsl::PipelineOptions::default();
        let written = hlsl::Writer::new(&mut text, &options, &pipeline).write(module, info, None);
        written.unwrap_or_else(|e| panic!("{label}: HLSL: {e}"));
        assert!(text.contains("numthreads"), "{label}: HLSL has no kernel");
    });
}

#[test]
fn texts_need_no_directive_but_for_halves_and_matrices() {
    // naga refuses `enable subgroups;`, which browsers demand: whoever compiles for a browser puts it in front. It demands `enable f16;`.
    for Parsed { spec, wgsl, .. } in parsed() {
        let directives = wgsl.lines().filter(|line| line.starts_with("enable") || line.starts_with("requires"));
        let wanted: &[&str] = match spec.tier {
            Tier::Matrix => &["enable f16;", "enable wgpu_cooperative_matrix;"],
            _ if spec.label == "probe_f16" => &["enable f16;"],
            _ => &[],
        };
        assert_eq!(directives.collect::<Vec<_>>(), wanted, "{}", spec.label);
    }
}

#[test]
fn base_tier_has_every_op() {
    let ops = |tier: Tier| -> BTreeSet<&'static str> {
        variants::of_tier(tier, true).into_iter().map(|kernel| kernel.spec().shader).collect()
    };
    assert_eq!(ops(Tier::Base), ops(Tier::Subgroup));
}
