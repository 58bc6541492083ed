//! Safetensors: one file, or shards with an index.

use std::path::Path;

use super::table::TensorTable;
use crate::error::Result;

/// Reads the headers of a folder: `model.safetensors.index.json` decides when there is one, else `model.safetensors`.
///
/// # Errors
/// Anything that is not a whole, consistent set of files.
pub fn read_folder(folder: &Path) -> Result<TensorTable> {
    let _ = folder;
    todo!("H-format")
}
