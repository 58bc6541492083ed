//! Fields of a body, read one at a time so that each error names its field. Null is absent, as OpenAI has it.

use serde_json::{Map, Value};

use super::error::ApiError;

/// The fields of a JSON object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a Map<String, Value>);

impl<'a> Fields<'a> {
    /// A field that is there.
    pub(super) fn get(self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// A number.
    pub(super) fn number(self, name: &str) -> Result<Option<f32>, ApiError> {
        self.read(name, "a number", number)
    }

    /// A whole number from `least` to `most`.
    pub(super) fn integer(self, name: &str, least: i64, most: i64) -> Result<Option<i64>, ApiError> {
        let expected = match most {
            i64::MAX => format!("a whole number, at least {least}"),
            most => format!("a whole number from {least} to {most}"),
        };
        // Numbers past i64 are larger than any bound that is there.
        let whole = |value: &Value| value.as_i64().or(value.as_u64().map(|_| i64::MAX));
        self.read(name, &expected, |value| whole(value).filter(|n| (least..=most).contains(n)))
    }

    /// A whole number from 0 to `most`.
    pub(super) fn count(self, name: &str, least: u32, most: u32) -> Result<Option<u32>, ApiError> {
        Ok(self.integer(name, least.into(), most.into())?.and_then(|n| u32::try_from(n).ok()))
    }

    /// True or false; absent is false.
    pub(super) fn flag(self, name: &str) -> Result<bool, ApiError> {
        Ok(self.read(name, "true or false", Value::as_bool)?.unwrap_or(false))
    }

    /// A string.
    pub(super) fn text(self, name: &str) -> Result<Option<&'a str>, ApiError> {
        self.read(name, "a string", Value::as_str)
    }

    /// Whatever `take` makes of it.
    pub(super) fn read<T>(
        self,
        name: &str,
        expected: &str,
        take: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        take(value).map(Some).ok_or_else(|| ApiError::expected(name, expected, Some(value)))
    }
}

/// A number as the kernels take it.
pub(super) fn number(value: &Value) -> Option<f32> {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a parameter of sampling; too large becomes infinite, and is refused"
    )]
    value.as_f64().map(|x| x as f32)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_is_absent_and_other_types_are_refused_by_name() {
        let body =
            json!({"a": null, "b": 1.5, "c": "x", "d": true, "e": 7, "f": -1, "g": 18_446_744_073_709_551_615_u64});
        let fields = Fields(body.as_object().expect("an object"));
        assert_eq!((fields.number("a"), fields.number("b"), fields.number("z")), (Ok(None), Ok(Some(1.5)), Ok(None)));
        assert_eq!((fields.flag("d"), fields.flag("z"), fields.text("c")), (Ok(true), Ok(false), Ok(Some("x"))));
        assert_eq!((fields.count("e", 1, 9), fields.integer("f", -1, i64::MAX)), (Ok(Some(7)), Ok(Some(-1))));
        assert_eq!(fields.integer("g", 0, i64::MAX), Ok(Some(i64::MAX)));
        let param = |result: Result<Option<i64>, ApiError>| result.expect_err("wrong").body.param;
        assert_eq!(param(fields.integer("b", 0, 9)), Some("b".into()));
        assert_eq!(param(fields.integer("e", 0, 6)), Some("e".into()));
        let message = fields.count("f", 1, 8).expect_err("below").body.message;
        assert_eq!(message, "f: expected a whole number from 1 to 8, got -1");
        assert_eq!(fields.flag("e").expect_err("a number").body.message, "e: expected true or false, got 7");
    }
}
