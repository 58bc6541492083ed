//! The figures of a trace: what requests waited for, what steps took, what the prompt cache spared.
//!
//! Counted from the events alone, with the definitions that `replay` has: TTFT from arrival to the first token, TPOT over
//! the tokens after it, one inter-token gap a token.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::BufRead;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::reader::Reader;
use super::tokens::Tokens;
use crate::engine::event::{Event, MissReason, RowKind, StepRow};
use crate::error::Result;
use crate::load::spread::Spread;

const NANOS_PER_MS: f64 = 1e6;

/// A request that has not ended.
struct Live {
    tokens: Tokens,
    arrive: u64,
    prompt_tokens: u32,
    admitted: bool,
    /// Its pages are gone; rows of a step that was in flight count for nothing.
    preempted: bool,
    first: Option<u64>,
    last: u64,
}

/// Samples in milliseconds.
#[derive(Debug, Default)]
struct Samples {
    queue: Vec<f64>,
    ttft: Vec<f64>,
    tpot: Vec<f64>,
    itl: Vec<f64>,
    e2el: Vec<f64>,
    step: Vec<f64>,
    gpu: Vec<f64>,
}

/// Whole numbers of a trace.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Counts {
    requests: u64,
    finished: BTreeMap<String, u64>,
    cancelled: u64,
    unfinished: u64,
    prompt_tokens: u64,
    admitted_prompt_tokens: u64,
    cached_tokens: u64,
    output_tokens: u64,
    misses: BTreeMap<MissReason, u64>,
    preemptions: u64,
    resumes: u64,
    steps: u64,
    prefill_tokens: u64,
    decode_rows: u64,
    verify_rows: u64,
    discarded_rows: u64,
    pages: Option<u32>,
    pages_peak: u32,
    waiting_peak: u32,
    duration_nanos: u64,
    skipped_lines: u64,
    torn: bool,
}

/// The figures of a trace.
pub struct Summary {
    meta: Option<Event>,
    counts: Counts,
    live: BTreeMap<u64, Live>,
    samples: Samples,
}

impl Summary {
    /// Of the trace at `path`.
    ///
    /// # Errors
    /// `Io`; `Format` with the number of the line.
    pub fn of_file(path: &Path) -> Result<Self> {
        Self::of(Reader::open(path)?)
    }

    /// Of what `reader` gives.
    ///
    /// # Errors
    /// `Io`; `Format` with the number of the line.
    pub fn of<R: BufRead>(mut reader: Reader<R>) -> Result<Self> {
        let (counts, samples) = (Counts::default(), Samples::default());
        let mut summary = Self { meta: None, counts, live: BTreeMap::new(), samples };
        for event in reader.by_ref() {
            summary.take(event?);
        }
        summary.counts.unfinished = summary.live.len() as u64;
        summary.counts.output_tokens += summary.live.values().map(|live| live.tokens.produced()).sum::<u64>();
        (summary.counts.skipped_lines, summary.counts.torn) = (reader.skipped(), reader.torn());
        Ok(summary)
    }

    fn take(&mut self, event: Event) {
        self.counts.duration_nanos = self.counts.duration_nanos.max(time(&event));
        match event {
            Event::Meta { pages, .. } => {
                self.counts.pages = Some(pages);
                self.meta = Some(event);
            }
            Event::Arrive { t, id, prompt_tokens, .. } => self.arrive(t, id, prompt_tokens),
            Event::Admit { t, id, cached_tokens, miss } => {
                self.admit(t, id, cached_tokens, miss.map(|miss| miss.reason));
            }
            Event::Step { t0, t1, gpu_ns, rows, pages_used, waiting, .. } => {
                let counts = &mut self.counts;
                counts.steps += 1;
                counts.pages_peak = counts.pages_peak.max(pages_used);
                counts.waiting_peak = counts.waiting_peak.max(waiting);
                self.samples.step.push(ms(t0, t1));
                self.samples.gpu.extend(gpu_ns.map(|nanos| ms(0, nanos)));
                rows.iter().for_each(|row| self.row(row, t1));
            }
            Event::Cost { .. } => {}
            Event::Preempt { id, .. } => {
                self.counts.preemptions += 1;
                self.live.entry(id).and_modify(|live| live.preempted = true);
            }
            Event::Resume { id, .. } => {
                self.counts.resumes += 1;
                self.live.entry(id).and_modify(|live| live.preempted = false);
            }
            Event::Cancel { id, .. } => {
                if let Some(live) = self.live.remove(&id) {
                    self.counts.cancelled += 1;
                    self.counts.output_tokens += live.tokens.produced();
                }
            }
            Event::Finish { t, id, reason, output_tokens } => self.finish(t, id, reason, output_tokens),
        }
    }

    fn arrive(&mut self, t: u64, id: u64, prompt_tokens: u32) {
        self.counts.requests += 1;
        self.counts.prompt_tokens += u64::from(prompt_tokens);
        let tokens = Tokens::new(prompt_tokens);
        let live = Live { tokens, arrive: t, prompt_tokens, admitted: false, preempted: false, first: None, last: t };
        self.live.insert(id, live);
    }

    /// What a resumed request finds is mostly its own, so the cache's share is of first admissions.
    fn admit(&mut self, t: u64, id: u64, cached_tokens: u32, miss: Option<MissReason>) {
        let Some(live) = self.live.get_mut(&id) else { return };
        live.preempted = false;
        if std::mem::replace(&mut live.admitted, true) {
            return;
        }
        self.samples.queue.push(ms(live.arrive, t));
        self.counts.admitted_prompt_tokens += u64::from(live.prompt_tokens);
        self.counts.cached_tokens += u64::from(cached_tokens);
        if let Some(reason) = miss {
            *self.counts.misses.entry(reason).or_default() += 1;
        }
    }

    fn row(&mut self, row: &StepRow, t: u64) {
        let Some(live) = self.live.get_mut(&row.id).filter(|live| !live.preempted) else {
            self.counts.discarded_rows += 1;
            return;
        };
        match row.kind {
            RowKind::Prefill => self.counts.prefill_tokens += u64::from(row.tokens),
            RowKind::Decode => self.counts.decode_rows += 1,
            RowKind::Verify => self.counts.verify_rows += 1,
        }
        let yields = live.tokens.take(row);
        if yields == 0 {
            return;
        }
        if live.first.is_none() {
            live.first = Some(t);
            self.samples.ttft.push(ms(live.arrive, t));
        } else {
            let each = ms(live.last, t) / as_f64(yields);
            self.samples.itl.extend((0..yields).map(|_| each));
        }
        live.last = t;
    }

    fn finish(&mut self, t: u64, id: u64, reason: String, output_tokens: u32) {
        let Some(live) = self.live.remove(&id) else { return };
        *self.counts.finished.entry(reason).or_default() += 1;
        self.counts.output_tokens += u64::from(output_tokens);
        self.samples.e2el.push(ms(live.arrive, t));
        let produced = live.tokens.produced();
        if let Some(first) = live.first.filter(|_| produced > 1) {
            self.samples.tpot.push(ms(first, live.last) / as_f64(produced - 1));
        }
    }

    /// Of the prompt tokens that were admitted, the share that was in the cache.
    fn cached_share(&self) -> Option<f64> {
        let all = self.counts.admitted_prompt_tokens;
        (all > 0).then(|| as_f64(self.counts.cached_tokens) / as_f64(all))
    }

    fn spreads(&self) -> [(&'static str, Option<Spread>); 7] {
        let of = |sample: &Vec<f64>| Spread::of(sample.clone());
        let s = &self.samples;
        [
            ("ttft_ms", of(&s.ttft)),
            ("tpot_ms", of(&s.tpot)),
            ("itl_ms", of(&s.itl)),
            ("e2el_ms", of(&s.e2el)),
            ("queue_ms", of(&s.queue)),
            ("step_ms", of(&s.step)),
            ("gpu_ms", of(&s.gpu)),
        ]
    }

    /// For machines.
    #[must_use]
    pub fn json(&self) -> Value {
        let c = &self.counts;
        let misses: Map<String, Value> = [MissReason::New, MissReason::Evicted, MissReason::Differs]
            .map(|reason| (miss_name(reason).to_owned(), c.misses.get(&reason).copied().unwrap_or(0).into()))
            .into_iter()
            .collect();
        let mut json = json!({
            "meta": self.meta, "duration_ms": ms(0, c.duration_nanos), "requests": c.requests, "finished": c.finished,
            "cancelled": c.cancelled, "unfinished": c.unfinished, "prompt_tokens": c.prompt_tokens,
            "output_tokens": c.output_tokens, "cached_tokens": c.cached_tokens, "cached_share": self.cached_share(),
            "misses": misses, "preemptions": c.preemptions, "resumes": c.resumes, "steps": c.steps,
            "prefill_tokens": c.prefill_tokens, "decode_rows": c.decode_rows, "verify_rows": c.verify_rows,
            "discarded_rows": c.discarded_rows, "pages": c.pages, "pages_peak": c.pages_peak,
            "waiting_peak": c.waiting_peak, "skipped_lines": c.skipped_lines, "torn": c.torn,
        });
        for (name, spread) in self.spreads() {
            json[name] = json!(spread.map(|s| {
                json!({"samples": s.count(), "mean": s.mean(), "median": s.median(), "std": s.deviation(),
                    "p99": s.percentile(99.0), "max": s.max()})
            }));
        }
        json
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let c = &self.counts;
        let mut out = String::new();
        let mut line = |name: &str, value: String| {
            let _ = writeln!(out, "{name:<15} {value}");
        };
        if let Some(Event::Meta { version, model, adapter, tier, policy, .. }) = &self.meta {
            line("run", format!("{model} on {adapter} ({tier}), policy {policy}, twostroke {version}"));
        }
        line("duration", format!("{:.1} ms, {} steps", ms(0, c.duration_nanos), c.steps));
        let ends = c.finished.iter().map(|(reason, count)| format!("{count} {reason}"));
        let others = [("cancelled", c.cancelled), ("unfinished", c.unfinished)];
        let others = others.iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{count} {name}"));
        line("requests", format!("{}: {}", c.requests, or_none(ends.chain(others))));
        line("tokens", format!("{} prompt, {} output", c.prompt_tokens, c.output_tokens));
        let share = self.cached_share().map_or(String::new(), |share| format!(" ({:.1} %)", share * 100.0));
        line("cached", format!("{} prompt tokens{share}", c.cached_tokens));
        let misses = c.misses.iter().map(|(reason, count)| format!("{count} {}", miss_name(*reason)));
        line("misses", or_none(misses));
        line("preemptions", format!("{}, resumed {}", c.preemptions, c.resumes));
        let rows = format!("{} prefill tokens, {} decode, {} verify", c.prefill_tokens, c.decode_rows, c.verify_rows);
        line("rows", format!("{rows}, {} discarded", c.discarded_rows));
        let pages = c.pages.map_or(String::new(), |pages| format!(" of {pages}"));
        line("peaks", format!("{}{pages} pages, {} waiting", c.pages_peak, c.waiting_peak));
        let table = self.table();
        let _ = write!(out, "\n{table}");
        if c.skipped_lines > 0 {
            let _ = writeln!(out, "\n{} lines of kinds that this version does not know were skipped", c.skipped_lines);
        }
        if c.torn {
            let _ = writeln!(out, "\nthe last line is torn and was left out");
        }
        out
    }

    fn table(&self) -> String {
        let heads = ["samples", "mean", "median", "std", "p99", "max"];
        let mut out = format!("{:<15}", "");
        heads.iter().for_each(|head| out.push_str(&format!(" {head:>10}")));
        out.push('\n');
        for (name, spread) in self.spreads() {
            let _ = write!(out, "{name:<15}");
            match spread {
                None => out.push_str(&format!(" {:>10}", 0)),
                Some(s) => {
                    let _ = write!(out, " {:>10}", s.count());
                    for figure in [s.mean(), s.median(), s.deviation(), s.percentile(99.0), s.max()] {
                        let _ = write!(out, " {figure:>10.3}");
                    }
                }
            }
            out.push('\n');
        }
        out
    }
}

fn or_none(parts: impl Iterator<Item = String>) -> String {
    let joined = parts.collect::<Vec<_>>().join(", ");
    if joined.is_empty() { "none".to_owned() } else { joined }
}

fn miss_name(reason: MissReason) -> &'static str {
    match reason {
        MissReason::New => "new",
        MissReason::Evicted => "evicted",
        MissReason::Differs => "differs",
    }
}

fn time(event: &Event) -> u64 {
    match event {
        Event::Meta { .. } => 0,
        Event::Step { t1, .. } => *t1,
        Event::Arrive { t, .. }
        | Event::Admit { t, .. }
        | Event::Cost { t, .. }
        | Event::Preempt { t, .. }
        | Event::Resume { t, .. }
        | Event::Cancel { t, .. }
        | Event::Finish { t, .. } => *t,
    }
}

#[allow(clippy::cast_precision_loss, reason = "figures, not sums")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

fn ms(from: u64, to: u64) -> f64 {
    as_f64(to.saturating_sub(from)) / NANOS_PER_MS
}
