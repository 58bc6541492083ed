//! The figures of a run, under the names that vLLM's serve bench gives them, and ours behind.
//!
//! Failed requests are in `failed` and nowhere else. TTFT needs a first token and TPOT two, so answers that are too short are
//! left out of those samples; `tpot_samples` says how many were not. An inter-token gap is counted once a token: a chunk of k
//! tokens after a gap g is k gaps of g / k. A statistic of nothing is null; no JSON of ours holds NaN or an infinity.

use serde_json::{Map, Value, json};

use super::arrivals::Arrivals;
use super::goodput::Goodput;
use super::replay::{Answer, Outcome, Run};
use super::spread::Spread;

const NANOS_PER_SECOND: f64 = 1e9;
const NANOS_PER_MS: f64 = 1e6;

/// What the run was, for the result's first fields.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// When it was made, e.g. `20261201-182946`; a simulation has none.
    pub date: Option<String>,
    /// What was asked, e.g. `twostroke` or `openai`.
    pub backend: String,
    /// The model.
    pub model_id: String,
    /// Where its tokenizer comes from.
    pub tokenizer_id: Option<String>,
    /// How requests came.
    pub arrivals: Arrivals,
    /// Most requests in flight.
    pub max_concurrency: Option<u32>,
    /// What was asked of an answer.
    pub goodput: Option<Goodput>,
    /// Percentiles to report, from 0 to 100; vLLM's default is 99 alone.
    pub percentiles: Vec<f64>,
    /// `--save-detailed`: every request's figures as well.
    pub detailed: bool,
}

/// The figures of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    pub(super) fields: Map<String, Value>,
}

/// Latencies of one answer, in milliseconds.
#[derive(Debug, Clone, PartialEq)]
struct Latencies {
    ttft: Option<f64>,
    tpot: Option<f64>,
    gaps: Vec<f64>,
    e2el: f64,
}

impl Report {
    /// Of a run.
    #[must_use]
    pub fn new(run: &Run, settings: &Settings) -> Self {
        let done: Vec<&Answer> = run.answers.iter().filter(|answer| answer.outcome == Outcome::Done).collect();
        let latencies: Vec<Latencies> = done.iter().map(|answer| Latencies::of(answer)).collect();
        let mut fields = Map::new();
        head(&mut fields, run, settings);
        totals(&mut fields, run, settings, &done, &latencies);
        metrics(&mut fields, &settings.percentiles, &latencies);
        let cached: u64 = done.iter().map(|answer| u64::from(answer.cached_tokens)).sum();
        fields.insert("cached_tokens".into(), cached.into());
        fields.insert("tpot_samples".into(), latencies.iter().filter(|l| l.tpot.is_some()).count().into());
        if settings.detailed {
            detailed(&mut fields, run);
        }
        Self { fields }
    }

    /// As one object, fields in vLLM's order.
    #[must_use]
    pub fn json(&self) -> Value {
        Value::Object(self.fields.clone())
    }

    /// One field; `Null` where there is none.
    #[must_use]
    pub fn get(&self, name: &str) -> &Value {
        self.fields.get(name).unwrap_or(&Value::Null)
    }
}

fn head(fields: &mut Map<String, Value>, run: &Run, settings: &Settings) {
    let mut put = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    put("date", json!(settings.date));
    put("endpoint_type", json!(settings.backend));
    put("backend", json!(settings.backend));
    put("model_id", json!(settings.model_id));
    put("tokenizer_id", json!(settings.tokenizer_id));
    put("num_prompts", run.answers.len().into());
    put("request_rate", number_or_inf(settings.arrivals.rate()));
    put("burstiness", number_or_inf(settings.arrivals.burstiness()));
    put("max_concurrency", json!(settings.max_concurrency));
}

#[allow(clippy::cast_precision_loss, reason = "figures, not sums")]
fn totals(fields: &mut Map<String, Value>, run: &Run, settings: &Settings, done: &[&Answer], latencies: &[Latencies]) {
    let seconds = run.duration_nanos as f64 / NANOS_PER_SECOND;
    let per_second = |count: u64| if run.duration_nanos > 0 { json!(count as f64 / seconds) } else { Value::Null };
    let input: u64 = done.iter().map(|answer| u64::from(answer.prompt_tokens)).sum();
    let output: u64 = done.iter().map(|answer| answer.output_tokens()).sum();
    let failed = run.answers.iter().filter(|answer| matches!(answer.outcome, Outcome::Failed(_))).count();
    let good = settings
        .goodput
        .map(|goodput| latencies.iter().filter(|l| goodput.keeps(l.ttft, l.tpot, l.e2el)).count() as u64);
    let mut put = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    put("duration", json!(seconds));
    put("completed", done.len().into());
    put("failed", failed.into());
    put("total_input_tokens", input.into());
    put("total_output_tokens", output.into());
    put("request_throughput", per_second(done.len() as u64));
    put("request_goodput", good.map_or(Value::Null, per_second));
    put("output_throughput", per_second(output));
    put("total_token_throughput", per_second(input + output));
    put("max_output_tokens_per_s", peak_tokens(run.start_nanos, done).into());
    put("max_concurrent_requests", peak_requests(done).into());
}

fn metrics(fields: &mut Map<String, Value>, percentiles: &[f64], latencies: &[Latencies]) {
    let samples: [(&str, Vec<f64>); 4] = [
        ("ttft", latencies.iter().filter_map(|l| l.ttft).collect()),
        ("tpot", latencies.iter().filter_map(|l| l.tpot).collect()),
        ("itl", latencies.iter().flat_map(|l| l.gaps.iter().copied()).collect()),
        ("e2el", latencies.iter().map(|l| l.e2el).collect()),
    ];
    let mut max_itl = Value::Null;
    for (name, sample) in samples {
        let spread = Spread::of(sample);
        let of = |figure: &dyn Fn(&Spread) -> f64| json!(spread.as_ref().map(figure));
        fields.insert(format!("mean_{name}_ms"), of(&Spread::mean));
        fields.insert(format!("median_{name}_ms"), of(&Spread::median));
        fields.insert(format!("std_{name}_ms"), of(&Spread::deviation));
        for percent in percentiles {
            fields.insert(format!("p{percent}_{name}_ms"), of(&|spread| spread.percentile(*percent)));
        }
        if name == "itl" {
            max_itl = of(&Spread::max);
        }
    }
    fields.insert("max_itl_ms".into(), max_itl);
}

#[allow(clippy::cast_precision_loss, reason = "figures, not sums")]
fn detailed(fields: &mut Map<String, Value>, run: &Run) {
    let seconds = |nanos: u64| nanos as f64 / NANOS_PER_SECOND;
    let of = |figure: &dyn Fn(&Answer) -> Value| Value::Array(run.answers.iter().map(figure).collect());
    let done = |answer: &Answer, value: Value| if answer.outcome == Outcome::Done { value } else { Value::Null };
    fields.insert("input_lens".into(), of(&|a| a.prompt_tokens.into()));
    fields.insert("output_lens".into(), of(&|a| a.output_tokens().into()));
    let first = |a: &Answer| a.chunks.first().map(|(t, _)| seconds(t.saturating_sub(a.arrival_nanos)));
    fields.insert("ttfts".into(), of(&|a| json!(first(a))));
    let gaps = |a: &Answer| Latencies::of(a).gaps.iter().map(|ms| ms / 1000.0).collect::<Vec<_>>();
    fields.insert("itls".into(), of(&|a| json!(gaps(a))));
    fields.insert("latencies".into(), of(&|a| done(a, json!(seconds(a.end_nanos.saturating_sub(a.arrival_nanos))))));
    let queued = |a: &Answer| seconds(a.arrival_nanos.saturating_sub(a.planned_nanos));
    fields.insert("queue_times".into(), of(&|a| json!(queued(a))));
    let start = |a: &Answer| seconds(a.arrival_nanos.saturating_sub(run.start_nanos));
    fields.insert("start_times".into(), of(&|a| json!(start(a))));
    fields.insert("generated_texts".into(), of(&|a| json!(a.text)));
    let error = |a: &Answer| match &a.outcome {
        Outcome::Done => json!(""),
        Outcome::Failed(reason) => json!(reason),
        Outcome::Stopped => json!("stopped before it was answered"),
    };
    fields.insert("errors".into(), of(&error));
}

impl Latencies {
    #[allow(clippy::cast_precision_loss, reason = "figures, not sums")]
    fn of(answer: &Answer) -> Self {
        let ms = |nanos: u64| nanos as f64 / NANOS_PER_MS;
        let since_arrival = |nanos: u64| ms(nanos.saturating_sub(answer.arrival_nanos));
        let first = answer.chunks.first().map(|(nanos, _)| *nanos);
        let last = answer.chunks.last().map(|(nanos, _)| *nanos);
        let tokens = answer.output_tokens();
        let tpot = match (first, last) {
            (Some(first), Some(last)) if tokens > 1 => Some(ms(last.saturating_sub(first)) / (tokens - 1) as f64),
            _ => None,
        };
        let gap = |pair: &[(u64, u32)]| {
            let count = pair[1].1;
            let each = ms(pair[1].0.saturating_sub(pair[0].0)) / f64::from(count);
            std::iter::repeat_n(each, usize::try_from(count).unwrap_or(0))
        };
        Self {
            ttft: first.map(since_arrival),
            tpot,
            gaps: answer.chunks.windows(2).flat_map(gap).collect(),
            // The last token's time, as vLLM has it; without any, the end's.
            e2el: since_arrival(last.unwrap_or(answer.end_nanos)),
        }
    }
}

/// JSON has no infinity; vLLM writes the word.
fn number_or_inf(value: f64) -> Value {
    if value.is_infinite() { json!("inf") } else { json!(value) }
}

/// Most tokens of one whole second since the start.
fn peak_tokens(start: u64, done: &[&Answer]) -> u64 {
    let mut by_second = std::collections::BTreeMap::new();
    for (nanos, tokens) in done.iter().flat_map(|answer| &answer.chunks) {
        *by_second.entry(nanos.saturating_sub(start) / 1_000_000_000).or_insert(0) += u64::from(*tokens);
    }
    by_second.into_values().max().unwrap_or(0)
}

/// Most requests between arrival and end at the same time.
fn peak_requests(done: &[&Answer]) -> u64 {
    // At one instant an end comes before an arrival.
    let mut moves: Vec<(u64, bool)> =
        done.iter().flat_map(|a| [(a.arrival_nanos, true), (a.end_nanos, false)]).collect();
    moves.sort_unstable();
    let (mut now, mut peak) = (0u64, 0);
    for (_, comes) in moves {
        now = if comes { now + 1 } else { now.saturating_sub(1) };
        peak = peak.max(now);
    }
    peak
}
