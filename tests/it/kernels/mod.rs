//! Every kernel on every adapter against its twin, by seeded tables that hold the edges.

mod matmul;
mod matmul_matrix;
mod matmul_matrix_emulated;
mod matmul_ways;
mod small;

use twostroke::format::block::BlockFormat;
use twostroke::kernels::{Kernel, Tape, padded};
use twostroke::recording::{BufferId, Player};

use crate::pairwise::Random;

/// A buffer holding `words`.
pub(crate) fn buffer(player: &mut dyn Player<Kernel>, label: &str, words: &[u32]) -> BufferId {
    let bytes = (words.len().max(4) * 4) as u64;
    let id = player.create_buffer(label, bytes).unwrap_or_else(|e| panic!("{label}: {e}"));
    if !words.is_empty() {
        player.write(id, 0, bytemuck::cast_slice(words)).unwrap_or_else(|e| panic!("{label}: {e}"));
    }
    id
}

/// Floats as words.
pub(crate) fn words(floats: &[f32]) -> Vec<u32> {
    floats.iter().map(|f| f.to_bits()).collect()
}

/// Random weights of a norm, zeros to whole blocks.
fn padded_units(random: &mut Random, dim: u32) -> Vec<f32> {
    let mut weights = random.units(dim as usize);
    weights.resize(padded(dim) as usize, 0.0);
    weights
}

/// Plays the tape and reads `count` words of `out`.
pub(crate) fn play(player: &mut dyn Player<Kernel>, tape: &mut Tape, out: BufferId, count: usize) -> Vec<u32> {
    tape.read(out, 0, (count * 4) as u64);
    let ticket = player.submit(tape).unwrap_or_else(|e| panic!("submit: {e}"));
    player.wait(ticket).unwrap_or_else(|e| panic!("wait: {e}")).words
}

/// Whether `fma` on this adapter is a multiplication and an addition, each rounded, as in the twin. Both software drivers.
fn rounds_like_twin(label: &str) -> bool {
    label.contains("llvmpipe") || label.contains("SwiftShader")
}

/// The first word that differs, if any, with its place.
fn assert_same_bits(what: &str, got: &[u32], want: &[u32]) {
    assert_eq!(got.len(), want.len(), "{what}");
    if let Some(i) = (0..got.len()).find(|&i| got[i] != want[i]) {
        let (a, b) = (f32::from_bits(got[i]), f32::from_bits(want[i]));
        panic!("{what}: word {i} is {:#x} ({a}), the twin's {:#x} ({b})", got[i], want[i]);
    }
}

/// Random rows as a file would hold them; weights and scales are ordinary numbers below 1 (no subnormals: drivers flush them).
fn file_rows(format: BlockFormat, byte_count: u64, random: &mut Random) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..byte_count).map(|_| random.bits() as u8).collect();
    let mut half = |at: &mut [u8]| at.copy_from_slice(&half::f16::from_f32(random.unit() / 4.0).to_le_bytes());
    match format {
        BlockFormat::F32 => bytes.chunks_exact_mut(4).for_each(|b| b.copy_from_slice(&random.unit().to_le_bytes())),
        BlockFormat::F16 => bytes.chunks_exact_mut(2).for_each(half),
        BlockFormat::Bf16 => {
            bytes
                .chunks_exact_mut(2)
                .for_each(|b| b.copy_from_slice(&half::bf16::from_f32(random.unit()).to_le_bytes()));
        }
        format => {
            for block in bytes.chunks_exact_mut(format.block_bytes() as usize) {
                block[format.scale_bytes()].chunks_exact_mut(2).for_each(&mut half);
            }
        }
    }
    bytes
}
