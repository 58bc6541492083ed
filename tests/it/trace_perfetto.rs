//! A checker for the JSON that Perfetto imports, written from its importer's rules and not from our writer: which track an
//! event is on, that spans on a track nest, that flows bind, that numbers are numbers.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// A span of a track, times in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Span {
    pub(crate) track: String,
    pub(crate) name: String,
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Spans around it on its track.
    pub(crate) depth: usize,
    pub(crate) args: Value,
}

/// What a file shows.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    /// In order of their ends.
    pub(crate) spans: Vec<Span>,
    /// Arrows: name of the span they start in, and of the one they end in.
    pub(crate) flows: Vec<(String, String)>,
    /// Samples of each counter.
    pub(crate) counters: BTreeMap<String, Vec<(u64, u64)>>,
    pub(crate) moments: Vec<(String, u64)>,
    pub(crate) names: BTreeMap<String, String>,
}

impl Shown {
    pub(crate) fn of_track<'a>(&'a self, track: &'a str) -> impl Iterator<Item = &'a Span> {
        self.spans.iter().filter(move |span| span.track == track)
    }

    pub(crate) fn tracks(&self) -> BTreeSet<&str> {
        self.spans.iter().map(|span| span.track.as_str()).collect()
    }
}

/// Microseconds with a fraction, as Perfetto takes them, in nanoseconds; from the text, so that no digit is lost.
fn nanos(value: &Value) -> u64 {
    assert!(value.is_number(), "{value} is no number");
    let text = value.to_string();
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    assert!(part.len() <= 3 && part.bytes().all(|b| b.is_ascii_digit()), "{text} is finer than a nanosecond");
    whole.parse::<u64>().expect("microseconds") * 1000 + format!("{part:0<3}").parse::<u64>().expect("digits")
}

fn text<'a>(event: &'a Value, key: &str) -> &'a str {
    event[key].as_str().unwrap_or_else(|| panic!("no text {key} in {event}"))
}

/// Reads and checks a whole file.
#[track_caller]
pub(crate) fn check(json: &str) -> Shown {
    let root: Value = serde_json::from_str(json).expect("one JSON value");
    assert!(root.is_object() && root["displayTimeUnit"] == "ms", "the object form of the format");
    let mut events: Vec<&Value> = root["traceEvents"].as_array().expect("traceEvents").iter().collect();
    let mut shown = Shown::default();
    for event in events.extract_if(.., |event| event["ph"] == "M") {
        shown.names.insert(text(event, "name").to_owned(), text(&event["args"], "name").to_owned());
    }
    // The importer sorts by time and keeps the order of the file among equals.
    events.sort_by_key(|event| nanos(&event["ts"]));
    let mut open: BTreeMap<String, Vec<Span>> = BTreeMap::new();
    let mut flows_out: BTreeMap<&str, String> = BTreeMap::new();
    for event in events {
        assert!(event["pid"].is_u64(), "{event}");
        let (at, name) = (nanos(&event["ts"]), text(event, "name").to_owned());
        let thread = || format!("thread {}", event["tid"].as_u64().expect("a thread"));
        let asynchronous = || format!("{} {}", text(event, "cat"), text(event, "id"));
        match text(event, "ph") {
            "X" => {
                let (track, to) = (thread(), at + nanos(&event["dur"]));
                leave(&mut shown, open.entry(track.clone()).or_default(), at);
                flow(event, &name, &mut flows_out, &mut shown);
                enter(
                    open.entry(track.clone()).or_default(),
                    Span { track, name, from: at, to, depth: 0, args: event["args"].clone() },
                );
            }
            "b" => {
                flow(event, &name, &mut flows_out, &mut shown);
                let track = asynchronous();
                let stack = open.entry(track.clone()).or_default();
                let span =
                    Span { track, name, from: at, to: u64::MAX, depth: stack.len(), args: event["args"].clone() };
                stack.push(span);
            }
            "e" => {
                let span = open.get_mut(&asynchronous()).and_then(Vec::pop);
                let mut span = span.unwrap_or_else(|| panic!("an end without a begin: {event}"));
                assert_eq!(span.name, name, "spans cross on {}", span.track);
                span.to = at;
                if event["args"].is_object() {
                    span.args = event["args"].clone();
                }
                shown.spans.push(span);
            }
            "n" => shown.moments.push((asynchronous(), at)),
            "i" => shown.moments.push((thread(), at)),
            "C" => {
                for (series, value) in event["args"].as_object().expect("series") {
                    let samples = shown.counters.entry(format!("{name} {series}")).or_default();
                    samples.push((at, value.as_u64().expect("a count")));
                }
            }
            other => panic!("phase {other}"),
        }
    }
    for (track, mut stack) in open {
        let complete = track.starts_with("thread");
        assert!(complete || stack.is_empty(), "left open on {track}: {stack:?}");
        leave(&mut shown, &mut stack, u64::MAX);
    }
    shown
}

/// Ends complete spans that are over at `at`.
fn leave(shown: &mut Shown, stack: &mut Vec<Span>, at: u64) {
    while let Some(span) = stack.pop_if(|span| span.to <= at) {
        shown.spans.push(span);
    }
}

/// A complete span within what is open on its track.
fn enter(stack: &mut Vec<Span>, mut span: Span) {
    if let Some(around) = stack.last() {
        assert!(span.to <= around.to, "{span:?} sticks out of {around:?}");
    }
    span.depth = stack.len();
    stack.push(span);
}

fn flow<'a>(event: &'a Value, name: &str, out: &mut BTreeMap<&'a str, String>, shown: &mut Shown) {
    let Some(id) = event["bind_id"].as_str() else { return };
    assert!(id.strip_prefix("0x").is_some_and(|hex| u64::from_str_radix(hex, 16).is_ok()), "bind_id {id}");
    if event["flow_out"] == true {
        out.insert(id, name.to_owned());
    }
    if event["flow_in"] == true {
        let from = out.get(id).unwrap_or_else(|| panic!("a flow from nowhere: {event}"));
        shown.flows.push((from.clone(), name.to_owned()));
    }
}

#[test]
fn the_checker_takes_what_nests_and_refuses_what_does_not() {
    let file = |events: &str| format!("{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[{events}]}}");
    let x =
        |ts: u64, dur: u64| format!("{{\"ph\":\"X\",\"name\":\"a\",\"pid\":1,\"tid\":1,\"ts\":{ts}.5,\"dur\":{dur}}}");
    assert_eq!(check(&file(&format!("{},{}", x(1, 5), x(2, 3)))).spans.len(), 2);
    let b = |ph: &str, name: &str, ts: u64| {
        format!("{{\"ph\":\"{ph}\",\"name\":\"{name}\",\"cat\":\"r\",\"id\":\"0x1\",\"pid\":1,\"ts\":{ts}}}")
    };
    for wrong in [
        format!("{},{}", x(1, 5), x(2, 5)),
        b("b", "a", 1),
        b("e", "a", 1),
        [b("b", "a", 1), b("b", "b", 2), b("e", "a", 3), b("e", "b", 4)].join(","),
    ] {
        let wrong = file(&wrong);
        assert!(std::panic::catch_unwind(|| check(&wrong)).is_err(), "{wrong}");
    }
}
