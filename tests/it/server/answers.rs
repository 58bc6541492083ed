//! What answers look like on the wire, streamed and whole.

use serde_json::{Value, json};

use super::shared;

fn chat(more: Value) -> Value {
    let mut body =
        json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 8});
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body
}

fn text(more: Value) -> Value {
    let mut body = json!({"prompt": "Once upon a time", "max_tokens": 8});
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body
}

/// The joined deltas of a chat's choice.
fn joined(events: &[Value], index: usize) -> String {
    let choices = events.iter().flat_map(|event| event["choices"].as_array().expect("choices"));
    let own = choices.filter(|choice| choice["index"] == index);
    own.filter_map(|choice| choice["delta"]["content"].as_str().or(choice["text"].as_str())).collect()
}

#[test]
fn a_streamed_chat_has_openais_chunks_in_openais_order() {
    let body = chat(json!({"stream": true, "stream_options": {"include_usage": true}}));
    let reply = shared().post("/v1/chat/completions", &body).expect(200);
    assert!(reply.header("content-type").expect("a type").starts_with("text/event-stream"));
    let events = reply.events();
    let first = &events[0];
    assert_eq!(first["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    assert_eq!((&first["object"], &first["model"]), (&"chat.completion.chunk".into(), &"gpt-4o".into()));
    for event in &events {
        assert_eq!((&event["id"], &event["created"]), (&first["id"], &first["created"]));
        assert!(event.get("usage").is_some(), "null until the last: {event}");
    }
    let (usage, chunks) = events.split_last().expect("events");
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["completion_tokens"], 8);
    assert!(chunks.iter().all(|chunk| chunk["usage"].is_null()));
    let finish = &chunks.last().expect("a finish")["choices"][0];
    assert_eq!((&finish["delta"], &finish["finish_reason"]), (&json!({}), &"length".into()));
    assert!(chunks.last().expect("a finish")["timings"]["predicted_n"] == 8, "{chunks:?}");
    let whole = shared().post("/v1/chat/completions", &chat(json!({}))).expect(200).json();
    assert_eq!(whole["choices"][0]["message"]["content"], joined(chunks, 0));
    assert_eq!(whole["usage"]["completion_tokens"], 8);
    assert_eq!(whole["object"], "chat.completion");
    assert!(whole["timings"]["prompt_ms"].as_f64().expect("a time") >= 0.0);
}

/// F64: one finish reason a choice, null before it, never empty.
#[test]
fn f64_finish_reason_is_null_until_the_last_chunk() {
    let reply =
        shared().post("/v1/chat/completions", &chat(json!({"stream": true, "n": 2, "temperature": 1.0, "seed": 7})));
    let events = reply.expect(200).events();
    for index in 0..2 {
        let choices = events.iter().flat_map(|event| event["choices"].as_array().expect("choices"));
        let reasons: Vec<&Value> = choices.filter(|c| c["index"] == index).map(|c| &c["finish_reason"]).collect();
        let (last, before) = reasons.split_last().expect("chunks");
        assert!(last.is_string() && *last != "" && before.iter().all(|reason| reason.is_null()), "{reasons:?}");
    }
}

/// F01: a stop string that begins inside a token: what is before it in the token is sent, it is not.
#[test]
fn f01_text_before_a_stop_inside_a_token_is_sent() {
    let server = shared();
    let whole = server.post("/v1/completions", &text(json!({"max_tokens": 24}))).expect(200).json();
    let whole = whole["choices"][0]["text"].as_str().expect("a text").to_owned();
    let inside: Vec<char> = whole.chars().collect();
    for at in (2..inside.len().saturating_sub(2)).step_by(5) {
        let stop: String = inside[at..at + 2].iter().collect();
        let want = &whole[..whole.find(&stop).expect("it is in there")];
        let body = |stream: bool| text(json!({"max_tokens": 24, "stop": [stop], "stream": stream}));
        let plain = server.post("/v1/completions", &body(false)).expect(200).json();
        let events = server.post("/v1/completions", &body(true)).expect(200).events();
        assert_eq!(plain["choices"][0]["text"], want, "stop {stop:?} of {whole:?}");
        assert_eq!(joined(&events, 0), want, "streamed, stop {stop:?}");
        assert_eq!(plain["choices"][0]["finish_reason"], "stop");
        assert_eq!(events.last().expect("events")["choices"][0]["finish_reason"], "stop");
    }
}

/// F04: characters of several tokens arrive whole.
#[test]
fn f04_characters_of_several_tokens_arrive_whole() {
    let server = shared();
    let ids = server.post("/tokenize", &json!({"prompt": "\u{1f980}"})).expect(200).json();
    let ids: Vec<u64> = ids["tokens"].as_array().expect("ids").iter().map(|id| id.as_u64().expect("an id")).collect();
    assert!(ids.len() > 1, "one character, several tokens: {ids:?}");
    // Only the character's tokens are left to choose, in any order: in some of the draws it stands whole.
    let ask = |seed: u64, stream: bool| {
        let bias: serde_json::Map<_, _> = ids.iter().map(|id| (id.to_string(), json!(100))).collect();
        text(json!({"stream": stream, "max_tokens": 16, "n": 8, "temperature": 2.0, "seed": seed, "logit_bias": bias}))
    };
    let is_whole = |seed: &u64| {
        let plain = server.post("/v1/completions", &ask(*seed, false)).expect(200).json();
        plain["choices"]
            .as_array()
            .expect("choices")
            .iter()
            .any(|c| c["text"].as_str().is_some_and(|t| t.contains('\u{1f980}')))
    };
    let seed = (0..12).find(is_whole).expect("its tokens come in order in one of 96 answers");
    let plain = server.post("/v1/completions", &ask(seed, false)).expect(200).json();
    let events = server.post("/v1/completions", &ask(seed, true)).expect(200).events();
    for index in 0..8 {
        assert_eq!(plain["choices"][index]["text"], joined(&events, index), "choice {index}");
    }
    let in_one = |event: &Value| event["choices"][0]["text"].as_str().is_some_and(|text| text.contains('\u{1f980}'));
    assert!(events.iter().any(in_one), "the character is whole in one event");
    let prompt = "\u{1f980}\u{1f980}\u{4f60}\u{597d}";
    let echo = text(json!({"prompt": prompt, "echo": true, "stream": true}));
    let reply = server.post("/v1/completions", &echo).expect(200);
    assert!(joined(&reply.events(), 0).starts_with(prompt), "{}", reply.body);
}

/// F06 and F11: each token has its own alternatives, streamed or not; tokens are counted, not chunks.
#[test]
fn f06_f11_streamed_logprobs_are_those_of_the_whole_answer_token_by_token() {
    let server = shared();
    let more = |stream: bool| {
        json!({"logprobs": true, "top_logprobs": 3, "max_tokens": 16, "stop": ["the end of it all"], "stream": stream,
            "stream_options": if stream { json!({"include_usage": true}) } else { Value::Null }})
    };
    let events = server.post("/v1/chat/completions", &chat(more(true))).expect(200).events();
    let whole = server.post("/v1/chat/completions", &chat(more(false))).expect(200).json();
    let choices = events.iter().flat_map(|event| event["choices"].as_array().expect("choices"));
    let told: Vec<Value> =
        choices.filter_map(|choice| choice["logprobs"]["content"].as_array()).flatten().cloned().collect();
    assert_eq!(Value::from(told.clone()), whole["choices"][0]["logprobs"]["content"]);
    assert_eq!(events.last().expect("usage")["usage"]["completion_tokens"], told.len());
    assert!(told.iter().all(|token| token["top_logprobs"].as_array().is_some_and(|top| top.len() == 3)));
    let body = |stream: bool| text(json!({"logprobs": 2, "stream": stream}));
    let events = server.post("/v1/completions", &body(true)).expect(200).events();
    let whole = server.post("/v1/completions", &body(false)).expect(200).json();
    for field in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        let all = events.iter().filter_map(|event| event["choices"][0]["logprobs"][field].as_array()).flatten();
        assert_eq!(Value::from(all.cloned().collect::<Vec<_>>()), whole["choices"][0]["logprobs"][field], "{field}");
    }
}

/// F09: what is counted is the same streamed and not, over all choices, the prompt once.
#[test]
fn f09_usage_is_the_same_streamed_and_not_for_any_n() {
    let server = shared();
    for n in 1..=3 {
        let base = json!({"n": n, "temperature": 1.0, "seed": 11, "max_tokens": 20, "ignore_eos": true});
        let whole = server.post("/v1/chat/completions", &chat(base.clone())).expect(200).json();
        let mut streamed = base;
        streamed["stream"] = json!(true);
        streamed["stream_options"] = json!({"include_usage": true});
        let events = server.post("/v1/chat/completions", &chat(streamed)).expect(200).events();
        let (one, other) = (&whole["usage"], &events.last().expect("usage")["usage"]);
        for field in ["prompt_tokens", "completion_tokens", "total_tokens"] {
            assert_eq!(one[field], other[field], "{field} of n = {n}");
        }
        assert_eq!(one["completion_tokens"], 20 * n);
        assert_eq!(one["total_tokens"].as_u64(), Some(one["prompt_tokens"].as_u64().expect("a count") + 20 * n));
        for index in 0..n as usize {
            assert_eq!(whole["choices"][index]["message"]["content"], joined(&events, index), "choice {index}");
        }
    }
}

/// F51: no event for a part of a prompt; the first is the first token.
#[test]
fn f51_a_prompt_in_chunks_yields_one_event_with_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("t.jsonl").display().to_string();
    let chunk = ["--model", "toy", "--device", "twin", "--long-prefill-token-threshold", "64", "--trace", &trace];
    let server = super::process::Server::start(&chunk);
    let prompt: Vec<u32> = (0..700).map(|i| 100 + i % 50).collect();
    let body =
        text(json!({"prompt": prompt, "max_tokens": 1, "stream": true, "stream_options": {"include_usage": true}}));
    let events = server.post("/v1/completions", &body).expect(200).events();
    let with_text = |event: &&Value| event["choices"][0]["text"].as_str().is_some_and(|text| !text.is_empty());
    assert_eq!(events.iter().filter(with_text).count(), 1, "{events:?}");
    let usage = &events.last().expect("usage")["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&700.into(), &1.into()));
    let steps = std::fs::read_to_string(&trace).expect("a trace");
    assert!(steps.lines().filter(|line| line.contains("\"kind\":\"step\"")).count() >= 11, "{steps}");
}

#[test]
fn prompts_may_be_strings_ids_and_lists_of_both_kinds() {
    let server = shared();
    let ids = server.post("/tokenize", &json!({"prompt": "Once upon a time"})).expect(200).json()["tokens"].clone();
    let choices = |prompt: Value| {
        server.post("/v1/completions", &text(json!({"prompt": prompt}))).expect(200).json()["choices"].clone()
    };
    let one = choices(json!("Once upon a time"))[0]["text"].clone();
    assert_eq!(choices(ids.clone())[0]["text"], one);
    let both = choices(json!(["Once upon a time", "Once upon a time"]));
    assert_eq!((&both[0]["text"], &both[1]["text"], &both[1]["index"]), (&one, &one, &1.into()));
    assert_eq!(choices(json!([ids.clone(), ids]))[1]["text"], one);
}

#[test]
fn echo_puts_the_prompt_before_the_answer() {
    let server = shared();
    let plain = server.post("/v1/completions", &text(json!({}))).expect(200).json()["choices"][0]["text"].clone();
    let want = format!("Once upon a time{}", plain.as_str().expect("a text"));
    let echoed = server.post("/v1/completions", &text(json!({"echo": true}))).expect(200).json();
    assert_eq!(echoed["choices"][0]["text"], want);
    let events = server.post("/v1/completions", &text(json!({"echo": true, "stream": true}))).expect(200).events();
    assert_eq!(joined(&events, 0), want);
    for stream in [false, true] {
        let body = text(json!({"echo": true, "max_tokens": 0, "stream": stream}));
        let reply = server.post("/v1/completions", &body).expect(200);
        let got = if stream {
            joined(&reply.events(), 0)
        } else {
            reply.json()["choices"][0]["text"].as_str().expect("a text").to_owned()
        };
        assert_eq!(got, "Once upon a time");
    }
}

/// F62: a prompt's own logprobs are refused in so many words, and the server goes on.
#[test]
fn f62_echo_with_logprobs_and_no_tokens_is_a_clear_400() {
    let server = shared();
    let reply =
        server.post("/v1/completions", &text(json!({"echo": true, "logprobs": 1, "max_tokens": 0}))).expect(400);
    assert_eq!(reply.error()["param"], "echo");
    server.post("/v1/completions", &text(json!({}))).expect(200);
}

#[test]
fn min_tokens_keeps_an_answer_from_ending() {
    let server = shared();
    let ids = server.post("/tokenize", &json!({"prompt": "a"})).expect(200).json()["tokens"][0].clone();
    let bias = json!({ids.to_string(): 100});
    let body = |min: u32| {
        text(json!({"logit_bias": bias, "stop_token_ids": [ids], "min_tokens": min, "return_token_ids": true}))
    };
    let tokens = |min: u32| {
        let reply = server.post("/v1/completions", &body(min)).expect(200).json();
        reply["choices"][0]["token_ids"].as_array().expect("ids").clone()
    };
    assert_eq!(tokens(0), std::slice::from_ref(&ids));
    let kept = tokens(5);
    assert!(kept.len() == 6 && kept[5] == ids && !kept[..5].contains(&ids), "{kept:?}");
}

#[test]
fn a_second_ask_finds_its_prompt_in_the_cache_and_says_so() {
    let server = shared();
    let body = text(json!({"prompt": "cache ".repeat(40)}));
    let first = server.post("/v1/completions", &body).expect(200).json();
    let second = server.post("/v1/completions", &body).expect(200).json();
    assert_eq!(first["choices"], second["choices"]);
    assert!(second["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64() >= Some(16), "{}", second["usage"]);
}

#[test]
fn models_tokens_and_templates_are_told() {
    let server = shared();
    let models = server.get("/v1/models").expect(200).json();
    let card = &models["data"][0];
    assert_eq!((&card["id"], &card["object"]), (&"gpt-4o".into(), &"model".into()));
    assert!(card["root"].is_string() && card["max_model_len"].is_u64(), "{card}");
    assert_eq!(server.get("/v1/models/gpt-4o").expect(200).json()["id"], "gpt-4o");
    assert_eq!(server.get("/v1/models/gpt-5").expect(404).error()["code"], "model_not_found");
    let tokens =
        server.post("/tokenize", &json!({"prompt": "Hello there", "return_token_strs": true})).expect(200).json();
    assert_eq!(tokens["count"].as_u64().map(|n| n as usize), tokens["tokens"].as_array().map(Vec::len));
    assert_eq!(tokens["token_strs"].as_array().map(Vec::len), tokens["tokens"].as_array().map(Vec::len));
    let text = server.post("/detokenize", &json!({"tokens": tokens["tokens"]})).expect(200).json();
    assert_eq!(text["prompt"], "Hello there");
    let messages = json!({"messages": [{"role": "user", "content": "hi"}]});
    let prompt = server.post("/apply-template", &messages).expect(200).json()["prompt"].clone();
    assert!(prompt.as_str().is_some_and(|text| text.contains("hi") && text.contains("assistant")), "{prompt}");
    let version = server.get("/version").expect(200).json();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn figures_have_vllms_names_and_count() {
    let server = shared();
    let before = server.figure("twostroke:request_success_total");
    server.post("/v1/completions", &text(json!({}))).expect(200);
    assert!(server.figure("twostroke:request_success_total") > before);
    let all = server.get("/metrics").expect(200).body;
    for name in [
        "twostroke:num_requests_running",
        "twostroke:num_requests_waiting",
        "twostroke:kv_cache_usage_perc",
        "twostroke:prompt_tokens_total",
        "twostroke:generation_tokens_total",
        "twostroke:prefix_cache_queries_total",
        "twostroke:prefix_cache_hits_total",
        "twostroke:num_preemptions_total",
        "twostroke:time_to_first_token_seconds_bucket",
        "twostroke:inter_token_latency_seconds_bucket",
        "twostroke:request_time_per_output_token_seconds_bucket",
        "twostroke:e2e_request_latency_seconds_bucket",
        "twostroke:request_queue_time_seconds_bucket",
        "twostroke:request_prefill_time_seconds_bucket",
        "twostroke:request_decode_time_seconds_bucket",
        "twostroke:request_prompt_tokens_bucket",
        "twostroke:request_generation_tokens_bucket",
        "twostroke:iteration_tokens_total_bucket",
    ] {
        assert!(all.lines().any(|line| line.starts_with(&format!("{name}{{"))), "no {name} in {all}");
    }
    assert!(
        all.contains("model_name=\"gpt-4o\"") && all.contains("le=\"0.001\"") && all.contains("le=\"2560\""),
        "{all}"
    );
}

/// The dashboard in `assets` asks for nothing that is not there.
#[test]
fn the_dashboard_names_only_figures_that_are_told() {
    let board: Value = serde_json::from_str(include_str!("../../../assets/grafana.json")).expect("JSON");
    let all = shared().get("/metrics").expect(200).body;
    let mut count = 0;
    for panel in board["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().expect("targets") {
            for part in target["expr"].as_str().expect("an expression").split("twostroke:").skip(1) {
                let name = part.split(['{', '[', ')', ' ']).next().expect("a name");
                assert!(all.contains(&format!("twostroke:{name}{{")), "{name} is not told");
                count += 1;
            }
        }
    }
    assert!(count > 20);
}

#[test]
fn embeddings_are_the_same_in_any_form_and_company() {
    let server = shared();
    let ask = |body: Value| server.post("/v1/embeddings", &body).expect(200).json();
    let texts = ["It rains.", "It rains, and rains, and then it rains some more, until nobody counts.", "Sun"];
    let all = ask(json!({"model": "gpt-4o", "input": texts}));
    assert_eq!(
        (&all["object"], &all["model"], all["data"].as_array().map(Vec::len)),
        (&json!("list"), &json!("gpt-4o"), Some(3))
    );
    let floats =
        |value: &Value| -> Vec<f64> { value.as_array().expect("floats").iter().filter_map(Value::as_f64).collect() };
    for (index, text) in texts.iter().enumerate() {
        let alone = ask(json!({"input": text}));
        assert_eq!(alone["data"][0]["embedding"], all["data"][index]["embedding"], "{text}");
        assert_eq!(all["data"][index]["index"], index);
        let length: f64 = floats(&alone["data"][0]["embedding"]).iter().map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-5, "{length}");
        let ids = server.post("/tokenize", &json!({"prompt": text})).expect(200).json()["tokens"].clone();
        let by_ids = ask(json!({"input": ids, "encoding_format": "float"}));
        assert_eq!(by_ids["data"], alone["data"], "{text}");
        assert_eq!(alone["usage"]["prompt_tokens"].as_u64(), ids.as_array().map(|ids| ids.len() as u64));
        assert_eq!(alone["usage"]["total_tokens"], alone["usage"]["prompt_tokens"]);
    }
    assert_ne!(all["data"][0]["embedding"], all["data"][2]["embedding"]);
    let raw = ask(json!({"input": texts[0], "normalize": false}));
    let (raw, unit) = (floats(&raw["data"][0]["embedding"]), floats(&all["data"][0]["embedding"]));
    let scale = raw.iter().map(|x| x * x).sum::<f64>().sqrt();
    assert!(raw.iter().zip(&unit).all(|(raw, unit)| (raw / scale - unit).abs() < 1e-6));
    let many = ask(json!({"input": vec!["a"; 300]}));
    assert_eq!(many["data"].as_array().map(Vec::len), Some(300), "more than one wave");
    for (body, param) in [
        (json!({}), "input"),
        (json!({"input": []}), "input"),
        (json!({"input": [[]]}), "input"),
        (json!({"input": {"a": 1}}), "input"),
        (json!({"input": vec!["a"; 3000]}), "input"),
        (json!({"input": "word ".repeat(5000)}), "input"),
        (json!({"input": "a", "dimensions": 3}), "dimensions"),
        (json!({"input": "a", "encoding_format": "int8"}), "encoding_format"),
    ] {
        assert_eq!(server.post("/v1/embeddings", &body).expect(400).error()["param"], param, "{param}");
    }
    server.wait_idle();
}
