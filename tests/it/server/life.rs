//! The server's life: loading, clients that leave, signals.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::process::Server;
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
        while server.figure("twostroke:num_requests_waiting") < 2.0 {
            std::thread::sleep(Duration::from_millis(5));
        }
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
    while server.figure("twostroke:num_requests_waiting") < 1.0 {
        std::thread::sleep(Duration::from_millis(5));
    }
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
