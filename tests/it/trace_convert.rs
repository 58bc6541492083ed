//! `trace convert` and `trace summary` on traces written by hand, whose spans and figures are known.

use serde_json::{Value, json};
use twostroke::error::Result;
use twostroke::load::random::Random;
use twostroke::trace::{Converted, Reader, Summary, convert};

use crate::trace_perfetto::{Shown, Span, check};

const META: &str = r#"{"kind":"meta","version":"0.1.0","model":"m \"q\"","adapter":"a","tier":"base","page_tokens":16,"pages":8,"policy":"slo","unix_ns":1}"#;

fn arrive(t: u64, id: u64, prompt: u32) -> String {
    json!({"kind": "arrive", "t": t, "id": id, "prompt_tokens": prompt, "max_tokens": 9, "priority": 0}).to_string()
}

fn admit(t: u64, id: u64, cached: u32, miss: Option<(&str, u32)>) -> String {
    let miss = miss.map(|(reason, at)| json!({"reason": reason, "at": at}));
    json!({"kind": "admit", "t": t, "id": id, "cached_tokens": cached, "miss": miss}).to_string()
}

fn of(kind: &str, t: u64, id: u64) -> String {
    json!({"kind": kind, "t": t, "id": id}).to_string()
}

fn finish(t: u64, id: u64, output: u32) -> String {
    json!({"kind": "finish", "t": t, "id": id, "reason": "stop", "output_tokens": output}).to_string()
}

/// Rows are `(id, kind, from, tokens)`.
fn step(n: u64, t0: u64, t1: u64, rows: &[(u64, &str, u32, u32)]) -> String {
    let row = |(id, kind, from, tokens): &(u64, &str, u32, u32)| {
        let accepted = (*kind == "verify").then_some(tokens / 2);
        json!({"id": id, "kind": kind, "from": from, "tokens": tokens, "accepted": accepted})
    };
    let rows: Vec<Value> = rows.iter().map(row).collect();
    json!({"kind": "step", "t0": t0, "t1": t1, "gpu_ns": t1 - t0, "n": n, "rows": rows, "pages_used": n + 1,
        "waiting": 3 - n.min(3)})
    .to_string()
}

/// Three requests that overlap without nesting; 2 is preempted and resumed, 3 hits the cache and is cancelled, 1 ends while
/// a step holds one more row of it. Milliseconds.
fn overlapping() -> Vec<String> {
    const MS: u64 = 1_000_000;
    vec![
        META.to_owned(),
        arrive(0, 1, 40),
        admit(MS, 1, 0, Some(("new", 0))),
        arrive(2 * MS, 2, 16),
        step(0, MS, 5 * MS, &[(1, "prefill", 0, 32)]),
        admit(5 * MS, 2, 0, Some(("differs", 3))),
        json!({"kind": "cost", "t": 5 * MS, "a": 1, "b": 2, "c": 3, "d": 4}).to_string(),
        step(1, 5 * MS, 10 * MS, &[(1, "prefill", 32, 8), (2, "prefill", 0, 16)]),
        arrive(11 * MS, 3, 33),
        admit(11 * MS, 3, 32, None),
        step(2, 10 * MS, 12 * MS, &[(1, "decode", 40, 1), (2, "decode", 16, 1)]),
        of("preempt", 12 * MS, 2),
        // The engine runs a step ahead: 2 was in it.
        step(3, 12 * MS, 14 * MS + 1, &[(1, "decode", 41, 1), (2, "decode", 17, 1), (3, "prefill", 32, 1)]),
        finish(14 * MS + 1, 1, 3),
        of("resume", 15 * MS, 2),
        step(4, 14 * MS + 1, 18 * MS, &[(1, "decode", 42, 1), (3, "verify", 33, 4)]),
        of("cancel", 18 * MS, 3),
        step(5, 18 * MS, 20 * MS, &[(2, "prefill", 0, 18), (3, "decode", 36, 1)]),
        step(6, 20 * MS, 21 * MS, &[(2, "decode", 18, 1)]),
        finish(21 * MS, 2, 4),
    ]
}

fn converted(lines: &[String]) -> (Converted, Shown) {
    let text = lines.join("\n") + "\n";
    let mut json = Vec::new();
    let counts = convert(Reader::new(text.as_bytes(), "t.jsonl"), &mut json, "t.json".as_ref()).expect("converts");
    (counts, check(std::str::from_utf8(&json).expect("text")))
}

fn summary(lines: &[String]) -> Value {
    let text = lines.join("\n") + "\n";
    Summary::of(Reader::new(text.as_bytes(), "t.jsonl")).expect("sums up").json()
}

fn named(spans: impl Iterator<Item = Span>) -> Vec<(String, u64, u64)> {
    let mut all: Vec<Span> = spans.collect();
    all.sort_by_key(|span| (span.from, span.depth, span.to));
    all.into_iter().map(|span| (span.name, span.from, span.to)).collect()
}

#[test]
fn f71_overlapping_requests_have_a_track_each_and_spans_nest_on_every_track() {
    let (counts, shown) = converted(&overlapping());
    assert_eq!(counts, Converted { requests: 3, steps: 7, rows: 10, discarded_rows: 3, ..Converted::default() });
    assert_eq!(
        shown.tracks().into_iter().collect::<Vec<_>>(),
        ["request 0x1", "request 0x2", "request 0x3", "thread 1"]
    );
    let requests = shown.spans.iter().filter(|span| span.name.starts_with("request ")).count();
    assert_eq!(requests, 3);
    // Three requests with their phases (3, 6 and 3 of them) and rows, and seven steps.
    let phases = ["queued", "prefill", "decode", "preempted"];
    let count = |track: &str| shown.of_track(track).filter(|span| phases.contains(&&*span.name)).count();
    assert_eq!([count("request 0x1"), count("request 0x2"), count("request 0x3")], [3, 6, 3]);
    assert_eq!(shown.spans.len(), 3 + 12 + 10 + 7);
}

#[test]
fn phases_and_rows_are_where_the_events_say() {
    const MS: u64 = 1_000_000;
    let (_, shown) = converted(&overlapping());
    let of = |track| named(shown.of_track(track).cloned());
    let at = |name: &str, from: u64, to: u64| (name.to_owned(), from, to);
    assert_eq!(
        of("request 0x1"),
        [
            at("request 1", 0, 14 * MS + 1),
            at("queued", 0, MS),
            at("prefill", MS, 10 * MS),
            at("0..32", MS, 5 * MS),
            at("32..40", 5 * MS, 10 * MS),
            at("decode", 10 * MS, 14 * MS + 1),
            at("token", 10 * MS, 12 * MS),
            at("token", 12 * MS, 14 * MS + 1),
        ]
    );
    assert_eq!(
        of("request 0x2")[5..],
        [
            at("token", 10 * MS, 12 * MS),
            at("preempted", 12 * MS, 15 * MS),
            at("prefill", 15 * MS, 20 * MS),
            at("0..18", 18 * MS, 20 * MS),
            at("decode", 20 * MS, 21 * MS),
            at("token", 20 * MS, 21 * MS),
        ]
    );
    let steps: Vec<String> =
        of("thread 1").into_iter().map(|(name, ..)| name).filter(|name| name != "cost model").collect();
    assert_eq!(steps, ["prefill", "prefill", "decode", "mixed", "decode", "mixed", "decode"]);
    let args = |track: &str, name: &str| shown.of_track(track).find(|s| s.name == name).expect(name).args.clone();
    assert_eq!(args("request 0x3", "prefill")["cached_tokens"], 32);
    assert_eq!(args("request 0x2", "request 2"), json!({"reason": "stop", "output_tokens": 4}));
    assert_eq!(args("request 0x3", "request 3"), json!({"reason": "cancelled", "output_tokens": 4}));
    assert_eq!(args("request 0x3", "verify +3")["accepted"], 2);
}

#[test]
fn every_row_has_an_arrow_from_its_step_and_every_step_its_counters() {
    let (counts, shown) = converted(&overlapping());
    assert_eq!(shown.flows.len() as u64, counts.rows);
    assert!(shown.flows.contains(&("mixed".to_owned(), "token".to_owned())), "{:?}", shown.flows);
    assert_eq!(shown.counters["pages used"].iter().map(|(_, v)| *v).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(shown.counters["queue waiting"].iter().map(|(_, v)| *v).collect::<Vec<_>>(), [3, 2, 1, 0, 0, 0, 0]);
    assert_eq!(shown.names["process_name"], "twostroke: m \"q\" on a");
    assert_eq!(shown.moments, [("thread 1".to_owned(), 5_000_000)], "the cost model");
}

#[test]
fn times_that_go_back_and_requests_that_never_end_still_nest() {
    let lines = [
        arrive(100, 1, 4),
        admit(50, 1, 0, None),
        step(0, 90, 200, &[(1, "prefill", 0, 4)]),
        step(1, 150, 300, &[(1, "decode", 4, 1), (9, "decode", 0, 1)]),
        of("preempt", 10, 1),
        of("resume", 20, 9),
        admit(310, 1, 0, None),
        admit(320, 1, 4, None),
        arrive(400, 2, 4),
    ];
    let (counts, shown) = converted(&lines);
    assert_eq!((counts.unfinished, counts.discarded_rows), (2, 1));
    let ends: Vec<u64> = shown.spans.iter().filter(|s| s.name.starts_with("request")).map(|s| s.to).collect();
    assert_eq!(ends, [400, 400]);
    assert_eq!(shown.moments, [("request 0x1".to_owned(), 320)], "a second admission is a moment");
}

fn pick<const N: usize>(random: &mut Random, from: [&'static str; N]) -> &'static str {
    from[usize::try_from(random.below(N as u64)).expect("an index")]
}

#[test]
fn random_events_always_give_spans_that_nest() {
    let mut random = Random::new(0x7ace);
    for case in 0..300 {
        let mut lines = vec![META.to_owned()];
        let mut live = std::collections::BTreeSet::new();
        for n in 0..40 {
            let (t, id) = (random.below(5000), random.below(4));
            let rows: Vec<(u64, &str, u32, u32)> = (0..random.below(4))
                .map(|_| (random.below(4), pick(&mut random, ["prefill", "decode", "verify"]), random.between(0, 9), 4))
                .collect();
            lines.push(match random.below(8) {
                0 if live.insert(id) => arrive(t, id, 6),
                1 => admit(t, id, 2, Some(("evicted", 2))),
                2 => of(pick(&mut random, ["preempt", "resume"]), t, id),
                3 if live.remove(&id) => of("cancel", t, id),
                4 if live.remove(&id) => finish(t, id, 1),
                _ => step(n, t, t + random.below(900), &rows),
            });
        }
        let (counts, shown) = converted(&lines);
        let requests = shown.spans.iter().filter(|span| span.name.starts_with("request ")).count();
        assert_eq!(requests as u64, counts.requests, "case {case}");
        assert_eq!(counts.unfinished, live.len() as u64, "case {case}");
        summary(&lines);
    }
}

#[test]
fn figures_are_those_of_the_events() {
    let figures = summary(&overlapping());
    let check = |pointer: &str, expected: Value| {
        assert_eq!(*figures.pointer(pointer).unwrap_or(&Value::Null), expected, "{pointer} in {figures}");
    };
    check("/requests", json!(3));
    check("/finished", json!({"stop": 2}));
    check("/cancelled", json!(1));
    check("/unfinished", json!(0));
    check("/prompt_tokens", json!(89));
    check("/output_tokens", json!(3 + 4 + 4));
    check("/cached_tokens", json!(32));
    check("/cached_share", json!(32.0 / 89.0));
    check("/misses", json!({"new": 1, "evicted": 0, "differs": 1}));
    check("/preemptions", json!(1));
    check("/resumes", json!(1));
    check("/steps", json!(7));
    check("/prefill_tokens", json!(32 + 8 + 16 + 1 + 18));
    check("/discarded_rows", json!(3));
    check("/pages_peak", json!(7));
    check("/pages", json!(8));
    check("/waiting_peak", json!(3));
    check("/duration_ms", json!(21.0));
    // First tokens at 10, 10 and 14.000001 ms, arrivals at 0, 2 and 11.
    check("/ttft_ms/samples", json!(3));
    check("/ttft_ms/median", json!(8.0));
    // 1: 4.000001 ms over two tokens; 2: 11 ms over three.
    check("/tpot_ms/samples", json!(2));
    check("/tpot_ms/max", json!(11.0 / 3.0));
    // 1: 2, 2.000001; 2: 2, 8, 1; 3: three of 3.999999 / 3.
    check("/itl_ms/samples", json!(8));
    check("/itl_ms/max", json!(8.0));
    check("/queue_ms/samples", json!(3));
    check("/step_ms/max", json!(5.0));
}

#[test]
fn a_statistic_of_nothing_is_null() {
    let figures = summary(&[META.to_owned()]);
    for name in ["ttft_ms", "tpot_ms", "itl_ms", "e2el_ms", "queue_ms", "step_ms", "gpu_ms", "cached_share"] {
        assert_eq!(figures[name], Value::Null, "{name}");
    }
}

#[test]
fn a_bad_line_is_named_and_a_torn_last_one_is_not_missed() {
    let convert_text = |text: &str| -> Result<Converted> {
        convert(Reader::new(text.as_bytes(), "t.jsonl"), Vec::new(), "t.json".as_ref())
    };
    let good = overlapping().join("\n");
    let twice = format!("{}\n{}\n{}\n", arrive(1, 5, 1), arrive(2, 6, 1), arrive(3, 5, 1));
    for (text, says) in [
        (format!("{good}\nnonsense\n{good}"), "line 21"),
        (twice, "line 3"),
        (String::new(), "t.jsonl"),
        (format!("{good}\n{META}\n"), "line 21"),
    ] {
        let error = convert_text(&text).expect_err("refused");
        assert!(error.exit_code() == 1 && error.to_string().contains(says), "{error}");
    }
    let torn = format!("{good}\n{}\n{{\"kind\":\"fin", json!({"kind": "weather", "t": 1}));
    let counts = convert_text(&torn).expect("readable");
    assert_eq!((counts.requests, counts.skipped_lines, counts.torn), (3, 1, true));
}
