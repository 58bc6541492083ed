//! The server's life: loading, clients that leave, signals.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::process::{Server, wait_until};
use super::shared;

fn long(tokens: u32, stream: bool) -> Value {
    json!({"prompt": "Once", "max_tokens": tokens, "ignore_eos": true, "stream": stream})
}

/// F56, and the other states a client may leave in: streaming, waiting for a plain answer, queued, mid-prefill.
#[test]
fn f56_clients_that_leave_free_what_they_held() {
    let server = Server::start(&["--model", "toy", "--device", "twin", "--max-num-seqs", "2"]);
    let aborted = || {
        let text = server.get("/metrics").expect(200).body;
        let own = |line: &&str| line.starts_with("twostroke:request_success_total") && line.contains("\"abort\"");
        let line = text.lines().find(own).expect("aborts are counted").to_owned();
        line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a number")
    };
    for round in 0..3 {
        let mut stream = server.open("POST", "/v1/completions", Some(&long(2000, true).to_string()));
        assert!(stream.line_with("data: ").is_some());
        let plain = server.open("POST", "/v1/completions", Some(&long(2000, false).to_string()));
        let queued = server.open("POST", "/v1/completions", Some(&long(2000, true).to_string()));
        let prompt = vec![100 + round; 900];
        let prefilling =
            server.open("POST", "/v1/completions", Some(&json!({"prompt": prompt, "max_tokens": 5}).to_string()));
        wait_until("two wait", || server.figure("twostroke:num_requests_waiting") >= 2.0);
        drop((stream, plain, queued, prefilling));
        server.wait_idle();
        assert!(server.figure("twostroke:kv_cache_usage_perc") < 1e-9);
    }
    assert_eq!(aborted(), 12.0, "four in each of three rounds");
    server.post("/v1/completions", &long(3, false)).expect(200);
}

#[test]
fn a_full_queue_is_429_with_retry_after() {
    let server = Server::start(&["--model", "toy", "--device", "twin", "--max-num-seqs", "1", "--max-queue", "1"]);
    let mut running = server.open("POST", "/v1/completions", Some(&long(2000, true).to_string()));
    assert!(running.line_with("data: ").is_some());
    let _waiting = server.open("POST", "/v1/completions", Some(&long(2000, true).to_string()));
    wait_until("one waits", || server.figure("twostroke:num_requests_waiting") >= 1.0);
    for stream in [true, false] {
        let reply = server.post("/v1/completions", &long(1, stream)).expect(429);
        assert!(reply.header("retry-after").is_some());
        assert_eq!(reply.error()["code"], "queue_full");
    }
}

#[test]
fn a_watcher_of_the_trace_sees_what_is_live_and_what_follows() {
    let server = shared();
    let mut watch = server.open("GET", "/v1/trace", None);
    let meta = watch.line_with("data: ").expect("the head");
    assert!(meta.contains("\"kind\":\"meta\""), "{meta}");
    server.post("/v1/completions", &long(3, false)).expect(200);
    for kind in ["arrive", "admit", "step", "finish"] {
        assert!(watch.line_with(&format!("\"kind\":\"{kind}\"")).is_some(), "{kind}");
    }
}

#[test]
fn sigterm_takes_nothing_new_and_lets_streams_finish() {
    let mut server = Server::start(&["--model", "toy", "--device", "twin"]);
    let mut stream = server.open("POST", "/v1/completions", Some(&long(60, true).to_string()));
    assert!(stream.line_with("data: ").is_some());
    server.signal("TERM");
    server.wait_for("finishing");
    let health = server.get("/health").expect(503);
    assert_eq!(health.error()["code"], "shutting_down");
    let reply = server.post("/v1/completions", &long(1, false)).expect(503);
    assert!(reply.header("retry-after").is_some());
    let rest = stream.rest();
    assert!(rest.contains("[DONE]") && rest.contains("\"finish_reason\":\"length\""), "{rest}");
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn what_does_not_finish_in_time_is_told_so() {
    let mut server = Server::start(&["--model", "toy", "--device", "twin", "--drain", "0"]);
    let mut stream = server.open("POST", "/v1/completions", Some(&long(2000, true).to_string()));
    let plain = server.open("POST", "/v1/completions", Some(&long(2000, false).to_string()));
    assert!(stream.line_with("data: ").is_some());
    server.signal("TERM");
    let rest = stream.rest();
    assert!(rest.contains("\"code\":\"shutting_down\"") && !rest.contains("[DONE]"), "{rest}");
    assert_eq!(plain.reply().expect(503).error()["code"], "shutting_down");
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let mut server = Server::start(&["--model", "toy", "--device", "twin"]);
    let mut stream = server.open("POST", "/v1/completions", Some(&long(2000, true).to_string()));
    assert!(stream.line_with("data: ").is_some());
    server.signal("TERM");
    server.wait_for("finishing");
    let start = Instant::now();
    server.signal("TERM");
    assert_eq!(server.wait(), Some(130));
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_model_that_cannot_be_loaded_ends_it_with_the_reason() {
    let mut server = Server::start_with(&["--model", "no-such.gguf", "--device", "twin"], |_| ());
    assert_eq!(server.wait(), Some(1));
    server.wait_for("no-such.gguf");
}

#[test]
fn a_taken_port_is_an_error_that_names_it() {
    let (port, server) = (shared().address.rsplit(':').next().expect("a port").to_owned(), shared());
    let mut command = crate::cli_program::program(&["serve", "--model", "toy", "--device", "twin", "--port", &port]);
    let output = command.output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains(&server.address), "{output:?}");
}

#[test]
fn a_watcher_of_the_trace_is_nothing_to_wait_for() {
    let mut server = Server::start(&["--model", "toy", "--device", "twin", "--drain", "3600"]);
    let mut watch = server.open("GET", "/v1/trace", None);
    assert!(watch.line_with("data: ").is_some());
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    watch.rest();
}

#[test]
fn sigterm_under_load_lets_every_stream_finish_and_the_trace_is_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("t.jsonl").display().to_string();
    let mut server = Server::start(&[
        "--model",
        "toy",
        "--device",
        "twin",
        "--max-num-seqs",
        "4",
        "--drain",
        "600",
        "--trace",
        &trace,
    ]);
    // Four run, four wait; all have arrived when the signal comes.
    let mut streams: Vec<_> =
        (0..8).map(|_| server.open("POST", "/v1/completions", Some(&long(12, true).to_string()))).collect();
    assert!(streams[0].line_with("data: ").is_some());
    let told = |kind: &str| {
        let text = std::fs::read_to_string(&trace).expect("a trace");
        text.lines().filter(|line| line.contains(&format!("\"kind\":\"{kind}\""))).count()
    };
    wait_until("eight have arrived", || told("arrive") == 8);
    server.signal("TERM");
    for stream in streams {
        let rest = stream.rest();
        assert!(rest.contains("[DONE]") && rest.contains("\"finish_reason\":\"length\""), "{rest}");
    }
    assert_eq!(server.wait(), Some(0));
    assert_eq!(told("finish"), 8);
}

#[test]
fn a_full_disk_under_the_trace_is_told_once_and_the_server_goes_on() {
    if !std::path::Path::new("/dev/full").exists() {
        println!("SKIP no /dev/full");
        return;
    }
    let args = ["--model", "toy", "--device", "twin", "--trace", "/dev/full"];
    let mut server = Server::start_with(&args, |_| ());
    server.wait_for("the trace ends here");
    let mut server = server.ready();
    for _ in 0..3 {
        server.post("/v1/completions", &long(4, false)).expect(200);
    }
    server.signal("TERM");
    server.wait_for("finishing");
    assert_eq!(server.times_said("the trace ends here"), 1);
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn a_seed_that_nobody_chose_is_told_and_brings_the_answer_back() {
    let server = shared();
    let ask = |more: Value| {
        let mut body = json!({"prompt": "Once upon", "max_tokens": 12, "temperature": 1.0, "ignore_eos": true});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        server.post("/v1/completions", &body).expect(200)
    };
    let (first, second) = (ask(json!({})).json(), ask(json!({})).json());
    assert_ne!(first["seed"], second["seed"]);
    let again = ask(json!({"seed": first["seed"]})).json();
    assert_eq!(again["choices"][0]["text"], first["choices"][0]["text"]);
    assert!(again.get("seed").is_none(), "the client knows it");
    assert!(ask(json!({"temperature": 0})).json().get("seed").is_none(), "it decides nothing");
    let events = ask(json!({"stream": true})).events();
    assert!(events.last().expect("a finish")["seed"].is_u64(), "{events:?}");
}
