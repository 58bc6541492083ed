//! Runs the program as a person does: arguments in, exit status and both outputs back. The other `cli_` modules ask through
//! this one, with `--device twin` so that they need no adapter.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use twostroke::format::block::BlockFormat;

use crate::model_writer::{GgufWriter, TinyLlama};

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Exit status; `None` when a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Holds the exit status, and that nothing panicked.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        self
    }

    /// Holds that standard error says each of `parts`.
    #[track_caller]
    pub(crate) fn says(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.stderr.contains(part), "no {part:?} in: {}", self.stderr);
        }
        self
    }

    /// Standard output as one JSON value.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e} in {:?}", self.stdout))
    }

    /// Standard output as JSON Lines.
    #[track_caller]
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e} in {line:?}"));
        self.stdout.lines().map(parse).collect()
    }
}

/// The program with these arguments, away from the user's settings and models.
pub(crate) fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_twostroke"));
    command.args(args).env_remove("TWOSTROKE_LOG").env("TWOSTROKE_CACHE", std::env::temp_dir().join("no-such-models"));
    command
}

/// Runs it with `stdin` to the end.
pub(crate) fn run_with(args: &[&str], stdin: &[u8]) -> Ran {
    let mut command = program(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut pipe = child.stdin.take().expect("piped");
    let stdin = stdin.to_vec();
    let writer = std::thread::spawn(move || {
        // The program may leave without reading.
        let _ = pipe.write_all(&stdin);
    });
    let output = child.wait_with_output().expect("the program ends");
    writer.join().expect("the writer ends");
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("results are UTF-8"),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Runs it with nothing on stdin.
pub(crate) fn run(args: &[&str]) -> Ran {
    run_with(args, b"")
}

/// A random model of a few kilobytes in a file of its own.
pub(crate) struct TinyModel {
    folder: tempfile::TempDir,
}

impl TinyModel {
    /// The model as `change` leaves it.
    pub(crate) fn new(tiny: &TinyLlama, change: impl FnOnce(&mut GgufWriter)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut gguf = tiny.gguf(BlockFormat::Q8_0);
        change(&mut gguf);
        std::fs::write(folder.path().join("tiny.gguf"), gguf.bytes()).expect("writable");
        Self { folder }
    }

    /// Two layers, a context of 256 tokens, `<|im_start|>` as BOS that nobody adds, a ChatML template.
    pub(crate) fn plain() -> Self {
        Self::new(&TinyLlama::default(), |_| ())
    }

    /// The model's file.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("tiny.gguf")
    }

    /// A file beside it.
    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, bytes).expect("writable");
        text(&path)
    }

    /// `command --model FILE --device twin` and more.
    pub(crate) fn args<'a>(&self, command: &'a str, more: &[&'a str]) -> Vec<String> {
        let path = text(&self.path());
        let front = [command, "--model", &path, "--device", "twin"];
        front.iter().chain(more).map(|&arg| arg.to_owned()).collect()
    }

    /// Runs a command over it with `stdin`.
    pub(crate) fn run_with(&self, command: &str, more: &[&str], stdin: &[u8]) -> Ran {
        let args = self.args(command, more);
        run_with(&args.iter().map(String::as_str).collect::<Vec<_>>(), stdin)
    }

    /// Runs a command over it with nothing on stdin.
    pub(crate) fn run(&self, command: &str, more: &[&str]) -> Ran {
        self.run_with(command, more, b"")
    }
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> String {
    path.to_str().expect("temporary folders have plain names").to_owned()
}

/// A JSON list of ids.
#[track_caller]
pub(crate) fn ids(value: &Value) -> Vec<u64> {
    let list = value.as_array().unwrap_or_else(|| panic!("{value} is no list"));
    list.iter().map(|id| id.as_u64().expect("an id")).collect()
}

/// Names of a JSON object's fields, in order.
#[track_caller]
pub(crate) fn fields(value: &Value) -> Vec<&str> {
    value.as_object().unwrap_or_else(|| panic!("{value} is no object")).keys().map(String::as_str).collect()
}
