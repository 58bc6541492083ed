//! A job while it is answered: what the engine yields goes in, the body comes out.

use super::choice::Choice;
use super::job::{Host, Job};
use super::response::{self, Body, Head};
use crate::engine::request::{FinishReason, Request, Token};
use crate::error::{Error, Result};
use crate::text::tokenizer::Tokenizer;

/// A job and its choices so far.
#[derive(Debug)]
pub struct Answering {
    job: Job,
    choices: Vec<Choice>,
}

/// What a token did to a choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// Text that is now certain: whole characters, no part of a stop string.
    pub text: String,
    /// A stop string was met: the caller stops the engine's request.
    pub is_stopped: bool,
}

impl Answering {
    /// A job of which nothing is answered yet.
    #[must_use]
    pub fn new(job: Job, tokenizer: &Tokenizer) -> Self {
        let choices = (0..job.choices()).map(|choice| Choice::new(&job, choice, tokenizer)).collect();
        Self { job, choices }
    }

    /// The job.
    #[must_use]
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// What the engine is asked for a choice.
    #[must_use]
    pub fn request(&self, choice: usize, tokenizer: &Tokenizer) -> Request {
        self.job.request(choice, tokenizer.end_tokens())
    }

    /// A choice has its slot. Only the first time tells what was cached of the prompt: after a preemption it is its own pages.
    pub fn admitted(&mut self, choice: usize, cached_tokens: u32, nanos: u64) {
        let choice = &mut self.choices[choice];
        if choice.cached_tokens.is_none() {
            (choice.cached_tokens, choice.admitted_nanos) = (Some(cached_tokens), nanos);
        }
    }

    /// A choice so far.
    pub(super) fn choice(&self, choice: usize) -> &Choice {
        &self.choices[choice]
    }

    /// Whether a choice has ended.
    #[must_use]
    pub fn has_ended(&self, choice: usize) -> bool {
        self.choices[choice].finish.is_some()
    }

    /// A choice has its next token.
    ///
    /// # Errors
    /// An id that the tokenizer does not know.
    pub fn token(&mut self, choice: usize, token: Token, tokenizer: &Tokenizer) -> Result<Pushed> {
        let choice = &mut self.choices[choice];
        assert!(choice.finish.is_none(), "a token after the end");
        let text = choice.push(token, tokenizer)?;
        Ok(Pushed { text, is_stopped: choice.finish.is_some() })
    }

    /// The engine has ended a choice that no stop string ended; returns the text that was held back.
    ///
    /// # Errors
    /// `NotFinite` where the model yielded no number, `Cancelled`: there is no answer then.
    pub fn finished(&mut self, choice: usize, reason: FinishReason) -> Result<String> {
        let prompt_tokens = self.job.prompt(choice).len();
        let choice = &mut self.choices[choice];
        match reason {
            FinishReason::NotFinite => {
                let position = (prompt_tokens + choice.tokens.len()) as u64 - 1;
                Err(Error::NotFinite { position })
            }
            FinishReason::Cancelled => Err(Error::Cancelled),
            FinishReason::Stop | FinishReason::Length => Ok(choice.finish(reason)),
        }
    }

    /// Whether all choices have ended.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.choices.iter().all(|choice| choice.finish.is_some())
    }

    /// Tokens of all choices so far.
    #[must_use]
    pub fn completion_tokens(&self) -> u64 {
        self.choices.iter().map(|choice| choice.tokens.len() as u64).sum()
    }

    /// Tokens of all prompts, each counted once.
    #[must_use]
    pub fn prompt_tokens(&self) -> u64 {
        self.job.prompts.iter().map(|prompt| prompt.len() as u64).sum()
    }

    /// Those of them that were cached when the first choice of each prompt was admitted.
    #[must_use]
    pub fn cached_tokens(&self) -> u64 {
        let first = self.choices.iter().step_by(self.job.params.n as usize);
        first.map(|choice| u64::from(choice.cached_tokens.unwrap_or(0))).sum()
    }

    /// The response, when all choices have ended.
    #[must_use]
    pub fn body(&self, head: Head, host: &Host<'_>) -> Body {
        assert!(self.is_done(), "a response before its end");
        response::body(self, &self.choices, head, host)
    }
}
