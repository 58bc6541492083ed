//! A device that fails under load, and clients that leave: nobody is left without an answer, and nothing is left behind.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::fake::{Fake, Fault, sound};
use crate::pairwise::Random;

const STEP: Duration = Duration::from_millis(2);
const PATIENCE: Duration = Duration::from_secs(60);

/// What a request got: its tokens' text, or the code of the error that it was told.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Got {
    Text(String),
    Error(String),
}

fn send(address: SocketAddr, body: &Value) -> BufReader<TcpStream> {
    let mut socket = TcpStream::connect(address).expect("a connection");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let body = body.to_string();
    let head = "POST /v1/completions HTTP/1.1\r\nConnection: close\r\nContent-Type: application/json\r\n";
    write!(socket, "{head}Host: {address}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).expect("sent");
    BufReader::new(socket)
}

/// Asks, streamed or whole, and reads to the end.
fn ask(address: SocketAddr, body: &Value) -> Got {
    let mut bytes = String::new();
    send(address, body).read_to_string(&mut bytes).expect("an answer to its end");
    let events = bytes.lines().filter_map(|line| line.strip_prefix("data: ").or(line.starts_with('{').then_some(line)));
    let mut text = String::new();
    let mut ended = false;
    for event in events {
        if event == "[DONE]" {
            ended = true;
            continue;
        }
        let event: Value = serde_json::from_str(event).unwrap_or_else(|e| panic!("{e}: {event}"));
        if let Some(code) = event.pointer("/error/code") {
            return Got::Error(code.as_str().unwrap_or("none").to_owned());
        }
        text += event.pointer("/choices/0/text").and_then(Value::as_str).unwrap_or("");
        ended |= event["object"] == "text_completion" && body["stream"] == false;
    }
    assert!(ended, "an answer that just ends: {bytes}");
    Got::Text(text)
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut socket = TcpStream::connect(address).expect("a connection");
    write!(socket, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").expect("sent");
    let mut text = String::new();
    socket.read_to_string(&mut text).expect("an answer");
    text
}

/// A figure of `/metrics`.
fn figure(address: SocketAddr, name: &str) -> f64 {
    let text = get(address, "/metrics");
    let line = text.lines().find(|line| line.split(['{', ' ']).next() == Some(name));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("{name} in {text}"))
}

/// 120 requests of different lengths, 24 at a time, half of them streamed.
fn load(fake: &Fake) -> BTreeMap<usize, Got> {
    let address = fake.address;
    let client = |client: usize| {
        (client..120).step_by(24).map(move |number| {
            let prompt: Vec<usize> = (0..3 + number * 7 % 90).map(|at| 300 + number * 13 + at).collect();
            let (max_tokens, stream) = (5 + number % 40, number % 2 == 0);
            let body = json!({"prompt": prompt, "max_tokens": max_tokens, "stream": stream, "ignore_eos": true});
            (number, ask(address, &body))
        })
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..24).map(|n| scope.spawn(move || client(n).collect::<Vec<_>>())).collect();
        clients.into_iter().flat_map(|client| client.join().expect("a client")).collect()
    })
}

/// As many faults as a server must get over, at random steps.
fn faults(seed: u64) -> BTreeMap<u64, Fault> {
    let mut random = Random::new(seed);
    let kinds = [
        Fault::Lost,
        Fault::OutOfMemory,
        Fault::Lost,
        Fault::NotFinite,
        Fault::NotFinite,
        Fault::Slow(Duration::from_millis(150)),
        Fault::Slow(Duration::from_millis(50)),
    ];
    kinds.into_iter().map(|kind| (random.below(150) as u64, kind)).collect()
}

#[test]
fn every_request_is_answered_whatever_befalls_the_device_and_the_rest_is_as_without() {
    let whole = load(&Fake::start(STEP, sound()));
    assert!(whole.values().all(|got| matches!(got, Got::Text(text) if !text.is_empty())), "{whole:?}");
    for seed in 0..6 {
        let faults = faults(seed);
        let told = faults.clone();
        let fake = Fake::start(STEP, Arc::new(move |step| told.get(&step).copied()));
        let got = load(&fake);
        assert_eq!(got.len(), whole.len(), "seed {seed}");
        let mut poisoned = 0;
        for (number, got) in &got {
            match got {
                Got::Error(code) => {
                    assert_eq!(code, "model_numerics", "seed {seed}, request {number}, {faults:?}");
                    poisoned += 1;
                }
                text => assert_eq!(text, &whole[number], "seed {seed}, request {number}, {faults:?}"),
            }
        }
        let lost = faults.values().filter(|fault| matches!(fault, Fault::Lost | Fault::OutOfMemory)).count() as u64;
        assert_eq!(fake.seen.rebuilds.load(Ordering::SeqCst), lost, "seed {seed}: {faults:?}");
        // A poisoned step may have been computed for a request that had just ended, or be lost with the device.
        let most = faults.values().filter(|fault| **fault == Fault::NotFinite).count();
        assert!(poisoned <= most, "seed {seed}: {poisoned} errors of {faults:?}");
    }
}

#[test]
fn a_thousand_streams_dropped_at_random_tokens_leave_nothing() {
    let fake = Fake::start(STEP, sound());
    let (address, tasks) = (fake.address, || fake.runtime.metrics().num_alive_tasks());
    let before = tasks();
    std::thread::scope(|scope| {
        for client in 0..40 {
            scope.spawn(move || {
                let mut random = Random::new(client);
                for _ in 0..25 {
                    let prompt: Vec<usize> = (0..1 + random.below(200)).map(|_| 300 + random.below(5000)).collect();
                    let body = json!({"prompt": prompt, "max_tokens": 1000, "stream": true, "ignore_eos": true});
                    let mut answer = send(address, &body);
                    // Some before their first token.
                    let (mut left, mut line) = (random.below(12), String::new());
                    while left > 0 {
                        line.clear();
                        assert!(answer.read_line(&mut line).expect("a line") > 0, "the stream goes on");
                        left -= usize::from(line.starts_with("data: "));
                    }
                }
            });
        }
    });
    let until = Instant::now() + PATIENCE;
    let figure = |name: &str| figure(address, name);
    while figure("twostroke:num_requests_running") + figure("twostroke:num_requests_waiting") > 0.0 || tasks() > before
    {
        assert!(Instant::now() < until, "{} tasks, {before} before", tasks());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(figure("twostroke:kv_cache_usage_perc") == 0.0, "pages are left");
    assert!(matches!(ask(address, &json!({"prompt": [300], "max_tokens": 3, "stream": false})), Got::Text(_)));
}

#[test]
fn a_client_that_does_not_read_loses_its_answer_and_the_others_are_not_kept_waiting() {
    let fake = Fake::start(STEP, sound());
    let address = fake.address;
    // Far more than sockets and the mailbox hold.
    let body =
        json!({"prompt": [300], "max_tokens": 4000, "n": 100, "temperature": 1, "stream": true, "ignore_eos": true});
    let slow = send(address, &body);
    let other = json!({"prompt": [301, 302], "max_tokens": 400, "stream": true, "ignore_eos": true});
    let got = ask(address, &other);
    assert!(matches!(&got, Got::Text(text) if !text.is_empty()), "{got:?}");
    let until = Instant::now() + PATIENCE;
    while figure(address, "twostroke:num_requests_running") > 0.0 {
        assert!(Instant::now() < until, "the answer that nobody reads goes on");
        std::thread::sleep(Duration::from_millis(50));
    }
    let steps = fake.seen.steps.load(Ordering::SeqCst);
    assert!(steps < 3900, "{steps} steps: it was made to its end");
    // Whoever reads at last is told.
    let mut rest = Vec::new();
    let mut slow = slow;
    slow.read_to_end(&mut rest).expect("an end");
    assert!(String::from_utf8_lossy(&rest).contains("\"code\":\"slow_reader\""), "no word of it");
}

#[test]
fn health_says_when_a_step_does_not_end_and_when_it_has() {
    let slow = Arc::new(|step| (step == 5).then_some(Fault::Slow(Duration::from_secs(3))));
    let fake = Fake::start(STEP, slow);
    let address = fake.address;
    assert!(get(address, "/health").starts_with("HTTP/1.1 200"));
    let asked = send(address, &json!({"prompt": [300], "max_tokens": 12, "stream": true, "ignore_eos": true}));
    let until = Instant::now() + PATIENCE;
    let wait = |status: &str| {
        loop {
            let health = get(address, "/health");
            if health.starts_with(status) {
                return health;
            }
            assert!(Instant::now() < until, "never {status}: {health}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    assert!(wait("HTTP/1.1 503").contains("\"code\":\"stuck\""));
    wait("HTTP/1.1 200");
    let mut rest = String::new();
    let mut asked = asked;
    asked.read_to_string(&mut rest).expect("an end");
    assert!(rest.contains("[DONE]"), "{rest}");
}
