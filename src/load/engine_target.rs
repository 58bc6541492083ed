//! The engine as what a workload is played against. Its clock and its device are the engine's: real ones in `replay`,
//! virtual ones in `sim`; nothing here can tell.

use std::collections::{BTreeMap, BTreeSet};

use super::dataset::Planned;
use super::replay::{End, Output, Target};
use crate::engine::request::{self, FinishReason, Request, RequestId};
use crate::engine::serving::Engine;
use crate::error::Result;

/// Text of an answer's ids; `None` where there is no tokenizer or it refuses them.
pub type Decode<'a> = &'a dyn Fn(&[u32]) -> Option<String>;

/// Lets time pass from the first nanosecond of the engine's clock, which is now, to the second, or a part of the way.
pub type Pass<'a> = &'a mut dyn FnMut(u64, u64);

/// An engine that nobody else uses meanwhile.
pub struct EngineTarget<'a> {
    engine: &'a mut Engine,
    /// Tokens that end an answer.
    stop_ids: BTreeSet<u32>,
    pass: Pass<'a>,
    /// Present where answers' texts are wanted.
    decode: Option<Decode<'a>>,
    open: BTreeMap<RequestId, Open>,
    /// The engine's names of the open requests by ours.
    names: BTreeMap<u64, RequestId>,
}

/// A request in the engine.
struct Open {
    id: u64,
    /// Of its first admission: what it finds again after a preemption it has computed itself.
    cached_tokens: Option<u32>,
    last_nanos: u64,
    /// Empty unless texts are wanted.
    ids: Vec<u32>,
}

impl<'a> EngineTarget<'a> {
    /// Requests end at `stop_ids`. `pass` sleeps, or moves a virtual clock; it is called only while the engine is idle, and
    /// called again when it comes back early.
    #[must_use]
    pub fn new(engine: &'a mut Engine, stop_ids: BTreeSet<u32>, pass: Pass<'a>, decode: Option<Decode<'a>>) -> Self {
        Self { engine, stop_ids, pass, decode, open: BTreeMap::new(), names: BTreeMap::new() }
    }

    /// What an output of the engine means here.
    fn take(&mut self, output: request::Output) -> Option<Output> {
        match output {
            request::Output::Admitted { id, cached_tokens, .. } => {
                self.open.get_mut(&id)?.cached_tokens.get_or_insert(cached_tokens);
                None
            }
            request::Output::Prefilled { .. } | request::Output::Pooled { .. } => None,
            request::Output::Token { id, token } => {
                let open = self.open.get_mut(&id)?;
                open.last_nanos = token.nanos;
                if self.decode.is_some() {
                    open.ids.push(token.id);
                }
                Some(Output { id: open.id, nanos: token.nanos, tokens: 1, end: None })
            }
            request::Output::Finished { id, reason } => {
                let open = self.open.remove(&id)?;
                self.names.remove(&open.id);
                let text = self.decode.and_then(|decode| decode(&open.ids));
                let end = match reason {
                    FinishReason::Stop | FinishReason::Length => {
                        End::Done { prompt_tokens: None, cached_tokens: open.cached_tokens.unwrap_or(0), text }
                    }
                    FinishReason::NotFinite => End::Failed("the model yielded non-finite logits".into()),
                    FinishReason::Cancelled => End::Failed("cancelled".into()),
                };
                Some(Output { id: open.id, nanos: open.last_nanos, tokens: 0, end: Some(end) })
            }
        }
    }
}

impl Target for EngineTarget<'_> {
    fn submit(&mut self, id: u64, request: &Planned, arrival_nanos: u64) -> Result<()> {
        let name = self.engine.submit(Request {
            prompt: request.prompt_ids().into_owned(),
            max_tokens: Some(request.output_tokens),
            stop_ids: self.stop_ids.clone(),
            arrived_nanos: Some(arrival_nanos),
            ..Request::default()
        })?;
        self.open.insert(name, Open { id, cached_tokens: None, last_nanos: arrival_nanos, ids: Vec::new() });
        self.names.insert(id, name);
        Ok(())
    }

    fn poll(&mut self, until_nanos: Option<u64>, outputs: &mut Vec<Output>) -> Result<()> {
        match until_nanos {
            Some(until) if self.engine.idle() => (self.pass)(self.engine.now_nanos(), until),
            // One step at most: a request that comes meanwhile could not be in the next one anyway, which is submitted.
            _ => self.engine.wait()?,
        }
        while let Some(output) = self.engine.next_output() {
            outputs.extend(self.take(output));
        }
        Ok(())
    }

    fn cancel(&mut self, id: u64) {
        if let Some(name) = self.names.remove(&id) {
            self.open.remove(&name);
            self.engine.cancel(name);
        }
    }

    fn now_nanos(&self) -> u64 {
        self.engine.now_nanos()
    }
}
