//! Loading: what is read, what is refused, and how little memory it takes. On the twin.

use std::path::Path;

use serde_json::{Value, json};
use twostroke::error::{Error, Result};
use twostroke::format::block::BlockFormat;
use twostroke::format::model_files::ModelFiles;
use twostroke::kernels::plan::Plan;
use twostroke::kernels::{Kernel, KvType};
use twostroke::limits;
use twostroke::model::{LoadOptions, Model, Want};
use twostroke::recording::Player;
use twostroke::twin::Twin;

use crate::alloc::peak_bytes;
use crate::model_stepper::{Device, Stepper, twin};
use crate::model_writer::{GgufWriter, Meta, TinyLlama, encode, write_files};

const IDS: [u32; 12] = [5, 40, 99, 7, 7, 200, 301, 12, 0, 319, 64, 33];

fn open(gguf: &GgufWriter) -> Result<ModelFiles> {
    ModelFiles::from_gguf_bytes("tiny.gguf", gguf.bytes())
}

fn options() -> LoadOptions {
    LoadOptions { kv: KvType::F32, ..LoadOptions::default() }
}

fn last_logits(files: &ModelFiles) -> Vec<u32> {
    last_logits_on(files, &mut twin())
}

fn last_logits_on(files: &ModelFiles, device: &mut Device) -> Vec<u32> {
    Stepper::load(files, device, &options()).unwrap().feed(&IDS, 64, Want::LastLogits)
}

/// Largest distance of two rows of logits, relative to 1 + |l|.
fn distance(a: &[u32], b: &[u32]) -> f32 {
    let float = |w: &u32| f32::from_bits(*w);
    a.iter().zip(b).map(|(a, b)| (float(a) - float(b)).abs() / (1.0 + float(a).abs())).fold(0.0, f32::max)
}

#[test]
fn f29_tied_embedding_is_the_same_as_a_copied_output_tensor() {
    for format in [BlockFormat::F32, BlockFormat::Q4_1, BlockFormat::Q8_0] {
        let tied = TinyLlama::default().gguf(format);
        let mut copied = tied.clone();
        let mut output = copied.tensor_mut("token_embd.weight").clone();
        output.name = b"output.weight".to_vec();
        copied.tensors.push(output);
        assert_eq!(last_logits(&open(&tied).unwrap()), last_logits(&open(&copied).unwrap()), "{}", format.name());
    }
}

#[test]
fn gguf_and_folder_of_the_same_weights_agree() {
    let tiny = TinyLlama { tied: false, ..TinyLlama::default() };
    let gguf = last_logits(&open(&tiny.gguf(BlockFormat::F32)).unwrap());
    for shards in [1, 3] {
        let folder = tempfile::tempdir().unwrap();
        write_files(folder.path(), &tiny.folder(BlockFormat::F32, shards));
        let got = last_logits(&ModelFiles::open(folder.path()).unwrap());
        // only the order of sums over a head differs
        let off = distance(&gguf, &got);
        assert!(off < 1e-4, "{shards} shards: {off}");
    }
}

#[test]
fn f31_stray_file_beside_an_index_changes_nothing() {
    let tiny = TinyLlama::default();
    let folder = tempfile::tempdir().unwrap();
    write_files(folder.path(), &tiny.folder(BlockFormat::F16, 2));
    let before = last_logits(&ModelFiles::open(folder.path()).unwrap());
    let other = TinyLlama { seed: 2, ..tiny }.folder(BlockFormat::F16, 1);
    let (_, weights) = other.into_iter().find(|(name, _)| name == "model.safetensors").unwrap();
    std::fs::write(folder.path().join("stray.safetensors"), weights).unwrap();
    assert_eq!(last_logits(&ModelFiles::open(folder.path()).unwrap()), before);
}

#[test]
fn f39_llama3_scaling_shows_at_short_positions_and_is_the_gguf_factors() {
    let tiny = TinyLlama::default();
    let logits = |scaling: Value| {
        let folder = tempfile::tempdir().unwrap();
        let mut files = tiny.folder(BlockFormat::F32, 1);
        let mut config = tiny.config(BlockFormat::F32);
        config["rope_scaling"] = scaling;
        files.retain(|(name, _)| name != "config.json");
        files.push(("config.json".into(), config.to_string().into_bytes()));
        write_files(folder.path(), &files);
        last_logits(&ModelFiles::open(folder.path()).unwrap())
    };
    let numbers = |kind: &str| {
        json!({kind: "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 32})
    };
    let (newer, older, plain) = (logits(numbers("rope_type")), logits(numbers("type")), logits(Value::Null));
    assert_eq!(newer, older);
    assert!(distance(&newer, &plain) > 1e-3, "scaling shows");
    // llama.cpp's converter writes the same as one divisor a frequency; 8 frequencies of a head of 16
    let divisors: Vec<f32> = (0..8)
        .map(|i| {
            let rotations = 32.0 * 10_000_f64.powf(-f64::from(i) / 8.0) / std::f64::consts::TAU;
            let keep = ((rotations - 1.0) / 3.0).clamp(0.0, 1.0);
            (1.0 / (keep + (1.0 - keep) / 8.0)) as f32
        })
        .collect();
    let mut gguf = tiny.gguf(BlockFormat::F32);
    gguf.tensor("rope_freqs.weight", &[8], BlockFormat::F32, encode(BlockFormat::F32, &divisors));
    let off = distance(&newer, &last_logits(&open(&gguf).unwrap()));
    assert!(off < 1e-4, "{off}");
}

/// A power of two on the up projection and its inverse on the down projection change no bit of f32 arithmetic, but put what
/// lies between far beyond the range of f16.
pub(crate) fn f37_scaled(scale: f32) -> ModelFiles {
    let mut gguf = TinyLlama::default().gguf(BlockFormat::F32);
    for tensor in &mut gguf.tensors {
        let by = match tensor.name.as_slice() {
            name if name.ends_with(b"ffn_up.weight") => scale,
            name if name.ends_with(b"ffn_down.weight") => 1.0 / scale,
            _ => continue,
        };
        for bytes in tensor.data.chunks_exact_mut(4) {
            let scaled = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) * by;
            bytes.copy_from_slice(&scaled.to_le_bytes());
        }
    }
    open(&gguf).unwrap()
}

/// Logits of 1 and of 80 tokens, plain and scaled.
pub(crate) fn f37_check(label: &str, device: &mut Device) {
    let ids: Vec<u32> = IDS.iter().copied().cycle().take(80).collect();
    let mut logits = |scale: f32| {
        let files = f37_scaled(scale);
        let options = LoadOptions { kv: KvType::F16, ..LoadOptions::default() };
        let mut stepper = Stepper::load(&files, device, &options).unwrap();
        [1, 80].map(|count| stepper.feed(&ids[..count], 64, Want::LastLogits))
    };
    let (plain, scaled) = (logits(1.0), logits((1_u32 << 20) as f32));
    assert!(plain.iter().flatten().all(|w| f32::from_bits(*w).is_finite()), "{label}: finite");
    assert!(plain == scaled, "{label}: activations of 2^20 times the size give the same logits");
}

#[test]
fn f37_activations_beyond_f16_keep_their_logits() {
    f37_check("twin", &mut twin());
}

#[test]
fn parts_of_any_size_give_the_same_logits() {
    for format in [BlockFormat::Q4_0, BlockFormat::Bf16] {
        let files = open(&TinyLlama { tied: false, ..TinyLlama::default() }.gguf(format)).unwrap();
        let whole = last_logits(&files);
        for bytes in [8 << 10, 20 << 10] {
            let player = Twin::<Kernel>::new().with_binding_bytes_max(bytes);
            let mut device = Device { player: Box::new(player), plan: Plan::TWIN };
            assert!(last_logits_on(&files, &mut device) == whole, "{} within {bytes}", format.name());
        }
    }
}

#[test]
fn pool_is_halved_where_the_adapter_refuses_it() {
    let files = open(&TinyLlama::default().gguf(BlockFormat::Q8_0)).unwrap();
    let needs = Model::needs(&files, &Twin::<Kernel>::new(), Plan::TWIN, &options()).unwrap();
    assert_eq!((needs.context_tokens, needs.pages), (256, 16));
    let memory = needs.weight_bytes + needs.work_bytes + needs.kv_bytes / 2;
    let mut player = Twin::<Kernel>::new().with_memory_bytes_max(memory);
    let model = Model::load(&files, &mut player, Plan::TWIN, &options(), &mut |_, _| Ok(())).unwrap();
    assert!(model.pages() < 16, "{} pages", model.pages());
    assert_eq!(model.context_tokens(), model.pages() * limits::PAGE_TOKENS);
}

#[test]
fn progress_counts_every_byte_and_its_error_ends_the_loading() {
    let files = open(&TinyLlama::default().gguf(BlockFormat::Q8_0)).unwrap();
    let mut seen = Vec::new();
    let mut load = |cancel_at: usize| {
        seen.clear();
        let mut progress = |done, total| {
            seen.push((done, total));
            if seen.len() == cancel_at { Err(Error::Cancelled) } else { Ok(()) }
        };
        let mut player = Twin::<Kernel>::new();
        let result = Model::load(&files, &mut player, Plan::TWIN, &options(), &mut progress);
        (result.map(|model| model.file_bytes()), seen.clone())
    };
    let (bytes, seen) = load(0);
    let bytes = bytes.unwrap();
    assert_eq!((seen[0], *seen.last().unwrap()), ((0, bytes), (bytes, bytes)));
    assert!(seen.is_sorted(), "{seen:?}");
    let (result, seen) = load(3);
    assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
    assert_eq!(seen.len(), 3);
}

/// Swallows buffers: what the loader itself holds is all that is left.
#[derive(Debug, Default)]
struct Void(u32);

impl Player<Kernel> for Void {
    fn create_buffer(&mut self, _: &str, bytes: u64) -> Result<twostroke::recording::BufferId> {
        assert!(bytes <= limits::BASE_BINDING_BYTES, "{bytes}");
        self.0 += 1;
        Ok(twostroke::recording::BufferId(self.0))
    }
    fn drop_buffer(&mut self, _: twostroke::recording::BufferId) {}
    fn write(&mut self, _: twostroke::recording::BufferId, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn submit(&mut self, _: &twostroke::kernels::Tape) -> Result<twostroke::recording::Ticket> {
        unreachable!("nothing is played")
    }
    fn poll(&mut self, _: twostroke::recording::Ticket) -> Result<Option<twostroke::recording::Played>> {
        unreachable!("nothing is played")
    }
    fn wait(&mut self, _: twostroke::recording::Ticket) -> Result<twostroke::recording::Played> {
        unreachable!("nothing is played")
    }
    fn prepare(&mut self, _: &[Kernel]) -> Result<()> {
        Ok(())
    }
    fn binding_bytes_max(&self) -> u64 {
        limits::BASE_BINDING_BYTES
    }
    fn buffer_bytes_max(&self) -> u64 {
        limits::BASE_BINDING_BYTES
    }
    fn adapter(&self) -> &str {
        "void"
    }
}

/// A GGUF of 1.2 GB that takes no disk: all its tensor data are a hole.
fn sparse_gguf(path: &Path) {
    let mut gguf = TinyLlama { layers: 4, ..TinyLlama::default() }.gguf(BlockFormat::F32);
    let (hidden, wide) = (4096, 8192);
    gguf.set("llama.embedding_length", Meta::U32(hidden)).set("llama.feed_forward_length", Meta::U32(wide));
    gguf.set("llama.attention.key_length", Meta::U32(128)).set("llama.attention.value_length", Meta::U32(128));
    gguf.set("llama.attention.head_count", Meta::U32(32)).set("llama.attention.head_count_kv", Meta::U32(8));
    gguf.set("llama.rope.dimension_count", Meta::U32(128));
    let (hidden, wide) = (u64::from(hidden), u64::from(wide));
    let mut offset = 0;
    for tensor in &mut gguf.tensors {
        let rows = match String::from_utf8_lossy(&tensor.name).rsplit('.').nth(1).unwrap() {
            "attn_k" | "attn_v" => 1024,
            "ffn_gate" | "ffn_up" => wide,
            "token_embd" => tensor.shape[0],
            _ => hidden,
        };
        let columns = if tensor.name.ends_with(b"ffn_down.weight") { wide } else { hidden };
        let matrix = tensor.shape.len() == 2;
        tensor.shape = if matrix { vec![rows, columns] } else { vec![hidden] };
        tensor.kind = if matrix { 1 } else { 0 };
        tensor.data = Vec::new();
        tensor.offset = Some(offset);
        offset += tensor.shape.iter().product::<u64>() * if matrix { 2 } else { 4 };
    }
    let header = gguf.bytes();
    std::fs::write(path, &header).unwrap();
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(header.len() as u64 + offset).unwrap();
}

#[test]
fn loader_holds_less_than_the_largest_tensor_and_64_mib() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("big.gguf");
    sparse_gguf(&path);
    let files = ModelFiles::open(&path).unwrap();
    let largest = files.table.tensors.iter().map(|t| t.bytes).max().unwrap();
    let load = || Model::load(&files, &mut Void::default(), Plan::TWIN, &options(), &mut |_, _| Ok(()));
    let (model, peak) = peak_bytes(load);
    let model = model.unwrap();
    assert!(model.file_bytes() > 1_000_000_000, "{} bytes", model.file_bytes());
    println!("{} bytes loaded, {peak} held at the peak, largest tensor {largest}", model.file_bytes());
    assert!((peak as u64) < largest + (64 << 20), "{peak} bytes held, the largest tensor has {largest}");
    assert!((peak as u64) < 64 << 20, "{peak} bytes held: chunks, not tensors");
}

#[test]
fn broken_weights_are_refused_with_file_and_tensor() {
    type Change = fn(&mut GgufWriter);
    let table: &[(&str, BlockFormat, Change, &[&str])] = &[
        (
            "missing",
            BlockFormat::Q8_0,
            |g| _ = g.remove_tensor("blk.1.ffn_up.weight"),
            &["blk.1.ffn_up.weight", "[96, 64]"],
        ),
        ("no norm", BlockFormat::Q8_0, |g| _ = g.remove_tensor("output_norm.weight"), &["output_norm.weight", "[64]"]),
        (
            "shape",
            BlockFormat::F32,
            |g| g.tensor_mut("blk.0.attn_k.weight").shape = vec![64, 32],
            &["tensor shape", "[32, 64]", "[64, 32]", "blk.0.attn_k.weight"],
        ),
        (
            "norm format",
            BlockFormat::Q8_0,
            |g| {
                let tensor = g.tensor_mut("blk.0.attn_norm.weight");
                (tensor.kind, tensor.data) = (8, vec![0; 68]);
            },
            &["f32, f16 or bf16", "q8_0", "blk.0.attn_norm.weight"],
        ),
        ("vocabulary", BlockFormat::F32, |g| _ = g.set("llama.vocab_size", Meta::U32(321)), &["vocab", "320", "321"]),
        (
            "one more",
            BlockFormat::F32,
            |g| _ = g.tensor("blk.0.attn_sinks.weight", &[4], BlockFormat::F32, vec![0; 16]),
            &["blk.0.attn_sinks.weight", "only tensors that llama"],
        ),
        ("fewer layers", BlockFormat::F32, |g| _ = g.set("llama.block_count", Meta::U32(1)), &["blk.1.", "1 layers"]),
        (
            "NaN scale",
            BlockFormat::Q8_0,
            |g| g.tensor_mut("blk.1.ffn_down.weight").data[34 * 5..34 * 5 + 2].copy_from_slice(&[0, 0x7e]),
            &["finite scales", "blk.1.ffn_down.weight"],
        ),
        (
            "infinite norm",
            BlockFormat::Q8_0,
            |g| g.tensor_mut("blk.1.ffn_norm.weight").data[8..12].copy_from_slice(&f32::INFINITY.to_le_bytes()),
            &["finite numbers", "inf", "blk.1.ffn_norm.weight"],
        ),
        (
            "infinite weight",
            BlockFormat::F16,
            |g| g.tensor_mut("token_embd.weight").data[100..102].copy_from_slice(&[0, 0xfc]),
            &["finite numbers", "token_embd.weight"],
        ),
    ];
    for (name, format, change, words) in table {
        let mut gguf = TinyLlama::default().gguf(*format);
        change(&mut gguf);
        let load = |files: ModelFiles| {
            Model::load(&files, &mut Twin::<Kernel>::new(), Plan::TWIN, &options(), &mut |_, _| Ok(()))
        };
        let message = open(&gguf).and_then(load).map(|_| ()).expect_err(name).to_string();
        for word in words.iter().chain(&["tiny.gguf"]) {
            assert!(message.contains(word), "{name}: {message:?} lacks {word:?}");
        }
    }
}
