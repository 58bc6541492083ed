//! Where bytes come from: a file, or bytes in memory (the packed toy model, a page's download).
//!
//! Reads are positioned, so that one source serves several threads; nothing is mapped, so a file that shrinks under us is
//! an error and not a signal.

use std::path::Path;

use crate::error::{Error, Result};

/// Bytes that can be read at any position, from several threads.
pub trait ByteSource: Send + Sync {
    /// All bytes there are.
    fn len(&self) -> u64;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Fills `out` from `offset` on.
    ///
    /// # Errors
    /// When the range passes the end, or the system refuses.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()>;
    /// The name for messages: the path as it was given.
    fn name(&self) -> &str;
}

/// Opens a file for positioned reads.
///
/// # Errors
/// When it is not a readable regular file.
#[cfg(not(target_arch = "wasm32"))]
pub fn open(path: &Path) -> Result<Box<dyn ByteSource>> {
    // Asked before opening: opening a named pipe would wait for its writer.
    let kind = std::fs::metadata(path).map_err(|e| Error::io("open", path, e))?;
    if !kind.is_file() {
        let got = if kind.is_dir() { "a folder" } else { "a device, pipe or socket" };
        return Err(Error::format("open", "a regular file", got, path.display()));
    }
    let file = std::fs::File::open(path).map_err(|e| Error::io("open", path, e))?;
    let len = file.metadata().map_err(|e| Error::io("open", path, e))?.len();
    Ok(Box::new(native::FileSource { file, len, name: path.display().to_string() }))
}

/// There are no files in a page.
///
/// # Errors
/// Always.
#[cfg(target_arch = "wasm32")]
pub fn open(path: &Path) -> Result<Box<dyn ByteSource>> {
    Err(Error::unsupported(format!("opening the file {}", path.display()), "a page reads models from memory"))
}

/// Bytes in memory as a source; `name` is for messages.
#[must_use]
pub fn memory(name: &str, bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Box<dyn ByteSource> {
    Box::new(Memory { name: name.to_owned(), bytes })
}

/// Reads a whole file that must not be larger than `bytes_max`; `None` when there is no such file.
///
/// # Errors
/// When it is larger, not a regular file, or the system refuses.
pub fn read_small(path: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>> {
    let source = match open(path) {
        Ok(source) => source,
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    if source.len() > bytes_max {
        let got = format!("{} bytes", source.len());
        return Err(Error::format("file size", format!("at most {bytes_max} bytes"), got, source.name()));
    }
    let mut bytes = vec![0; usize_len(source.len(), source.name())?];
    source.read_at(0, &mut bytes)?;
    Ok(Some(bytes))
}

/// A length as `usize`; on 32-bit targets it may not fit.
pub(super) fn usize_len(bytes: u64, place: &str) -> Result<usize> {
    usize::try_from(bytes).map_err(|_| Error::OutOfMemory {
        what: "a buffer in this process".into(),
        bytes,
        place: place.to_owned(),
    })
}

fn past_end(offset: u64, want: usize, len: u64, name: &str) -> Error {
    Error::format("read", format!("{want} bytes at offset {offset}"), format!("the end of the file at {len}"), name)
}

struct Memory<T> {
    name: String,
    bytes: T,
}

impl<T: AsRef<[u8]> + Send + Sync> ByteSource for Memory<T> {
    fn len(&self) -> u64 {
        self.bytes.as_ref().len() as u64
    }
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let from = usize::try_from(offset).ok();
        let range = from.and_then(|from| Some(from..from.checked_add(out.len())?));
        match range.and_then(|range| self.bytes.as_ref().get(range)) {
            Some(bytes) => out.copy_from_slice(bytes),
            None => return Err(past_end(offset, out.len(), self.len(), &self.name)),
        }
        Ok(())
    }
    fn name(&self) -> &str {
        &self.name
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod native {
    use std::fs::File;
    use std::io;

    use super::{ByteSource, Error, Result, past_end};

    pub(super) struct FileSource {
        pub(super) file: File,
        /// As it was when the file was opened.
        pub(super) len: u64,
        pub(super) name: String,
    }

    impl ByteSource for FileSource {
        fn len(&self) -> u64 {
            self.len
        }
        fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
            match read_exact_at(&self.file, offset, out) {
                Ok(()) => Ok(()),
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                    let len = self.file.metadata().map_or(self.len, |m| m.len());
                    Err(past_end(offset, out.len(), len, &self.name))
                }
                Err(e) => Err(Error::io("read", &self.name, e)),
            }
        }
        fn name(&self) -> &str {
            &self.name
        }
    }

    #[cfg(unix)]
    fn read_exact_at(file: &File, offset: u64, out: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(file, out, offset)
    }

    #[cfg(windows)]
    fn read_exact_at(file: &File, mut offset: u64, mut out: &mut [u8]) -> io::Result<()> {
        use std::os::windows::fs::FileExt;
        while !out.is_empty() {
            match file.seek_read(out, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    out = &mut out[n..];
                    offset += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_reads_inside_and_refuses_past_the_end() {
        let source = memory("m", vec![1u8, 2, 3]);
        let mut two = [0; 2];
        source.read_at(1, &mut two).expect("inside");
        assert_eq!(two, [2, 3]);
        for offset in [2, 3, u64::MAX] {
            let message = source.read_at(offset, &mut two).expect_err("past the end").to_string();
            assert_eq!(message, format!("read: expected 2 bytes at offset {offset}, got the end of the file at 3 (m)"));
        }
    }

    #[test]
    fn file_names_and_kinds_are_told() {
        let missing = open(Path::new("no/such/file")).err().expect("missing").to_string();
        assert!(missing.contains("no/such/file"), "{missing}");
        let folder = open(Path::new("src")).err().expect("folder").to_string();
        assert_eq!(folder, "open: expected a regular file, got a folder (src)");
        assert!(read_small(Path::new("no/such/file"), 1).expect("absent is fine").is_none());
        let large = read_small(Path::new("Cargo.toml"), 4).expect_err("too large").to_string();
        assert!(large.starts_with("file size: expected at most 4 bytes, got "), "{large}");
    }
}
