//! What an adapter can do, as plain data: for messages, for `devices --json`, and for choosing without wgpu at hand.

use serde::Serialize;

use super::tiers::{self, Offer};
use crate::kernels::Tier;
use crate::limits;

/// What kind of device an adapter is; the order is the order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// A card with its own memory.
    Discrete,
    /// A GPU that shares the CPU's memory.
    Integrated,
    /// A GPU handed into a virtual machine.
    Virtual,
    /// Unknown; browsers don't say.
    Other,
    /// The CPU plays a GPU.
    Software,
}

impl DeviceKind {
    /// As in a sentence.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Discrete => "discrete",
            Self::Integrated => "integrated",
            Self::Virtual => "virtual",
            Self::Other => "other",
            Self::Software => "software",
        }
    }
}

/// The limits that matter here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AdapterLimits {
    /// Largest storage binding in bytes.
    pub binding_bytes_max: u64,
    /// Largest buffer in bytes.
    pub buffer_bytes_max: u64,
    /// Storage buffers a shader stage.
    pub storage_buffers: u32,
    /// Workgroup memory in bytes.
    pub workgroup_bytes: u32,
    /// Invocations a workgroup.
    pub invocations: u32,
    /// Workgroups along an axis.
    pub workgroups: u32,
}

/// What an adapter is and can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// The driver's name for the device; in a browser a made-up one.
    pub name: String,
    /// `Vulkan`, `Metal`, `DX12` or `WebGPU`.
    pub backend: &'static str,
    /// What kind of device.
    pub kind: DeviceKind,
    /// Vendor id, as the backend counts.
    pub vendor: u32,
    /// Device id, as the backend counts.
    pub device: u32,
    /// Bus address where known, else empty.
    pub pci_bus_id: String,
    /// Driver's name.
    pub driver: String,
    /// Driver's version.
    pub driver_info: String,
    /// Best tier that `auto` takes.
    pub tier: Tier,
    /// Lanes of the smallest subgroup, `None` without subgroups.
    pub subgroup_min_size: Option<u32>,
    /// Lanes of the largest subgroup.
    pub subgroup_max_size: Option<u32>,
    /// Configurations of cooperative matrices as wgpu lists them, e.g. `16x16x16 f16 into f32`; empty for none.
    pub cooperative_matrices: Vec<String>,
    /// Features that kernels or figures can use, by wgpu's names.
    pub features: Vec<&'static str>,
    /// Limits of the adapter; a device of the base tier has WebGPU's defaults instead.
    pub limits: AdapterLimits,
}

impl Capabilities {
    /// `NAME (discrete, Vulkan)`.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{} ({}, {})", self.name, self.kind.name(), self.backend)
    }

    /// Whether the CPU plays the GPU.
    #[must_use]
    pub fn software(&self) -> bool {
        self.kind == DeviceKind::Software
    }

    /// Whether shaders of its best tier may use 64-bit integers.
    #[must_use]
    pub fn int64(&self) -> bool {
        self.tier >= Tier::Subgroup && self.features.contains(&"shader-int64")
    }

    pub(super) fn new(adapter: &wgpu::Adapter) -> Self {
        let (info, features, limits) = (adapter.get_info(), adapter.features(), adapter.limits());
        let lanes = subgroup_min_size(&info);
        let matrices = adapter.cooperative_matrix_properties();
        let offer =
            Offer { name: &info.name, features, limits: &limits, subgroup_min_size: lanes, matrices: &matrices };
        let tier = tiers::best(&offer);
        let subgroups = features.contains(wgpu::Features::SUBGROUP);
        let name = if info.name.is_empty() { "unnamed adapter".to_owned() } else { info.name };
        Self {
            name,
            backend: backend_name(info.backend),
            kind: kind(info.device_type),
            vendor: info.vendor,
            device: info.device,
            pci_bus_id: info.device_pci_bus_id,
            driver: info.driver,
            driver_info: info.driver_info,
            tier,
            subgroup_min_size: subgroups.then_some(lanes),
            subgroup_max_size: subgroups.then_some(info.subgroup_max_size),
            cooperative_matrices: matrices.iter().map(tiers::matrix_name).collect(),
            features: RELEVANT.iter().filter(|(_, f)| features.contains(*f)).map(|(name, _)| *name).collect(),
            limits: AdapterLimits {
                binding_bytes_max: limits.max_storage_buffer_binding_size,
                buffer_bytes_max: limits.max_buffer_size,
                storage_buffers: limits.max_storage_buffers_per_shader_stage,
                workgroup_bytes: limits.max_compute_workgroup_storage_size,
                invocations: limits.max_compute_invocations_per_workgroup,
                workgroups: limits.max_compute_workgroups_per_dimension,
            },
        }
    }
}

/// Lanes of the smallest subgroup. wgpu's Metal backend always says 4; every Mac has at least 8.
pub(super) fn subgroup_min_size(info: &wgpu::AdapterInfo) -> u32 {
    let metal = info.backend == wgpu::Backend::Metal;
    if metal { info.subgroup_min_size.max(limits::SUBGROUP_LANES_MIN) } else { info.subgroup_min_size }
}

const RELEVANT: [(&str, wgpu::Features); 7] = [
    ("timestamp-query", wgpu::Features::TIMESTAMP_QUERY),
    ("shader-f16", wgpu::Features::SHADER_F16),
    ("shader-int64", wgpu::Features::SHADER_INT64),
    ("subgroup", wgpu::Features::SUBGROUP),
    ("cooperative-matrix", wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX),
    ("pipeline-cache", wgpu::Features::PIPELINE_CACHE),
    ("mappable-primary-buffers", wgpu::Features::MAPPABLE_PRIMARY_BUFFERS),
];

const fn backend_name(backend: wgpu::Backend) -> &'static str {
    match backend {
        wgpu::Backend::Vulkan => "Vulkan",
        wgpu::Backend::Metal => "Metal",
        wgpu::Backend::Dx12 => "DX12",
        wgpu::Backend::Gl => "GL",
        wgpu::Backend::BrowserWebGpu => "WebGPU",
        wgpu::Backend::Noop => "none",
    }
}

const fn kind(device_type: wgpu::DeviceType) -> DeviceKind {
    match device_type {
        wgpu::DeviceType::DiscreteGpu => DeviceKind::Discrete,
        wgpu::DeviceType::IntegratedGpu => DeviceKind::Integrated,
        wgpu::DeviceType::VirtualGpu => DeviceKind::Virtual,
        wgpu::DeviceType::Other => DeviceKind::Other,
        wgpu::DeviceType::Cpu => DeviceKind::Software,
    }
}
