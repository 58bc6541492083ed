//! Chat templates: messages to the text, or the ids, of a prompt.

use std::borrow::Cow;
use std::collections::BTreeMap;

use minijinja::{Value, context};
use serde_json::Value as Json;

use super::from_gguf::id_from_metadata;
use super::from_json::name_from_value;
use super::guard::Guard;
use super::jinja::Jinja;
use super::tokenizer::Tokenizer;
use crate::error::{Error, Result};
use crate::format::gguf::Metadata;
use crate::format::model_files::{Description, Folder};

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant`, …
    pub role: String,
    /// The text, or parts, or nothing.
    #[serde(default)]
    pub content: Content,
}

/// Content of a message, as OpenAI's clients send it.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// Nothing.
    #[default]
    Null,
    /// Plain text.
    Text(String),
    /// Parts; only text parts are supported and are joined.
    Parts(Vec<Json>),
}

/// A model's chat template.
pub struct ChatTemplate {
    source: String,
    jinja: Jinja,
    /// `bos_token` and its like, by the names that templates use.
    tokens: Vec<(&'static str, String)>,
}

impl Message {
    /// A message of plain text.
    pub fn new(role: impl Into<String>, text: impl Into<String>) -> Self {
        Self { role: role.into(), content: Content::Text(text.into()) }
    }

    /// Tokens that a conversation needs at least, told from its length without rendering it. What the model itself said is
    /// left out: it fitted when it was said, and templates may drop parts of it; they may also trim what others said.
    #[must_use]
    pub fn fewest_tokens(messages: &[Self], tokenizer: &Tokenizer) -> u64 {
        let asked = messages.iter().filter(|message| message.role != "assistant");
        let bound = |message: &Self| match &message.content {
            Content::Text(text) => tokenizer.fewest_tokens(text.trim()),
            _ => 0,
        };
        // A token may reach over the border of two messages.
        asked.map(|message| bound(message).saturating_sub(1)).sum::<u64>() + 1
    }

    /// The text of a message whose parts are joined; empty for others.
    pub(super) fn text(&self) -> &str {
        match &self.content {
            Content::Text(text) => text,
            Content::Null | Content::Parts(_) => "",
        }
    }

    /// The message with its parts joined to one text, and nothing as the empty text.
    fn joined(&self) -> Result<Self> {
        let role = &self.role;
        if role.is_empty() || !role.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-') {
            return Err(Error::Request(format!("role: expected a word, got {role:?}")));
        }
        let text = match &self.content {
            Content::Text(text) => Cow::Borrowed(text.as_str()),
            Content::Null if role == "assistant" => Cow::Borrowed(""),
            Content::Null => {
                return Err(Error::Request(format!("content of a {role} message: expected text, got null")));
            }
            Content::Parts(parts) => Cow::Owned(parts.iter().map(text_from_part).collect::<Result<String>>()?),
        };
        Ok(Self::new(role.clone(), text))
    }
}

fn text_from_part(part: &Json) -> Result<&str> {
    let bad = |got: String| Error::Request(format!("content part: expected text, got {got}"));
    match (part["type"].as_str(), part["text"].as_str()) {
        (Some("text"), Some(text)) => Ok(text),
        (Some("text"), None) => Err(bad("a text part without text".into())),
        (Some(other), _) => Err(bad(format!("type {other:?}"))),
        (None, _) => Err(bad("a part without type".into())),
    }
}

impl ChatTemplate {
    /// The template of a model; `None` when its files hold none.
    ///
    /// # Errors
    /// When there is one that does not parse.
    pub fn new(description: &Description) -> Result<Option<Self>> {
        let (source, tokens) = match description {
            Description::Gguf(metadata) => {
                let source = metadata.str("tokenizer.chat_template")?.map(ToOwned::to_owned);
                (source, tokens_from_metadata(metadata)?)
            }
            Description::Folder(folder) => (source_from_folder(folder)?, tokens_from_folder(folder)),
        };
        let Some(source) = source else { return Ok(None) };
        Ok(Some(Self { jinja: Jinja::new(&source)?, source, tokens }))
    }

    /// Renders the conversation to text, ready for the answer.
    ///
    /// # Errors
    /// What the template raises, an unsupported content part, or running out of fuel.
    pub fn render(&self, messages: &[Message]) -> Result<String> {
        self.render_joined(&joined(messages)?)
    }

    /// Ids of the rendered conversation: those of the rendered text as a whole, except that a control token spelled out in
    /// a message is plain text. There is one BOS where the template writes one or the metadata adds one.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`], and the tokenizer's.
    pub fn encode(&self, tokenizer: &Tokenizer, messages: &[Message]) -> Result<Vec<u32>> {
        let messages = joined(messages)?;
        let guard = Guard::new(tokenizer, &messages, &self.source)?;
        guard.encode(&messages, |messages| self.render_joined(messages))
    }

    fn render_joined(&self, messages: &[Message]) -> Result<String> {
        let message = |m: &Message| context! { role => m.role.as_str(), content => m.text() };
        let messages: Vec<Value> = messages.iter().map(message).collect();
        let mut variables: BTreeMap<&str, Value> = BTreeMap::from([
            ("messages", messages.into()),
            ("add_generation_prompt", true.into()),
            ("tools", ().into()),
            ("documents", ().into()),
        ]);
        variables.extend(self.tokens.iter().map(|(name, text)| (*name, text.as_str().into())));
        self.jinja.render(variables.into())
    }
}

fn joined(messages: &[Message]) -> Result<Vec<Message>> {
    if messages.is_empty() {
        return Err(Error::Request("messages: expected at least one, got none".into()));
    }
    messages.iter().map(Message::joined).collect()
}

/// The folder's `chat_template.jinja`, else the template in its tokenizer_config.json: a string, or a list of named ones.
fn source_from_folder(folder: &Folder) -> Result<Option<String>> {
    if let Some(source) = &folder.chat_template {
        return Ok(Some(source.clone()));
    }
    match &folder.tokenizer_config["chat_template"] {
        Json::Null => Ok(None),
        Json::String(source) => Ok(Some(source.clone())),
        Json::Array(list) => {
            let named = list.iter().find(|entry| entry["name"] == "default").or(list.first());
            Ok(named.and_then(|entry| entry["template"].as_str()).map(ToOwned::to_owned))
        }
        Json::Object(named) => Ok(named.get("default").and_then(Json::as_str).map(ToOwned::to_owned)),
        other => {
            let place = folder.path.join("tokenizer_config.json");
            Err(Error::format("chat_template", "a string or a list of named ones", other, place.display()))
        }
    }
}

fn tokens_from_folder(folder: &Folder) -> Vec<(&'static str, String)> {
    let names = ["bos_token", "eos_token", "unk_token", "pad_token"];
    names.into_iter().filter_map(|name| Some((name, name_from_value(&folder.tokenizer_config[name])?))).collect()
}

fn tokens_from_metadata(metadata: &Metadata) -> Result<Vec<(&'static str, String)>> {
    let texts = metadata.strs("tokenizer.ggml.tokens")?.unwrap_or_default();
    let mut tokens = Vec::new();
    for (name, key) in [("bos_token", "bos"), ("eos_token", "eos"), ("unk_token", "unknown"), ("pad_token", "padding")]
    {
        if let Some(id) = id_from_metadata(metadata, key, texts.len())? {
            tokens.extend(texts.get(id as usize).map(|text| (name, text.clone())));
        }
    }
    Ok(tokens)
}
