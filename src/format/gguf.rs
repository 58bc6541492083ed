//! GGUF v2 and v3: metadata and tensor list.

use super::source::ByteSource;
use super::table::TensorTable;
use crate::error::Result;

/// A metadata value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Any unsigned or signed integer.
    Int(i128),
    /// Either float.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Text.
    Str(String),
    /// Integers.
    Ints(Vec<i64>),
    /// Floats.
    Floats(Vec<f32>),
    /// Truth values.
    Bools(Vec<bool>),
    /// Texts.
    Strs(Vec<String>),
}

/// Metadata of a GGUF, with typed look-ups whose errors name file and key.
#[derive(Debug, Clone, Default)]
pub struct Metadata {
    /// The file, for messages.
    pub file: String,
    /// Sorted by key.
    pub pairs: std::collections::BTreeMap<String, Value>,
}

impl Metadata {
    /// An unsigned integer; `Ok(None)` when absent, an error when of another type or negative.
    ///
    /// # Errors
    /// See above.
    pub fn u64(&self, key: &str) -> Result<Option<u64>> {
        let _ = key;
        todo!("H-format")
    }
    /// A float (an integer will do).
    ///
    /// # Errors
    /// As [`Metadata::u64`].
    pub fn f64(&self, key: &str) -> Result<Option<f64>> {
        let _ = key;
        todo!("H-format")
    }
    /// A truth value.
    ///
    /// # Errors
    /// As [`Metadata::u64`].
    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        let _ = key;
        todo!("H-format")
    }
    /// Text.
    ///
    /// # Errors
    /// As [`Metadata::u64`].
    pub fn str(&self, key: &str) -> Result<Option<&str>> {
        let _ = key;
        todo!("H-format")
    }
    /// Texts.
    ///
    /// # Errors
    /// As [`Metadata::u64`].
    pub fn strs(&self, key: &str) -> Result<Option<&[String]>> {
        let _ = key;
        todo!("H-format")
    }
    /// Integers.
    ///
    /// # Errors
    /// As [`Metadata::u64`].
    pub fn ints(&self, key: &str) -> Result<Option<&[i64]>> {
        let _ = key;
        todo!("H-format")
    }
    /// Floats.
    ///
    /// # Errors
    /// As [`Metadata::u64`].
    pub fn floats(&self, key: &str) -> Result<Option<&[f32]>> {
        let _ = key;
        todo!("H-format")
    }
}

/// Reads header, metadata and tensor list, and checks all of it against the length of the source.
///
/// # Errors
/// Anything that is not a whole, consistent GGUF.
pub fn read(source: Box<dyn ByteSource>) -> Result<(Metadata, TensorTable)> {
    let _ = source;
    todo!("H-format")
}
