//! The input, a line at a time, each bounded.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::super::interrupt;
use crate::error::{Error, Result};
use crate::limits::PROMPT_BYTES_MAX;
use crate::server::openai::batch::Line;

const MARK: &[u8] = b"\xef\xbb\xbf";

/// A file of requests, or whatever else the system gives lines from.
pub(super) struct Lines {
    from: BufReader<File>,
    path: PathBuf,
    is_file: bool,
    is_first: bool,
}

impl Lines {
    /// Opens the file.
    ///
    /// # Errors
    /// When there is none, or it is a folder.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let wrong = |source| Error::io("open input", path, source);
        let file = interrupt::while_waiting(|| File::open(path)).map_err(wrong)?;
        let metadata = file.metadata().map_err(wrong)?;
        if metadata.is_dir() {
            return Err(wrong(std::io::ErrorKind::IsADirectory.into()));
        }
        Ok(Self { from: BufReader::new(file), path: path.to_owned(), is_file: metadata.is_file(), is_first: true })
    }

    /// Whether it can be read again.
    pub(super) fn is_file(&self) -> bool {
        self.is_file
    }

    /// Requests in the file; `None` where that would use them up.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn count(&self) -> Result<Option<u64>> {
        if !self.is_file {
            return Ok(None);
        }
        let wrong = |source| Error::io("read input", &self.path, source);
        let mut file = BufReader::new(File::open(&self.path).map_err(wrong)?);
        let (mut count, mut is_blank) = (0, true);
        loop {
            let bytes = file.fill_buf().map_err(wrong)?;
            if bytes.is_empty() {
                return Ok(Some(count + u64::from(!is_blank)));
            }
            for byte in bytes {
                match byte {
                    b'\n' => {
                        count += u64::from(!is_blank);
                        is_blank = true;
                    }
                    byte => is_blank &= byte.is_ascii_whitespace(),
                }
            }
            let read = bytes.len();
            file.consume(read);
        }
    }

    /// The next line that is not blank.
    ///
    /// # Errors
    /// When the file cannot be read. A line that makes no sense is none: it comes back as such.
    pub(super) fn next_line(&mut self) -> Result<Option<Line>> {
        loop {
            // Only what may wait for ever is left at once by Ctrl-C.
            let read = if self.is_file { self.read() } else { interrupt::while_waiting(|| self.read()) };
            let mut bytes = read.map_err(|source| Error::io("read input", &self.path, source))?;
            if bytes.is_empty() {
                return Ok(None);
            }
            if bytes.len() > PROMPT_BYTES_MAX {
                let message = format!("line: expected at most {PROMPT_BYTES_MAX} bytes, got more");
                return Ok(Some(Line::wrong(message)));
            }
            if std::mem::take(&mut self.is_first) && bytes.starts_with(MARK) {
                bytes.drain(..MARK.len());
            }
            if !bytes.trim_ascii().is_empty() {
                return Ok(Some(Line::read(&bytes)));
            }
        }
    }

    /// A line with its newline; of a longer one than the bound the beginning, the rest is skipped.
    fn read(&mut self) -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        (&mut self.from).take(PROMPT_BYTES_MAX as u64 + 1).read_until(b'\n', &mut bytes)?;
        if bytes.len() > PROMPT_BYTES_MAX && bytes.last() != Some(&b'\n') {
            self.from.skip_until(b'\n')?;
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::Lines;

    #[test]
    fn blank_lines_are_no_requests_and_the_last_needs_no_newline() {
        let check = |text: &[u8], want: u64| {
            let file = tempfile::NamedTempFile::new().expect("a file");
            std::fs::write(file.path(), text).expect("writable");
            let mut lines = Lines::open(file.path()).expect("there");
            assert_eq!(lines.count().expect("readable"), Some(want), "{text:?}");
            let read = std::iter::from_fn(|| lines.next_line().expect("readable")).count();
            assert_eq!(read as u64, want, "{text:?}");
        };
        check(b"", 0);
        check(b"\n \r\n", 0);
        check(b"{}", 1);
        check(b"{}\n\n{}\r\n\t\n{}", 3);
        check(b"\xff\n{}\n", 2);
        check(b"\xef\xbb\xbf{}\n", 1);
    }
}
