//! The timeline's keys, pointer and figures.

use egui::{Event, Key, Modifiers, vec2};
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT, Queryable};
use twostroke::sched::Policy;
use twostroke_app::App;

/// An app with the long prompt's run on the screen.
pub(crate) fn shown(policy: Policy) -> Harness<'static, App> {
    let mut app = App::new();
    app.set_policy(policy);
    app.simulate();
    app.simulate_whole();
    let mut harness =
        Harness::builder().with_size(vec2(1200.0, 420.0)).build_ui_state(|ui, app: &mut App| app.ui(ui), app);
    harness.run();
    harness
}

fn press(harness: &mut Harness<'static, App>, key: Key) {
    harness.key_press(key);
    harness.run_steps(60);
}

#[test]
fn every_request_has_a_row_with_its_figures() {
    let harness = shown(Policy::Slo);
    for id in 0..5 {
        let name = format!("#{id} ");
        let row = harness.get_by_label_contains(&name);
        let label = row.accesskit_node().label().expect("a label");
        assert!(label.contains("TTFT") && label.contains("tok/s") && label.contains("length"), "{label}");
    }
    harness.get_by_label("Timeline");
    harness.get_by_label("Minimap");
}

#[test]
fn keys_zoom_move_fit_and_select_as_in_perfetto() {
    let mut harness = shown(Policy::Slo);
    let span = |harness: &mut Harness<'static, App>| harness.state_mut().timeline().view.span();
    let whole = span(&mut harness);
    press(&mut harness, Key::W);
    assert!(span(&mut harness) < whole * 0.75);
    let from = harness.state_mut().timeline().view.from();
    press(&mut harness, Key::D);
    assert!(harness.state_mut().timeline().view.from() > from);
    press(&mut harness, Key::Num0);
    assert!((span(&mut harness) / whole - 1.0).abs() < 1e-6);
    press(&mut harness, Key::ArrowDown);
    press(&mut harness, Key::ArrowDown);
    assert_eq!(harness.state_mut().timeline().selected, Some(1));
    press(&mut harness, Key::F);
    assert!(span(&mut harness) < whole, "the request is shorter than the run");
    press(&mut harness, Key::Period);
    assert_eq!(harness.state_mut().timeline().segment, Some(0));
    press(&mut harness, Key::Escape);
    assert_eq!(harness.state_mut().timeline().selected, None);
}

#[test]
fn a_click_on_a_row_selects_it_and_r_gives_its_statistics() {
    let mut harness = shown(Policy::PrefillFirst);
    harness.get_by_label_contains("#2 ").click();
    harness.run();
    assert_eq!(harness.state_mut().timeline().selected, Some(2));
    press(&mut harness, Key::R);
    harness.get_by_label_contains("159 gaps");
}

#[test]
fn a_drag_selects_a_stretch_and_shift_moves() {
    let mut harness = shown(Policy::Slo);
    let rect = harness.get_by_label("Timeline").rect();
    let (from, to) = (rect.center() - vec2(200.0, 0.0), rect.center());
    harness.hover_at(from);
    harness.run_steps(2);
    harness.drag_at(from);
    harness.run_steps(2);
    harness.hover_at(to);
    harness.run_steps(2);
    harness.drop_at(to);
    harness.run_steps(2);
    let range = harness.state_mut().timeline().range.expect("a stretch");
    let view = harness.state_mut().timeline().view;
    let part = (range.1 - range.0) as f64 / view.span();
    assert!((part - 200.0 / f64::from(rect.width())).abs() < 0.02, "{part}");
    // The same with shift moves what is seen, by as many points.
    harness.event(Event::ModifiersChanged(Modifiers::SHIFT));
    let seen = harness.state_mut().timeline().view;
    harness.drag_at(to);
    harness.run_steps(2);
    harness.hover_at(from);
    harness.run_steps(2);
    harness.drop_at(from);
    harness.run_steps(2);
    let moved = (harness.state_mut().timeline().view.from() - seen.from()) / seen.span();
    assert!((moved - 200.0 / f64::from(rect.width())).abs() < 0.02, "{moved}");
    assert_eq!(harness.state_mut().timeline().range, Some(range));
}

#[test]
fn the_policy_is_chosen_by_name_and_simulated() {
    let mut harness = shown(Policy::Slo);
    harness.get_by_label("Policy").click();
    harness.run();
    harness.get_by_label("prefill-first").click();
    harness.run();
    harness.get_by_label("Simulate").click();
    harness.run_steps(6);
    harness.state_mut().simulate_whole();
    harness.run();
    harness.get_by_label_contains("a long prompt, prefill-first");
}

#[test]
fn help_lists_the_keys() {
    let mut harness = shown(Policy::Slo);
    harness.get_by_label("Keys").click();
    harness.run();
    harness.get_by_label("Follow what is live, or freeze");
}

#[test]
fn nothing_open_says_what_to_do() {
    let mut harness = Harness::builder().build_ui_state(|ui, app: &mut App| app.ui(ui), App::new());
    harness.run();
    harness.get_by_label_contains("Drop a trace here");
}
