//! Typed look-ups in config.json whose errors name file and key. Null counts as absent, as everywhere in these files.

use serde_json::Value;

use crate::error::{Error, Result};

/// An object of config.json, with the path to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Json<'a> {
    /// The file, for messages.
    pub(super) file: &'a str,
    /// The object.
    pub(super) value: &'a Value,
}

impl<'a> Json<'a> {
    fn get<T>(self, key: &str, expected: &str, cast: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>> {
        match self.value.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => cast(value).map(Some).ok_or_else(|| {
                let mut got = value.to_string();
                if let Some((at, _)) = got.char_indices().nth(60) {
                    got.truncate(at);
                }
                Error::format("model configuration", expected, got, format!("{}, key {key}", self.file))
            }),
        }
    }

    /// An unsigned integer. A float without fraction counts: some tools write `8.0`.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and below 2^53")]
    pub(super) fn u64(self, key: &str) -> Result<Option<u64>> {
        let whole = |f: f64| (f.fract() == 0.0 && (0.0..9e15).contains(&f)).then_some(f as u64);
        self.get(key, "an unsigned integer", |v| v.as_u64().or_else(|| v.as_f64().and_then(whole)))
    }

    /// A number.
    pub(super) fn f64(self, key: &str) -> Result<Option<f64>> {
        self.get(key, "a number", Value::as_f64)
    }

    /// A truth value.
    pub(super) fn bool(self, key: &str) -> Result<Option<bool>> {
        self.get(key, "true or false", Value::as_bool)
    }

    /// Text.
    pub(super) fn str(self, key: &str) -> Result<Option<&'a str>> {
        self.get(key, "a text", Value::as_str)
    }

    /// An array.
    pub(super) fn array(self, key: &str) -> Result<Option<&'a [Value]>> {
        self.get(key, "an array", |v| v.as_array().map(Vec::as_slice))
    }

    /// An object.
    pub(super) fn object(self, key: &str) -> Result<Option<Self>> {
        let inner = self.get(key, "an object", |v| v.is_object().then_some(v))?;
        Ok(inner.map(|value| Self { file: self.file, value }))
    }
}
