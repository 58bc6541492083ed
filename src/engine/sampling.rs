//! Sampling parameters as requests give them, under the names of OpenAI and vLLM, and the rules in plain f64.
//!
//! This module turns what a person asked for into what [`crate::kernels::sample`] does, or says which field is wrong. The
//! reference below is for tests and for reading: it is the definition, written without any regard to speed.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::Error;
use crate::kernels::sample::{GREEDY_TEMPERATURE_MAX, Rules};
use crate::limits::{LOGIT_BIAS_MAX, LOGPROBS_MAX};

/// Largest temperature.
pub const TEMPERATURE_MAX: f32 = 2.0;
/// Largest presence and frequency penalty, and with a minus the smallest.
pub const PENALTY_MAX: f32 = 2.0;
/// Largest bias of a logit, and with a minus the smallest.
pub const LOGIT_BIAS_VALUE_MAX: f32 = 100.0;

/// How a request wants its tokens chosen. The names are OpenAI's and vLLM's, the defaults too, but for the temperature: 0.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingParams {
    /// 0 to 2; 0 (and what is not above 1e-6) takes the likeliest token.
    pub temperature: f32,
    /// Above 0, up to 1 (off).
    pub top_p: f32,
    /// Likeliest tokens to choose among; 0 or -1 is off.
    pub top_k: i64,
    /// 0 (off) to 1.
    pub min_p: f32,
    /// Above 0; 1 is off. Counts prompt and answer.
    pub repetition_penalty: f32,
    /// -2 to 2; 0 is off. Counts the answer only.
    pub presence_penalty: f32,
    /// -2 to 2; 0 is off. Counts the answer only.
    pub frequency_penalty: f32,
    /// Token id to -100 to 100.
    pub logit_bias: BTreeMap<u32, f32>,
    /// Seed of the draws; who has none draws one and reports it.
    pub seed: Option<u64>,
    /// Logprob of the chosen token, and of this many of the likeliest (0 to 20).
    pub logprobs: Option<u32>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: BTreeMap::new(),
            seed: None,
            logprobs: None,
        }
    }
}

/// A parameter outside its range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// Its name in the request.
    pub param: &'static str,
    /// The range.
    pub expected: String,
    /// What the request says.
    pub got: String,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { param, expected, got } = self;
        write!(f, "{param}: expected {expected}, got {got}")
    }
}

impl std::error::Error for Invalid {}

impl From<Invalid> for Error {
    fn from(invalid: Invalid) -> Self {
        Self::Request(invalid.to_string())
    }
}

/// `Ok` if `good`. A NaN fails every comparison and is refused.
fn demand(good: bool, param: &'static str, expected: impl fmt::Display, got: impl fmt::Display) -> Result<(), Invalid> {
    if good { Ok(()) } else { Err(Invalid { param, expected: expected.to_string(), got: got.to_string() }) }
}

impl SamplingParams {
    /// The rules of the kernels, after holding each parameter against its range and the ids against the vocabulary.
    ///
    /// # Errors
    /// The first parameter that is outside.
    pub fn rules(&self, vocab: u32) -> Result<Rules, Invalid> {
        self.check_numbers()?;
        self.check_ids(vocab)?;
        Ok(Rules {
            repetition: self.repetition_penalty,
            frequency: self.frequency_penalty,
            presence: self.presence_penalty,
            bias: self.logit_bias.iter().map(|(&id, &value)| (id, value)).collect(),
            temperature: self.temperature,
            min_p: self.min_p,
            top_k: u32::try_from(self.top_k.max(0).min(i64::from(vocab))).ok().filter(|k| *k > 0),
            top_p: self.top_p,
        })
    }

    fn check_numbers(&self) -> Result<(), Invalid> {
        let (temperature, top_p, min_p) = (self.temperature, self.top_p, self.min_p);
        let most = TEMPERATURE_MAX;
        demand((0.0..=most).contains(&temperature), "temperature", format!("0 to {most}"), temperature)?;
        demand(top_p > 0.0 && top_p <= 1.0, "top_p", "above 0, up to 1", top_p)?;
        demand(self.top_k >= -1, "top_k", "-1 or 0 (off), or more", self.top_k)?;
        demand((0.0..=1.0).contains(&min_p), "min_p", "0 to 1", min_p)?;
        let repetition = self.repetition_penalty;
        // The reciprocal is multiplied by: neither may overflow.
        let usable = repetition > 0.0 && repetition.is_finite() && (1.0 / repetition).is_finite();
        demand(usable, "repetition_penalty", "above 0", repetition)?;
        let (most, penalties) = (PENALTY_MAX, -PENALTY_MAX..=PENALTY_MAX);
        let range = format!("-{most} to {most}");
        demand(penalties.contains(&self.presence_penalty), "presence_penalty", &range, self.presence_penalty)?;
        demand(penalties.contains(&self.frequency_penalty), "frequency_penalty", &range, self.frequency_penalty)?;
        let tops = self.logprobs.unwrap_or(0);
        demand(tops <= LOGPROBS_MAX, "logprobs", format!("0 to {LOGPROBS_MAX}"), tops)
    }

    fn check_ids(&self, vocab: u32) -> Result<(), Invalid> {
        let (entries, most) = (self.logit_bias.len(), LOGIT_BIAS_MAX);
        demand(entries <= most as usize, "logit_bias", format!("at most {most} tokens"), entries)?;
        for (&id, &value) in &self.logit_bias {
            demand(id < vocab, "logit_bias", format!("token ids below the vocabulary of {vocab}"), id)?;
            let most = LOGIT_BIAS_VALUE_MAX;
            let got = format!("{value} for token {id}");
            demand((-most..=most).contains(&value), "logit_bias", format!("-{most} to {most}"), got)?;
        }
        Ok(())
    }
}

/// Logits after penalties and bias, in f64.
#[must_use]
pub fn adjusted(rules: &Rules, logits: &[f32], prompt: &[u32], generated: &[u32]) -> Vec<f64> {
    let mut y: Vec<f64> = logits.iter().map(|&x| f64::from(x)).collect();
    let mut counts: BTreeMap<u32, u32> = prompt.iter().map(|&id| (id, 0)).collect();
    generated.iter().for_each(|&id| *counts.entry(id).or_default() += 1);
    for (id, count) in counts {
        let y = &mut y[id as usize];
        let repetition = f64::from(rules.repetition);
        *y = if *y > 0.0 { *y / repetition } else { *y * repetition };
        *y -= f64::from(count) * f64::from(rules.frequency);
        *y -= if count > 0 { f64::from(rules.presence) } else { 0.0 };
    }
    rules.bias.iter().for_each(|&(id, bias)| y[id as usize] += f64::from(bias));
    y
}

/// Probability of each id under the rules, in f64; 0 for what they cut. `None` where a logit is not finite.
#[must_use]
pub fn probabilities(rules: &Rules, logits: &[f32], prompt: &[u32], generated: &[u32]) -> Option<Vec<f64>> {
    if logits.iter().any(|x| !x.is_finite()) {
        return None;
    }
    let y = adjusted(rules, logits, prompt, generated);
    let mut order: Vec<usize> = (0..y.len()).collect();
    order.sort_by(|&a, &b| y[b].total_cmp(&y[a]).then(a.cmp(&b)));
    let mut result = vec![0.0; y.len()];
    if rules.temperature <= GREEDY_TEMPERATURE_MAX {
        result[order[0]] = 1.0;
        return Some(result);
    }
    let temperature = f64::from(rules.temperature);
    let weight = |id: usize| ((y[id] - y[order[0]]) / temperature).exp();
    let mut kept: Vec<usize> = order.iter().copied().filter(|&id| weight(id) >= f64::from(rules.min_p)).collect();
    kept.truncate(rules.top_k.map_or(usize::MAX, |k| k as usize));
    if rules.top_p < 1.0 {
        let target = f64::from(rules.top_p) * kept.iter().map(|&id| weight(id)).sum::<f64>();
        let mut reached = 0.0;
        let short = kept.iter().take_while(|&&id| {
            let before = reached;
            reached += weight(id);
            before < target
        });
        let count = short.count();
        kept.truncate(count.max(1));
    }
    let sum: f64 = kept.iter().map(|&id| weight(id)).sum();
    kept.iter().for_each(|&id| result[id] = weight(id) / sum);
    Some(result)
}

/// Log-softmax in f64: what logprobs are, before penalties and temperature.
#[must_use]
pub fn logprobs(logits: &[f32]) -> Vec<f64> {
    let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&x| (f64::from(x) - f64::from(top)).exp()).sum();
    logits.iter().map(|&x| f64::from(x) - f64::from(top) - sum.ln()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The field that `change` makes wrong, for a vocabulary of 100.
    fn refused(change: impl FnOnce(&mut SamplingParams)) -> Option<String> {
        let mut params = SamplingParams::default();
        change(&mut params);
        params.rules(100).err().map(|invalid| invalid.to_string())
    }

    #[test]
    fn parameters_outside_their_range_are_refused_by_name() {
        let check = |got: Option<String>, want: &str| assert_eq!(got.as_deref(), Some(want));
        check(refused(|p| p.temperature = -0.1), "temperature: expected 0 to 2, got -0.1");
        check(refused(|p| p.temperature = f32::NAN), "temperature: expected 0 to 2, got NaN");
        check(refused(|p| p.temperature = 2.1), "temperature: expected 0 to 2, got 2.1");
        check(refused(|p| p.top_p = 0.0), "top_p: expected above 0, up to 1, got 0");
        check(refused(|p| p.top_p = 1.5), "top_p: expected above 0, up to 1, got 1.5");
        check(refused(|p| p.top_k = -2), "top_k: expected -1 or 0 (off), or more, got -2");
        check(refused(|p| p.min_p = 1.01), "min_p: expected 0 to 1, got 1.01");
        check(refused(|p| p.repetition_penalty = 0.0), "repetition_penalty: expected above 0, got 0");
        check(refused(|p| p.repetition_penalty = f32::INFINITY), "repetition_penalty: expected above 0, got inf");
        check(refused(|p| p.presence_penalty = 2.5), "presence_penalty: expected -2 to 2, got 2.5");
        check(refused(|p| p.frequency_penalty = f32::NAN), "frequency_penalty: expected -2 to 2, got NaN");
        check(refused(|p| p.logprobs = Some(21)), "logprobs: expected 0 to 20, got 21");
        check(
            refused(|p| _ = p.logit_bias.insert(100, 1.0)),
            "logit_bias: expected token ids below the vocabulary of 100, got 100",
        );
        check(
            refused(|p| _ = p.logit_bias.insert(7, -101.0)),
            "logit_bias: expected -100 to 100, got -101 for token 7",
        );
        let error = Error::from(SamplingParams { top_p: 2.0, ..SamplingParams::default() }.rules(1).unwrap_err());
        assert!(matches!(error, Error::Request(_)), "{error}");
    }

    #[test]
    fn off_is_off_and_the_edges_are_inside() {
        for top_k in [-1, 0] {
            let params = SamplingParams { top_k, ..SamplingParams::default() };
            assert_eq!(params.rules(100), Ok(Rules::default()));
        }
        let edges = SamplingParams {
            temperature: 2.0,
            top_k: i64::MAX,
            min_p: 1.0,
            presence_penalty: -2.0,
            frequency_penalty: 2.0,
            logit_bias: BTreeMap::from([(0, -100.0), (99, 100.0)]),
            logprobs: Some(20),
            ..SamplingParams::default()
        };
        assert_eq!(edges.rules(100).map(|rules| rules.top_k), Ok(Some(100)));
    }

    #[test]
    fn reference_follows_the_order_of_the_rules() {
        let logits = [0.5_f32, 0.25, 0.125, 0.125].map(f32::ln);
        let kept = |rules: Rules| -> Vec<usize> {
            let all = probabilities(&rules, &logits, &[], &[]).expect("finite");
            assert!((all.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            (0..all.len()).filter(|&id| all[id] > 0.0).collect()
        };
        let warm = Rules { temperature: 1.0, ..Rules::default() };
        assert_eq!(kept(Rules::default()), [0]);
        assert_eq!(kept(warm.clone()), [0, 1, 2, 3]);
        assert_eq!(kept(Rules { top_k: Some(3), ..warm.clone() }), [0, 1, 2]);
        assert_eq!(kept(Rules { min_p: 0.3, ..warm.clone() }), [0, 1]);
        assert_eq!(kept(Rules { top_p: 0.6, ..warm.clone() }), [0, 1]);
        // 0.5 of 0.5 + 0.25 is 0.67: top-p counts among what top-k left.
        assert_eq!(kept(Rules { top_p: 0.6, top_k: Some(2), ..warm.clone() }), [0]);
        assert_eq!(kept(Rules { top_p: 0.001, ..warm }), [0]);
        let nan = [1.0, f32::NAN];
        assert_eq!(probabilities(&Rules::default(), &nan, &[], &[]), None);
    }

    #[test]
    fn penalties_count_what_they_should() {
        let rules = Rules { repetition: 2.0, frequency: 0.5, presence: 0.25, bias: vec![(3, 7.0)], ..Rules::default() };
        let y = adjusted(&rules, &[4.0, -1.0, 4.0, 0.0], &[0, 1], &[2, 2]);
        assert_eq!(y, [2.0, -2.0, 0.75, 7.0]);
    }
}
