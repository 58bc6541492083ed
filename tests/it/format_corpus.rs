//! The bad-input corpus: models made in code, each wrong in one way, and what the refusal must say.
//!
//! [`corpus`] is for every layer that opens models. Cases of [`Stage::Format`] are refused by the readers, which this
//! module's tests hold; cases of [`Stage::Model`] pass the readers and are refused by whoever knows architectures.

mod folder;
mod folder_model;
mod gguf_fields;
mod gguf_model;
mod gguf_tensors;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use twostroke::error::Error;
use twostroke::format::block::BlockFormat;
use twostroke::format::model_files::ModelFiles;

use crate::alloc::peak_bytes;
use crate::model_writer::{Files, GgufWriter, TinyLlama, write_files};

/// Who refuses a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The readers: `ModelFiles::open`.
    Format,
    /// The loader, from an opened model.
    Model,
}

/// A model that must be refused.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// What is wrong with it; unique.
    pub(crate) name: String,
    /// Files to write into an empty folder.
    pub(crate) files: Files,
    /// What to open in it; empty is the folder itself.
    pub(crate) open: String,
    /// Who refuses it.
    pub(crate) stage: Stage,
    /// What the message must contain.
    pub(crate) expect: Vec<String>,
}

impl Case {
    /// Writes the files and returns the path to open.
    pub(crate) fn write(&self, folder: &Path) -> PathBuf {
        write_files(folder, &self.files);
        if self.open.is_empty() { folder.to_owned() } else { folder.join(&self.open) }
    }

    /// What is wrong with the refusal's message: `None` when it contains what it must, on one line that can be shown.
    pub(crate) fn complaint(&self, message: &str) -> Option<String> {
        let lacks = self.expect.iter().find(|want| !message.contains(want.as_str()));
        let what = match lacks {
            Some(want) => format!("no {want:?}"),
            None if message.len() >= 1000 => format!("{} bytes", message.len()),
            None if message.contains(char::is_control) => "control characters".to_owned(),
            None => return None,
        };
        Some(format!("{}: {what} in {message:?}", self.name))
    }

    /// Bytes of all files.
    pub(crate) fn bytes(&self) -> usize {
        self.files.iter().map(|f| f.1.len()).sum()
    }
}

/// All cases, in a fixed order.
pub(crate) fn corpus() -> Vec<Case> {
    let mut cases = Vec::new();
    gguf_fields::add(&mut cases);
    gguf_tensors::add(&mut cases);
    gguf_model::add(&mut cases);
    folder::add(&mut cases);
    folder_model::add(&mut cases);
    cases
}

/// The right model of which every wrong one is made: one layer, width 32.
fn base() -> TinyLlama {
    TinyLlama { layers: 1, hidden: 32, ffn: 64, heads: 4, kv_heads: 2, head_dim: 8, ..Default::default() }
}

/// [`base`] as a GGUF of Q4_0 matrices.
fn base_gguf() -> GgufWriter {
    base().gguf(BlockFormat::Q4_0)
}

/// [`base`] as a folder of F16 tensors.
fn base_folder(shards: usize) -> Files {
    base().folder(BlockFormat::F16, shards)
}

fn gguf_case(stage: Stage, name: &str, bytes: Vec<u8>, expect: &[&str]) -> Case {
    let expect = expect.iter().chain(&["model.gguf"]).map(|&e| e.to_owned()).collect();
    let files = vec![("model.gguf".to_owned(), bytes)];
    Case { name: format!("gguf: {name}"), files, open: "model.gguf".into(), stage, expect }
}

fn folder_case(stage: Stage, name: &str, files: Files, expect: &[&str]) -> Case {
    let expect = expect.iter().map(|&e| e.to_owned()).collect();
    Case { name: format!("folder: {name}"), files, open: String::new(), stage, expect }
}

/// The models of which the corpus is made, before they are broken: a GGUF, and folders of one and of two shards.
pub(crate) fn base_models() -> [Case; 3] {
    [
        gguf_case(Stage::Model, "whole", base_gguf().bytes(), &[]),
        folder_case(Stage::Model, "whole", base_folder(1), &[]),
        folder_case(Stage::Model, "whole, two shards", base_folder(2), &[]),
    ]
}

/// Runs `work` over a case's files in a fresh folder; returns its result, the thread's peak bytes and the time it took.
pub(crate) fn tried<T>(case: &Case, work: impl FnOnce(&Path) -> T) -> (T, usize, Duration) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = case.write(folder.path());
    let start = Instant::now();
    let (result, peak) = peak_bytes(|| work(&path));
    (result, peak, start.elapsed())
}

#[test]
fn corpus_has_more_than_150_files_with_distinct_names() {
    let cases = corpus();
    let of = |stage| cases.iter().filter(|c| c.stage == stage).count();
    println!("{} cases refused by the readers, {} by the loader", of(Stage::Format), of(Stage::Model));
    assert!(of(Stage::Format) >= 150 && of(Stage::Model) >= 50);
    let mut names: Vec<&str> = cases.iter().map(|c| c.name.as_str()).collect();
    names.sort_unstable();
    for pair in names.windows(2) {
        assert_ne!(pair[0], pair[1]);
    }
    assert!(cases.iter().all(|c| !c.expect.is_empty()));
}

#[test]
fn models_that_the_corpus_breaks_are_whole_before() {
    for case in base_models() {
        tried(&case, |path| ModelFiles::open(path).map(drop)).0.unwrap_or_else(|e| panic!("{}: {e}", case.name));
    }
}

#[test]
fn readers_refuse_each_broken_file_at_once_and_say_where() {
    let mut slowest = Duration::ZERO;
    let mut complaints = Vec::new();
    for case in corpus().iter().filter(|c| c.stage == Stage::Format) {
        let (result, peak, took) = tried(case, |path| ModelFiles::open(path).map(drop));
        slowest = slowest.max(took);
        let name = &case.name;
        let Err(error) = result else {
            complaints.push(format!("{name}: accepted"));
            continue;
        };
        let message = error.to_string();
        complaints.extend(case.complaint(&message));
        let says = message.contains("expected ") && message.contains("got ");
        if !says && matches!(error, Error::Format { .. }) {
            complaints.push(format!("{name}: neither expected nor got in {message:?}"));
        }
        if !matches!(error, Error::Format { .. } | Error::Unsupported { .. } | Error::Io { .. }) {
            complaints.push(format!("{name}: not an error of the readers: {error:?}"));
        }
        if took > Duration::from_secs(1) || peak > 16 * case.bytes() + (256 << 10) {
            complaints.push(format!("{name}: {took:?}, {peak} bytes for files of {}", case.bytes()));
        }
    }
    println!("slowest refusal: {slowest:?}");
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

#[test]
fn cases_of_the_loader_pass_the_readers() {
    for case in corpus().iter().filter(|c| c.stage == Stage::Model) {
        let (result, _, _) = tried(case, |path| ModelFiles::open(path).map(drop));
        assert!(result.is_ok(), "{}: {:?}", case.name, result.err().map(|e| e.to_string()));
    }
}
