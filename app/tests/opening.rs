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
