//! One answer: prefill what the session does not hold yet, then decode until an end token, a stop string, the limit or Ctrl-C.

use crate::clock::{Clock, millis_from_nanos};
use crate::engine::Session;
use crate::error::{Error, Result};
use crate::text::decode::DeltaDecoder;
use crate::text::stop::StopFilter;
use crate::text::tokenizer::Tokenizer;

/// What is asked.
pub(super) struct Request<'a> {
    /// The whole prompt; what the session already holds of it is not computed again.
    pub(super) prompt: &'a [u32],
    /// Most tokens of the answer; `None` is the room left.
    pub(super) max_tokens: Option<u32>,
    /// Stop strings.
    pub(super) stops: &'a [String],
    /// Go on after an end token.
    pub(super) ignore_eos: bool,
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
    /// Those of them that the session held already.
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

/// Answers one request. `arrival` started counting when the request came, before it was tokenised.
///
/// # Errors
/// `ContextFull` (nothing was done), the session's, the tokenizer's, or what the listener returns.
pub(super) fn answer(
    session: &mut Session,
    tokenizer: &Tokenizer,
    request: &Request<'_>,
    arrival: Clock,
    listener: &mut dyn Listener,
) -> Result<Answer> {
    let prompt_tokens = request.prompt.len() as u64;
    let context_tokens = u64::from(session.model().context_tokens());
    if prompt_tokens + 1 > context_tokens {
        return Err(Error::ContextFull { prompt_tokens, context_tokens });
    }
    let room = context_tokens - prompt_tokens;
    let limit = request.max_tokens.map_or(room, |most| u64::from(most).min(room));
    let cached = common_prefix(session.ids(), request.prompt).min(request.prompt.len().saturating_sub(1));
    session.truncate(cached);
    let prefill_from = arrival.nanos();
    let id = session.prefill(&request.prompt[cached..], &mut |done, total| listener.prefill(done, total))?;
    let first_at = arrival.nanos();
    let mut making = Making {
        answer: Answer {
            output_ids: Vec::new(),
            text: String::new(),
            finish: Finish::Length,
            prompt_tokens,
            cached_tokens: cached as u64,
            ttft_nanos: first_at,
            prefill_nanos: first_at - prefill_from,
            decode_nanos: 0,
        },
        decoder: DeltaDecoder::new(tokenizer, request.prompt),
        stop: StopFilter::new(request.stops),
        tokenizer,
        listener,
    };
    making.answer.finish = making.decode(session, request, id, limit, arrival)?;
    making.flush()?;
    Ok(making.answer)
}

struct Making<'a> {
    answer: Answer,
    decoder: DeltaDecoder,
    stop: StopFilter,
    tokenizer: &'a Tokenizer,
    listener: &'a mut dyn Listener,
}

impl Making<'_> {
    /// `id` is the first token; `limit` is at least 1.
    fn decode(
        &mut self,
        session: &mut Session,
        request: &Request<'_>,
        mut id: u32,
        limit: u64,
        arrival: Clock,
    ) -> Result<Finish> {
        loop {
            self.answer.output_ids.push(id);
            self.answer.decode_nanos = arrival.nanos() - self.answer.ttft_nanos;
            if !request.ignore_eos && self.tokenizer.end_tokens().contains(&id) {
                return Ok(Finish::Stop);
            }
            let delta = self.decoder.push(self.tokenizer, id)?;
            let text = self.stop.push(&delta);
            self.send(&text)?;
            if self.stop.is_hit() {
                return Ok(Finish::Stop);
            }
            if self.answer.output_ids.len() as u64 >= limit {
                return Ok(Finish::Length);
            }
            if self.listener.is_stopped() {
                return Ok(Finish::Interrupted);
            }
            id = session.decode(id)?;
        }
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

/// Ids at the start of `a` that are also at the start of `b`.
fn common_prefix(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
