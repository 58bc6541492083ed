//! Trace files as they come: whole, torn, wrong, empty.

use std::time::{Duration, Instant};

use egui_kittest::Harness;
use egui_kittest::kittest::Queryable;
use twostroke::sched::Policy;
use twostroke_app::App;
use twostroke_app::source::Scenario;

/// An app that has opened a file of these bytes.
fn opened(bytes: &[u8]) -> Harness<'static, App> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.jsonl");
    std::fs::write(&path, bytes).expect("writable");
    let mut harness = Harness::builder().with_size(egui::vec2(1200.0, 420.0)).build_ui_state(
        |ui, app: &mut App| {
            app.logic(ui.ctx());
            app.ui(ui);
        },
        App::new(),
    );
    let ctx = harness.ctx.clone();
    harness.state_mut().open(&path, &ctx);
    let until = Instant::now() + Duration::from_secs(60);
    while harness.state().is_opening() {
        assert!(Instant::now() < until, "it never ends");
        harness.step();
    }
    harness.run_steps(60);
    harness
}

fn trace() -> String {
    let events = Scenario::long_prompt(Policy::Slo).play().expect("it fits");
    events.iter().map(|event| serde_json::to_string(event).expect("an event") + "\n").collect()
}

#[test]
fn a_trace_shows_the_run_that_was_written() {
    let harness = opened(trace().as_bytes());
    assert_eq!(harness.state().store().requests().len(), 5);
    harness.get_by_label_contains("#4 ");
    harness.get_by_label_contains("(subgroup), slo");
}

#[test]
fn a_torn_last_line_is_told_and_the_rest_is_shown() {
    let mut text = trace();
    text.truncate(text.len() - 20);
    let harness = opened(text.as_bytes());
    harness.get_by_label_contains("the last line is torn");
    harness.get_by_label_contains("#4 ");
}

#[test]
fn a_wrong_line_is_named_and_what_came_before_is_shown() {
    let text = trace();
    let half = text[..text.len() / 2].rfind('\n').expect("lines");
    let text = format!("{}\nnonsense\n{}", &text[..half], &text[half..]);
    let harness = opened(text.as_bytes());
    harness.get_by_label_contains("t.jsonl, line ");
    harness.get_by_label_contains("#0 ");
}

#[test]
fn what_is_no_trace_says_so_and_what_to_do() {
    for bytes in [&b""[..], b"hello\n", b"\xff\xfe\x00\x01"] {
        let harness = opened(bytes);
        harness.get_by_label_contains("read trace: expected a");
        harness.get_by_label_contains("Drop a trace here");
    }
}

#[test]
fn ten_thousand_requests_have_rows_and_figures() {
    let mut text = String::new();
    for id in 0..10_000u64 {
        let t = id * 1000;
        text += &format!(
            "{{\"kind\":\"arrive\",\"t\":{t},\"id\":{id},\"prompt_tokens\":5,\"max_tokens\":1,\"priority\":0}}\n"
        );
        text += &format!("{{\"kind\":\"cancel\",\"t\":{},\"id\":{id}}}\n", t + 500);
    }
    let mut harness = opened(text.as_bytes());
    assert_eq!(harness.state().store().requests().len(), 10_000);
    harness.get_by_label_contains("#0 cancelled");
    assert!(harness.query_by_label_contains("#9999 ").is_none(), "rows that are not seen cost nothing");
    harness.state_mut().show_figures();
    harness.run_steps(3);
    harness.get_by_label("No answer yet.");
    harness.get_by_label("Table").click();
    harness.run_steps(6);
    harness.get_by_label("10000 of 10000 requests");
}

#[test]
fn a_trace_in_memory_is_read_in_batches() {
    let mut app = App::new();
    app.open_bytes("dropped.jsonl", trace().into_bytes().into());
    let ctx = egui::Context::default();
    for _ in 0..100 {
        app.logic(&ctx);
    }
    assert!(!app.is_opening());
    assert_eq!(app.store().requests().len(), 5);
}

#[test]
fn a_server_that_is_not_there_is_told_and_one_that_is_shows_its_requests_as_they_come() {
    let mut harness = opened(trace().as_bytes());
    let ctx = harness.ctx.clone();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    drop(taken);
    harness.state_mut().watch(&address, "", &ctx);
    watched(&mut harness, |app| !app.is_opening());
    harness.run_steps(2);
    harness.get_by_label_contains("/v1/trace: error sending request");
    // A server of a few lines, which keeps the stream open until it is let go.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let (close, closed) = std::sync::mpsc::channel::<()>();
    let events: String = trace().lines().map(|line| format!("data: {line}\n\n")).collect();
    let served = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut socket, _) = listener.accept().expect("a client");
        let mut head = [0; 4096];
        let length = socket.read(&mut head).expect("a request");
        let head = String::from_utf8_lossy(&head[..length]).to_lowercase();
        let answer = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        socket.write_all(answer.as_bytes()).and_then(|()| socket.write_all(events.as_bytes())).expect("sent");
        let _ = closed.recv_timeout(Duration::from_secs(60));
        head
    });
    harness.state_mut().watch(&address, "secret", &ctx);
    watched(&mut harness, |app| app.store().requests().len() == 5);
    harness.run_steps(3);
    harness.get_by_label_contains("watching http://");
    harness.get_by_label("LIVE");
    close.send(()).expect("it waits");
    let head = served.join().expect("it ended well");
    assert!(head.contains("get /v1/trace") && head.contains("authorization: bearer secret"), "{head}");
    watched(&mut harness, |app| !app.is_opening());
    harness.run_steps(2);
    harness.get_by_label_contains("the server has closed its trace");
}

fn watched(harness: &mut Harness<'static, App>, good: impl Fn(&App) -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !good(harness.state()) {
        assert!(Instant::now() < until, "it never comes");
        std::thread::sleep(Duration::from_millis(2));
        harness.step();
    }
}
