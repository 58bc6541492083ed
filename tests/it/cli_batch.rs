//! `run-batch` as a black box: order, shapes, failed lines, resuming, and the same answers in any company.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::cli_program::{Ran, TinyModel, fields, ids, program, run, text};
use crate::model_writer::{Meta, TinyLlama};

/// A folder with a model, an input and an output.
struct Batch {
    model: TinyModel,
    input: String,
    output: String,
}

impl Batch {
    fn new(model: TinyModel, lines: &[String]) -> Self {
        let input = model.file("in.jsonl", lines.join("\n").as_bytes());
        let output = text(&PathBuf::from(&input).with_file_name("out.jsonl"));
        Self { model, input, output }
    }

    fn plain(lines: &[String]) -> Self {
        Self::new(TinyModel::plain(), lines)
    }

    fn start(&self, more: &[&str]) -> Ran {
        self.model.run("run-batch", &[&["-i", &self.input, "-o", &self.output][..], more].concat())
    }

    /// Runs it, and reads the output.
    fn rows(&self, more: &[&str]) -> Vec<Value> {
        self.start(more).expect(0);
        self.written()
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.output).expect("there is an output")
    }

    fn written(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
    }
}

fn line(id: &str, url: &str, body: &Value) -> String {
    json!({"custom_id": id, "method": "POST", "url": url, "body": body}).to_string()
}

fn completion(id: &str, body: &Value) -> String {
    line(id, "/v1/completions", body)
}

fn chat(id: &str, content: &str, more: &Value) -> String {
    let mut body = more.clone();
    body["messages"] = json!([{"role": "user", "content": content}]);
    line(id, "/v1/chat/completions", &body)
}

/// What of a row does not depend on when it ran, or on what ran before.
fn lasting(row: &Value) -> Value {
    let mut body = row["response"]["body"].clone();
    for gone in ["id", "created", "usage"] {
        body.as_object_mut().expect("an object").remove(gone);
    }
    json!([row["custom_id"], row["response"]["status_code"], body])
}

fn lasting_all(rows: &[Value]) -> Vec<Value> {
    rows.iter().map(lasting).collect()
}

/// Requests of many lengths, greedy and drawn, with all that can be compared.
fn mixed() -> Vec<String> {
    let drawn = json!({"max_tokens": 9, "temperature": 0.9, "top_p": 0.95, "seed": 5});
    let greedy = json!({"max_tokens": 12});
    let all = (0..10_u32).map(|i| {
        let mut body = if i % 2 == 0 { greedy.clone() } else { drawn.clone() };
        body["return_token_ids"] = json!(true);
        body["ignore_eos"] = json!(true);
        let words = "the sea and the land ".repeat(i as usize + 1);
        if i % 3 == 0 {
            body["logprobs"] = json!(true);
            body["top_logprobs"] = json!(3);
            chat(&format!("m{i}"), &words, &body)
        } else {
            body["logprobs"] = json!(3);
            body["prompt"] = json!(words);
            completion(&format!("m{i}"), &body)
        }
    });
    all.collect()
}

#[test]
fn rows_have_exactly_the_fields_of_the_contract_in_the_order_of_the_input() {
    let lines = [
        completion("long", &json!({"prompt": "the sea", "max_tokens": 40, "ignore_eos": true})),
        String::new(),
        chat("short", "hi", &json!({"max_tokens": 1})),
        "not JSON".to_owned(),
        completion("two", &json!({"prompt": [5, 6, 7], "max_tokens": 2, "n": 2, "return_token_ids": true})),
    ];
    let batch = Batch::plain(&lines);
    let ran = batch.start(&[]).expect(0).says(&["3 answered, 1 failed", "twin"]);
    assert_eq!(ran.stdout, "", "results go to the file");
    let rows = batch.written();
    let names: Vec<_> = rows.iter().map(|row| row["custom_id"].clone()).collect();
    assert_eq!(names, [json!("long"), json!("short"), Value::Null, json!("two")]);
    for row in &rows {
        assert_eq!(fields(row), ["id", "custom_id", "response", "error"]);
        assert_eq!(fields(&row["response"]), ["status_code", "request_id", "body"]);
        assert_eq!(row["error"].is_null(), row["response"]["status_code"] == 200);
    }
    let body = |at: usize| &rows[at]["response"]["body"];
    assert_eq!((&body(0)["object"], &body(1)["object"]), (&json!("text_completion"), &json!("chat.completion")));
    assert_eq!((&body(0)["model"], &body(0)["usage"]["completion_tokens"]), (&json!("tiny"), &json!(40)));
    assert_eq!(
        fields(&body(3)["choices"][1]),
        ["index", "text", "logprobs", "finish_reason", "token_ids", "prompt_token_ids"]
    );
    assert_eq!(ids(&body(3)["choices"][1]["prompt_token_ids"]), [5, 6, 7]);
    assert_eq!(body(3)["choices"][0]["token_ids"], body(3)["choices"][1]["token_ids"], "greedy choices are alike");
    let mut names: Vec<_> = rows.iter().map(|row| row["id"].as_str().expect("a name")).collect();
    names.dedup();
    assert_eq!(names.len(), 4);
}

#[test]
fn answers_are_those_of_run() {
    let batch = Batch::plain(&[
        completion(
            "raw",
            &json!({"prompt": "the sea", "max_tokens": 12, "ignore_eos": true, "return_token_ids": true}),
        ),
        chat("chat", "the sea", &json!({"max_tokens": 12, "ignore_eos": true, "return_token_ids": true})),
    ]);
    let rows = batch.rows(&[]);
    for (row, raw) in rows.iter().zip([&["--raw"][..], &[]]) {
        let args = [&["--json", "-p", "the sea", "--max-tokens", "12", "--ignore-eos"], raw].concat();
        let answer = batch.model.run("run", &args).expect(0).json();
        let choice = &row["response"]["body"]["choices"][0];
        assert_eq!(choice["token_ids"], answer["output_ids"]);
        assert_eq!(choice["prompt_token_ids"], answer["prompt_ids"]);
        let said = if choice["text"].is_null() { &choice["message"]["content"] } else { &choice["text"] };
        assert_eq!(*said, answer["text"]);
    }
}

#[test]
fn f45_company_chunks_and_cache_leave_every_bit_as_it_is() {
    let lines = mixed();
    let batch = Batch::plain(&lines);
    let alone = lasting_all(&batch.rows(&["--max-num-seqs", "1", "--no-enable-prefix-caching"]));
    assert!(alone.iter().all(|row| row[1] == 200), "{alone:?}");
    for more in [
        &[][..],
        &["--long-prefill-token-threshold", "1"],
        &["--long-prefill-token-threshold", "17", "--max-num-seqs", "3"],
        &["--passes", "2"],
        &["--scheduling-policy", "prefill-first", "--max-num-batched-tokens", "40"],
    ] {
        assert_eq!(lasting_all(&batch.rows(more)), alone, "{more:?}");
    }
    let backwards: Vec<_> = lines.into_iter().rev().collect();
    let mut rows = lasting_all(&Batch::plain(&backwards).rows(&[]));
    rows.reverse();
    assert_eq!(rows, alone, "another order");
}

#[test]
fn the_second_pass_finds_the_prompt_in_the_cache() {
    let prompt: Vec<u32> = (3..103).collect();
    let batch = Batch::plain(&[completion("a", &json!({"prompt": prompt, "max_tokens": 2}))]);
    let cached = |more: &[&str]| {
        let usage = batch.rows(more)[0]["response"]["body"]["usage"].clone();
        usage["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a count")
    };
    assert_eq!((cached(&[]), cached(&["--passes", "2"])), (0, 96));
    assert_eq!(cached(&["--passes", "2", "--no-enable-prefix-caching"]), 0);
}

#[test]
fn a_failed_line_is_told_in_its_own_row_and_hurts_no_other() {
    let good = completion("good", &json!({"prompt": "the sea", "max_tokens": 3}));
    let alone = lasting_all(&Batch::plain(std::slice::from_ref(&good)).rows(&[]));
    let bad = [
        ("{\"custom_id\": \"x\"".to_owned(), "line"),
        (completion("x", &json!({"prompt": vec![5; 256]})), "prompt"),
        (completion("x", &json!({"prompt": [320]})), "prompt"),
        (completion("x", &json!({"prompt": "a", "temperature": 3})), "temperature"),
        (completion("x", &json!({"prompt": "a", "n": 0})), "n"),
        (completion("x", &json!({"prompt": "a", "logit_bias": {"320": 1}})), "logit_bias"),
        (chat("x", "a", &json!({"tools": [{"type": "function"}]})), "tools"),
        (chat("x", "a", &json!({"response_format": {"type": "json_object"}})), "response_format"),
        (line("x", "/v1/embeddings", &json!({"input": "a"})), "url"),
    ];
    let mut lines = vec![good.clone()];
    lines.extend(bad.iter().map(|(line, _)| line.clone()));
    lines.push(good);
    let batch = Batch::plain(&lines);
    batch.start(&[]).expect(0).says(&["2 answered, 9 failed"]);
    let rows = batch.written();
    assert_eq!((lasting(&rows[0]), lasting(&rows[10])), (alone[0].clone(), alone[0].clone()));
    for (row, (line, param)) in rows[1..].iter().zip(&bad) {
        assert_eq!(row["response"]["status_code"], 400, "{line}");
        let error = &row["response"]["body"]["error"];
        assert_eq!(fields(error), ["message", "type", "param", "code"]);
        assert_eq!((&error["param"], &row["error"]), (&json!(param), error), "{line}");
        assert_eq!(error["type"], "invalid_request_error");
    }
}

#[test]
fn resume_goes_on_behind_what_is_there() {
    let batch = Batch::plain(&mixed());
    let whole = lasting_all(&batch.rows(&[]));
    let text = batch.text();
    let rows: Vec<&str> = text.split_inclusive('\n').collect();
    let part = |count: usize, tail: &str| format!("{}{tail}", rows[..count].concat());
    for (kept, tail) in [(0, ""), (4, ""), (4, &rows[4][..rows[4].len() / 2]), (9, "{\"custom_id\":\n"), (2, "\0\0\0")]
    {
        std::fs::write(&batch.output, part(kept, tail)).expect("writable");
        assert_eq!(lasting_all(&batch.rows(&["--resume"])), whole, "{kept} rows and {tail:?}");
        assert!(batch.text().starts_with(&part(kept, "")), "what is there stays");
    }
    std::fs::write(&batch.output, part(10, "torn")).expect("writable");
    batch.start(&["--resume"]).expect(0).says(&["nothing to do", "10"]);
    assert_eq!(batch.text(), text);
    std::fs::remove_file(&batch.output).expect("it was there");
    assert_eq!(lasting_all(&batch.rows(&["--resume"])), whole, "nothing to resume is a beginning");
}

#[test]
fn resume_refuses_what_is_no_output_of_this_input_and_leaves_it() {
    let batch = Batch::plain(&mixed());
    batch.rows(&[]);
    let text = batch.text();
    let rows: Vec<&str> = text.split_inclusive('\n').collect();
    let check = |content: String, parts: &[&str]| {
        std::fs::write(&batch.output, &content).expect("writable");
        batch.start(&["--resume"]).expect(1).says(&["--resume"]).says(parts);
        assert_eq!(batch.text(), content);
    };
    check(rows[1].to_owned(), &["\"m0\"", "\"m1\"", "line 1"]);
    check(format!("{}{}", rows[0], rows[2]), &["\"m2\"", "line 2"]);
    check(format!("{text}{}", rows[9]), &["line 11", "one more"]);
    check(format!("precious\nnotes\n{}", rows[0]), &["line 1", "something else"]);
}

#[test]
fn files_that_cannot_be_read_or_written_exit_1_before_a_model_is_opened() {
    let batch = Batch::plain(&mixed());
    let folder = text(&std::env::temp_dir());
    let of = |input: &str, output: &str| run(&["run-batch", "--model", "no-such.gguf", "-i", input, "-o", output]);
    of("no-such.jsonl", &batch.output).expect(1).says(&["open input", "no-such.jsonl"]);
    of(&folder, &batch.output).expect(1).says(&["input"]);
    of(&batch.input, &folder).expect(1).says(&["open output"]);
    of(&batch.input, "no-such-folder/out.jsonl").expect(1).says(&["open output", "no-such-folder"]);
    std::fs::write(&batch.output, "precious").expect("writable");
    of(&batch.input, &batch.output).expect(1).says(&["no-such.gguf"]);
    assert_eq!(batch.text(), "precious", "nothing was replaced before there is a model");
    std::fs::write(&batch.input, "\n\n").expect("writable");
    of(&batch.input, &batch.output).expect(0).says(&["nothing to do"]);
    assert_eq!(batch.text(), "");
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_exits_1() {
    let batch = Batch::plain(&mixed());
    batch
        .model
        .run("run-batch", &["-i", &batch.input, "-o", "/dev/full"])
        .expect(1)
        .says(&["write output", "/dev/full"]);
}

#[test]
#[cfg(unix)]
fn interrupt_leaves_whole_rows_and_a_second_start_goes_on() {
    let model = TinyModel::new(&TinyLlama { context: 4096, ..Default::default() }, |_| ());
    let body = |tokens: u32| json!({"prompt": "the sea", "max_tokens": tokens, "ignore_eos": true});
    let lines: Vec<_> = (0..4).map(|i| completion(&format!("c{i}"), &body([2, 4, 3000, 2][i]))).collect();
    let batch = Batch::new(model, &lines);
    let args = batch.model.args("run-batch", &["-i", &batch.input, "-o", &batch.output]);
    let mut command = program(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let clock = std::time::Instant::now();
    let rows = || std::fs::read_to_string(&batch.output).map_or(0, |text| text.lines().count());
    while rows() < 2 {
        assert!(clock.elapsed().as_secs() < 60, "no row in a minute");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let sent = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(sent.success());
    let mut stderr = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().expect("piped"), &mut stderr).expect("readable");
    assert_eq!(child.wait().expect("the child ends").code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("cancelled") && stderr.contains("2 answers are in") && stderr.contains("--resume"),
        "{stderr}"
    );
    assert_eq!(batch.written().len(), 2);
    std::fs::write(&batch.input, lines.join("\n").replace("3000", "5")).expect("writable");
    let rows = batch.rows(&["--resume"]);
    let tokens: Vec<_> = rows.iter().map(|row| row["response"]["body"]["usage"]["completion_tokens"].clone()).collect();
    assert_eq!(tokens, [json!(2), json!(4), json!(5), json!(2)]);
}

/// The first choice of each row by its custom id.
fn choices(batch: &Batch) -> BTreeMap<String, Value> {
    let of = |row: &Value| {
        let choice = row["response"]["body"]["choices"][0].clone();
        assert!(choice.is_object(), "{row}");
        (row["custom_id"].as_str().expect("a name").to_owned(), choice)
    };
    batch.rows(&[]).iter().map(of).collect()
}

#[test]
fn f24_every_end_token_ends_the_answer_and_has_no_text() {
    let model = TinyModel::new(&TinyLlama::default(), |gguf| {
        gguf.set("tokenizer.ggml.eos_token_id", Meta::U32(0));
    });
    let forced = |id: &str| json!({"logit_bias": {id: 100}, "max_tokens": 8, "return_token_ids": true});
    let batch = Batch::new(model, &[chat("first", "hi", &forced("0")), chat("second", "hi", &forced("2"))]);
    let got = choices(&batch);
    for (name, id) in [("first", 0), ("second", 2)] {
        assert_eq!(ids(&got[name]["token_ids"]), [id], "{name}");
        assert_eq!((&got[name]["finish_reason"], &got[name]["message"]["content"]), (&json!("stop"), &json!("")));
    }
}

#[test]
fn f41_temperature_of_nothing_is_greedy() {
    let body = |more: Value| {
        let mut body = json!({"prompt": "the sea", "max_tokens": 16, "ignore_eos": true, "logprobs": 2});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        body
    };
    let batch = Batch::plain(&[
        completion("zero", &body(json!({"temperature": 0}))),
        completion("tiny", &body(json!({"temperature": 1e-9, "seed": 3}))),
        completion("top 1", &body(json!({"temperature": 1, "top_k": 1, "seed": 4}))),
    ]);
    let got = choices(&batch);
    assert_eq!((&got["tiny"], &got["top 1"]), (&got["zero"], &got["zero"]));
    let logprobs = got["zero"]["logprobs"]["token_logprobs"].as_array().expect("a list");
    assert!(logprobs.len() == 16 && logprobs.iter().all(|x| x.as_f64().is_some_and(|x| x <= 0.0)), "{logprobs:?}");
}

#[test]
fn f43_presence_and_frequency_count_the_answer_only_and_repetition_the_prompt_too() {
    let body = |more: Value| {
        let mut body = json!({"prompt": vec![40; 6], "max_tokens": 1, "logprobs": 3, "return_token_ids": true});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        body
    };
    let batch = Batch::plain(&[
        completion("plain", &body(json!({}))),
        completion("presence", &body(json!({"presence_penalty": 2}))),
        completion("frequency", &body(json!({"frequency_penalty": 2}))),
        completion("repetition", &body(json!({"repetition_penalty": 1e6}))),
        completion("less", &body(json!({"repetition_penalty": 1e-6}))),
    ]);
    let got = choices(&batch);
    assert_eq!((&got["presence"], &got["frequency"]), (&got["plain"], &got["plain"]));
    assert_ne!(got["repetition"]["token_ids"], got["less"]["token_ids"], "the prompt's token is pushed away or up");
}

#[test]
fn drawn_answers_repeat_with_the_seed_and_choices_differ() {
    let hot = json!({"prompt": "the sea", "max_tokens": 12, "temperature": 2, "ignore_eos": true, "n": 3});
    let batch = Batch::plain(&[completion("a", &hot), completion("b", &hot)]);
    let of = |more: &[&str]| lasting_all(&batch.rows(more));
    let seeded = of(&["--seed", "7"]);
    assert_eq!(seeded, of(&["--seed", "7", "--max-num-seqs", "2"]));
    assert_ne!(seeded, of(&["--seed", "8"]));
    let choices = &seeded[0][2]["choices"];
    assert_ne!(choices[0]["text"], choices[1]["text"], "another choice draws other tokens");
    assert_ne!(choices, &seeded[1][2]["choices"], "and so does another request");
    batch.start(&[]).expect(0).says(&["--seed"]);
}

#[test]
fn toy_answers_chats_and_completions_with_every_stop() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| text(&folder.path().join(name));
    let (input, output) = (path("in.jsonl"), path("out.jsonl"));
    let prompt = json!({"prompt": "Once upon a time, a wizard in a castle", "max_tokens": 8});
    let mut stopped = prompt.clone();
    stopped["stop"] = json!(["never there", " "]);
    let lines =
        [completion("whole", &prompt), completion("stopped", &stopped), chat("chat", "hi", &json!({"max_tokens": 4}))];
    std::fs::write(&input, lines.join("\n")).expect("writable");
    let model = ["run-batch", "--model", "toy", "--device", "twin", "--kv-memory", "16MiB"];
    run(&[&model[..], &["-i", &input, "-o", &output]].concat()).expect(0).says(&["3 answered, 0 failed"]);
    let rows: Vec<Value> = std::fs::read_to_string(&output)
        .expect("there")
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let choice = |at: usize| &rows[at]["response"]["body"]["choices"][0];
    let whole = choice(0)["text"].as_str().expect("text");
    let cut = whole.split(' ').next().expect("a part");
    assert_eq!((&choice(1)["text"], &choice(1)["finish_reason"]), (&json!(cut), &json!("stop")), "{whole:?}");
    assert!(choice(2)["message"]["content"].is_string());
}
