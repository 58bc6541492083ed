//! Programs of a few lines that exercise players: one that adds, one that copies, and some that a driver must refuse.

use twostroke::kernels::program::Program;
use twostroke::kernels::{Access, Spec, Tier};

/// Params of all of them.
#[repr(C)]
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub(crate) struct Params {
    /// Elements.
    pub(crate) count: u32,
    /// Added to each.
    pub(crate) step: u32,
    /// Workgroups in a row of the grid.
    pub(crate) grid_x: u32,
    /// Nothing.
    pub(crate) pad0: u32,
}

/// See each one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Toy {
    /// `x[i] += step`; one binding.
    Add,
    /// `out[i] = a[i] + b[i]`; three bindings.
    Sum,
    /// No WGSL at all.
    Garbled,
    /// WGSL with a type error.
    Mistyped,
    /// More invocations than the base tier has.
    TooManyInvocations,
    /// Right text with one binding fewer than its spec says.
    BindingsDiffer,
    /// Needs subgroups and says so.
    Subgroups,
    /// Needs subgroups and claims the base tier.
    SubgroupsUnsaid,
}

const HEAD: &str = "
struct Params { count: u32, step: u32, grid_x: u32, pad0: u32 }
@group(0) @binding(0) var<uniform> params: Params;
";
const ADD: &str = "
@group(0) @binding(1) var<storage, read_write> x: array<u32>;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    let i = group.y * params.grid_x + group.x;
    if (i < params.count) { x[i] = x[i] + params.step; }
}";
const SUM: &str = "
@group(0) @binding(1) var<storage, read> a: array<u32>;
@group(0) @binding(2) var<storage, read> b: array<u32>;
@group(0) @binding(3) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) group: vec3<u32>) {
    let i = group.y * params.grid_x + group.x;
    if (i < params.count) { out[i] = a[i] + b[i]; }
}";
const SUBGROUPS: &str = "
@group(0) @binding(1) var<storage, read_write> x: array<u32>;
@compute @workgroup_size(8)
fn main(@builtin(local_invocation_index) lane: u32) { x[lane] = subgroupMax(x[lane]); }";

impl Program for Toy {
    fn spec(self) -> Spec {
        Spec {
            label: format!("toy_{self:?}"),
            shader: "toy",
            constants: minijinja::Value::UNDEFINED,
            bindings: match self {
                Self::Sum => &[Access::Read, Access::Read, Access::Write],
                Self::BindingsDiffer => &[Access::Read],
                _ => &[Access::Write],
            },
            params_bytes: 16,
            params_fields: &[("count", 0), ("step", 4), ("grid_x", 8), ("pad0", 12)],
            invocations: 1,
            tier: if self == Self::Subgroups { Tier::Subgroup } else { Tier::Base },
            int64: false,
        }
    }

    fn wgsl(self) -> String {
        let body = match self {
            Self::Add => ADD.to_owned(),
            Self::Sum | Self::BindingsDiffer => SUM.to_owned(),
            Self::Garbled => "fn main( {".to_owned(),
            Self::Mistyped => ADD.replace("params.step", "1.5"),
            Self::TooManyInvocations => ADD.replace("workgroup_size(1)", "workgroup_size(512)"),
            Self::Subgroups | Self::SubgroupsUnsaid => SUBGROUPS.to_owned(),
        };
        format!("{HEAD}{body}")
    }

    fn twin(self, params: &[u8], grid: [u32; 3], mem: &mut [Vec<u32>]) {
        let params: Params = bytemuck::pod_read_unaligned(params);
        assert_eq!(params.grid_x, grid[0]);
        let count = params.count as usize;
        match (self, mem) {
            (Self::Add, [x]) => x[..count].iter_mut().for_each(|x| *x = x.wrapping_add(params.step)),
            (Self::Sum, [a, b, out]) => {
                for (out, (a, b)) in out[..count].iter_mut().zip(a.iter().zip(b.iter())) {
                    *out = a.wrapping_add(*b);
                }
            }
            _ => unreachable!("no driver takes it, so no twin is needed"),
        }
    }
}
