//! Attempts, and what each gets.
//!
//! ```text
//! attempt                                   gets
//! no key, a wrong key                       401, on every route but /health
//! another origin; a Host that is not ours   403
//! a path that climbs                        400 or 404, no file
//! a body of 1 GB, with and without length   413, before it is read
//! JSON 10,000 deep, 1e999, no JSON          400                                   (fields)
//! a body that is cut or framed wrongly      400, and the connection is closed
//! two Host fields                           400
//! more answers of one body than may wait    400; embeddings go in waves
//! a head too large, or of too many fields   431
//! a head that never ends                    closed after HEAD_SECONDS_MAX; others are served
//! a template bomb                           400, out of fuel or room; others are served
//! control tokens in a message               plain text                            (fields)
//! listening beyond loopback without a key   refused at start, exit 2
//! ```

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use super::process::Server;
use super::shared;
use crate::cli_program::TinyModel;
use crate::model_writer::{Meta, TinyLlama};
use twostroke::limits::TOKENIZE_TOKENS_MAX;

fn toy(more: &[&str]) -> Server {
    let mut args = vec!["--model", "toy", "--device", "twin"];
    args.extend(more);
    Server::start(&args)
}

#[test]
fn keys_guard_all_routes_but_health() {
    let mut server = toy(&["--api-key", "one", "--api-key", "two"]);
    server.get("/health").expect(200);
    for path in ["/v1/models", "/metrics", "/v1/trace", "/version", "/", "/nothing"] {
        let reply = server.get(path).expect(401);
        assert_eq!(reply.error()["code"], "invalid_api_key", "{path}");
    }
    server.post("/v1/completions", &json!({"prompt": "a"})).expect(401);
    server.headers = vec![("Authorization".into(), "Bearer three".into())];
    server.get("/v1/models").expect(401);
    server.headers = vec![("Authorization".into(), "Bearer two".into())];
    server.get("/v1/models").expect(200);
    // Without the right, no priority; its absence and 0 are fine.
    let body = |priority: i64| json!({"prompt": "a", "max_tokens": 1, "priority": priority});
    server.post("/v1/completions", &body(0)).expect(200);
    server.post("/v1/completions", &body(-1)).expect(403);
}

#[test]
fn keys_of_different_clients_share_no_cached_prompts_unless_told_to() {
    for (flag, shares) in [(None, false), (Some("--shared-cache"), true)] {
        let folder = tempfile::tempdir().expect("a folder");
        let keys = folder.path().join("keys");
        std::fs::write(&keys, "# ours\none priority\ntwo\n").expect("writable");
        let path = keys.display().to_string();
        let mut more = vec!["--api-key-file", path.as_str()];
        more.extend(flag);
        let mut server = toy(&more);
        let prompt = "a secret that is long enough for some pages of the cache ".repeat(4);
        let mut cached = |key: &str| {
            server.headers = vec![("Authorization".into(), format!("Bearer {key}"))];
            let reply = server.post(
                "/v1/completions",
                &json!({"prompt": prompt, "max_tokens": 1, "priority": i64::from(key == "one")}),
            );
            reply.expect(200).json()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a count")
        };
        assert_eq!(cached("one"), 0);
        assert!(cached("one") > 0, "the same key hits");
        assert_eq!(cached("two") > 0, shares, "{flag:?}");
    }
}

#[test]
fn other_names_and_origins_are_turned_away() {
    let mut server = toy(&[]);
    server.headers = vec![("Host".into(), "evil.example".into())];
    assert_eq!(server.get("/v1/models").expect(403).error()["code"], "host");
    server.headers = vec![("Origin".into(), "http://evil.example".into())];
    assert_eq!(server.post("/v1/completions", &json!({"prompt": "a"})).expect(403).error()["code"], "origin");
    let reply = server.open("OPTIONS", "/v1/completions", None).reply();
    assert!(reply.header("access-control-allow-origin").is_none(), "{reply:?}");
}

#[test]
fn a_listed_origin_may_ask_and_only_that() {
    let mut server = toy(&["--allowed-origins", "https://app.example"]);
    server.headers = vec![("Origin".into(), "https://app.example".into())];
    let reply = server.get("/v1/models").expect(200);
    assert_eq!(reply.header("access-control-allow-origin"), Some("https://app.example"));
    server.headers = vec![("Origin".into(), "https://other.example".into())];
    assert!(server.get("/v1/models").expect(403).header("access-control-allow-origin").is_none());
}

#[test]
fn a_body_of_a_gigabyte_is_413_before_it_is_read() {
    let server = shared();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: {}\r\nContent-Length: 1073741824\r\n\r\n{{\"prompt\": \"",
        server.address
    );
    let reply = server.raw(head.as_bytes()).reply().expect(413);
    assert_eq!(reply.error()["code"], "body_too_large");
    // Without a length it is counted as it comes.
    let mut socket = TcpStream::connect(&server.address).expect("a connection");
    write!(socket, "POST /v1/completions HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\n\r\n", server.address)
        .expect("sent");
    let chunk = format!("100000\r\n{}\r\n", "x".repeat(1 << 20));
    let sent = (0..64).take_while(|_| socket.write_all(chunk.as_bytes()).is_ok()).count();
    assert!(sent < 64, "64 MiB were taken");
    server.get("/health").expect(200);
}

#[test]
fn bodies_that_are_cut_or_framed_wrongly_are_400() {
    let server = shared();
    let head = format!("POST /tokenize HTTP/1.1\r\nHost: {}\r\n", server.address);
    for rest in ["zz\r\n", "-5\r\nabcde\r\n", "ffffffffffffffffff\r\n"] {
        let request = format!("{head}Transfer-Encoding: chunked\r\n\r\n{rest}");
        let reply = server.raw(request.as_bytes()).reply().expect(400);
        assert_eq!(reply.error()["code"], "invalid_body", "{rest:?}");
        assert_eq!(reply.header("connection"), Some("close"));
    }
    let two = format!("GET /health HTTP/1.1\r\nHost: {}\r\nHost: evil.example\r\n\r\n", server.address);
    assert_eq!(server.raw(two.as_bytes()).reply().expect(400).error()["code"], "host");
    assert_eq!(server.get("/v1/models/%ff").expect(400).error()["param"], "model");
}

#[test]
fn what_can_never_wait_is_400_and_embeddings_go_in_waves() {
    let server = toy(&["--max-queue", "3"]);
    let body = |n: u32| json!({"prompt": "a", "max_tokens": 1, "n": n, "temperature": 1});
    server.post("/v1/completions", &body(3)).expect(200);
    let reply = server.post("/v1/completions", &body(4)).expect(400);
    assert!(reply.error()["message"].as_str().is_some_and(|text| text.contains("at most 3")), "{reply:?}");
    let input: Vec<String> = (0..8).map(|n| format!("text {n}")).collect();
    let reply = server.post("/v1/embeddings", &json!({"input": input})).expect(200).json();
    assert_eq!(reply["data"].as_array().map(Vec::len), Some(8));
}

#[test]
fn more_tokens_than_tokenize_tells_are_400() {
    let server = shared();
    let long = " a".repeat(TOKENIZE_TOKENS_MAX + 1);
    let reply = server.post("/tokenize", &json!({"prompt": long})).expect(400);
    assert!(reply.error()["message"].as_str().is_some_and(|text| text.contains("1048576")), "{reply:?}");
}

#[test]
fn paths_that_climb_and_heads_that_are_too_large_get_nothing() {
    let server = shared();
    for path in ["/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc/passwd", "//etc/passwd"] {
        let reply = server.get(path);
        assert!(matches!(reply.status, 400 | 404) && !reply.body.contains("root:"), "{path}: {reply:?}");
    }
    let head = format!("GET /health HTTP/1.1\r\nHost: {}\r\nX-Long: {}\r\n\r\n", server.address, "x".repeat(64 << 10));
    assert_eq!(server.raw(head.as_bytes()).reply().status, 431);
    let many: String = (0..500).map(|i| format!("X-{i}: y\r\n")).collect();
    let head = format!("GET /health HTTP/1.1\r\nHost: {}\r\n{many}\r\n", server.address);
    assert_eq!(server.raw(head.as_bytes()).reply().status, 431);
}

#[test]
fn listening_beyond_this_machine_needs_a_key_or_a_word() {
    let args = ["serve", "--model", "toy", "--device", "twin", "--host", "0.0.0.0", "--port", "0"];
    let mut command = crate::cli_program::program(&args);
    let output = command.env_remove("TWOSTROKE_API_KEY").output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--insecure"));
    for bad in ["a:80", "*", ""] {
        let args = ["serve", "--model", "toy", "--device", "twin", "--port", "0", "--allowed-hosts", bad];
        let output = crate::cli_program::program(&args).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{bad:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("--allowed-hosts"), "{bad:?}");
    }
}

#[test]
fn a_template_that_never_ends_is_a_400_and_others_go_on_meanwhile() {
    for bomb in [
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% for a in range(100000) %}{{ 'x' * 100000 }}{% endfor %}",
        "{% set ns = namespace(x='x') %}{% for a in range(64) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    ] {
        let model = TinyModel::new(&TinyLlama::default(), |gguf| {
            gguf.set("tokenizer.chat_template", Meta::str(bomb));
        });
        let path = model.path().display().to_string();
        let server = Server::start(&["--model", &path, "--device", "twin"]);
        let body = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1});
        let open = server.open("POST", "/v1/chat/completions", Some(&body.to_string()));
        server.post("/v1/completions", &json!({"prompt": "a", "max_tokens": 1})).expect(200);
        let reply = open.reply().expect(400);
        assert_eq!(reply.error()["param"], "messages", "{bomb}: {}", reply.body);
    }
}

#[test]
fn a_head_that_never_ends_is_closed_and_others_go_on_meanwhile() {
    let server = shared();
    let mut slow: Vec<TcpStream> =
        (0..50).map(|_| TcpStream::connect(&server.address).expect("a connection")).collect();
    for socket in &mut slow {
        socket.write_all(b"POST /v1/completions HTTP/1.1\r\nHost: ").expect("sent");
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    }
    server.get("/health").expect(200);
    for mut socket in slow {
        let mut bytes = Vec::new();
        socket.read_to_end(&mut bytes).expect("it is closed, not left open");
        assert!(bytes.is_empty() || bytes.starts_with(b"HTTP/1.1 408"), "{:?}", String::from_utf8_lossy(&bytes));
    }
}
