//! The engine inside, by labels: a model opened, asked, stopped, asked again, and a workload run on it. The toy on the processor: no
//! driver, and the same words every time.

use std::time::{Duration, Instant};

use egui_kittest::Harness;
use egui_kittest::kittest::Queryable;
use twostroke_app::App;
use twostroke_app::chat::{Answer, Progress, Turn};
use twostroke_app::host::Finish;
use twostroke_app::settings::Device;
use twostroke_app::source::{Ask, PromptOf, Workload};

/// Longest wait for an answer of the toy.
const LIMIT: Duration = Duration::from_secs(300);
/// Frames until a click has been moved to, pressed, let go and drawn.
const STEPS: usize = 6;

fn app() -> Harness<'static, App> {
    let mut app = App::new();
    app.show_panels();
    app.engine().settings.device = Device::Twin;
    app.engine().settings.context_tokens = Some(512);
    (app.chats().parameters.max_tokens, app.chats().parameters.temperature) = (12, 0.0);
    let draw = |ui: &mut egui::Ui, app: &mut App| {
        app.logic(ui.ctx());
        app.ui(ui);
    };
    let mut harness = Harness::builder().with_size(egui::vec2(1400.0, 900.0)).build_ui_state(draw, app);
    harness.run_steps(3);
    harness
}

fn wait(harness: &mut Harness<'static, App>, what: &str, good: impl Fn(&mut App) -> bool) {
    let until = Instant::now() + LIMIT;
    while !good(harness.state_mut()) {
        let state = harness.state().state();
        assert!(Instant::now() < until, "{what}: not within {LIMIT:?}: {state}");
        std::thread::sleep(Duration::from_millis(5));
        harness.step();
    }
    harness.run_steps(3);
}

/// With the toy open.
fn with_the_toy() -> Harness<'static, App> {
    let mut harness = app();
    harness.get_by_label("Open the toy").click();
    harness.run_steps(STEPS);
    wait(&mut harness, "open the toy", |app| app.engine().facts.is_some());
    harness
}

fn say(harness: &mut Harness<'static, App>, text: &str) {
    harness.get_by_label("Message").focus();
    harness.run_steps(2);
    harness.get_by_label("Message").type_text(text);
    harness.run_steps(2);
    harness.get_by_label("Send").click();
    harness.run_steps(STEPS);
}

fn last(app: &mut App) -> Answer {
    app.chats().current().turns().last().and_then(Turn::answer).expect("an answer").clone()
}

#[test]
fn a_question_is_answered_and_its_figures_lead_to_its_row() {
    let mut harness = with_the_toy();
    harness.get_by_label_contains("toy (llama");
    say(&mut harness, "Tell me about a fox.");
    wait(&mut harness, "the answer", |app| !app.is_working());
    let answer = last(harness.state_mut());
    assert_eq!(answer.progress, Progress::Done(Finish::Length));
    assert_eq!(answer.ids.len(), 12);
    assert!(!answer.text.is_empty());
    let request = harness.state().store().request(answer.request.expect("a row")).expect("in the live run");
    assert_eq!(request.output_tokens(), 12);
    harness.get_by_label_contains("decode").click();
    harness.run_steps(STEPS);
    assert_eq!(harness.state_mut().timeline().selected, answer.request);
    // Drawn again it is the same question, and at temperature 0 the same answer; its prompt is cached.
    harness.get_by_label("Again").click();
    harness.run_steps(STEPS);
    wait(&mut harness, "the answer again", |app| !app.is_working());
    let again = last(harness.state_mut());
    assert_eq!(again.ids, answer.ids);
    assert!(again.figures.expect("it has ended").cached_tokens > 0);
}

#[test]
fn two_chats_are_one_batch_and_each_has_its_own_answer() {
    let mut harness = with_the_toy();
    let mut alone = Vec::new();
    for text in ["Tell me about a fox.", "What is the sea?"] {
        say(&mut harness, text);
        wait(&mut harness, "an answer alone", |app| !app.is_working());
        alone.push(last(harness.state_mut()).ids);
        harness.get_by_label("New chat").click();
        harness.run_steps(STEPS);
    }
    harness.state_mut().ask("Tell me about a fox.");
    harness.state_mut().chats().begin();
    harness.state_mut().ask("What is the sea?");
    wait(&mut harness, "both", |app| !app.is_working());
    let shared = harness.state().store().steps().iter().filter(|step| step.decode_rows == 2).count();
    assert!(shared > 0, "no step decoded for both");
    let chats = harness.state_mut().chats();
    let ids: Vec<_> =
        chats.list().iter().rev().take(2).map(|chat| chat.turns()[1].answer().expect("one").ids.clone()).collect();
    assert_eq!([&ids[1], &ids[0]], [&alone[0], &alone[1]]);
}

#[test]
fn an_answer_is_stopped_and_the_next_one_is_whole() {
    let mut harness = with_the_toy();
    harness.state_mut().chats().parameters.max_tokens = 400;
    say(&mut harness, "Tell me a long story.");
    wait(&mut harness, "some tokens", |app| last(app).ids.len() >= 2);
    harness.get_by_label("Stop").click();
    harness.run_steps(STEPS);
    wait(&mut harness, "the stop", |app| !app.is_working());
    assert_eq!(last(harness.state_mut()).progress, Progress::Done(Finish::Stopped));
    harness.get_by_label_contains("stopped");
    harness.state_mut().chats().parameters.max_tokens = 5;
    say(&mut harness, "And now?");
    wait(&mut harness, "the next answer", |app| !app.is_working());
    let next = last(harness.state_mut());
    assert_eq!((next.ids.len(), next.progress), (5, Progress::Done(Finish::Length)));
}

#[test]
fn what_cannot_be_opened_says_why_and_the_toy_opens_after_it() {
    let mut harness = app();
    harness.state_mut().engine().name = "no/such/model.gguf".into();
    harness.run_steps(2);
    harness.get_by_label("Open by name").click();
    harness.run_steps(STEPS);
    wait(&mut harness, "the refusal", |app| app.engine().trouble.is_some());
    harness.get_by_label_contains("no/such/model.gguf");
    harness.get_by_label("Open the toy").click();
    harness.run_steps(STEPS);
    wait(&mut harness, "open the toy", |app| app.engine().facts.is_some());
    assert_eq!(harness.state_mut().engine().trouble, None);
}

#[test]
fn adapters_are_listed_with_a_plain_word_for_software() {
    let mut harness = app();
    harness.get_by_label("List the adapters").click();
    harness.run_steps(STEPS);
    wait(&mut harness, "the list", |app| app.engine().adapters.is_some());
    harness.get_by_label("Runs on");
    harness.get_by_label_contains("Only the processor plays a GPU here");
}

#[test]
fn a_workload_is_run_kept_and_held_against_the_next_one() {
    let mut harness = with_the_toy();
    let ask = |arrive, tokens| Ask { arrive, prompt: PromptOf::Made { tokens, family: Some(0) }, output_tokens: 6 };
    harness.state_mut().set_workload(Workload {
        name: "three".into(),
        asks: vec![ask(0, 40), ask(50_000_000, 40), ask(90_000_000, 64)],
    });
    harness.state_mut().show_figures();
    harness.run_steps(STEPS);
    for is_first in [true, false] {
        harness.get_by_label("Run").click();
        harness.run_steps(STEPS);
        wait(&mut harness, "the workload", |app| !app.is_playing());
        let made: Vec<u64> = harness.state().store().requests().iter().map(|request| request.output_tokens()).collect();
        assert_eq!(made, [6, 6, 6], "{}", harness.state().state());
        if is_first {
            harness.get_by_label("Keep as A").click();
            harness.run_steps(STEPS);
            harness.state_mut().engine().settings.prefix_caching = false;
        }
    }
    let cached = |store: &twostroke_app::run::Store| twostroke_app::run::Overview::of(store).cached_tokens;
    assert!(cached(harness.state().kept().expect("kept")) > 0);
    assert_eq!(cached(harness.state().store()), 0, "the second run had no cache");
    harness.get_by_label("B against A");
    harness.get_by_label("prompt tokens cached, %");
}
