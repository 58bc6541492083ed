//! `bench` and `devices` as black boxes.

use crate::cli_program::{TinyModel, fields, program, run};

const FIELDS: [&str; 16] = [
    "model_type",
    "model_size",
    "model_n_params",
    "n_prompt",
    "n_gen",
    "n_depth",
    "n_parallel",
    "adapter",
    "tier",
    "avg_ns",
    "avg_ts",
    "stddev_ts",
    "pct_bandwidth",
    "pct_flops",
    "samples_ns",
    "samples_ts",
];

#[test]
fn json_has_exactly_the_fields_of_the_contract() {
    let model = TinyModel::plain();
    let ran =
        model.run("bench", &["-p", "8,16", "-n", "4", "-pg", "8,2", "-d", "0,20", "-r", "2", "-o", "json"]).expect(0);
    let json = ran.json();
    let rows = json.as_array().expect("a list");
    let tests: Vec<_> =
        rows.iter().map(|r| (r["n_prompt"].clone(), r["n_gen"].clone(), r["n_depth"].clone())).collect();
    let want = [(8, 0, 0), (16, 0, 0), (0, 4, 0), (8, 2, 0), (8, 0, 20), (16, 0, 20), (0, 4, 20), (8, 2, 20)];
    assert_eq!(tests, want.map(|(p, n, d)| (p.into(), n.into(), d.into())));
    for row in rows {
        assert_eq!(fields(row), FIELDS);
        assert_eq!((&row["adapter"], &row["tier"]), (&"twin".into(), &"base".into()));
        assert!(row["pct_bandwidth"].is_null() && row["pct_flops"].is_null());
        let samples = row["samples_ns"].as_array().expect("a list");
        assert_eq!(samples.len(), 2);
        assert!(row["avg_ts"].as_f64().expect("a rate") > 0.0);
        assert!(row["model_size"].as_u64().expect("bytes") > 0 && row["model_n_params"].as_u64().expect("a count") > 0);
    }
}

#[test]
fn zero_leaves_a_test_out_in_every_format() {
    let model = TinyModel::plain();
    let of = |format: &str| model.run("bench", &["-p", "0", "-n", "3", "-r", "1", "-o", format]).expect(0);
    assert_eq!(of("json").json().as_array().map(Vec::len), Some(1));
    let jsonl = of("jsonl").json_lines();
    assert_eq!((jsonl.len(), fields(&jsonl[0])), (1, FIELDS.to_vec()));
    let csv = of("csv").stdout;
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!((lines.len(), lines[0]), (2, &*FIELDS[..14].join(",")));
    let table = of("md").stdout;
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[0].starts_with("| model  ") && lines[0].ends_with("|                  t/s |"), "{table}");
    assert!(lines[2].contains("|             tg3 |"), "{table}");
    let widths: Vec<usize> = lines.iter().map(|line| line.chars().count()).collect();
    assert!(widths.iter().all(|&w| w == widths[0]), "{table}");
}

#[test]
fn test_that_exceeds_the_model_is_refused() {
    TinyModel::plain().run("bench", &["-p", "300", "-n", "0", "-r", "1"]).says(&["301", "256", "-p"]);
}

#[test]
fn devices_prints_json_that_names_each_adapter() {
    let output = program(&["devices", "--json"]).output().expect("the program runs");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let adapters = json["adapters"].as_array().expect("a list");
    assert_eq!(output.status.code(), Some(i32::from(adapters.is_empty())), "1 where there is none");
    if adapters.is_empty() {
        println!("SKIP no adapter");
    }
    for (index, adapter) in adapters.iter().enumerate() {
        assert_eq!(adapter["index"], index);
        for field in
            ["name", "backend", "kind", "tier", "features", "cooperative_matrices", "limits", "variants", "measured"]
        {
            assert!(!adapter[field].is_null(), "{field} of {adapter}");
        }
        for rate in ["bandwidth_bytes_per_s", "fma_per_s"] {
            assert!(adapter[rate].as_f64().is_some_and(|rate| rate > 0.0), "{rate} of {adapter}");
        }
    }
    if adapters.is_empty() {
        return;
    }
    let bench = |more: &[&str]| {
        let flags = ["bench", "--model", "toy", "--device", "0", "-p", "16", "-n", "2", "-r", "1", "-o", "json"];
        let output = program(&[&flags[..], more].concat()).output().expect("the program runs");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("JSON")
    };
    let share = |value: &serde_json::Value| value.as_f64().is_some_and(|share| share > 0.0 && share < 1000.0);
    let rows = bench(&[]);
    for row in rows.as_array().expect("a list") {
        assert!(share(&row["pct_flops"]) && share(&row["pct_bandwidth"]), "{row}");
    }
    let kernels = bench(&["--kernels"]);
    let kernels = kernels.as_array().expect("a list");
    for stroke in ["prefill", "decode"] {
        let of = kernels.iter().filter(|row| row["stroke"] == stroke);
        let products = of.filter(|row| row["kernel"].as_str().is_some_and(|name| name.starts_with("matmul")));
        assert!(products.clone().count() > 0 && products.clone().all(|row| share(&row["pct_flops"])), "{kernels:?}");
    }
}

#[test]
fn kernels_of_a_test_that_the_pool_cannot_hold_are_an_error_with_its_numbers() {
    let line =
        ["bench", "--model", "toy", "--device", "twin", "-p", "512", "-n", "1", "--kernels", "--kv-memory", "64KiB"];
    run(&line).expect(1).says(&["a context of 513 tokens", "--kv-memory"]);
}

#[test]
fn random_weights_have_a_size_and_no_tokenizer() {
    run(&["bench", "--model", "random:2B", "--device", "twin"]).expect(2).says(&["135M, 1B, 8B", "2B"]);
    run(&["run", "--model", "random:135M", "--device", "twin", "-p", "a"]).expect(1).says(&["tokenizer.json"]);
    run(&["fetch", "random:1B"]).expect(2).says(&["nothing to fetch"]);
}
