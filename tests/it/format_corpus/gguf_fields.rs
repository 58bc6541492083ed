//! GGUFs cut short, and with wrong numbers, types and texts in header and metadata.

use super::Stage::{Format, Model};
use super::{Case, base_gguf, gguf_case};
use crate::model_writer::{Meta, Written};

pub(super) fn add(cases: &mut Vec<Case>) {
    let written = base_gguf().write();
    add_truncated(cases, &written);
    add_header(cases, &written);
    add_lengths(cases, &written);
    add_values(cases);
    add_alignments(cases);
}

/// Cut at the begin of a field and inside it.
fn add_truncated(cases: &mut Vec<Case>, written: &Written) {
    let mut cut = |mark: &str, plus: usize, expect: &[&str]| {
        let bytes = written.bytes[..written.at(mark) + plus].to_vec();
        cases.push(gguf_case(Format, &format!("cut {plus} bytes into {mark}"), bytes, expect));
    };
    for mark in ["magic", "version", "tensor count", "pair count"] {
        cut(mark, 0, &["header", "end of the file"]);
        cut(mark, 3, &["header", "end of the file"]);
    }
    // So early that the counts cannot be true.
    for part in ["key", "type", "value"] {
        cut(&format!("general.architecture {part}"), 0, &["tensor count", "end of the file"]);
    }
    for key in ["tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.chat_template"] {
        cut(&format!("{key} key"), 0, &["metadata pair", "end of the file"]);
        cut(&format!("{key} key"), 9, &["metadata pair", "end of the file"]);
        cut(&format!("{key} type"), 0, &[key, "end of the file"]);
        cut(&format!("{key} value"), 0, &[key, "end of the file"]);
        cut(&format!("{key} value"), 7, &[key, "end of the file"]);
        cut(&format!("{key} value"), 40, &[key, "end of the file"]);
    }
    for name in ["token_embd.weight", "blk.0.attn_q.weight", "output_norm.weight"] {
        cut(&format!("{name} name"), 0, &["tensor ", "end of the file"]);
        cut(&format!("{name} name"), 10, &["tensor ", "end of the file"]);
        for part in ["axes", "axis 0", "type", "offset"] {
            cut(&format!("{name} {part}"), 2, &[name, "end of the file"]);
        }
        cut(&format!("{name} data"), 1, &[&format!("tensor {name}"), "file length"]);
    }
    cut("padding", 0, &["tensor token_embd.weight", "file length"]);
    cut("output_norm.weight data", 127, &["tensor output_norm.weight", "file length"]);
}

fn add_header(cases: &mut Vec<Case>, written: &Written) {
    let mut add = |name: &str, bytes, expect: &[&str]| cases.push(gguf_case(Format, name, bytes, expect));
    add("magic of GGML", written.with("magic", b"GGML"), &["file magic", "GGUF", "GGML"]);
    add("magic in lower case", written.with("magic", b"gguf"), &["file magic"]);
    add("zeros", vec![0; 4096], &["file magic"]);
    add("text", b"version https://git-lfs.github.com/spec/v1\n".to_vec(), &["file magic", "vers"]);
    add("a magic of control characters", written.with("magic", b"\x1b[2J"), &["file magic"]);
    for version in [0, 4, u32::MAX] {
        let bytes = written.with("version", &version.to_le_bytes());
        add(&format!("version {version}"), bytes, &["GGUF version", "2 or 3", &version.to_string()]);
    }
    add("version 1", written.with("version", &1u32.to_le_bytes()), &["GGUF version 1", "not supported"]);
    add("big-endian", written.with("version", &3u32.to_be_bytes()), &["big-endian", "not supported"]);
    let tensors = base_gguf().tensors.len() as u64;
    let pairs = base_gguf().pairs.len() as u64;
    for count in [u64::MAX, 1 << 63, 1 << 32, (1 << 20) + 1, 5000] {
        for what in ["tensor count", "pair count"] {
            let op = if what == "tensor count" { what } else { "metadata count" };
            add(&format!("{what} {count}"), written.with(what, &count.to_le_bytes()), &[op, &count.to_string()]);
        }
    }
    add("one tensor too many", written.with("tensor count", &(tensors + 1).to_le_bytes()), &["tensor"]);
    add("one pair too many", written.with("pair count", &(pairs + 1).to_le_bytes()), &[]);
    add("one pair too few", written.with("pair count", &(pairs - 1).to_le_bytes()), &["tensor "]);
    add("no pair", written.with("pair count", &0u64.to_le_bytes()), &["tensor "]);
    let one_less = written.with("tensor count", &(tensors - 1).to_le_bytes());
    cases.push(gguf_case(Model, "one tensor too few", one_less, &["output_norm.weight"]));
}

/// Lengths of keys, strings, arrays and names that the file cannot hold.
fn add_lengths(cases: &mut Vec<Case>, written: &Written) {
    let mut add = |field: &str, mark: &str, plus: usize, length: u64, expect: &[&str]| {
        let mut bytes = written.bytes.clone();
        let at = written.at(mark) + plus;
        bytes[at..at + 8].copy_from_slice(&length.to_le_bytes());
        cases.push(gguf_case(Format, &format!("{field} of length {length}"), bytes, expect));
    };
    for length in [u64::MAX, u64::MAX - 7, 1 << 63, 1 << 32, 1 << 27] {
        let got = length.to_string();
        add("key", "llama.block_count key", 0, length, &["string length", &got]);
        add("string", "general.name value", 0, length, &["general.name", &got]);
        add("array", "tokenizer.ggml.tokens value", 4, length, &["array length", "tokenizer.ggml.tokens", &got]);
        add("array of i32", "tokenizer.ggml.token_type value", 4, length, &["tokenizer.ggml.token_type", &got]);
        add("string in an array", "tokenizer.ggml.merges value", 12, length, &["tokenizer.ggml.merges", &got]);
        add("tensor name", "blk.0.attn_k.weight name", 0, length, &["string length", &got]);
    }
    add("key", "llama.block_count key", 0, 0, &[]);
    add("tensor name", "blk.0.attn_k.weight name", 0, 0, &["tensor name", "an empty one"]);
    add("array", "tokenizer.ggml.tokens value", 4, 1 << 21, &["array length", "tokenizer.ggml.tokens"]);
}

/// Values of a wrong type or content.
fn add_values(cases: &mut Vec<Case>) {
    let mut add = |name: &str, key: &str, value: Meta, expect: &[&str]| {
        let bytes = base_gguf().set(key, value).bytes();
        cases.push(gguf_case(Format, name, bytes, &[expect, &[key]].concat()));
    };
    let array =
        |kind: u32, len: u64, items: &[u8]| Meta::Raw(9, [&kind.to_le_bytes()[..], &len.to_le_bytes(), items].concat());
    add("value of type 13", "general.x", Meta::Raw(13, vec![0; 8]), &["metadata type", "13"]);
    add("value of type 4294967295", "general.x", Meta::Raw(u32::MAX, vec![]), &["metadata type", "4294967295"]);
    add("array of type 13", "general.x", array(13, 1, &[0; 8]), &["metadata array type", "13"]);
    add("array of arrays", "general.x", array(9, 1, &[0; 12]), &["array of arrays"]);
    add("bool of 2", "tokenizer.ggml.add_bos_token", Meta::Raw(7, vec![2]), &["bool", "0 or 1", "got 2"]);
    add("bool of 255", "tokenizer.ggml.add_eos_token", Meta::Raw(7, vec![255]), &["bool", "got 255"]);
    add("bools with a 3", "general.x", array(7, 3, &[0, 1, 3]), &["array item", "[3]", "item 2"]);
    add("u64 above 2^63 in an array", "general.x", array(10, 1, &[255; 8]), &["array item", "item 0"]);
    add("string of bad UTF-8", "general.name", Meta::Raw(8, text(b"ab\xff")), &["UTF-8", "a bad byte at 2 of 3"]);
    add("surrogate in a string", "general.name", Meta::Raw(8, text(b"\xed\xa0\x80")), &["UTF-8"]);
    let tokens = [text(b"good"), text(b"\xc3\x28")].concat();
    add("token of bad UTF-8", "tokenizer.ggml.tokens", array(8, 2, &tokens), &["UTF-8", "a bad byte at 0 of 2"]);
    add("one part of a split model", "split.count", Meta::U32(3), &["3 files", "not supported"]);
    add("split count as text", "split.count", Meta::str("3"), &["an unsigned integer", "a string"]);
    let mut key = |name: &str, key: &str, expect: &[&str]| {
        let mut gguf = base_gguf();
        gguf.pairs.push((key.to_owned(), Meta::U32(1)));
        cases.push(gguf_case(Format, name, gguf.bytes(), expect));
    };
    key("key twice", "llama.block_count", &["llama.block_count", "each key once"]);
    key("key twice with another type", "general.architecture", &["general.architecture", "each key once"]);
    key("key of 2000 bytes", &"k".repeat(2000), &["string length", "2000"]);
    let mut written = base_gguf().write();
    let at = written.at("llama.block_count key") + 8;
    written.bytes[at] = 0xff;
    cases.push(gguf_case(Format, "key of bad UTF-8", written.bytes, &["UTF-8", "metadata pair"]));
}

fn add_alignments(cases: &mut Vec<Case>) {
    let mut add = |name: &str, value: Meta, expect: &[&str]| {
        let bytes = base_gguf().set("general.alignment", value).bytes();
        cases.push(gguf_case(Format, name, bytes, &[expect, &["general.alignment"]].concat()));
    };
    for alignment in [0, 3, 48, (1 << 20) + 1, 1 << 21, 1 << 31, u32::MAX] {
        let expect = ["a power of two up to 1048576", &alignment.to_string()];
        add(&format!("alignment {alignment}"), Meta::U32(alignment), &expect);
    }
    add("alignment as u64", Meta::U64(32), &["expected u32, got u64"]);
    add("alignment as i32", Meta::I32(32), &["expected u32, got i32"]);
    add("alignment as text", Meta::str("32"), &["expected u32, got string"]);
    add("alignment as f32", Meta::F32(32.0), &["expected u32, got f32"]);
    let mut twice = base_gguf();
    twice.set("general.alignment", Meta::U32(32)).pairs.push(("general.alignment".into(), Meta::U32(64)));
    let expect = ["general.alignment", "each key once"];
    cases.push(gguf_case(Format, "alignment twice", twice.bytes(), &expect));
    // Written by 32, claimed to be 64: offsets that 64 does not divide.
    let bytes = base_gguf().set("general.alignment", Meta::U32(4096)).bytes();
    cases.push(gguf_case(Format, "offsets of another alignment", bytes, &["a multiple of 4096", "tensor "]));
}

fn text(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_le_bytes()[..], bytes].concat()
}
