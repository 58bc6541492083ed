//! `replay` as a black box, on the CPU twin.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::cli_program::{Ran, TinyModel, fields, program, run, text};
use crate::cli_sim::FIELDS;
use crate::model_writer::TinyLlama;
use crate::trace_perfetto::check;

/// A tiny model on the twin.
fn replay(model: &TinyModel, line: &str) -> Ran {
    model.run("replay", &line.split_whitespace().collect::<Vec<_>>())
}

#[test]
fn json_has_exactly_the_fields_of_the_contract() {
    let model = TinyModel::plain();
    let ran = replay(
        &model,
        "--json --num-prompts 4 --random-input-len 20 --random-output-len 3 --num-warmups 1 --ignore-eos \
         --request-rate 200 --max-concurrency 2 --goodput ttft:100000",
    )
    .expect(0);
    let result = ran.json();
    assert_eq!(fields(&result), FIELDS);
    assert_eq!((&result["completed"], &result["failed"]), (&json!(4), &json!(0)));
    assert_eq!((&result["total_input_tokens"], &result["total_output_tokens"]), (&json!(80), &json!(12)));
    assert_eq!((&result["request_rate"], &result["max_concurrency"]), (&json!(200.0), &json!(2)));
    assert_eq!(result["request_goodput"], result["request_throughput"]);
    let time = |name: &str| result[name].as_f64().unwrap_or_else(|| panic!("{name}: {}", result[name]));
    assert!(time("mean_ttft_ms") > 0.0 && time("mean_tpot_ms") > 0.0 && time("duration") > 0.0);
    assert!(time("mean_e2el_ms") > time("mean_ttft_ms"));
    assert!(result["date"].as_str().is_some_and(|date| date.len() == 15), "{}", result["date"]);
    ran.says(&["twin"]);
}

#[test]
fn answers_of_one_token_have_no_tpot_and_break_no_mean() {
    let line = "--json --num-prompts 3 --random-input-len 5 --random-output-len 1 --save-detailed";
    let ran = replay(&TinyModel::plain(), line).expect(0);
    let result = ran.json();
    for name in ["mean_tpot_ms", "p99_tpot_ms", "mean_itl_ms", "max_itl_ms"] {
        assert!(result[name].is_null(), "{name}");
    }
    assert!(result["mean_ttft_ms"].is_number());
    assert_eq!(result["output_lens"], json!([1, 1, 1]));
    assert_eq!(result["errors"], json!(["", "", ""]));
    assert!(result["generated_texts"][0].is_string());
    assert!(!ran.stdout.contains("NaN") && !ran.stdout.to_lowercase().contains("infinity"), "{}", ran.stdout);
}

#[test]
fn a_shared_prefix_is_found_and_the_trace_tells_it() {
    let model = TinyModel::plain();
    let trace = text(&model.path().with_file_name("t.jsonl"));
    let ran = replay(
        &model,
        &format!(
            "--json --dataset prefix_repetition --num-prompts 3 --prefix-repetition-num-prefixes 1 \
             --prefix-repetition-prefix-len 32 --prefix-repetition-suffix-len 4 --prefix-repetition-output-len 2 \
             --ignore-eos --max-concurrency 1 --trace {trace}"
        ),
    )
    .expect(0);
    assert_eq!(ran.json()["cached_tokens"], 64);
    let converted = format!("{trace}.json");
    let converts = run(&["trace", "convert", &trace, &converted]).expect(0);
    converts.says(&["3 requests"]);
    check(&std::fs::read_to_string(converted).expect("written"));
}

#[test]
fn people_get_vllms_table() {
    let ran = replay(&TinyModel::plain(), "--num-prompts 2 --random-input-len 5 --random-output-len 2").expect(0);
    assert!(ran.stdout.starts_with("============ Serving Benchmark Result ============\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("Successful requests:                     2\n"), "{}", ran.stdout);
}

#[test]
fn conversations_are_encoded_by_the_models_tokenizer() {
    let model = TinyModel::plain();
    let turns = json!([{"from": "a", "value": "What is it that you see?"}, {"from": "b", "value": "A tree, or two."}]);
    let share = model.file("share.json", json!([{ "conversations": turns }]).to_string().as_bytes());
    let line = format!("--json --dataset sharegpt --dataset-path {share} --num-prompts 1 --sharegpt-output-len 2");
    let result = replay(&model, &line).expect(0).json();
    assert_eq!(result["completed"], 1);
    assert!(result["total_input_tokens"].as_u64().is_some_and(|tokens| tokens > 3));
}

#[test]
fn bad_input_is_told_and_exits_as_it_should() {
    let model = TinyModel::plain();
    let bad = model.file("bad.jsonl", b"{\"timestamp\": 1, \"input_length\": 0}\n");
    for (line, code, says) in [
        ("--dataset-name banana", 2, "banana"),
        ("--request-rate 0", 2, "--request-rate"),
        ("--itl-slo -5", 2, "--itl-slo"),
        ("--url localhost:1", 2, "--url"),
        ("--url http://localhost:1 --endpoint /v1/embeddings", 2, "--endpoint"),
        ("--url http://localhost:1 --trace t.jsonl", 2, "--trace"),
        ("--served-model-name a", 2, "--url"),
        ("--url http://127.0.0.1:1", 1, "http://127.0.0.1:1/v1/models: cannot be reached"),
        ("--num-prompts 1 --random-input-len 300", 1, "context of 256"),
        ("--num-prompts 1 --random-input-len 60 --random-output-len 10 --max-model-len 64", 1, "context of 64"),
        ("--num-prompts 1 --random-input-len 30 --random-output-len 9 --kv-memory 9000", 1, "context of"),
        ("--num-prompts 1 --random-input-len 3 --random-output-len 2 --kv-memory 10", 1, "10 bytes"),
        ("--num-prompts 1 --random-input-len 3 --random-output-len 2 --trace absent/t.jsonl", 1, "absent/t.jsonl"),
        (&format!("--dataset mooncake --dataset-path {bad}"), 1, "line 1"),
    ] {
        let ran = replay(&model, line).expect(code).says(&[says]);
        assert_eq!(ran.stdout, "", "{line}");
    }
}

#[test]
fn a_full_disk_while_tracing_is_warned_of_once_and_the_run_goes_on() {
    if !std::path::Path::new("/dev/full").exists() {
        println!("SKIP no /dev/full");
        return;
    }
    let line = "--json --num-prompts 3 --random-input-len 5 --random-output-len 2 --trace /dev/full";
    let ran = replay(&TinyModel::plain(), line).expect(0);
    assert_eq!(ran.json()["completed"], 3);
    assert_eq!(ran.stderr.matches("the trace ends here").count(), 1, "{}", ran.stderr);
}

#[test]
fn a_fitted_cost_model_is_what_sim_takes() {
    let model = TinyModel::plain();
    // The fit's streams need more context than the tiny model has.
    let wide = TinyModel::new(&TinyLlama { context: 1024, ..Default::default() }, |_| ());
    let cost = text(&model.path().with_file_name("p.json"));
    wide.run("bench", &["-p", "0", "-n", "0", "--fit", &cost]).expect(0);
    let args = ["sim", "--cost-model", &cost, "--json", "--num-prompts", "5", "--random-input-len", "50"];
    let result: Value = run(&args).expect(0).json();
    assert_eq!(result["completed"], 5);
    assert!(result["mean_tpot_ms"].as_f64().is_some_and(|ms| ms > 0.0));
}

#[test]
#[cfg(unix)]
fn interrupt_while_nothing_runs_prints_what_is_done() {
    let model = TinyModel::plain();
    let line = |t: u32| format!("{{\"timestamp\":{t},\"input_length\":9,\"output_length\":2,\"hash_ids\":[{t}]}}\n");
    let hours = model.file("hours.jsonl", (line(0) + &line(3_600_000)).as_bytes());
    let trace = text(&model.path().with_file_name("t.jsonl"));
    let more = ["--dataset", "mooncake", "--dataset-path", &hours, "--trace", &trace, "--json", "--ignore-eos"];
    let args = model.args("replay", &more);
    let mut command = program(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    // The second request is an hour away: once the first is done, the engine is idle.
    let clock = std::time::Instant::now();
    while !std::fs::read_to_string(&trace).is_ok_and(|text| text.contains("finish")) {
        assert!(clock.elapsed().as_secs() < 120, "the first request does not end");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let sent = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
    let output = child.wait_with_output().expect("the program ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("cancelled"), "{stderr}");
    let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&result["num_prompts"], &result["completed"], &result["failed"]), (&json!(2), &json!(1), &json!(0)));
}
