//! Sampling on the GPU: penalties, bias, temperature, min-p, top-k, top-p, the draw, and what logprobs need.
//!
//! ```text
//! job      one question about one row: which id (greedy or drawn), or its raw logprobs
//! wave     [count][penalise] scan [mass] [gather] choose       jobs whose penalised copies and lists fit the buffers
//! logits   [ rows the model wrote: logit_rows ][ penalised copies: PENALISED_ROWS ]
//! history  [slots, context]: the choice lands at [slot][position], where the next step's embedding may read it
//! ```
//!
//! A draw is the first id, ascending, at which the masses of what is kept pass a random share of their sum. Masses are
//! integers, cuts are keys and ids, random bits depend on (seed, choice, position) alone: a row's result depends on its own
//! logits, rules and history, never on its company, and shader and twin agree to the last bit on every adapter.

mod number;
mod stage;
mod twin;

pub use stage::Stage;
pub(super) use twin::twin;

use super::{Kernel, Tape, fold};
use crate::error::Result;
use crate::limits::{self, LOGIT_BIAS_MAX, LOGPROBS_MAX};
use crate::recording::{BufferId, Player};
use number::{NONE, OCTAVE, high, low};
use stage::{CHUNK, GREEDY, Job, LIST, LIST_ITEMS, PARTIAL_WORDS, PENALISED, Params, RAW, REPETITION};

/// Rows that are penalised or biased in one wave; more take more waves.
pub const PENALISED_ROWS: u32 = 8;
/// Rows with top-k, top-p or top logprobs in one wave; more take more waves.
pub const LISTED_ROWS: u32 = 64;
/// Temperature up to which the largest logit is taken.
pub const GREEDY_TEMPERATURE_MAX: f32 = 1e-6;

/// Words of a record without logprobs, with the chosen one's, and with the top ones'.
const RECORD_WORDS: [u32; 3] = [2, 8, 8 + 2 * LOGPROBS_MAX];

/// How a row is sampled, in the order in which the rules apply: penalties, bias, temperature, min-p, top-k, top-p.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// Divides positive and multiplies other logits of ids that prompt or answer hold; above 0, 1 is off.
    pub repetition: f32,
    /// Taken off the logits of generated ids, once for each time; 0 is off.
    pub frequency: f32,
    /// Taken off the logits of generated ids, once; 0 is off.
    pub presence: f32,
    /// Added to logits, by id; each id once and inside the vocabulary, at most [`LOGIT_BIAS_MAX`].
    pub bias: Vec<(u32, f32)>,
    /// Divides the logits; up to [`GREEDY_TEMPERATURE_MAX`] the largest one is taken.
    pub temperature: f32,
    /// Keeps what has at least this share of the likeliest id's probability; 0 is off.
    pub min_p: f32,
    /// Keeps this many of the likeliest ids.
    pub top_k: Option<u32>,
    /// Keeps the fewest of the likeliest ids whose probabilities, among those kept so far, reach this sum; 1 is off.
    pub top_p: f32,
}

impl Default for Rules {
    /// Greedy, nothing else.
    fn default() -> Self {
        Self {
            repetition: 1.0,
            frequency: 0.0,
            presence: 0.0,
            bias: Vec::new(),
            temperature: 0.0,
            min_p: 0.0,
            top_k: None,
            top_p: 1.0,
        }
    }
}

impl Rules {
    /// Whether logits change before the temperature.
    #[must_use]
    pub fn penalised(&self) -> bool {
        self.counted() || !self.bias.is_empty()
    }

    fn counted(&self) -> bool {
        self.repetition != 1.0 || self.frequency != 0.0 || self.presence != 0.0
    }

    fn greedy(&self) -> bool {
        self.temperature <= GREEDY_TEMPERATURE_MAX
    }

    fn listed(&self) -> bool {
        !self.greedy() && (self.top_k.is_some() || self.top_p < 1.0)
    }
}

/// One row to sample.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Row of the logits, below [`Sizes::logit_rows`].
    pub logits_row: u32,
    /// Row of the history.
    pub slot: u32,
    /// Tokens before the one that is chosen: its index in the sequence, where it lands in the history (outside: nowhere).
    pub position: u32,
    /// How many of them are the prompt's; the rest was generated.
    pub prompt_tokens: u32,
    /// Which of several answers to one prompt.
    pub choice: u32,
    /// Seed of the request.
    pub seed: u64,
    /// How to sample.
    pub rules: &'a Rules,
    /// Wants the chosen id's logprob and that many of the largest, at most [`LOGPROBS_MAX`].
    pub logprobs: Option<u32>,
}

/// What the buffers are sized by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Logits of a row.
    pub dim: u32,
    /// Words between rows of logits.
    pub stride: u32,
    /// Rows that the model writes; the logits buffer has [`PENALISED_ROWS`] more.
    pub logit_rows: u32,
    /// Most rows sampled in one recording.
    pub rows_max: u32,
    /// Rows of the history.
    pub slots: u32,
    /// Tokens of a row of the history.
    pub context: u32,
}

impl Sizes {
    /// Rows that the logits buffer must have.
    #[must_use]
    pub const fn logits_buffer_rows(self) -> u32 {
        self.logit_rows + PENALISED_ROWS
    }

    const fn chunks(self) -> u32 {
        self.dim.div_ceil(CHUNK)
    }

    fn lists(self) -> u32 {
        LISTED_ROWS.min(2 * self.rows_max)
    }
}

/// The buffers. All but `logits` and `history` are scratch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffers {
    /// `[logit_rows + PENALISED_ROWS, stride]` f32; the rows behind `logit_rows` are written here.
    pub logits: BufferId,
    /// `[slots, context]` u32: the sequences' ids. Who admits a prompt uploads it.
    pub history: BufferId,
    /// `[rows_max]` records, to be read back as [`Answer`] says.
    pub records: BufferId,
    jobs: BufferId,
    partials: BufferId,
    lists: BufferId,
    heads: BufferId,
    counts: BufferId,
    bias: BufferId,
}

impl Buffers {
    /// Makes all but the logits.
    ///
    /// # Errors
    /// The player's: out of memory, a buffer past its limit, or a lost device.
    pub fn new(player: &mut dyn Player<Kernel>, sizes: Sizes, logits: BufferId) -> Result<Self> {
        let jobs = 2 * u64::from(sizes.rows_max);
        let mut words = |label: &str, a: u64, b: u32| player.create_buffer(label, a * u64::from(b) * 4);
        Ok(Self {
            logits,
            history: words("history", u64::from(sizes.slots), sizes.context)?,
            records: words("sample records", u64::from(sizes.rows_max), RECORD_WORDS[2])?,
            jobs: words("sample jobs", jobs, Job::BYTES / 4)?,
            partials: words("sample partials", jobs * u64::from(sizes.chunks()), PARTIAL_WORDS)?,
            lists: words("sample lists", u64::from(sizes.lists()), 2 * LIST_ITEMS)?,
            heads: words("sample heads", u64::from(sizes.lists()), 1)?,
            counts: words("sample counts", u64::from(PENALISED_ROWS), sizes.dim)?,
            bias: words("sample bias", u64::from(sizes.rows_max), 2 * LOGIT_BIAS_MAX)?,
        })
    }

    /// All but the logits, to be dropped.
    #[must_use]
    pub fn own(&self) -> [BufferId; 8] {
        [self.history, self.records, self.jobs, self.partials, self.lists, self.heads, self.counts, self.bias]
    }
}

/// What one row yielded.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// The id, or [`super::argmax::NOT_FINITE`] where a logit is NaN or infinite.
    pub id: u32,
    /// Natural log of its probability by the model's own logits, where it was asked for.
    pub logprob: Option<f32>,
    /// The likeliest ids and their logprobs, falling, ties by id; as many as asked for, or the whole vocabulary.
    pub top: Vec<(u32, f32)>,
}

/// What a recording will have left in [`Buffers::records`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    record_words: u32,
    /// Per row, what it asked for.
    logprobs: Vec<Option<u32>>,
}

impl Answer {
    /// Bytes to read from the start of the records.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.logprobs.len() as u64 * u64::from(self.record_words) * 4
    }

    /// Rows that were recorded.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.logprobs.len()
    }

    /// What row `row` of the recorded ones yielded; `words` are the words read.
    #[must_use]
    pub fn sampled(&self, words: &[u32], row: usize) -> Sampled {
        let count = self.record_words as usize;
        let record = &words[row * count..][..count];
        let id = record[0];
        let Some(tops) = self.logprobs[row].filter(|_| id != super::argmax::NOT_FINITE) else {
            return Sampled { id, logprob: None, top: Vec::new() };
        };
        let tops = if tops == 0 { 0 } else { record[5].min(tops) as usize };
        let logprob = |bits| logprob(bits, record[2], u64::from(record[4]) << 32 | u64::from(record[3]));
        let pairs = record[8.min(count)..].chunks_exact(2).take(tops);
        Sampled { id, logprob: Some(logprob(record[1])), top: pairs.map(|pair| (pair[0], logprob(pair[1]))).collect() }
    }
}

/// Log-softmax of a logit, given the largest one's bits and the row's mass in units of 2^-31 of that one's.
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a mass has at most 52 bits")]
fn logprob(bits: u32, top: u32, mass: u64) -> f32 {
    let below = f64::from(f32::from_bits(bits)) - f64::from(f32::from_bits(top));
    (below - (mass as f64 / f64::from(1_u32 << 31)).ln()) as f32
}

/// Jobs that run together, and which launches they need.
#[derive(Debug, Default, Clone, Copy)]
struct Wave {
    first_job: u32,
    jobs: u32,
    penalised: u32,
    lists: u32,
    masses: bool,
    /// Tokens of the longest history that is counted.
    counted: u32,
}

#[derive(Debug, Default)]
struct Plan {
    jobs: Vec<Job>,
    bias: Vec<[u32; 2]>,
    waves: Vec<Wave>,
}

/// Records the sampling of `rows`, whose records will lie in their order. Their logits have been recorded before. Nothing is
/// read back: `tape.read(buffers.records, 0, answer.bytes())` does.
pub fn record(tape: &mut Tape, sizes: Sizes, buffers: &Buffers, rows: &[Row<'_>]) -> Answer {
    let count = u32::try_from(rows.len()).expect("rows of a step");
    assert!(count <= sizes.rows_max, "{count} rows to sample, room for {}", sizes.rows_max);
    assert!(sizes.stride >= sizes.dim && sizes.dim > 0, "rows of {} logits, stride {}", sizes.dim, sizes.stride);
    let level = rows.iter().map(|row| row.logprobs.map_or(0, |tops| 1 + usize::from(tops > 0))).max().unwrap_or(0);
    let record_words = RECORD_WORDS[level];
    let mut plan = Plan::default();
    for (at, row) in (0..).zip(rows) {
        plan.add(sizes, at, row);
    }
    tape.upload(buffers.jobs, 0, &plan.jobs);
    tape.upload(buffers.bias, 0, &plan.bias);
    for wave in &plan.waves {
        record_wave(tape, sizes, buffers, *wave, record_words);
    }
    Answer { record_words, logprobs: rows.iter().map(|row| row.logprobs).collect() }
}

impl Plan {
    fn add(&mut self, sizes: Sizes, record: u32, row: &Row<'_>) {
        check(sizes, row);
        let rules = row.rules;
        self.open_wave(u32::from(rules.penalised()), u32::from(rules.listed()));
        let at = self.next();
        let draw = self.draw_job(sizes, record, at, row);
        self.push(draw, if rules.counted() { row.position } else { 0 });
        let Some(tops) = row.logprobs else { return };
        self.open_wave(0, u32::from(tops > 0));
        let scan = if rules.penalised() { self.next() } else { at };
        let mut raw = Job { scan, ..self.job(record, row) };
        raw.flags = RAW;
        raw.scale = scale(1.0);
        if tops > 0 {
            raw.flags |= LIST;
            raw.list = self.wave().lists;
            // As many as any row may ask for, so that no other row's wish is seen in this one's record.
            raw.top_k = LOGPROBS_MAX;
        }
        self.push(raw, 0);
    }

    fn next(&self) -> u32 {
        u32::try_from(self.jobs.len()).expect("two a row")
    }

    fn wave(&self) -> Wave {
        *self.waves.last().expect("opened before")
    }

    /// Starts another wave if the last one has no room.
    fn open_wave(&mut self, penalised: u32, lists: u32) {
        let fits = |wave: &Wave| wave.penalised + penalised <= PENALISED_ROWS && wave.lists + lists <= LISTED_ROWS;
        if !self.waves.last().is_some_and(fits) {
            self.waves.push(Wave { first_job: self.next(), ..Wave::default() });
        }
    }

    fn push(&mut self, job: Job, counted: u32) {
        let wave = self.waves.last_mut().expect("opened before");
        wave.jobs += 1;
        wave.penalised += u32::from(job.flags & PENALISED != 0);
        wave.lists += u32::from(job.flags & LIST != 0);
        wave.masses |= job.flags & GREEDY == 0;
        wave.counted = wave.counted.max(counted);
        self.jobs.push(job);
    }

    /// A job over the row as the model wrote it, with no rule on.
    fn job(&self, record: u32, row: &Row<'_>) -> Job {
        Job {
            flags: 0,
            row: row.logits_row,
            source: row.logits_row,
            scan: 0,
            record,
            list: 0,
            scratch: 0,
            slot: row.slot,
            position: row.position,
            prompt_tokens: row.prompt_tokens,
            top_k: NONE,
            top_p: NONE,
            min_p: NONE,
            scale: 0.0,
            seed_low: low(row.seed),
            seed_high: high(row.seed),
            choice: row.choice,
            bias_start: 0,
            bias_count: 0,
            repetition: 1.0,
            repetition_inverse: 1.0,
            frequency: 0.0,
            presence: 0.0,
            pad0: 0,
        }
    }

    fn draw_job(&mut self, sizes: Sizes, record: u32, scan: u32, row: &Row<'_>) -> Job {
        let rules = row.rules;
        let mut job = Job { scan, ..self.job(record, row) };
        if rules.greedy() {
            job.flags |= GREEDY;
        } else {
            job.scale = scale(rules.temperature);
            job.min_p = min_p_distance(rules.min_p);
            job.top_k = rules.top_k.unwrap_or(NONE);
            job.top_p = fraction(rules.top_p);
        }
        if rules.listed() {
            job.flags |= LIST;
            job.list = self.wave().lists;
        }
        if rules.penalised() {
            job.flags |= PENALISED | if rules.repetition == 1.0 { 0 } else { REPETITION };
            job.scratch = self.wave().penalised;
            job.row = sizes.logit_rows + job.scratch;
            (job.repetition, job.repetition_inverse) = (rules.repetition, 1.0 / rules.repetition);
            (job.frequency, job.presence) = (rules.frequency, rules.presence);
            let length = |entries: usize| u32::try_from(entries).expect("bounded a row");
            job.bias_start = length(self.bias.len());
            self.bias.extend(rules.bias.iter().map(|&(id, value)| [id, value.to_bits()]));
            job.bias_count = length(rules.bias.len());
        }
        job
    }
}

/// Asserts what the caller promised.
fn check(sizes: Sizes, row: &Row<'_>) {
    let rules = row.rules;
    assert!(row.logits_row < sizes.logit_rows, "row {} of {} rows of logits", row.logits_row, sizes.logit_rows);
    assert!(row.slot < sizes.slots, "slot {} of {}", row.slot, sizes.slots);
    assert!(row.position <= sizes.context, "{} tokens in a context of {}", row.position, sizes.context);
    assert!(row.logprobs.is_none_or(|tops| tops <= LOGPROBS_MAX), "{:?} logprobs", row.logprobs);
    assert!(rules.bias.len() <= LOGIT_BIAS_MAX as usize, "{} biased ids", rules.bias.len());
    assert!(rules.bias.iter().all(|(id, value)| *id < sizes.dim && value.is_finite()), "bias {:?}", rules.bias);
    assert!(rules.temperature >= 0.0 && rules.temperature.is_finite(), "temperature {}", rules.temperature);
    assert!(rules.repetition > 0.0 && rules.repetition.is_finite(), "repetition penalty {}", rules.repetition);
    assert!(rules.frequency.is_finite() && rules.presence.is_finite(), "{} {}", rules.frequency, rules.presence);
    assert!(rules.top_k != Some(0) && rules.top_p > 0.0, "top-k {:?}, top-p {}", rules.top_k, rules.top_p);
    assert!((0.0..=1.0).contains(&rules.min_p), "min-p {}", rules.min_p);
}

/// Octaves times 2^24 a unit of logit.
#[allow(clippy::cast_possible_truncation, reason = "a param")]
fn scale(temperature: f32) -> f32 {
    (std::f64::consts::LOG2_E / f64::from(temperature) * f64::from(OCTAVE)) as f32
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn min_p_distance(min_p: f32) -> u32 {
    if min_p > 0.0 { (-f64::from(min_p).log2() * f64::from(OCTAVE)) as u32 } else { NONE }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn fraction(top_p: f32) -> u32 {
    if top_p < 1.0 { ((f64::from(top_p) * 4_294_967_296.0) as u32).clamp(1, NONE - 1) } else { NONE }
}

fn record_wave(tape: &mut Tape, sizes: Sizes, buffers: &Buffers, wave: Wave, record_words: u32) {
    let Buffers { logits, history, records, jobs, partials, lists, heads, counts, bias } = *buffers;
    let history_chunks = wave.counted.div_ceil(CHUNK);
    let mut launch = |stage: Stage, groups_a_job: u32, bindings: &[BufferId]| {
        let workgroups = wave.jobs * groups_a_job;
        let grid = fold(u64::from(workgroups));
        let params = Params {
            first_job: wave.first_job,
            job_count: wave.jobs,
            chunks: sizes.chunks(),
            dim: sizes.dim,
            stride: sizes.stride,
            context: sizes.context,
            record_words,
            history_chunks,
            workgroups,
            grid_x: grid[0],
            zero: 0,
            pad0: 0,
        };
        tape.dispatch(Kernel::Sample(stage), bindings, &params, grid);
    };
    let chunks = sizes.chunks();
    if history_chunks > 0 {
        launch(Stage::Count, history_chunks, &[jobs, history, counts]);
    }
    if wave.penalised > 0 {
        launch(Stage::Penalise, chunks, &[logits, jobs, counts, bias]);
    }
    launch(Stage::Scan, chunks, &[logits, jobs, partials]);
    if wave.masses {
        launch(Stage::Mass, chunks, &[logits, jobs, partials, heads]);
    }
    if wave.lists > 0 {
        launch(Stage::Gather, chunks, &[logits, jobs, partials, lists, heads]);
    }
    launch(Stage::Choose, 1, &[logits, jobs, partials, lists, heads, records, history]);
}

const _: () = assert!(LISTED_ROWS as u64 * LIST_ITEMS as u64 * 8 <= limits::BASE_BINDING_BYTES);
const _: () = assert!(
    PENALISED_ROWS as u64 * limits::VOCAB_MAX as u64 * 4 <= limits::BASE_BINDING_BYTES,
    "counts of the largest vocabulary fit a binding"
);

/// Name and byte offset of each field of a job, for the test that compares them with the WGSL.
pub const JOB_FIELDS: &[(&str, u32)] = Job::FIELDS;
