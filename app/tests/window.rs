//! The program in a real window, on a display that nobody sees.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use twostroke_app::theme::Theme;

/// Longest that a program may take.
const LIMIT: Duration = Duration::from_secs(300);

/// A display of our own.
struct Display {
    server: Child,
    name: String,
}

impl Drop for Display {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Starts Xvfb; without one the test is skipped aloud, or fails where everything must be there.
fn display(test: &str) -> Option<Display> {
    let args = ["-displayfd", "1", "-screen", "0", "1280x800x24", "-nolisten", "tcp"];
    let started = Command::new("Xvfb").args(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut server = match started {
        Ok(server) => server,
        Err(error) => {
            assert!(
                std::env::var_os("REQUIRE_GPU").is_none(),
                "REQUIRE_GPU is set and Xvfb cannot be started: {error}"
            );
            eprintln!("SKIP {test}: no Xvfb ({error})");
            return None;
        }
    };
    let mut line = String::new();
    BufReader::new(server.stdout.take().expect("piped")).read_line(&mut line).expect("its number");
    assert!(!line.trim().is_empty(), "Xvfb ended at once");
    Some(Display { server, name: format!(":{}", line.trim()) })
}

/// The program on `display`, with nothing kept from earlier starts.
fn program(display: &Display, home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_twostroke-app"));
    command.args(args).env("DISPLAY", &display.name).env_remove("WAYLAND_DISPLAY").env("XDG_DATA_HOME", home);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    command
}

/// Waits until the program ends.
fn ended(child: &mut Child) -> std::process::ExitStatus {
    let until = Instant::now() + LIMIT;
    loop {
        match child.try_wait().expect("it is ours") {
            Some(status) => return status,
            None if Instant::now() > until => {
                let _ = child.kill();
                panic!("it has not ended after {LIMIT:?}");
            }
            None => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

#[test]
fn the_default_model_answers_in_a_real_window_which_is_then_closed() {
    let test = "the_default_model_answers_in_a_real_window";
    let Some(display) = display(test) else { return };
    if let Err(error) = twostroke::cli::fetch::resolve(None) {
        assert!(std::env::var_os("REQUIRE_GPU").is_none(), "REQUIRE_GPU is set: {error}");
        return eprintln!("SKIP {test}: {error}");
    }
    let home = tempfile::tempdir().expect("a folder");
    let picture = home.path().join("window.png");
    let path = picture.to_str().expect("UTF-8");
    let args = ["--model", "default", "--ask", "Why is the sky blue? One sentence.", "--picture", path];
    let mut child = program(&display, home.path(), &args).spawn().expect("the program starts");
    let status = ended(&mut child);
    assert!(status.success(), "{status}");
    let said: Vec<String> = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok).collect();
    let state: serde_json::Value = serde_json::from_str(said.last().expect("a line")).expect("JSON");
    let answer = &state["answers"][0];
    assert!(answer["done"] == "Stop" || answer["done"] == "Length", "{state}");
    assert!(answer["text"].as_str().expect("a text").to_lowercase().contains("sky"), "{answer}");
    assert!(state["rows"][0]["ticks"].as_u64().expect("a count") > 2, "{state}");
    // The picture holds both strokes, in the colours of one look.
    let picture = image::open(&picture).expect("a picture").to_rgba8();
    assert!(picture.width() >= 1000 && picture.height() >= 600, "{} x {}", picture.width(), picture.height());
    let count = |color: egui::Color32| picture.pixels().filter(|pixel| pixel.0[..3] == color.to_array()[..3]).count();
    let theme = Theme::built_in();
    let strokes = [theme.dark, theme.light].map(|look| (count(look.prefill), count(look.decode)));
    assert!(strokes.iter().any(|(prefill, decode)| *prefill > 20 && *decode > 100), "{strokes:?}");
}

#[test]
fn an_app_goes_on_in_the_next_window_when_its_device_is_lost() {
    let Some(display) = display("an_app_goes_on_in_the_next_window_when_its_device_is_lost") else { return };
    let home = tempfile::tempdir().expect("a folder");
    let picture = home.path().join("window.png");
    let path = picture.to_str().expect("UTF-8");
    let args = ["--model", "toy", "--ask", "Who is there?", "--lose-device", "--picture", path];
    let mut child = program(&display, home.path(), &args).stderr(Stdio::piped()).spawn().expect("the program starts");
    let status = ended(&mut child);
    let lines =
        |from: Box<dyn std::io::Read>| -> Vec<String> { BufReader::new(from).lines().map_while(Result::ok).collect() };
    let (out, err) =
        (lines(Box::new(child.stdout.take().expect("piped"))), lines(Box::new(child.stderr.take().expect("piped"))));
    assert!(status.success(), "{status}: {err:?}");
    assert!(err.iter().any(|line| line.contains("device was lost")), "{err:?}");
    let state: serde_json::Value = serde_json::from_str(out.last().expect("a line")).expect("JSON");
    assert!(state["answers"][0]["done"].is_string(), "the conversation is still there: {state}");
    assert!(state["rows"][0]["ticks"].as_u64().expect("a count") > 2, "so is its row: {state}");
    assert!(state["note"].as_str().expect("a note").contains("took over"), "{state}");
    assert!(image::open(&picture).expect("a picture").width() >= 1000);
}

/// Processor time of a process, in seconds.
#[cfg(target_os = "linux")]
fn processor_seconds(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    // The name stands in parentheses and may hold spaces; user and system time are the 14th and 15th field.
    let fields: Vec<&str> = text.rsplit(')').next().expect("a tail").split_whitespace().collect();
    let ticks: f64 = fields[11..13].iter().map(|field| field.parse::<f64>().expect("a number")).sum();
    ticks / 100.0
}

#[cfg(target_os = "linux")]
#[test]
fn a_program_that_nobody_touches_uses_next_to_no_processor() {
    let Some(display) = display("a_program_that_nobody_touches_uses_next_to_no_processor") else { return };
    let home = tempfile::tempdir().expect("a folder");
    let mut child = program(&display, home.path(), &[]).spawn().expect("the program starts");
    // Until its first frames are drawn and it has come to rest.
    let (until, mut before) = (Instant::now() + LIMIT, f64::MAX);
    let share = loop {
        std::thread::sleep(Duration::from_secs(5));
        assert!(child.try_wait().expect("it is ours").is_none(), "it has ended");
        let now = processor_seconds(child.id());
        let share = (now - before) / 5.0;
        if (0.0..0.02).contains(&share) || Instant::now() > until {
            break share;
        }
        before = now;
    };
    let _ = child.kill();
    let _ = child.wait();
    assert!((0.0..0.02).contains(&share), "it never comes to rest: {share} of a core");
}
