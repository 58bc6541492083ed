//! Figures, comparison and prediction of simulated runs, by labels.

use egui_kittest::Harness;
use egui_kittest::kittest::Queryable;
use twostroke::sched::Policy;
use twostroke_app::App;
use twostroke_app::source::{Ask, Kind, PromptOf, Recipe, Workload};

fn app() -> Harness<'static, App> {
    let mut app = App::new();
    app.set_policy(Policy::PrefillFirst);
    app.simulate();
    app.simulate_whole();
    app.show_figures();
    let mut harness =
        Harness::builder().with_size(egui::vec2(1300.0, 800.0)).build_ui_state(|ui, app: &mut App| app.ui(ui), app);
    harness.run();
    harness
}

fn click(harness: &mut Harness<'static, App>, label: &str) {
    harness.get_by_label(label).click();
    harness.run_steps(30);
    harness.state_mut().simulate_whole();
    harness.run_steps(30);
}

#[test]
fn a_run_is_kept_and_another_policy_is_held_against_it() {
    let mut harness = app();
    click(&mut harness, "Keep as A");
    harness.get_by_label_contains("A: simulated: four streams");
    click(&mut harness, "Policy");
    click(&mut harness, "slo");
    click(&mut harness, "Simulate");
    harness.get_by_label("longest gap, ms");
    let (a, b) = (harness.state().kept().expect("kept"), harness.state().store());
    let worst = |store: &twostroke_app::run::Store| twostroke_app::run::Overview::of(store).itl.expect("gaps").max();
    let text = format!("{:+.0} %, better", (worst(b) / worst(a) - 1.0) * 100.0);
    assert!(harness.query_all_by_label(&text).next().is_some(), "expected {text}");
    // Both timelines are on the screen, from the same moment on.
    assert_eq!(harness.query_all_by_label("Timeline").count(), 2);
    click(&mut harness, "Forget A");
    assert_eq!(harness.query_all_by_label("Timeline").count(), 1);
}

#[test]
fn a_prediction_is_a_ghost_over_the_run() {
    let mut harness = app();
    click(&mut harness, "Policy");
    click(&mut harness, "slo");
    click(&mut harness, "Predict");
    let (run, ghost) = (harness.state().store(), harness.state().ghost().expect("a ghost"));
    assert_eq!(run.requests().len(), ghost.requests().len());
    let longest = |store: &twostroke_app::run::Store| twostroke_app::run::Overview::of(store).itl.expect("gaps").max();
    assert!(longest(ghost) < longest(run) / 4.0, "the other policy has no stall");
    click(&mut harness, "No ghost");
    assert!(harness.state().ghost().is_none());
}

#[test]
fn limits_give_goodput() {
    let mut harness = app();
    click(&mut harness, "TPOT limit");
    harness.get_by_label_contains("goodput ");
    click(&mut harness, "ITL");
    harness.get_by_label_contains(" samples, mean ");
}

#[test]
fn the_table_has_every_request_finds_sorts_and_selects() {
    let mut harness = app();
    click(&mut harness, "Table");
    harness.get_by_label("5 of 5 requests");
    click(&mut harness, "prompt_tokens");
    click(&mut harness, "prompt_tokens (least first)");
    harness.get_by_label("prompt_tokens (largest first)");
    harness.get_by_label("Find").focus();
    harness.run_steps(2);
    harness.get_by_label("Find").type_text("#4");
    harness.run_steps(3);
    harness.get_by_label("1 of 5 requests");
    click(&mut harness, "2000");
    harness.get_by_label("Copy as CSV").click();
    let copied = (0..8).any(|_| {
        harness.step();
        harness.output().platform_output.commands.iter().any(|command| {
            matches!(command, egui::OutputCommand::CopyText(text) if text.starts_with("request,state,") && text.lines().count() == 2)
        })
    });
    assert!(copied, "the line that is found, with a head");
}

#[test]
fn a_run_is_saved_as_a_trace_that_shows_the_same_and_for_perfetto() {
    let harness = app();
    let lines = harness.state().trace_lines().expect("it is short");
    let mut again = App::new();
    again.open_bytes("run.jsonl", lines.into_bytes().into());
    let ctx = egui::Context::default();
    (0..50).for_each(|_| again.logic(&ctx));
    assert_eq!(again.store().steps(), harness.state().store().steps());
    assert_eq!(again.trace_lines(), None, "what was opened is a file already");
    let json: serde_json::Value =
        serde_json::from_slice(&harness.state().perfetto().expect("it is short")).expect("JSON");
    assert!(json["traceEvents"].as_array().expect("events").len() > 100);
    let svg = harness.state().svg(false);
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
}

#[test]
fn a_simulation_goes_on_from_frame_to_frame_and_can_be_stopped() {
    let mut app = App::new();
    let ctx = egui::Context::default();
    let mut asks = Vec::new();
    for n in 0..4000 {
        let prompt = PromptOf::Made { tokens: 100, family: None };
        asks.push(Ask { arrive: n * 1_000_000_000, prompt, output_tokens: 100 });
    }
    app.set_workload(Workload { name: "long".into(), asks });
    app.simulate();
    assert!(app.store().requests().is_empty(), "nothing is simulated before a frame comes");
    app.logic(&ctx);
    app.logic(&ctx);
    let seen = app.store().steps().len();
    assert!(seen > 0 && app.is_simulating(), "a frame takes its part of it");
    app.logic(&ctx);
    assert!(app.store().steps().len() > seen, "and the next goes on");
    let end = app.store().end() as f64;
    assert!(app.timeline().view.to() >= end, "everything is seen until somebody looks at a part");
    app.timeline().view.show(0.0, 1e9);
    app.timeline().view.settle();
    let part = app.timeline().view;
    app.logic(&ctx);
    assert!(app.is_simulating() && app.store().end() as f64 > end);
    assert_eq!(app.timeline().view, part, "who looks at a part goes on seeing it");
    app.stop_simulation();
    app.logic(&ctx);
    assert!(!app.is_simulating() && app.store().requests().len() < 4000);
}

#[test]
fn a_workload_is_made_as_replay_makes_it_and_simulated() {
    let mut harness = app();
    click(&mut harness, "Workload");
    click(&mut harness, "make one");
    harness.get_by_label("Seed");
    click(&mut harness, "Dataset");
    click(&mut harness, "prefix_repetition");
    click(&mut harness, "Make it");
    let ctx = harness.ctx.clone();
    while harness.state().is_making() {
        harness.state_mut().logic(&ctx);
    }
    harness.run_steps(3);
    harness.get_by_label("now: prefix_repetition, 32 requests");
    let expected = Recipe { kind: Kind::PrefixRepetition, ..Recipe::default() };
    let asked = harness.state().workload().clone();
    assert_eq!(asked, expected.make(twostroke_app::source::measured().vocab, None).expect("it fits"));
    click(&mut harness, "Simulate");
    assert_eq!(harness.state().store().requests().len(), 32);
    let cached = twostroke_app::run::Overview::of(harness.state().store()).cached_tokens;
    assert!(cached > 0, "prefixes are repeated");
}
