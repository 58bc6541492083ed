//! The CPU player of recordings: the same commands, the same numbers, no adapter.
//!
//! It knows a kernel by its CPU twin alone, so whatever plays here has never seen a shader. Everything is done when
//! [`Player::submit`] returns.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::kernels::program::{Program, assert_launch};
use crate::kernels::{Access, Kernel};
use crate::limits;
use crate::recording::{BufferId, Command, Dispatch, Played, Player, Recording, Ticket};

/// The name that `--device` knows it by.
pub const NAME: &str = "twin";

/// A player on the CPU.
#[derive(Debug)]
pub struct Twin<K = Kernel> {
    buffers: HashMap<BufferId, Vec<u32>>,
    next_buffer: u32,
    buffer_bytes: u64,
    facts: HashMap<K, Facts>,
    played: HashMap<Ticket, Played>,
    next_ticket: u64,
    binding_bytes_max: u64,
    memory_bytes_max: u64,
}

/// What launches of a kernel are checked against.
#[derive(Debug, Clone, Copy)]
struct Facts {
    bindings: &'static [Access],
    params_bytes: u32,
}

impl<K: Program> Default for Twin<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Program> Twin<K> {
    /// A player with the limits of the base tier.
    #[must_use]
    pub fn new() -> Self {
        Self {
            buffers: HashMap::new(),
            next_buffer: 0,
            buffer_bytes: 0,
            facts: HashMap::new(),
            played: HashMap::new(),
            next_ticket: 0,
            binding_bytes_max: limits::BASE_BINDING_BYTES,
            memory_bytes_max: u64::MAX,
        }
    }

    /// The same with another bound on bindings, to test splitting.
    #[must_use]
    pub fn with_binding_bytes_max(mut self, bytes: u64) -> Self {
        self.binding_bytes_max = bytes / 16 * 16;
        self
    }

    /// The same with a bound on the bytes of all buffers, past which it is out of memory.
    #[must_use]
    pub fn with_memory_bytes_max(mut self, bytes: u64) -> Self {
        self.memory_bytes_max = bytes;
        self
    }

    fn buffer(&mut self, id: BufferId) -> &mut Vec<u32> {
        self.buffers.get_mut(&id).unwrap_or_else(|| panic!("{id:?} is no buffer"))
    }

    fn bytes(&mut self, id: BufferId, offset: u64, bytes: u64) -> &mut [u8] {
        let all: &mut [u8] = bytemuck::cast_slice_mut(self.buffer(id));
        let end = all.len() as u64;
        assert!(offset.is_multiple_of(4) && bytes.is_multiple_of(4), "range {offset}+{bytes} is not whole words");
        assert!(offset + bytes <= end, "range {offset}+{bytes} passes {id:?} of {end} bytes");
        &mut all[index(offset)..index(offset + bytes)]
    }

    fn facts(&mut self, kernel: K) -> Facts {
        *self.facts.entry(kernel).or_insert_with(|| {
            let spec = kernel.spec();
            Facts { bindings: spec.bindings, params_bytes: spec.params_bytes }
        })
    }

    fn launch(&mut self, dispatch: &Dispatch<K>, params: &[u8]) {
        let Facts { bindings, params_bytes } = self.facts(dispatch.kernel);
        assert_launch(dispatch, bindings, params_bytes, params.len());
        // The bound buffers leave the store while the kernel has them; one that is read through two bindings is copied.
        let mut memory: Vec<Vec<u32>> = Vec::with_capacity(dispatch.bindings.len());
        for (i, id) in dispatch.bindings.iter().enumerate() {
            let earlier = dispatch.bindings[..i].iter().position(|other| other == id);
            let words = earlier.map_or_else(|| std::mem::take(self.buffer(*id)), |at| memory[at].clone());
            memory.push(words);
        }
        let lengths: Vec<usize> = memory.iter().map(Vec::len).collect();
        let start = dispatch.params_offset as usize;
        let own = &params[start..start + dispatch.params_bytes as usize];
        dispatch.kernel.twin(own, dispatch.grid, &mut memory);
        for ((id, words), length) in dispatch.bindings.iter().zip(memory).zip(lengths) {
            assert_eq!(words.len(), length, "the twin of {:?} changed the size of {id:?}", dispatch.kernel);
            *self.buffer(*id) = words;
        }
    }
}

impl<K: Program> Player<K> for Twin<K> {
    fn create_buffer(&mut self, label: &str, bytes: u64) -> Result<BufferId> {
        let bytes = bytes.max(limits::BUFFER_BYTES_MIN).next_multiple_of(4);
        let most = self.binding_bytes_max;
        if bytes > most {
            let message = format!("{label} of {bytes} bytes passes the largest binding of {most} bytes");
            return Err(Error::Gpu { op: "create buffer", message, adapter: NAME.to_owned() });
        }
        let out_of_memory = || Error::OutOfMemory { what: label.to_owned(), bytes, place: NAME.to_owned() };
        if self.buffer_bytes + bytes > self.memory_bytes_max {
            return Err(out_of_memory());
        }
        let mut words = Vec::new();
        words.try_reserve_exact(index(bytes / 4)).map_err(|_| out_of_memory())?;
        words.resize(index(bytes / 4), 0);
        let id = BufferId(self.next_buffer);
        self.next_buffer = self.next_buffer.checked_add(1).expect("4 billion buffers");
        self.buffers.insert(id, words);
        self.buffer_bytes += bytes;
        Ok(id)
    }

    fn drop_buffer(&mut self, buffer: BufferId) {
        let dropped = self.buffers.remove(&buffer).unwrap_or_else(|| panic!("{buffer:?} is no buffer"));
        self.buffer_bytes -= dropped.len() as u64 * 4;
    }

    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<()> {
        self.bytes(buffer, offset, data.len() as u64).copy_from_slice(data);
        Ok(())
    }

    fn submit(&mut self, recording: &Recording<K>) -> Result<Ticket> {
        assert!(self.played.len() < limits::RECORDINGS_IN_FLIGHT_MAX, "{} unanswered recordings", self.played.len());
        for command in &recording.commands {
            if let &Command::Upload { buffer, offset, start, bytes } = command {
                self.write(buffer, offset, &recording.uploads[start..start + bytes])?;
            }
        }
        let mut played = Played::default();
        for command in &recording.commands {
            match command {
                Command::Upload { .. } => {}
                Command::Dispatch(dispatch) => self.launch(dispatch, &recording.params),
                &Command::Read { buffer, offset, bytes } => {
                    let words: &[u32] = bytemuck::cast_slice(self.bytes(buffer, offset, bytes));
                    played.words.extend_from_slice(words);
                }
            }
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.played.insert(ticket, played);
        Ok(ticket)
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Option<Played>> {
        self.wait(ticket).map(Some)
    }

    fn wait(&mut self, ticket: Ticket) -> Result<Played> {
        Ok(self.played.remove(&ticket).unwrap_or_else(|| panic!("{ticket:?} was answered already")))
    }

    fn prepare(&mut self, _kernels: &[K]) -> Result<()> {
        Ok(())
    }

    fn binding_bytes_max(&self) -> u64 {
        self.binding_bytes_max
    }

    fn buffer_bytes_max(&self) -> u64 {
        self.binding_bytes_max
    }

    fn adapter(&self) -> &str {
        NAME
    }
}

fn index(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a buffer in memory")
}
