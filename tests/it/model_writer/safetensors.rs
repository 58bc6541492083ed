//! A safetensors file from tensors, or from a header as it stands.

use serde_json::{Map, Value, json};
use twostroke::format::block::BlockFormat;

/// Tensors of one file, in the order of their data.
#[derive(Clone, Debug, Default)]
pub(crate) struct SafetensorsWriter {
    /// Name, dtype, shape, data.
    pub(crate) tensors: Vec<(String, String, Vec<u64>, Vec<u8>)>,
}

impl SafetensorsWriter {
    /// Adds a tensor; only the float formats have a dtype.
    pub(crate) fn tensor(&mut self, name: &str, shape: &[u64], format: BlockFormat, data: Vec<u8>) -> &mut Self {
        let dtype = match format {
            BlockFormat::F32 => "F32",
            BlockFormat::F16 => "F16",
            BlockFormat::Bf16 => "BF16",
            other => panic!("{other:?} is no dtype of safetensors"),
        };
        self.tensors.push((name.to_owned(), dtype.to_owned(), shape.to_vec(), data));
        self
    }

    /// The header: an object of tensors.
    pub(crate) fn header(&self) -> Map<String, Value> {
        let mut header = Map::new();
        header.insert("__metadata__".into(), json!({"format": "pt"}));
        let mut from = 0;
        for (name, dtype, shape, data) in &self.tensors {
            let to = from + data.len();
            header.insert(name.clone(), json!({"dtype": dtype, "shape": shape, "data_offsets": [from, to]}));
            from = to;
        }
        header
    }

    /// The data section.
    pub(crate) fn data(&self) -> Vec<u8> {
        self.tensors.iter().flat_map(|t| t.3.iter().copied()).collect()
    }

    /// The file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        Self::file(&Value::Object(self.header()).to_string(), &self.data())
    }

    /// A file with that header, padded with spaces to 8 bytes as the format's own writer does.
    pub(crate) fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let mut header = header.as_bytes().to_vec();
        header.resize(header.len().next_multiple_of(8), b' ');
        [&(header.len() as u64).to_le_bytes()[..], &header, data].concat()
    }
}
