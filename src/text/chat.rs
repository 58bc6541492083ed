//! Chat templates.

use super::tokenizer::Tokenizer;
use crate::error::Result;
use crate::format::model_files::Description;

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant`, …
    pub role: String,
    /// The text, or parts, or nothing.
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
    Parts(Vec<serde_json::Value>),
}

/// A model's chat template.
pub struct ChatTemplate {
    _private: (),
}

impl ChatTemplate {
    /// The template of a model; `None` when its files hold none.
    ///
    /// # Errors
    /// When there is one that does not parse.
    pub fn new(description: &Description) -> Result<Option<Self>> {
        let _ = description;
        todo!("H-text")
    }
    /// Renders the conversation to text, ready for the answer.
    ///
    /// # Errors
    /// What the template raises, an unsupported content part, or running out of fuel.
    pub fn render(&self, messages: &[Message]) -> Result<String> {
        let _ = messages;
        todo!("H-text")
    }
    /// Ids of the rendered conversation. Template pieces and message texts are tokenised apart, so that a control token
    /// spelled out in a message is plain text.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`], and the tokenizer's.
    pub fn encode(&self, tokenizer: &Tokenizer, messages: &[Message]) -> Result<Vec<u32>> {
        let _ = (tokenizer, messages);
        todo!("H-text")
    }
}
