//! The tensor table: what a model file, or a folder of them, holds.

use std::fmt;

use super::block::BlockFormat;
use super::source::{ByteSource, usize_len};
use crate::error::{Error, Result};

/// One tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// As the file names it.
    pub name: String,
    /// Slowest axis first: `[rows, k]`, whatever order the file uses. No axis is zero and the product fits u64.
    pub shape: Vec<u64>,
    /// Stored format.
    pub format: BlockFormat,
    /// Which of [`TensorTable::sources`].
    pub source: usize,
    /// Absolute byte offset in it.
    pub offset: u64,
    /// Byte length: always whole rows, always inside the source.
    pub bytes: u64,
}

impl Tensor {
    /// Weights in one row: the fastest axis (1 for a scalar).
    #[must_use]
    pub fn row_weights(&self) -> u64 {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Rows: the product of all axes but the fastest.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.shape.iter().rev().skip(1).product()
    }

    /// Bytes of one row.
    #[must_use]
    pub fn row_bytes(&self) -> u64 {
        self.bytes / self.rows()
    }
}

/// All tensors, and the files they lie in.
pub struct TensorTable {
    /// Files.
    pub sources: Vec<Box<dyn ByteSource>>,
    /// Sorted by name; names are unique and ranges do not overlap.
    pub tensors: Vec<Tensor>,
}

impl fmt::Debug for TensorTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files: Vec<&str> = self.sources.iter().map(|s| s.name()).collect();
        f.debug_struct("TensorTable").field("sources", &files).field("tensors", &self.tensors).finish()
    }
}

impl TensorTable {
    /// Sorts the tensors by name and holds the table's invariants: unique names, whole rows, ranges inside their source and apart.
    ///
    /// # Errors
    /// When one is broken; the message names file and tensor, of an overlap both tensors.
    pub(super) fn new(sources: Vec<Box<dyn ByteSource>>, mut tensors: Vec<Tensor>) -> Result<Self> {
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        for pair in tensors.windows(2) {
            if pair[0].name == pair[1].name {
                let file = sources[pair[1].source].name();
                return Err(Error::format("tensor names", "each name once", "it twice", place(file, &pair[0].name)));
            }
        }
        let mut spans = vec![Vec::new(); sources.len()];
        // In the order of the file: of one that was cut, the message names the first tensor that is not whole.
        let mut in_order: Vec<&Tensor> = tensors.iter().collect();
        in_order.sort_by_key(|t| (t.source, t.offset));
        for tensor in in_order {
            let source = &sources[tensor.source];
            check_inside(source.name(), source.len(), &tensor.name, tensor.offset, tensor.bytes)?;
            spans[tensor.source].push(Span {
                start: tensor.offset,
                end: tensor.offset + tensor.bytes,
                name: &tensor.name,
            });
        }
        for (source, spans) in sources.iter().zip(&spans) {
            check_apart(source.name(), spans)?;
        }
        Ok(Self { sources, tensors })
    }

    /// The tensor of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.binary_search_by(|t| t.name.as_str().cmp(name)).ok().map(|i| &self.tensors[i])
    }

    /// Bytes of all tensors together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.tensors.iter().map(|t| t.bytes).sum()
    }

    /// Reads rows `first .. first + rows` of a 2-D tensor (all of a 1-D one is one row) into `out`, resized to fit.
    ///
    /// The caller passes a tensor of this table and rows that it has; anything else is a panic, for it is our own number.
    ///
    /// # Errors
    /// When the system refuses, or the file became shorter.
    pub fn read_rows(&self, tensor: &Tensor, first: u64, rows: u64, out: &mut Vec<u8>) -> Result<()> {
        let end = first.checked_add(rows);
        let have = tensor.rows();
        assert!(end.is_some_and(|end| end <= have), "rows {first} + {rows} of {} in {}", have, tensor.name);
        let row_bytes = tensor.row_bytes();
        out.clear();
        out.resize(usize_len(rows * row_bytes, &tensor.name)?, 0);
        self.sources[tensor.source].read_at(tensor.offset + first * row_bytes, out).map_err(|error| match error {
            Error::Format { op, expected, got, .. } => Error::Format { op, expected, got, place: self.place(tensor) },
            other => other,
        })
    }

    /// Reads a small tensor whole and decodes it to floats (norm weights, biases).
    ///
    /// # Errors
    /// As [`TensorTable::read_rows`].
    pub fn read_floats(&self, tensor: &Tensor) -> Result<Vec<f32>> {
        let mut bytes = Vec::new();
        self.read_rows(tensor, 0, tensor.rows(), &mut bytes)?;
        let weights = usize_len(tensor.rows() * tensor.row_weights(), &tensor.name)?;
        let mut floats = vec![0.0; weights];
        tensor.format.decode(&bytes, &mut floats)?;
        Ok(floats)
    }

    /// The file that holds a tensor, and its name: for messages.
    #[must_use]
    pub fn place(&self, tensor: &Tensor) -> String {
        place(self.sources[tensor.source].name(), &tensor.name)
    }
}

/// `file, tensor name`.
pub(super) fn place(file: &str, tensor: &str) -> String {
    format!("{file}, tensor {tensor}")
}

/// A tensor's name as the file has it: text without control characters, so that messages and tables can show it.
pub(super) fn check_name(file: &str, name: &str) -> Result<()> {
    let shown = || place(file, &name.chars().take(80).flat_map(char::escape_debug).collect::<String>());
    if name.is_empty() {
        return Err(Error::format("tensor name", "a name", "an empty one", file));
    }
    if name.len() as u64 > crate::limits::NAME_BYTES_MAX {
        let max = format!("at most {} bytes", crate::limits::NAME_BYTES_MAX);
        return Err(Error::format("tensor name", max, format!("{} bytes", name.len()), shown()));
    }
    if name.chars().any(char::is_control) {
        return Err(Error::format("tensor name", "printable text", "control characters", shown()));
    }
    Ok(())
}

/// Bytes of a tensor of that shape, slowest axis first.
pub(super) fn bytes_from_shape(place: impl Fn() -> String, shape: &[u64], format: BlockFormat) -> Result<u64> {
    check_shape(&place, shape)?;
    let row = shape.last().copied().unwrap_or(1);
    let row_bytes = format.row_bytes(row).ok_or_else(|| {
        let want = format!("rows of whole {} blocks of {} weights", format.name(), format.block_weights());
        Error::format("tensor shape", want, format!("rows of {row} weights"), place())
    })?;
    let rows: u64 = shape.iter().rev().skip(1).product();
    rows.checked_mul(row_bytes)
        .ok_or_else(|| Error::format("tensor shape", "a size below 2^64 bytes", format!("{shape:?}"), place()))
}

/// No axis is zero and the product fits u64.
pub(super) fn check_shape(place: &impl Fn() -> String, shape: &[u64]) -> Result<()> {
    if shape.contains(&0) {
        return Err(Error::format("tensor shape", "axes of 1 or more", format!("{shape:?}"), place()));
    }
    if shape.iter().try_fold(1u64, |product, &axis| product.checked_mul(axis)).is_none() {
        return Err(Error::format("tensor shape", "a product below 2^64", format!("{shape:?}"), place()));
    }
    Ok(())
}

/// The bytes that a tensor claims in a file.
#[derive(Clone, Copy)]
pub(super) struct Span<'a> {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) name: &'a str,
}

/// The range ends inside the file.
pub(super) fn check_inside(file: &str, len: u64, tensor: &str, offset: u64, bytes: u64) -> Result<()> {
    match offset.checked_add(bytes) {
        Some(end) if end <= len => Ok(()),
        end => {
            let want = match end {
                Some(end) => format!("{end} bytes (offset {offset} + {bytes})"),
                None => format!("offset {offset} + {bytes} bytes below 2^64"),
            };
            Err(Error::format("file length", want, format!("{len} bytes"), place(file, tensor)))
        }
    }
}

/// No two ranges, sorted by start, share a byte.
pub(super) fn check_apart(file: &str, spans: &[Span<'_>]) -> Result<()> {
    for pair in spans.windows(2) {
        if pair[1].start < pair[0].end {
            let want = format!("{} to start at byte {} or later", pair[1].name, pair[0].end);
            let tensors = format!("{file}, tensors {} and {}", pair[0].name, pair[1].name);
            return Err(Error::format("tensor ranges overlap", want, pair[1].start, tensors));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::source::memory;
    use super::*;

    fn tensor(name: &str, shape: &[u64], offset: u64, bytes: u64) -> Tensor {
        Tensor { name: name.into(), shape: shape.to_vec(), format: BlockFormat::F16, source: 0, offset, bytes }
    }

    fn table(tensors: Vec<Tensor>) -> Result<TensorTable> {
        TensorTable::new(vec![memory("m", (0..40u8).collect::<Vec<_>>())], tensors)
    }

    #[test]
    fn rows_are_read_where_they_lie() {
        let table = table(vec![tensor("w", &[3, 4], 8, 24), tensor("n", &[4], 0, 8)]).expect("consistent");
        assert_eq!(table.bytes(), 32);
        let w = table.get("w").expect("listed");
        assert_eq!((w.rows(), w.row_weights(), w.row_bytes()), (3, 4, 8));
        let mut out = vec![9; 100];
        table.read_rows(w, 1, 2, &mut out).expect("inside");
        assert_eq!(out, (16..32u8).collect::<Vec<_>>());
        let n = table.get("n").expect("listed");
        assert_eq!((n.rows(), n.row_bytes()), (1, 8));
        assert_eq!(table.read_floats(n).expect("inside").len(), 4);
        assert!(table.get("x").is_none());
    }

    #[test]
    fn broken_tables_are_refused_with_both_names() {
        let check = |tensors, want: &str| {
            assert_eq!(table(tensors).expect_err(want).to_string(), want);
        };
        check(
            vec![tensor("a", &[4], 0, 8), tensor("a", &[4], 8, 8)],
            "tensor names: expected each name once, got it twice (m, tensor a)",
        );
        check(
            vec![tensor("a", &[4], 0, 8), tensor("b", &[4], 6, 8)],
            "tensor ranges overlap: expected b to start at byte 8 or later, got 6 (m, tensors a and b)",
        );
        check(
            vec![tensor("a", &[4], 33, 8)],
            "file length: expected 41 bytes (offset 33 + 8), got 40 bytes (m, tensor a)",
        );
        check(
            vec![tensor("a", &[4], u64::MAX, 8)],
            "file length: expected offset 18446744073709551615 + 8 bytes below 2^64, got 40 bytes (m, tensor a)",
        );
    }

    #[test]
    fn sizes_that_overflow_or_split_blocks_are_refused() {
        let size = |shape: &[u64], format| bytes_from_shape(|| "p".into(), shape, format).map_err(|e| e.to_string());
        assert_eq!(size(&[3, 64], BlockFormat::Q4_0), Ok(108));
        assert_eq!(size(&[], BlockFormat::F32), Ok(4));
        assert!(size(&[3, 33], BlockFormat::Q4_0).is_err_and(|e| e.contains("rows of 33 weights")));
        assert!(size(&[0, 32], BlockFormat::Q4_0).is_err_and(|e| e.contains("axes of 1 or more")));
        assert!(size(&[1 << 32, 1 << 32], BlockFormat::F32).is_err_and(|e| e.contains("a product below 2^64")));
        assert!(size(&[1 << 31, 1 << 32], BlockFormat::F32).is_err_and(|e| e.contains("a size below 2^64 bytes")));
    }
}
