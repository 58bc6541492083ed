//! The chat on a pseudo-terminal, which util-linux's `script` lends. Where there is no such `script`, these are skipped.
#![cfg(target_os = "linux")]

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::cli_program::TinyModel;
use crate::model_writer::TinyLlama;

const PATIENCE: Duration = Duration::from_secs(60);

/// A program on a terminal.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: Receiver<Vec<u8>>,
    seen: String,
}

impl Terminal {
    /// `None` without a `script` that can do it.
    fn open(args: &[String]) -> Option<Self> {
        let version = Command::new("script").arg("--version").output().ok()?;
        if !String::from_utf8_lossy(&version.stdout).contains("util-linux") {
            return None;
        }
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
        let words = std::iter::once(env!("CARGO_BIN_EXE_twostroke")).chain(args.iter().map(String::as_str));
        let line = format!("exec {}", words.map(quoted).collect::<Vec<_>>().join(" "));
        let mut command = Command::new("script");
        command.args(["-q", "-e", "-c", &line, "/dev/null"]).env("TERM", "xterm").env_remove("TWOSTROKE_LOG");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().ok()?;
        let keys = child.stdin.take().expect("piped");
        let mut out = child.stdout.take().expect("piped");
        let (send, screen) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count) = out.read(&mut bytes) {
                if count == 0 || send.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Some(Self { child, keys, screen, seen: String::new() })
    }

    /// Waits until `text` comes; returns what came since the last wait, up to its end.
    #[track_caller]
    fn wait_for(&mut self, text: &str) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.seen.find(text) {
                let rest = self.seen.split_off(at + text.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            match self.screen.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(error) => panic!("no {text:?} ({error}) in {:?}", self.seen),
            }
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the terminal takes keys");
        self.keys.flush().expect("the terminal takes keys");
    }

    /// Waits for the end of the program; returns its exit status.
    #[track_caller]
    fn wait_for_end(mut self) -> Option<i32> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().expect("a child of ours") {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        panic!("the chat did not end: {:?}", self.seen);
    }
}

/// A chat with a random model, at its prompt; `None` where there is no terminal to be had.
fn chat(model: &TinyModel, more: &[&str]) -> Option<Terminal> {
    let Some(mut terminal) = Terminal::open(&model.args("run", more)) else {
        println!("SKIP no util-linux script");
        return None;
    };
    terminal.wait_for("twice leaves");
    terminal.wait_for("> ");
    Some(terminal)
}

/// The number in front of `what` in a line of figures.
#[track_caller]
fn figure(line: &str, what: &str) -> u64 {
    let at = line.find(what).unwrap_or_else(|| panic!("no {what:?} in {line:?}"));
    let digits = line[..at].rsplit(|c: char| !c.is_ascii_digit()).next().expect("rsplit gives one");
    digits.parse().unwrap_or_else(|_| panic!("no number before {what:?} in {line:?}"))
}

#[test]
fn kv_grows_from_turn_to_turn_and_clear_forgets_it() {
    let model = TinyModel::new(&TinyLlama { context: 2048, ..Default::default() }, |_| ());
    let Some(mut terminal) = chat(&model, &["--max-tokens", "4", "--ignore-eos"]) else { return };
    let mut turn = |text: &str| {
        terminal.press(&format!("{text}\r"));
        terminal.wait_for("TTFT");
        terminal.wait_for("base")
    };
    let first = turn("the sea and the land");
    assert!(!first.contains("cached"), "{first}");
    let first_tokens = figure(&first, " tokens at");
    let second = turn("and then");
    let cached = figure(&second, " more cached");
    // Whole pages of 16 are.
    assert!(cached + 16 > first_tokens, "{cached} of at least {first_tokens} are kept: {second}");
    let third = turn("and then");
    assert!(figure(&third, " more cached") > cached, "{third}");
    terminal.press("/clear\r");
    terminal.wait_for("forgotten");
    terminal.press("the sea and the land\r");
    terminal.wait_for("TTFT");
    let again = terminal.wait_for("base");
    assert!(!again.contains("cached"), "{again}");
    assert_eq!(figure(&again, " tokens at"), first_tokens);
    terminal.press("/exit\r");
    assert_eq!(terminal.wait_for_end(), Some(0));
}

#[test]
fn interrupt_stops_the_answer_and_twice_leaves() {
    let model = TinyModel::new(&TinyLlama { context: 16_384, ..Default::default() }, |_| ());
    let Some(mut terminal) = chat(&model, &["--ignore-eos"]) else { return };
    terminal.press("the sea\r");
    // The answer has begun once the line that was typed is over and more comes.
    terminal.wait_for("the sea");
    std::thread::sleep(Duration::from_millis(700));
    terminal.press("\x03");
    let figures = terminal.wait_for("base");
    assert!(figures.contains("TTFT"), "{figures}");
    terminal.wait_for("> ");
    terminal.press("again\r");
    terminal.wait_for("again");
    std::thread::sleep(Duration::from_millis(700));
    terminal.press("\x03");
    terminal.wait_for("base");
    terminal.wait_for("> ");
    terminal.press("\x03");
    assert_eq!(terminal.wait_for_end(), Some(0));
}

#[test]
fn chat_goes_on_after_a_question_that_does_not_fit() {
    let model = TinyModel::new(&TinyLlama { context: 64, ..Default::default() }, |_| ());
    let Some(mut terminal) = chat(&model, &["--max-tokens", "1", "--ignore-eos"]) else { return };
    terminal.press(&format!("{}\r", "abcdefghij".repeat(12)));
    terminal.wait_for("context of 64 tokens");
    terminal.wait_for("> ");
    terminal.keys.write_all(b"\xff\xfe\r").expect("the terminal takes keys");
    terminal.wait_for("expected UTF-8");
    terminal.wait_for("> ");
    terminal.press("/nonsense\r");
    terminal.wait_for("is no command");
    terminal.wait_for("> ");
    terminal.press("\x04");
    assert_eq!(terminal.wait_for_end(), Some(0));
}
