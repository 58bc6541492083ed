//! `trace` from the command line: files in, files and exit statuses out.

use std::fs;

use crate::cli_program::{Ran, run};
use crate::trace_perfetto::check;

const TRACE: &str = r#"{"kind":"meta","version":"0.1.0","model":"m","adapter":"a","tier":"base","page_tokens":16,"pages":8,"policy":"slo","unix_ns":1}
{"kind":"arrive","t":0,"id":7,"prompt_tokens":4,"max_tokens":2,"priority":0}
{"kind":"admit","t":1000,"id":7,"cached_tokens":0,"miss":{"reason":"new","at":0}}
{"kind":"step","t0":1000,"t1":3500,"gpu_ns":null,"n":0,"rows":[{"id":7,"kind":"prefill","from":0,"tokens":4,"accepted":null}],"pages_used":1,"waiting":0}
{"kind":"step","t0":3500,"t1":5001,"gpu_ns":1200,"n":1,"rows":[{"id":7,"kind":"decode","from":4,"tokens":1,"accepted":null}],"pages_used":1,"waiting":0}
{"kind":"finish","t":5001,"id":7,"reason":"length","output_tokens":2}
"#;

struct Folder(tempfile::TempDir);

impl Folder {
    fn with(text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("in.jsonl"), text).expect("written");
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn convert(&self, output: &str) -> Ran {
        run(&["trace", "convert", &self.path("in.jsonl"), &self.path(output)])
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).expect("readable");
        let mut names: Vec<_> =
            entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

#[test]
fn a_trace_becomes_a_file_for_perfetto() {
    let folder = Folder::with(TRACE);
    let ran = folder.convert("out.json").expect(0).says(&["1 requests", "2 steps", "out.json", "perfetto"]);
    assert_eq!(ran.stdout, "");
    let shown = check(&fs::read_to_string(folder.path("out.json")).expect("written"));
    assert_eq!(shown.tracks().len(), 2);
    assert_eq!(shown.spans.iter().find(|s| s.name == "request 7").map(|s| (s.from, s.to)), Some((0, 5001)));
    assert_eq!(folder.names(), ["in.jsonl", "out.json"], "nothing else is left");
}

#[test]
fn a_trace_is_summed_up_for_people_and_machines() {
    let folder = Folder::with(TRACE);
    let json = run(&["trace", "summary", &folder.path("in.jsonl"), "--json"]).expect(0).json();
    assert_eq!(json["ttft_ms"]["mean"], 0.0035);
    assert_eq!(json["meta"]["model"], "m");
    let text = run(&["trace", "summary", &folder.path("in.jsonl")]).expect(0).stdout;
    for part in ["1 length", "1 new", "ttft_ms", "m on a"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

#[test]
fn a_broken_trace_exits_1_names_the_line_and_leaves_the_output_as_it_was() {
    let folder = Folder::with(&TRACE.replace("\"kind\":\"admit\"", "\"kind\":admit"));
    fs::write(folder.path("out.json"), "before").expect("written");
    folder.convert("out.json").expect(1).says(&["in.jsonl, line 3"]);
    run(&["trace", "summary", &folder.path("in.jsonl")]).expect(1).says(&["in.jsonl, line 3"]);
    assert_eq!(fs::read_to_string(folder.path("out.json")).expect("there"), "before");
    assert_eq!(folder.names(), ["in.jsonl", "out.json"]);
}

#[test]
fn a_torn_last_line_is_told_and_left_out() {
    let folder = Folder::with(&TRACE[..TRACE.len() - 9]);
    folder.convert("out.json").expect(0).says(&["1 requests", "torn", "1 requests had not ended"]);
    let text = run(&["trace", "summary", &folder.path("in.jsonl")]).expect(0).stdout;
    assert!(text.contains("torn") && text.contains("1 unfinished"), "{text}");
}

#[test]
fn files_that_cannot_be_read_or_written_exit_1_and_are_named() {
    let folder = Folder::with(TRACE);
    run(&["trace", "summary", &folder.path("absent.jsonl")]).expect(1).says(&["absent.jsonl"]);
    run(&["trace", "convert", &folder.path("absent.jsonl"), &folder.path("o")]).expect(1).says(&["absent.jsonl"]);
    folder.convert("no/such/folder.json").expect(1).says(&["folder.json"]);
    run(&["trace", "summary", &folder.path("")]).expect(1).says(&["irectory"]);
    folder.convert("").expect(1);
    assert_eq!(folder.names(), ["in.jsonl"]);
}

#[test]
fn wrong_usage_exits_2() {
    let folder = Folder::with(TRACE);
    folder.convert("in.jsonl").expect(2).says(&["in.jsonl", "both input and output"]);
    assert_eq!(fs::read_to_string(folder.path("in.jsonl")).expect("there"), TRACE);
    run(&["trace", "convert", "a"]).expect(2).says(&["OUT"]);
    run(&["trace", "walk"]).expect(2).says(&["walk"]);
    assert!(run(&["trace", "--help"]).expect(0).stdout.contains("convert"));
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_exits_1() {
    let folder = Folder::with(TRACE);
    run(&["trace", "convert", &folder.path("in.jsonl"), "/dev/full"]).expect(1).says(&["/dev/full"]);
}
