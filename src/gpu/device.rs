//! wgpu's device with typed errors. The one file of this layer where native and web differ: error scopes answer at once
//! natively and later on the web, where [`Faults`] gather what went wrong until the next call; threads and waiting exist
//! natively only.

use std::sync::Arc;

use super::adapters::Adapter;
use super::capabilities::subgroup_min_size;
use super::faults::Faults;
use super::pipelines::experimental_features;
use super::tiers::{self, Offer, TierChoice};
use crate::error::{Error, Result};
use crate::kernels::Tier;
use crate::kernels::plan::MatrixSizes;

/// An open device.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) handle: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    pub(super) faults: Arc<Faults>,
    pub(super) tier: Tier,
    pub(super) limits: wgpu::Limits,
    pub(super) features: wgpu::Features,
    pub(super) matrix: MatrixSizes,
}

impl Device {
    /// Opens a device with what the tier asks for, and no more.
    pub(super) async fn open(adapter: &Adapter, tier: TierChoice) -> Result<Self> {
        let (info, limits) = (adapter.handle.get_info(), adapter.handle.limits());
        let name = &adapter.capabilities.name;
        let features = adapter.handle.features();
        let (matrices, lanes) = (adapter.handle.cooperative_matrix_properties(), subgroup_min_size(&info));
        let offer = Offer { name, features, limits: &limits, subgroup_min_size: lanes, matrices: &matrices };
        let request = tiers::request(tier, &offer)?;
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("twostroke"),
            required_features: request.features,
            required_limits: request.limits.clone(),
            // Few and large buffers: sub-allocation in big blocks would only waste memory.
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            experimental_features: experimental_features(request.tier),
            ..Default::default()
        };
        let faults = Faults::new(name);
        let opened = adapter.handle.request_device(&descriptor).await;
        let (handle, queue) = opened.map_err(|error| faults.refused("open device", error.to_string()))?;
        faults.watch(&handle);
        let tiers::Request { tier, features, limits, matrix } = request;
        Ok(Self { handle, queue, faults, tier, limits, features, matrix })
    }

    /// Makes a zero-filled buffer.
    pub(super) fn create_buffer(&self, label: &str, bytes: u64, usage: wgpu::BufferUsages) -> Result<wgpu::Buffer> {
        let descriptor = wgpu::BufferDescriptor { label: Some(label), size: bytes, usage, mapped_at_creation: false };
        self.scoped("create buffer", bytes, || self.handle.create_buffer(&descriptor)).map_err(|error| match error {
            Error::OutOfMemory { bytes, place, .. } => Error::OutOfMemory { what: label.to_owned(), bytes, place },
            error => error,
        })
    }

    /// Runs `work` and returns what the driver said about it, if it was an error. Scopes are per thread, so threads that
    /// compile side by side each get their own.
    #[cfg(not(target_arch = "wasm32"))]
    pub(super) fn scoped<T>(&self, what: &'static str, bytes: u64, work: impl FnOnce() -> T) -> Result<T> {
        use wgpu::ErrorFilter::{Internal, OutOfMemory, Validation};
        let [outer, middle, inner] = [Validation, Internal, OutOfMemory].map(|f| self.handle.push_error_scope(f));
        let value = work();
        // Natively the futures are ready as soon as the scope is popped.
        let errors =
            [pollster::block_on(inner.pop()), pollster::block_on(middle.pop()), pollster::block_on(outer.pop())];
        // A lost device is reported by its callback, which only polling calls, and not to scopes.
        self.poll(what)?;
        match errors.into_iter().flatten().next() {
            Some(error) => Err(self.faults.typed(what, bytes, error.into())),
            None => Ok(value),
        }
    }

    /// Runs `work`; what went wrong comes with a later call.
    #[cfg(target_arch = "wasm32")]
    pub(super) fn scoped<T>(&self, what: &'static str, bytes: u64, work: impl FnOnce() -> T) -> Result<T> {
        let value = work();
        self.faults.check(what, bytes)?;
        Ok(value)
    }

    /// Lets finished work call back, without waiting, and returns what went wrong since the last call.
    pub(super) fn poll(&self, what: &'static str) -> Result<()> {
        self.turn(wgpu::PollType::Poll, what)?;
        self.faults.check(what, 0)
    }

    /// Waits for a submission and lets it call back. Returns at once in a page.
    pub(super) fn wait(&self, submission: Option<wgpu::SubmissionIndex>, what: &'static str) -> Result<()> {
        let waited = self.turn(wgpu::PollType::Wait { submission_index: submission, timeout: None }, what);
        self.faults.check(what, 0)?;
        waited
    }

    /// Turns the device over. On a device that is lost at the driver's side wgpu panics here after it has called the lost
    /// callback; that panic ends as the error that the callback recorded.
    #[cfg(not(target_arch = "wasm32"))]
    fn turn(&self, poll: wgpu::PollType, what: &'static str) -> Result<()> {
        let turned = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.handle.poll(poll)));
        match turned {
            Ok(Ok(_)) => Ok(()),
            // The submission was dropped because the device was gone already.
            Ok(Err(wgpu::PollError::WrongSubmissionIndex(..))) => {
                self.turn(wgpu::PollType::Poll, what)?;
                self.faults.check(what, 0)?;
                Err(self.faults.refused(what, "the submission was dropped"))
            }
            Ok(Err(error)) => Err(self.faults.refused(what, error.to_string())),
            Err(_) => {
                self.faults.lose("the driver failed while the device was polled".to_owned());
                self.faults.check(what, 0)
            }
        }
    }

    /// A browser turns its devices over by itself.
    #[cfg(target_arch = "wasm32")]
    #[allow(clippy::unused_self, reason = "the native one needs it")]
    fn turn(&self, _poll: wgpu::PollType, _what: &'static str) -> Result<()> {
        Ok(())
    }

    /// Gives the device back to the driver: everything on it is gone, and each later call says so.
    pub(super) fn destroy(&self) {
        self.handle.destroy();
        self.faults.lose("destroyed".to_owned());
    }
}

/// `work` on each of `jobs`, in their order; on as many threads as there are processors.
#[cfg(not(target_arch = "wasm32"))]
pub(super) fn each_in_parallel<J: Sync, T: Send>(jobs: &[J], work: impl Fn(&J) -> T + Sync) -> Vec<T> {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    if threads <= 1 {
        return jobs.iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let run = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(index) else { return done };
            done.push((index, work(job)));
        }
    };
    let mut results: Vec<(usize, T)> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        handles.into_iter().flat_map(|h| h.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    results.sort_unstable_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, value)| value).collect()
}

/// `work` on each of `jobs`, in their order.
#[cfg(target_arch = "wasm32")]
pub(super) fn each_in_parallel<J, T>(jobs: &[J], work: impl Fn(&J) -> T) -> Vec<T> {
    jobs.iter().map(work).collect()
}
