//! One pass over the input: lines are taken up as the queue has room, answers are written when their turn comes.
//!
//! ```text
//!   written | open: answering or done, waiting for those before | not read yet
//!           ^ first
//! ```

use std::collections::{BTreeMap, VecDeque};

use super::super::interrupt;
use super::lines::Lines;
use super::rows::Rows;
use crate::clock::unix_seconds;
use crate::engine::request::{Output, RequestId};
use crate::engine::serving::Engine;
use crate::error::{Error, Result};
use crate::limits::{BATCH_LINES_A_STEP, BATCH_LINES_OPEN_MAX};
use crate::server::openai::batch::{Line, Row};
use crate::server::openai::{Answering, ApiError, Body, Head, Host, Job, drawn_seed};

/// Where names and seeds come from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Naming {
    /// From which the seeds of requests that name none are drawn, with their `custom_id`: neither the order of the lines nor
    /// a resumed run changes a draw.
    pub(super) seed: u64,
    /// What tells this run's rows from another's.
    pub(super) run: i64,
}

/// What a pass has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Rows whose turn has come.
    pub(super) written: u64,
    /// Requests with an answer.
    pub(super) answered: u64,
    /// Requests with an error.
    pub(super) failed: u64,
    /// Prompt tokens of the answered.
    pub(super) prompt_tokens: u64,
    /// Those that were cached.
    pub(super) cached_tokens: u64,
    /// Tokens of the answers.
    pub(super) completion_tokens: u64,
    /// A seed mattered that no request named.
    pub(super) drew_seeds: bool,
}

/// A line that is not written yet.
struct Open {
    custom_id: Option<String>,
    state: State,
}

enum State {
    Answering(Box<Answering>),
    /// Its row.
    Done(String),
}

/// A choice of an open line: the line's number from 0, and the choice's.
type Choice = (u64, usize);

/// A pass.
pub(super) struct Pass<'a> {
    engine: &'a mut Engine,
    host: Host<'a>,
    naming: Naming,
    waiting_max: usize,
    open: VecDeque<Open>,
    /// Number of the line at the front of `open`.
    first: u64,
    /// Choices that the engine works on.
    requests: BTreeMap<RequestId, Choice>,
    /// Choices that it has not been given yet, in order.
    unsent: VecDeque<Choice>,
    tally: Tally,
}

impl<'a> Pass<'a> {
    /// A pass that begins at line `first`. The engine is idle, and has at most `waiting_max` requests waiting for a slot.
    pub(super) fn new(engine: &'a mut Engine, host: Host<'a>, naming: Naming, waiting_max: usize, first: u64) -> Self {
        Self {
            engine,
            host,
            naming,
            waiting_max,
            open: VecDeque::new(),
            first,
            requests: BTreeMap::new(),
            unsent: VecDeque::new(),
            tally: Tally::default(),
        }
    }

    /// What has been done so far.
    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Answers all lines; `progress` is told how many are done, those before this run included.
    ///
    /// # Errors
    /// Files, the device, or `Cancelled`; what is written by then is whole.
    pub(super) fn run(&mut self, lines: &mut Lines, mut rows: Option<&mut Rows>, progress: impl Fn(u64)) -> Result<()> {
        let mut is_all_read = false;
        loop {
            if !is_all_read {
                is_all_read = self.take_up(lines)?;
            }
            self.send()?;
            self.write(rows.as_deref_mut())?;
            progress(self.first);
            if self.open.is_empty() && is_all_read {
                return self.drain();
            }
            self.engine.wait()?;
            while let Some(output) = self.engine.next_output() {
                self.apply(output);
            }
            // What is done is written also when Ctrl-C ends it here.
            self.write(rows.as_deref_mut())?;
            interrupt::check()?;
        }
    }

    /// Reads lines while there is room for them; true at the end of the input.
    fn take_up(&mut self, lines: &mut Lines) -> Result<bool> {
        for _ in 0..BATCH_LINES_A_STEP {
            let waiting = self.engine.scheduler().counters().waiting + self.unsent.len();
            if waiting >= self.waiting_max || self.open.len() >= BATCH_LINES_OPEN_MAX {
                return Ok(false);
            }
            let Some(line) = lines.next_line()? else { return Ok(true) };
            self.take_line(line);
        }
        Ok(false)
    }

    fn take_line(&mut self, line: Line) {
        let Line { custom_id, asked } = line;
        let number = self.first + self.open.len() as u64;
        let seed = drawn_seed(self.naming.seed, custom_id.as_deref().unwrap_or("").as_bytes());
        let job = asked.and_then(|asked| Job::read(asked.endpoint, &asked.body, &self.host, seed));
        match job {
            Ok(job) => {
                self.tally.drew_seeds |= job.params.seed_is_drawn;
                let answering = Box::new(Answering::new(job, self.host.tokenizer));
                let (is_done, choices) = (answering.is_done(), answering.job().choices());
                self.open.push_back(Open { custom_id, state: State::Answering(answering) });
                if is_done {
                    self.answer(number);
                } else {
                    self.unsent.extend((0..choices).map(|choice| (number, choice)));
                }
            }
            Err(error) => {
                self.open.push_back(Open { custom_id, state: State::Done(String::new()) });
                self.end(number, Err(error));
            }
        }
    }

    /// Hands choices to the engine until it is busy.
    fn send(&mut self) -> Result<()> {
        while let Some(&(number, choice)) = self.unsent.front() {
            let tokenizer = self.host.tokenizer;
            let request = self.answering(number).request(choice, tokenizer);
            match self.engine.submit(request) {
                Ok(id) => {
                    self.requests.insert(id, (number, choice));
                    self.unsent.pop_front();
                }
                Err(Error::Busy(_)) if !self.requests.is_empty() => return Ok(()),
                Err(error @ (Error::Busy(_) | Error::Request(_) | Error::ContextFull { .. })) => {
                    self.fail(number, ApiError::from_error(&error, "body"));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes what the engine says of a choice; what it says of ended ones is late.
    fn apply(&mut self, output: Output) {
        let tokenizer = self.host.tokenizer;
        let (id, result) = match output {
            Output::Prefilled { .. } | Output::Pooled { .. } => return,
            Output::Admitted { id, cached_tokens, nanos } => {
                if let Some(&(number, choice)) = self.requests.get(&id) {
                    self.answering(number).admitted(choice, cached_tokens, nanos);
                }
                return;
            }
            Output::Token { id, token } => {
                let Some(&(number, choice)) = self.requests.get(&id) else { return };
                let pushed = self.answering(number).token(choice, token, tokenizer);
                if pushed.as_ref().is_ok_and(|pushed| !pushed.is_stopped) {
                    return;
                }
                self.engine.stop(id);
                (id, pushed.map(|_| ()))
            }
            Output::Finished { id, reason } => {
                let Some(&(number, choice)) = self.requests.get(&id) else { return };
                (id, self.answering(number).finished(choice, reason).map(|_| ()))
            }
        };
        let (number, _) = self.requests.remove(&id).expect("seen above");
        match result {
            Err(error) => self.fail(number, ApiError::internal(error.to_string())),
            Ok(()) if self.answering(number).is_done() => self.answer(number),
            Ok(()) => {}
        }
    }

    /// All choices of a line have ended.
    fn answer(&mut self, number: u64) {
        let head = Head { id: self.name(number), created: unix_seconds(), timed: false };
        let host = self.host;
        let answering = self.answering(number);
        let (prompt, cached) = (answering.prompt_tokens(), answering.cached_tokens());
        let (completion, body) = (answering.completion_tokens(), answering.body(head, &host));
        self.tally.prompt_tokens += prompt;
        self.tally.cached_tokens += cached;
        self.tally.completion_tokens += completion;
        self.end(number, Ok(body));
    }

    /// A line ends with an error; its other choices end too.
    fn fail(&mut self, number: u64, error: ApiError) {
        let ids: Vec<_> = self.requests.iter().filter(|(_, choice)| choice.0 == number).map(|(id, _)| *id).collect();
        for id in ids {
            self.requests.remove(&id);
            self.engine.cancel(id);
        }
        self.unsent.retain(|choice| choice.0 != number);
        self.end(number, Err(error));
    }

    fn end(&mut self, number: u64, outcome: std::result::Result<Body, ApiError>) {
        if outcome.is_ok() {
            self.tally.answered += 1;
        } else {
            self.tally.failed += 1;
        }
        let name = self.name(number);
        let open = self.open_line(number);
        open.state = State::Done(Row::new(&name, open.custom_id.clone(), outcome).to_line());
    }

    /// Writes the rows whose turn has come.
    fn write(&mut self, mut rows: Option<&mut Rows>) -> Result<()> {
        while let Some(Open { state: State::Done(row), .. }) = self.open.front() {
            if let Some(rows) = rows.as_deref_mut() {
                rows.write(row)?;
            }
            self.open.pop_front();
            self.first += 1;
            self.tally.written += 1;
        }
        Ok(())
    }

    /// Lets steps in flight end, and forgets what they yield.
    fn drain(&mut self) -> Result<()> {
        while !self.engine.idle() {
            self.engine.wait()?;
            while self.engine.next_output().is_some() {}
        }
        Ok(())
    }

    fn open_line(&mut self, number: u64) -> &mut Open {
        let at = usize::try_from(number - self.first).expect("few lines are open");
        &mut self.open[at]
    }

    fn answering(&mut self, number: u64) -> &mut Answering {
        match &mut self.open_line(number).state {
            State::Answering(answering) => answering,
            State::Done(_) => unreachable!("line {number} has ended: no choice of it is left"),
        }
    }

    fn name(&self, number: u64) -> String {
        format!("{:x}-{number}", self.naming.run)
    }
}
