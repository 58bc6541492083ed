//! Metadata of a GGUF: values, typed look-ups, and how they are read.

use std::collections::BTreeMap;

use super::cursor::Cursor;
use super::types;
use crate::error::{Error, Result};
use crate::limits::{HEADER_BYTES_MAX, METADATA_ITEMS_MAX};

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

impl Value {
    fn kind_name(&self) -> &'static str {
        match self {
            Self::Int(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Bool(_) => "a bool",
            Self::Str(_) => "a string",
            Self::Ints(_) => "an array of integers",
            Self::Floats(_) => "an array of floats",
            Self::Bools(_) => "an array of bools",
            Self::Strs(_) => "an array of strings",
        }
    }
}

/// Metadata of a GGUF, with typed look-ups whose errors name file and key.
#[derive(Debug, Clone, Default)]
pub struct Metadata {
    /// The file, for messages.
    pub file: String,
    /// Sorted by key.
    pub pairs: BTreeMap<String, Value>,
}

impl Metadata {
    fn look_up<'a, T>(&'a self, key: &str, want: &str, cast: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.pairs.get(key) else { return Ok(None) };
        cast(value).map(Some).ok_or_else(|| {
            let got = match value {
                Value::Int(n) => n.to_string(),
                other => other.kind_name().to_owned(),
            };
            Error::format("metadata value", want, got, self.place(key))
        })
    }

    /// File and key: for messages.
    #[must_use]
    pub fn place(&self, key: &str) -> String {
        format!("{}, key {key}", self.file)
    }

    /// An unsigned integer; `Ok(None)` when absent, an error when of another type or negative.
    ///
    /// # Errors
    /// See above.
    pub fn u64(&self, key: &str) -> Result<Option<u64>> {
        self.look_up(key, "an unsigned integer", |value| match value {
            Value::Int(n) => u64::try_from(*n).ok(),
            _ => None,
        })
    }

    /// A float (an integer will do).
    ///
    /// # Errors
    /// As [`Metadata::u64`].
    pub fn f64(&self, key: &str) -> Result<Option<f64>> {
        self.look_up(key, "a number", |value| match value {
            Value::Float(x) => Some(*x),
            // Rounds above 2^53; no such number is meant exactly where a float is wanted.
            Value::Int(n) => Some(*n as f64),
            _ => None,
        })
    }

    /// A truth value.
    ///
    /// # Errors
    /// As [`Metadata::u64`].
    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.look_up(key, "a bool", |value| match value {
            Value::Bool(b) => Some(*b),
            _ => None,
        })
    }

    /// Text.
    ///
    /// # Errors
    /// As [`Metadata::u64`].
    pub fn str(&self, key: &str) -> Result<Option<&str>> {
        self.look_up(key, "a string", |value| match value {
            Value::Str(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// Texts.
    ///
    /// # Errors
    /// As [`Metadata::u64`].
    pub fn strs(&self, key: &str) -> Result<Option<&[String]>> {
        self.look_up(key, "an array of strings", |value| match value {
            Value::Strs(texts) => Some(texts.as_slice()),
            _ => None,
        })
    }

    /// Integers.
    ///
    /// # Errors
    /// As [`Metadata::u64`].
    pub fn ints(&self, key: &str) -> Result<Option<&[i64]>> {
        self.look_up(key, "an array of integers", |value| match value {
            Value::Ints(numbers) => Some(numbers.as_slice()),
            _ => None,
        })
    }

    /// Floats.
    ///
    /// # Errors
    /// As [`Metadata::u64`].
    pub fn floats(&self, key: &str) -> Result<Option<&[f32]>> {
        self.look_up(key, "an array of floats", |value| match value {
            Value::Floats(numbers) => Some(numbers.as_slice()),
            _ => None,
        })
    }

    /// Truth values.
    ///
    /// # Errors
    /// As [`Metadata::u64`].
    pub fn bools(&self, key: &str) -> Result<Option<&[bool]>> {
        self.look_up(key, "an array of bools", |value| match value {
            Value::Bools(bools) => Some(bools.as_slice()),
            _ => None,
        })
    }
}

/// Reads a value of a type number.
pub(super) fn read_value(cursor: &mut Cursor<'_>, kind: u32) -> Result<Value> {
    Ok(match types::value_name(kind) {
        Some("u8") => Value::Int(cursor.array::<1>("a u8")?[0].into()),
        Some("i8") => Value::Int(i8::from_le_bytes(cursor.array("an i8")?).into()),
        Some("u16") => Value::Int(u16::from_le_bytes(cursor.array("a u16")?).into()),
        Some("i16") => Value::Int(i16::from_le_bytes(cursor.array("an i16")?).into()),
        Some("u32") => Value::Int(cursor.u32("a u32")?.into()),
        Some("i32") => Value::Int(i32::from_le_bytes(cursor.array("an i32")?).into()),
        Some("u64") => Value::Int(cursor.u64("a u64")?.into()),
        Some("i64") => Value::Int(i64::from_le_bytes(cursor.array("an i64")?).into()),
        Some("f32") => Value::Float(f32::from_le_bytes(cursor.array("an f32")?).into()),
        Some("f64") => Value::Float(f64::from_le_bytes(cursor.array("an f64")?)),
        Some("bool") => {
            let [byte] = cursor.array("a bool")?;
            Value::Bool(bool_from_byte(byte).ok_or_else(|| cursor.error("bool", "0 or 1", byte))?)
        }
        Some("string") => Value::Str(cursor.string("a string", HEADER_BYTES_MAX)?),
        Some("array") => read_array(cursor)?,
        _ => return Err(cursor.error("metadata type", "0 to 12", kind)),
    })
}

fn bool_from_byte(byte: u8) -> Option<bool> {
    match byte {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn read_array(cursor: &mut Cursor<'_>) -> Result<Value> {
    let kind = cursor.u32("the array's type")?;
    let count = cursor.u64("the array's length")?;
    Ok(match types::value_name(kind) {
        Some("u8") => Value::Ints(read_items(cursor, count, |[b]: [u8; 1]| Some(i64::from(b)))?),
        Some("i8") => Value::Ints(read_items(cursor, count, |b| Some(i8::from_le_bytes(b).into()))?),
        Some("u16") => Value::Ints(read_items(cursor, count, |b| Some(u16::from_le_bytes(b).into()))?),
        Some("i16") => Value::Ints(read_items(cursor, count, |b| Some(i16::from_le_bytes(b).into()))?),
        Some("u32") => Value::Ints(read_items(cursor, count, |b| Some(u32::from_le_bytes(b).into()))?),
        Some("i32") => Value::Ints(read_items(cursor, count, |b| Some(i32::from_le_bytes(b).into()))?),
        Some("u64") => Value::Ints(read_items(cursor, count, |b| i64::try_from(u64::from_le_bytes(b)).ok())?),
        Some("i64") => Value::Ints(read_items(cursor, count, |b| Some(i64::from_le_bytes(b)))?),
        Some("f32") => Value::Floats(read_items(cursor, count, |b| Some(f32::from_le_bytes(b)))?),
        // No key is known whose floats need more than f32.
        #[allow(clippy::cast_possible_truncation)]
        Some("f64") => Value::Floats(read_items(cursor, count, |b| Some(f64::from_le_bytes(b) as f32))?),
        Some("bool") => Value::Bools(read_items(cursor, count, |[b]: [u8; 1]| bool_from_byte(b))?),
        Some("string") => Value::Strs(read_strings(cursor, count)?),
        Some("array") => return Err(cursor.error("metadata array", "an array of plain values", "an array of arrays")),
        _ => return Err(cursor.error("metadata array type", "0 to 12", kind)),
    })
}

/// `count` items of `N` bytes; an item that `item` refuses is out of its type's range.
fn read_items<T, const N: usize>(
    cursor: &mut Cursor<'_>,
    count: u64,
    item: impl Fn([u8; N]) -> Option<T>,
) -> Result<Vec<T>> {
    /// Items taken from the window at a time.
    const ITEMS: u64 = 4096;
    cursor.check_count("array length", count, METADATA_ITEMS_MAX, N as u64)?;
    let mut out = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
    while (out.len() as u64) < count {
        let items = ITEMS.min(count - out.len() as u64);
        let mut bad = None;
        for bytes in cursor.take(items * N as u64, "an array")?.chunks_exact(N) {
            let mut array = [0; N];
            array.copy_from_slice(bytes);
            match item(array) {
                Some(value) => out.push(value),
                None => {
                    bad = Some((out.len(), array));
                    break;
                }
            }
        }
        if let Some((index, bytes)) = bad {
            let got = format!("bytes {bytes:?} at item {index}");
            let want = if N == 1 { "bools of 0 or 1" } else { "integers below 2^63" };
            return Err(cursor.error("array item", want, got));
        }
    }
    Ok(out)
}

fn read_strings(cursor: &mut Cursor<'_>, count: u64) -> Result<Vec<String>> {
    cursor.check_count("array length", count, METADATA_ITEMS_MAX, 8)?;
    let mut out = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
    for _ in 0..count {
        out.push(cursor.string("an array's string", HEADER_BYTES_MAX)?);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_ups_tell_absent_from_wrong() {
        let pairs = [
            ("n", Value::Int(7)),
            ("minus", Value::Int(-1)),
            ("x", Value::Float(0.5)),
            ("b", Value::Bool(true)),
            ("s", Value::Str("text".into())),
            ("is", Value::Ints(vec![1, -2])),
            ("ss", Value::Strs(vec!["a".into()])),
        ];
        let metadata =
            Metadata { file: "f".into(), pairs: pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect() };
        assert_eq!(metadata.u64("n").expect("there"), Some(7));
        assert_eq!(metadata.u64("none").expect("absent"), None);
        assert_eq!(metadata.f64("n").expect("an integer will do"), Some(7.0));
        assert_eq!(metadata.f64("x").expect("there"), Some(0.5));
        assert_eq!(metadata.bool("b").expect("there"), Some(true));
        assert_eq!(metadata.str("s").expect("there"), Some("text"));
        assert_eq!(metadata.ints("is").expect("there"), Some(&[1i64, -2][..]));
        assert_eq!(metadata.strs("ss").expect("there").map(<[String]>::len), Some(1));
        let check = |error: Error, want: &str| assert_eq!(error.to_string(), want);
        check(
            metadata.u64("minus").expect_err("negative"),
            "metadata value: expected an unsigned integer, got -1 (f, key minus)",
        );
        check(
            metadata.str("ss").expect_err("an array"),
            "metadata value: expected a string, got an array of strings (f, key ss)",
        );
        check(
            metadata.floats("is").expect_err("integers"),
            "metadata value: expected an array of floats, got an array of integers (f, key is)",
        );
        check(
            metadata.bools("n").expect_err("a scalar"),
            "metadata value: expected an array of bools, got 7 (f, key n)",
        );
    }
}
