//! What the server costs, over a device that computes nothing and whose steps last 20 ms: CPU a token, time to first token over the
//! engine's own, and the gaps of 64 streams beside 1,000 connections that do nothing.
//!
//! ```text
//! cargo bench --bench server               # prints the table, fails when a bound of the issue is passed
//! cargo bench --bench server -- --listen   # serves until it is killed, so that a client can be held against another
//! ```
//! Linux only: what threads took is read from /proc.

#![allow(clippy::cast_precision_loss, reason = "figures, not sums")]

#[path = "../tests/it/server/fake.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod fake;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use twostroke::engine::request::{Output, Request};
use twostroke::engine::serving::Engine;

use fake::{Device, Fake, Seen, sound};

const STEP: Duration = Duration::from_millis(20);
const STREAMS: usize = 64;
const TOKENS: usize = 300;
const IDLE: usize = 1000;
const FIRSTS: usize = 100;
/// Rounds of the comparison of gaps; the median of their ratios counts.
const ROUNDS: usize = 5;

/// The issue's bounds.
const MICROS_A_TOKEN_MAX: f64 = 30.0;
const TTFT_ADDED_MS_MAX: f64 = 1.0;
const GAP_RATIO_MAX: f64 = 1.3;

fn main() {
    if std::env::args().any(|arg| arg == "--listen") {
        let fake = Fake::start(STEP, sound());
        println!("http://{}", fake.address);
        loop {
            std::thread::park();
        }
    }
    let _ = rlimit::increase_nofile_limit(8192);
    let fake = Fake::start(STEP, sound());
    let micros = micros_a_token(&fake);
    let (over_http, own) = (median(first_tokens(&fake)), median(own_first_tokens()));
    let ratios = gap_ratios(&fake);
    let (quiet, beside, ratio) = ratios[ROUNDS / 2];
    println!("| {STREAMS} streams, steps of {} ms | measured | bound |", STEP.as_millis());
    println!("|---|--:|--:|");
    println!("| server's CPU a token (µs) | {micros:.1} | {MICROS_A_TOKEN_MAX} |");
    println!("| first token over HTTP, median of {FIRSTS} (ms) | {over_http:.2} | |");
    println!("| the engine's own (ms) | {own:.2} | |");
    println!("| what the server adds (ms) | {:.2} | {TTFT_ADDED_MS_MAX} |", over_http - own);
    println!("| p99 gap alone (ms) | {quiet:.2} | |");
    println!("| p99 gap beside {IDLE} idle connections (ms) | {beside:.2} | |");
    println!("| ratio, median of {ROUNDS} | {ratio:.2} | {GAP_RATIO_MAX} |");
    let kept = [micros <= MICROS_A_TOKEN_MAX, over_http - own <= TTFT_ADDED_MS_MAX, ratio <= GAP_RATIO_MAX];
    if kept.contains(&false) {
        eprintln!("a bound is passed");
        std::process::exit(1);
    }
}

fn open(address: SocketAddr, prompt: usize, tokens: usize) -> BufReader<TcpStream> {
    let mut socket = TcpStream::connect(address).expect("a connection");
    socket.set_nodelay(true).expect("a socket");
    let body = format!(
        r#"{{"prompt": [{}, 301, 302, 303], "max_tokens": {tokens}, "stream": true, "ignore_eos": true}}"#,
        300 + prompt
    );
    let head = "POST /v1/completions HTTP/1.1\r\nConnection: close\r\nContent-Type: application/json\r\n";
    let request = format!("{head}Host: {address}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    socket.write_all(request.as_bytes()).expect("sent");
    BufReader::new(socket)
}

/// Reads up to the next event; `false` at the end.
fn event(stream: &mut BufReader<TcpStream>, line: &mut String) -> bool {
    loop {
        line.clear();
        if stream.read_line(line).expect("a line") == 0 || line.contains("[DONE]") {
            return false;
        }
        if line.starts_with("data: ") {
            return true;
        }
    }
}

/// Gaps between events of all streams, in ms; the last event of each, which carries no token, is left out.
fn gaps(fake: &Fake) -> Vec<f64> {
    let address = fake.address;
    std::thread::scope(|scope| {
        let streams = (0..STREAMS).map(|n| {
            scope.spawn(move || {
                let (mut stream, mut line) = (open(address, n, TOKENS), String::new());
                let mut times = Vec::with_capacity(TOKENS + 1);
                while event(&mut stream, &mut line) {
                    times.push(Instant::now());
                }
                assert!(times.len() > TOKENS * 9 / 10, "{} events of {TOKENS} tokens", times.len());
                times.pop();
                times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1e3).collect::<Vec<_>>()
            })
        });
        let streams: Vec<_> = streams.collect();
        streams.into_iter().flat_map(|stream| stream.join().expect("a client")).collect()
    })
}

/// What the server's threads took, over tokens.
fn micros_a_token(fake: &Fake) -> f64 {
    let before = cpu_nanos();
    gaps(fake);
    (cpu_nanos() - before) as f64 / 1e3 / (STREAMS * TOKENS) as f64
}

/// Nanoseconds that threads named `fake …` have run.
fn cpu_nanos() -> u64 {
    let mut nanos = 0;
    for task in std::fs::read_dir("/proc/self/task").expect("Linux").flatten() {
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if name.starts_with("fake") {
            let told = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            nanos += told.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    assert!(nanos > 0, "no thread of the server was found");
    nanos
}

/// From the request's first byte to its first event, in ms, one request at a time.
fn first_tokens(fake: &Fake) -> Vec<f64> {
    let first = |n: usize| {
        let start = Instant::now();
        let (mut stream, mut line) = (open(fake.address, n, 1), String::new());
        assert!(event(&mut stream, &mut line));
        let took = start.elapsed().as_secs_f64() * 1e3;
        let _ = stream.read_to_end(&mut Vec::new());
        took
    };
    (0..FIRSTS).map(first).collect()
}

/// The same without a server: from handing it over to the token.
fn own_first_tokens() -> Vec<f64> {
    let (tokenizer, words) = fake::words();
    let device = Device::new(STEP, sound(), Arc::new(Seen::default()), words);
    let mut engine = Engine::new(fake::config(tokenizer.vocab_size()), Box::new(device));
    let mut first = |n: u32| {
        let start = Instant::now();
        let request = Request { prompt: vec![300 + n, 301, 302, 303], max_tokens: Some(1), ..Request::default() };
        engine.submit(request).expect("taken");
        loop {
            engine.wait().expect("the device works");
            while let Some(output) = engine.next_output() {
                if matches!(output, Output::Token { .. }) {
                    let took = start.elapsed().as_secs_f64() * 1e3;
                    while engine.next_output().is_some() {}
                    return took;
                }
            }
        }
    };
    (0..100).map(&mut first).collect()
}

/// The p99 gap alone, beside idle connections, and their ratio, in the order of ratios.
fn gap_ratios(fake: &Fake) -> Vec<(f64, f64, f64)> {
    let mut ratios: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let quiet = p99(gaps(fake));
            let idle: Vec<TcpStream> = (0..IDLE).map(|_| TcpStream::connect(fake.address).expect("a place")).collect();
            let beside = p99(gaps(fake));
            drop(idle);
            (quiet, beside, beside / quiet)
        })
        .collect();
    ratios.sort_by(|a, b| a.2.total_cmp(&b.2));
    ratios
}

fn p99(mut gaps: Vec<f64>) -> f64 {
    gaps.sort_by(f64::total_cmp);
    gaps[gaps.len() * 99 / 100]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
