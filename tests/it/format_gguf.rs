//! GGUF files are read as they were written, and no bytes make the reader panic or allocate beyond the file.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use twostroke::error::{Error, Result};
use twostroke::format::block::BlockFormat;
use twostroke::format::gguf::{self, Metadata};
use twostroke::format::model_files::{Description, ModelFiles};
use twostroke::format::source;
use twostroke::format::table::TensorTable;

use crate::alloc::peak_bytes;
use crate::model_writer::{GgufWriter, Meta, TinyLlama, Vocab};

fn read(bytes: Vec<u8>) -> Result<(Metadata, TensorTable)> {
    gguf::read(source::memory("m.gguf", bytes))
}

#[test]
fn every_format_reads_back_as_written() {
    for format in BlockFormat::ALL {
        for (version, alignment) in [(2, 32), (3, 32), (3, 1), (3, 8), (3, 4096)] {
            // Rows of whole super-blocks.
            let wide = TinyLlama { hidden: 256, ffn: 256, head_dim: 64, ..TinyLlama::default() };
            let tiny = if format.block_weights() == 256 { wide } else { TinyLlama::default() };
            let mut writer = tiny.gguf(format);
            writer.version = version;
            writer.alignment = alignment;
            if alignment != 32 {
                writer.set("general.alignment", Meta::U32(u32::try_from(alignment).expect("small")));
            }
            let (metadata, table) = read(writer.bytes()).expect("a whole file");
            assert_eq!(metadata.str("general.architecture").expect("a string"), Some("llama"));
            assert_eq!(metadata.strs("tokenizer.ggml.tokens").expect("strings").map(<[_]>::len), Some(320));
            assert_eq!(table.tensors.len(), writer.tensors.len());
            let mut rows = Vec::new();
            for written in &writer.tensors {
                let tensor = table.get(std::str::from_utf8(&written.name).expect("ours")).expect("listed");
                assert_eq!(tensor.shape, written.shape, "slowest axis first");
                assert_eq!(tensor.format, if tensor.shape.len() == 1 { BlockFormat::F32 } else { format });
                table.read_rows(tensor, 0, tensor.rows(), &mut rows).expect("inside");
                assert_eq!(rows, written.data);
            }
        }
    }
}

#[test]
fn both_vocabularies_are_described() {
    for vocab in [Vocab::Bpe, Vocab::Spm] {
        let (metadata, _) =
            read(TinyLlama { vocab, ..Default::default() }.gguf(BlockFormat::F16).bytes()).expect("whole");
        let spm = vocab == Vocab::Spm;
        assert_eq!(metadata.bool("tokenizer.ggml.add_bos_token").expect("a bool"), Some(spm));
        assert_eq!(metadata.floats("tokenizer.ggml.scores").expect("floats").is_some(), spm);
        assert_eq!(metadata.ints("tokenizer.ggml.token_type").expect("integers").map(<[_]>::len), Some(320));
    }
}

#[test]
fn f29_gguf_without_output_matrix_is_whole() {
    let tied = TinyLlama::default();
    let (_, table) = read(tied.gguf(BlockFormat::Q4_0).bytes()).expect("tied");
    assert!(table.get("output.weight").is_none() && table.get("token_embd.weight").is_some());
    let (_, table) = read(TinyLlama { tied: false, ..tied }.gguf(BlockFormat::Q4_0).bytes()).expect("untied");
    assert!(table.get("output.weight").is_some());
}

#[test]
fn metadata_of_unknown_quants_reads_while_their_tensors_are_refused_by_name() {
    let mut writer = TinyLlama::default().gguf(BlockFormat::F16);
    for (kind, name) in [(9, "Q8_1"), (16, "IQ2_XXS"), (39, "MXFP4")] {
        writer.tensor_mut("blk.1.ffn_up.weight").kind = kind;
        let bytes = writer.bytes();
        let metadata = gguf::read_metadata(source::memory("m.gguf", bytes.clone()).as_ref()).expect("whole metadata");
        assert_eq!(metadata.u64("llama.block_count").expect("a number"), Some(2));
        let error = read(bytes).expect_err("not computed");
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        let want = format!("tensor type {name} (m.gguf, tensor blk.1.ffn_up.weight) is not supported: ");
        assert!(error.to_string().starts_with(&want), "{error}");
        assert!(error.to_string().contains("Q2_K to Q6_K work"), "{error}");
    }
}

#[test]
fn f32_gguf_cut_by_a_byte_or_a_tensor_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cut.gguf");
    let written = TinyLlama::default().gguf(BlockFormat::Q8_0).write();
    let last = written.at("output_norm.weight data");
    for cut in [written.bytes.len() - 1, last, last + 1] {
        std::fs::write(&path, &written.bytes[..cut]).expect("writable");
        let message = ModelFiles::open(&path).expect_err("cut").to_string();
        assert!(message.contains("cut.gguf, tensor output_norm.weight"), "{message}");
        assert!(message.contains(&format!("got {cut} bytes")), "{message}");
    }
}

#[test]
fn file_that_shrinks_after_opening_is_an_error_not_zeros() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("shrinks.gguf");
    let written = TinyLlama::default().gguf(BlockFormat::Q8_0).write();
    std::fs::write(&path, &written.bytes).expect("writable");
    let files = ModelFiles::open(&path).expect("whole");
    assert_eq!(files.name, "shrinks");
    assert!(matches!(files.description, Description::Gguf(_)));
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("writable");
    file.set_len(written.at("blk.1.ffn_up.weight data") as u64 + 100).expect("writable");
    let table = &files.table;
    let mut rows = Vec::new();
    let tensor = table.get("blk.1.ffn_up.weight").expect("listed");
    table.read_rows(tensor, 0, 1, &mut rows).expect("the first row is still there");
    let message = table.read_rows(tensor, 1, 1, &mut rows).expect_err("gone").to_string();
    assert!(message.contains("the end of the file") && message.contains("tensor blk.1.ffn_up.weight"), "{message}");
    let norm = table.get("output_norm.weight").expect("listed");
    assert!(table.read_floats(norm).is_err());
}

#[test]
fn packed_toy_model_reads() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/smollm2-draft-7m.q4_1.gguf");
    let files = ModelFiles::open(std::path::Path::new(path)).expect("the shipped model");
    let Description::Gguf(metadata) = &files.description else { panic!("a GGUF") };
    assert_eq!(metadata.str("general.architecture").expect("a string"), Some("llama"));
    assert_eq!(metadata.strs("tokenizer.ggml.tokens").expect("strings").map(<[_]>::len), Some(49_152));
    let embedding = files.table.get("token_embd.weight").expect("an embedding");
    assert_eq!((embedding.format, embedding.shape.as_slice()), (BlockFormat::Q4_1, &[49_152, 128][..]));
    let norm = files.table.read_floats(files.table.get("output_norm.weight").expect("a norm")).expect("floats");
    assert!(norm.len() == 128 && norm.iter().all(|x| x.is_finite() && x.abs() < 100.0));
}

#[test]
fn vocabulary_of_262144_tokens_reads_in_a_second_and_little_more_than_its_size() {
    let mut writer = GgufWriter::new();
    writer.set("tokenizer.ggml.tokens", Meta::Strs((0..262_144).map(|i| format!("token{i}")).collect()));
    writer.set("tokenizer.ggml.merges", Meta::Strs((0..514_906).map(|i| format!("left{i} right{i}")).collect()));
    writer.set("tokenizer.ggml.scores", Meta::F32s((0..262_144u32).map(|i| i as f32).collect()));
    let bytes = writer.bytes();
    let (len, source) = (bytes.len(), source::memory("m.gguf", bytes));
    let start = Instant::now();
    let (metadata, peak) = peak_bytes(|| gguf::read_metadata(source.as_ref()).expect("whole"));
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert!(peak < 3 * len, "{peak} bytes for a file of {len}");
    let tokens = metadata.strs("tokenizer.ggml.tokens").expect("strings").expect("there");
    assert_eq!((tokens.len(), tokens[262_143].as_str()), (262_144, "token262143"));
    let merges = metadata.strs("tokenizer.ggml.merges").expect("strings").expect("there");
    assert_eq!(merges[514_905], "left514905 right514905");
}

/// What the reader may hold of a file: its strings as `String`s, its integers as i64, and one window.
fn bound_bytes(len: usize) -> usize {
    16 * len + (64 << 10)
}

fn reads_within_bounds(bytes: Vec<u8>) {
    let len = bytes.len();
    let (result, peak) = peak_bytes(|| read(bytes));
    assert!(peak <= bound_bytes(len), "{peak} bytes for a file of {len}");
    if let Ok((_, table)) = result {
        let mut rows = Vec::new();
        for tensor in &table.tensors {
            table.read_rows(tensor, 0, tensor.rows(), &mut rows).expect("checked when it was listed");
        }
    }
}

fn config(cases: u32, seed: u64) -> Config {
    Config { cases, rng_seed: RngSeed::Fixed(seed), failure_persistence: None, ..Config::default() }
}

proptest! {
    #![proptest_config(config(2000, 11))]

    #[test]
    fn random_bytes_never_panic(tail in prop::collection::vec(any::<u8>(), 0..400), magic in any::<bool>()) {
        let head: &[u8] = if magic { b"GGUF\x03\0\0\0" } else { b"" };
        reads_within_bounds([head, &tail].concat());
    }

    #[test]
    fn random_small_fields_never_panic(fields in prop::collection::vec(0u32..16, 0..120)) {
        let tail: Vec<u8> = fields.iter().flat_map(|f| f.to_le_bytes()).collect();
        reads_within_bounds([b"GGUF\x03\0\0\0", &tail[..]].concat());
    }
}

proptest! {
    #![proptest_config(config(600, 12))]

    #[test]
    fn mutated_files_never_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        field in any::<prop::sample::Index>(),
        number in prop::sample::select(vec![0, 1, u64::from(u32::MAX), 1 << 32, i64::MAX as u64, u64::MAX - 31, u64::MAX]),
        cut in any::<prop::sample::Index>(),
        kind in 0..3,
    ) {
        let mut writer = TinyLlama { layers: 1, ..Default::default() }.gguf(BlockFormat::Q4_0);
        writer.set("general.alignment", Meta::U32(32));
        let mut written = writer.write();
        // The header's fields are the target: a byte of weights is as good as another.
        let header = written.at("padding");
        match kind {
            0 => edits.iter().for_each(|(at, byte)| written.bytes[at.index(header)] = *byte),
            1 => {
                let at = written.marks[field.index(written.marks.len())].1.min(header - 8);
                written.bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
            }
            _ => written.bytes.truncate(cut.index(header + 64)),
        }
        reads_within_bounds(written.bytes);
    }
}
