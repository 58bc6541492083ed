//! The real model by `run-batch`: ids and logprobs of a request are bit-equal alone, in a crowd, chunked, cached, preempted.
//!
//! Logprobs are printed as the shortest decimal that reads back as the same f32, so equal texts are equal bits.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::adapters;
use crate::cli_program::{program, text};
use crate::pairwise::Random;

/// Lengths of prompts: 24 from 1 to 400 tokens, 2,982 in all. `make test` takes the first 8.
const LENGTHS: [usize; 24] =
    [120, 1, 48, 16, 100, 33, 80, 17, 3, 8, 15, 31, 64, 90, 128, 150, 160, 200, 250, 255, 256, 257, 300, 400];
/// As many, 1,096 tokens in all: behind a long prompt come many that soon need their second page, so that pages run out.
const CROWDED: [usize; 24] =
    [200, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 1, 255, 15, 14, 13, 12, 11, 10, 48, 400];
/// Bytes of one KV page of the default model, f16.
const PAGE_BYTES: usize = 368_640;

/// Requests as lines of a batch file, by completions over ids: greedy and seeded, penalised and not; every third shares a
/// beginning with the others of its kind.
fn lines(lengths: &[usize]) -> Vec<String> {
    let mut random = Random::new(45);
    let shared: Vec<u64> = (0..40).map(|_| 100 + random.bits() % 20_000).collect();
    let request = |(i, &length): (usize, &usize)| {
        let mut prompt = if i % 3 == 0 { shared[..40.min(length)].to_vec() } else { Vec::new() };
        prompt.extend((prompt.len()..length).map(|_| 100 + random.bits() % 20_000));
        let mut body = json!({
            "prompt": prompt, "max_tokens": 16, "ignore_eos": true, "return_token_ids": true, "logprobs": 3, "seed": i,
        });
        if i % 2 == 1 {
            (body["temperature"], body["top_p"]) = (json!(0.8), json!(0.95));
        }
        if i % 4 == 3 {
            body["repetition_penalty"] = json!(1.2);
        }
        json!({"custom_id": format!("r{i}"), "method": "POST", "url": "/v1/completions", "body": body}).to_string()
    };
    lengths.iter().enumerate().map(request).collect()
}

/// One run of the batch: choices by custom id, and how often a request was preempted.
fn play(folder: &Path, model: &Path, lines: &[String], flags: &[&str]) -> (BTreeMap<String, Value>, usize) {
    let path = |name: &str| text(&folder.join(name));
    let (input, output, trace) = (path("in.jsonl"), path("out.jsonl"), path("trace.jsonl"));
    std::fs::write(&input, lines.join("\n")).expect("a temporary file");
    let model = text(model);
    let args = ["run-batch", "--model", &model, "--device", "llvmpipe", "-i", &input, "-o", &output, "--trace", &trace];
    let ran = program(&[&args[..], flags].concat()).output().expect("the program starts");
    assert!(ran.status.success(), "{flags:?}: {}", String::from_utf8_lossy(&ran.stderr));
    let read = |path: &str| std::fs::read_to_string(path).expect("written");
    let preemptions = read(&trace).matches("\"preempt\"").count();
    let rows = read(&output);
    let rows = rows.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let answers = rows.map(|mut row| {
        assert_eq!(row["response"]["status_code"], 200, "{flags:?}: {row}");
        let id = row["custom_id"].as_str().expect("a string").to_owned();
        (id, row["response"]["body"]["choices"].take())
    });
    (answers.collect(), preemptions)
}

fn check(lengths: &[usize], pool_pages: usize, preemptions_min: usize) {
    if adapters::find("llvmpipe").is_none() {
        return;
    }
    let Some(model) = crate::golden_smollm2::smollm2() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let lines = lines(lengths);
    let (alone, _) = play(folder.path(), &model, &lines, &["--max-num-seqs", "1", "--no-enable-prefix-caching"]);
    assert_eq!(alone.len(), lengths.len());
    let same = |name: &str, lines: &[String], flags: &[&str]| {
        let (got, preemptions) = play(folder.path(), &model, lines, flags);
        for (id, want) in &alone {
            assert_eq!(&got[id], want, "{name}: {id}");
        }
        preemptions
    };
    same("all at once, no cache", &lines, &["--no-enable-prefix-caching"]);
    same("all at once, cold cache", &lines, &[]);
    same("warm cache", &lines, &["--passes", "2"]);
    for chunk in ["1", "16", "17", "64"] {
        same("chunks", &lines, &["--long-prefill-token-threshold", chunk]);
    }
    let reversed: Vec<String> = lines.iter().rev().cloned().collect();
    same("another order, a prompt first", &reversed, &["--scheduling-policy", "prefill-first"]);
    let pool = (pool_pages * PAGE_BYTES).to_string();
    let tiny = ["--kv-memory", &pool, "--scheduling-policy", "fcfs", "--max-num-seqs", "32"];
    let preemptions = same("tiny pool", &lines, &tiny);
    assert!(preemptions >= preemptions_min, "{preemptions} preemptions in a pool of {pool_pages} pages");
}

#[test]
fn f45_the_real_model_answers_the_same_in_any_company() {
    if std::env::var_os("TWOSTROKE_FULL").is_some() {
        check(&LENGTHS, 27, 1);
        check(&CROWDED, 27, 10);
    } else {
        check(&LENGTHS[..8], 9, 1);
    }
}
