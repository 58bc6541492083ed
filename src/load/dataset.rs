//! Workloads: prompts, lengths and times of arrival, from a seed or from a file. Names and arithmetic are vLLM's.
//!
//! ```text
//! random              a run of consecutive ids from a random one on, behind a prefix that all share
//! prefix_repetition   a few prefixes, each followed by many suffixes
//! sharegpt            first question of each conversation, as long an answer as it had
//! mooncake            a trace: times, lengths, and which blocks of 512 tokens prompts share
//! ```

mod file;
mod mooncake;
mod sharegpt;
mod synthetic;

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use super::arrivals::Arrivals;
use super::random::Random;
use crate::error::{Error, Result};
use crate::limits::{REPLAY_REQUESTS_MAX, REPLAY_TOKENS_MAX};

/// Which requests.
#[derive(Debug, Clone, PartialEq)]
pub enum Dataset {
    /// `random`.
    Random {
        /// Mean tokens of a prompt behind the shared prefix.
        input_tokens: u32,
        /// Mean tokens of an answer.
        output_tokens: u32,
        /// Lengths are uniform within this share below and above the mean; 0 to less than 1.
        range_ratio: f64,
        /// Tokens that all prompts begin with.
        prefix_tokens: u32,
    },
    /// `prefix_repetition`.
    PrefixRepetition {
        /// Tokens of a prefix.
        prefix_tokens: u32,
        /// Tokens of a suffix.
        suffix_tokens: u32,
        /// Number of prefixes, at least 1.
        prefixes: u32,
        /// Tokens of an answer.
        output_tokens: u32,
    },
    /// `sharegpt`.
    ShareGpt {
        /// The file: a JSON array of conversations, or one a line.
        path: PathBuf,
        /// Tokens of every answer; absent: as long as it was.
        output_tokens: Option<u32>,
    },
    /// `mooncake`.
    Mooncake {
        /// The file: JSON Lines.
        path: PathBuf,
        /// Factor of all lengths, the block's too.
        length_scale: f64,
        /// Factor of all times; 0.5 is twice as fast.
        time_scale: f64,
    },
}

/// A whole workload, before it is made.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Which requests.
    pub dataset: Dataset,
    /// How many; a trace may hold fewer.
    pub prompts: u32,
    /// How many more go first and are not measured.
    pub warmups: u32,
    /// When. A trace keeps its own times when all would come at once.
    pub arrivals: Arrivals,
    /// Decides everything that is drawn.
    pub seed: u64,
}

/// Token ids that made-up prompts consist of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vocabulary {
    allowed: Arc<[u32]>,
}

impl Vocabulary {
    /// All ids below `tokens` but the special ones.
    ///
    /// # Errors
    /// `Request` when none is left.
    pub fn new(tokens: u32, special: &[u32]) -> Result<Self> {
        let special: std::collections::BTreeSet<u32> = special.iter().copied().collect();
        let allowed: Arc<[u32]> = (0..tokens).filter(|id| !special.contains(id)).collect();
        if allowed.is_empty() {
            return Err(Error::Request(format!("a vocabulary of {tokens} tokens has none for a made-up prompt")));
        }
        Ok(Self { allowed })
    }

    /// The allowed id at `place`, counted around.
    fn around(&self, place: u64) -> u32 {
        let count = self.allowed.len() as u64;
        self.allowed[usize::try_from(place % count).expect("below the length")]
    }

    fn draw(&self, tokens: u32, random: &mut Random) -> Vec<u32> {
        (0..tokens).map(|_| self.around(random.below(self.allowed.len() as u64))).collect()
    }
}

/// What a request asks.
#[derive(Debug, Clone, PartialEq)]
pub enum Prompt {
    /// These ids.
    Ids(Vec<u32>),
    /// A text, and the ids it is encoded to.
    Text {
        /// For targets that take text.
        text: String,
        /// For those that take ids.
        ids: Vec<u32>,
    },
    /// Blocks that are made only when they are sent: a trace's prompts may be larger than memory together.
    Blocks(Blocks),
}

/// A prompt as blocks, equal names being equal tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Blocks {
    /// Names of the blocks, in order.
    names: Vec<u64>,
    /// Tokens of a block; the last may be cut.
    block_tokens: u32,
    /// Tokens of all.
    tokens: u32,
    vocabulary: Vocabulary,
    seed: u64,
}

impl Blocks {
    fn ids(&self) -> Vec<u32> {
        let of_block = |name: &u64| self.vocabulary.draw(self.block_tokens, &mut Random::part(self.seed, *name));
        let mut ids: Vec<u32> = self.names.iter().flat_map(of_block).collect();
        ids.truncate(usize::try_from(self.tokens).expect("a number of tokens"));
        ids
    }
}

/// One request of a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// When it comes, from the start of the run.
    pub arrival_nanos: u64,
    /// What it asks.
    pub prompt: Prompt,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Tokens of the answer that is asked for, at least 1.
    pub output_tokens: u32,
}

impl Planned {
    /// The prompt's ids.
    #[must_use]
    pub fn prompt_ids(&self) -> Cow<'_, [u32]> {
        match &self.prompt {
            Prompt::Ids(ids) | Prompt::Text { ids, .. } => Cow::Borrowed(ids),
            Prompt::Blocks(blocks) => Cow::Owned(blocks.ids()),
        }
    }

    /// A request for `output_tokens` after `ids`, at time 0.
    fn of_ids(ids: Vec<u32>, output_tokens: u32) -> Self {
        let prompt_tokens = u32::try_from(ids.len()).expect("bounded by REPLAY_TOKENS_MAX");
        Self { arrival_nanos: 0, prompt: Prompt::Ids(ids), prompt_tokens, output_tokens }
    }
}

/// A workload, ready to be played.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Go first, and are not measured; their times mean nothing.
    pub warmups: Vec<Planned>,
    /// What is measured, in order of arrival.
    pub planned: Vec<Planned>,
}

/// Encodes a text; only `sharegpt` needs it.
pub type Encode<'a> = &'a dyn Fn(&str) -> Result<Vec<u32>>;

impl Spec {
    /// Makes the workload.
    ///
    /// # Errors
    /// `Usage` when the numbers make no sense; `Io` and `Format` for the file, the latter with the line's number.
    pub fn make(&self, vocabulary: &Vocabulary, encode: Encode<'_>) -> Result<Workload> {
        let count = u64::from(self.prompts) + u64::from(self.warmups);
        if self.prompts == 0 || count > u64::from(REPLAY_REQUESTS_MAX) {
            let (n, w) = (self.prompts, self.warmups);
            let message = format!("--num-prompts: expected 1 to {REPLAY_REQUESTS_MAX} with warm-ups, got {n} and {w}");
            return Err(Error::Usage(message));
        }
        let all = usize::try_from(count).expect("bounded by REPLAY_REQUESTS_MAX");
        let mut random = Random::part(self.seed, 0);
        let mut timed = false;
        let mut requests = match &self.dataset {
            Dataset::Random { input_tokens, output_tokens, range_ratio, prefix_tokens } => {
                let lengths = synthetic::Lengths::new(*input_tokens, *output_tokens, *range_ratio, *prefix_tokens)?;
                synthetic::random(all, &lengths, vocabulary, &mut random)?
            }
            Dataset::PrefixRepetition { prefix_tokens, suffix_tokens, prefixes, output_tokens } => {
                let lengths = [*prefix_tokens, *suffix_tokens, *output_tokens];
                synthetic::prefix_repetition(all, *prefixes, lengths, vocabulary, &mut random)?
            }
            Dataset::ShareGpt { path, output_tokens } => {
                sharegpt::sample(path, all, *output_tokens, encode, &mut random)?
            }
            Dataset::Mooncake { path, length_scale, time_scale } => {
                timed = self.arrivals.at_once();
                let scale = mooncake::Scale::new(*length_scale, *time_scale)?;
                let planned = mooncake::read(path, self.prompts, scale, vocabulary, self.seed)?;
                let mut all = mooncake::warmups(&planned, self.warmups, vocabulary, &mut random)?;
                all.extend(planned);
                all
            }
        };
        let warmups = usize::try_from(self.warmups).expect("bounded by REPLAY_REQUESTS_MAX");
        let mut planned = requests.split_off(warmups.min(requests.len()));
        if !timed {
            let times = self.arrivals.nanos(planned.len(), &mut Random::part(self.seed, 1))?;
            planned.iter_mut().zip(times).for_each(|(request, nanos)| request.arrival_nanos = nanos);
        }
        Ok(Workload { warmups: requests, planned })
    }
}

impl Workload {
    /// Holds that every request fits a context, prompt and answer together.
    ///
    /// # Errors
    /// `Request` that names the first one that doesn't.
    pub fn check_context(&self, context_tokens: u32) -> Result<()> {
        let tokens = |r: &Planned| u64::from(r.prompt_tokens) + u64::from(r.output_tokens);
        let requests = self.warmups.iter().chain(&self.planned);
        match requests.zip(1u64..).find(|(request, _)| tokens(request) > u64::from(context_tokens)) {
            None => Ok(()),
            Some((request, number)) => Err(Error::Request(format!(
                "request {number} of the workload: {} prompt and {} answer tokens exceed the context of \
                 {context_tokens} tokens",
                request.prompt_tokens, request.output_tokens
            ))),
        }
    }
}

/// Holds that `count` prompts of up to `tokens` fit in memory.
fn check_memory(count: usize, tokens: u64) -> Result<()> {
    if (count as u64).saturating_mul(tokens) <= REPLAY_TOKENS_MAX {
        return Ok(());
    }
    let message = format!("{count} prompts of {tokens} tokens: expected at most {REPLAY_TOKENS_MAX} tokens together");
    Err(Error::Usage(message))
}
