//! A trace as Perfetto and chrome://tracing show it.
//!
//! ```text
//! steps        [prefill][mixed  ][decode][decode]      complete events; flows lead from a step to its rows
//! request 7    [request 7                        ]     one async track a request, so that no two requests share one
//!              [queued][prefill           ][decode]     phases
//!                      [0..64] [64..80]    [token ]     rows
//! pages used, queue waiting                             counters
//! ```
//! Spans on a track nest: rows lie within their phase, phases within their request. An engine that runs a step ahead may have
//! planned a row of a request that ended or lost its pages meanwhile; such rows are counted and not drawn. A time that would go back on its
//! track is moved to where the track is.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::chrome::Chrome;
use super::reader::Reader;
use super::tokens::Tokens;
use crate::engine::event::{Event, Miss, RowKind, StepRow};
use crate::error::{Error, Result};

const OP: &str = "write converted trace";

/// What was converted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Converted {
    /// Requests: tracks.
    pub requests: u64,
    /// Steps.
    pub steps: u64,
    /// Rows that are drawn.
    pub rows: u64,
    /// Rows of requests that had ended, or lost their pages, when their step came back.
    pub discarded_rows: u64,
    /// Requests that had not ended when the trace did.
    pub unfinished: u64,
    /// Lines of kinds that this version doesn't know.
    pub skipped_lines: u64,
    /// Whether the last line was torn.
    pub torn: bool,
}

/// Converts the trace `from` into the file `to`, which appears only once it is whole.
///
/// # Errors
/// `Usage` when both are one file; `Io`; `Format` with the number of the line.
pub fn convert_file(from: &Path, to: &Path) -> Result<Converted> {
    let reader = Reader::open(from)?;
    if let (Ok(from), Ok(to)) = (fs::canonicalize(from), fs::canonicalize(to))
        && from == to
    {
        return Err(Error::Usage(format!("trace convert: {} is both input and output", from.display())));
    }
    // A pipe or a device is written as it is; a file first beside its place.
    let special = fs::metadata(to).is_ok_and(|m| !m.is_file());
    let target = if special { to.to_owned() } else { beside(to) };
    let io = |source| Error::io(OP, to, source);
    let file = File::create(&target).map_err(io)?;
    let converted = convert(reader, BufWriter::with_capacity(1 << 16, file), to);
    if special {
        return converted;
    }
    let moved = converted.and_then(|converted| fs::rename(&target, to).map_err(io).map(|()| converted));
    if moved.is_err() {
        // The error is about the conversion; a part that stays behind is no second one.
        let _ = fs::remove_file(&target);
    }
    moved
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

/// Converts what `reader` gives and writes it to `out`, which `place` names in messages.
///
/// # Errors
/// `Io`; `Format` with the number of the line.
pub fn convert<R: BufRead, W: Write>(mut reader: Reader<R>, out: W, place: &Path) -> Result<Converted> {
    let io = |source| Error::io(OP, place, source);
    let mut timeline = Timeline::new(Chrome::start(out).map_err(io)?);
    while let Some(event) = reader.next() {
        let event = event?;
        if let Event::Arrive { id, .. } = &event
            && timeline.live.contains_key(id)
        {
            return Err(reader.refuse("an id that is not in use", format!("a second arrival of request {id}")));
        }
        timeline.take(&event).map_err(io)?;
    }
    let counts = Converted { skipped_lines: reader.skipped(), torn: reader.torn(), ..timeline.counts };
    timeline.finish(counts).map_err(io)
}

/// What a request is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Queued,
    Prefill,
    Decode,
    Preempted,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Preempted => "preempted",
        }
    }
}

/// A request whose span is open.
struct Live {
    id: u64,
    /// Its place among all requests: an id that comes again later has another track.
    track: u64,
    tokens: Tokens,
    /// The phase whose span is open.
    phase: Option<Phase>,
    /// No later span of the track begins before this.
    cursor: u64,
}

impl Live {
    /// Moves the track on to `t` and answers where it is.
    fn at(&mut self, t: u64) -> u64 {
        self.cursor = self.cursor.max(t);
        self.cursor
    }

    fn close_phase<W: Write>(&mut self, chrome: &mut Chrome<W>, t: u64) -> io::Result<()> {
        let t = self.at(t);
        match self.phase.take() {
            Some(phase) => chrome.end(self.track, phase.name(), t, &Value::Null),
            None => Ok(()),
        }
    }

    fn enter<W: Write>(&mut self, chrome: &mut Chrome<W>, phase: Phase, t: u64, args: &Value) -> io::Result<()> {
        self.close_phase(chrome, t)?;
        self.phase = Some(phase);
        chrome.begin(self.track, phase.name(), self.cursor, None, args)
    }

    fn close<W: Write>(mut self, chrome: &mut Chrome<W>, t: u64, args: &Value) -> io::Result<()> {
        self.close_phase(chrome, t)?;
        chrome.end(self.track, &title(self.id), self.cursor, args)
    }
}

fn title(id: u64) -> String {
    format!("request {id}")
}

struct Timeline<W> {
    chrome: Chrome<W>,
    live: BTreeMap<u64, Live>,
    /// End of the last step.
    step_end: u64,
    /// Latest time seen.
    end: u64,
    other: Value,
    counts: Converted,
}

impl<W: Write> Timeline<W> {
    fn new(chrome: Chrome<W>) -> Self {
        let counts = Converted::default();
        Self { chrome, live: BTreeMap::new(), step_end: 0, end: 0, other: json!({}), counts }
    }

    fn take(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::Meta { model, adapter, .. } => {
                self.other = serde_json::to_value(event)?;
                self.chrome.names(&format!("twostroke: {model} on {adapter}"), "steps")
            }
            Event::Arrive { t, id, prompt_tokens, max_tokens, priority } => {
                let args = json!({"prompt_tokens": prompt_tokens, "max_tokens": max_tokens, "priority": priority});
                self.arrive(*t, *id, *prompt_tokens, &args)
            }
            Event::Step { .. } => self.step(event),
            Event::Cost { t, a, b, c, d } => {
                self.seen(*t);
                self.chrome.thread_moment("cost model", *t, &json!({"a": a, "b": b, "c": c, "d": d}))
            }
            Event::Admit { t, id, cached_tokens, miss } => self.admit(*t, *id, *cached_tokens, *miss),
            Event::Preempt { t, id } => self.enter(*t, *id, Phase::Preempted),
            Event::Resume { t, id } => self.enter(*t, *id, Phase::Prefill),
            Event::Cancel { t, id } => {
                self.close(*t, *id, |live| json!({"reason": "cancelled", "output_tokens": live.tokens.produced()}))
            }
            Event::Finish { t, id, reason, output_tokens } => {
                self.close(*t, *id, |_| json!({"reason": reason, "output_tokens": output_tokens}))
            }
        }
    }

    fn seen(&mut self, t: u64) {
        self.end = self.end.max(t);
    }

    fn arrive(&mut self, t: u64, id: u64, prompt_tokens: u32, args: &Value) -> io::Result<()> {
        self.seen(t);
        self.counts.requests += 1;
        let track = self.counts.requests;
        let mut live = Live { id, track, tokens: Tokens::new(prompt_tokens), phase: None, cursor: t };
        self.chrome.begin(track, &title(id), t, None, args)?;
        live.enter(&mut self.chrome, Phase::Queued, t, &Value::Null)?;
        self.live.insert(id, live);
        Ok(())
    }

    fn admit(&mut self, t: u64, id: u64, cached_tokens: u32, miss: Option<Miss>) -> io::Result<()> {
        self.seen(t);
        let Some(live) = self.live.get_mut(&id) else { return Ok(()) };
        let args = json!({"cached_tokens": cached_tokens, "miss": miss});
        if matches!(live.phase, Some(Phase::Queued | Phase::Preempted)) {
            return live.enter(&mut self.chrome, Phase::Prefill, t, &args);
        }
        let t = live.at(t);
        self.chrome.moment(live.track, "admitted", t, &args)
    }

    fn enter(&mut self, t: u64, id: u64, phase: Phase) -> io::Result<()> {
        self.seen(t);
        match self.live.get_mut(&id) {
            // An admission may have opened it already.
            Some(live) if live.phase != Some(phase) => live.enter(&mut self.chrome, phase, t, &Value::Null),
            _ => Ok(()),
        }
    }

    /// A second end, or the end of a request from before the trace, is passed over.
    fn close(&mut self, t: u64, id: u64, args: impl Fn(&Live) -> Value) -> io::Result<()> {
        self.seen(t);
        match self.live.remove(&id) {
            Some(live) => {
                let args = args(&live);
                live.close(&mut self.chrome, t, &args)
            }
            None => Ok(()),
        }
    }

    fn step(&mut self, event: &Event) -> io::Result<()> {
        let Event::Step { t0, t1, gpu_ns, n, rows, pages_used, waiting } = event else { return Ok(()) };
        let from = self.step_end.max(*t0);
        let to = from.max(*t1);
        (self.step_end, self.counts.steps) = (to, self.counts.steps + 1);
        self.seen(to);
        let prefill: u64 = rows.iter().filter(|r| r.kind == RowKind::Prefill).map(|r| u64::from(r.tokens)).sum();
        let others = rows.iter().filter(|r| r.kind != RowKind::Prefill).count();
        let name = match (prefill, others) {
            (0, _) => "decode",
            (_, 0) => "prefill",
            _ => "mixed",
        };
        let args = json!({"n": n, "prefill_tokens": prefill, "decode_rows": others, "gpu_ns": gpu_ns,
            "pages_used": pages_used, "waiting": waiting});
        // Before its rows: a flow starts before it ends.
        self.chrome.complete(name, from, to, *n, &args)?;
        self.chrome.counter("pages", "used", from, *pages_used)?;
        self.chrome.counter("queue", "waiting", from, *waiting)?;
        for row in rows {
            self.row(row, from, to, *n)?;
        }
        Ok(())
    }

    fn row(&mut self, row: &StepRow, from: u64, to: u64, step: u64) -> io::Result<()> {
        let live = self.live.get_mut(&row.id).filter(|live| live.phase != Some(Phase::Preempted));
        let Some(live) = live else {
            self.counts.discarded_rows += 1;
            return Ok(());
        };
        self.counts.rows += 1;
        let phase = if row.kind == RowKind::Prefill { Phase::Prefill } else { Phase::Decode };
        if live.phase != Some(phase) {
            // Decode begins where prefill ended, so that a step between them shows as a gap within a phase.
            let t = if phase == Phase::Decode { live.cursor } else { from };
            live.enter(&mut self.chrome, phase, t, &Value::Null)?;
        }
        let yields = live.tokens.take(row);
        let name = match row.kind {
            RowKind::Prefill => format!("{}..{}", row.from, u64::from(row.from) + u64::from(row.tokens)),
            RowKind::Decode => "token".to_owned(),
            RowKind::Verify => format!("verify +{yields}"),
        };
        let mut args = json!({"from": row.from, "tokens": row.tokens, "yields": yields, "step": step});
        if let Some(accepted) = row.accepted {
            args["accepted"] = json!(accepted);
        }
        let begin = live.at(from);
        self.chrome.begin(live.track, &name, begin, Some(step), &args)?;
        let end = live.at(to);
        self.chrome.end(live.track, &name, end, &Value::Null)?;
        if phase == Phase::Prefill && yields > 0 {
            live.close_phase(&mut self.chrome, end)?;
        }
        Ok(())
    }

    fn finish(mut self, counts: Converted) -> io::Result<Converted> {
        let unfinished = self.live.len() as u64;
        let end = self.end;
        for (_, live) in std::mem::take(&mut self.live) {
            live.close(&mut self.chrome, end, &json!({"unfinished": true}))?;
        }
        self.chrome.finish(&self.other)?;
        Ok(Converted { unfinished, ..counts })
    }
}
