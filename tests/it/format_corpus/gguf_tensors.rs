//! GGUFs whose tensor list contradicts itself or the file.

use twostroke::format::block::BlockFormat;

use super::Stage::Format;
use super::{Case, base_gguf, gguf_case};
use crate::model_writer::GgufTensor;

/// A matrix in the middle of the file: [16, 32] of Q4_0, 288 bytes.
const K: &str = "blk.0.attn_k.weight";

pub(super) fn add(cases: &mut Vec<Case>) {
    add_shapes(cases);
    add_types(cases);
    add_offsets(cases);
    add_names(cases);
}

fn changed(cases: &mut Vec<Case>, name: &str, change: impl FnOnce(&mut GgufTensor), expect: &[&str]) {
    let mut gguf = base_gguf();
    change(gguf.tensor_mut(K));
    cases.push(gguf_case(Format, name, gguf.bytes(), expect));
}

fn add_shapes(cases: &mut Vec<Case>) {
    let mut shape = |shape: &[u64], expect: &[&str]| {
        let name = format!("tensor of shape {shape:?}");
        changed(cases, &name, |t| t.shape = shape.to_vec(), &[expect, &[K]].concat());
    };
    shape(&[], &["1 to 4 axes", "0 axes"]);
    shape(&[1, 1, 1, 16, 32], &["1 to 4 axes", "5 axes"]);
    shape(&[0, 32], &["axes of 1 or more", "[0, 32]"]);
    shape(&[16, 0], &["axes of 1 or more", "[16, 0]"]);
    shape(&[0], &["axes of 1 or more"]);
    shape(&[1, 0, 16, 32], &["axes of 1 or more"]);
    shape(&[u64::MAX, 32], &["a product below 2^64"]);
    shape(&[32, u64::MAX], &["a product below 2^64"]);
    shape(&[u64::MAX, u64::MAX], &["a product below 2^64"]);
    shape(&[1 << 32, 1 << 32], &["a product below 2^64"]);
    shape(&[1 << 16, 1 << 16, 1 << 16, 1 << 16], &["a product below 2^64"]);
    shape(&[1 << 30, 32], &["file length"]);
    shape(&[1 << 58, 32], &["file length"]);
    shape(&[1 << 59, 16], &["rows of whole q4_0 blocks", "rows of 16 weights"]);
    shape(&[16, 33], &["rows of whole q4_0 blocks of 32 weights", "rows of 33 weights"]);
    shape(&[16, 31], &["rows of 31 weights"]);
    shape(&[32, 16], &["rows of 16 weights"]);
    shape(&[512, 1], &["rows of 1 weights"]);
    for (format, row) in
        [(BlockFormat::Q4_1, 48), (BlockFormat::Q5_0, 40), (BlockFormat::Q5_1, 8), (BlockFormat::Q8_0, 33)]
    {
        let name = format!("{} rows of {row} weights", format.name());
        let change = |t: &mut GgufTensor| {
            t.kind = crate::model_writer::tensor_type(format);
            t.shape = vec![1, row];
        };
        changed(cases, &name, change, &[format.name(), &format!("rows of {row} weights"), K]);
    }
    let overflow = |t: &mut GgufTensor| {
        t.kind = 0;
        t.shape = vec![1 << 62, 2];
    };
    changed(cases, "tensor of 2^65 bytes", overflow, &["a size below 2^64 bytes", K]);
    let mut written = base_gguf().write();
    let at = written.at("blk.0.attn_k.weight axes");
    written.bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    cases.push(gguf_case(Format, "tensor of 4294967295 axes", written.bytes, &["4294967295 axes", K]));
}

fn add_types(cases: &mut Vec<Case>) {
    for (kind, type_name) in [(9, "Q8_1"), (16, "IQ2_XXS"), (24, "I8"), (28, "F64"), (34, "TQ1_0"), (39, "MXFP4")] {
        let name = format!("tensor of type {type_name}");
        changed(cases, &name, |t| t.kind = kind, &[&format!("type {type_name}"), "not supported", K]);
    }
    for (kind, name) in [(10, "q2_k"), (11, "q3_k"), (12, "q4_k"), (13, "q5_k"), (14, "q6_k")] {
        let expect = format!("whole {name} blocks of 256 weights");
        changed(cases, &format!("rows of 32 weights in {name}"), |t| t.kind = kind, &[&expect, "rows of 32", K]);
    }
    for kind in [4, 5, 31, 99, u32::MAX] {
        let name = format!("tensor of type number {kind}");
        changed(cases, &name, |t| t.kind = kind, &["tensor type", &kind.to_string(), K]);
    }
    changed(cases, "tensor claimed to be f32", |t| t.kind = 0, &["overlap", K, "blk.0.attn_v.weight"]);
    changed(cases, "tensor claimed to be q4_1", |t| t.kind = 3, &["overlap", K, "blk.0.attn_v.weight"]);
    let mut last = base_gguf();
    last.tensor_mut("output_norm.weight").shape = vec![33];
    cases.push(gguf_case(
        Format,
        "last tensor one weight longer",
        last.bytes(),
        &["file length", "output_norm.weight"],
    ));
}

fn add_offsets(cases: &mut Vec<Case>) {
    let mut offset = |name: &str, at: u64, expect: &[&str]| {
        changed(cases, name, |t| t.offset = Some(at), &[expect, &[K]].concat());
    };
    for at in [1, 31, 33, u64::MAX] {
        offset(&format!("tensor at {at}"), at, &["a multiple of 32", &at.to_string()]);
    }
    offset("tensor at 2^64 - 32", u64::MAX - 31, &["offset"]);
    offset("tensor at 2^63", 1 << 63, &["file length"]);
    offset("tensor at 2^40", 1 << 40, &["file length"]);
    offset("tensor at the begin of another", 0, &["overlap", "token_embd.weight"]);
    offset("tensor inside another", 64, &["overlap", "token_embd.weight"]);
    let written = base_gguf().write();
    let start = written.at("token_embd.weight data");
    let at = |name: &str| (written.at(&format!("{name} data")) - start) as u64;
    offset("tensor 32 bytes early", at(K) - 32, &["overlap", "blk.0.attn_q.weight"]);
    offset("tensor 32 bytes late", at(K) + 32, &["overlap", "blk.0.attn_v.weight"]);
    offset("tensor in the last 32 bytes", (written.bytes.len() - start) as u64 - 32, &["file length"]);
    let mut all = base_gguf();
    all.tensors.iter_mut().for_each(|t| t.offset = Some(0));
    cases.push(gguf_case(Format, "all tensors at the same offset", all.bytes(), &["overlap", "tensors "]));
}

fn add_names(cases: &mut Vec<Case>) {
    let mut name = |what: &str, name: &[u8], expect: &[&str]| {
        changed(cases, what, |t| t.name = name.to_vec(), expect);
    };
    name("tensor name twice", b"blk.0.attn_v.weight", &["each name once", "blk.0.attn_v.weight"]);
    name("tensor name of bad UTF-8", b"blk.0.attn_\xff.weight", &["UTF-8", "tensor 3 of "]);
    name("tensor name with a line break", b"a\nb", &["printable text", "a\\nb"]);
    name("tensor name with an escape sequence", b"\x1b[31mred", &["printable text"]);
    name("tensor name with a zero", b"blk\0", &["printable text"]);
    name("tensor name of 2000 bytes", &[b'n'; 2000], &["string length", "2000"]);
    let mut copy = base_gguf();
    let twin = copy.tensor_mut(K).clone();
    copy.tensors.push(twin);
    cases.push(gguf_case(Format, "tensor listed twice", copy.bytes(), &["each name once", K]));
}
