//! `replay --url`: the serving bench as a client, against servers of known behaviour and against ours.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::process::{Server, wait_until};
use super::shared;
use crate::cli_program::{Ran, program, run};

/// What a stand-in does with a completion; the number counts from 0.
type Answer = dyn Fn(usize, &Value, &mut Stream) + Send + Sync;

/// A stand-in for a foreign server: it lists one model and answers completions as it is told.
struct Stub {
    url: String,
    /// Bodies, in the order of arrival.
    asked: Arc<Mutex<Vec<Value>>>,
}

struct Stream(TcpStream);

impl Stream {
    fn event(&mut self, event: &Value) {
        let _ = write!(self.0, "data: {event}\n\n").and_then(|()| self.0.flush());
    }
    fn text(&mut self, text: &str) {
        self.event(&json!({ "choices": [{ "index": 0, "text": text, "finish_reason": null }] }));
    }
    fn end(&mut self, usage: Option<Value>) {
        self.event(&json!({ "choices": [{ "index": 0, "text": "", "finish_reason": "length" }] }));
        if let Some(usage) = usage {
            self.event(&json!({ "choices": [], "usage": usage }));
        }
        let _ = write!(self.0, "data: [DONE]\n\n");
    }
}

impl Stub {
    fn start(answer: impl Fn(usize, &Value, &mut Stream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (bodies, answer): (_, Arc<Answer>) = (asked.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let (bodies, answer) = (bodies.clone(), answer.clone());
                std::thread::spawn(move || Self::serve(socket, &bodies, answer.as_ref()));
            }
        });
        Self { url, asked }
    }

    /// One request a connection.
    fn serve(socket: TcpStream, asked: &Mutex<Vec<Value>>, answer: &Answer) {
        let mut reader = BufReader::new(socket.try_clone().expect("a socket"));
        let (mut first, mut bytes) = (String::new(), 0);
        reader.read_line(&mut first).expect("a line");
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).expect("a line");
            let line = line.trim().to_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(length) = line.strip_prefix("content-length: ") {
                bytes = length.parse().expect("a number");
            }
        }
        let mut stream = Stream(socket);
        let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type:";
        if first.starts_with("GET") {
            let models = json!({ "data": [{ "id": "stub", "max_model_len": 4096 }] });
            write!(stream.0, "{head} application/json\r\n\r\n{models}").expect("sent");
            return;
        }
        let mut body = vec![0; bytes];
        reader.read_exact(&mut body).expect("the body");
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        let number = {
            let mut asked = asked.lock().expect("unpoisoned");
            asked.push(body.clone());
            asked.len() - 1
        };
        write!(stream.0, "{head} text/event-stream\r\n\r\n").expect("sent");
        answer(number, &body, &mut stream);
    }

    fn replay(&self, line: &str) -> Ran {
        replay(&self.url, line)
    }
}

fn replay(url: &str, line: &str) -> Ran {
    let args = ["replay", "--model", "toy", "--json", "--url", url];
    run(&args.into_iter().chain(line.split_whitespace()).collect::<Vec<_>>())
}

fn figure(result: &Value, name: &str) -> f64 {
    result[name].as_f64().unwrap_or_else(|| panic!("{name} in {result}"))
}

#[test]
fn f15_a_chunk_of_four_tokens_counts_as_four() {
    let gaps = Arc::new(Mutex::new(Vec::new()));
    let noted = gaps.clone();
    let stub = Stub::start(move |_, body, stream| {
        assert_eq!(body["stream_options"]["include_usage"], true);
        let mut last: Option<Instant> = None;
        for _ in 0..8 {
            if let Some(last) = last {
                std::thread::sleep(Duration::from_millis(80));
                noted.lock().expect("unpoisoned").push(last.elapsed().as_secs_f64() * 1e3);
            }
            last = Some(Instant::now());
            stream.text("one two three four ");
        }
        stream.end(Some(json!({ "prompt_tokens": 11, "completion_tokens": 32 })));
    });
    let result =
        stub.replay("--num-prompts 2 --random-input-len 10 --random-output-len 32 --ignore-eos").expect(0).json();
    assert_eq!((&result["completed"], &result["total_output_tokens"]), (&json!(2), &json!(64)));
    assert_eq!(result["total_input_tokens"], 22, "the server counts");
    // What the stub itself saw, which is 80 ms and what the machine made of it.
    let gaps = gaps.lock().expect("unpoisoned");
    let gap = gaps.iter().sum::<f64>() / gaps.len() as f64;
    for (name, expected) in [("mean_itl_ms", gap / 4.0), ("mean_tpot_ms", gap * 7.0 / 31.0)] {
        let got = figure(&result, name);
        assert!((got / expected - 1.0).abs() < 0.2, "{name}: {got} ms, where a chunk took {gap} ms");
    }
}

#[test]
fn f16_the_burst_of_the_start_is_no_part_of_the_figures() {
    let slow = Duration::from_millis(1000);
    let stub = Stub::start(move |number, _, stream| {
        std::thread::sleep(if number < 4 { slow } else { slow / 10 });
        stream.text("a");
        stream.end(Some(json!({ "prompt_tokens": 5, "completion_tokens": 1 })));
    });
    let line = "--num-prompts 12 --num-warmups 4 --max-concurrency 4 --random-input-len 5 --random-output-len 1";
    let result = stub.replay(line).expect(0).json();
    assert_eq!((&result["completed"], &result["num_prompts"]), (&json!(12), &json!(12)));
    let p99 = figure(&result, "p99_ttft_ms");
    assert!((100.0..500.0).contains(&p99), "{p99} ms");
}

#[test]
fn requests_are_in_the_shape_of_vllms_client() {
    let stub = Stub::start(|_, _, stream| {
        stream.text("a");
        stream.end(None);
    });
    let line = "--num-prompts 2 --random-input-len 6 --random-output-len 3 --seed 4";
    stub.replay(&format!("{line} --ignore-eos")).expect(0);
    stub.replay(&format!("{line} --endpoint /v1/chat/completions --served-model-name other")).expect(0);
    let asked = stub.asked.lock().expect("unpoisoned");
    let completion = asked[0].as_object().expect("an object");
    let names = ["model", "prompt", "max_tokens", "temperature", "stream", "stream_options", "ignore_eos"];
    assert_eq!(completion.keys().map(String::as_str).collect::<Vec<_>>(), names);
    assert_eq!((&completion["model"], &completion["max_tokens"]), (&json!("stub"), &json!(3)));
    assert_eq!(completion["prompt"].as_array().map(Vec::len), Some(6));
    let chat = &asked[2];
    assert_eq!((&chat["model"], &chat["max_completion_tokens"]), (&json!("other"), &json!(3)));
    assert!(chat["messages"][0]["content"].as_str().is_some_and(|text| !text.is_empty()), "{chat}");
    assert!(chat.get("ignore_eos").is_none() && chat.get("prompt").is_none(), "{chat}");
}

#[test]
fn tokens_that_no_server_counts_are_tokenised_again_and_that_is_said() {
    let stub = Stub::start(|_, _, stream| {
        stream.text("Hello there, ");
        stream.text("all of you");
        stream.end(None);
    });
    let ran = stub.replay("--num-prompts 1 --random-input-len 5 --random-output-len 9 --save-detailed").expect(0);
    let result = ran.json();
    assert_eq!(result["generated_texts"], json!(["Hello there, all of you"]));
    assert!(result["total_output_tokens"].as_u64().is_some_and(|tokens| tokens > 2), "{result}");
    ran.says(&["1 answers came without usage", "tokenised with toy"]);
}

#[test]
fn what_servers_do_wrong_fails_that_request_alone_and_is_named() {
    let stub = Stub::start(|number, _, stream| match number {
        0 => stream.event(&json!({ "error": { "message": "no room left" } })),
        1 => stream.text("cut"),
        2 => drop(write!(stream.0, "<html>")),
        3 => drop(write!(stream.0, "data: <html>\n\n")),
        _ => {
            stream.text("a");
            stream.end(Some(json!({ "prompt_tokens": 5, "completion_tokens": 1 })));
        }
    });
    let line = "--num-prompts 5 --max-concurrency 1 --random-input-len 5 --random-output-len 1 --save-detailed";
    let ran = stub.replay(line).expect(0);
    let result = ran.json();
    assert_eq!((&result["completed"], &result["failed"]), (&json!(1), &json!(4)));
    let errors: Vec<&str> = result["errors"].as_array().expect("detailed").iter().filter_map(Value::as_str).collect();
    for (error, says) in errors.iter().zip(["no room left", "ended before", "expected a stream", "no JSON", ""]) {
        assert!(error.contains(says), "{errors:?}");
    }
    ran.says(&["4 of 5 requests failed, the first one: no room left"]);
}

#[test]
fn servers_that_flood_stall_or_make_up_counts_fail_their_request_and_nothing_else() {
    let stub = Stub::start(|number, _, stream| match number {
        0 => {
            stream.text("a");
            stream.end(Some(json!({ "prompt_tokens": 5, "completion_tokens": u32::MAX })));
        }
        1 => {
            let text = "w".repeat(60 << 10);
            // Ends when nobody reads any more.
            while write!(stream.0, "data: {{\"choices\": [{{\"index\": 0, \"text\": \"{text}\"}}]}}\n\n").is_ok() {}
        }
        2 => {
            stream.text("a");
            // Until the other side has left.
            let _ = stream.0.read(&mut [0]);
        }
        3 => drop(write!(stream.0, "data: [DONE]\n\n")),
        _ => {
            stream.text("a");
            stream.end(Some(json!({ "prompt_tokens": 5, "completion_tokens": 1 })));
        }
    });
    let line = "--num-prompts 5 --max-concurrency 1 --random-input-len 5 --random-output-len 4 --silence 2";
    let result = stub.replay(&format!("{line} --save-detailed")).expect(0).json();
    assert_eq!((&result["completed"], &result["failed"]), (&json!(1), &json!(4)));
    let errors: Vec<&str> = result["errors"].as_array().expect("detailed").iter().filter_map(Value::as_str).collect();
    for (error, says) in errors.iter().zip(["at most 4 tokens", "bytes for 4 tokens", "timed out", "no token", ""]) {
        assert!(error.contains(says), "{says} in {errors:?}");
    }
}

#[test]
fn our_server_is_measured_over_its_wire() {
    let server = shared();
    let url = format!("http://{}/v1", server.address);
    let line = "--dataset prefix_repetition --num-prompts 4 --prefix-repetition-num-prefixes 1 \
                --prefix-repetition-prefix-len 64 --prefix-repetition-suffix-len 5 --prefix-repetition-output-len 8 \
                --max-concurrency 1 --ignore-eos --save-detailed";
    let result = replay(&url, line).expect(0).json();
    assert_eq!((&result["completed"], &result["backend"]), (&json!(4), &json!("openai")));
    assert_eq!((&result["total_input_tokens"], &result["total_output_tokens"]), (&json!(4 * 69), &json!(32)));
    assert_eq!((&result["model_id"], &result["cached_tokens"]), (&json!("gpt-4o"), &json!(3 * 64)));
    let chat =
        replay(&url, "--endpoint /v1/chat/completions --num-prompts 2 --random-input-len 9 --random-output-len 4");
    let chat = chat.expect(0).json();
    assert_eq!((&chat["completed"], &chat["backend"]), (&json!(2), &json!("openai-chat")));
    assert!(chat["total_input_tokens"].as_u64().is_some_and(|tokens| tokens > 18), "the template's tokens: {chat}");
    let long = replay(&url, "--num-prompts 1 --random-input-len 5000").expect(1);
    long.says(&["context of 1024"]);
}

#[test]
fn the_key_of_the_environment_opens_a_guarded_server() {
    let server = Server::start(&["--model", "toy", "--device", "twin", "--api-key", "secret"]);
    let url = format!("http://{}", server.address);
    let with = |key: &str| {
        let args = ["replay", "--model", "toy", "--url", &url, "--num-prompts", "1", "--random-input-len", "5"];
        let mut command = program(&args);
        command.args(["--random-output-len", "2"]).env("OPENAI_API_KEY", key);
        command.output().expect("it runs")
    };
    assert!(with("secret").status.success());
    let refused = with("wrong");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("/v1/models: 401"), "{said}");
}

#[test]
#[cfg(unix)]
fn interrupt_prints_what_is_done_and_leaves_nothing_at_the_server() {
    // Its own: what runs there must be what this asked.
    let server = Server::start(&["--model", "toy", "--device", "twin"]);
    let url = format!("http://{}", server.address);
    let args = ["replay", "--model", "toy", "--json", "--url", &url, "--num-prompts", "64", "--random-input-len", "9"];
    let mut command = program(&args);
    command.args(["--random-output-len", "900", "--ignore-eos", "--max-concurrency", "8"]);
    let child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn();
    let child = child.expect("it starts");
    wait_until("something is asked", || server.figure("twostroke:num_requests_running") >= 1.0);
    let sent = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    let result: Value = serde_json::from_slice(&output.stdout).expect("the figures of what was done");
    assert_eq!(result["num_prompts"], 64);
    server.wait_idle();
}
