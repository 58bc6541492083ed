//! Players: what they promise, on each driver and on the twin alike.

use twostroke::error::{Error, Result};
use twostroke::gpu::{GpuPlayer, Options, TierChoice};
use twostroke::kernels::{Tier, fold};
use twostroke::limits;
use twostroke::recording::{BufferId, Player, Recording};
use twostroke::twin::Twin;

use crate::adapters::{find, for_each_adapter, open};
use crate::gpu_programs::{Params, Toy};

type Tape = Recording<Toy>;

fn add(tape: &mut Tape, buffer: BufferId, count: u32, step: u32) {
    let grid = fold(u64::from(count));
    tape.dispatch(Toy::Add, &[buffer], &Params { count, step, grid_x: grid[0], pad0: 0 }, grid);
}

fn sum(tape: &mut Tape, a: BufferId, b: BufferId, out: BufferId, count: u32) {
    let grid = fold(u64::from(count));
    tape.dispatch(Toy::Sum, &[a, b, out], &Params { count, step: 0, grid_x: grid[0], pad0: 0 }, grid);
}

fn play(player: &mut dyn Player<Toy>, tape: &Tape) -> Vec<u32> {
    let ticket = player.submit(tape).expect("submitted");
    player.wait(ticket).expect("played").words
}

/// Runs a claim on the twin and on each adapter, plain, with checked shaders, and with one launch a submission.
fn on_all_players(claim: impl Fn(&str, &mut dyn Player<Toy>)) {
    claim("twin", &mut Twin::new());
    let checked = Options { checked: true, ..Options::default() };
    let split = Options { dispatches_per_submit: Some(1), ..Options::default() };
    for_each_adapter(|label, make_player| {
        for (kind, options) in [("", Options::default()), (" checked", checked.clone()), (" split", split.clone())] {
            claim(&format!("{label}{kind}"), &mut make_player(options));
        }
    });
}

#[test]
fn launches_reads_and_uploads_take_effect_in_order() {
    on_all_players(|label, player| {
        let (a, b) = (player.create_buffer("a", 16).expect("a"), player.create_buffer("b", 40).expect("b"));
        let mut tape = Tape::new();
        tape.read(a, 0, 16);
        add(&mut tape, a, 4, 1);
        add(&mut tape, a, 3, 10);
        tape.read(a, 4, 12);
        sum(&mut tape, a, a, b, 4);
        add(&mut tape, b, 10, 100);
        tape.read(b, 0, 20);
        tape.read(a, 0, 0);
        // Uploads come first, wherever they are recorded.
        tape.upload(a, 0, &[7_u32, 8, 9]);
        let expected = [7, 8, 9, 0, 19, 20, 1, 136, 138, 140, 102, 100];
        assert_eq!(play(player, &tape), expected, "{label}");
        tape.clear();
        tape.read(b, 20, 20);
        assert_eq!(play(player, &tape), [100; 5], "{label}: the next recording finds what the last one left");
    });
}

#[test]
fn a_recording_in_pieces_does_what_it_does_whole() {
    on_all_players(|label, player| {
        for pieces in [1, 2, 3, 7, 64] {
            let buffer = player.create_buffer("a", 16).expect("a buffer");
            let mut tape = Tape::new();
            for n in 0..7 {
                if n % 2 == 1 {
                    tape.border();
                }
                add(&mut tape, buffer, 4, 1 << n);
                if n == 3 {
                    tape.read(buffer, 0, 8);
                }
            }
            tape.read(buffer, 8, 8);
            tape.pieces = pieces;
            assert_eq!(play(player, &tape), [15, 15, 127, 127], "{label}, in {pieces} submits");
            player.drop_buffer(buffer);
        }
    });
}

#[test]
fn written_bytes_are_there_before_the_next_recording() {
    on_all_players(|label, player| {
        let buffer = player.create_buffer("weights", 4096).expect("a buffer");
        let words: Vec<u32> = (0..1024).collect();
        player.write(buffer, 0, bytemuck::cast_slice(&words)).expect("written");
        player.write(buffer, 8, bytemuck::bytes_of(&5_u32)).expect("written");
        player.write(buffer, 4096, &[]).expect("nothing written");
        let mut tape = Tape::new();
        add(&mut tape, buffer, 1024, 1);
        tape.read(buffer, 0, 4096);
        let expected: Vec<u32> = (1..=1024).map(|n| if n == 3 { 6 } else { n }).collect();
        assert_eq!(play(player, &tape), expected, "{label}");
    });
}

#[test]
fn buffers_start_at_zero_and_are_one_vec4_at_least() {
    on_all_players(|label, player| {
        for bytes in [0, 1, 4, 17] {
            let buffer = player.create_buffer("small", bytes).expect("a buffer");
            let mut tape = Tape::new();
            tape.read(buffer, 0, bytes.max(16).next_multiple_of(4));
            assert!(play(player, &tape).iter().all(|&word| word == 0), "{label}: {bytes} bytes");
        }
    });
}

#[test]
fn empty_recordings_are_answered() {
    on_all_players(|label, player| {
        let buffer = player.create_buffer("b", 16).expect("a buffer");
        let mut tape = Tape::new();
        assert_eq!(play(player, &tape), [0; 0], "{label}");
        add(&mut tape, buffer, 0, 1);
        tape.upload::<u32>(buffer, 0, &[]);
        assert_eq!(play(player, &tape), [0; 0], "{label}: an empty grid and an empty upload");
        tape.upload(buffer, 0, &[3_u32]);
        assert_eq!(play(player, &tape), [0; 0], "{label}: an upload alone");
        tape.clear();
        tape.read(buffer, 0, 4);
        assert_eq!(play(player, &tape), [3], "{label}");
    });
}

#[test]
fn more_than_65535_workgroups_are_right_to_the_last_one() {
    let count = 2 * limits::BASE_WORKGROUPS + 3;
    let run = |label: &str, player: &mut dyn Player<Toy>| {
        let buffer = player.create_buffer("x", u64::from(count + 1) * 4).expect("a buffer");
        let mut tape = Tape::new();
        add(&mut tape, buffer, count, 1);
        tape.read(buffer, 0, u64::from(count + 1) * 4);
        let words = play(player, &tape);
        let (last, all) = words.split_last().expect("words");
        assert!(all.iter().all(|&word| word == 1), "{label}: each element once");
        assert_eq!(*last, 0, "{label}: nothing past the end");
    };
    run("twin", &mut Twin::new());
    for_each_adapter(|label, make_player| run(label, &mut make_player(Options::default())));
}

#[test]
fn params_of_two_thousand_launches_stay_apart() {
    let run = |label: &str, player: &mut dyn Player<Toy>| {
        let buffer = player.create_buffer("x", 16).expect("a buffer");
        let mut tape = Tape::new();
        add(&mut tape, buffer, 1, 1);
        play(player, &tape);
        tape.clear();
        for step in 0..2000 {
            add(&mut tape, buffer, 1 + step % 2, step);
        }
        assert!(tape.params.len() as u64 > limits::PARAMS_BYTES_FIRST, "the params buffer must grow for this test");
        tape.read(buffer, 0, 8);
        assert_eq!(play(player, &tape), [1 + 1_999_000, 1_000_000], "{label}");
    };
    run("twin", &mut Twin::new());
    for_each_adapter(|label, make_player| run(label, &mut make_player(Options::default())));
}

#[test]
fn new_buffers_take_the_place_of_dropped_ones() {
    on_all_players(|label, player| {
        for round in 0..3 {
            let buffer = player.create_buffer("x", 64).expect("a buffer");
            let mut tape = Tape::new();
            add(&mut tape, buffer, 16, round);
            tape.read(buffer, 60, 4);
            let ticket = player.submit(&tape).expect("submitted");
            player.drop_buffer(buffer);
            assert_eq!(player.wait(ticket).expect("in flight it lives on").words, [round], "{label}");
        }
    });
}

#[test]
fn recordings_in_flight_are_answered_in_any_order_by_polling() {
    on_all_players(|label, player| {
        let buffer = player.create_buffer("x", 16).expect("a buffer");
        let mut tickets = Vec::new();
        for _ in 0..5 {
            let mut tape = Tape::new();
            add(&mut tape, buffer, 1, 1);
            tape.read(buffer, 0, 4);
            tickets.push(player.submit(&tape).expect("submitted"));
        }
        for (i, ticket) in tickets.into_iter().enumerate().rev() {
            let played = loop {
                if let Some(played) = player.poll(ticket).expect("played") {
                    break played;
                }
                std::thread::yield_now();
            };
            assert_eq!(played.words.len(), 1, "{label}");
            assert_eq!(played.words[0] as usize, i + 1, "{label}");
        }
    });
}

#[test]
fn time_on_the_gpu_is_told_where_there_are_timestamps() {
    for_each_adapter(|label, make_player| {
        let mut player: GpuPlayer<Toy> = make_player(Options::default());
        let has_timer = player.capabilities().features.contains(&"timestamp-query");
        let buffer = player.create_buffer("x", 4 * 60_000).expect("a buffer");
        let mut tape = Tape::new();
        tape.read(buffer, 0, 12);
        let ticket = player.submit(&tape).expect("submitted");
        assert_eq!(player.wait(ticket).expect("played").gpu_nanos, None, "{label}: nothing was launched");
        add(&mut tape, buffer, 60_000, 1);
        let ticket = player.submit(&tape).expect("submitted");
        let played = player.wait(ticket).expect("played");
        assert_eq!(played.words, [0; 3], "{label}");
        assert_eq!(played.gpu_nanos.is_some(), has_timer, "{label}: {:?}", played.gpu_nanos);
        assert!(played.gpu_nanos.is_none_or(|nanos| nanos < 60_000_000_000), "{label}: {:?}", played.gpu_nanos);
    });
}

fn expect_error<T: std::fmt::Debug>(label: &str, result: Result<T>, parts: &[&str]) -> Error {
    let error = result.expect_err(label);
    for part in parts {
        assert!(error.to_string().contains(part), "{label}: {part:?} is not in {error}");
    }
    error
}

#[test]
fn out_of_memory_is_an_error_and_the_player_goes_on() {
    let claim = |label: &str, player: &mut dyn Player<Toy>| {
        let first = player.create_buffer("first", 700).expect("fits");
        let error = expect_error(label, player.create_buffer("kv pages", 700), &["kv pages", "700 bytes"]);
        assert!(matches!(error, Error::OutOfMemory { bytes: 700, .. }), "{label}: {error:?}");
        player.drop_buffer(first);
        player.create_buffer("kv pages", 700).expect("fits again");
        let most = player.binding_bytes_max();
        assert_eq!(most, 1024, "{label}");
        let error = expect_error(label, player.create_buffer("head", most + 1), &["head of 1028 bytes", "1024 bytes"]);
        assert!(matches!(error, Error::Gpu { .. }), "{label}: {error:?}");
    };
    claim("twin", &mut Twin::new().with_binding_bytes_max(1030).with_memory_bytes_max(1024));
    let options = Options { binding_bytes_max: Some(1030), memory_bytes_max: Some(1024), ..Options::default() };
    for_each_adapter(|label, make_player| claim(label, &mut make_player(options.clone())));
}

/// Set in a process of this test binary that has little memory.
const FEW_BYTES: &str = "TWOSTROKE_TEST_FEW_BYTES";

#[test]
fn driver_without_memory_is_an_error_and_the_player_goes_on() {
    if std::env::var_os(FEW_BYTES).is_some() {
        return fill_the_driver();
    }
    let Some(adapter) = find("llvmpipe") else { return };
    if !cfg!(target_os = "linux") {
        println!("SKIP only Linux bounds the memory of a process");
        return;
    }
    // lavapipe's memory is its process's.
    let this = "gpu_player::driver_without_memory_is_an_error_and_the_player_goes_on";
    let output = std::process::Command::new("sh")
        .args(["-c", "ulimit -v 2500000 && exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().expect("this binary"))
        .args([this, "--exact", "--nocapture"])
        .env(FEW_BYTES, &adapter.capabilities.name)
        .output()
        .expect("a shell");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("refused after "), "{said}");
}

fn fill_the_driver() {
    let bytes = 100 << 20;
    let mut player: GpuPlayer<Toy> = open(find("llvmpipe").expect("the parent had it"), Tier::Base, Options::default());
    let mut buffers = Vec::new();
    let error = loop {
        assert!(buffers.len() < 100, "10 GB in a process of 2.5 GB");
        match player.create_buffer("kv pages", bytes) {
            Ok(buffer) => buffers.push(buffer),
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, Error::OutOfMemory { what, bytes: 104_857_600, .. } if what == "kv pages"), "{error:?}");
    println!("refused after {} buffers: {error}", buffers.len());
    for buffer in buffers.drain(..) {
        player.drop_buffer(buffer);
    }
    let buffer = player.create_buffer("kv pages", bytes).expect("dropped buffers are free again");
    let mut tape = Tape::new();
    add(&mut tape, buffer, 4, 1);
    tape.read(buffer, 0, 16);
    assert_eq!(play(&mut player, &tape), [1; 4], "the device still works");
}

#[test]
fn kernel_that_the_driver_refuses_is_an_error_with_its_label() {
    for_each_adapter(|label, make_player| {
        let mut player: GpuPlayer<Toy> = make_player(Options::default());
        let mut check = |program: Toy, part: &str| {
            let expected = [&*format!("toy_{program:?}"), "compile kernel", part];
            let error = expect_error(label, player.prepare(&[Toy::Add, program]), &expected);
            assert!(matches!(error, Error::Gpu { .. }), "{label}: {error:?}");
            let buffer = player.create_buffer("x", 16).expect("a buffer");
            let mut tape = Tape::new();
            tape.dispatch(program, &[buffer], &Params { count: 1, step: 1, grid_x: 1, pad0: 0 }, [1, 1, 1]);
            expect_error(label, player.submit(&tape), &expected);
        };
        check(Toy::Garbled, "expected");
        check(Toy::Mistyped, "type");
        // Software drivers have 1,024 invocations; the tiers ask for WebGPU's default all the same.
        check(Toy::TooManyInvocations, "512");
        check(Toy::BindingsDiffer, "binding");
        if player.tier() == Tier::Base {
            let mut check = |program, part| {
                expect_error(label, player.prepare(&[program]), &["compile kernel", part]);
            };
            check(Toy::Subgroups, "needs tier subgroup");
            check(Toy::SubgroupsUnsaid, "ubgroup");
        } else {
            player.prepare(&[Toy::Subgroups]).expect("subgroups are there");
        }
        let buffer = player.create_buffer("x", 16).expect("a buffer");
        let mut tape = Tape::new();
        add(&mut tape, buffer, 2, 3);
        tape.read(buffer, 0, 12);
        assert_eq!(play(&mut player, &tape), [3, 3, 0], "{label}: the device still works");
    });
}

#[test]
fn lost_device_is_an_error_of_every_call() {
    for_each_adapter(|label, make_player| {
        let mut player: GpuPlayer<Toy> = make_player(Options::default());
        let buffer = player.create_buffer("x", 1024).expect("a buffer");
        let mut tape = Tape::new();
        add(&mut tape, buffer, 256, 1);
        tape.read(buffer, 0, 1024);
        let in_flight = player.submit(&tape).expect("submitted");
        let forgotten = player.submit(&tape).expect("submitted");
        player.destroy();
        let lost = |result: Result<()>| {
            let error = expect_error(label, result, &["device lost", "destroyed"]);
            assert!(matches!(error, Error::DeviceLost { .. }), "{label}: {error:?}");
        };
        lost(player.poll(in_flight).map(drop));
        lost(player.wait(forgotten).map(drop));
        lost(player.create_buffer("y", 16).map(drop));
        lost(player.write(buffer, 0, &[0; 16]));
        lost(player.prepare(&[Toy::Sum]));
        lost(player.submit(&tape).map(drop));
        lost(player.submit(&Tape::new()).map(drop));
        player.drop_buffer(buffer);
    });
}

#[test]
fn forcing_a_tier_that_the_adapter_lacks_names_its_subgroup_size() {
    if let Some(adapter) = find("SwiftShader") {
        let options = Options { tier: TierChoice::Only(Tier::Subgroup), ..Options::default() };
        let error = expect_error("forced", GpuPlayer::<Toy>::open_now(adapter, options), &["4 lanes, 8 are needed"]);
        assert_eq!(error.exit_code(), 1);
        assert_eq!(open::<Toy>(adapter, Tier::Base, Options::default()).tier(), Tier::Base);
        let auto = GpuPlayer::<Toy>::open_now(adapter, Options::default()).expect("auto takes what there is");
        assert_eq!(auto.tier(), Tier::Base);
    }
    if let Some(adapter) = find("llvmpipe") {
        let auto = GpuPlayer::<Toy>::open_now(adapter, Options::default()).expect("auto takes what there is");
        assert_eq!(auto.tier(), Tier::Subgroup);
        assert!(auto.plan().software);
        let base = open::<Toy>(adapter, Tier::Base, Options::default());
        assert_eq!(base.binding_bytes_max(), limits::BASE_BINDING_BYTES);
        assert_eq!(base.buffer_bytes_max(), 256 << 20, "WebGPU's default, though the driver has more");
    }
}

#[test]
fn capabilities_are_json_for_machines() {
    for_each_adapter(|label, make_player| {
        let player: GpuPlayer<Toy> = make_player(Options::default());
        let json = serde_json::to_value(player.capabilities()).expect("plain data");
        assert_eq!(json["kind"], if player.plan().software { "software" } else { "discrete" }, "{label}: {json}");
        assert!(json["limits"]["binding_bytes_max"].as_u64() >= Some(limits::BASE_BINDING_BYTES), "{label}: {json}");
        assert!(json["tier"] == "base" || json["tier"] == "subgroup", "{label}: {json}");
    });
}

#[test]
#[should_panic(expected = "binds BufferId(0) twice")]
fn buffer_that_is_written_must_not_be_bound_twice() {
    let mut twin = Twin::new();
    let buffer = twin.create_buffer("x", 16).expect("a buffer");
    let mut tape = Tape::new();
    sum(&mut tape, buffer, buffer, buffer, 1);
    drop(twin.submit(&tape));
}

#[test]
#[should_panic(expected = "has 1 bindings, the launch 2")]
fn launch_has_as_many_bindings_as_its_kernel() {
    let mut twin = Twin::new();
    let (a, b) = (twin.create_buffer("a", 16).expect("a"), twin.create_buffer("b", 16).expect("b"));
    let mut tape = Tape::new();
    tape.dispatch(Toy::Add, &[a, b], &Params { count: 1, step: 1, grid_x: 1, pad0: 0 }, [1, 1, 1]);
    drop(twin.submit(&tape));
}

#[test]
#[should_panic(expected = "was answered already")]
fn ticket_is_answered_once() {
    let mut twin = Twin::<Toy>::new();
    let ticket = twin.submit(&Tape::new()).expect("submitted");
    drop(twin.wait(ticket));
    drop(twin.wait(ticket));
}
