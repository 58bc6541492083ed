//! One answer: from the engine's tokens to text, until an end token, a stop string, the limit or Ctrl-C.

use crate::clock::{Clock, millis_from_nanos};
use crate::engine::request::{FinishReason, Output, RequestId};
use crate::engine::sampling::SamplingParams;
use crate::engine::serving::Engine;
use crate::engine::{self};
use crate::error::{Error, Result};
use crate::text::decode::DeltaDecoder;
use crate::text::stop::StopFilter;
use crate::text::tokenizer::Tokenizer;

/// What is asked.
pub(super) struct Request<'a> {
    /// The whole prompt; what is cached of it is not computed again.
    pub(super) prompt: &'a [u32],
    /// Most tokens of the answer; `None` is the room left.
    pub(super) max_tokens: Option<u32>,
    /// Stop strings.
    pub(super) stops: &'a [String],
    /// Go on after an end token.
    pub(super) ignore_eos: bool,
    /// How tokens are chosen.
    pub(super) sampling: &'a SamplingParams,
    /// Cached pages are shared only between requests of the same salt.
    pub(super) cache_salt: Option<String>,
}

/// Who follows an answer while it comes.
pub(super) trait Listener {
    /// Text that is certain: whole characters, no part of a stop string.
    ///
    /// # Errors
    /// Ends the answer.
    fn text(&mut self, delta: &str) -> Result<()>;
    /// Prompt tokens computed so far.
    ///
    /// # Errors
    /// Ends the answer.
    fn prefill(&mut self, done: u64, total: u64) -> Result<()>;
    /// Whether to end the answer here.
    fn is_stopped(&self) -> bool;
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finish {
    /// An end token or a stop string.
    Stop,
    /// The limit or the context.
    Length,
    /// The listener.
    Interrupted,
}

impl Finish {
    /// OpenAI's name.
    #[must_use]
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Interrupted => "abort",
        }
    }
}

/// What came of it.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    /// All tokens made, the end token included.
    pub(super) output_ids: Vec<u32>,
    /// Their text without special tokens, up to a stop string.
    pub(super) text: String,
    /// Why it ended.
    pub(super) finish: Finish,
    /// Tokens of the prompt.
    pub(super) prompt_tokens: u64,
    /// Those of them that were cached.
    pub(super) cached_tokens: u64,
    /// From arrival to the first token.
    pub(super) ttft_nanos: u64,
    /// From the start of prefill to the first token.
    pub(super) prefill_nanos: u64,
    /// From the first token to the last.
    pub(super) decode_nanos: u64,
}

impl Answer {
    /// Time per output token after the first, in milliseconds; `None` under two tokens.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
    pub(super) fn tpot_ms(&self) -> Option<f64> {
        let gaps = self.output_ids.len().checked_sub(1).filter(|&n| n > 0)?;
        Some(millis_from_nanos(self.decode_nanos) / gaps as f64)
    }
}

/// Answers one request, alone. `arrival` started counting when the request came, before it was tokenised.
///
/// # Errors
/// `ContextFull` (nothing was done), the engine's, the tokenizer's, or what the listener returns.
pub(super) fn answer(
    engine: &mut Engine,
    tokenizer: &Tokenizer,
    request: &Request<'_>,
    arrival: Clock,
    listener: &mut dyn Listener,
) -> Result<Answer> {
    let ends = if request.ignore_eos { &[] } else { tokenizer.end_tokens() };
    let prefill_from = arrival.nanos();
    let id = engine.submit(engine::request::Request {
        prompt: request.prompt.to_vec(),
        max_tokens: request.max_tokens,
        sampling: request.sampling.clone(),
        stop_ids: ends.iter().copied().collect(),
        cache_salt: request.cache_salt.clone(),
        arrived_nanos: Some(engine.now_nanos().saturating_sub(prefill_from)),
        ..Default::default()
    })?;
    let mut making = Making {
        answer: Answer {
            output_ids: Vec::new(),
            text: String::new(),
            finish: Finish::Length,
            prompt_tokens: request.prompt.len() as u64,
            cached_tokens: 0,
            ttft_nanos: 0,
            prefill_nanos: 0,
            decode_nanos: 0,
        },
        id,
        prefill_from,
        decoder: DeltaDecoder::new(tokenizer, request.prompt),
        stop: StopFilter::new(request.stops),
        tokenizer,
        listener,
    };
    let made = making.follow(engine, arrival);
    if made.is_err() {
        engine.cancel(id);
    }
    // What is in flight for this request ends before the next one begins.
    drain(engine)?;
    made?;
    making.flush()?;
    Ok(making.answer)
}

/// Lets steps in flight end, and forgets what they yield.
fn drain(engine: &mut Engine) -> Result<()> {
    while !engine.idle() {
        engine.wait()?;
        while engine.next_output().is_some() {}
    }
    Ok(())
}

struct Making<'a> {
    answer: Answer,
    id: RequestId,
    prefill_from: u64,
    decoder: DeltaDecoder,
    stop: StopFilter,
    tokenizer: &'a Tokenizer,
    listener: &'a mut dyn Listener,
}

impl Making<'_> {
    /// Takes what the engine yields until the answer has ended.
    fn follow(&mut self, engine: &mut Engine, arrival: Clock) -> Result<()> {
        loop {
            engine.wait()?;
            while let Some(output) = engine.next_output() {
                if let Some(finish) = self.take(output, arrival)? {
                    self.answer.finish = finish;
                    engine.stop(self.id);
                    return Ok(());
                }
            }
            if self.listener.is_stopped() {
                self.answer.finish = Finish::Interrupted;
                engine.cancel(self.id);
                return if self.answer.output_ids.is_empty() { Err(Error::Cancelled) } else { Ok(()) };
            }
        }
    }

    /// One output; why the answer has ended, if it has.
    fn take(&mut self, output: Output, arrival: Clock) -> Result<Option<Finish>> {
        match output {
            Output::Admitted { cached_tokens, .. } => {
                self.answer.cached_tokens = u64::from(cached_tokens);
                Ok(None)
            }
            Output::Prefilled { tokens, .. } => {
                self.listener.prefill(u64::from(tokens), self.answer.prompt_tokens)?;
                Ok(None)
            }
            Output::Pooled { .. } => unreachable!("nobody asked for hidden states"),
            Output::Token { token, .. } => self.take_token(token.id, arrival),
            Output::Finished { reason: FinishReason::NotFinite, .. } => {
                let position = self.answer.prompt_tokens + self.answer.output_ids.len() as u64 - 1;
                Err(Error::NotFinite { position })
            }
            Output::Finished { reason, .. } => {
                Ok(Some(if reason == FinishReason::Stop { Finish::Stop } else { Finish::Length }))
            }
        }
    }

    fn take_token(&mut self, id: u32, arrival: Clock) -> Result<Option<Finish>> {
        let now = arrival.nanos();
        if self.answer.output_ids.is_empty() {
            self.answer.ttft_nanos = now;
            self.answer.prefill_nanos = now - self.prefill_from;
        }
        self.answer.output_ids.push(id);
        self.answer.decode_nanos = now - self.answer.ttft_nanos;
        let delta = self.decoder.push(self.tokenizer, id)?;
        let text = self.stop.push(&delta);
        self.send(&text)?;
        Ok(self.stop.is_hit().then_some(Finish::Stop))
    }

    /// Sends what decoder and stop filter held back.
    fn flush(&mut self) -> Result<()> {
        if self.stop.is_hit() {
            return Ok(());
        }
        let delta = self.decoder.finish();
        let mut text = self.stop.push(&delta);
        if self.stop.is_hit() {
            self.answer.finish = Finish::Stop;
        }
        text.push_str(&self.stop.finish());
        self.send(&text)
    }

    fn send(&mut self, text: &str) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.answer.text.push_str(text);
        self.listener.text(text)
    }
}
