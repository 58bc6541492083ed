//! The bad-input corpus through the program: each file is refused with exit status 1 and one line that says where.

use std::time::{Duration, Instant};

use crate::cli_program::{run_with, text};
use crate::format_corpus::corpus;

/// Loading must fail at once; what a busy machine adds to a process's start is not ours.
const GUARD: Duration = Duration::from_secs(1);

#[test]
fn program_refuses_each_broken_model_at_once_and_says_where() {
    let cases = corpus();
    let mut complaints = Vec::new();
    let mut slowest = Duration::ZERO;
    for case in &cases {
        let folder = tempfile::tempdir().expect("a folder");
        let path = text(&case.write(folder.path()));
        let start = Instant::now();
        let args = ["score", "--model", &path, "--device", "twin", "--json", "--input", "-"];
        let ran = run_with(&args, b"{\"ids\": [1]}");
        slowest = slowest.max(start.elapsed());
        if ran.code != Some(1) || ran.stderr.contains("panicked") || !ran.stdout.is_empty() {
            complaints
                .push(format!("{}: exit {:?}, stdout {:?}, stderr {}", case.name, ran.code, ran.stdout, ran.stderr));
            continue;
        }
        let message = ran.stderr.lines().last().unwrap_or_default();
        complaints.extend(case.complaint(message));
    }
    println!("{} cases, the slowest took {slowest:?}", cases.len());
    assert!(complaints.is_empty(), "{} of {}:\n{}", complaints.len(), cases.len(), complaints.join("\n"));
    assert!(slowest < GUARD, "the slowest took {slowest:?}");
}
