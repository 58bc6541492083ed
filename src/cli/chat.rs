//! The interactive chat, whose KV grows from turn to turn.
//!
//! Each turn the whole conversation is rendered and encoded anew; full pages of it are found in the prompt cache. That is right
//! whatever a template does to earlier turns, and for most it leaves only the new ids and less than a page of old ones.

use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use super::generate::{self, Finish, Request};
use super::options::RunOptions;
use super::output::Output;
use super::run::{Stream, check_fits, figures_line, message, never_empty, time_kernels};
use super::serving::Serving;
use super::{interrupt, say};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::text::chat::{ChatTemplate, Message};
use crate::text::tokenizer::Tokenizer;

const HELP: &str = "/clear forgets the conversation, /exit or Ctrl-D leaves; Ctrl-C stops an answer, twice leaves";

/// Talks until the person leaves.
///
/// # Errors
/// What ends the conversation: the adapter's or the terminal's failures, not a prompt that does not fit.
pub(super) fn chat(
    loaded: &mut Serving,
    tokenizer: &Tokenizer,
    template: &ChatTemplate,
    options: &RunOptions,
) -> Result<()> {
    let mut editor = DefaultEditor::new().map_err(terminal_error)?;
    let system: Vec<Message> = options.system.iter().map(|text| message("system", text)).collect();
    let mut talk = Talk {
        loaded,
        tokenizer,
        template,
        options,
        messages: system.clone(),
        conversations: 1,
        held: 0,
        out: Output::stdout(),
    };
    say(HELP);
    let mut was_interrupted = false;
    loop {
        let line = match editor.readline("> ") {
            Ok(line) => line,
            Err(ReadlineError::Eof) => return Ok(()),
            Err(ReadlineError::Interrupted) if was_interrupted => return Ok(()),
            Err(ReadlineError::Interrupted) => {
                was_interrupted = true;
                say("Ctrl-C again leaves");
                continue;
            }
            Err(ReadlineError::Io(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
                say("expected UTF-8, got other bytes: the line is ignored");
                continue;
            }
            Err(error) => return Err(terminal_error(error)),
        };
        was_interrupted = false;
        match line.trim() {
            "" => {}
            "/exit" | "/quit" => return Ok(()),
            "/clear" => {
                talk.messages.clone_from(&system);
                talk.conversations += 1;
                talk.held = 0;
                say("the conversation is forgotten");
            }
            "/help" => say(HELP),
            command if command.starts_with('/') && !command.contains(' ') => {
                say(&format!("{command} is no command: {HELP}"));
            }
            text => {
                // A line that the history refuses is only missing from it.
                let _ = editor.add_history_entry(text);
                was_interrupted = talk.turn(text)?;
                time_kernels(talk.loaded)?;
                interrupt::clear();
            }
        }
    }
}

struct Talk<'a> {
    loaded: &'a mut Serving,
    tokenizer: &'a Tokenizer,
    template: &'a ChatTemplate,
    options: &'a RunOptions,
    messages: Vec<Message>,
    /// Conversations begun: each forgets the ones before.
    conversations: u32,
    /// Ids of the last prompt, whose pages are cached.
    held: usize,
    out: Output,
}

impl Talk<'_> {
    /// One question and its answer; says whether Ctrl-C cut it short.
    fn turn(&mut self, question: &str) -> Result<bool> {
        let before = self.messages.len();
        self.messages.push(message("user", question));
        match self.answer() {
            Ok(was_interrupted) => Ok(was_interrupted),
            Err(error) => {
                self.messages.truncate(before);
                match error {
                    Error::Cancelled => {
                        say("stopped");
                        Ok(true)
                    }
                    Error::ContextFull { .. } => {
                        say(&format!("{error}; /clear starts anew"));
                        Ok(false)
                    }
                    Error::Template(_) | Error::Tokenizer(_) | Error::Request(_) => {
                        say(&error.to_string());
                        Ok(false)
                    }
                    _ => Err(error),
                }
            }
        }
    }

    fn answer(&mut self) -> Result<bool> {
        let arrival = Clock::start();
        check_fits(Message::fewest_tokens(&self.messages, self.tokenizer), 1, self.loaded.context_tokens)?;
        let ids = never_empty(self.template.encode(self.tokenizer, &self.messages)?, self.tokenizer)?;
        let options = self.options;
        let request = Request {
            prompt: &ids,
            max_tokens: options.max_tokens,
            stops: &options.stops,
            ignore_eos: options.ignore_eos,
            sampling: &options.sampling,
            cache_salt: Some(self.conversations.to_string()),
        };
        let new_tokens = ids.len().saturating_sub(self.held);
        self.held = ids.len();
        let mut stream = Stream::new(Some(&mut self.out), new_tokens, self.loaded);
        let answer = generate::answer(&mut self.loaded.engine, self.tokenizer, &request, arrival, &mut stream)?;
        drop(stream);
        self.out.text("\n")?;
        say(&figures_line(&answer, self.loaded));
        self.messages.push(message("assistant", &answer.text));
        Ok(answer.finish == Finish::Interrupted)
    }
}

fn terminal_error(error: ReadlineError) -> Error {
    let source = match error {
        ReadlineError::Io(source) => source,
        other => std::io::Error::other(other),
    };
    Error::io("read line", "terminal", source)
}
