//! A model of random weights, made up while it is read: for speed alone, at sizes that nobody wants to download.

use std::path::PathBuf;

use super::block::BlockFormat;
use super::model_files::{Description, Folder, ModelFiles};
use super::source::ByteSource;
use super::table::{self, Tensor, TensorTable};
use crate::error::Result;

/// A matrix `[rows, k]`, or a vector as `[k]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// As in a Hugging Face folder.
    pub name: String,
    /// Slowest axis first.
    pub axes: Vec<u64>,
}

/// A model of these tensors: matrices in Q4_0 with codes of no meaning, vectors of ones. `config` is its `config.json`.
///
/// # Errors
/// Rows that are no whole blocks.
pub fn files(name: &str, config: serde_json::Value, shapes: Vec<Shape>) -> Result<ModelFiles> {
    let mut ends = [0_u64; 2];
    let mut tensors = Vec::with_capacity(shapes.len());
    for Shape { name: tensor, axes } in shapes {
        let (source, format) = if axes.len() == 1 { (1, BlockFormat::F32) } else { (0, BlockFormat::Q4_0) };
        let bytes = table::bytes_from_shape(|| table::place(name, &tensor), &axes, format)?;
        tensors.push(Tensor { name: tensor, shape: axes, format, source, offset: ends[source], bytes });
        ends[source] += bytes;
    }
    let source = |len, period| -> Box<dyn ByteSource> { Box::new(Random { name: name.to_owned(), len, period }) };
    let folder = Folder {
        path: PathBuf::from(name),
        config,
        generation_config: serde_json::Value::Null,
        tokenizer_config: serde_json::Value::Null,
        tokenizer_json: None,
        chat_template: None,
    };
    let sources = vec![source(ends[0], Period::Blocks), source(ends[1], Period::Ones)];
    let table = TensorTable::new(sources, tensors)?;
    Ok(ModelFiles { name: name.to_owned(), description: Description::Folder(folder), table })
}

/// What comes again and again.
#[derive(Clone, Copy)]
enum Period {
    /// Q4_0: a scale of 1/64, 16 bytes of codes.
    Blocks,
    /// The float 1.
    Ones,
}

const BLOCK_BYTES: usize = 18;
/// 1/64 as a half.
const SCALE: [u8; 2] = [0x00, 0x24];

struct Random {
    name: String,
    len: u64,
    period: Period,
}

impl ByteSource for Random {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(out.len() as u64);
        assert!(end.is_some_and(|end| end <= self.len), "{} bytes at {offset} of {}", out.len(), self.len);
        match self.period {
            Period::Ones => {
                let one = 1.0_f32.to_le_bytes();
                (offset..).zip(out).for_each(|(at, byte)| *byte = one[(at % 4) as usize]);
            }
            Period::Blocks => {
                let each = BLOCK_BYTES as u64;
                let (mut index, mut skipped) = (offset / each, usize::try_from(offset % each).expect("below 18"));
                let mut out = out;
                while !out.is_empty() {
                    let block = block(index);
                    let from = &block[skipped..];
                    let (now, later) = out.split_at_mut(from.len().min(out.len()));
                    now.copy_from_slice(&from[..now.len()]);
                    (index, skipped, out) = (index + 1, 0, later);
                }
            }
        }
        Ok(())
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// Block `index` of the file.
fn block(index: u64) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    block[..2].copy_from_slice(&SCALE);
    for (half, bytes) in block[2..].chunks_exact_mut(8).enumerate() {
        // SplitMix64.
        let mut z = (2 * index + half as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes());
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_do_not_depend_on_how_they_are_read() {
        let shape = |name: &str, axes: &[u64]| Shape { name: name.into(), axes: axes.to_vec() };
        let shapes = vec![shape("a", &[3, 64]), shape("n", &[64]), shape("b", &[5, 32])];
        let files = files("random", serde_json::Value::Null, shapes).unwrap();
        let (a, b) = (files.table.get("a").unwrap(), files.table.get("b").unwrap());
        let (mut whole, mut row) = (Vec::new(), Vec::new());
        files.table.read_rows(a, 0, 3, &mut whole).unwrap();
        for i in 0..3 {
            files.table.read_rows(a, i, 1, &mut row).unwrap();
            assert_eq!(row, whole[36 * i as usize..][..36]);
        }
        let floats = files.table.read_floats(b).unwrap();
        assert!(floats.iter().all(|w| w.abs() <= 0.125) && floats.iter().any(|w| *w != floats[0]));
        assert!(files.table.read_floats(files.table.get("n").unwrap()).unwrap().iter().all(|w| *w == 1.0));
    }
}
