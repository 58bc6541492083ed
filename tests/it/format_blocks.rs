//! Every block format against gguf-py, bit for bit: decoded on the CPU, and packed for the device and read back by the embedding kernel.

use std::collections::BTreeMap;

use serde::Deserialize;
use twostroke::format::block::BlockFormat;
use twostroke::gpu::Options;
use twostroke::kernels::layout::{self, Packed, Planes};
use twostroke::kernels::{Kernel, Row, Tape, embed};
use twostroke::recording::Player;
use twostroke::twin::Twin;

use crate::adapters::for_each_adapter;
use crate::kernels::{buffer, play, words};

#[derive(Deserialize)]
struct Blocks {
    bytes: String,
    f32: String,
}

/// What `tests/data/make_gguf_blocks.py` wrote: bytes of blocks, and the bits of their weights.
fn goldens() -> Vec<(BlockFormat, Vec<u8>, Vec<u32>)> {
    let all: BTreeMap<String, Blocks> = serde_json::from_str(include_str!("../data/gguf_blocks.json")).unwrap();
    let hex = |text: &str| -> Vec<u8> {
        (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
    };
    let with_scales = BlockFormat::ALL.into_iter().filter(|format| format.has_scales());
    with_scales
        .map(|format| {
            let blocks = &all[format.name()];
            let floats = hex(&blocks.f32);
            let bits = floats.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect();
            (format, hex(&blocks.bytes), bits)
        })
        .collect()
}

#[test]
fn blocks_decode_exactly_as_in_gguf_py() {
    for (format, bytes, want) in goldens() {
        let mut got = vec![0.0; want.len()];
        format.decode(&bytes, &mut got).unwrap();
        let got: Vec<u32> = got.iter().map(|w| w.to_bits()).collect();
        let differs = got.iter().zip(&want).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{}: {:?}", format.name(), differs.map(|i| (got[i], want[i])));
    }
}

/// The weights of one row, as the embedding kernel reads them from the packed planes.
fn embedded(player: &mut dyn Player<Kernel>, format: BlockFormat, bytes: &[u8], k: u32) -> Vec<u32> {
    let mut planes = Planes::default();
    layout::pack(format, 1, k, bytes, &mut planes).unwrap();
    let weights = Packed {
        format,
        rows: 1,
        k,
        codes: buffer(player, "codes", &planes.codes),
        scales: buffer(player, "scales", &planes.scales),
        high: buffer(player, "high", &planes.high),
    };
    let row = [Row { token: 0, position: 0, slot: 0, pad: 0 }];
    let out = buffer(player, "out", &words(&vec![7.0; k as usize]));
    let args = embed::Args {
        weights,
        first_token: 0,
        rows: buffer(player, "rows", bytemuck::cast_slice(&row)),
        row_count: 1,
        out,
        out_stride: k,
        scale: 1.0,
        history: buffer(player, "history", &[0]),
        history_stride: 1,
    };
    let mut tape = Tape::new();
    embed::record(&mut tape, &args);
    play(player, &mut tape, out, k as usize)
}

#[test]
fn packed_blocks_are_embedded_exactly_as_in_gguf_py() {
    let check = |label: &str, player: &mut dyn Player<Kernel>| {
        for (format, bytes, want) in goldens() {
            let got = embedded(player, format, &bytes, want.len() as u32);
            let differs = got.iter().zip(&want).position(|(a, b)| a != b);
            assert_eq!(differs, None, "{} on {label}: {:?}", format.name(), differs.map(|i| (got[i], want[i])));
        }
    };
    check("twin", &mut Twin::new());
    for_each_adapter(|label, open| check(label, &mut open(Options::default())));
}
