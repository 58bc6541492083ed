//! What the GPU shall do, written down without a GPU.
//!
//! A [`Recording`] is a list of commands over buffer handles, generic over the kernel it names: this layer knows no kernel,
//! no shader and no wgpu. A [`Player`] (the GPU's or the CPU twin's) owns the buffers and plays recordings in order.
//! Offsets, page tables and dispatch counts are therefore tested without an adapter.

use crate::clock::Clock;
use crate::error::Result;
use crate::limits;

/// A buffer owned by one [`Player`]. Handles of one player mean nothing to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

/// Most buffers a dispatch binds, beside its params.
pub const BINDINGS_MAX: usize = limits::BASE_STORAGE_BUFFERS;

/// One kernel launch. Bindings are whole buffers in the order of the kernel's `@binding(1..)`; params are `@binding(0)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispatch<K> {
    /// Which kernel, with its variant's constants.
    pub kernel: K,
    /// Storage buffers, in binding order.
    pub bindings: Vec<BufferId>,
    /// Byte offset of the params in [`Recording::params`]; a multiple of [`limits::PARAMS_STRIDE`].
    pub params_offset: u32,
    /// Bytes of the params struct.
    pub params_bytes: u32,
    /// Workgroups a axis; each at most [`limits::BASE_WORKGROUPS`].
    pub grid: [u32; 3],
}

/// One step of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command<K> {
    /// Bytes from [`Recording::uploads`] into a buffer. All uploads of a recording take effect before its first dispatch.
    Upload {
        /// Where to.
        buffer: BufferId,
        /// Byte offset in the buffer, a multiple of 4.
        offset: u64,
        /// Start of the bytes in [`Recording::uploads`].
        start: usize,
        /// How many; a multiple of 4.
        bytes: usize,
    },
    /// A kernel launch.
    Dispatch(Dispatch<K>),
    /// Bytes to hand back when the recording has been played, after all commands before it.
    Read {
        /// Where from.
        buffer: BufferId,
        /// Byte offset, a multiple of 4.
        offset: u64,
        /// How many; a multiple of 4.
        bytes: u64,
    },
}

/// A list of commands with the bytes they need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recording<K> {
    /// In the order in which they take effect.
    pub commands: Vec<Command<K>>,
    /// Params structs, each at a multiple of [`limits::PARAMS_STRIDE`].
    pub params: Vec<u8>,
    /// Bytes of all uploads, one after the other.
    pub uploads: Vec<u8>,
    /// How many submits of like length it should become, where a player can cut it between launches: at least 1.
    pub pieces: u32,
    /// Commands before each place where it is best cut, ascending; empty where any is as good.
    pub borders: Vec<usize>,
}

impl<K> Default for Recording<K> {
    fn default() -> Self {
        Self { commands: Vec::new(), params: Vec::new(), uploads: Vec::new(), pieces: 1, borders: Vec::new() }
    }
}

impl<K> Recording<K> {
    /// An empty recording.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets everything but keeps the memory.
    pub fn clear(&mut self) {
        self.commands.clear();
        self.params.clear();
        self.uploads.clear();
        self.borders.clear();
        self.pieces = 1;
    }

    /// Has it cut into submits that each keep the device for `most_nanos`, as far as a play of the whole lasts `nanos` and its launches
    /// are alike; a launch stays whole.
    pub fn cut(&mut self, nanos: u64, most_nanos: u64) {
        let pieces = nanos.div_ceil(most_nanos.max(1)).clamp(1, limits::SUBMITS_A_STEP_MAX);
        self.pieces = u32::try_from(pieces).expect("few");
    }

    /// Here it is best cut.
    pub fn border(&mut self) {
        self.borders.push(self.commands.len());
    }

    /// Appends an upload of `words` to `buffer` from byte `offset` on.
    pub fn upload<T: bytemuck::NoUninit>(&mut self, buffer: BufferId, offset: u64, words: &[T]) {
        let data: &[u8] = bytemuck::cast_slice(words);
        if data.is_empty() {
            return;
        }
        assert!(offset.is_multiple_of(4), "upload offset {offset} is not a multiple of 4");
        assert!(data.len().is_multiple_of(4), "upload of {} bytes is not whole words", data.len());
        let start = self.uploads.len();
        self.uploads.extend_from_slice(data);
        self.commands.push(Command::Upload { buffer, offset, start, bytes: data.len() });
    }

    /// Appends a launch. An empty grid records nothing.
    pub fn dispatch<P: bytemuck::NoUninit>(&mut self, kernel: K, bindings: &[BufferId], params: &P, grid: [u32; 3]) {
        if grid.contains(&0) {
            return;
        }
        assert!(bindings.len() <= BINDINGS_MAX, "{} bindings", bindings.len());
        assert!(grid.iter().all(|&n| n <= limits::BASE_WORKGROUPS), "grid {grid:?} passes {}", limits::BASE_WORKGROUPS);
        let data = bytemuck::bytes_of(params);
        let stride = limits::PARAMS_STRIDE as usize;
        assert!(data.len() <= stride && data.len().is_multiple_of(16), "params of {} bytes", data.len());
        let at = self.params.len();
        self.params.extend_from_slice(data);
        self.params.resize(at + stride, 0);
        self.commands.push(Command::Dispatch(Dispatch {
            kernel,
            bindings: bindings.to_vec(),
            params_offset: u32::try_from(at).expect("params of a step fit 4 GiB"),
            params_bytes: u32::try_from(data.len()).expect("a params struct is small"),
            grid,
        }));
    }

    /// Appends a read-back. Reads come back one after the other in the order recorded.
    pub fn read(&mut self, buffer: BufferId, offset: u64, bytes: u64) {
        assert!(offset.is_multiple_of(4) && bytes.is_multiple_of(4), "read {offset}+{bytes} is not whole words");
        self.commands.push(Command::Read { buffer, offset, bytes });
    }

    /// The launches.
    pub fn dispatches(&self) -> impl Iterator<Item = &Dispatch<K>> {
        self.commands.iter().filter_map(|command| match command {
            Command::Dispatch(dispatch) => Some(dispatch),
            Command::Upload { .. } | Command::Read { .. } => None,
        })
    }

    /// Launches recorded so far.
    #[must_use]
    pub fn dispatch_count(&self) -> usize {
        self.dispatches().count()
    }
}

/// A recording that was handed to a player.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// What came of a recording.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Played {
    /// The words of all reads, in the order recorded.
    pub words: Vec<u32>,
    /// Time on the GPU in nanoseconds, where the adapter has timestamps.
    pub gpu_nanos: Option<u64>,
}

/// Owns buffers and plays recordings. One player is one device.
pub trait Player<K> {
    /// Makes a zero-filled buffer of `bytes` (rounded up to 4) bytes that kernels can bind whole.
    ///
    /// # Errors
    /// Out of memory, a size past [`Player::binding_bytes_max`], or a lost device.
    fn create_buffer(&mut self, label: &str, bytes: u64) -> Result<BufferId>;

    /// Frees a buffer. Recordings in flight keep it alive.
    fn drop_buffer(&mut self, buffer: BufferId);

    /// Writes bytes now, before any later recording; for weights. Bounded staging: it may wait for the device.
    ///
    /// # Errors
    /// Out of memory or a lost device.
    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<()>;

    /// Plays a recording; returns at once.
    ///
    /// # Errors
    /// A kernel that the driver refuses, out of memory, or a lost device.
    fn submit(&mut self, recording: &Recording<K>) -> Result<Ticket>;

    /// The result of a submitted recording if it is there. Each ticket is answered once.
    ///
    /// # Errors
    /// A lost device, or what the driver reported while it played.
    fn poll(&mut self, ticket: Ticket) -> Result<Option<Played>>;

    /// Waits for the result. Not callable in a page, where only [`Player::poll`] makes progress.
    ///
    /// # Errors
    /// As [`Player::poll`].
    fn wait(&mut self, ticket: Ticket) -> Result<Played>;

    /// Builds kernels ahead of their first use, so that no step pays for compiling.
    ///
    /// # Errors
    /// A kernel that the driver refuses, or a lost device.
    fn prepare(&mut self, kernels: &[K]) -> Result<()>;

    /// What the driver made of the kernels so far, for [`Player::restore_compiled`] of a later process; `None` where it tells nothing.
    fn compiled(&self) -> Option<Vec<u8>> {
        None
    }

    /// What [`Player::compiled`] gave on this adapter, with this driver and build: kernels in it need not be compiled anew.
    ///
    /// # Errors
    /// Out of memory or a lost device.
    fn restore_compiled(&mut self, _data: &[u8]) -> Result<()> {
        Ok(())
    }

    /// Largest buffer that can be bound, in bytes.
    fn binding_bytes_max(&self) -> u64;

    /// Largest buffer that can be made, in bytes; at least [`Player::binding_bytes_max`].
    fn buffer_bytes_max(&self) -> u64;

    /// The adapter's name, for messages.
    fn adapter(&self) -> &str;
}

/// Least nanoseconds of `runs` plays, by the adapter's clock where it has one, else until the result is there.
///
/// # Errors
/// The player's.
pub fn least_nanos<K>(player: &mut dyn Player<K>, recording: &Recording<K>, runs: u32) -> Result<u64> {
    Ok(least(player, recording, runs)?.0)
}

/// Least nanoseconds of `runs` plays until the result is there.
///
/// # Errors
/// The player's.
pub fn least_wall_nanos<K>(player: &mut dyn Player<K>, recording: &Recording<K>, runs: u32) -> Result<u64> {
    Ok(least(player, recording, runs)?.1)
}

/// By the adapter's clock, and until the result is there.
fn least<K>(player: &mut dyn Player<K>, recording: &Recording<K>, runs: u32) -> Result<(u64, u64)> {
    let mut least = (u64::MAX, u64::MAX);
    for _ in 0..runs {
        let clock = Clock::start();
        let ticket = player.submit(recording)?;
        let played = player.wait(ticket)?;
        let waited = clock.nanos();
        least = (least.0.min(played.gpu_nanos.unwrap_or(waited)), least.1.min(waited));
    }
    Ok(least)
}
