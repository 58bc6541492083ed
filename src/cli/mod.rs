//! The command line: text for people on a terminal, `--json` for machines; results on standard output, progress and logs on
//! standard error; exit status 0 done, 1 failed, 2 wrong usage.
//!
//! ```text
//! args              what was typed
//! options           what was meant
//! load, adapter     from there to a scorer
//! run, chat         answers (generate makes one, output sends it)
//! run_batch         a file of requests through the whole engine
//! serve             the server's life
//! score, bench      figures
//! replay, sim       a workload played in real and in virtual time (play: what they share)
//! devices, fetch    what there is, and what isn't yet
//! replay_args       what a workload is
//! trace             recorded traces
//! ```
//!
//! This layer may know everything below it; nothing knows it but `main`.

mod adapter;
mod args;
mod batch_args;
mod bench;
mod bench_fit;
mod bench_kernels;
mod bench_output;
mod chat;
mod devices;
pub mod fetch;
mod figures;
mod generate;
mod interrupt;
mod load;
mod options;
mod output;
mod play;
mod progress;
mod prompt;
mod replay;
mod replay_args;
mod run;
mod run_batch;
mod run_batch_args;
mod sampling_args;
mod score;
mod serve;
mod serve_args;
mod serving;
mod sim;
mod trace;
pub mod tune_file;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use crate::error::{Error, Result};
use args::{Command, CommandLine, FetchArgs};

/// Most characters of a line for people.
const LINE_CHARS_MAX: usize = 2000;

/// Runs the program with the process's arguments.
#[must_use]
pub fn main() -> ExitCode {
    let line = match CommandLine::try_parse_from(arguments()) {
        Ok(line) => line,
        Err(error) => return unparsed(&error),
    };
    start_logs(line.verbose);
    match dispatch(&line.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::is_reader_gone(&error) => ExitCode::SUCCESS,
        Err(error) => failure(&error),
    }
}

fn failure(error: &Error) -> ExitCode {
    say(&format!("twostroke: {error}"));
    ExitCode::from(error.exit_code())
}

/// Prints clap's error, or the help or version that was asked for.
fn unparsed(error: &clap::Error) -> ExitCode {
    match error.print().and_then(|()| std::io::stdout().flush()) {
        // Help that nobody reads any more is no failure.
        Err(source) if source.kind() != std::io::ErrorKind::BrokenPipe && !error.use_stderr() => {
            failure(&Error::io("write", "standard output", source))
        }
        _ => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)),
    }
}

fn dispatch(command: &Command) -> Result<()> {
    match command {
        Command::Run(_)
        | Command::RunBatch(_)
        | Command::Score(_)
        | Command::Bench(_)
        | Command::Replay(_)
        | Command::Sim(_) => interrupt::install(),
        _ => {}
    }
    match command {
        Command::Run(args) => run::run(args),
        Command::Score(args) => score::score(args),
        Command::Bench(args) => bench::bench(args),
        Command::Replay(args) => replay::replay(args),
        Command::Sim(args) => sim::sim(args),
        Command::Devices(args) => devices::devices(args),
        Command::Fetch(args) => fetch_model(args),
        Command::RunBatch(args) => run_batch::run_batch(args),
        Command::Serve(args) => serve::serve(args),
        Command::Trace(command) => trace::trace(command),
    }
}

fn fetch_model(args: &FetchArgs) -> Result<()> {
    let bar = progress::download_bar();
    let path = fetch::fetch(args.model.as_deref(), &bar)?;
    output::Output::stdout().line(&path.display().to_string())
}

/// The process's arguments; llama-bench's `-pg` becomes `--pg`, which clap can read.
fn arguments() -> Vec<OsString> {
    std::env::args_os().map(|arg| if arg == "-pg" { "--pg".into() } else { arg }).collect()
}

/// The browser app's files, where they are built: a folder `web` beside this program.
fn files_of_app() -> Option<std::path::PathBuf> {
    let folder = std::env::current_exe().ok()?.parent()?.join("web");
    folder.join("index.html").is_file().then_some(folder)
}

/// A line for people on standard error. Nobody listening there is no failure.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", printable(line));
}

/// One line of bounded length without control characters: what files say cannot steer the terminal.
fn printable(line: &str) -> String {
    let mut out = String::new();
    for (count, c) in line.chars().enumerate() {
        match c {
            _ if count == LINE_CHARS_MAX => {
                out.push('…');
                break;
            }
            '\n' | '\t' => out.push(' '),
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

/// Logs go to standard error: warnings, or what `-v` or `TWOSTROKE_LOG` asks for.
fn start_logs(verbose: u8) {
    let by_flag = match verbose {
        0 => "warn",
        1 => "warn,twostroke=info",
        2 => "warn,twostroke=debug",
        _ => "info,twostroke=trace",
    };
    let asked = std::env::var_os("TWOSTROKE_LOG").filter(|filter| !filter.is_empty());
    let filter = asked.and_then(|filter| match EnvFilter::try_new(filter.to_string_lossy()) {
        Ok(filter) => Some(filter),
        Err(error) => {
            say(&format!("TWOSTROKE_LOG: expected a filter such as twostroke=debug, got {filter:?}: {error}"));
            None
        }
    });
    let filter = filter.unwrap_or_else(|| EnvFilter::new(by_flag));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Somebody who calls this as a library may have set logs up already.
    let _ = logs.with_ansi(std::io::stderr().is_terminal()).with_target(verbose > 1).try_init();
}
