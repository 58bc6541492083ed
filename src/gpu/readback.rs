//! Bytes and timestamps on their way back: staging buffers that are mapped when the GPU is done, and used again.

use futures_channel::oneshot;

use super::device::Device;
use crate::error::Result;
use crate::limits;
use crate::recording::Played;

/// Bytes of the two timestamps of a recording.
const TIME_BYTES: u64 = 16;

/// Staging buffers that nobody uses now.
#[derive(Debug, Default)]
pub(super) struct Readbacks {
    free: Vec<wgpu::Buffer>,
}

/// Begin and end of a recording's passes.
#[derive(Debug)]
pub(super) struct Timer {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    nanos_per_tick: f32,
}

/// What a submitted recording will answer.
#[derive(Debug)]
pub(super) struct Pending {
    /// The last submission of the recording.
    pub(super) submission: wgpu::SubmissionIndex,
    staging: Option<Staging>,
    done: oneshot::Receiver<std::result::Result<(), wgpu::BufferAsyncError>>,
}

/// Where the answer of a recording goes: the words of its reads, then, with a timer, two timestamps.
#[derive(Debug)]
pub(super) struct Staging {
    buffer: wgpu::Buffer,
    read_bytes: u64,
    timed: bool,
}

impl Staging {
    fn time_offset(&self) -> u64 {
        self.read_bytes.next_multiple_of(8)
    }

    fn bytes(&self) -> u64 {
        self.time_offset() + if self.timed { TIME_BYTES } else { 0 }
    }

    /// Where reads are copied to.
    pub(super) fn buffer(&self) -> &wgpu::Buffer {
        &self.buffer
    }
}

impl Readbacks {
    /// A place for `read_bytes` of reads and, if `timed`, the timestamps; `None` when there is nothing to bring back.
    pub(super) fn take(&mut self, device: &Device, read_bytes: u64, timed: bool) -> Result<Option<Staging>> {
        let bytes = read_bytes.next_multiple_of(8) + if timed { TIME_BYTES } else { 0 };
        if bytes == 0 {
            return Ok(None);
        }
        let fitting = self.free.iter().position(|buffer| buffer.size() >= bytes);
        let buffer = match fitting {
            Some(index) => self.free.swap_remove(index),
            None => {
                let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
                let size =
                    bytes.checked_next_power_of_two().unwrap_or(bytes).max(4096).min(device.limits.max_buffer_size);
                device.create_buffer("readback", size.max(bytes), usage)?
            }
        };
        Ok(Some(Staging { buffer, read_bytes, timed }))
    }

    /// Asks for the answer of what has just been submitted.
    pub(super) fn begin(
        &mut self,
        device: &Device,
        submission: wgpu::SubmissionIndex,
        staging: Option<Staging>,
    ) -> Pending {
        let (sender, done) = oneshot::channel();
        match &staging {
            Some(staging) => staging.buffer.map_async(wgpu::MapMode::Read, ..staging.bytes(), move |result| {
                drop(sender.send(result));
            }),
            None => device.queue.on_submitted_work_done(move || drop(sender.send(Ok(())))),
        }
        Pending { submission, staging, done }
    }

    /// The answer, if it is there. [`Pending`] is of no more use after an answer or an error.
    pub(super) fn fetch(
        &mut self,
        device: &Device,
        timer: Option<&Timer>,
        pending: &mut Pending,
    ) -> Result<Option<Played>> {
        match pending.done.try_recv() {
            Ok(None) => return Ok(None),
            Ok(Some(Ok(()))) => {}
            Ok(Some(Err(error))) => return Err(device.faults.refused("read back", error.to_string())),
            Err(_) => return Err(device.faults.refused("read back", "the driver dropped the recording")),
        }
        let Some(staging) = pending.staging.take() else {
            return Ok(Some(Played::default()));
        };
        let view = staging.buffer.get_mapped_range(..staging.bytes());
        let view = view.map_err(|error| device.faults.refused("read back", error.to_string()))?;
        let split = usize::try_from(staging.time_offset()).expect("a mapped range fits memory");
        let mut words: Vec<u32> = bytemuck::pod_collect_to_vec(&view[..split]);
        words.truncate(usize::try_from(staging.read_bytes / 4).expect("a mapped range fits memory"));
        let gpu_nanos = match timer {
            Some(timer) if staging.timed => timer.nanos(bytemuck::pod_collect_to_vec(&view[split..]).as_slice()),
            _ => None,
        };
        drop(view);
        staging.buffer.unmap();
        if self.free.len() < limits::READBACKS_FREE_MAX {
            self.free.push(staging.buffer);
        }
        Ok(Some(Played { words, gpu_nanos }))
    }
}

impl Timer {
    /// A timer, where the device has timestamps.
    pub(super) fn new(device: &Device) -> Result<Option<Self>> {
        if !device.features.contains(wgpu::Features::TIMESTAMP_QUERY) {
            return Ok(None);
        }
        let descriptor = wgpu::QuerySetDescriptor { label: Some("timer"), ty: wgpu::QueryType::Timestamp, count: 2 };
        let queries = device.scoped("create timer", TIME_BYTES, || device.handle.create_query_set(&descriptor))?;
        let usage = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
        let resolved = device.create_buffer("timer", TIME_BYTES, usage)?;
        Ok(Some(Self { queries, resolved, nanos_per_tick: device.queue.get_timestamp_period() }))
    }

    /// Timestamps that a pass writes: the begin if it is the first of its recording, the end if it is the last.
    pub(super) fn writes(&self, first: bool, last: bool) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        (first || last).then_some(wgpu::ComputePassTimestampWrites {
            query_set: &self.queries,
            beginning_of_pass_write_index: first.then_some(0),
            end_of_pass_write_index: last.then_some(1),
        })
    }

    /// Records the copy of both timestamps to their staging.
    pub(super) fn resolve(&self, encoder: &mut wgpu::CommandEncoder, staging: &Staging) {
        encoder.resolve_query_set(&self.queries, 0..2, &self.resolved, 0);
        encoder.copy_buffer_to_buffer(&self.resolved, 0, &staging.buffer, staging.time_offset(), TIME_BYTES);
    }

    /// Drivers that give nothing, or a clock that was set back, leave no figure.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "spans are far below 2^53 ticks, and casts from float saturate"
    )]
    fn nanos(&self, ticks: &[u64]) -> Option<u64> {
        let &[begin, end] = ticks else { return None };
        let span = end.checked_sub(begin).filter(|_| begin != 0)?;
        Some((span as f64 * f64::from(self.nanos_per_tick)) as u64)
    }
}
