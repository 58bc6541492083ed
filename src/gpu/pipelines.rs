//! Kernels as compiled pipelines, and the bind groups that launches need, each made once.
//!
//! Layout of the one bind group: binding 0 is the params struct in a uniform buffer that all launches share, at a dynamic
//! offset; bindings 1.. are whole storage buffers, read or read_write as [`Access`] says.

use std::collections::HashMap;
use std::num::NonZeroU64;

use super::device::{Device, each_in_parallel};
use crate::error::{Error, Result};
use crate::kernels::program::Program;
use crate::kernels::{Access, Spec, Tier};
use crate::limits;
use crate::recording::{BINDINGS_MAX, BufferId};

/// A compiled kernel.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) pipeline: wgpu::ComputePipeline,
    pub(super) bindings: &'static [Access],
    pub(super) params_bytes: u32,
    layout: usize,
}

/// Bind groups of a layout.
#[derive(Debug)]
struct Layout {
    bindings: &'static [Access],
    params_bytes: u32,
    group: wgpu::BindGroupLayout,
    pipeline: wgpu::PipelineLayout,
}

/// What a bind group is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct GroupKey {
    layout: usize,
    count: usize,
    buffers: [BufferId; BINDINGS_MAX],
}

/// All pipelines and bind groups of a device.
#[derive(Debug)]
pub(super) struct Pipelines<K> {
    /// Compile with the checks that wgpu adds for untrusted shaders.
    checked: bool,
    /// What the driver keeps of compiled kernels, where it says.
    cache: Option<wgpu::PipelineCache>,
    built: HashMap<K, Built>,
    layouts: Vec<Layout>,
    groups: HashMap<GroupKey, wgpu::BindGroup>,
}

impl<K: Program> Pipelines<K> {
    /// None yet.
    pub(super) fn new(checked: bool, device: &Device) -> Result<Self> {
        let cache = Self::make_cache(device, None)?;
        Ok(Self { checked, cache, built: HashMap::new(), layouts: Vec::new(), groups: HashMap::new() })
    }

    /// What the driver keeps, for [`Pipelines::restore`].
    pub(super) fn compiled(&self) -> Option<Vec<u8>> {
        self.cache.as_ref().and_then(wgpu::PipelineCache::get_data)
    }

    /// Takes over what [`Pipelines::compiled`] gave. The caller guarantees that these are its bytes.
    pub(super) fn restore(&mut self, device: &Device, data: &[u8]) -> Result<()> {
        self.cache = Self::make_cache(device, Some(data))?;
        Ok(())
    }

    #[allow(unsafe_code, reason = "a driver trusts the bytes of its cache")]
    fn make_cache(device: &Device, data: Option<&[u8]>) -> Result<Option<wgpu::PipelineCache>> {
        if !device.features.contains(wgpu::Features::PIPELINE_CACHE) {
            return Ok(None);
        }
        let bytes = data.map_or(0, |data| data.len() as u64);
        // What another driver has written is not taken, and the cache begins empty.
        let descriptor = wgpu::PipelineCacheDescriptor { label: Some("kernels"), data, fallback: true };
        // SAFETY: `data` is what `get_data` returned in an earlier process: the file it lay in holds a digest of these bytes, under a key
        // of the adapter, its driver and this build, and is read only where the digest fits.
        device
            .scoped("open pipeline cache", bytes, || unsafe { device.handle.create_pipeline_cache(&descriptor) })
            .map(Some)
    }

    /// Compiles those of `kernels` that are not there yet, side by side, and returns them.
    pub(super) fn prepare(&mut self, device: &Device, kernels: impl Iterator<Item = K>) -> Result<Vec<K>> {
        let mut missing: Vec<(K, Spec, usize)> = Vec::new();
        for kernel in kernels {
            if self.built.contains_key(&kernel) || missing.iter().any(|(other, ..)| *other == kernel) {
                continue;
            }
            let spec = kernel.spec();
            if spec.tier > device.tier {
                let (label, needed, tier) = (spec.label, spec.tier.name(), device.tier.name());
                let message = format!("{label} needs tier {needed}, the device was opened with {tier}");
                return Err(device.faults.refused("compile kernel", message));
            }
            let layout = self.layout(device, &spec)?;
            missing.push((kernel, spec, layout));
        }
        if missing.is_empty() {
            return Ok(Vec::new());
        }
        let compile = |(kernel, spec, layout): &(K, Spec, usize)| {
            self.compile(device, *kernel, &spec.label, &self.layouts[*layout].pipeline)
        };
        let pipelines = each_in_parallel(&missing, compile);
        let mut new = Vec::with_capacity(missing.len());
        for ((kernel, spec, layout), pipeline) in missing.into_iter().zip(pipelines) {
            let Spec { bindings, params_bytes, .. } = spec;
            self.built.insert(kernel, Built { pipeline: pipeline?, bindings, params_bytes, layout });
            new.push(kernel);
        }
        Ok(new)
    }

    /// A kernel that was prepared.
    pub(super) fn built(&self, kernel: K) -> &Built {
        self.built.get(&kernel).unwrap_or_else(|| panic!("{kernel:?} was not prepared"))
    }

    /// Makes the bind group of a launch if it isn't there. `buffer` finds buffers by handle.
    pub(super) fn bind<'a>(
        &mut self,
        device: &Device,
        kernel: K,
        params: &wgpu::Buffer,
        ids: &[BufferId],
        buffer: impl Fn(BufferId) -> &'a wgpu::Buffer,
    ) -> Result<()> {
        let key = self.key(kernel, ids);
        if self.groups.contains_key(&key) {
            return Ok(());
        }
        let layout = &self.layouts[key.layout];
        let params_size = NonZeroU64::new(u64::from(layout.params_bytes));
        let params = wgpu::BufferBinding { buffer: params, offset: 0, size: params_size };
        let mut entries = vec![wgpu::BindGroupEntry { binding: 0, resource: wgpu::BindingResource::Buffer(params) }];
        entries.extend(
            (1..)
                .zip(ids)
                .map(|(binding, &id)| wgpu::BindGroupEntry { binding, resource: buffer(id).as_entire_binding() }),
        );
        let descriptor = wgpu::BindGroupDescriptor { label: None, layout: &layout.group, entries: &entries };
        let group = device.scoped("bind buffers", 0, || device.handle.create_bind_group(&descriptor))?;
        self.groups.insert(key, group);
        Ok(())
    }

    /// The bind group of a launch that was bound.
    pub(super) fn group(&self, kernel: K, ids: &[BufferId]) -> &wgpu::BindGroup {
        self.groups.get(&self.key(kernel, ids)).unwrap_or_else(|| panic!("{kernel:?} was not bound to {ids:?}"))
    }

    /// Forgets the bind groups that hold a buffer.
    pub(super) fn forget_buffer(&mut self, id: BufferId) {
        self.groups.retain(|key, _| !key.buffers[..key.count].contains(&id));
    }

    /// Forgets all bind groups if there are too many. Not between binding a recording and encoding it.
    pub(super) fn trim_groups(&mut self) {
        if self.groups.len() > limits::BIND_GROUPS_MAX {
            self.groups.clear();
        }
    }

    /// Forgets all bind groups: the params buffer has changed.
    pub(super) fn forget_groups(&mut self) {
        self.groups.clear();
    }

    fn key(&self, kernel: K, ids: &[BufferId]) -> GroupKey {
        let mut buffers = [BufferId(0); BINDINGS_MAX];
        buffers[..ids.len()].copy_from_slice(ids);
        GroupKey { layout: self.built(kernel).layout, count: ids.len(), buffers }
    }

    fn layout(&mut self, device: &Device, spec: &Spec) -> Result<usize> {
        let same = |one: &Layout| one.bindings == spec.bindings && one.params_bytes == spec.params_bytes;
        if let Some(index) = self.layouts.iter().position(same) {
            return Ok(index);
        }
        let uniform = (wgpu::BufferBindingType::Uniform, true, NonZeroU64::new(u64::from(spec.params_bytes)));
        let storage = spec.bindings.iter().map(|access| {
            let read_only = *access == Access::Read;
            (wgpu::BufferBindingType::Storage { read_only }, false, None)
        });
        let entries: Vec<_> = (0..)
            .zip(std::iter::once(uniform).chain(storage))
            .map(|(binding, (ty, has_dynamic_offset, min_binding_size))| wgpu::BindGroupLayoutEntry {
                binding,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset, min_binding_size },
                count: None,
            })
            .collect();
        let (group, pipeline) = device.scoped("create layout", 0, || {
            let descriptor = wgpu::BindGroupLayoutDescriptor { label: Some(&spec.label), entries: &entries };
            let group = device.handle.create_bind_group_layout(&descriptor);
            let descriptor = wgpu::PipelineLayoutDescriptor {
                label: Some(&spec.label),
                bind_group_layouts: &[Some(&group)],
                immediate_size: 0,
            };
            let pipeline = device.handle.create_pipeline_layout(&descriptor);
            (group, pipeline)
        })?;
        self.layouts.push(Layout { bindings: spec.bindings, params_bytes: spec.params_bytes, group, pipeline });
        Ok(self.layouts.len() - 1)
    }

    fn compile(
        &self,
        device: &Device,
        kernel: K,
        label: &str,
        layout: &wgpu::PipelineLayout,
    ) -> Result<wgpu::ComputePipeline> {
        let wgsl = kernel.wgsl();
        let compiled = device.scoped("compile kernel", wgsl.len() as u64, || {
            let module = self.module(device, label, wgsl);
            device.handle.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(label),
                layout: Some(layout),
                module: &module,
                entry_point: Some("main"),
                compilation_options: wgpu::PipelineCompilationOptions {
                    constants: &[],
                    // Our kernels write workgroup memory before they read it.
                    zero_initialize_workgroup_memory: self.checked,
                },
                cache: self.cache.as_ref(),
            })
        });
        compiled.map_err(|error| match error {
            Error::Gpu { op, message, adapter } => Error::Gpu { op, message: format!("{label}: {message}"), adapter },
            error => error,
        })
    }

    #[allow(unsafe_code, reason = "shaders without wgpu's run-time checks")]
    fn module(&self, device: &Device, label: &str, wgsl: String) -> wgpu::ShaderModule {
        let descriptor =
            wgpu::ShaderModuleDescriptor { label: Some(label), source: wgpu::ShaderSource::Wgsl(wgsl.into()) };
        if self.checked {
            return device.handle.create_shader_module(descriptor);
        }
        let mut checks = wgpu::ShaderRuntimeChecks::checked();
        checks.bounds_checks = false;
        checks.force_loop_bounding = false;
        // SAFETY: the texts are our own, never a user's. They guard every index by the sizes in their params, which the
        // recording side asserts against the buffers, and every loop counts up to a number from there. A kernel whose guard
        // or `record` function is wrong breaks this; the suites run each variant with the checks on as well.
        unsafe { device.handle.create_shader_module_trusted(descriptor, checks) }
    }
}

/// Leave to use what wgpu calls experimental, on the tier that was asked to: cooperative matrices.
#[allow(unsafe_code, reason = "wgpu's way of asking whether one knows")]
pub(super) fn experimental_features(tier: Tier) -> wgpu::ExperimentalFeatures {
    if tier < Tier::Matrix {
        return wgpu::ExperimentalFeatures::disabled();
    }
    // SAFETY: wgpu warns of bugs of its own behind such features. The user asked for this tier by name, the one feature it requests has
    // kernels whose loads and stores keep within workgroup arrays of constant size, and each is checked against its twin before use.
    unsafe { wgpu::ExperimentalFeatures::enabled() }
}

const _: () = assert!(BINDINGS_MAX == limits::BASE_STORAGE_BUFFERS);
const _: () = assert!((Tier::Base as u8) < Tier::Subgroup as u8, "tiers compare by what they can do");
const _: () = assert!((Tier::Subgroup as u8) < Tier::Matrix as u8, "tiers compare by what they can do");
