//! Safetensors: one file, or shards with an index.
//!
//! ```text
//! header length u64 | JSON {"name": {"dtype", "shape", "data_offsets": [from, to]}, "__metadata__": {..}} | data section
//! ```
//! The crate `safetensors` supplies the dtypes. The header is read by our own visitor, because the crate's keeps the last
//! of two equal keys, allocates shapes of any rank and does not say which tensors overlap. As in the crate, the tensors
//! cover the data section without holes.

mod header;

use std::collections::BTreeMap;
use std::path::Path;

use ::safetensors::Dtype;

use self::header::Entry;
use super::block::BlockFormat;
use super::source::{self, ByteSource};
use super::table::{self, Tensor, TensorTable};
use crate::error::{Error, Result};
use crate::limits::{HEADER_BYTES_MAX, SHARDS_MAX};

/// The index of a sharded model.
const INDEX: &str = "model.safetensors.index.json";
/// The file of a model in one piece.
const SINGLE: &str = "model.safetensors";

/// Reads the headers of a folder: `model.safetensors.index.json` decides when there is one, else `model.safetensors`.
///
/// # Errors
/// Anything that is not a whole, consistent set of files.
pub fn read_folder(folder: &Path) -> Result<TensorTable> {
    let index = folder.join(INDEX);
    if let Some(bytes) = source::read_small(&index, HEADER_BYTES_MAX)? {
        return read_shards(folder, &index.display().to_string(), &bytes);
    }
    let single = folder.join(SINGLE);
    match source::open(&single) {
        Ok(source) => read(source),
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            let want = format!("{SINGLE} or {INDEX}");
            Err(Error::format("model folder", want, "neither", folder.display()))
        }
        Err(e) => Err(e),
    }
}

/// Reads the header of one file that holds the whole model.
///
/// # Errors
/// Anything that is not a whole, consistent file of formats that we compute with.
pub fn read(source: Box<dyn ByteSource>) -> Result<TensorTable> {
    let entries = header::read(source.as_ref())?;
    let tensors = entries.into_iter().map(|entry| tensor(source.name(), 0, entry)).collect::<Result<_>>()?;
    TensorTable::new(vec![source], tensors)
}

/// The tensors that the index names, each from the shard that it names. What else a shard holds is not the model's.
fn read_shards(folder: &Path, index: &str, bytes: &[u8]) -> Result<TensorTable> {
    let wanted = header::parse_index(index, bytes)?;
    let mut shards: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, shard) in &wanted {
        shards.entry(shard).or_default().push(name);
    }
    if shards.len() > SHARDS_MAX {
        let got = format!("{} shards", shards.len());
        return Err(Error::format("safetensors index", format!("at most {SHARDS_MAX} shards"), got, index));
    }
    let mut sources = Vec::with_capacity(shards.len());
    let mut tensors = Vec::with_capacity(wanted.len());
    for (shard, names) in shards {
        let source = open_shard(folder, index, shard)?;
        let mut entries: BTreeMap<String, Entry> =
            header::read(source.as_ref())?.into_iter().map(|entry| (entry.name.clone(), entry)).collect();
        for name in names {
            let entry = entries.remove(name).ok_or_else(|| {
                let want = format!("the tensor that {index} promises");
                Error::format("safetensors shard", want, "none of that name", table::place(source.name(), name))
            })?;
            tensors.push(tensor(source.name(), sources.len(), entry)?);
        }
        sources.push(source);
    }
    TensorTable::new(sources, tensors)
}

fn open_shard(folder: &Path, index: &str, shard: &str) -> Result<Box<dyn ByteSource>> {
    let mut parts = Path::new(shard).components();
    let plain = matches!((parts.next(), parts.next()), (Some(std::path::Component::Normal(_)), None));
    if !plain || shard.contains(['/', '\\']) || shard.chars().any(char::is_control) {
        return Err(Error::format("safetensors index", "file names in the same folder", format!("{shard:?}"), index));
    }
    source::open(&folder.join(shard)).map_err(|error| match error {
        Error::Io { source, path, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Error::format("safetensors shard", format!("the file that {index} names"), "no such file", path.display())
        }
        other => other,
    })
}

/// The tensor of an entry that the header's checks have passed.
fn tensor(file: &str, source: usize, entry: Entry) -> Result<Tensor> {
    let format = match entry.dtype {
        Dtype::F32 => BlockFormat::F32,
        Dtype::F16 => BlockFormat::F16,
        Dtype::BF16 => BlockFormat::Bf16,
        other => {
            let what = format!("dtype {other} ({})", table::place(file, &entry.name));
            return Err(Error::unsupported(what, "F32, F16 and BF16 work in safetensors"));
        }
    };
    Ok(Tensor {
        name: entry.name,
        shape: entry.shape,
        format,
        source,
        offset: entry.start,
        bytes: entry.end - entry.start,
    })
}
