//! What is fuzzed: each target takes bytes from outside and must end with a result, whatever they are. `tests/it/fuzz.rs` runs
//! them for seconds with a fixed seed, `scripts/fuzz.sh` for minutes under libFuzzer.

use std::io::Cursor;
use std::path::Path;
use std::sync::OnceLock;

use serde_json::{Value, json};
use twostroke::engine::sampling::SamplingParams;
use twostroke::format::{gguf, safetensors, source};
use twostroke::load::remote::{Events, Heard};
use twostroke::model::toy;
use twostroke::server::openai::{Embeddings, Endpoint, Host, Job};
use twostroke::text::chat::ChatTemplate;
use twostroke::text::tokenizer::Tokenizer;
use twostroke::trace;

/// A target.
pub(crate) type Target = fn(&[u8]);

/// Name, target, and inputs that mean something: where mutation begins.
pub(crate) fn all() -> Vec<(&'static str, Target, Vec<Vec<u8>>)> {
    let texts = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    vec![
        (
            "request",
            request,
            texts(&[
                r#"{"model":"m","prompt":["a",[1,2]],"max_tokens":4,"temperature":0.5,"top_p":0.9,"top_k":5,"n":2,"stop":["x","yz"],"seed":7,"logit_bias":{"5":-1.5},"logprobs":3,"echo":true,"stream":true,"stream_options":{"include_usage":true},"priority":0,"cache_salt":"s"}"#,
                r#"{"messages":[{"role":"user","content":"hi"}],"max_completion_tokens":9,"logprobs":true,"top_logprobs":4,"min_tokens":1,"ignore_eos":true,"response_format":{"type":"text"},"tools":[]}"#,
                r#"{"input":["a","b"],"encoding_format":"base64","dimensions":64,"normalize":false}"#,
            ]),
        ),
        (
            "messages",
            messages,
            texts(&[
                "user\nhi\0assistant\nyes\0user\n<|im_end|>ok",
                "system\nyou\0user\n\u{e9}\u{1F600}",
                "tool\n\0\n",
            ]),
        ),
        (
            "sse",
            sse,
            texts(&[
                "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"a\"}}]}\n\n: ping\n\ndata: {\"choices\":[{\"index\":0,\"text\":\"bc\",\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":0}}}\r\n\r\ndata: [DONE]\n\n",
                "data: {\"error\":{\"message\":\"no\",\"code\":503}}\n\n",
            ]),
        ),
        ("gguf", read_gguf, vec![gguf_file()]),
        (
            "safetensors",
            read_safetensors,
            vec![safetensors_file(
                r#"{"__metadata__":{"a":"b"},"t":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"u":{"dtype":"BF16","shape":[4],"data_offsets":[16,24]}}"#,
            )],
        ),
        (
            "trace",
            read_trace,
            texts(&[concat!(
                r#"{"kind":"meta","version":"0.1.0","model":"m","adapter":"a","tier":"base","page_tokens":16,"pages":9,"policy":"slo","unix_ns":1}"#,
                "\n",
                r#"{"kind":"arrive","t":1,"id":0,"prompt_tokens":5,"max_tokens":3,"priority":0}"#,
                "\n",
                r#"{"kind":"admit","t":2,"id":0,"cached_tokens":0,"miss":null}"#,
                "\n",
                r#"{"kind":"step","t0":2,"t1":9,"gpu_ns":null,"n":0,"rows":[{"id":0,"kind":"prefill","from":0,"tokens":5,"accepted":null}],"pages_used":1,"waiting":0}"#,
                "\n",
                r#"{"kind":"finish","t":9,"id":0,"reason":"length","output_tokens":1}"#,
                "\n"
            )]),
        ),
    ]
}

struct Toy {
    tokenizer: Tokenizer,
    template: ChatTemplate,
    defaults: SamplingParams,
}

fn host() -> Host<'static> {
    static TOY: OnceLock<Toy> = OnceLock::new();
    let toy = TOY.get_or_init(|| {
        let files = toy::files().expect("it is packed in");
        let tokenizer = Tokenizer::new(&files.description, None).expect("a tokenizer");
        let template = ChatTemplate::new(&files.description).expect("parses").expect("there is one");
        Toy { tokenizer, template, defaults: SamplingParams::default() }
    });
    Host {
        model: "toy",
        tokenizer: &toy.tokenizer,
        template: Some(&toy.template),
        defaults: &toy.defaults,
        context_tokens: 256,
        vocab: toy.tokenizer.vocab_size(),
    }
}

/// Bodies of the three endpoints.
pub(crate) fn request(bytes: &[u8]) {
    let Ok(body) = serde_json::from_slice::<Value>(bytes) else { return };
    for endpoint in Endpoint::ALL {
        if let Ok(job) = Job::read(endpoint, &body, &host(), 3) {
            assert!(job.choices() > 0, "a job without an answer");
            let request = job.request(job.choices() - 1, &[2]);
            assert!(!request.prompt.is_empty() && request.prompt.iter().all(|id| *id < host().vocab));
        }
    }
    if let Ok(embeddings) = Embeddings::read(&body, &host(), 64) {
        assert!(embeddings.requests().all(|request| !request.prompt.is_empty()));
    }
}

/// Messages, `role LF content` between zeros: what users write is text, so no control token comes of it.
pub(crate) fn messages(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let message = |part: &str| {
        let (role, content) = part.split_once('\n').unwrap_or(("user", part));
        json!({ "role": role, "content": content })
    };
    let messages: Vec<Value> = text.split('\0').map(message).collect();
    let _ = Job::read(Endpoint::Chat, &json!({ "messages": messages }), &host(), 3);
}

/// A stream as `replay --url` reads it; the first byte says where the network cuts.
pub(crate) fn sse(bytes: &[u8]) {
    let cut = usize::from(bytes.first().copied().unwrap_or(0)).max(1);
    let (mut events, mut heard) = (Events::default(), Heard::default());
    let failed = bytes.chunks(cut).find_map(|part| events.feed(part, &mut |data| heard.event(data, 1)).err());
    let _ = heard.ended(failed, 2).into_answer(&|text| u32::try_from(text.len()).ok());
}

/// A GGUF's header.
pub(crate) fn read_gguf(bytes: &[u8]) {
    let _ = gguf::read(source::memory("m.gguf", bytes.to_vec()));
}

/// A safetensors header.
pub(crate) fn read_safetensors(bytes: &[u8]) {
    let _ = safetensors::read(source::memory("m.safetensors", bytes.to_vec()));
}

/// A trace, and what is made of it.
pub(crate) fn read_trace(bytes: &[u8]) {
    let reader = || trace::Reader::new(Cursor::new(bytes), "t.jsonl");
    let _ = trace::convert(reader(), std::io::sink(), Path::new("t.json"));
    if let Ok(summary) = trace::Summary::of(reader()) {
        assert!(!summary.text().is_empty() && summary.json().is_object());
    }
}

fn gguf_file() -> Vec<u8> {
    let text = |out: &mut Vec<u8>, text: &str| {
        out.extend((text.len() as u64).to_le_bytes());
        out.extend(text.as_bytes());
    };
    let mut out = b"GGUF\x03\0\0\0".to_vec();
    out.extend(1u64.to_le_bytes());
    out.extend(3u64.to_le_bytes());
    text(&mut out, "general.architecture");
    out.extend(8u32.to_le_bytes());
    text(&mut out, "llama");
    text(&mut out, "general.alignment");
    out.extend(4u32.to_le_bytes());
    out.extend(32u32.to_le_bytes());
    text(&mut out, "tokenizer.ggml.tokens");
    out.extend(9u32.to_le_bytes());
    out.extend(8u32.to_le_bytes());
    out.extend(2u64.to_le_bytes());
    text(&mut out, "a");
    text(&mut out, "b");
    text(&mut out, "t");
    out.extend(2u32.to_le_bytes());
    out.extend(32u64.to_le_bytes());
    out.extend(1u64.to_le_bytes());
    out.extend(2u32.to_le_bytes());
    out.extend(0u64.to_le_bytes());
    out.resize(out.len().next_multiple_of(32) + 32, 0);
    out
}

fn safetensors_file(header: &str) -> Vec<u8> {
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(header.as_bytes());
    out.extend([0; 24]);
    out
}
