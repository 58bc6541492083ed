//! Pictures of the app, compared with those that were looked at. The README shows them.

use egui::{ThemePreference, vec2};
use egui_kittest::{Harness, SnapshotOptions, SnapshotResults};
use twostroke::model::TokenWork;
use twostroke::sched::Policy;
use twostroke_app::App;
use twostroke_app::chat::Turn;
use twostroke_app::host::{Facts, Finish, Said};
use twostroke_app::source::{Ask, PromptOf, Scenario, Workload};

use crate::timeline::shown;

fn options() -> SnapshotOptions {
    SnapshotOptions::new().output_path("../assets/pictures")
}

fn harness(size: egui::Vec2, look: ThemePreference, app: App) -> Harness<'static, App> {
    let mut harness = Harness::builder().with_size(size).build_ui_state(|ui, app: &mut App| app.ui(ui), app);
    harness.ctx.set_theme(look);
    harness.run_steps(60);
    harness
}

#[test]
fn the_stall_and_its_absence_are_plain_to_see() {
    let mut results = SnapshotResults::new();
    for policy in [Policy::PrefillFirst, Policy::Slo] {
        let mut harness = shown(policy);
        let name = format!("long_prompt_{}", policy.name().replace('-', "_"));
        harness.snapshot_options(name, &options());
        results.extend_harness(&mut harness);
    }
}

#[test]
fn two_policies_are_held_against_each_other_on_light_ground() {
    let mut app = App::new();
    app.set_policy(Policy::PrefillFirst);
    app.simulate();
    app.simulate_whole();
    app.keep();
    app.set_policy(Policy::Slo);
    app.simulate();
    app.simulate_whole();
    app.show_figures();
    let mut harness = harness(vec2(1280.0, 1000.0), ThemePreference::Light, app);
    harness.snapshot_options("two_policies", &options());
}

/// What was asked and answered, in its own words.
const TALK: [(&str, &str); 2] = [
    (
        "Why is the sky blue?",
        "Sunlight holds every colour. Air scatters **short waves** far more than long ones, so what comes from all sides is *blue*.",
    ),
    (
        "And red at evening?",
        "Then the light has come a long way through the air, and most of its blue went elsewhere:\n\n- what is left is **red**\n- the sun itself looks orange",
    ),
];

/// A session as the engine tells of it, on the machine that was measured: the same every time.
fn session() -> App {
    let scenario = Scenario::long_prompt(Policy::Slo);
    let ask = |arrive, tokens, output_tokens| Ask {
        arrive,
        prompt: PromptOf::Made { tokens, family: Some(0) },
        output_tokens,
    };
    let asks =
        vec![ask(0, 64, 40), ask(4_000_000_000, 160, 48), ask(4_300_000_000, 90, 60), ask(4_500_000_000, 600, 24)];
    let scenario = Scenario { workload: Workload { name: String::new(), asks }, ..scenario };
    let mut app = App::new();
    app.show_panels();
    let machine = &scenario.machine;
    app.heard(Said::Opened(Facts {
        model: machine.model.clone(),
        kind: "llama 135M Q4_1".into(),
        adapter: machine.adapter.clone(),
        tier: "subgroup",
        is_software: true,
        context_tokens: 8192,
        context_tokens_made_for: 8192,
        vocab: machine.vocab,
        page_bytes: machine.page_bytes,
        work: TokenWork { weight_bytes: 98_000_000, layer_flops: 0, head_flops: 0, pair_flops: 0, kv_bytes: 0 },
        bytes: 412_000_000,
        has_template: true,
    }));
    scenario.play().expect("it fits").into_iter().for_each(|event| app.heard(Said::Event(event)));
    for (number, (question, answer)) in TALK.into_iter().enumerate() {
        let ask = app.chats().send(question).expect("asked");
        let prompt = vec![0; [64, 160][number]].into();
        app.heard(Said::Began { id: ask.id, request: number as u64, prompt });
        let words: Vec<&str> = answer.split_inclusive(' ').collect();
        for (token, word) in (0..).zip(words) {
            app.heard(Said::Text { id: ask.id, text: word.into(), token });
        }
        app.heard(Said::Ended { id: ask.id, finish: Finish::Stop });
    }
    let request = app.chats().current().turns()[3].answer().and_then(|answer| answer.request);
    app.timeline().selected = request;
    app.timeline().view.show(0.0, 8e9);
    app.timeline().view.settle();
    app
}

#[test]
fn a_chat_has_its_figures_and_its_row() {
    let app = session();
    let mut harness = harness(vec2(1440.0, 760.0), ThemePreference::Dark, app);
    assert!(
        harness
            .state_mut()
            .chats()
            .current()
            .turns()
            .iter()
            .filter_map(Turn::answer)
            .all(|answer| answer.figures.is_some())
    );
    harness.snapshot_options("chat", &options());
}
