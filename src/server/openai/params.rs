//! What chat and completions both ask for: lengths, sampling, ends, shares.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::error::ApiError;
use super::fields::{Fields, number};
use super::job::{Endpoint, Host};
use crate::engine::sampling::SamplingParams;
use crate::limits::{CHOICES_MAX, LOGPROBS_MAX, STOP_BYTES_MAX, STOP_STRINGS_MAX};

/// Parameters of a request, each inside its range.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    /// Most tokens of each choice; `None` for the room left, 0 only with `echo`.
    pub max_tokens: Option<u32>,
    /// No end token before as many tokens.
    pub min_tokens: u32,
    /// The prompt's text goes before the answer's.
    pub echo: bool,
    /// How tokens are chosen; the seed is there.
    pub sampling: SamplingParams,
    /// Nobody chose the seed, and it matters.
    pub seed_is_drawn: bool,
    /// Texts that end a choice in front of them.
    pub stops: Vec<String>,
    /// Tokens that end a choice, beside the model's own.
    pub stop_ids: BTreeSet<u32>,
    /// Go on after the model's end tokens.
    pub ignore_eos: bool,
    /// Choices a prompt.
    pub n: u32,
    /// Lower goes first.
    pub priority: i32,
    /// Whose cached pages it shares.
    pub cache_salt: Option<String>,
    /// Tell the ids in each choice.
    pub return_token_ids: bool,
    /// The client wants events instead of one body.
    pub stream: bool,
    /// With `stream`: which chunks tell what was used.
    pub stream_usage: StreamUsage,
}

/// `stream_options`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StreamUsage {
    /// None.
    #[default]
    No,
    /// One more behind the last: `include_usage`.
    Last,
    /// That one, and each before it tells what was used so far: `continuous_usage_stats`.
    All,
}

/// A field that we refuse rather than ignore: its name, what of it does no harm, and that in words.
type Unsupported = (&'static str, fn(&Value) -> bool, &'static str);

/// Fields that change the answer in a way that is not built.
const UNSUPPORTED: [Unsupported; 20] = [
    ("response_format", |value| value["type"] == "text", "{\"type\": \"text\"}"),
    ("tools", is_empty_list, "no tools"),
    ("tool_choice", is_no_call, "none or auto, without tools"),
    ("functions", is_empty_list, "no functions"),
    ("function_call", is_no_call, "none or auto, without functions"),
    ("modalities", |value| value == &serde_json::json!(["text"]), "[\"text\"]"),
    ("audio", never, NOTHING),
    ("suffix", |value| value == "", NOTHING),
    ("best_of", |value| value == 1, "1"),
    ("use_beam_search", |value| value == false, "false"),
    ("prompt_logprobs", never, NOTHING),
    ("truncate_prompt_tokens", never, NOTHING),
    ("add_generation_prompt", |value| value == true, "true"),
    ("continue_final_message", |value| value == false, "false"),
    ("logits_processors", is_empty_list, NOTHING),
    ("structured_outputs", never, NOTHING),
    ("guided_json", never, NOTHING),
    ("guided_regex", never, NOTHING),
    ("guided_choice", never, NOTHING),
    ("guided_grammar", never, NOTHING),
];
const NOTHING: &str = "nothing: it is not supported";

fn never(_: &Value) -> bool {
    false
}

fn is_empty_list(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

fn is_no_call(value: &Value) -> bool {
    value == "none" || value == "auto"
}

impl Params {
    /// The seed, where it is to be told: nobody chose it, and it matters.
    #[must_use]
    pub fn drawn_seed(&self) -> Option<u64> {
        self.sampling.seed.filter(|_| self.seed_is_drawn)
    }

    /// Reads them; what is absent is as the host has it. `seed` is for who names none.
    pub(super) fn read(fields: Fields<'_>, endpoint: Endpoint, host: &Host<'_>, seed: u64) -> Result<Self, ApiError> {
        refuse_unsupported(fields)?;
        let sampling = sampling(fields, endpoint, host)?;
        let is_drawn = sampling.seed.is_none() && sampling.temperature > 0.0;
        let priority = fields.integer("priority", i32::MIN.into(), i32::MAX.into())?;
        // The newer name wins where both are given.
        let echo = fields.flag("echo")?;
        if echo && endpoint == Endpoint::Chat {
            return Err(ApiError::expected("echo", "false: only /v1/completions echoes", fields.get("echo")));
        }
        if echo && sampling.logprobs.is_some() {
            let message = "echo: expected no logprobs with it, got both: log-probabilities of a prompt are not supported here, `twostroke score` \
                           tells them";
            return Err(ApiError::invalid("echo", message).with_code("unsupported_value"));
        }
        let least = u32::from(!echo);
        let newer = tokens(fields, "max_completion_tokens", least)?;
        let older = tokens(fields, "max_tokens", least)?;
        let max_tokens = newer.or(older);
        let min_tokens = fields.count("min_tokens", 0, u32::MAX)?.unwrap_or(0);
        if max_tokens.is_some_and(|most| min_tokens > most) {
            let most = max_tokens.unwrap_or(0);
            return Err(ApiError::expected(
                "min_tokens",
                &format!("at most max_tokens, {most}"),
                fields.get("min_tokens"),
            ));
        }
        let stream = fields.flag("stream")?;
        Ok(Self {
            max_tokens,
            min_tokens,
            echo,
            seed_is_drawn: is_drawn,
            sampling: SamplingParams { seed: sampling.seed.or(Some(seed)), ..sampling },
            stops: stops(fields)?,
            stop_ids: stop_ids(fields, host.vocab)?,
            ignore_eos: fields.flag("ignore_eos")?,
            n: fields.count("n", 1, CHOICES_MAX)?.unwrap_or(1),
            priority: priority.and_then(|n| i32::try_from(n).ok()).unwrap_or(0),
            cache_salt: fields.text("cache_salt")?.map(str::to_owned),
            return_token_ids: fields.flag("return_token_ids")?,
            stream,
            stream_usage: stream_usage(fields, stream)?,
        })
    }
}

fn refuse_unsupported(fields: Fields<'_>) -> Result<(), ApiError> {
    for (name, is_harmless, expected) in UNSUPPORTED {
        if let Some(value) = fields.get(name).filter(|value| !is_harmless(value)) {
            return Err(ApiError::expected(name, expected, Some(value)).with_code("unsupported_value"));
        }
    }
    Ok(())
}

fn stream_usage(fields: Fields<'_>, stream: bool) -> Result<StreamUsage, ApiError> {
    let Some(value) = fields.get("stream_options") else { return Ok(StreamUsage::No) };
    let wrong = || ApiError::expected("stream_options", "an object, with stream: true", Some(value));
    let options = Fields(value.as_object().filter(|_| stream).ok_or_else(wrong)?);
    Ok(match (options.flag("include_usage")?, options.flag("continuous_usage_stats")?) {
        (false, _) => StreamUsage::No,
        (true, false) => StreamUsage::Last,
        (true, true) => StreamUsage::All,
    })
}

/// A bound of the answer; more than the context is as good as the context.
fn tokens(fields: Fields<'_>, name: &str, least: u32) -> Result<Option<u32>, ApiError> {
    let tokens = fields.integer(name, least.into(), i64::MAX)?;
    Ok(tokens.map(|n| u32::try_from(n).unwrap_or(u32::MAX)))
}

fn sampling(fields: Fields<'_>, endpoint: Endpoint, host: &Host<'_>) -> Result<SamplingParams, ApiError> {
    let defaults = host.defaults;
    let or = |name: &str, default: f32| Ok::<f32, ApiError>(fields.number(name)?.unwrap_or(default));
    let params = SamplingParams {
        temperature: or("temperature", defaults.temperature)?,
        top_p: or("top_p", defaults.top_p)?,
        top_k: fields.integer("top_k", -1, i64::MAX)?.unwrap_or(defaults.top_k),
        min_p: or("min_p", defaults.min_p)?,
        repetition_penalty: or("repetition_penalty", defaults.repetition_penalty)?,
        presence_penalty: or("presence_penalty", defaults.presence_penalty)?,
        frequency_penalty: or("frequency_penalty", defaults.frequency_penalty)?,
        logit_bias: biases(fields)?,
        seed: fields.read("seed", "a whole number", seed)?,
        logprobs: logprobs(fields, endpoint)?,
    };
    match params.rules(host.vocab) {
        Ok(_) => Ok(params),
        Err(invalid) => Err(ApiError::invalid(invalid.param, invalid.to_string())),
    }
}

/// Any whole number of 64 bits.
fn seed(value: &Value) -> Option<u64> {
    value.as_u64().or(value.as_i64().map(i64::cast_unsigned))
}

/// Chat has a switch and a number, completions one number.
fn logprobs(fields: Fields<'_>, endpoint: Endpoint) -> Result<Option<u32>, ApiError> {
    if endpoint == Endpoint::Completions {
        return fields.count("logprobs", 0, LOGPROBS_MAX);
    }
    let (wanted, top) = (fields.flag("logprobs")?, fields.count("top_logprobs", 0, LOGPROBS_MAX)?);
    if !wanted && top.is_some_and(|top| top > 0) {
        return Err(ApiError::invalid("top_logprobs", "top_logprobs: expected logprobs to be true with it, got false"));
    }
    Ok(wanted.then_some(top.unwrap_or(0)))
}

fn biases(fields: Fields<'_>) -> Result<BTreeMap<u32, f32>, ApiError> {
    let expected = "an object of token ids and numbers";
    let Some(object) = fields.read("logit_bias", expected, Value::as_object)? else { return Ok(BTreeMap::new()) };
    let pair = |(id, value): (&String, &Value)| {
        let wrong = || {
            let message = format!("logit_bias: expected a token id and a number, got {id:?}: {value}");
            ApiError::invalid("logit_bias", message)
        };
        Ok((id.trim().parse().map_err(|_| wrong())?, number(value).ok_or_else(wrong)?))
    };
    object.iter().map(pair).collect()
}

fn stops(fields: Fields<'_>) -> Result<Vec<String>, ApiError> {
    let expected = format!("a text or at most {STOP_STRINGS_MAX} of them, each of 1 to {STOP_BYTES_MAX} bytes");
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let all = fields.read("stop", &expected, |value| match value {
        Value::Array(list) if list.len() <= STOP_STRINGS_MAX => list.iter().map(text).collect::<Option<Vec<_>>>(),
        one => text(one).map(|one| vec![one]),
    })?;
    let all = all.unwrap_or_default();
    if all.iter().any(|stop| stop.is_empty() || stop.len() > STOP_BYTES_MAX) {
        return Err(ApiError::expected("stop", &expected, fields.get("stop")));
    }
    Ok(all)
}

fn stop_ids(fields: Fields<'_>, vocab: u32) -> Result<BTreeSet<u32>, ApiError> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok()).filter(|id| *id < vocab);
    let expected = format!("a list of token ids below the vocabulary of {vocab}");
    let all = fields.read("stop_token_ids", &expected, |value| value.as_array()?.iter().map(id).collect())?;
    Ok(all.unwrap_or_default())
}
