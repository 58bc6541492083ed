//! The tensor table: what a model file, or a folder of them, holds.

use super::block::BlockFormat;
use super::source::ByteSource;
use crate::error::Result;

/// One tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// As the file names it.
    pub name: String,
    /// Slowest axis first: `[rows, k]`, whatever order the file uses.
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

/// All tensors, and the files they lie in.
pub struct TensorTable {
    /// Files.
    pub sources: Vec<Box<dyn ByteSource>>,
    /// Sorted by name; names are unique and ranges do not overlap.
    pub tensors: Vec<Tensor>,
}

impl TensorTable {
    /// The tensor of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.binary_search_by(|t| t.name.as_str().cmp(name)).ok().map(|i| &self.tensors[i])
    }

    /// Reads rows `first .. first + rows` of a 2-D tensor (all of a 1-D one is one row) into `out`, resized to fit.
    ///
    /// # Errors
    /// When the system refuses, or the file became shorter.
    pub fn read_rows(&self, tensor: &Tensor, first: u64, rows: u64, out: &mut Vec<u8>) -> Result<()> {
        let _ = (tensor, first, rows, out);
        todo!("H-format")
    }

    /// Reads a small tensor whole and decodes it to floats (norm weights, biases).
    ///
    /// # Errors
    /// As [`TensorTable::read_rows`].
    pub fn read_floats(&self, tensor: &Tensor) -> Result<Vec<f32>> {
        let _ = tensor;
        todo!("H-format")
    }

    /// The file that holds a tensor, and its name: for messages.
    #[must_use]
    pub fn place(&self, tensor: &Tensor) -> String {
        format!("{}, tensor {}", self.sources[tensor.source].name(), tensor.name)
    }
}
