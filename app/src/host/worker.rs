//! The engine's turns: commands in, what it says out.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use twostroke::clock::Clock;
use twostroke::engine::executor::Executor;
use twostroke::engine::request::{FinishReason, Output, Request, RequestId};
use twostroke::error::{Error, Result};
#[cfg(not(target_arch = "wasm32"))]
use twostroke::model::Extent;
use twostroke::text::decode::DeltaDecoder;

use super::open::{self, Opened};
use super::{Ask, AskId, Command, Finish, Prompt, Said, Says, Source};
use crate::settings::Settings;

/// Times that a device is made anew before the model is given up, unless steps succeed in between.
const REBUILDS_MAX: u32 = 3;

/// An answer that is being made.
struct Answering {
    ask: AskId,
    decoder: DeltaDecoder,
}

/// A model that is served, and where it came from.
struct Served {
    opened: Opened,
    source: Source,
    settings: Settings,
    answers: BTreeMap<RequestId, Answering>,
    /// Since a step succeeded.
    rebuilds: u32,
}

pub(super) struct Worker {
    says: Rc<Says>,
    served: Option<Served>,
}

impl Worker {
    pub(super) fn new(says: Says) -> Self {
        Self { says: Rc::new(says), served: None }
    }

    /// Whether nothing is to be done until the next command.
    pub(super) fn is_idle(&self) -> bool {
        self.served.as_ref().is_none_or(|served| served.opened.engine.idle())
    }

    pub(super) async fn command(&mut self, command: Command) {
        match command {
            Command::Adapters => {
                let list = open::list().await;
                self.says.say(list);
            }
            Command::Open(source, settings) => self.open(source, settings).await,
            Command::Measure(settings) => self.measure(&settings).await,
            Command::Ask(ask) => self.ask(&ask),
            Command::Stop(id) => self.stop(id),
        }
    }

    /// One turn: with `waits`, until the oldest step in flight is done.
    pub(super) async fn turn(&mut self, waits: bool) {
        let Some(served) = &mut self.served else { return };
        let engine = &mut served.opened.engine;
        let done = if waits { engine.wait() } else { engine.poll() };
        match done {
            Ok(()) => {
                served.deliver(&self.says);
            }
            Err(error) => self.recover(error).await,
        }
    }

    /// A piece of work that nobody waits for; `false` when there is none.
    #[cfg(not(target_arch = "wasm32"))]
    pub(super) fn work_ahead(&mut self) -> bool {
        let Some(served) = &mut self.served else { return false };
        // What goes wrong here goes wrong again when a step needs it, and is told then.
        served.opened.engine.work_ahead(Extent::All).unwrap_or(false)
    }

    async fn open(&mut self, source: Source, settings: Settings) {
        if let Some(served) = self.served.take() {
            served.end(&self.says, &Finish::Stopped);
        }
        match open::open(&source, &settings, Clock::start(), &self.says).await {
            Ok(mut opened) => {
                let says = Rc::clone(&self.says);
                opened.engine.observe(Box::new(move |event| says.say(Said::Event(event.clone()))));
                self.says.say(Said::Tokenizer(Arc::clone(&opened.tokenizer)));
                self.says.say(Said::Opened(opened.facts.clone()));
                self.says.say(Said::Event(opened.meta.clone()));
                self.served = Some(Served { opened, source, settings, answers: BTreeMap::new(), rebuilds: 0 });
            }
            Err(Error::Cancelled) => self.says.say(Said::Refused("opening was cancelled".into())),
            Err(error) => self.says.say(Said::Refused(format!("{}: {error}", source.name()))),
        }
    }

    #[cfg(not(target_arch = "wasm32"))]
    async fn measure(&mut self, settings: &Settings) {
        let said = open::measure(settings, &self.says).await;
        self.says.say(said.unwrap_or_else(|error| Said::Lost(error.to_string())));
    }

    /// A page cannot wait for the outcome of a launch.
    #[cfg(target_arch = "wasm32")]
    #[expect(clippy::unused_async, reason = "the native one waits")]
    async fn measure(&mut self, _settings: &Settings) {}

    fn ask(&mut self, ask: &Ask) {
        let begun = match &mut self.served {
            Some(served) => served.ask(ask, &self.says),
            None => Err(Error::Request("no model is open".into())),
        };
        if let Err(error) = begun {
            self.says.say(Said::Ended { id: ask.id, finish: Finish::Failed(error.to_string()) });
        }
    }

    fn stop(&mut self, id: AskId) {
        let Some(served) = &mut self.served else { return };
        let request = served.answers.iter().find(|(_, answering)| answering.ask == id).map(|(request, _)| *request);
        if let Some(request) = request {
            served.opened.engine.cancel(request);
            served.deliver(&self.says);
        }
    }

    /// The device failed: a new one, on which everything in flight is computed again from its tokens.
    async fn recover(&mut self, error: Error) {
        let Some(served) = &mut self.served else { return };
        served.rebuilds += 1;
        let mut why = error;
        while served.rebuilds <= REBUILDS_MAX {
            self.says.say(Said::Lost(format!("{why}; opening the device anew")));
            match open::reload(&served.source, &served.settings, &self.says).await {
                Ok(executor) => {
                    let executor: Box<dyn Executor> = Box::new(executor);
                    served.opened.engine.replace_executor(executor);
                    self.says.say(Said::Opened(served.opened.facts.clone()));
                    return;
                }
                Err(error) => why = error,
            }
            served.rebuilds += 1;
        }
        let message = format!("{why}; given up after {REBUILDS_MAX} tries: open the model again");
        if let Some(served) = self.served.take() {
            served.end(&self.says, &Finish::Failed(message.clone()));
        }
        self.says.say(Said::Refused(message));
    }
}

impl Served {
    fn ask(&mut self, ask: &Ask, says: &Says) -> Result<()> {
        let Opened { tokenizer, template, engine, .. } = &mut self.opened;
        let prompt = match (&ask.prompt, template) {
            (Prompt::Messages(messages), Some(template)) => template.encode(tokenizer, messages)?,
            (Prompt::Messages(_), None) => {
                return Err(Error::Request("this model has no chat template: ask it to go on with a text".into()));
            }
            (Prompt::Text(text), _) => tokenizer.encode_raw(text)?,
            (Prompt::Ids(ids), _) => ids.clone(),
        };
        let ends = if ask.ignore_eos { &[] } else { tokenizer.end_tokens() };
        let request = engine.submit(Request {
            prompt: prompt.clone(),
            max_tokens: ask.max_tokens,
            sampling: ask.sampling.clone(),
            stop_ids: ends.iter().copied().collect(),
            ..Request::default()
        })?;
        let decoder = DeltaDecoder::new(tokenizer, &prompt);
        self.answers.insert(request, Answering { ask: ask.id, decoder });
        says.say(Said::Began { id: ask.id, request, prompt: prompt.into() });
        Ok(())
    }

    /// Passes on what the engine says.
    fn deliver(&mut self, says: &Says) {
        while let Some(output) = self.opened.engine.next_output() {
            match output {
                Output::Token { id, token } => {
                    self.rebuilds = 0;
                    let Some(answering) = self.answers.get_mut(&id) else { continue };
                    // The sampler yields ids of the vocabulary only.
                    let text = answering.decoder.push(&self.opened.tokenizer, token.id).unwrap_or_default();
                    says.say(Said::Text { id: answering.ask, text, token: token.id });
                }
                Output::Finished { id, reason } => {
                    let Some(mut answering) = self.answers.remove(&id) else { continue };
                    let rest = answering.decoder.finish();
                    if !rest.is_empty() {
                        says.say(Said::Rest { id: answering.ask, text: rest });
                    }
                    let finish = match reason {
                        FinishReason::Stop => Finish::Stop,
                        FinishReason::Length => Finish::Length,
                        FinishReason::Cancelled => Finish::Stopped,
                        FinishReason::NotFinite => Finish::Failed("the model yielded no finite numbers".into()),
                    };
                    says.say(Said::Ended { id: answering.ask, finish });
                }
                Output::Admitted { .. } | Output::Prefilled { .. } | Output::Pooled { .. } => {}
            }
        }
    }

    /// Nothing more comes of what is in flight.
    fn end(self, says: &Says, finish: &Finish) {
        for answering in self.answers.into_values() {
            says.say(Said::Ended { id: answering.ask, finish: finish.clone() });
        }
    }
}

#[cfg(test)]
mod tests;
