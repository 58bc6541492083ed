//! One body, understood: prompts as ids, parameters in their ranges.

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::error::ApiError;
use super::fields::Fields;
use super::params::Params;
use super::prompt;
use crate::engine::request::Request;
use crate::engine::sampling::SamplingParams;
use crate::limits::CHOICES_MAX;
use crate::text::chat::ChatTemplate;
use crate::text::tokenizer::Tokenizer;

/// Which of OpenAI's endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
}

impl Endpoint {
    /// All there are.
    pub const ALL: [Self; 2] = [Self::Chat, Self::Completions];

    /// Its path.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
        }
    }

    /// The field of its bodies that holds what is to be answered.
    #[must_use]
    pub const fn prompt_field(self) -> &'static str {
        match self {
            Self::Chat => "messages",
            Self::Completions => "prompt",
        }
    }

    /// The endpoint at a path.
    #[must_use]
    pub fn from_path(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|endpoint| endpoint.path() == path)
    }
}

/// What answers: everything about the model that bodies are read and written with.
#[derive(Clone, Copy)]
pub struct Host<'a> {
    /// Name of the model in responses.
    pub model: &'a str,
    /// The model's.
    pub tokenizer: &'a Tokenizer,
    /// The model's, if it has one that works.
    pub template: Option<&'a ChatTemplate>,
    /// Sampling where a body says nothing.
    pub defaults: &'a SamplingParams,
    /// Tokens of prompt and answer together.
    pub context_tokens: u32,
    /// Token ids are below it.
    pub vocab: u32,
}

/// A body, understood. Each prompt is answered `params.n` times; choice `i` answers prompt `i / n`.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Where it was sent.
    pub endpoint: Endpoint,
    /// Ids of each prompt; a chat has one.
    pub prompts: Vec<Vec<u32>>,
    /// With `echo`, the text of each prompt.
    pub echoes: Vec<String>,
    /// The rest.
    pub params: Params,
}

impl Job {
    /// Reads a body. `seed` is for a body that names none; fields that nobody knows are ignored.
    ///
    /// # Errors
    /// The first field that is wrong, or a prompt that cannot be served.
    pub fn read(endpoint: Endpoint, body: &Value, host: &Host<'_>, seed: u64) -> Result<Self, ApiError> {
        let object = body.as_object().ok_or_else(|| ApiError::expected("body", "a JSON object", Some(body)))?;
        let fields = Fields(object);
        // Any name is taken: there is one model.
        fields.text("model")?;
        let params = Params::read(fields, endpoint, host, seed)?;
        let prompts = match endpoint {
            Endpoint::Chat => vec![prompt::from_messages(fields, host)?],
            Endpoint::Completions => prompt::from_field("prompt", CHOICES_MAX as usize, fields, host)?,
        };
        let choices = prompts.len() as u64 * u64::from(params.n);
        if choices > u64::from(CHOICES_MAX) {
            let message = format!("n: expected at most {CHOICES_MAX} choices of all prompts, got {choices}");
            return Err(ApiError::invalid("n", message));
        }
        let echoes = if params.echo { prompt::texts(fields, &prompts, host)? } else { Vec::new() };
        Ok(Self { endpoint, prompts, echoes, params })
    }

    /// Choices of all prompts together.
    #[must_use]
    pub fn choices(&self) -> usize {
        self.prompts.len() * self.params.n as usize
    }

    /// Text that goes before a choice's own.
    #[must_use]
    pub fn echo(&self, choice: usize) -> &str {
        self.echoes.get(choice / self.params.n as usize).map_or("", String::as_str)
    }

    /// Ids of the prompt that a choice answers.
    #[must_use]
    pub fn prompt(&self, choice: usize) -> &[u32] {
        &self.prompts[choice / self.params.n as usize]
    }

    /// What the engine is asked for a choice. `ends` are the model's end tokens.
    #[must_use]
    pub fn request(&self, choice: usize, ends: &[u32]) -> Request {
        let params = &self.params;
        let mut stop_ids = params.stop_ids.clone();
        if !params.ignore_eos {
            stop_ids.extend(ends);
        }
        Request {
            prompt: self.prompt(choice).to_vec(),
            max_tokens: params.max_tokens,
            sampling: params.sampling.clone(),
            stop_ids,
            min_tokens: params.min_tokens,
            priority: params.priority,
            cache_salt: params.cache_salt.clone(),
            choice: u32::try_from(choice).unwrap_or(u32::MAX) % params.n,
            ..Request::default()
        }
    }
}

/// The seed of a request that names none, drawn from `base` by what tells it from others: 53 bits, so that every JSON reader keeps it.
#[must_use]
pub fn drawn_seed(base: u64, name: &[u8]) -> u64 {
    let hash = Sha256::new_with_prefix(base.to_le_bytes()).chain_update(name).finalize();
    let mut first = [0; 8];
    first.copy_from_slice(&hash[..8]);
    u64::from_le_bytes(first) >> 11
}

#[cfg(test)]
mod tests {
    use super::drawn_seed;

    #[test]
    fn drawn_seeds_differ_by_request_and_by_run_and_survive_json() {
        assert_ne!(drawn_seed(1, b"a"), drawn_seed(1, b"b"));
        assert_ne!(drawn_seed(1, b"a"), drawn_seed(2, b"a"));
        assert_eq!(drawn_seed(1, b"a"), drawn_seed(1, b"a"));
        assert!(drawn_seed(7, b"x") < 1 << 53);
    }
}
