//! Log-probabilities in OpenAI's two formats. They are the model's own, before penalties and temperature, and print as the
//! shortest decimal that reads back as the same f32.

use serde::{Serialize, Serializer};

use super::choice::Choice;
use crate::text::tokenizer::Tokenizer;

/// Of a chat's choice.
#[derive(Debug, Serialize)]
pub(super) struct ChatLogprobs {
    content: Vec<ChatToken>,
    refusal: Option<()>,
}

#[derive(Debug, Serialize)]
struct ChatToken {
    #[serde(flatten)]
    chosen: Named,
    top_logprobs: Vec<Named>,
}

/// A token with its logprob.
#[derive(Debug, Serialize)]
struct Named {
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
}

/// Of a completion's choice.
#[derive(Debug, Serialize)]
pub(super) struct TextLogprobs {
    tokens: Vec<String>,
    token_logprobs: Vec<f32>,
    top_logprobs: Vec<Pairs>,
    text_offset: Vec<usize>,
}

/// An object with the likeliest first. The chosen token is in it, and of two tokens of one name the likelier.
#[derive(Debug)]
struct Pairs(Vec<(String, f32)>);

impl Serialize for Pairs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, logprob)| (name, logprob)))
    }
}

/// What an id spells; nothing where only the model knows it.
fn spelling(tokenizer: &Tokenizer, id: u32) -> &[u8] {
    tokenizer.spelling(id).unwrap_or_default()
}

/// Bytes as text; a part of a character is spelled as OpenAI does, behind `mark`.
fn name(bytes: &[u8], mark: &str) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().fold(mark.to_owned(), |name, byte| format!("{name}\\x{byte:02x}")),
    }
}

/// In the format of chats, of the tokens from `from` on.
pub(super) fn of_chat(choice: &Choice, from: usize, tokenizer: &Tokenizer) -> ChatLogprobs {
    let named = |id: u32, logprob: f32| {
        let bytes = spelling(tokenizer, id);
        Named { token: name(bytes, ""), logprob, bytes: bytes.to_vec() }
    };
    let tokens = choice.tokens[from..].iter().map(|token| ChatToken {
        chosen: named(token.id, asked(token.logprob)),
        top_logprobs: token.top.iter().map(|&(id, logprob)| named(id, logprob)).collect(),
    });
    ChatLogprobs { content: tokens.collect(), refusal: None }
}

/// In the format of completions, of the tokens from `from` on.
pub(super) fn of_text(choice: &Choice, from: usize, tokenizer: &Tokenizer) -> TextLogprobs {
    let tokens = &choice.tokens[from..];
    let named = |id: u32| name(spelling(tokenizer, id), "bytes:");
    let pairs = tokens.iter().map(|token| {
        let mut pairs: Vec<(String, f32)> = Vec::with_capacity(token.top.len() + 1);
        for &(id, logprob) in token.top.iter().chain(&[(token.id, asked(token.logprob))]) {
            let name = named(id);
            if pairs.iter().all(|(other, _)| *other != name) {
                pairs.push((name, logprob));
            }
        }
        Pairs(pairs)
    });
    TextLogprobs {
        tokens: tokens.iter().map(|token| named(token.id)).collect(),
        token_logprobs: tokens.iter().map(|token| asked(token.logprob)).collect(),
        top_logprobs: pairs.collect(),
        text_offset: choice.offsets[from..].to_vec(),
    }
}

/// The engine yields a logprob for each token where one was asked for.
fn asked(logprob: Option<f32>) -> f32 {
    logprob.expect("a logprob was asked for")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_character_are_spelled_in_hexadecimal() {
        assert_eq!(name(" sea".as_bytes(), "bytes:"), " sea");
        assert_eq!(name(&[0xe2, 0x80], "bytes:"), "bytes:\\xe2\\x80");
        assert_eq!(name(&[0xf0, 0x0f], ""), "\\xf0\\x0f");
    }

    #[test]
    fn logprobs_print_as_the_shortest_decimal_of_the_f32() {
        let pairs = Pairs(vec![("a".into(), -0.1), ("b".into(), -1.2345679), ("c".into(), -16_777_216.0)]);
        let text = serde_json::to_string(&pairs).expect("plain");
        assert_eq!(text, r#"{"a":-0.1,"b":-1.2345679,"c":-16777216.0}"#);
        let named = Named { token: "a".into(), logprob: -0.3, bytes: vec![97] };
        let token = ChatToken { chosen: named, top_logprobs: Vec::new() };
        let text = serde_json::to_string(&token).expect("plain");
        assert_eq!(text, r#"{"token":"a","logprob":-0.3,"bytes":[97],"top_logprobs":[]}"#);
    }
}
