//! The toy model packed into the library: a 7 MB draft model with SmolLM2's tokenizer. Fluent nonsense, for tests on slow
//! drivers and in browsers, for a first look without a download, and as a draft model.

use crate::error::Result;
use crate::format::model_files::ModelFiles;

/// Name under which the toy appears in messages and results.
pub const NAME: &str = "toy";

static BYTES: &[u8] = include_bytes!("../../assets/smollm2-draft-7m.q4_1.gguf");

/// The toy's description and tensors, read from memory.
///
/// # Errors
/// None that the packed file can cause; the signature is the reader's.
pub fn files() -> Result<ModelFiles> {
    ModelFiles::from_gguf_bytes(NAME, BYTES)
}
