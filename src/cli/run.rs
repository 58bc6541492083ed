//! `run`: one prompt answered on standard output. The chat is `chat`'s.

use std::io::IsTerminal;

use serde::Serialize;

use super::args::RunArgs;
use super::batch_args::BatchOptions;
use super::figures::{millis, rate, tokens_per_second};
use super::generate::{self, Answer, Finish, Listener, Request};
use super::load;
use super::options::RunOptions;
use super::output::Output;
use super::progress::{Progress, Unit};
use super::serving::{self, Serving};
use super::{chat, interrupt, prompt, say};
use crate::clock::{Clock, millis_from_nanos};
use crate::error::{Error, Result};
use crate::format::model_files::Description;
use crate::model::Extent;
use crate::text::chat::{ChatTemplate, Content, Message};
use crate::text::tokenizer::Tokenizer;

/// What `run --json` prints.
#[derive(Debug, Serialize)]
struct RunResult<'a> {
    model: &'a str,
    adapter: &'a str,
    tier: &'a str,
    prompt_ids: &'a [u32],
    output_ids: &'a [u32],
    text: &'a str,
    finish_reason: &'a str,
    prompt_tokens: u64,
    completion_tokens: u64,
    cached_tokens: u64,
    ttft_ms: f64,
    tpot_ms: Option<f64>,
    /// Of the draws, where tokens were drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
}

/// Runs the command.
///
/// # Errors
/// Whatever keeps it from an answer; `Cancelled` when Ctrl-C cut it short.
pub(super) fn run(args: &RunArgs) -> Result<()> {
    let options = RunOptions::new(args, std::io::stdin().is_terminal())?;
    let text = prompt::read(&options.prompt, options.raw)?;
    let files = load::files(&options.model)?;
    let tokenizer = Tokenizer::new(&files.description, options.model.tokenizer.as_deref())?;
    let template = if options.raw { None } else { Some(template(&files.description)?) };
    let mut options = options;
    options.sampling_flags.complete(&mut options.sampling, &files.description);
    // The first token does not wait for kernels that its answer may never use.
    let batch = BatchOptions { kernels: Extent::First, ..BatchOptions::alone(options.model.trace.clone()) };
    let mut loaded = serving::open(&files, &options.model, &batch, None)?;
    drop(files);
    let Some(text) = text else {
        let template = template.expect("a chat is not raw");
        return chat::chat(&mut loaded, &tokenizer, &template, &options);
    };
    let arrival = Clock::start();
    let context = loaded.context_tokens;
    let ids = match &template {
        None => {
            check_fits(tokenizer.fewest_tokens(&text), 1, context)?;
            tokenizer.encode_raw(&text)?
        }
        Some(template) => {
            let messages = messages(options.system.as_deref(), &text);
            check_fits(Message::fewest_tokens(&messages, &tokenizer), 1, context)?;
            template.encode(&tokenizer, &messages)?
        }
    };
    let ids = never_empty(ids, &tokenizer)?;
    one_answer(&mut loaded, &tokenizer, &options, &ids, arrival)
}

fn one_answer(
    loaded: &mut Serving,
    tokenizer: &Tokenizer,
    options: &RunOptions,
    ids: &[u32],
    arrival: Clock,
) -> Result<()> {
    let request = Request {
        prompt: ids,
        max_tokens: options.max_tokens,
        stops: &options.stops,
        ignore_eos: options.ignore_eos,
        sampling: &options.sampling,
        cache_salt: None,
    };
    let mut out = Output::stdout();
    let mut stream = Stream::new(if options.json { None } else { Some(&mut out) }, ids.len(), loaded);
    let answer = generate::answer(&mut loaded.engine, tokenizer, &request, arrival, &mut stream)?;
    drop(stream);
    if options.json && answer.finish != Finish::Interrupted {
        out.json(&RunResult {
            model: &loaded.model,
            adapter: &loaded.adapter,
            tier: loaded.tier.name(),
            prompt_ids: ids,
            output_ids: &answer.output_ids,
            text: &answer.text,
            finish_reason: answer.finish.name(),
            prompt_tokens: answer.prompt_tokens,
            completion_tokens: answer.output_ids.len() as u64,
            cached_tokens: answer.cached_tokens,
            ttft_ms: millis_from_nanos(answer.ttft_nanos),
            tpot_ms: answer.tpot_ms(),
            seed: options.sampling.seed.filter(|_| options.sampling.temperature > 0.0),
        })?;
    } else if !options.json {
        out.text("\n")?;
    }
    say(&figures_line(&answer, loaded));
    if answer.finish == Finish::Interrupted { Err(Error::Cancelled) } else { time_kernels(loaded) }
}

/// Times what `--tune` says, behind the first answer on an adapter: nothing in front of it waits for that. Ctrl-C ends it.
///
/// # Errors
/// The engine's.
pub(super) fn time_kernels(loaded: &mut Serving) -> Result<()> {
    let mut spinner = None;
    while !interrupt::is_pressed() && loaded.engine.work_ahead(Extent::First)? {
        spinner.get_or_insert_with(|| Progress::spinner("timing kernels, once an adapter and driver"));
    }
    Ok(())
}

/// Sends an answer to standard output as it comes, with a bar before its first text where prefill takes several chunks.
pub(super) struct Stream<'a> {
    out: Option<&'a mut Output>,
    bar: Option<Progress>,
}

impl<'a> Stream<'a> {
    /// `out` is `None` to keep the text for later; `tokens` are to be computed before the first answer token.
    #[must_use]
    pub(super) fn new(out: Option<&'a mut Output>, tokens: usize, loaded: &Serving) -> Self {
        let is_long = tokens > loaded.chunk_tokens as usize;
        let bar = is_long.then(|| Progress::bar("prefill", tokens as u64, Unit::Tokens));
        Self { out, bar }
    }
}

impl Listener for Stream<'_> {
    fn text(&mut self, delta: &str) -> Result<()> {
        self.bar = None;
        self.out.as_mut().map_or(Ok(()), |out| out.text(delta))
    }

    fn prefill(&mut self, done: u64, total: u64) -> Result<()> {
        if let Some(bar) = &self.bar {
            bar.set(done, total);
        }
        interrupt::check()
    }

    fn is_stopped(&self) -> bool {
        interrupt::is_pressed()
    }
}

/// The conversation of one question.
pub(super) fn messages(system: Option<&str>, question: &str) -> Vec<Message> {
    let system = system.map(|text| message("system", text));
    system.into_iter().chain([message("user", question)]).collect()
}

/// One message of plain text.
pub(super) fn message(role: &str, text: &str) -> Message {
    Message { role: role.to_owned(), content: Content::Text(text.to_owned()) }
}

/// TTFT, prefill rate, TPOT, decode rate, adapter and tier, for people.
pub(super) fn figures_line(answer: &Answer, loaded: &Serving) -> String {
    let computed = answer.prompt_tokens - answer.cached_tokens;
    let mut parts = vec![format!("TTFT {}", millis(millis_from_nanos(answer.ttft_nanos)))];
    let cached =
        if answer.cached_tokens > 0 { format!(" ({} more cached)", answer.cached_tokens) } else { String::new() };
    let prefill = tokens_per_second(computed, answer.prefill_nanos).map_or("-".to_owned(), rate);
    parts.push(format!("prefill {computed} tokens{cached} at {prefill}"));
    parts.push(format!("TPOT {}", answer.tpot_ms().map_or("-".to_owned(), millis)));
    let made = answer.output_ids.len() as u64;
    let decode = tokens_per_second(made.saturating_sub(1), answer.decode_nanos).map_or("-".to_owned(), rate);
    parts.push(format!("decode {made} tokens at {decode}"));
    parts.push(loaded.adapter.clone());
    parts.push(loaded.tier.name().to_owned());
    parts.join(" | ")
}

/// Refuses a prompt whose length alone says that it cannot fit, before it is rendered or encoded.
///
/// # Errors
/// When `fewest` prompt tokens and `answer` tokens exceed the context.
pub(super) fn check_fits(fewest: u64, answer: u64, context_tokens: u32) -> Result<()> {
    if fewest.saturating_add(answer) <= u64::from(context_tokens) {
        return Ok(());
    }
    let answer = if answer == 0 { "" } else { " and 1 answer token" };
    Err(Error::Request(format!(
        "prompt too long: at least {fewest} prompt tokens{answer} exceed the context of {context_tokens} tokens"
    )))
}

/// A prompt without tokens becomes the beginning-of-sequence token.
///
/// # Errors
/// When the model has none.
pub(super) fn never_empty(ids: Vec<u32>, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
    if !ids.is_empty() {
        return Ok(ids);
    }
    match tokenizer.bos() {
        Some(bos) => Ok(vec![bos]),
        None => Err(Error::Request(
            "the prompt is empty, and this model has no beginning-of-sequence token to start from: give it some text"
                .into(),
        )),
    }
}

fn template(description: &Description) -> Result<ChatTemplate> {
    ChatTemplate::new(description)?
        .ok_or_else(|| Error::Request("this model has no chat template: use --raw to give it the text as it is".into()))
}
