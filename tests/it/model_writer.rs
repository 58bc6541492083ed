//! Writes small models for tests: GGUF and safetensors files field by field, and whole random models with a tokenizer.
//!
//! ```ignore
//! let tiny = TinyLlama::default();                       // two layers, width 64, 320 tokens, byte-level BPE
//! let gguf: Vec<u8> = tiny.gguf(BlockFormat::Q4_0).bytes();
//! let files: Vec<(String, Vec<u8>)> = tiny.folder(BlockFormat::F16, 3); // the same weights, three shards with an index
//! write_files(dir.path(), &files);
//! ```
//! Same seed, same bytes. GGUF and folder hold the same weights: q and k are permuted for the GGUF as llama.cpp does.
#![allow(dead_code, unused_imports)] // A toolbox: not every tool is in use at every time.

mod gguf;
mod quant;
mod safetensors;
mod tiny;
mod vocab;

pub(crate) use gguf::{GgufTensor, GgufWriter, Meta, Written, tensor_type};
pub(crate) use quant::encode;
pub(crate) use safetensors::SafetensorsWriter;
pub(crate) use tiny::TinyLlama;
pub(crate) use vocab::Vocab;

/// Files of a model: path inside its folder, and content.
pub(crate) type Files = Vec<(String, Vec<u8>)>;

/// Writes the files under a folder that exists.
pub(crate) fn write_files(folder: &std::path::Path, files: &[(String, Vec<u8>)]) {
    for (name, bytes) in files {
        std::fs::write(folder.join(name), bytes).expect("the test's folder is writable");
    }
}

/// SplitMix64: the tests' source of random numbers.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in -1 .. 1, exact in f32.
    pub(crate) fn signed_unit(&mut self) -> f32 {
        let bits = u16::try_from(self.next() >> 48).expect("16 bits");
        f32::from(bits) / 32768.0 - 1.0
    }
}
