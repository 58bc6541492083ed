//! The output: rows in the order of the input, each whole or, after a crash, torn and cut when the run goes on.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::lines::Lines;
use crate::error::{Error, Result};
use crate::server::openai::batch::custom_id_of_row;

/// A file of rows.
pub(super) struct Rows {
    file: File,
    path: PathBuf,
    is_file: bool,
}

/// What of the output stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Kept {
    /// Rows.
    pub(super) rows: u64,
    /// Their bytes.
    pub(super) bytes: u64,
}

impl Rows {
    /// Opens or makes the file; what it holds stays until [`Rows::begin`].
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let wrong = |source| Error::io("open output", path, source);
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(wrong)?;
        let is_file = file.metadata().map_err(wrong)?.is_file();
        Ok(Self { file, path: path.to_owned(), is_file })
    }

    /// The rows that answer the first lines of the input, which are taken off `lines`. A torn last row is not one of them.
    ///
    /// # Errors
    /// When the output holds anything but rows of this input in its order.
    pub(super) fn kept(&self, lines: &mut Lines) -> Result<Kept> {
        let mut kept = Kept::default();
        if !self.is_file {
            return Ok(kept);
        }
        let wrong = |source| Error::io("read output", &self.path, source);
        let mut file = BufReader::new(File::open(&self.path).map_err(wrong)?);
        loop {
            let mut bytes = Vec::new();
            file.read_until(b'\n', &mut bytes).map_err(wrong)?;
            if bytes.last() != Some(&b'\n') {
                return Ok(kept);
            }
            let Some(custom_id) = custom_id_of_row(&bytes) else {
                if file.fill_buf().map_err(wrong)?.is_empty() {
                    return Ok(kept);
                }
                return Err(self.foreign(&kept, "a row", "something else"));
            };
            let Some(line) = lines.next_line()? else {
                return Err(self.foreign(&kept, "no more rows than the input has requests", "one more"));
            };
            if line.custom_id != custom_id {
                let quoted = |id: Option<&String>| id.map_or_else(|| "none".to_owned(), |id| format!("{id:?}"));
                let expected = format!("custom_id {} as in the input", quoted(line.custom_id.as_ref()));
                return Err(self.foreign(&kept, &expected, &quoted(custom_id.as_ref())));
            }
            kept.rows += 1;
            kept.bytes += bytes.len() as u64;
        }
    }

    fn foreign(&self, kept: &Kept, expected: &str, got: &str) -> Error {
        let (path, line) = (self.path.display(), kept.rows + 1);
        Error::Request(format!("--resume: expected {expected}, got {got} ({path} line {line})"))
    }

    /// Cuts the file behind what stays.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn begin(&mut self, kept: &Kept) -> Result<()> {
        if !self.is_file {
            return Ok(());
        }
        let cut = self.file.set_len(kept.bytes).and_then(|()| self.file.seek(SeekFrom::Start(kept.bytes)));
        cut.map(|_| ()).map_err(|source| Error::io("write output", &self.path, source))
    }

    /// Writes a row, newline included, and sends it on.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn write(&mut self, row: &str) -> Result<()> {
        let written = self.file.write_all(row.as_bytes()).and_then(|()| self.file.flush());
        written.map_err(|source| Error::io("write output", &self.path, source))
    }
}
