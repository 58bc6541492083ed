//! `sim` as a black box: no model, no adapter, and the same bytes every time.

use serde_json::{Value, json};

use crate::cli_program::{Ran, fields, run, text};
use crate::trace_perfetto::check;

/// Fields of vLLM's serve bench, in its order, and ours.
pub(crate) const FIELDS: [&str; 39] = [
    "date",
    "endpoint_type",
    "backend",
    "model_id",
    "tokenizer_id",
    "num_prompts",
    "request_rate",
    "burstiness",
    "max_concurrency",
    "duration",
    "completed",
    "failed",
    "total_input_tokens",
    "total_output_tokens",
    "request_throughput",
    "request_goodput",
    "output_throughput",
    "total_token_throughput",
    "max_output_tokens_per_s",
    "max_concurrent_requests",
    "mean_ttft_ms",
    "median_ttft_ms",
    "std_ttft_ms",
    "p99_ttft_ms",
    "mean_tpot_ms",
    "median_tpot_ms",
    "std_tpot_ms",
    "p99_tpot_ms",
    "mean_itl_ms",
    "median_itl_ms",
    "std_itl_ms",
    "p99_itl_ms",
    "mean_e2el_ms",
    "median_e2el_ms",
    "std_e2el_ms",
    "p99_e2el_ms",
    "max_itl_ms",
    "cached_tokens",
    "tpot_samples",
];

/// A machine on which a prefill token costs 1 ms, a decode row 10 ms, a step 5 ms, and a pair nothing.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        Self::changed(|_| ())
    }

    fn changed(change: impl FnOnce(&mut Value)) -> Self {
        const MS: u64 = 1024 * 1_000_000;
        let mut cost = json!({
            "model": "paper", "adapter": "none", "tier": "base", "page_tokens": 16, "page_bytes": 1000,
            "context_tokens": 2048, "vocab": 500, "chunk_tokens": 128,
            "a": 5 * MS, "b": MS, "c": 10 * MS, "d": 0, "residual": 0.01,
        });
        change(&mut cost);
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("p.json"), cost.to_string()).expect("writable");
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        text(&self.0.path().join(name))
    }

    fn write(&self, name: &str, content: &str) -> String {
        std::fs::write(self.path(name), content).expect("writable");
        self.path(name)
    }

    fn sim(&self, line: &str) -> Ran {
        let cost = self.path("p.json");
        let mut args = vec!["sim", "--cost-model", &cost];
        args.extend(line.split_whitespace());
        run(&args)
    }

    fn json(&self, line: &str) -> Value {
        self.sim(&format!("--json {line}")).expect(0).json()
    }
}

#[track_caller]
fn near(value: &Value, expected: f64) {
    let got = value.as_f64().unwrap_or_else(|| panic!("{value} is no number"));
    assert!((got - expected).abs() < 1e-6 * expected.abs().max(1.0), "{got}, expected {expected}");
}

#[test]
fn one_request_lasts_what_arithmetic_says() {
    let result = Machine::new().json("--num-prompts 1 --random-input-len 24 --random-output-len 5");
    assert_eq!(fields(&result), FIELDS);
    // 5 + 24 to the first token, then four steps of 5 + 10.
    near(&result["mean_ttft_ms"], 29.0);
    near(&result["mean_tpot_ms"], 15.0);
    near(&result["max_itl_ms"], 15.0);
    near(&result["duration"], 0.089);
    near(&result["output_throughput"], 5.0 / 0.089);
    assert_eq!((&result["date"], &result["request_rate"]), (&Value::Null, &json!("inf")));
    assert_eq!((&result["completed"], &result["total_input_tokens"]), (&json!(1), &json!(24)));
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let machine = Machine::new();
    for line in [
        "--num-prompts 60 --random-input-len 90 --random-output-len 12 --random-range-ratio 0.5 --request-rate 4",
        "--dataset-name prefix_repetition --num-prompts 40 --request-rate 3 --burstiness 0.4 --num-gpu-blocks 90 \
         --max-concurrency 9 --num-warmups 3 --save-detailed --goodput ttft:900 tpot:60",
        "--num-prompts 30 --random-range-ratio 0.3 --scheduling-policy prefill-first --no-enable-prefix-caching --max-num-seqs 4",
    ] {
        let play = |seed: &str| machine.sim(&format!("{line} --json --seed {seed}")).expect(0).stdout;
        let first = play("7");
        assert_eq!(first, play("7"), "{line}");
        assert_ne!(first, play("8"), "{line}");
        assert!(!first.contains("NaN") && !first.contains("Infinity"), "{first}");
    }
}

#[test]
fn a_request_that_comes_while_nothing_runs_is_taken_when_it_comes() {
    let result = Machine::new().json(
        "--num-prompts 3 --random-input-len 8 --random-output-len 2 --request-rate 1 --burstiness inf --save-detailed",
    );
    let times = result["start_times"].as_array().expect("a list");
    let first = times[0].as_f64().expect("seconds");
    for (place, time) in times.iter().enumerate() {
        near(time, first + f64::from(u32::try_from(place).expect("few")));
    }
    near(&result["p99_ttft_ms"], 13.0);
    near(&result["mean_ttft_ms"], 13.0);
}

#[test]
fn a_shared_prefix_is_prefilled_once() {
    let line = "--dataset prefix_repetition --num-prompts 8 --prefix-repetition-num-prefixes 1 \
                --prefix-repetition-prefix-len 160 --prefix-repetition-suffix-len 20 \
                --prefix-repetition-output-len 1 --request-rate 1 --burstiness inf";
    let machine = Machine::new();
    assert_eq!(machine.json(line)["cached_tokens"], 7 * 160);
    assert_eq!(machine.json(&format!("{line} --no-enable-prefix-caching"))["cached_tokens"], 0);
}

#[test]
fn answers_of_one_token_have_no_tpot_and_break_no_mean() {
    let ran = Machine::new().sim("--json --num-prompts 5 --random-input-len 8 --random-output-len 1").expect(0);
    let result = ran.json();
    for name in ["mean_tpot_ms", "median_tpot_ms", "std_tpot_ms", "p99_tpot_ms", "mean_itl_ms", "max_itl_ms"] {
        assert!(result[name].is_null(), "{name}");
    }
    assert!(result["mean_ttft_ms"].as_f64().expect("a time") > 0.0);
    assert!(!ran.stdout.contains("NaN") && !ran.stdout.to_lowercase().contains("infinity"), "{}", ran.stdout);
}

#[test]
fn people_get_vllms_table() {
    let ran = Machine::new().sim("--num-prompts 4 --random-input-len 8 --random-output-len 3").expect(0);
    for part in [
        "============ Serving Benchmark Result ============\n",
        "Successful requests:                     4\n",
        "---------------Time to First Token----------------\n",
        "-----Time per Output Token (excl. 1st token)------\n",
        "P99 TPOT (ms):  ",
        "Max ITL (ms):  ",
    ] {
        assert!(ran.stdout.contains(part), "no {part:?} in {}", ran.stdout);
    }
    ran.says(&["virtual time", "paper"]);
}

#[test]
fn a_trace_of_a_crowded_run_converts_and_counts_every_request() {
    let machine = Machine::new();
    let trace = machine.path("t.jsonl");
    let line = format!(
        "--dataset prefix_repetition --num-prompts 40 --prefix-repetition-prefix-len 64 \
         --prefix-repetition-num-prefixes 3 --prefix-repetition-suffix-len 20 --prefix-repetition-output-len 60 \
         --request-rate 4 --num-gpu-blocks 40 --trace {trace}"
    );
    let result = machine.json(&line);
    assert_eq!(result["completed"], 40);
    let bytes = std::fs::read(&trace).expect("a trace");
    machine.json(&line);
    assert_eq!(bytes, std::fs::read(&trace).expect("a trace"), "the trace is the same, too");

    let summary = run(&["trace", "summary", &trace, "--json"]).expect(0).json();
    near(&summary["ttft_ms"]["mean"], result["mean_ttft_ms"].as_f64().expect("a time"));
    let text = String::from_utf8(bytes).expect("text");
    assert!(text.contains("\"preempt\""), "a pool so small that somebody gives way");
    let converted = machine.path("t.json");
    run(&["trace", "convert", &trace, &converted]).expect(0).says(&["40 requests"]);
    check(&std::fs::read_to_string(converted).expect("written"));
}

#[test]
fn texts_need_no_tokenizer_and_files_are_read() {
    let machine = Machine::new();
    let turns = json!([{"from": "a", "value": "sixteen bytes!!!"}, {"from": "b", "value": "and 20 bytes of that"}]);
    let share = machine.write("share.json", &json!([{ "conversations": turns }]).to_string());
    let ran = machine.sim(&format!("--json --dataset sharegpt --dataset-path {share} --num-prompts 2")).expect(0);
    let result = ran.json();
    assert_eq!((&result["total_input_tokens"], &result["total_output_tokens"]), (&json!(8), &json!(10)));
    ran.says(&["4 bytes"]);

    let line =
        |t: u32| format!("{{\"timestamp\":{t},\"input_length\":600,\"output_length\":2,\"hash_ids\":[1,{t}]}}\n");
    let trace = machine.write("mooncake.jsonl", &(line(0) + &line(3000)));
    let result = machine.json(&format!("--dataset mooncake --dataset-path {trace} --save-detailed"));
    assert_eq!((&result["completed"], &result["cached_tokens"]), (&json!(2), &json!(512)));
    near(&result["start_times"][1], 3.0);
}

#[test]
fn bad_input_is_told_and_exits_as_it_should() {
    let machine = Machine::new();
    let bad =
        machine.write("bad.jsonl", "{\"timestamp\":0,\"input_length\":5,\"output_length\":2,\"hash_ids\":[1]}\n{\n");
    let absent = machine.path("absent/t.jsonl");
    for (line, code, says) in [
        ("--dataset-name banana", 2, "banana"),
        ("--request-rate 0", 2, "--request-rate"),
        ("--itl-slo -5", 2, "--itl-slo"),
        ("--num-prompts 0", 2, "--num-prompts"),
        ("--max-num-seqs 0", 2, "--max-num-seqs"),
        ("--num-gpu-blocks 0", 2, "--num-gpu-blocks"),
        ("--max-model-len 4096", 2, "2048"),
        ("--random-input-len 2000 --random-output-len 100", 1, "context of 2048"),
        ("--random-input-len 100 --random-output-len 20 --num-gpu-blocks 7", 1, "context of 112"),
        ("--kv-memory 999", 1, "999 bytes"),
        (&format!("--dataset mooncake --dataset-path {bad}"), 1, "line 2"),
        (&format!("--dataset mooncake --dataset-path {absent}"), 1, "absent"),
        (&format!("--num-prompts 1 --trace {absent}"), 1, "absent"),
    ] {
        let ran = machine.sim(line).expect(code).says(&[says]);
        assert_eq!(ran.stdout, "", "{line}");
    }
}

#[test]
fn a_file_that_is_no_cost_model_is_named() {
    run(&["sim"]).expect(2).says(&["--cost-model"]);
    run(&["sim", "--cost-model", "absent.json"]).expect(1).says(&["absent.json"]);
    type Change = fn(&mut Value);
    let cases: [(Change, &str); 6] = [
        (|cost| *cost = json!([1]), "bench --fit"),
        (|cost| cost["a"] = json!(-1), "bench --fit"),
        (|cost| drop(cost.as_object_mut().map(|fields| fields.remove("d"))), "`d`"),
        (|cost| cost["vocab"] = json!(0), "vocab"),
        (|cost| cost["page_tokens"] = json!(32), "page_tokens 16"),
        (|cost| cost["page_bytes"] = json!(0), "page_bytes"),
    ];
    for (change, says) in cases {
        Machine::changed(change).sim("--num-prompts 1").expect(1).says(&["p.json", says]);
    }
    // Huge and zero coefficients are odd, not wrong.
    for value in [0, u64::MAX] {
        let odd = Machine::changed(|cost| ["a", "b", "c", "d"].iter().for_each(|name| cost[name] = json!(value)));
        assert_eq!(odd.json("--num-prompts 3 --random-input-len 9 --random-output-len 3")["completed"], 3);
    }
}
