//! What the browser app takes from the server: its own files beside the binary, and the model's file.

use std::path::Path;

use super::process::Server;
use super::shared;

const TOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/smollm2-draft-7m.q4_1.gguf");

#[test]
fn the_models_file_is_given_by_size_and_in_ranges() {
    let server = Server::start(&["--model", TOY, "--device", "twin"]);
    let bytes = std::fs::read(TOY).expect("it is in the checkout");
    let head = server.open("HEAD", "/model.gguf", None).reply().expect(200);
    assert_eq!(head.header("content-length"), Some(&*bytes.len().to_string()));
    assert!(head.header("last-modified").is_some(), "what tells one model from the next");
    let ask = format!(
        "GET /model.gguf HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nRange: bytes=0-3\r\n\r\n",
        server.address
    );
    let part = server.raw(ask.as_bytes()).reply().expect(206);
    assert_eq!(part.body, "GGUF");
    assert_eq!(part.header("content-range"), Some(&*format!("bytes 0-3/{}", bytes.len())));
}

#[test]
fn a_model_that_is_no_file_is_not_there() {
    assert_eq!(shared().get("/model.gguf").expect(404).error()["code"], "model_file");
}

/// The binary with a folder `web` beside it, as `make web` leaves it.
#[test]
fn the_apps_files_come_with_a_policy_that_keeps_them_to_themselves() {
    let folder =
        tempfile::tempdir_in(Path::new(env!("CARGO_BIN_EXE_twostroke")).parent().expect("a folder")).expect("writable");
    let program = folder.path().join("twostroke");
    std::fs::hard_link(env!("CARGO_BIN_EXE_twostroke"), &program).expect("the same file system");
    let web = folder.path().join("web");
    std::fs::create_dir(&web).expect("writable");
    std::fs::write(web.join("index.html"), "<!doctype html><title>app</title>").expect("writable");
    std::fs::write(web.join("app_bg.wasm"), b"\0asm").expect("writable");
    let server = Server::start_program(&program, &["--model", "toy", "--device", "twin"]);
    for (path, kind) in [("/", "text/html"), ("/app_bg.wasm", "application/wasm")] {
        let reply = server.get(path).expect(200);
        assert_eq!(reply.header("content-type"), Some(kind));
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        let policy = reply.header("content-security-policy").expect("a policy");
        assert!(
            policy.contains("script-src 'self' 'wasm-unsafe-eval'") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
    }
    for path in ["/no.js", "/../twostroke", "/%2e%2e/twostroke", "/..%2ftwostroke"] {
        assert!([400, 404].contains(&server.get(path).status), "{path}");
    }
    // What is no file either is told as it is without a page.
    for path in ["/v1/nothing", "/no.js"] {
        assert_eq!(server.get(path).expect(404).error()["code"], "unknown_url", "{path}");
        assert_eq!(server.post(path, &serde_json::json!({})).expect(404).error()["code"], "unknown_url", "{path}");
    }
    assert_eq!(server.get("/v1/completions").expect(405).error()["code"], "method_not_allowed");
    assert!(server.get("/v1/models").header("content-security-policy").is_none(), "answers of the API are no pages");
}
