//! What is known of an adapter with one driver and one build, on disk between processes.
//!
//! ```text
//! CACHE/tune/KEY.json        what was compiled and right, wrong, fastest; anything else there is a miss
//! CACHE/tune/KEY.pipelines   what the driver made of the kernels, behind a SHA-256 of it, where the driver tells
//! CACHE/tune/KEY.compiling   labels of kernels that are compiled for the first time; locked by the process that does it. Found without
//!                            its lock, that process died of one of them
//! ```
//! Nothing here is ever an error: without a cache each process finds all of it again.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::fetch::cache_folder;
use crate::engine::tune::{Keeper, Memory};
use crate::gpu::GpuPlayer;
use crate::kernels::program::shaders_digest;

const DIGEST_BYTES: usize = 32;

/// The file of one key.
pub struct TuneFile {
    /// `None` without a cache folder.
    path: Option<PathBuf>,
    /// Held, and locked, while kernels are compiled for the first time.
    marker: Option<File>,
    one_by_one: bool,
}

/// What is known of an adapter lies under this: it names everything that may change what a driver makes of a shader.
#[must_use]
pub fn key_of(player: &GpuPlayer, checked_shaders: bool) -> String {
    let adapter = player.capabilities();
    let device = format!("{} {} {}", adapter.vendor, adapter.device, player.tier().name());
    let checked = if checked_shaders { "checked" } else { "" };
    let (driver, info) = (&*adapter.driver, &*adapter.driver_info);
    key(&[&adapter.name, adapter.backend, driver, info, &device, checked])
}

fn key(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts.iter().chain(&[env!("CARGO_PKG_VERSION"), &*shaders_digest()]) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(12).map(|byte| format!("{byte:02x}")).collect()
}

impl TuneFile {
    /// Opens what is known under `key`.
    #[must_use]
    pub fn open(key: &str) -> (Self, Memory) {
        match cache_folder() {
            Ok(cache) => Self::open_in(&cache.join("tune"), key),
            Err(_) => (Self { path: None, marker: None, one_by_one: false }, Memory::default()),
        }
    }

    fn open_in(folder: &Path, key: &str) -> (Self, Memory) {
        let path = folder.join(format!("{key}.json"));
        let mut memory: Memory = fs::read(&path)
            .ok()
            .and_then(|bytes| {
                let read = serde_json::from_slice(&bytes);
                read.inspect_err(|error| tracing::info!("{}: {error}; kernels are checked anew", path.display())).ok()
            })
            .unwrap_or_default();
        let suspects = suspects(&path.with_extension("compiling"));
        if let [label] = &suspects[..] {
            tracing::warn!(
                "an earlier process died while it compiled {label}; where it has another variant, that takes over"
            );
            memory.bad.insert(label.clone());
        }
        (Self { path: Some(path), marker: None, one_by_one: suspects.len() > 1 }, memory)
    }

    /// What the driver made of the kernels in an earlier process, whole or not at all.
    #[must_use]
    pub fn pipelines(&self) -> Option<Vec<u8>> {
        let mut bytes = fs::read(self.path.as_ref()?.with_extension("pipelines")).ok()?;
        let (digest, data) = bytes.split_at_checked(DIGEST_BYTES)?;
        if Sha256::digest(data)[..] != *digest {
            return None;
        }
        bytes.drain(..DIGEST_BYTES);
        Some(bytes)
    }

    fn marker(&mut self) -> Option<&mut File> {
        if self.marker.is_none() {
            let path = self.path.as_ref()?.with_extension("compiling");
            fs::create_dir_all(path.parent()?).ok()?;
            let file = File::options().create(true).truncate(false).read(true).write(true).open(path).ok()?;
            // Another process that compiles too keeps its own record of it.
            file.try_lock().ok()?;
            self.marker = Some(file);
        }
        self.marker.as_mut()
    }
}

/// Puts a whole file in the place of another, or nothing.
fn replace(path: &Path, bytes: &[u8]) {
    let name = path.file_name().expect("a file in the cache").to_string_lossy();
    let temporary = path.with_file_name(format!("{name}.{}.partial", std::process::id()));
    let parent = path.parent().expect("a file in the cache");
    let written = fs::create_dir_all(parent)
        .and_then(|()| fs::write(&temporary, bytes))
        .and_then(|()| fs::rename(&temporary, path));
    if let Err(error) = written {
        let _ = fs::remove_file(&temporary);
        tracing::debug!("{}: {error}", path.display());
    }
}

/// Labels in a marker that no living process holds; the marker is emptied.
fn suspects(marker: &Path) -> Vec<String> {
    let Ok(mut file) = File::options().read(true).write(true).open(marker) else { return Vec::new() };
    if file.try_lock().is_err() {
        return Vec::new();
    }
    let mut text = String::new();
    if file.read_to_string(&mut text).is_err() || file.set_len(0).is_err() {
        return Vec::new();
    }
    text.lines().map(str::to_owned).collect()
}

impl Keeper for TuneFile {
    fn compiling(&mut self, labels: &[String]) {
        let Some(file) = self.marker() else { return };
        let text: String = labels.iter().flat_map(|label| [label.as_str(), "\n"]).collect();
        let written =
            file.seek(SeekFrom::Start(0)).and_then(|_| file.set_len(0)).and_then(|()| file.write_all(text.as_bytes()));
        // On the disk before the driver sees the shader: the machine may go with it.
        if let Err(error) = written.and_then(|()| file.sync_data()) {
            tracing::debug!("marker: {error}");
        }
    }

    fn compiled(&mut self, memory: &Memory) {
        if let Some(file) = self.marker.take() {
            let _ = file.set_len(0);
        }
        let Some(path) = &self.path else { return };
        let text = serde_json::to_vec_pretty(memory).expect("plain data");
        replace(path, &text);
    }

    fn keep_pipelines(&mut self, data: &[u8]) {
        let Some(path) = &self.path else { return };
        let mut bytes = Sha256::digest(data).to_vec();
        bytes.extend_from_slice(data);
        replace(&path.with_extension("pipelines"), &bytes);
    }

    fn one_by_one(&self) -> bool {
        self.one_by_one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(all: &[&str]) -> Vec<String> {
        all.iter().map(|&label| label.to_owned()).collect()
    }

    #[test]
    fn what_is_kept_is_found_and_a_bad_file_is_a_miss() {
        let folder = tempfile::tempdir().unwrap();
        let (mut file, mut memory) = TuneFile::open_in(folder.path(), "k");
        assert_eq!(memory, Memory::default());
        memory.good.insert("a".into());
        memory.winners.insert("matmul q4_1 r1 f32".into(), 1);
        file.compiling(&labels(&["a"]));
        file.compiled(&memory);
        drop(file);
        let (file, again) = TuneFile::open_in(folder.path(), "k");
        assert_eq!((again, file.one_by_one), (memory, false));
        for broken in ["", "{", "[1]", "{\"good\": 3}", "null"] {
            fs::write(folder.path().join("k.json"), broken).unwrap();
            assert_eq!(TuneFile::open_in(folder.path(), "k").1, Memory::default(), "{broken}");
        }
    }

    #[test]
    fn pipelines_come_back_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let (mut file, _) = TuneFile::open_in(folder.path(), "k");
        assert_eq!(file.pipelines(), None);
        file.keep_pipelines(b"made by a driver");
        assert_eq!(file.pipelines().as_deref(), Some(&b"made by a driver"[..]));
        let path = folder.path().join("k.pipelines");
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut torn = whole.clone();
            torn[at] ^= 1;
            fs::write(&path, &torn).unwrap();
            assert_eq!(file.pipelines(), None, "byte {at}");
            fs::write(&path, &whole[..at]).unwrap();
            assert_eq!(file.pipelines(), None, "cut at {at}");
        }
    }

    #[test]
    fn a_process_that_died_compiling_is_noticed_once_and_a_living_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let die = |all: &[&str]| {
            let (mut file, _) = TuneFile::open_in(folder.path(), "k");
            file.compiling(&labels(all));
            assert!(TuneFile::open_in(folder.path(), "k").1.bad.is_empty(), "its process is alive");
        };
        die(&["a", "b"]);
        let (file, memory) = TuneFile::open_in(folder.path(), "k");
        assert!(file.one_by_one && memory.bad.is_empty(), "one of two: which is not known");
        die(&["b"]);
        let (file, memory) = TuneFile::open_in(folder.path(), "k");
        assert!(!file.one_by_one);
        assert_eq!(memory.bad.into_iter().collect::<Vec<_>>(), ["b"]);
        assert!(
            TuneFile::open_in(folder.path(), "k").1.bad.is_empty(),
            "the marker is gone; what was learned is kept by who settles"
        );
    }

    #[test]
    fn another_driver_or_adapter_has_another_key() {
        assert_ne!(key(&["gpu", "1.0"]), key(&["gpu", "1.1"]));
        assert_ne!(key(&["gpu1", ".0"]), key(&["gpu", "1.0"]));
    }
}
