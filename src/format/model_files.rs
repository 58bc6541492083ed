//! A model as found on disk: a GGUF, or a Hugging Face folder.

use std::path::{Path, PathBuf};

use super::gguf::Metadata;
use super::table::TensorTable;
use crate::error::Result;

/// What describes the model beside its tensors.
pub enum Description {
    /// Metadata of a GGUF.
    Gguf(Metadata),
    /// Files of a Hugging Face folder.
    Folder(Folder),
}

/// The JSON files of a Hugging Face folder.
pub struct Folder {
    /// The folder.
    pub path: PathBuf,
    /// `config.json`.
    pub config: serde_json::Value,
    /// `generation_config.json`, or null.
    pub generation_config: serde_json::Value,
    /// `tokenizer_config.json`, or null.
    pub tokenizer_config: serde_json::Value,
    /// Bytes of `tokenizer.json`, if there is one.
    pub tokenizer_json: Option<Vec<u8>>,
    /// `chat_template.jinja`, if there is one.
    pub chat_template: Option<String>,
}

/// A model's description and tensors.
pub struct ModelFiles {
    /// Name for messages and results: file stem or folder name.
    pub name: String,
    /// What describes it.
    pub description: Description,
    /// Its tensors.
    pub table: TensorTable,
}

impl ModelFiles {
    /// Opens a `.gguf` file or a folder.
    ///
    /// # Errors
    /// When it is neither, or broken.
    pub fn open(path: &Path) -> Result<Self> {
        let _ = path;
        todo!("H-format")
    }

    /// A GGUF in memory (the packed toy model, a page's download).
    ///
    /// # Errors
    /// When it is broken.
    pub fn from_gguf_bytes(name: &str, bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<Self> {
        let _ = (name, bytes.as_ref().len());
        todo!("H-format")
    }
}
