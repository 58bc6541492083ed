//! `trace`: a recorded trace as Perfetto shows it, or as figures.

use crate::error::Result;
use crate::trace::{self, Summary};

use super::args::TraceCommand;
use super::output::Output;
use super::say;

/// Runs the command.
///
/// # Errors
/// `Usage` when input and output are one file, `Io`, and `Format` with the number of the line.
pub(super) fn trace(command: &TraceCommand) -> Result<()> {
    match command {
        TraceCommand::Convert { input, output } => {
            let done = trace::convert_file(input, output)?;
            let mut line = format!("{} requests, {} steps, {} rows", done.requests, done.steps, done.rows);
            let notes = [
                (done.unfinished, "requests had not ended"),
                (done.discarded_rows, "rows were discarded by the engine"),
                (done.skipped_lines, "lines of unknown kinds were skipped"),
                (u64::from(done.torn), "torn last line was left out"),
            ];
            for (count, note) in notes.iter().filter(|(count, _)| *count > 0) {
                line.push_str(&format!("; {count} {note}"));
            }
            say(&format!("{line} -> {} (open it in ui.perfetto.dev or chrome://tracing)", output.display()));
            Ok(())
        }
        TraceCommand::Summary { input, json } => {
            let summary = Summary::of_file(input)?;
            let text = if *json { summary.json().to_string() } else { summary.text().trim_end().to_owned() };
            Output::stdout().line(&text)
        }
    }
}
