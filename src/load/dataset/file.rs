//! A workload's file: opened and bounded, read line by line.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use crate::error::{Error, Result};
use crate::limits::DATASET_BYTES_MAX;

/// For messages.
pub(super) const OP: &str = "read dataset";

/// Opens a file of bounded size.
pub(super) fn open(path: &Path) -> Result<impl BufRead + use<>> {
    let io = |source| Error::io(OP, path, source);
    let file = File::open(path).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    if metadata.is_dir() {
        return Err(io(std::io::ErrorKind::IsADirectory.into()));
    }
    if metadata.len() > DATASET_BYTES_MAX {
        let got = format!("{} bytes", metadata.len());
        return Err(Error::format(OP, format!("at most {DATASET_BYTES_MAX} bytes"), got, path.display()));
    }
    // A pipe tells no length.
    Ok(BufReader::with_capacity(1 << 16, file.take(DATASET_BYTES_MAX)))
}

/// Calls `each` with every line that is not empty and its number, until it answers that it has enough.
pub(super) fn lines(path: &Path, mut each: impl FnMut(&[u8], u64) -> Result<bool>) -> Result<()> {
    let mut input = open(path)?;
    let mut line = Vec::new();
    for number in 1u64.. {
        line.clear();
        if input.read_until(b'\n', &mut line).map_err(|source| Error::io(OP, path, source))? == 0 {
            break;
        }
        if !line.trim_ascii().is_empty() && !each(&line, number)? {
            break;
        }
    }
    Ok(())
}

/// An error about a line.
pub(super) fn refuse(path: &Path, line: u64, expected: &str, got: impl ToString) -> Error {
    Error::format(OP, expected, got, format!("{}, line {line}", path.display()))
}

/// An error about a line that is not the JSON it must be.
pub(super) fn malformed(path: &Path, line: u64, expected: &str, error: &serde_json::Error) -> Error {
    let text = error.to_string();
    let words = text.rfind(" at line ").map_or(&*text, |at| &text[..at]);
    refuse(path, line, expected, format!("{words} at column {}", error.column()))
}
