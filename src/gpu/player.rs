//! Recordings played on a device: one encoder, one compute pass for each run of launches, one submit.

use std::collections::HashMap;

use super::adapters::Adapter;
use super::capabilities::Capabilities;
use super::device::Device;
use super::pipelines::Pipelines;
use super::readback::{Pending, Readbacks, Staging, Timer};
use super::tiers::TierChoice;
use crate::error::{Error, Result};
use crate::kernels::plan::Plan;
use crate::kernels::program::{Program, assert_launch};
use crate::kernels::{Kernel, Tier};
use crate::limits;
use crate::recording::{BINDINGS_MAX, BufferId, Command, Dispatch, Played, Player, Recording, Ticket};

/// How a player is opened.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Which tier to ask of the adapter.
    pub tier: TierChoice,
    /// Compile kernels with wgpu's run-time checks (`--checked-shaders`): slower on some drivers, and safe whatever we got wrong.
    pub checked: bool,
    /// A lower bound on bindings than the device's, to test splitting.
    pub binding_bytes_max: Option<u64>,
    /// Bytes that all buffers together may take; past it [`Error::OutOfMemory`], as from a driver.
    pub memory_bytes_max: Option<u64>,
    /// Launches a submission may hold; a longer recording becomes several, so that a desktop on the same card keeps drawing.
    pub dispatches_per_submit: Option<usize>,
}

/// The player on a device.
#[derive(Debug)]
pub struct GpuPlayer<K = Kernel> {
    device: Device,
    capabilities: Capabilities,
    options: Options,
    pipelines: Pipelines<K>,
    buffers: HashMap<BufferId, wgpu::Buffer>,
    next_buffer: u32,
    buffer_bytes: u64,
    params: wgpu::Buffer,
    staged_bytes: u64,
    timer: Option<Timer>,
    readbacks: Readbacks,
    pending: HashMap<Ticket, Pending>,
    next_ticket: u64,
}

/// What is encoded together: a run of launches in one pass, or the copy of a read.
enum Part<'a, K> {
    Pass(Vec<&'a Dispatch<K>>),
    Read { buffer: BufferId, offset: u64, bytes: u64 },
}

impl<K: Program> GpuPlayer<K> {
    /// Opens a device on `adapter`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the adapter lacks the tier that was asked for; [`Error::Gpu`] or
    /// [`Error::OutOfMemory`] from the driver.
    pub async fn open(adapter: &Adapter, options: Options) -> Result<Self> {
        let device = Device::open(adapter, options.tier).await?;
        let params = create_params(&device, limits::PARAMS_BYTES_FIRST)?;
        let timer = Timer::new(&device)?;
        Ok(Self {
            capabilities: adapter.capabilities.clone(),
            pipelines: Pipelines::new(options.checked, &device)?,
            buffers: HashMap::new(),
            next_buffer: 0,
            buffer_bytes: 0,
            params,
            staged_bytes: 0,
            timer,
            readbacks: Readbacks::default(),
            pending: HashMap::new(),
            next_ticket: 0,
            device,
            options,
        })
    }

    /// [`GpuPlayer::open`], waiting for it. Not callable in a page.
    ///
    /// # Errors
    /// As [`GpuPlayer::open`].
    pub fn open_now(adapter: &Adapter, options: Options) -> Result<Self> {
        pollster::block_on(Self::open(adapter, options))
    }

    /// What the adapter is and can do; the player's own tier may be lower, see [`GpuPlayer::tier`].
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// The tier that the device was opened with.
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.device.tier
    }

    /// What variants suit this device.
    #[must_use]
    pub fn plan(&self) -> Plan {
        let int64 = self.device.features.contains(wgpu::Features::SHADER_INT64);
        let plan = Plan::new(self.device.tier, self.capabilities.software(), int64);
        Plan { matrix: self.device.matrix, ..plan }
    }

    /// Gives the device back to the driver. Each later call says [`Error::DeviceLost`].
    pub fn destroy(&mut self) {
        self.device.destroy();
    }

    fn buffer(&self, id: BufferId) -> &wgpu::Buffer {
        find(&self.buffers, id)
    }

    /// Uploads and params of a recording, before its first submission.
    fn stage(&mut self, recording: &Recording<K>) -> Result<()> {
        for command in &recording.commands {
            if let &Command::Upload { buffer, offset, start, bytes } = command {
                self.write(buffer, offset, &recording.uploads[start..start + bytes])?;
            }
        }
        if !recording.params.is_empty() {
            self.device.queue.write_buffer(&self.params, 0, &recording.params);
        }
        Ok(())
    }

    /// Makes room for `bytes` of params. Bind groups hold the params buffer, so a new one means new groups.
    fn grow_params(&mut self, bytes: u64) -> Result<()> {
        if bytes > self.params.size() {
            assert!(bytes <= limits::PARAMS_BYTES_MAX, "{bytes} bytes of params in one recording");
            self.params = create_params(&self.device, bytes.next_power_of_two())?;
            self.pipelines.forget_groups();
        }
        Ok(())
    }

    /// Compiles and binds what a recording launches, and asserts its launches.
    fn bind(&mut self, recording: &Recording<K>) -> Result<()> {
        self.pipelines.prepare(&self.device, recording.dispatches().map(|dispatch| dispatch.kernel))?;
        for dispatch in recording.dispatches() {
            let built = self.pipelines.built(dispatch.kernel);
            assert_launch(dispatch, built.bindings, built.params_bytes, recording.params.len());
            let find = |id| find(&self.buffers, id);
            self.pipelines.bind(&self.device, dispatch.kernel, &self.params, &dispatch.bindings, find)?;
        }
        Ok(())
    }

    /// Launches each kernel with no workgroups and waits: some drivers, lavapipe among them, generate code only at the first
    /// launch, and that belongs to preparing.
    fn launch_nothing(&mut self, kernels: &[K]) -> Result<()> {
        if kernels.is_empty() {
            return Ok(());
        }
        let mut ids = [BufferId(u32::MAX); BINDINGS_MAX];
        (0..).zip(&mut ids).for_each(|(i, id)| id.0 -= i);
        let mut unused = HashMap::new();
        for id in ids {
            let buffer = self.device.create_buffer("unused", limits::ELEMENT_BYTES_MAX, wgpu::BufferUsages::STORAGE)?;
            unused.insert(id, buffer);
        }
        let mut launches = Vec::with_capacity(kernels.len());
        for &kernel in kernels {
            let built = self.pipelines.built(kernel);
            let (bindings, params_bytes) = (ids[..built.bindings.len()].to_vec(), built.params_bytes);
            self.pipelines.bind(&self.device, kernel, &self.params, &bindings, |id| find(&unused, id))?;
            launches.push(Dispatch { kernel, bindings, params_offset: 0, params_bytes, grid: [0; 3] });
        }
        let submission = self.encode(&[Part::Pass(launches.iter().collect())], None);
        self.device.wait(Some(submission), "compile kernel")?;
        ids.into_iter().for_each(|id| self.pipelines.forget_buffer(id));
        Ok(())
    }

    /// Encodes and submits all parts; returns the last submission.
    fn encode(&self, parts: &[Part<'_, K>], staging: Option<&Staging>) -> wgpu::SubmissionIndex {
        let is_pass = |part: &Part<'_, K>| matches!(part, Part::Pass(_));
        let (first, last) = (parts.iter().position(is_pass), parts.iter().rposition(is_pass));
        let new_encoder = || self.device.handle.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut encoder = new_encoder();
        let mut read_bytes = 0;
        for (i, part) in parts.iter().enumerate() {
            match part {
                Part::Pass(run) => {
                    let after_pass = i.checked_sub(1).and_then(|before| parts.get(before)).is_some_and(is_pass);
                    if after_pass {
                        self.device.queue.submit([std::mem::replace(&mut encoder, new_encoder()).finish()]);
                    }
                    self.encode_pass(&mut encoder, run, Some(i) == first, Some(i) == last);
                }
                Part::Read { buffer, offset, bytes } => {
                    let to = staging.expect("a recording with reads has staging").buffer();
                    encoder.copy_buffer_to_buffer(self.buffer(*buffer), *offset, to, read_bytes, *bytes);
                    read_bytes += bytes;
                }
            }
        }
        if let (Some(timer), Some(staging), true) = (&self.timer, staging, first.is_some()) {
            timer.resolve(&mut encoder, staging);
        }
        self.device.queue.submit([encoder.finish()])
    }

    fn encode_pass(&self, encoder: &mut wgpu::CommandEncoder, run: &[&Dispatch<K>], first: bool, last: bool) {
        let timestamp_writes = self.timer.as_ref().and_then(|timer| timer.writes(first, last));
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes });
        let mut current = None;
        for dispatch in run {
            if current != Some(dispatch.kernel) {
                pass.set_pipeline(&self.pipelines.built(dispatch.kernel).pipeline);
                current = Some(dispatch.kernel);
            }
            let group = self.pipelines.group(dispatch.kernel, &dispatch.bindings);
            pass.set_bind_group(0, group, &[dispatch.params_offset]);
            let [x, y, z] = dispatch.grid;
            pass.dispatch_workgroups(x, y, z);
        }
    }

    /// The answer to `ticket` if it is there; an answer or an error ends the ticket.
    fn fetch(&mut self, ticket: Ticket) -> Result<Option<Played>> {
        let pending = self.pending.get_mut(&ticket).unwrap_or_else(|| panic!("{ticket:?} was answered already"));
        let fetched = self.readbacks.fetch(&self.device, self.timer.as_ref(), pending);
        if !matches!(fetched, Ok(None)) {
            self.pending.remove(&ticket);
        }
        fetched
    }

    /// Turns the device over; an error ends the ticket.
    fn turn(&mut self, ticket: Ticket, turn: impl FnOnce(&Device, &Pending) -> Result<()>) -> Result<()> {
        let pending = self.pending.get(&ticket).unwrap_or_else(|| panic!("{ticket:?} was answered already"));
        let turned = turn(&self.device, pending);
        if turned.is_err() {
            self.pending.remove(&ticket);
        }
        turned
    }
}

impl<K: Program> Player<K> for GpuPlayer<K> {
    fn create_buffer(&mut self, label: &str, bytes: u64) -> Result<BufferId> {
        let bytes = bytes.max(limits::BUFFER_BYTES_MIN).next_multiple_of(4);
        let most = self.binding_bytes_max();
        if bytes > most {
            let message = format!("{label} of {bytes} bytes passes the largest binding of {most} bytes");
            return Err(self.device.faults.refused("create buffer", message));
        }
        let total = self.buffer_bytes + bytes;
        if self.options.memory_bytes_max.is_some_and(|max| total > max) {
            let place = self.capabilities.name.clone();
            return Err(Error::OutOfMemory { what: label.to_owned(), bytes, place });
        }
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let buffer = self.device.create_buffer(label, bytes, usage)?;
        let id = BufferId(self.next_buffer);
        self.next_buffer = self.next_buffer.checked_add(1).expect("4 billion buffers");
        self.buffers.insert(id, buffer);
        self.buffer_bytes = total;
        Ok(id)
    }

    fn drop_buffer(&mut self, buffer: BufferId) {
        let dropped = self.buffers.remove(&buffer).unwrap_or_else(|| panic!("{buffer:?} is no buffer"));
        self.buffer_bytes -= dropped.size();
        self.pipelines.forget_buffer(buffer);
    }

    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<()> {
        let target = self.buffer(buffer);
        let bytes = data.len() as u64;
        assert!(offset.is_multiple_of(4) && bytes.is_multiple_of(4), "write {offset}+{bytes} is not whole words");
        assert!(offset + bytes <= target.size(), "write {offset}+{bytes} passes {buffer:?} of {} bytes", target.size());
        let chunk_bytes = limits::LOAD_CHUNK_BYTES;
        let mut at = offset;
        for chunk in data.chunks(usize::try_from(chunk_bytes).expect("a chunk fits memory")) {
            self.device.queue.write_buffer(self.buffer(buffer), at, chunk);
            self.device.faults.check("write buffer", bytes)?;
            at += chunk.len() as u64;
            self.staged_bytes += chunk.len() as u64;
            if self.staged_bytes >= limits::STAGING_BYTES_MAX {
                // wgpu keeps staging memory until the device has taken it over.
                let submission = self.device.queue.submit([]);
                self.device.wait(Some(submission), "write buffer")?;
                self.staged_bytes = 0;
            }
        }
        Ok(())
    }

    fn submit(&mut self, recording: &Recording<K>) -> Result<Ticket> {
        self.device.poll("submit")?;
        assert!(self.pending.len() < limits::RECORDINGS_IN_FLIGHT_MAX, "{} unanswered recordings", self.pending.len());
        self.pipelines.trim_groups();
        self.grow_params(recording.params.len() as u64)?;
        self.bind(recording)?;
        self.stage(recording)?;
        let each = recording.dispatch_count().div_ceil(recording.pieces.max(1) as usize);
        let borders = &recording.borders[..];
        let parts = match self.options.dispatches_per_submit {
            Some(most) => parts(recording, most, &[]),
            None => parts(recording, each, borders),
        };
        let read_bytes = read_bytes(recording, |id| self.buffer(id).size());
        let timed = self.timer.is_some() && parts.iter().any(|part| matches!(part, Part::Pass(_)));
        let staging = self.readbacks.take(&self.device, read_bytes, timed)?;
        let submission = self.encode(&parts, staging.as_ref());
        self.staged_bytes = 0;
        let pending = self.readbacks.begin(&self.device, submission, staging);
        self.device.poll("submit")?;
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.pending.insert(ticket, pending);
        Ok(ticket)
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Option<Played>> {
        self.turn(ticket, |device, _| device.poll("play"))?;
        self.fetch(ticket)
    }

    fn wait(&mut self, ticket: Ticket) -> Result<Played> {
        if let Some(played) = self.poll(ticket)? {
            return Ok(played);
        }
        self.turn(ticket, |device, pending| device.wait(Some(pending.submission.clone()), "play"))?;
        match self.fetch(ticket)? {
            Some(played) => Ok(played),
            None => Err(self.device.faults.refused("play", "nothing came back; a page must poll instead of waiting")),
        }
    }

    fn prepare(&mut self, kernels: &[K]) -> Result<()> {
        let new = self.pipelines.prepare(&self.device, kernels.iter().copied())?;
        self.launch_nothing(&new)
    }

    fn compiled(&self) -> Option<Vec<u8>> {
        self.pipelines.compiled()
    }

    fn restore_compiled(&mut self, data: &[u8]) -> Result<()> {
        self.pipelines.restore(&self.device, data)
    }

    fn binding_bytes_max(&self) -> u64 {
        // Whole vec4s: drivers say 2 GiB - 1.
        let most = self.device.limits.max_storage_buffer_binding_size.min(self.device.limits.max_buffer_size);
        self.options.binding_bytes_max.map_or(most, |forced| forced.min(most)) / 16 * 16
    }

    fn buffer_bytes_max(&self) -> u64 {
        self.device.limits.max_buffer_size / 16 * 16
    }

    fn adapter(&self) -> &str {
        self.device.faults.adapter()
    }
}

fn create_params(device: &Device, bytes: u64) -> Result<wgpu::Buffer> {
    device.create_buffer("params", bytes, wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST)
}

fn find(buffers: &HashMap<BufferId, wgpu::Buffer>, id: BufferId) -> &wgpu::Buffer {
    buffers.get(&id).unwrap_or_else(|| panic!("{id:?} is no buffer"))
}
/// Bytes of all reads, each asserted to lie in its buffer.
fn read_bytes<K>(recording: &Recording<K>, size: impl Fn(BufferId) -> u64) -> u64 {
    let mut total = 0;
    for command in &recording.commands {
        if let &Command::Read { buffer, offset, bytes } = command {
            let end = size(buffer);
            assert!(offset + bytes <= end, "read {offset}+{bytes} passes {buffer:?} of {end} bytes");
            total += bytes;
        }
    }
    total
}

/// Whether a recording may be cut before command `at`.
fn is_border(borders: &[usize], at: usize) -> bool {
    borders.is_empty() || borders.binary_search(&at).is_ok()
}

/// Runs of launches and the copies of reads; a run ends at the first border behind `enough` launches.
fn parts<'a, K>(recording: &'a Recording<K>, enough: usize, borders: &[usize]) -> Vec<Part<'a, K>> {
    let mut parts = Vec::new();
    for (at, command) in recording.commands.iter().enumerate() {
        match command {
            Command::Upload { .. } => {}
            Command::Dispatch(dispatch) => match parts.last_mut() {
                Some(Part::Pass(run)) if run.len() < enough.max(1) || !is_border(borders, at) => run.push(dispatch),
                _ => parts.push(Part::Pass(vec![dispatch])),
            },
            &Command::Read { bytes: 0, .. } => {}
            &Command::Read { buffer, offset, bytes } => parts.push(Part::Read { buffer, offset, bytes }),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_cut_at_its_borders_once_a_run_is_long_enough() {
        let lengths = |enough: usize, borders: &[usize]| -> Vec<usize> {
            let mut recording = Recording::<u8>::new();
            for n in 0..10 {
                recording.dispatch(n, &[], &[0_u32; 4], [1, 1, 1]);
            }
            let run = |part: &Part<'_, u8>| match part {
                Part::Pass(run) => run.len(),
                Part::Read { .. } => 0,
            };
            parts(&recording, enough, borders).iter().map(run).collect()
        };
        assert_eq!(lengths(100, &[0, 3, 6, 9]), [10]);
        assert_eq!(lengths(4, &[0, 3, 6, 9]), [6, 4]);
        assert_eq!(lengths(1, &[0, 3, 6, 9]), [3, 3, 3, 1]);
        assert_eq!(lengths(4, &[]), [4, 4, 2]);
    }
}
