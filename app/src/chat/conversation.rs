//! One conversation.

use serde::{Deserialize, Serialize};
use twostroke::engine::sampling::SamplingParams;
use twostroke::text::chat::Message;

use crate::host::{Ask, AskId, Finish, Prompt};
use crate::run::Figures;

/// How answers are made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Parameters {
    /// What is said before all else; nothing when empty.
    pub system: String,
    /// 0 takes the likeliest token.
    pub temperature: f32,
    /// 1 is off.
    pub top_p: f32,
    /// 1 is off.
    pub repetition_penalty: f32,
    /// Most tokens of an answer.
    pub max_tokens: u32,
    /// Seed of the draws.
    pub seed: u64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { system: String::new(), temperature: 0.7, top_p: 0.95, repetition_penalty: 1.1, max_tokens: 256, seed: 0 }
    }
}

impl Parameters {
    pub(super) fn ask(&self, id: AskId, prompt: Prompt) -> Ask {
        let sampling = SamplingParams {
            temperature: self.temperature,
            top_p: self.top_p,
            repetition_penalty: self.repetition_penalty,
            // Another answer to the same question draws other tokens.
            seed: Some(self.seed.wrapping_add(id)),
            ..SamplingParams::default()
        };
        Ask { id, prompt, max_tokens: Some(self.max_tokens.max(1)), sampling, ignore_eos: false }
    }
}

/// How far an answer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Nothing of it has come.
    Waiting,
    /// It comes.
    Streaming,
    /// It has ended.
    Done(Finish),
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its name.
    pub ask: AskId,
    /// The engine's name of it, while its run is shown.
    pub request: Option<u64>,
    /// What has come.
    pub text: String,
    /// Its tokens that have come, an end token included.
    pub ids: Vec<u32>,
    /// Tokens of the conversation up to it.
    pub prompt_tokens: u32,
    /// How far it is.
    pub progress: Progress,
    /// Once it has ended.
    pub figures: Option<Figures>,
}

/// A message or an answer.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "there are few")]
pub enum Turn {
    /// A person's.
    Said(String),
    /// The model's.
    Answer(Answer),
}

impl Turn {
    /// The answer, if it is one.
    #[must_use]
    pub fn answer(&self) -> Option<&Answer> {
        match self {
            Self::Answer(answer) => Some(answer),
            Self::Said(_) => None,
        }
    }
}

/// A conversation: messages and answers in turn.
#[derive(Debug, Clone)]
pub struct Conversation {
    /// What it is called.
    pub name: String,
    /// What is being typed.
    pub draft: String,
    turns: Vec<Turn>,
}

impl Conversation {
    pub(super) fn new(name: String) -> Self {
        Self { name, draft: String::new(), turns: Vec::new() }
    }

    /// Messages and answers.
    #[must_use]
    pub fn turns(&self) -> &[Turn] {
        &self.turns
    }

    /// The answer that is being made.
    #[must_use]
    pub fn answering(&self) -> Option<AskId> {
        let last = self.turns.last().and_then(Turn::answer)?;
        (!matches!(last.progress, Progress::Done(_))).then_some(last.ask)
    }

    pub(super) fn say(&mut self, text: String) {
        self.turns.push(Turn::Said(text));
    }

    pub(super) fn await_answer(&mut self, ask: AskId) {
        self.turns.push(Turn::Answer(Answer {
            ask,
            request: None,
            text: String::new(),
            ids: Vec::new(),
            prompt_tokens: 0,
            progress: Progress::Waiting,
            figures: None,
        }));
    }

    /// Forgets the answer at `turn` and what came after; `false` when there is none, or one is being made.
    pub(super) fn rewind(&mut self, turn: usize) -> bool {
        let can = self.answering().is_none() && matches!(self.turns.get(turn), Some(Turn::Answer(_)));
        if can {
            self.turns.truncate(turn);
        }
        can
    }

    /// Puts the message at `turn` back into the draft and forgets it and what came after, unless an answer is being made.
    pub(super) fn take_back(&mut self, turn: usize) {
        if self.answering().is_some() {
            return;
        }
        if let Some(Turn::Said(text)) = self.turns.get(turn) {
            self.draft.clone_from(text);
            self.turns.truncate(turn);
        }
    }

    /// All of it as a prompt. An answer of which nothing came is left out: no template has a place for it.
    pub(super) fn prompt(&self, parameters: &Parameters) -> Prompt {
        let system = Some(parameters.system.trim()).filter(|text| !text.is_empty());
        let mut messages: Vec<Message> = system.map(|text| Message::new("system", text)).into_iter().collect();
        messages.extend(self.turns.iter().filter_map(|turn| match turn {
            Turn::Said(text) => Some(Message::new("user", text.as_str())),
            Turn::Answer(answer) => (!answer.text.is_empty()).then(|| Message::new("assistant", answer.text.as_str())),
        }));
        Prompt::Messages(messages)
    }

    pub(super) fn answer_mut(&mut self, id: AskId) -> Option<&mut Answer> {
        self.turns.iter_mut().find_map(|turn| match turn {
            Turn::Answer(answer) if answer.ask == id => Some(answer),
            _ => None,
        })
    }

    pub(super) fn forget_rows(&mut self) {
        for turn in &mut self.turns {
            if let Turn::Answer(answer) = turn {
                answer.request = None;
            }
        }
    }
}
