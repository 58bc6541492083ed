//! A GGUF field by field, right or wrong as the test wants it.

use twostroke::format::block::BlockFormat;

/// A metadata value as it is written.
#[derive(Clone, Debug)]
pub(crate) enum Meta {
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Str(String),
    U64(u64),
    Strs(Vec<String>),
    I32s(Vec<i32>),
    F32s(Vec<f32>),
    /// A type number and the bytes of the value.
    Raw(u32, Vec<u8>),
}

impl Meta {
    pub(crate) fn str(text: &str) -> Self {
        Self::Str(text.to_owned())
    }

    /// Type number, and the value's bytes.
    fn parts(&self) -> (u32, Vec<u8>) {
        let array = |kind: u32, len: usize, items: Vec<u8>| {
            (9, [&kind.to_le_bytes()[..], &(len as u64).to_le_bytes(), &items].concat())
        };
        match self {
            Self::U32(n) => (4, n.to_le_bytes().to_vec()),
            Self::I32(n) => (5, n.to_le_bytes().to_vec()),
            Self::F32(x) => (6, x.to_le_bytes().to_vec()),
            Self::Bool(b) => (7, vec![u8::from(*b)]),
            Self::Str(text) => (8, string(text.as_bytes())),
            Self::U64(n) => (10, n.to_le_bytes().to_vec()),
            Self::Strs(all) => array(8, all.len(), all.iter().flat_map(|s| string(s.as_bytes())).collect()),
            Self::I32s(all) => array(5, all.len(), all.iter().flat_map(|n| n.to_le_bytes()).collect()),
            Self::F32s(all) => array(6, all.len(), all.iter().flat_map(|x| x.to_le_bytes()).collect()),
            Self::Raw(kind, bytes) => (*kind, bytes.clone()),
        }
    }
}

/// A length and the bytes.
fn string(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_le_bytes()[..], bytes].concat()
}

/// ggml's number of a format.
pub(crate) fn tensor_type(format: BlockFormat) -> u32 {
    match format {
        BlockFormat::F32 => 0,
        BlockFormat::F16 => 1,
        BlockFormat::Q4_0 => 2,
        BlockFormat::Q4_1 => 3,
        BlockFormat::Q5_0 => 6,
        BlockFormat::Q5_1 => 7,
        BlockFormat::Q8_0 => 8,
        BlockFormat::Q2K => 10,
        BlockFormat::Q3K => 11,
        BlockFormat::Q4K => 12,
        BlockFormat::Q5K => 13,
        BlockFormat::Q6K => 14,
        BlockFormat::Iq4Nl => 20,
        BlockFormat::Bf16 => 30,
    }
}

/// A tensor as it is written.
#[derive(Clone, Debug)]
pub(crate) struct GgufTensor {
    /// Its name, UTF-8 or not.
    pub(crate) name: Vec<u8>,
    /// Slowest axis first.
    pub(crate) shape: Vec<u64>,
    /// ggml's number of the type.
    pub(crate) kind: u32,
    /// Content, padded to the alignment behind it.
    pub(crate) data: Vec<u8>,
    /// Offset to claim instead of where the data lie.
    pub(crate) offset: Option<u64>,
}

/// Writes a GGUF.
#[derive(Clone, Debug)]
pub(crate) struct GgufWriter {
    pub(crate) version: u32,
    /// Alignment of the data; written as `general.alignment` only by a pair of that name.
    pub(crate) alignment: usize,
    pub(crate) pairs: Vec<(String, Meta)>,
    pub(crate) tensors: Vec<GgufTensor>,
}

/// Bytes of a file, and where each field begins.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) bytes: Vec<u8>,
    /// `magic`, `version`, `tensor count`, `pair count`, `K key`, `K type`, `K value`, `T name`, `T axes`, `T axis 0`..
    /// (fastest first), `T type`, `T offset`, `padding`, `T data`, in the order of the file; K and T are names.
    pub(crate) marks: Vec<(String, usize)>,
}

impl Written {
    /// Where a field begins.
    pub(crate) fn at(&self, mark: &str) -> usize {
        let found = self.marks.iter().find(|(name, _)| name == mark);
        found.unwrap_or_else(|| panic!("no field {mark:?} in {:?}", self.marks)).1
    }

    /// The file with other bytes from a field's begin on.
    pub(crate) fn with(&self, mark: &str, bytes: &[u8]) -> Vec<u8> {
        let at = self.at(mark);
        let mut out = self.bytes.clone();
        out[at..at + bytes.len()].copy_from_slice(bytes);
        out
    }

    fn mark(&mut self, name: impl Into<String>, bytes: &[u8]) {
        self.marks.push((name.into(), self.bytes.len()));
        self.bytes.extend_from_slice(bytes);
    }
}

impl GgufWriter {
    /// An empty v3 file.
    pub(crate) fn new() -> Self {
        Self { version: 3, alignment: 32, pairs: Vec::new(), tensors: Vec::new() }
    }

    /// Sets a pair, in place where there is one of that key.
    pub(crate) fn set(&mut self, key: &str, value: Meta) -> &mut Self {
        match self.pairs.iter_mut().find(|(k, _)| k == key) {
            Some(pair) => pair.1 = value,
            None => self.pairs.push((key.to_owned(), value)),
        }
        self
    }

    /// Removes a pair that is there.
    pub(crate) fn remove(&mut self, key: &str) -> &mut Self {
        let before = self.pairs.len();
        self.pairs.retain(|(k, _)| k != key);
        assert!(self.pairs.len() < before, "no pair {key}");
        self
    }

    /// Adds a tensor of a format; the shape is slowest axis first.
    pub(crate) fn tensor(&mut self, name: &str, shape: &[u64], format: BlockFormat, data: Vec<u8>) -> &mut Self {
        let name = name.as_bytes().to_vec();
        self.tensors.push(GgufTensor { name, shape: shape.to_vec(), kind: tensor_type(format), data, offset: None });
        self
    }

    /// The tensor of that name.
    pub(crate) fn tensor_mut(&mut self, name: &str) -> &mut GgufTensor {
        let found = self.tensors.iter_mut().find(|t| t.name == name.as_bytes());
        found.unwrap_or_else(|| panic!("no tensor {name}"))
    }

    /// Removes a tensor that is there.
    pub(crate) fn remove_tensor(&mut self, name: &str) -> &mut Self {
        let before = self.tensors.len();
        self.tensors.retain(|t| t.name != name.as_bytes());
        assert!(self.tensors.len() < before, "no tensor {name}");
        self
    }

    /// The file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.write().bytes
    }

    /// The file and its fields.
    pub(crate) fn write(&self) -> Written {
        let mut out = Written { bytes: Vec::new(), marks: Vec::new() };
        out.mark("magic", b"GGUF");
        out.mark("version", &self.version.to_le_bytes());
        out.mark("tensor count", &(self.tensors.len() as u64).to_le_bytes());
        out.mark("pair count", &(self.pairs.len() as u64).to_le_bytes());
        for (key, value) in &self.pairs {
            let (kind, bytes) = value.parts();
            out.mark(format!("{key} key"), &string(key.as_bytes()));
            out.mark(format!("{key} type"), &kind.to_le_bytes());
            out.mark(format!("{key} value"), &bytes);
        }
        let mut offset = 0u64;
        for tensor in &self.tensors {
            let name = String::from_utf8_lossy(&tensor.name).into_owned();
            out.mark(format!("{name} name"), &string(&tensor.name));
            out.mark(format!("{name} axes"), &u32::try_from(tensor.shape.len()).expect("few axes").to_le_bytes());
            for (i, axis) in tensor.shape.iter().rev().enumerate() {
                out.mark(format!("{name} axis {i}"), &axis.to_le_bytes());
            }
            out.mark(format!("{name} type"), &tensor.kind.to_le_bytes());
            out.mark(format!("{name} offset"), &tensor.offset.unwrap_or(offset).to_le_bytes());
            offset += tensor.data.len().next_multiple_of(self.alignment) as u64;
        }
        self.write_data(&mut out);
        out
    }

    fn write_data(&self, out: &mut Written) {
        let pad = |out: &Written| vec![0; out.bytes.len().next_multiple_of(self.alignment) - out.bytes.len()];
        let padding = pad(out);
        out.mark("padding", &padding);
        for tensor in &self.tensors {
            out.mark(format!("{} data", String::from_utf8_lossy(&tensor.name)), &tensor.data);
            let padding = pad(out);
            out.bytes.extend(padding);
        }
    }
}
