//! The JSON of safetensors: a file's header and the index of shards, duplicates refused.

use std::fmt;

use safetensors::Dtype;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::error::{Error, Result};
use crate::format::source::{ByteSource, usize_len};
use crate::format::table::{self, Span};
use crate::limits::{HEADER_BYTES_MAX, TENSOR_DIMS_MAX, TENSORS_MAX};

/// Bytes of the header's length.
const LENGTH_BYTES: u64 = 8;

/// A tensor as a header lists it, with its range in the file.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    /// Slowest axis first, as the file has it.
    pub(super) shape: Vec<u64>,
    /// Absolute.
    pub(super) start: u64,
    /// Absolute.
    pub(super) end: u64,
}

/// Reads and checks the header of one file: names, sizes, and that the tensors cover the data section. In its order.
pub(super) fn read(source: &dyn ByteSource) -> Result<Vec<Entry>> {
    let file = source.name();
    let bytes = read_json(source)?;
    let data = LENGTH_BYTES + bytes.len() as u64;
    let mut listed =
        parse(&bytes).map_err(|e| Error::format("safetensors header", "a JSON list of tensors", e, file))?;
    // In the order of the file: of one that was cut, the message names the first tensor that is not whole.
    listed.sort_by_key(|(_, info)| info.data_offsets);
    let mut entries = Vec::with_capacity(listed.len());
    for (name, info) in listed {
        entries.push(check_entry(source, data, name, info)?);
    }
    check_cover(source, data, &entries)?;
    Ok(entries)
}

fn read_json(source: &dyn ByteSource) -> Result<Vec<u8>> {
    let (file, len) = (source.name(), source.len());
    if len < LENGTH_BYTES {
        return Err(Error::format("safetensors header", "8 bytes of length", format!("a file of {len} bytes"), file));
    }
    let mut length = [0; 8];
    source.read_at(0, &mut length)?;
    let length = u64::from_le_bytes(length);
    if length > HEADER_BYTES_MAX {
        let want = format!("at most {HEADER_BYTES_MAX} bytes");
        return Err(Error::format("safetensors header length", want, length, file));
    }
    if length > len - LENGTH_BYTES {
        let got = format!("{} bytes to the end of the file", len - LENGTH_BYTES);
        return Err(Error::format("safetensors header length", format!("{length} bytes of header"), got, file));
    }
    let mut bytes = vec![0; usize_len(length, file)?];
    source.read_at(LENGTH_BYTES, &mut bytes)?;
    Ok(bytes)
}

/// Ranges of an entry, made absolute.
fn check_entry(source: &dyn ByteSource, data: u64, name: String, info: Info) -> Result<Entry> {
    let file = source.name();
    table::check_name(file, &name)?;
    let place = || table::place(file, &name);
    let [from, to] = info.data_offsets;
    table::check_shape(&place, &info.shape.0)?;
    let weights: u64 = info.shape.0.iter().product();
    let bits = weights.checked_mul(info.dtype.bitsize() as u64).filter(|bits| bits.is_multiple_of(8));
    let Some(want) = bits.map(|bits| bits / 8) else {
        let got = format!("{:?} of {}", info.shape.0, info.dtype);
        return Err(Error::format("tensor shape", "whole bytes, below 2^61", got, place()));
    };
    if from.checked_add(want) != Some(to) {
        let want = format!("{want} bytes for {:?} of {}", info.shape.0, info.dtype);
        let got = format!("data_offsets {:?}", info.data_offsets);
        return Err(Error::format("tensor size", want, got, place()));
    }
    let Some(start) = data.checked_add(from) else {
        return Err(Error::format("data_offsets", "an offset inside the file", from, place()));
    };
    table::check_inside(file, source.len(), &name, start, want)?;
    Ok(Entry { start, end: start + want, dtype: info.dtype, shape: info.shape.0, name })
}

/// The tensors lie side by side from the first byte of the data section to the last.
fn check_cover(source: &dyn ByteSource, data: u64, entries: &[Entry]) -> Result<()> {
    let file = source.name();
    let spans: Vec<Span<'_>> = entries.iter().map(|e| Span { start: e.start, end: e.end, name: &e.name }).collect();
    table::check_apart(file, &spans)?;
    let mut end = data;
    for span in &spans {
        if span.start != end {
            let want = format!("a tensor at byte {end}");
            let got = format!("the next one at {}", span.start);
            return Err(Error::format("safetensors data section", want, got, table::place(file, span.name)));
        }
        end = span.end;
    }
    if end != source.len() {
        let got = format!("a file of {} bytes", source.len());
        return Err(Error::format("safetensors data section", format!("its end at byte {end}"), got, file));
    }
    Ok(())
}

/// Which shard holds which tensor, sorted by tensor.
pub(super) fn parse_index(file: &str, bytes: &[u8]) -> Result<Vec<(String, String)>> {
    let bad = |got: String| Error::format("safetensors index", "JSON with a weight_map of tensors to files", got, file);
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let mut pairs = json.deserialize_map(IndexVisitor).map_err(|e| bad(e.to_string()))?;
    json.end().map_err(|e| bad(e.to_string()))?;
    pairs.sort();
    if let Some(pair) = pairs.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(bad(format!("tensor {} twice", pair[0].0)));
    }
    if pairs.is_empty() {
        return Err(bad("no tensors".into()));
    }
    for (name, _) in &pairs {
        table::check_name(file, name)?;
    }
    Ok(pairs)
}

fn parse(bytes: &[u8]) -> serde_json::Result<Vec<(String, Info)>> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let mut entries = json.deserialize_map(HeaderVisitor)?;
    json.end()?;
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    match entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(serde_json::Error::custom(format!("tensor {} twice", pair[0].0))),
        None => Ok(entries),
    }
}

#[derive(Deserialize)]
struct Info {
    dtype: Dtype,
    shape: Shape,
    data_offsets: [u64; 2],
}

/// At most [`TENSOR_DIMS_MAX`] axes, so that a long list is refused before it is held.
struct Shape(Vec<u64>);

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct Axes;
        impl<'de> Visitor<'de> for Axes {
            type Value = Shape;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of up to {TENSOR_DIMS_MAX} axes")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Shape, A::Error> {
                let mut shape = Vec::with_capacity(TENSOR_DIMS_MAX);
                while let Some(axis) = seq.next_element()? {
                    if shape.len() == TENSOR_DIMS_MAX {
                        return Err(A::Error::custom(format!("expected at most {TENSOR_DIMS_MAX} axes, got more")));
                    }
                    shape.push(axis);
                }
                Ok(Shape(shape))
            }
        }
        json.deserialize_seq(Axes)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Vec<(String, Info)>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        let mut has_metadata = false;
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                if has_metadata {
                    return Err(A::Error::custom("__metadata__ twice"));
                }
                has_metadata = true;
                map.next_value_seed(Texts).map_err(|e| in_entry(&name, e))?;
                continue;
            }
            if entries.len() as u64 == TENSORS_MAX {
                return Err(A::Error::custom(format!("expected at most {TENSORS_MAX} tensors, got more")));
            }
            let info = map.next_value::<Info>().map_err(|e| in_entry(&name, e))?;
            entries.push((name, info));
        }
        Ok(entries)
    }
}

/// The error of a value with the name of its tensor before it.
fn in_entry<E: serde::de::Error>(name: &str, error: E) -> E {
    let shown: String = name.chars().take(80).flat_map(char::escape_debug).collect();
    E::custom(format!("tensor {shown}: {error}"))
}

/// An object whose values are texts, read and dropped.
struct Texts;

impl<'de> DeserializeSeed<'de> for Texts {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Texts {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of texts")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_entry::<String, String>()?.is_some() {}
        Ok(())
    }
}

struct IndexVisitor;

impl<'de> Visitor<'de> for IndexVisitor {
    type Value = Vec<(String, String)>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a weight_map")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs = None;
        while let Some(key) = map.next_key::<String>()? {
            if key != "weight_map" {
                map.next_value::<IgnoredAny>()?;
            } else if pairs.is_some() {
                return Err(A::Error::custom("weight_map twice"));
            } else {
                pairs = Some(map.next_value_seed(WeightMap)?);
            }
        }
        pairs.ok_or_else(|| A::Error::custom("no weight_map"))
    }
}

struct WeightMap;

impl<'de> DeserializeSeed<'de> for WeightMap {
    type Value = Vec<(String, String)>;
    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for WeightMap {
    type Value = Vec<(String, String)>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a weight_map of tensors to files")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if pairs.len() as u64 == TENSORS_MAX {
                return Err(A::Error::custom(format!("expected at most {TENSORS_MAX} tensors, got more")));
            }
            let file = map.next_value::<String>().map_err(|e| in_entry(&name, e))?;
            pairs.push((name, file));
        }
        Ok(pairs)
    }
}
