//! GGUF v2 and v3: metadata and tensor list.
//!
//! ```text
//! magic u32 | version u32 | tensors u64 | pairs u64
//! pair   = key string | type u32 | value
//! tensor = name string | axes u32 | axis u64 .., fastest first | type u32 | offset u64 into the data section
//! padding to general.alignment | data section
//! ```
//! All numbers are little-endian; a string is its length in bytes (u64) and UTF-8. Every count is held against the bytes
//! that are left before anything is allocated for it. What the keys mean is the layers' above.

mod cursor;
mod metadata;
mod types;

use std::collections::BTreeMap;

pub use metadata::{Metadata, Value};

use self::cursor::Cursor;
use super::source::ByteSource;
use super::table::{self, Tensor, TensorTable};
use crate::error::{Error, Result};
use crate::limits::{ALIGNMENT_MAX, METADATA_MAX, NAME_BYTES_MAX, TENSOR_DIMS_MAX, TENSORS_MAX};

/// Data alignment of a file without `general.alignment`.
const ALIGNMENT_DEFAULT: u64 = 32;
/// Key, type and the shortest value of a pair.
const PAIR_BYTES_MIN: u64 = 8 + 4 + 1;
/// Name, axes count, one axis, type and offset of a tensor.
const TENSOR_BYTES_MIN: u64 = 8 + 1 + 4 + 8 + 4 + 8;

/// Reads header, metadata and tensor list, and checks all of it against the length of the source.
///
/// # Errors
/// Anything that is not a whole, consistent GGUF; [`Error::Unsupported`] for formats that no kernel computes with.
pub fn read(source: Box<dyn ByteSource>) -> Result<(Metadata, TensorTable)> {
    let mut cursor = Cursor::new(source.as_ref());
    let counts = read_header(&mut cursor)?;
    let (metadata, alignment) = read_pairs(&mut cursor, counts.pairs)?;
    refuse_split(&metadata)?;
    let mut tensors = Vec::with_capacity(usize::try_from(counts.tensors).unwrap_or(0));
    for index in 0..counts.tensors {
        cursor.section(format_args!("tensor {index} of {}", counts.tensors));
        tensors.push(read_tensor(&mut cursor, alignment)?);
    }
    // Cannot overflow: the position is at most HEADER_BYTES_MAX and the alignment at most ALIGNMENT_MAX.
    let data = cursor.position().next_multiple_of(alignment);
    for tensor in &mut tensors {
        tensor.offset = tensor.offset.checked_add(data).ok_or_else(|| {
            let place = table::place(source.name(), &tensor.name);
            Error::format("tensor offset", "an offset inside the file", tensor.offset, place)
        })?;
    }
    Ok((metadata, TensorTable::new(vec![source], tensors)?))
}

/// Reads the metadata only: of files whose tensors we cannot compute with, or need not.
///
/// # Errors
/// When header or metadata are not those of a GGUF.
pub fn read_metadata(source: &dyn ByteSource) -> Result<Metadata> {
    let mut cursor = Cursor::new(source);
    let counts = read_header(&mut cursor)?;
    Ok(read_pairs(&mut cursor, counts.pairs)?.0)
}

struct Counts {
    tensors: u64,
    pairs: u64,
}

fn read_header(cursor: &mut Cursor<'_>) -> Result<Counts> {
    cursor.section(format_args!("header"));
    let magic = cursor.array::<4>("the magic")?;
    if &magic != b"GGUF" {
        return Err(cursor.error("file magic", "GGUF", magic.escape_ascii()));
    }
    match cursor.u32("the version")? {
        2 | 3 => {}
        1 => return Err(Error::unsupported(format!("GGUF version 1 ({})", cursor.file()), "convert it to version 3")),
        version if matches!(version.swap_bytes(), 1..=3) => {
            let what = format!("a big-endian GGUF ({})", cursor.file());
            return Err(Error::unsupported(what, "convert it to little-endian"));
        }
        version => return Err(cursor.error("GGUF version", "2 or 3", version)),
    }
    let tensors = cursor.u64("the tensor count")?;
    cursor.check_count("tensor count", tensors, TENSORS_MAX, TENSOR_BYTES_MIN)?;
    let pairs = cursor.u64("the metadata count")?;
    cursor.check_count("metadata count", pairs, METADATA_MAX, PAIR_BYTES_MIN)?;
    Ok(Counts { tensors, pairs })
}

/// The pairs, and the alignment of the data section.
fn read_pairs(cursor: &mut Cursor<'_>, count: u64) -> Result<(Metadata, u64)> {
    let mut pairs = BTreeMap::new();
    let mut alignment = ALIGNMENT_DEFAULT;
    for index in 0..count {
        cursor.section(format_args!("metadata pair {index} of {count}"));
        let key = cursor.string("a key", NAME_BYTES_MAX)?;
        cursor.section(format_args!("key {}", key.escape_debug()));
        let kind = cursor.u32("the value's type")?;
        if key == "general.alignment" && kind != types::U32 {
            let got = types::value_name(kind).map_or_else(|| format!("type {kind}"), str::to_owned);
            return Err(cursor.error("metadata value", "u32", got));
        }
        let value = metadata::read_value(cursor, kind)?;
        if key == "general.alignment" {
            alignment = match value {
                Value::Int(n) => u64::try_from(n).unwrap_or(0),
                _ => 0,
            };
            if !alignment.is_power_of_two() || alignment > ALIGNMENT_MAX {
                let want = format!("a power of two up to {ALIGNMENT_MAX}");
                return Err(cursor.error("alignment", want, alignment));
            }
        }
        match pairs.entry(key) {
            std::collections::btree_map::Entry::Vacant(slot) => drop(slot.insert(value)),
            std::collections::btree_map::Entry::Occupied(_) => {
                return Err(cursor.error("metadata keys", "each key once", "it twice"));
            }
        }
    }
    Ok((Metadata { file: cursor.file().to_owned(), pairs }, alignment))
}

/// A tensor whose offset still counts from the data section.
fn read_tensor(cursor: &mut Cursor<'_>, alignment: u64) -> Result<Tensor> {
    let name = cursor.string("a tensor's name", NAME_BYTES_MAX)?;
    table::check_name(cursor.file(), &name)?;
    cursor.section(format_args!("tensor {name}"));
    let axes = cursor.u32("the number of axes")? as usize;
    if !(1..=TENSOR_DIMS_MAX).contains(&axes) {
        return Err(cursor.error("tensor shape", format!("1 to {TENSOR_DIMS_MAX} axes"), format!("{axes} axes")));
    }
    let mut shape = Vec::with_capacity(axes);
    for _ in 0..axes {
        shape.push(cursor.u64("an axis")?);
    }
    shape.reverse();
    let kind = cursor.u32("the tensor's type")?;
    let offset = cursor.u64("the tensor's offset")?;
    let place = || table::place(cursor.file(), &name);
    let format = types::block_format(kind, &place)?;
    let bytes = table::bytes_from_shape(place, &shape, format)?;
    if !offset.is_multiple_of(alignment) {
        return Err(cursor.error("tensor offset", format!("a multiple of {alignment}"), offset));
    }
    Ok(Tensor { name, shape, format, source: 0, offset, bytes })
}

/// One file of several: the tensors of the others would be missing.
fn refuse_split(metadata: &Metadata) -> Result<()> {
    match metadata.u64("split.count")? {
        Some(count) if count > 1 => Err(Error::unsupported(
            format!("a GGUF split into {count} files ({})", metadata.place("split.count")),
            "join them with llama-gguf-split --merge",
        )),
        _ => Ok(()),
    }
}
