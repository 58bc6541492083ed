//! `/v1/embeddings`: the mean of each input's last hidden states, over all its tokens, of unit length unless `normalize` is false.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::Value;

use super::error::ApiError;
use super::fields::Fields;
use super::job::Host;
use super::prompt;
use crate::engine::request::Request;
use crate::limits::EMBEDDING_INPUTS_MAX;

/// A body, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Embeddings {
    inputs: Vec<Vec<u32>>,
    /// Floats as bytes, as OpenAI's client asks for them.
    is_base64: bool,
    is_normalized: bool,
}

/// The response.
#[derive(Debug, Serialize)]
struct List<'a> {
    object: &'static str,
    data: Vec<Embedding>,
    model: &'a str,
    usage: Usage,
}

#[derive(Debug, Serialize)]
struct Embedding {
    object: &'static str,
    index: usize,
    embedding: Floats,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Floats {
    Plain(Vec<f32>),
    Base64(String),
}

#[derive(Debug, Serialize)]
struct Usage {
    prompt_tokens: u64,
    total_tokens: u64,
}

impl Embeddings {
    /// Reads a body: `input`, `encoding_format`, `dimensions`, `normalize`. `width` is the model's.
    ///
    /// # Errors
    /// The first field that is wrong, or an input that does not fit the context.
    pub fn read(body: &Value, host: &Host<'_>, width: u32) -> Result<Self, ApiError> {
        let object = body.as_object().ok_or_else(|| ApiError::expected("body", "a JSON object", Some(body)))?;
        let fields = Fields(object);
        fields.text("model")?;
        let format = |value: &Value| match value.as_str() {
            Some("float") => Some(false),
            Some("base64") => Some(true),
            _ => None,
        };
        let is_base64 = fields.read("encoding_format", "float or base64", format)?.unwrap_or(false);
        let same = |value: &Value| (value.as_u64() == Some(width.into())).then_some(());
        fields.read("dimensions", &format!("nothing or {width}, this model's"), same)?;
        let is_normalized = fields.read("normalize", "true or false", Value::as_bool)?.unwrap_or(true);
        let inputs = prompt::from_field("input", EMBEDDING_INPUTS_MAX, fields, host)?;
        Ok(Self { inputs, is_base64, is_normalized })
    }

    /// What the engine is asked, one an input.
    pub fn requests(&self) -> impl Iterator<Item = Request> {
        let request =
            |ids: &Vec<u32>| Request { prompt: ids.clone(), max_tokens: Some(1), pool: true, ..Request::default() };
        self.inputs.iter().map(request)
    }

    /// The response, from the mean of each input.
    #[must_use]
    pub fn response(&self, means: Vec<Vec<f32>>, model: &str) -> Value {
        let tokens = self.inputs.iter().map(|ids| ids.len() as u64).sum();
        let data = means.into_iter().enumerate().map(|(index, mean)| {
            let floats = if self.is_normalized { normalized(&mean) } else { mean };
            let embedding = if self.is_base64 {
                let bytes: Vec<u8> = floats.iter().flat_map(|float| float.to_le_bytes()).collect();
                Floats::Base64(STANDARD.encode(bytes))
            } else {
                Floats::Plain(floats)
            };
            Embedding { object: "embedding", index, embedding }
        });
        let usage = Usage { prompt_tokens: tokens, total_tokens: tokens };
        let list = List { object: "list", data: data.collect(), model, usage };
        serde_json::to_value(list).expect("a plain struct serialises")
    }
}

/// The same direction at unit length; zero stays zero.
#[allow(clippy::cast_possible_truncation, reason = "the result's precision")]
fn normalized(mean: &[f32]) -> Vec<f32> {
    let length = mean.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    let scale = if length > 0.0 { length.recip() } else { 0.0 };
    mean.iter().map(|value| (f64::from(*value) * scale) as f32).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn floats_are_of_unit_length_and_base64_holds_the_same() {
        let body = |is_base64, is_normalized| {
            let embeddings = Embeddings { inputs: vec![vec![1, 2], vec![3]], is_base64, is_normalized };
            embeddings.response(vec![vec![3.0, -4.0], vec![0.0, 0.0]], "m")
        };
        let plain = body(false, true);
        assert_eq!(plain["data"][0], json!({"object": "embedding", "index": 0, "embedding": [0.6f32, -0.8f32]}));
        assert_eq!(plain["data"][1]["embedding"], json!([0.0, 0.0]));
        assert_eq!(plain["usage"], json!({"prompt_tokens": 3, "total_tokens": 3}));
        assert_eq!((&plain["object"], &plain["model"]), (&json!("list"), &json!("m")));
        assert_eq!(body(false, false)["data"][0]["embedding"], json!([3.0, -4.0]));
        // Little-endian bytes of 3 and -4.
        assert_eq!(body(true, false)["data"][0]["embedding"], "AABAQAAAgMA=");
    }
}
