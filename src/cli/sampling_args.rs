//! Flags that say how tokens are chosen, and what they mean together with the model's own wishes.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};

use clap::Args;

use crate::engine::sampling::SamplingParams;
use crate::error::{Error, Result};
use crate::format::model_files::Description;

/// How tokens are chosen. The names are vLLM's and llama.cpp's.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct SamplingArgs {
    /// 0 is greedy, always the likeliest token; absent: what the model's generation config asks for, else 0
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub(super) temperature: Option<f32>,
    /// Choose among the K likeliest tokens; 0 or -1 is off
    #[arg(long, value_name = "K", allow_hyphen_values = true)]
    pub(super) top_k: Option<i64>,
    /// Choose among the fewest tokens whose probabilities reach P; 1 is off
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub(super) top_p: Option<f32>,
    /// Drop tokens less likely than P times the likeliest; 0 is off
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub(super) min_p: Option<f32>,
    /// Divide the logits of tokens that prompt or answer hold; 1 is off
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    pub(super) repetition_penalty: Option<f32>,
    /// Take X off the logits of tokens that the answer holds
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    pub(super) presence_penalty: Option<f32>,
    /// Take X off for each time that the answer holds them
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    pub(super) frequency_penalty: Option<f32>,
    /// Add to a token's logit, e.g. 198:-100; may be given several times
    #[arg(long, value_name = "ID:BIAS", allow_hyphen_values = true)]
    pub(super) logit_bias: Vec<String>,
}

impl SamplingArgs {
    /// The parameters; what no flag says is as the model's files ask, and a seed is drawn where tokens are. Ids are held against
    /// the vocabulary when the request is made.
    ///
    /// # Errors
    /// `Usage` for a number outside its range.
    pub(super) fn meant(&self, seed: Option<u64>) -> Result<SamplingParams> {
        let defaults = SamplingParams::default();
        let params = SamplingParams {
            temperature: self.temperature.unwrap_or(defaults.temperature),
            top_k: self.top_k.unwrap_or(defaults.top_k),
            top_p: self.top_p.unwrap_or(defaults.top_p),
            min_p: self.min_p.unwrap_or(defaults.min_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(defaults.repetition_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(defaults.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(defaults.frequency_penalty),
            logit_bias: biases(&self.logit_bias)?,
            seed,
            logprobs: None,
        };
        params.rules(u32::MAX).map_err(|invalid| Error::Usage(format!("--{}", flag_of(&invalid.to_string()))))?;
        Ok(params)
    }

    /// Fills in what the model's files ask for where no flag was given, and draws a seed where one is needed.
    pub(super) fn complete(&self, params: &mut SamplingParams, description: &Description) {
        let wish = Wish::of(description);
        let take = |flag: Option<f32>, wish: Option<f64>, to: &mut f32| {
            if let (None, Some(value)) = (flag, wish) {
                #[allow(clippy::cast_possible_truncation, reason = "a parameter of sampling")]
                let value = value as f32;
                *to = value;
            }
        };
        take(self.temperature, wish.temperature, &mut params.temperature);
        if params.temperature > 0.0 {
            take(self.top_p, wish.top_p, &mut params.top_p);
            take(self.min_p, wish.min_p, &mut params.min_p);
            if let (None, Some(top_k)) = (self.top_k, wish.top_k) {
                params.top_k = top_k;
            }
        }
        take(self.repetition_penalty, wish.repetition_penalty, &mut params.repetition_penalty);
        if params.rules(u32::MAX).is_err() {
            tracing::warn!("the model's generation config asks for sampling outside every range: it is ignored");
            let seed = params.seed;
            *params = self.meant(seed).unwrap_or_default();
        }
        if params.temperature > 0.0 {
            params.seed = Some(params.seed.unwrap_or_else(random_seed));
        }
    }
}

/// `top_p: expected …` as a flag's name.
fn flag_of(message: &str) -> String {
    let (name, rest) = message.split_once(':').unwrap_or((message, ""));
    format!("{}:{rest}", name.replace('_', "-"))
}

/// A seed that nobody chose.
pub(super) fn random_seed() -> u64 {
    // The standard library's only source of randomness; one value of 53 bits, so that JSON readers keep it.
    std::collections::hash_map::RandomState::new().build_hasher().finish() >> 11
}

fn biases(texts: &[String]) -> Result<BTreeMap<u32, f32>> {
    let mut biases = BTreeMap::new();
    for text in texts {
        let wrong = || Error::Usage(format!("--logit-bias: expected ID:BIAS such as 198:-100, got {text}"));
        let (id, bias) = text.split_once([':', '=']).ok_or_else(wrong)?;
        let bias = bias.trim().parse::<f32>().ok().filter(|bias| !bias.is_nan()).ok_or_else(wrong)?;
        biases.insert(id.trim().parse().map_err(|_| wrong())?, bias);
    }
    Ok(biases)
}

/// What a model's files ask for.
#[derive(Debug, Default, PartialEq)]
struct Wish {
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<i64>,
    min_p: Option<f64>,
    repetition_penalty: Option<f64>,
}

impl Wish {
    fn of(description: &Description) -> Self {
        match description {
            Description::Folder(folder) => {
                let config = &folder.generation_config;
                let number = |key: &str| config.get(key).and_then(serde_json::Value::as_f64);
                let repetition_penalty = number("repetition_penalty");
                if config.get("do_sample").and_then(serde_json::Value::as_bool) != Some(true) {
                    return Self { repetition_penalty, ..Self::default() };
                }
                Self {
                    // transformers samples at 1 when it samples at all.
                    temperature: number("temperature").or(Some(1.0)),
                    top_p: number("top_p"),
                    top_k: config.get("top_k").and_then(serde_json::Value::as_i64),
                    min_p: number("min_p"),
                    repetition_penalty,
                }
            }
            Description::Gguf(metadata) => {
                let number = |key: &str| metadata.f64(key).ok().flatten();
                #[allow(clippy::cast_possible_truncation, reason = "a count; `as` saturates")]
                let top_k = number("general.sampling.top_k").map(|k| k as i64);
                Self {
                    temperature: number("general.sampling.temp"),
                    top_p: number("general.sampling.top_p"),
                    top_k,
                    min_p: number("general.sampling.min_p"),
                    repetition_penalty: number("general.sampling.penalty_repeat"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn biases_name_a_token_and_a_number() {
        let check = |text: &str, want: Option<(u32, f32)>| {
            let got = biases(&[text.to_owned()]).ok().and_then(|all| all.into_iter().next());
            assert_eq!(got, want, "{text}");
        };
        check("198:-100", Some((198, -100.0)));
        check("7=0.5", Some((7, 0.5)));
        for text in ["", "198", "x:1", "-1:2", "198:", "198:nan"] {
            check(text, None);
        }
    }

    #[test]
    fn a_number_outside_its_range_is_wrong_usage_and_names_its_flag() {
        let check = |args: SamplingArgs, flag: &str| {
            let error = args.meant(None).expect_err(flag);
            assert!(error.exit_code() == 2 && error.to_string().starts_with(flag), "{error}");
        };
        let none = SamplingArgs::default;
        check(SamplingArgs { temperature: Some(-1.0), ..none() }, "--temperature: expected 0 to 2");
        check(SamplingArgs { top_p: Some(0.0), ..none() }, "--top-p");
        check(SamplingArgs { top_k: Some(-5), ..none() }, "--top-k");
        check(SamplingArgs { min_p: Some(2.0), ..none() }, "--min-p");
        check(SamplingArgs { repetition_penalty: Some(0.0), ..none() }, "--repetition-penalty");
        check(SamplingArgs { presence_penalty: Some(9.0), ..none() }, "--presence-penalty");
        check(SamplingArgs { logit_bias: vec!["1:101".into()], ..none() }, "--logit-bias");
    }
}
