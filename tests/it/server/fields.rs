//! Bodies that cannot be answered, and what each is told.

use serde_json::{Value, json};

use super::process::Server;
use super::shared;
use crate::cli_program::TinyModel;
use crate::model_writer::{Meta, TinyLlama};

#[track_caller]
fn refuses(path: &str, body: &Value, status: u16, param: &str) {
    let reply = shared().post(path, body).expect(status);
    assert_eq!(reply.error()["param"], param, "{}", reply.body);
}

#[test]
fn wrong_fields_are_named() {
    let chat = |name: &str, value: Value| {
        let mut body = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1});
        body[name] = value;
        refuses("/v1/chat/completions", &body, 400, name);
    };
    chat("temperature", json!(3));
    chat("top_p", json!(0));
    chat("n", json!(0));
    chat("n", json!(1000));
    chat("max_tokens", json!(0));
    chat("max_tokens", json!("many"));
    chat("stop", json!(["a", 7]));
    chat("logit_bias", json!({"x": 1}));
    chat("top_logprobs", json!(3));
    chat("presence_penalty", json!(-3));
    chat("response_format", json!({"type": "json_object"}));
    chat("tools", json!([{"type": "function"}]));
    chat("stream_options", json!({"include_usage": true}));
    chat("messages", json!([]));
    chat("messages", json!("hi"));
    chat("min_tokens", json!(5));
    chat("seed", json!(1.5));
    let body = json!({"model": "gpt-5", "prompt": "a"});
    refuses("/v1/completions", &body, 404, "model");
}

#[test]
fn more_end_tokens_than_min_tokens_can_keep_away_are_400_and_the_server_goes_on() {
    let ids: Vec<u32> = (0..2000).collect();
    let body = json!({"prompt": "a", "max_tokens": 4, "min_tokens": 2, "stop_token_ids": ids});
    refuses("/v1/completions", &body, 400, "prompt");
    shared().post("/v1/completions", &json!({"prompt": "a", "max_tokens": 1})).expect(200);
}

#[test]
fn unknown_fields_are_passed_over() {
    let body =
        json!({"prompt": "a", "max_tokens": 1, "user": "me", "service_tier": "auto", "metadata": {"a": "b"}, "x": [1]});
    shared().post("/v1/completions", &body).expect(200);
}

#[test]
fn bodies_that_are_no_json_are_400() {
    let server = shared();
    let deep = "[".repeat(10_000);
    for body in
        ["", "{", "nonsense", "[]", "7", r#"{"prompt": "a", "temperature": 1e999}"#, &deep, "{\"prompt\": \"\u{0}\"}"]
    {
        let reply = server.open("POST", "/v1/completions", Some(body)).reply().expect(400);
        reply.error();
    }
    server.raw(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 4\r\n\r\n\xff\xfe{}").reply().expect(400);
}

#[test]
fn other_paths_and_methods_are_told_apart() {
    let server = shared();
    assert_eq!(server.get("/v1/nothing").expect(404).error()["code"], "unknown_url");
    assert_eq!(server.get("/v1/completions").expect(405).error()["code"], "method_not_allowed");
}

/// F18: what a template raises is told; the next request is answered.
#[test]
fn f18_what_a_template_raises_is_a_400_with_its_words() {
    let model = TinyModel::new(&TinyLlama::default(), |gguf| {
        gguf.set(
            "tokenizer.chat_template",
            Meta::str(
                "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}\
             {{ raise_exception('roles must alternate') }}{% endif %}{{ m['content'] }}{% endfor %}",
            ),
        );
    });
    let path = model.path().display().to_string();
    let server = Server::start(&["--model", &path, "--device", "twin"]);
    let user = json!({"role": "user", "content": "hi"});
    let body = json!({"messages": [user, user, user, {"role": "assistant", "content": "yes"}], "max_tokens": 1});
    let reply = server.post("/v1/chat/completions", &body).expect(400);
    assert!(
        reply.error()["message"].as_str().is_some_and(|text| text.contains("roles must alternate")),
        "{}",
        reply.body
    );
    server.post("/v1/chat/completions", &json!({"messages": [user], "max_tokens": 1})).expect(200);
}

/// F20: text parts are their text; other parts are refused.
#[test]
fn f20_text_parts_are_the_text_and_images_are_400() {
    let server = shared();
    let ask = |content: Value| {
        let body = json!({"messages": [{"role": "user", "content": content}], "max_tokens": 6});
        server.post("/v1/chat/completions", &body)
    };
    let plain = ask(json!("Tell me more")).expect(200).json();
    let parts = ask(json!([{"type": "text", "text": "Tell me"}, {"type": "text", "text": " more"}])).expect(200).json();
    assert_eq!(plain["choices"], parts["choices"]);
    assert_eq!(plain["usage"]["prompt_tokens"], parts["usage"]["prompt_tokens"]);
    ask(json!([{"type": "image_url", "image_url": {"url": "data:,"}}])).expect(400);
    ask(Value::Null).expect(400);
    let messages = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": null}, {"role": "user", "content": "b"}]);
    server.post("/v1/chat/completions", &json!({"messages": messages, "max_tokens": 1})).expect(200);
}

/// F21: a template that writes BOS and metadata that adds one make one.
#[test]
fn f21_there_is_exactly_one_bos() {
    let model = TinyModel::new(&TinyLlama::default(), |gguf| {
        gguf.set("tokenizer.ggml.add_bos_token", Meta::Bool(true));
        let template = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}";
        gguf.set("tokenizer.chat_template", Meta::str(template));
    });
    let path = model.path().display().to_string();
    let server = Server::start(&["--model", &path, "--device", "twin"]);
    let body = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, "return_token_ids": true});
    let reply = server.post("/v1/chat/completions", &body).expect(200).json();
    let ids = reply["choices"][0]["prompt_token_ids"].as_array().expect("ids").clone();
    let bos = &ids[0];
    assert_eq!(ids.iter().filter(|id| *id == bos).count(), 1, "{ids:?}");
    let plain = server.post("/tokenize", &json!({"prompt": "hi", "add_special_tokens": false})).expect(200).json();
    assert_eq!(ids.len(), plain["tokens"].as_array().expect("ids").len() + 1);
}

/// F24: any of several end tokens ends an answer, and its name is not in the text.
#[test]
fn f24_any_end_token_ends_an_answer_without_its_name() {
    let server = shared();
    let id = server.post("/tokenize", &json!({"prompt": "<|im_end|>"})).expect(200).json()["tokens"][0].clone();
    let body = json!({"messages": [{"role": "user", "content": "hi"}], "logit_bias": {id.to_string(): 100}});
    let reply = server.post("/v1/chat/completions", &body).expect(200).json();
    assert_eq!(
        (&reply["choices"][0]["finish_reason"], &reply["choices"][0]["message"]["content"]),
        (&"stop".into(), &"".into())
    );
    assert!(reply["usage"]["completion_tokens"].as_u64() <= Some(1));
}

/// F59: a prompt longer than the context is a 400 before any event, with both counts.
#[test]
fn f59_a_prompt_longer_than_the_context_is_400_with_both_counts() {
    let server = shared();
    let context = server.get("/v1/models").expect(200).json()["data"][0]["max_model_len"].as_u64().expect("a length");
    for stream in [false, true] {
        let prompt = vec![100; context as usize + 5];
        let reply = server.post("/v1/completions", &json!({"prompt": prompt, "stream": stream})).expect(400);
        let error = reply.error();
        let message = error["message"].as_str().expect("a message");
        assert_eq!(error["code"], "context_length_exceeded");
        assert!(message.contains(&context.to_string()) && message.contains(&(context + 5).to_string()), "{message}");
        let long = "word ".repeat(context as usize + 9);
        let reply = server.post("/v1/completions", &json!({"prompt": long, "stream": stream})).expect(400);
        assert_eq!(reply.error()["code"], "context_length_exceeded");
    }
}

/// F63: ids outside the vocabulary.
#[test]
fn f63_ids_outside_the_vocabulary_are_400() {
    for prompt in [json!([[-1]]), json!([[999_999_999]]), json!([-1]), json!([1.5]), json!([[4_294_967_296_u64]])] {
        refuses("/v1/completions", &json!({"prompt": prompt, "max_tokens": 1}), 400, "prompt");
    }
}

/// Control tokens that a user spells are text in a chat.
#[test]
fn control_tokens_in_a_message_are_plain_text() {
    let count = |content: &str| {
        let body = json!({"messages": [{"role": "user", "content": content}], "max_tokens": 1});
        shared().post("/v1/chat/completions", &body).expect(200).json()["usage"]["prompt_tokens"]
            .as_u64()
            .expect("a count")
    };
    assert!(count("<|im_end|>") > count("x") + 2, "a control token would be one token");
}
