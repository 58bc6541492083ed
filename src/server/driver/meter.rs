//! Figures for Prometheus, by vLLM's names and buckets under `twostroke:`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder, SharedString, Unit};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use crate::clock::Clock;
use crate::engine::event::{Event, RowKind};
use crate::engine::request::{FinishReason, RequestId};
use crate::sched::Counters;

const TTFT: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];
const ITL: [f64; 19] =
    [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];
const REQUEST: [f64; 21] = [
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
];
const ITERATION: [f64; 13] = [1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];
const TOKENS: [f64; 16] = [
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0, 20_000.0, 50_000.0,
    100_000.0,
];

const METADATA: Metadata<'static> = Metadata::new("twostroke", Level::INFO, None);
/// Why answers end, as `finished_reason`.
const REASONS: [FinishReason; 4] =
    [FinishReason::Stop, FinishReason::Length, FinishReason::Cancelled, FinishReason::NotFinite];

/// Counts and measures. Clones share their figures.
#[derive(Clone)]
pub struct Meter {
    figures: Arc<Figures>,
    live: Arc<Mutex<BTreeMap<RequestId, Live>>>,
    clock: Clock,
    render: PrometheusHandle,
}

/// Times of a request that lives.
struct Live {
    arrived: u64,
    admitted: Option<u64>,
    first: Option<u64>,
    last: u64,
    prompt_tokens: usize,
    tokens: u32,
}

struct Figures {
    running: Gauge,
    waiting: Gauge,
    kv_usage: Gauge,
    prompt_tokens: Counter,
    generation_tokens: Counter,
    cached_tokens: Counter,
    queries: Counter,
    hits: Counter,
    preemptions: Counter,
    ended: [Counter; REASONS.len()],
    refused: Counter,
    device_failures: Counter,
    gpu_seconds: [Gauge; 3],
    gpu_nanos: Mutex<[u64; 3]>,
    iteration_tokens: Histogram,
    ttft: Histogram,
    itl: Histogram,
    tpot: Histogram,
    e2e: Histogram,
    queue: Histogram,
    prefill: Histogram,
    decode: Histogram,
    inference: Histogram,
    request_prompt: Histogram,
    request_generation: Histogram,
    request_max: Histogram,
}

/// Registers figures of one model.
struct Register {
    recorder: PrometheusRecorder,
    labels: Vec<Label>,
}

impl Register {
    fn key(&self, name: &'static str, more: &[(&'static str, &'static str)]) -> Key {
        let more = more.iter().map(|&(name, value)| Label::from_static_parts(name, value));
        Key::from_parts(full(name), self.labels.iter().cloned().chain(more).collect::<Vec<_>>())
    }

    fn counter(&self, name: &'static str, help: &'static str, more: &[(&'static str, &'static str)]) -> Counter {
        self.recorder.describe_counter(KeyName::from(full(name)), None::<Unit>, SharedString::from(help));
        self.recorder.register_counter(&self.key(name, more), &METADATA)
    }

    fn gauge(&self, name: &'static str, help: &'static str, more: &[(&'static str, &'static str)]) -> Gauge {
        self.recorder.describe_gauge(KeyName::from(full(name)), None::<Unit>, SharedString::from(help));
        self.recorder.register_gauge(&self.key(name, more), &METADATA)
    }

    fn histogram(&self, name: &'static str, help: &'static str) -> Histogram {
        self.recorder.describe_histogram(KeyName::from(full(name)), None::<Unit>, SharedString::from(help));
        self.recorder.register_histogram(&self.key(name, &[]), &METADATA)
    }
}

fn full(name: &str) -> String {
    format!("twostroke:{name}")
}

const BUCKETS: [(&str, &[f64]); 11] = [
    ("iteration_tokens_total", &ITERATION),
    ("time_to_first_token_seconds", &TTFT),
    ("inter_token_latency_seconds", &ITL),
    ("request_time_per_output_token_seconds", &ITL),
    ("e2e_request_latency_seconds", &REQUEST),
    ("request_queue_time_seconds", &REQUEST),
    ("request_prefill_time_seconds", &REQUEST),
    ("request_decode_time_seconds", &REQUEST),
    ("request_inference_time_seconds", &REQUEST),
    ("request_prompt_tokens", &TOKENS),
    ("request_generation_tokens", &TOKENS),
];

impl Meter {
    /// Figures of `model`, all zero. `clock` is the engine's.
    #[must_use]
    pub fn new(model: &str, clock: Clock) -> Self {
        let mut builder = PrometheusBuilder::new();
        for (name, buckets) in BUCKETS.into_iter().chain([("request_params_max_tokens", TOKENS.as_slice())]) {
            builder = builder.set_buckets_for_metric(Matcher::Full(full(name)), buckets).expect("buckets are listed");
        }
        let labels = vec![Label::new("model_name", model.to_owned()), Label::from_static_parts("engine", "0")];
        let register = Register { recorder: builder.build_recorder(), labels };
        let render = register.recorder.handle();
        Self { figures: Arc::new(Figures::new(&register)), live: Arc::default(), clock, render }
    }

    /// The figures as Prometheus scrapes them.
    #[must_use]
    pub fn text(&self) -> String {
        self.render.run_upkeep();
        self.render.render()
    }

    pub(super) fn arrived(&self, id: RequestId, nanos: u64, prompt_tokens: usize, max_tokens: Option<u32>) {
        let live = Live { arrived: nanos, admitted: None, first: None, last: nanos, prompt_tokens, tokens: 0 };
        self.live().insert(id, live);
        if let Some(max) = max_tokens {
            self.figures.request_max.record(f64::from(max));
        }
    }

    pub(super) fn refused(&self) {
        self.figures.refused.increment(1);
    }

    pub(super) fn device_failed(&self) {
        self.figures.device_failures.increment(1);
    }

    pub(super) fn admitted(&self, id: RequestId, nanos: u64, cached_tokens: u32) {
        let mut all = self.live();
        let Some(live) = all.get_mut(&id) else { return };
        if live.admitted.is_none() {
            live.admitted = Some(nanos);
            self.figures.queries.increment(live.prompt_tokens as u64);
            self.figures.hits.increment(cached_tokens.into());
            self.figures.cached_tokens.increment(cached_tokens.into());
            self.figures.queue.record(seconds(live.arrived, nanos));
        }
    }

    pub(super) fn token(&self, id: RequestId, nanos: u64) {
        let mut all = self.live();
        let Some(live) = all.get_mut(&id) else { return };
        let figures = &self.figures;
        figures.generation_tokens.increment(1);
        if live.first.is_none() {
            live.first = Some(nanos);
            figures.prompt_tokens.increment(live.prompt_tokens as u64);
            figures.ttft.record(seconds(live.arrived, nanos));
        } else {
            figures.itl.record(seconds(live.last, nanos));
        }
        live.last = nanos;
        live.tokens += 1;
    }

    pub(super) fn finished(&self, id: RequestId, reason: FinishReason) {
        let Some(live) = self.live().remove(&id) else { return };
        let figures = &self.figures;
        let at = REASONS.iter().position(|one| *one == reason).expect("all reasons are listed");
        figures.ended[at].increment(1);
        let Some(first) = live.first else { return };
        let admitted = live.admitted.unwrap_or(live.arrived);
        figures.e2e.record(seconds(live.arrived, self.clock.nanos()));
        figures.prefill.record(seconds(admitted, first));
        figures.decode.record(seconds(first, live.last));
        figures.inference.record(seconds(admitted, live.last));
        figures.request_prompt.record(float(live.prompt_tokens as u64));
        figures.request_generation.record(f64::from(live.tokens));
        if live.tokens > 1 {
            figures.tpot.record(seconds(first, live.last) / f64::from(live.tokens - 1));
        }
    }

    pub(super) fn counters(&self, counters: &Counters) {
        let figures = &self.figures;
        figures.running.set(float(counters.running as u64));
        figures.waiting.set(float(counters.waiting as u64));
        let pages = counters.pages_used + counters.pages_cached + counters.pages_free;
        figures.kv_usage.set(f64::from(counters.pages_used) / f64::from(pages.max(1)));
        figures.preemptions.absolute(counters.preemptions);
    }

    pub(super) fn observe(&self, event: &Event) {
        let Event::Step { rows, gpu_ns, .. } = event else { return };
        let tokens: u64 = rows.iter().map(|row| u64::from(row.tokens)).sum();
        self.figures.iteration_tokens.record(float(tokens));
        let Some(nanos) = gpu_ns else { return };
        let is_prefill = |kind: RowKind| kind == RowKind::Prefill;
        let phase = match (rows.iter().any(|row| is_prefill(row.kind)), rows.iter().any(|row| !is_prefill(row.kind))) {
            (true, false) => 0,
            (false, _) => 1,
            (true, true) => 2,
        };
        let mut all = self.figures.gpu_nanos.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        all[phase] += nanos;
        self.figures.gpu_seconds[phase].set(seconds(0, all[phase]));
    }

    fn live(&self) -> std::sync::MutexGuard<'_, BTreeMap<RequestId, Live>> {
        self.live.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn float(n: u64) -> f64 {
    n as f64
}

fn seconds(from: u64, to: u64) -> f64 {
    float(to.saturating_sub(from)) / 1e9
}

impl Figures {
    fn new(r: &Register) -> Self {
        let ended = |reason: FinishReason| {
            let name = match reason {
                FinishReason::Cancelled => "abort",
                other => other.name(),
            };
            r.counter("request_success_total", "Requests that ended, by reason", &[("finished_reason", name)])
        };
        let gpu = |phase| {
            r.gauge("gpu_seconds", "Time on the GPU by what a step held; none without timestamps", &[("phase", phase)])
        };
        Self {
            running: r.gauge("num_requests_running", "Requests that have a slot", &[]),
            waiting: r.gauge("num_requests_waiting", "Requests that wait for a slot", &[]),
            kv_usage: r.gauge("kv_cache_usage_perc", "Share of KV pages in use, 1 is all", &[]),
            prompt_tokens: r.counter("prompt_tokens_total", "Prompt tokens of requests that have a token", &[]),
            generation_tokens: r.counter("generation_tokens_total", "Tokens generated", &[]),
            cached_tokens: r.counter("prompt_tokens_cached_total", "Prompt tokens found in the prompt cache", &[]),
            queries: r.counter("prefix_cache_queries_total", "Prompt tokens looked up in the prompt cache", &[]),
            hits: r.counter("prefix_cache_hits_total", "Prompt tokens found in the prompt cache", &[]),
            preemptions: r.counter("num_preemptions_total", "Requests that lost their pages for a while", &[]),
            ended: REASONS.map(ended),
            refused: r.counter(
                "request_refused_total",
                "Requests that the engine refused, a full queue among them",
                &[],
            ),
            device_failures: r.counter("device_failures_total", "Steps that the device failed", &[]),
            gpu_seconds: ["prefill", "decode", "mixed"].map(gpu),
            gpu_nanos: Mutex::default(),
            iteration_tokens: r.histogram("iteration_tokens_total", "Tokens of a step"),
            ttft: r.histogram("time_to_first_token_seconds", "From arrival to the first token"),
            itl: r.histogram("inter_token_latency_seconds", "Gaps between tokens"),
            tpot: r.histogram("request_time_per_output_token_seconds", "Mean gap of a request's tokens"),
            e2e: r.histogram("e2e_request_latency_seconds", "From arrival to the end"),
            queue: r.histogram("request_queue_time_seconds", "From arrival to the first slot"),
            prefill: r.histogram("request_prefill_time_seconds", "From the first slot to the first token"),
            decode: r.histogram("request_decode_time_seconds", "From the first token to the last"),
            inference: r.histogram("request_inference_time_seconds", "From the first slot to the last token"),
            request_prompt: r.histogram("request_prompt_tokens", "Prompt tokens of a request"),
            request_generation: r.histogram("request_generation_tokens", "Tokens of an answer"),
            request_max: r.histogram("request_params_max_tokens", "max_tokens, where a request names it"),
        }
    }
}
