//! A model as found on disk: a GGUF, or a Hugging Face folder. What the keys in it mean is the layers' above.

use std::path::{Path, PathBuf};

use super::gguf::{self, Metadata};
use super::safetensors;
use super::source;
use super::table::TensorTable;
use crate::error::{Error, Result};
use crate::limits::{CONFIG_BYTES_MAX, TOKENIZER_BYTES_MAX};

/// What describes the model beside its tensors.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one a model, and it is not moved about")]
pub enum Description {
    /// Metadata of a GGUF.
    Gguf(Metadata),
    /// Files of a Hugging Face folder.
    Folder(Folder),
}

/// The JSON files of a Hugging Face folder.
#[derive(Debug)]
pub struct Folder {
    /// The folder.
    pub path: PathBuf,
    /// `config.json`: an object.
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

impl Folder {
    /// Reads the files that describe a model, not its tensors. Only `config.json` must be there.
    ///
    /// # Errors
    /// When `config.json` is absent, or a file is too large or not what its name says.
    pub fn read(path: &Path) -> Result<Self> {
        let config = read_json(&path.join("config.json"))?
            .ok_or_else(|| Error::format("model folder", "a config.json beside the weights", "none", path.display()))?;
        Ok(Self {
            config,
            generation_config: read_json(&path.join("generation_config.json"))?.unwrap_or_default(),
            tokenizer_config: read_json(&path.join("tokenizer_config.json"))?.unwrap_or_default(),
            tokenizer_json: source::read_small(&path.join("tokenizer.json"), TOKENIZER_BYTES_MAX)?,
            chat_template: read_text(&path.join("chat_template.jinja"))?,
            path: path.to_owned(),
        })
    }
}

/// A model's description and tensors.
#[derive(Debug)]
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
        if path.is_dir() {
            let description = Description::Folder(Folder::read(path)?);
            return Ok(Self { name: name_from_path(path), description, table: safetensors::read_folder(path)? });
        }
        if path.extension().is_some_and(|e| e == "safetensors" || e == "json") {
            let got = "one file of a folder";
            return Err(Error::format("model", "a .gguf file or a Hugging Face folder", got, path.display()));
        }
        let (metadata, table) = gguf::read(source::open(path)?)?;
        Ok(Self { name: name_from_path(path), description: Description::Gguf(metadata), table })
    }

    /// A GGUF in memory (the packed toy model, a page's download).
    ///
    /// # Errors
    /// When it is broken.
    pub fn from_gguf_bytes(name: &str, bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<Self> {
        let (metadata, table) = gguf::read(source::memory(name, bytes))?;
        Ok(Self { name: name.to_owned(), description: Description::Gguf(metadata), table })
    }
}

fn name_from_path(path: &Path) -> String {
    let name = |path: &Path| {
        let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
        name.map(|n| n.to_string_lossy().into_owned())
    };
    // `.` and `..` have no name of their own.
    name(path).or_else(|| name(&path.canonicalize().ok()?)).unwrap_or_else(|| path.display().to_string())
}

fn read_json(path: &Path) -> Result<Option<serde_json::Value>> {
    let Some(bytes) = source::read_small(path, CONFIG_BYTES_MAX)? else { return Ok(None) };
    let bad = |got: String| Error::format("configuration", "a JSON object", got, path.display());
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes); // a byte order mark is not JSON, but editors write it
    let value: serde_json::Value = serde_json::from_slice(bytes).map_err(|e| bad(e.to_string()))?;
    let got = match value {
        serde_json::Value::Object(_) => return Ok(Some(value)),
        serde_json::Value::Array(_) => "an array",
        serde_json::Value::Null => "null",
        _ => "a single value",
    };
    Err(bad(got.into()))
}

fn read_text(path: &Path) -> Result<Option<String>> {
    let Some(bytes) = source::read_small(path, CONFIG_BYTES_MAX)? else { return Ok(None) };
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(e) => {
            let got = format!("a bad byte at {}", e.utf8_error().valid_up_to());
            Err(Error::format("text file", "UTF-8", got, path.display()))
        }
    }
}
