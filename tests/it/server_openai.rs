//! OpenAI's bodies, without an engine: what is read, what is refused by which name, and what responses look like.

use serde_json::{Value, json};
use twostroke::engine::request::{FinishReason, Token};
use twostroke::engine::sampling::SamplingParams;
use twostroke::model::toy;
use twostroke::server::openai::{Answering, ApiError, Endpoint, Head, Host, Job};
use twostroke::text::chat::ChatTemplate;
use twostroke::text::tokenizer::Tokenizer;

use crate::cli_program::fields;

const CHAT: Endpoint = Endpoint::Chat;
const TEXT: Endpoint = Endpoint::Completions;

/// The toy's tokenizer and template, and the defaults.
struct Toy {
    tokenizer: Tokenizer,
    template: ChatTemplate,
    defaults: SamplingParams,
}

impl Toy {
    fn new() -> Self {
        let files = toy::files().expect("it is packed in");
        let tokenizer = Tokenizer::new(&files.description, None).expect("a tokenizer");
        let template = ChatTemplate::new(&files.description).expect("parses").expect("there is one");
        Self { tokenizer, template, defaults: SamplingParams::default() }
    }

    fn host(&self) -> Host<'_> {
        Host {
            model: "toy",
            tokenizer: &self.tokenizer,
            template: Some(&self.template),
            defaults: &self.defaults,
            context_tokens: 64,
            vocab: 49_152,
        }
    }

    fn read(&self, endpoint: Endpoint, body: &Value) -> Result<Job, ApiError> {
        Job::read(endpoint, body, &self.host(), 77)
    }

    /// A completion of `prompt` with more fields.
    fn text(&self, more: &Value) -> Result<Job, ApiError> {
        self.read(TEXT, &with(&json!({"prompt": "the sea"}), more))
    }

    /// A chat of one question with more fields.
    fn chat(&self, more: &Value) -> Result<Job, ApiError> {
        self.read(CHAT, &with(&json!({"messages": [{"role": "user", "content": "hi"}]}), more))
    }
}

fn with(base: &Value, more: &Value) -> Value {
    let mut all = base.as_object().expect("an object").clone();
    all.extend(more.as_object().expect("an object").clone());
    all.into()
}

#[test]
fn parameters_reach_the_engines_request() {
    let toy = Toy::new();
    let body = json!({
        "model": "whatever", "max_tokens": 5, "temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "seed": 3,
        "stop": "END", "logit_bias": {"5": -100, "6": 1.5}, "presence_penalty": 1, "frequency_penalty": -1,
        "repetition_penalty": 1.25, "logprobs": 2, "n": 3, "ignore_eos": true, "priority": -4, "cache_salt": "me",
        "stream": true, "return_token_ids": true, "stop_token_ids": [9], "unknown": {"a": 1}, "user": "u", "echo": false,
    });
    let job = toy.text(&body).expect("all of it is fine");
    assert_eq!((job.choices(), job.params.stream, job.params.return_token_ids), (3, true, true));
    assert_eq!(job.params.stops, ["END"]);
    let request = job.request(2, &[0, 2]);
    assert_eq!(request.prompt, toy.tokenizer.encode_raw("the sea").expect("encodes"));
    assert_eq!((request.max_tokens, request.choice, request.priority), (Some(5), 2, -4));
    assert_eq!(request.cache_salt.as_deref(), Some("me"));
    assert_eq!(request.stop_ids.into_iter().collect::<Vec<_>>(), [9], "the model's own ends are ignored");
    let sampling = SamplingParams {
        temperature: 0.5,
        top_p: 0.9,
        top_k: 7,
        min_p: 0.1,
        repetition_penalty: 1.25,
        presence_penalty: 1.0,
        frequency_penalty: -1.0,
        logit_bias: [(5, -100.0), (6, 1.5)].into(),
        seed: Some(3),
        logprobs: Some(2),
    };
    assert_eq!(request.sampling, sampling);
}

#[test]
fn what_is_absent_or_null_is_the_default() {
    let mut toy = Toy::new();
    toy.defaults.temperature = 0.75;
    let null = json!({"temperature": null, "stop": null, "n": null, "seed": null, "tools": null, "max_tokens": null});
    for more in [json!({}), null] {
        let job = toy.chat(&more).expect("fine");
        let request = job.request(0, &[0, 2]);
        assert_eq!((request.max_tokens, request.choice, request.priority), (None, 0, 0));
        assert_eq!((request.sampling.temperature, request.sampling.seed), (0.75, Some(77)));
        assert!(job.params.seed_is_drawn && job.params.stops.is_empty());
        assert_eq!(request.stop_ids.into_iter().collect::<Vec<_>>(), [0, 2]);
    }
    assert!(!toy.chat(&json!({"temperature": 0})).expect("fine").params.seed_is_drawn, "nothing is drawn");
    let both = toy.chat(&json!({"max_tokens": 9, "max_completion_tokens": 4})).expect("fine");
    assert_eq!(both.params.max_tokens, Some(4), "the newer name wins");
    assert_eq!(toy.chat(&json!({"logprobs": true})).expect("fine").params.sampling.logprobs, Some(0));
    let harmless = json!({"response_format": {"type": "text"}, "tools": [], "tool_choice": "none", "top_logprobs": 0});
    assert_eq!(toy.chat(&harmless).expect("fine").params.sampling.logprobs, None);
}

#[test]
fn a_wrong_field_is_refused_by_its_name() {
    let toy = Toy::new();
    let check = |result: Result<Job, ApiError>, param: &str| {
        let error = result.expect_err(param);
        assert_eq!((error.status, error.body.param.as_deref()), (400, Some(param)), "{error:?}");
        assert!(error.body.message.contains(param.split(['[', '.']).next().expect("a name")), "{error:?}");
    };
    for (name, value) in [
        ("temperature", json!(-0.1)),
        ("temperature", json!(2.5)),
        ("temperature", json!("hot")),
        ("temperature", json!(1e40)),
        ("top_p", json!(0)),
        ("top_k", json!(-2)),
        ("top_k", json!(1.5)),
        ("min_p", json!(1.5)),
        ("presence_penalty", json!(3)),
        ("frequency_penalty", json!(-3)),
        ("repetition_penalty", json!(0)),
        ("seed", json!("x")),
        ("max_tokens", json!(0)),
        ("max_tokens", json!(-1)),
        ("max_completion_tokens", json!("many")),
        ("n", json!(0)),
        ("n", json!(129)),
        ("n", json!(1.5)),
        ("stop", json!(5)),
        ("stop", json!([""])),
        ("stop", json!(["a", 1])),
        ("stop", json!(vec!["a"; 17])),
        ("logit_bias", json!([1])),
        ("logit_bias", json!({"x": 1})),
        ("logit_bias", json!({"49152": 1})),
        ("logit_bias", json!({"5": 101})),
        ("ignore_eos", json!("yes")),
        ("priority", json!(1_u64 << 40)),
        ("cache_salt", json!(1)),
        ("stop_token_ids", json!([49152])),
        ("model", json!(1)),
        ("tools", json!([{"type": "function", "function": {"name": "f"}}])),
        ("tool_choice", json!("required")),
        ("response_format", json!({"type": "json_object"})),
        ("response_format", json!({"type": "json_schema", "json_schema": {}})),
        ("echo", json!(1)),
        ("best_of", json!(4)),
        ("guided_json", json!({})),
    ] {
        check(toy.text(&json!({ name: value })), name);
        check(toy.chat(&json!({ name: value })), name);
    }
    check(toy.text(&json!({"logprobs": true})), "logprobs");
    check(toy.text(&json!({"logprobs": 21})), "logprobs");
    check(toy.chat(&json!({"logprobs": 5})), "logprobs");
    check(toy.chat(&json!({"logprobs": true, "top_logprobs": 21})), "top_logprobs");
    check(toy.chat(&json!({"top_logprobs": 2})), "top_logprobs");
    check(toy.read(CHAT, &json!([])), "body");
}

#[test]
fn prompts_come_as_text_ids_or_lists_of_either() {
    let toy = Toy::new();
    let sea = toy.tokenizer.encode_raw("the sea").expect("encodes");
    let check = |prompt: Value, want: &[&[u32]]| {
        let job = toy.text(&json!({ "prompt": prompt })).expect("fine");
        assert_eq!(job.prompts, want, "{prompt}");
    };
    check(json!("the sea"), &[&sea]);
    check(json!(["the sea"]), &[&sea]);
    check(json!([5, 6, 7]), &[&[5, 6, 7]]);
    check(json!([[5, 6], [7]]), &[&[5, 6], &[7]]);
    check(json!(["the sea", "the sea"]), &[&sea, &sea]);
    check(json!("<|im_start|>"), &[&[1]]);
    let job = toy.text(&json!({"prompt": [[5, 6], [7]], "n": 2})).expect("fine");
    let choices: Vec<_> = (0..job.choices()).map(|i| (job.prompt(i), job.request(i, &[]).choice)).collect();
    assert_eq!(choices, [(&[5, 6][..], 0), (&[5, 6], 1), (&[7], 0), (&[7], 1)]);
}

#[test]
fn prompts_and_messages_that_cannot_be_served_are_refused() {
    let toy = Toy::new();
    let check = |endpoint: Endpoint, body: Value, param: &str, code: Option<&str>| {
        let error = toy.read(endpoint, &body).expect_err(param).body;
        assert_eq!((error.param.as_deref(), error.code), (Some(param), code), "{body}: {error:?}");
    };
    for prompt in [json!(null), json!(5), json!([]), json!([[]]), json!([1, "a"]), json!([-1]), json!([1.5]), json!({})]
    {
        check(TEXT, json!({ "prompt": prompt }), "prompt", None);
    }
    check(TEXT, json!({}), "prompt", None);
    check(TEXT, json!({"prompt": [49_152]}), "prompt", None);
    check(TEXT, json!({"prompt": vec![5; 64]}), "prompt", Some("context_length_exceeded"));
    check(TEXT, json!({"prompt": "the sea is wide ".repeat(9000)}), "prompt", Some("context_length_exceeded"));
    assert!(toy.text(&json!({"prompt": vec![5; 63]})).is_ok());
    check(TEXT, json!({"prompt": vec!["a"; 100], "n": 2}), "n", None);
    check(TEXT, json!({"prompt": vec!["a"; 129]}), "prompt", None);
    check(CHAT, json!({}), "messages", None);
    check(CHAT, json!({"messages": []}), "messages", None);
    check(CHAT, json!({"messages": "hi"}), "messages", None);
    check(CHAT, json!({"messages": ["hi"]}), "messages[0]", None);
    check(CHAT, json!({"messages": [{"content": "hi"}]}), "messages[0].role", None);
    check(CHAT, json!({"messages": [{"role": "user", "content": 5}]}), "messages[0].content", None);
    check(CHAT, json!({"messages": [{"role": "user"}]}), "messages", None);
    let image = json!([{"type": "image_url", "image_url": {"url": "x"}}]);
    check(CHAT, json!({"messages": [{"role": "user", "content": image}]}), "messages", None);
    let call = json!({"role": "assistant", "content": null, "tool_calls": [{"id": "a"}]});
    check(CHAT, json!({"messages": [{"role": "user", "content": "a"}, call]}), "messages[1].tool_calls", None);
    let long = "the sea is wide ".repeat(9000);
    let long = json!({"messages": [{"role": "user", "content": long}]});
    check(CHAT, long, "messages", Some("context_length_exceeded"));
    let parts = json!([{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]);
    let joined = toy.chat(&json!({"messages": [{"role": "user", "content": parts, "name": "me"}]})).expect("fine");
    assert_eq!(joined.prompts, toy.chat(&json!({})).expect("fine").prompts, "text parts are joined");
    let bare = Host { template: None, ..toy.host() };
    let hi = json!({"messages": [{"role": "user", "content": "hi"}]});
    assert_eq!(Job::read(CHAT, &hi, &bare, 0).expect_err("no template").body.param.as_deref(), Some("messages"));
}

/// Tokens of a text as the engine would yield them, each with this logprob and these likeliest.
fn tokens(toy: &Toy, text: &str, logprob: Option<f32>, top: &[(u32, f32)]) -> Vec<Token> {
    let ids = toy.tokenizer.encode_plain(text).expect("encodes");
    ids.into_iter().map(|id| Token { id, logprob, top: top.to_vec(), nanos: 0 }).collect()
}

/// The body of a job whose choices are all made of these tokens.
fn body(toy: &Toy, job: Job, tokens: &[Token], end: FinishReason) -> Value {
    let mut answering = Answering::new(job, &toy.tokenizer);
    for choice in 0..answering.job().choices() {
        answering.admitted(choice, 3, 0);
        answering.admitted(choice, 9, 0);
        let is_stopped = tokens
            .iter()
            .any(|token| answering.token(choice, token.clone(), &toy.tokenizer).expect("known ids").is_stopped);
        if !is_stopped {
            answering.finished(choice, end).expect("an answer");
        }
    }
    let head = Head { id: "1-2".into(), created: 5, timed: false };
    let text = serde_json::to_string(&answering.body(head, &toy.host())).expect("plain");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_chats_response_is_as_the_sdk_types_it() {
    let toy = Toy::new();
    let job = toy.chat(&json!({"logprobs": true, "top_logprobs": 1, "return_token_ids": true})).expect("fine");
    let prompt = job.prompts[0].clone();
    let sea = toy.tokenizer.encode_plain("sea").expect("encodes")[0];
    let body = body(&toy, job, &tokens(&toy, " sea", Some(-0.1), &[(sea, -0.1)]), FinishReason::Length);
    let ids = toy.tokenizer.encode_plain(" sea").expect("encodes");
    let top = json!([{"token": "sea", "logprob": -0.1, "bytes": [115, 101, 97]}]);
    let content = json!([{"token": " sea", "logprob": -0.1, "bytes": [32, 115, 101, 97], "top_logprobs": top}]);
    let want = json!({
        "id": "chatcmpl-1-2", "object": "chat.completion", "created": 5, "model": "toy",
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": " sea", "refusal": null},
            "logprobs": {"content": content, "refusal": null},
            "finish_reason": "length",
            "token_ids": ids,
            "prompt_token_ids": prompt,
        }],
        "usage": {
            "prompt_tokens": prompt.len(), "completion_tokens": ids.len(), "total_tokens": prompt.len() + ids.len(),
            "prompt_tokens_details": {"cached_tokens": 3},
        },
    });
    assert_eq!(body, want);
}

#[test]
fn a_completions_response_is_as_the_sdk_types_it() {
    let toy = Toy::new();
    let job = toy.text(&json!({"logprobs": 1, "n": 2})).expect("fine");
    let prompt_tokens = job.prompts[0].len();
    let sea = toy.tokenizer.encode_plain(" sea").expect("encodes")[0];
    let made = tokens(&toy, " the sea", Some(-0.3), &[(sea, -0.2)]);
    assert_eq!(made.len(), 2);
    let body = body(&toy, job, &made, FinishReason::Stop);
    assert_eq!(fields(&body), ["id", "object", "created", "model", "choices", "usage"]);
    assert_eq!((&body["id"], &body["object"]), (&json!("cmpl-1-2"), &json!("text_completion")));
    let choice = json!({
        "index": 1,
        "text": " the sea",
        "logprobs": {
            "tokens": [" the", " sea"],
            "token_logprobs": [-0.3, -0.3],
            "top_logprobs": [{" sea": -0.2, " the": -0.3}, {" sea": -0.2}],
            "text_offset": [0, 4],
        },
        "finish_reason": "stop",
    });
    assert_eq!(body["choices"][1], choice);
    let usage = json!({
        "prompt_tokens": prompt_tokens, "completion_tokens": 4, "total_tokens": prompt_tokens + 4,
        "prompt_tokens_details": {"cached_tokens": 3},
    });
    assert_eq!(body["usage"], usage, "a prompt of several choices counts once");
}

#[test]
fn parts_of_characters_and_control_tokens_have_names_and_offsets() {
    let toy = Toy::new();
    let job = toy.text(&json!({"logprobs": 0})).expect("fine");
    let mut made = tokens(&toy, "a🚀b", Some(-1.0), &[]);
    assert!(made.len() > 3, "the rocket takes several tokens");
    made.push(Token { id: 2, logprob: Some(-2.0), top: Vec::new(), nanos: 0 });
    let body = body(&toy, job, &made, FinishReason::Stop);
    let choice = &body["choices"][0];
    assert_eq!(choice["text"], "a🚀b", "the end token has no text");
    let tokens = choice["logprobs"]["tokens"].as_array().expect("a list");
    assert!(tokens[1].as_str().expect("a name").starts_with("bytes:\\xf0\\x9f"), "{tokens:?}");
    assert_eq!(tokens.last(), Some(&json!("<|im_end|>")));
    let offsets: Vec<_> = choice["logprobs"]["text_offset"].as_array().expect("a list").iter().collect();
    assert_eq!((offsets[0], offsets[1], offsets[offsets.len() - 1]), (&json!(0), &json!(1), &json!(3)));
}

#[test]
fn a_stop_string_ends_the_text_in_front_of_it_and_keeps_the_tokens() {
    let toy = Toy::new();
    let made = tokens(&toy, "one two three", None, &[]);
    let check = |stop: Value, text: &str, reason: &str| {
        let job = toy.chat(&json!({"stop": stop, "return_token_ids": true})).expect("fine");
        let body = body(&toy, job, &made, FinishReason::Length);
        let choice = &body["choices"][0];
        assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!(text), &json!(reason)), "{stop}");
        assert_eq!(choice["logprobs"], Value::Null);
        choice["token_ids"].as_array().expect("a list").len()
    };
    assert_eq!(check(json!("two"), "one ", "stop"), 2);
    assert_eq!(check(json!(["never", "o th"]), "one tw", "stop"), 3);
    assert_eq!(check(json!("three!"), "one two three", "length"), 3);
}
