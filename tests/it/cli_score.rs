//! `score` as a black box.

use serde_json::{Value, json};
use twostroke::format::block::BlockFormat;

use crate::cli_program::{TinyModel, fields, ids, run_with, text};
use crate::model_writer::{TinyLlama, write_files};

const JSON: [&str; 3] = ["--json", "--input", "-"];

fn score(model: &TinyModel, more: &[&str], lines: &str) -> Vec<Value> {
    model.run_with("score", &[&JSON[..], more].concat(), lines.as_bytes()).expect(0).json_lines()
}

fn floats(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(|x| x.as_f64().expect("a number")).collect()
}

#[test]
fn lines_have_exactly_the_fields_of_the_contract() {
    let model = TinyModel::plain();
    let lines = score(&model, &["--top", "5"], "{\"ids\": [5, 6, 7, 8]}\n\n{\"text\": \"the sea\"}\n{\"ids\": [9]}");
    assert_eq!(lines.len(), 3, "blank lines are skipped");
    for line in &lines {
        assert_eq!(fields(line), ["ids", "nll", "mean_nll", "argmax", "top_ids", "top_logits"]);
        let tokens = ids(&line["ids"]).len();
        let nll = floats(&line["nll"]);
        assert_eq!((nll.len(), ids(&line["argmax"]).len()), (tokens - 1, tokens));
        assert_eq!((ids(&line["top_ids"]).len(), floats(&line["top_logits"]).len()), (5, 5));
        assert_eq!(line["argmax"][tokens - 1], line["top_ids"][0], "the last argmax is the first of the top");
        assert!(floats(&line["top_logits"]).is_sorted_by(|a, b| a >= b));
        match line["mean_nll"].as_f64() {
            Some(mean) => assert!((mean - nll.iter().sum::<f64>() / nll.len() as f64).abs() < 1e-12),
            None => assert_eq!(tokens, 1, "only a lone id has no mean"),
        }
        assert!(nll.iter().all(|&x| x > 0.0));
    }
}

#[test]
fn score_of_a_greedy_answer_finds_each_token_the_likeliest() {
    let model = TinyModel::plain();
    let args = ["--raw", "--json", "--ignore-eos", "-p", "the sea", "--max-tokens", "12"];
    let answer = model.run("run", &args).expect(0).json();
    let (prompt, made) = (ids(&answer["prompt_ids"]), ids(&answer["output_ids"]));
    let all: Vec<u64> = prompt.iter().chain(&made).copied().collect();
    let lines = score(&model, &[], &format!("{}\n{{\"text\": \"the sea\"}}", json!({ "ids": all })));
    assert_eq!(ids(&lines[0]["argmax"])[prompt.len() - 1..all.len() - 1], made);
    assert_eq!(ids(&lines[1]["ids"]), prompt, "text is encoded as run --raw does");
    let chunked = score(&model, &["--long-prefill-token-threshold", "3"], &json!({ "ids": all }).to_string());
    assert_eq!(chunked[0], lines[0], "chunks leave every digit as it is");
}

#[test]
fn top_is_a_prefix_of_a_longer_top_and_may_be_the_whole_vocabulary() {
    let model = TinyModel::plain();
    let top = |k: &str| ids(&score(&model, &["--top", k], "{\"ids\": [5, 6]}")[0]["top_ids"]);
    assert_eq!(top("3"), top("64")[..3]);
    assert_eq!((top("0").len(), top("100000").len()), (0, 320));
}

#[test]
fn ids_need_no_tokenizer_and_text_says_that_it_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut files = TinyLlama::default().folder(BlockFormat::F16, 1);
    files.retain(|(name, _)| !name.starts_with("tokenizer"));
    write_files(folder.path(), &files);
    let path = text(folder.path());
    let args = ["score", "--model", &path, "--device", "twin", "--json", "--input", "-"];
    assert_eq!(run_with(&args, b"{\"ids\": [5, 6]}").expect(0).json_lines().len(), 1);
    run_with(&args, b"{\"text\": \"a\"}").expect(1).says(&["tokenizer"]);
}

#[test]
fn wrong_lines_exit_1_and_are_named() {
    let model = TinyModel::plain();
    let check = |line: &str, parts: &[&str]| {
        let input = format!("{{\"ids\": [5]}}\n{line}\n");
        let ran = model.run_with("score", &JSON, input.as_bytes()).expect(1).says(&["stdin line 2"]).says(parts);
        assert_eq!(ran.stdout.lines().count(), 1, "the line before is answered");
    };
    check("{\"ids\": [5, 320]}", &["320", "vocabulary"]);
    check("{\"ids\": [-1]}", &["-1"]);
    check("{\"ids\": [4294967296]}", &["4294967296"]);
    check("{\"ids\": [1.5]}", &["1.5"]);
    check("{\"ids\": []}", &["at least one"]);
    check("{\"ids\": [1], \"text\": \"a\"}", &["both"]);
    check("{}", &["neither"]);
    check("{\"ids\": [1]", &["EOF"]);
    check("not JSON", &["text"]);
    check("[\"the sea\", null]", &["no JSON object"]);
    check(&json!({ "ids": vec![5; 300] }).to_string(), &["300", "256"]);
    let ran = model.run_with("score", &JSON, b"{\"ids\": [5]}\n{\"text\": \"\xff\"}").expect(1);
    ran.says(&["stdin line 2", "UTF-8"]);
}

#[test]
fn input_comes_from_a_file_too() {
    let model = TinyModel::plain();
    let file = model.file("in.jsonl", b"{\"ids\": [5, 6]}");
    assert_eq!(model.run("score", &["--input", &file]).expect(0).json_lines().len(), 1, "JSON where it is no terminal");
    model.run("score", &["--input", "no-such.jsonl"]).expect(1).says(&["no-such.jsonl"]);
}
