//! `run` as a black box: fields, limits, stop strings, pipes, signals.

use std::io::Read;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::cli_program::{Ran, TinyModel, fields, ids, program, run, run_with};
use crate::model_writer::{Meta, TinyLlama};

const RAW: [&str; 4] = ["--raw", "--temperature", "0", "--ignore-eos"];

fn raw_json(model: &TinyModel, prompt: &str, more: &[&str]) -> Value {
    model.run("run", &[&RAW[..], &["--json", "-p", prompt], more].concat()).expect(0).json()
}

#[test]
fn json_has_exactly_the_fields_of_the_contract() {
    let model = TinyModel::plain();
    let ran = model.run("run", &["--json", "-p", "the sea", "--max-tokens", "3", "--ignore-eos"]).expect(0);
    let json = ran.json();
    assert_eq!(
        fields(&json),
        [
            "model",
            "adapter",
            "tier",
            "prompt_ids",
            "output_ids",
            "text",
            "finish_reason",
            "prompt_tokens",
            "completion_tokens",
            "cached_tokens",
            "ttft_ms",
            "tpot_ms",
        ]
    );
    assert_eq!((&json["model"], &json["adapter"], &json["tier"]), (&"tiny".into(), &"twin".into(), &"base".into()));
    assert_eq!(json["finish_reason"], "length");
    assert_eq!(ids(&json["prompt_ids"]).len() as u64, json["prompt_tokens"].as_u64().expect("a count"));
    assert_eq!((&json["completion_tokens"], &json["cached_tokens"]), (&3.into(), &0.into()));
    assert!(json["ttft_ms"].as_f64().expect("a time") > 0.0 && json["tpot_ms"].as_f64().expect("a time") > 0.0);
    ran.says(&["TTFT", "prefill", "TPOT", "decode", "tokens/s", "twin", "base"]);
}

#[test]
fn tier_matrix_of_the_twin_is_said_and_answers_the_same_however_the_prompt_is_cut() {
    let run = |more: &[&str]| {
        let args = ["run", "--model", "toy", "--device", "twin", "--tier", "matrix", "--json", "--max-tokens", "8"];
        run(&[&args[..], &RAW, &["-p", "The sea was calm, and the moon stood above it."], more].concat())
            .expect(0)
            .json()
    };
    let whole = run(&[]);
    assert_eq!((&whole["tier"], &whole["adapter"]), (&"matrix".into(), &"twin".into()));
    assert_eq!(ids(&whole["output_ids"]).len(), 8);
    assert_eq!(run(&["--long-prefill-token-threshold", "3"])["output_ids"], whole["output_ids"]);
}

#[test]
fn tpot_of_one_token_is_absent() {
    let json = raw_json(&TinyModel::plain(), "a", &["--max-tokens", "1"]);
    assert_eq!((&json["tpot_ms"], &json["completion_tokens"]), (&Value::Null, &1.into()));
}

#[test]
fn streamed_text_is_the_text_of_the_json_and_a_newline() {
    let model = TinyModel::plain();
    for prompt in ["the sea", "日本 🚀", "x"] {
        let json = raw_json(&model, prompt, &["--max-tokens", "24"]);
        let ran = model.run("run", &[&RAW[..], &["-p", prompt, "--max-tokens", "24"]].concat()).expect(0);
        assert_eq!(ran.stdout, format!("{}\n", json["text"].as_str().expect("text")), "{prompt}");
    }
}

#[test]
fn prompt_comes_alike_from_flag_file_and_pipe() {
    let model = TinyModel::plain();
    let prompt_ids = |more: &[&str], stdin: &[u8]| {
        let args = [&["--json", "--max-tokens", "1"], more].concat();
        ids(&model.run_with("run", &args, stdin).expect(0).json()["prompt_ids"])
    };
    let (with, without) = (model.file("with.txt", b"the sea\n"), model.file("without.txt", b"the sea"));
    let flag = prompt_ids(&["-p", "the sea"], b"");
    for more in [&["-f", &with][..], &["-f", &without]] {
        assert_eq!(prompt_ids(more, b""), flag, "{more:?}");
    }
    assert_eq!(prompt_ids(&[], b"the sea\n"), flag);
    let raw = prompt_ids(&["--raw"], b"the sea\n");
    assert_eq!(raw, prompt_ids(&["--raw", "-p", "the sea\n"], b""), "raw text is taken as it is");
    assert!(raw.len() < flag.len(), "the template adds to the text");
}

#[test]
fn system_message_reaches_the_template() {
    let model = TinyModel::plain();
    let of = |more: &[&str]| {
        let args = [&["--json", "-p", "b", "--max-tokens", "1"], more].concat();
        model.run("run", &args).expect(0).json()["prompt_tokens"].as_u64().expect("a count")
    };
    assert!(of(&["--system", "a"]) > of(&[]));
}

#[test]
fn chunks_leave_the_answer_as_it_is() {
    let model = TinyModel::plain();
    let prompt = "the sea and the land ".repeat(4);
    let of = |more: &[&str]| raw_json(&model, &prompt, &[&["--max-tokens", "16"], more].concat())["output_ids"].clone();
    let whole = of(&[]);
    for chunk in ["1", "7", "16", "17"] {
        assert_eq!(of(&["--long-prefill-token-threshold", chunk]), whole, "chunks of {chunk}");
    }
    assert_eq!(of(&["--max-num-batched-tokens", "5"]), whole);
}

#[test]
fn prompt_over_the_context_is_refused_with_both_numbers() {
    let model = TinyModel::plain();
    let args = ["--raw", "-p", "abcdefghijklmnopqrst", "--max-model-len", "16"];
    let tokens = ids(&raw_json(&model, args[2], &["--max-tokens", "1"])["prompt_ids"]).len();
    assert!(tokens > 16);
    let ran = model.run("run", &args).expect(1).says(&[&format!("{tokens} prompt tokens"), "context of 16 tokens"]);
    assert_eq!(ran.stdout, "");
    let exact = tokens.to_string();
    model.run("run", &["--raw", "-p", args[2], "--max-model-len", &exact]).expect(1).says(&["prompt too long"]);
    let one_more = (tokens + 1).to_string();
    let json = raw_json(&model, args[2], &["--max-model-len", &one_more]);
    assert_eq!((&json["completion_tokens"], &json["finish_reason"]), (&1.into(), &"length".into()));
}

#[test]
fn max_tokens_over_the_context_is_clamped() {
    let model = TinyModel::plain();
    for more in [&["--max-tokens", "100000"][..], &[]] {
        let json = raw_json(&model, "abc", &[&["--max-model-len", "20"], more].concat());
        let prompt = json["prompt_tokens"].as_u64().expect("a count");
        assert_eq!(json["completion_tokens"].as_u64(), Some(20 - prompt));
        assert_eq!(json["finish_reason"], "length");
    }
}

#[test]
fn empty_prompt_is_bos_where_there_is_one_and_else_an_error() {
    assert_eq!(ids(&raw_json(&TinyModel::plain(), "", &["--max-tokens", "1"])["prompt_ids"]), [1]);
    let without = TinyModel::new(&TinyLlama::default(), |gguf| {
        gguf.remove("tokenizer.ggml.bos_token_id");
    });
    without.run("run", &["--raw", "-p", ""]).expect(1).says(&["empty", "beginning-of-sequence"]);
    without.run_with("run", &["--raw"], b"").expect(1).says(&["empty"]);
}

#[test]
fn model_without_template_asks_for_raw() {
    let model = TinyModel::new(&TinyLlama::default(), |gguf| {
        gguf.remove("tokenizer.chat_template");
    });
    model.run("run", &["-p", "a"]).expect(1).says(&["chat template", "--raw"]);
    raw_json(&model, "a", &["--max-tokens", "1"]);
}

#[test]
fn answer_ends_with_an_end_token_that_the_text_leaves_out() {
    let free = raw_json(&TinyModel::plain(), "the sea", &["--max-tokens", "24"]);
    let made = ids(&free["output_ids"]);
    let at = (1..made.len()).find(|&i| !made[..i].contains(&made[i])).expect("the model says two things");
    let end = u32::try_from(made[at]).expect("an id");
    let model = TinyModel::new(&TinyLlama::default(), |gguf| {
        gguf.set("tokenizer.ggml.eos_token_id", Meta::U32(end));
    });
    let json = model.run("run", &["--raw", "--json", "-p", "the sea", "--max-tokens", "24"]).expect(0).json();
    assert_eq!(ids(&json["output_ids"]), made[..=at]);
    assert_eq!((&json["finish_reason"], &json["completion_tokens"]), (&"stop".into(), &(at + 1).into()));
    let text = json["text"].as_str().expect("text");
    assert!(free["text"].as_str().expect("text").starts_with(text.trim_end_matches('\u{fffd}')), "{text}");
    assert_eq!(ids(&raw_json(&model, "the sea", &["--max-tokens", "24"])["output_ids"]), made, "--ignore-eos goes on");
}

fn toy(more: &[&str]) -> Ran {
    run(&[&["run", "--model", "toy", "--device", "twin"], &RAW[..], more].concat())
}

#[test]
fn toy_gives_the_ids_of_the_golden_on_the_twin() {
    let json = toy(&["--json", "-p", "x  12 and   3.14", "--max-tokens", "32", "--kv-type", "f32"]).expect(0).json();
    assert_eq!(ids(&json["prompt_ids"]), [104, 256, 33, 34, 284, 333, 35, 30, 33, 36]);
    let golden: Vec<u64> = [30, 34].repeat(16);
    assert_eq!(ids(&json["output_ids"]), golden);
    assert_eq!(json["text"], ".2".repeat(16));
}

#[test]
fn f01_stop_string_ends_the_text_in_front_of_it() {
    let prompt = "Once upon a time, a wizard in a castle";
    let whole = toy(&["-p", prompt, "--max-tokens", "16"]).expect(0).stdout;
    let whole = whole.trim_end_matches('\n');
    assert!(whole.len() > 40, "{whole:?}");
    // Cuts from inside: over token borders, within a token, from the first character on.
    for (from, bytes) in [(9, 5), (12, 11), (0, 3), (20, 1), (30, 8)] {
        let Some(stop) = whole.get(from..from + bytes) else { panic!("{whole:?} is not plain") };
        let want = &whole[..whole.find(stop).expect("cut from it")];
        let args = ["-p", prompt, "--max-tokens", "16", "--stop", "never there", "--stop", stop];
        let streamed = toy(&args).expect(0).stdout;
        assert_eq!(streamed, format!("{want}\n"), "stop {stop:?}");
        let json = toy(&[&args[..], &["--json"]].concat()).expect(0).json();
        assert_eq!((&json["text"], &json["finish_reason"]), (&want.into(), &"stop".into()), "stop {stop:?}");
    }
    let unmet = toy(&["-p", prompt, "--max-tokens", "16", "--stop", &format!("{whole}!")]).expect(0).stdout;
    assert_eq!(unmet, format!("{whole}\n"), "what was held back is sent in the end");
}

/// A child that answers for a long time.
fn long_answer(model: &TinyModel) -> Child {
    let args = model.args("run", &["--raw", "--ignore-eos", "-p", "the sea"]);
    let mut command = program(&args.iter().map(String::as_str).collect::<Vec<_>>());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the program starts")
}

fn long_model() -> TinyModel {
    TinyModel::new(&TinyLlama { context: 16_384, ..Default::default() }, |_| ())
}

fn stderr_of(mut child: Child) -> (Option<i32>, String) {
    let mut text = String::new();
    let mut pipe = child.stderr.take().expect("piped");
    let reader = std::thread::spawn(move || {
        let _ = pipe.read_to_string(&mut text);
        text
    });
    // Standard output is read to its end so that the child never waits for us.
    if let Some(mut out) = child.stdout.take() {
        let _ = std::io::copy(&mut out, &mut std::io::sink());
    }
    (child.wait().expect("the child ends").code(), reader.join().expect("the reader ends"))
}

#[test]
fn reader_that_leaves_ends_the_answer_quietly() {
    let model = long_model();
    let mut child = long_answer(&model);
    let mut out = child.stdout.take().expect("piped");
    out.read_exact(&mut [0; 1]).expect("some text");
    drop(out);
    let (code, stderr) = stderr_of(child);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(!stderr.contains("panicked") && !stderr.to_lowercase().contains("pipe"), "{stderr}");
}

#[test]
#[cfg(unix)]
fn interrupt_stops_the_answer_and_prints_its_figures() {
    let model = long_model();
    let mut child = long_answer(&model);
    let mut out = child.stdout.take().expect("piped");
    out.read_exact(&mut [0; 1]).expect("some text");
    let sent = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(sent.success());
    child.stdout = Some(out);
    let (code, stderr) = stderr_of(child);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("TTFT") && stderr.contains("cancelled"), "{stderr}");
}

#[test]
fn a_huge_prompt_is_refused_by_its_length_with_both_numbers() {
    let text = "the sea is wide ".repeat(1 << 20);
    for more in [&["--raw"][..], &[]] {
        let args = [&["run", "--model", "toy", "--device", "twin"], more].concat();
        let clock = std::time::Instant::now();
        run_with(&args, text.as_bytes()).expect(1).says(&["at least", "prompt tokens", "context of"]);
        assert!(clock.elapsed().as_secs() < 30, "it was tokenised: {:?}", clock.elapsed());
    }
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_prompt() {
    let model = TinyModel::plain();
    let of = |stdin: &[u8]| {
        let ran = model.run_with("run", &["--raw", "--json", "--max-tokens", "1"], stdin).expect(0);
        ids(&ran.json()["prompt_ids"])
    };
    assert_eq!(of(b"\xef\xbb\xbfthe sea"), of(b"the sea"));
}

#[test]
#[cfg(unix)]
fn the_first_interrupt_ends_a_wait_for_input() {
    let model = TinyModel::plain();
    for (command, more) in [("run", &["--raw"][..]), ("score", &["--json", "-i", "-"])] {
        let args = model.args(command, more);
        let mut command = program(&args.iter().map(String::as_str).collect::<Vec<_>>());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let pipe = child.stdin.take();
        std::thread::sleep(std::time::Duration::from_secs(2));
        let sent = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
        let (code, stderr) = stderr_of(child);
        assert_eq!(code, Some(130), "{args:?}: {stderr}");
        drop(pipe);
    }
}
