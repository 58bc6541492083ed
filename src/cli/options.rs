//! What was meant: flags checked against each other and turned into numbers. Everything wrong here exits with 2.

use std::path::{Path, PathBuf};

use super::args::{
    ActivationsArg, AdapterArgs, BenchArgs, KvTypeArg, ModelArgs, OutputArg, QuantizeArg, RunArgs, ScoreArgs, TierArg,
    TuneArg,
};
use super::sampling_args::SamplingArgs;
use crate::engine::sampling::SamplingParams;
use crate::engine::tune::Level;
use crate::error::{Error, Result};
use crate::format::quantize::Quantize;
use crate::kernels::plan::Activations;
use crate::kernels::{KvType, Tier};
use crate::limits::SEQS_MAX;

/// Which adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DeviceChoice {
    /// A place in the list of `twostroke devices`, or a part of a name; `None` for the best there is.
    Adapter(Option<String>),
    /// The CPU twin: no adapter at all.
    Twin,
}

/// Where it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AdapterOptions {
    /// Which adapter.
    pub(super) device: DeviceChoice,
    /// The tier asked for; `None` for the best there is.
    pub(super) tier: Option<Tier>,
    /// Keep the driver's bounds checks.
    pub(super) checked_shaders: bool,
}

/// What to load, and how.
#[derive(Debug, Clone)]
pub(super) struct ModelOptions {
    /// `--model`, as typed.
    pub(super) model: Option<String>,
    /// `--tokenizer`.
    pub(super) tokenizer: Option<PathBuf>,
    /// Where it runs.
    pub(super) adapter: AdapterOptions,
    /// How K and V are stored.
    pub(super) kv: KvType,
    /// Bound of the KV pool.
    pub(super) kv_bytes: Option<u64>,
    /// What products take of their activations.
    pub(super) activations: Activations,
    /// What is timed at first use of an adapter.
    pub(super) tune: Level,
    /// What float weights become.
    pub(super) quantize: Option<Quantize>,
    /// Context to serve.
    pub(super) context_tokens: Option<u32>,
    /// Most tokens of one step.
    pub(super) step_tokens: u32,
    /// Largest prefill chunk, when the user chose one.
    pub(super) chunk_tokens: Option<u32>,
    /// Longest that one submit should keep the device.
    pub(super) max_submit_nanos: u64,
    /// Seed of what is drawn at random, when the user chose one.
    pub(super) seed: Option<u64>,
    /// Where the trace goes.
    pub(super) trace: Option<PathBuf>,
}

/// Where the prompt of `run` comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PromptSource {
    /// `-p`.
    Text(String),
    /// `-f`.
    File(PathBuf),
    /// A pipe.
    Stdin,
    /// A person.
    Chat,
}

/// `run`.
#[derive(Debug, Clone)]
pub(super) struct RunOptions {
    /// What to load.
    pub(super) model: ModelOptions,
    /// Where the prompt comes from.
    pub(super) prompt: PromptSource,
    /// System message.
    pub(super) system: Option<String>,
    /// No template.
    pub(super) raw: bool,
    /// Most tokens of the answer; `None` is the room left.
    pub(super) max_tokens: Option<u32>,
    /// How tokens are chosen, as far as flags say.
    pub(super) sampling: SamplingParams,
    /// The flags that said it.
    pub(super) sampling_flags: SamplingArgs,
    /// Stop strings.
    pub(super) stops: Vec<String>,
    /// Go on after an end token.
    pub(super) ignore_eos: bool,
    /// One JSON object.
    pub(super) json: bool,
}

/// `score`.
#[derive(Debug, Clone)]
pub(super) struct ScoreOptions {
    /// What to load.
    pub(super) model: ModelOptions,
    /// File, or `-`.
    pub(super) input: PathBuf,
    /// Logits of the last position to print.
    pub(super) top: usize,
    /// JSON Lines rather than a table.
    pub(super) json: bool,
}

/// One test of `bench`: prefill, decode, or one after the other, behind `depth` tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BenchTest {
    /// Tokens to prefill.
    pub(super) n_prompt: u32,
    /// Tokens to decode.
    pub(super) n_gen: u32,
    /// Tokens that are there before.
    pub(super) n_depth: u32,
    /// Streams side by side.
    pub(super) n_parallel: u32,
}

impl BenchTest {
    /// Tokens that a stream holds at the end.
    #[must_use]
    pub(super) fn tokens(self) -> u64 {
        u64::from(self.n_prompt)
            + u64::from(self.n_gen)
            + u64::from(self.n_depth)
            + u64::from(self.n_prompt + self.n_depth == 0)
    }
}

/// `bench`.
#[derive(Debug, Clone)]
pub(super) struct BenchOptions {
    /// What to load.
    pub(super) model: ModelOptions,
    /// The tests, in order.
    pub(super) tests: Vec<BenchTest>,
    /// Repetitions of each.
    pub(super) repetitions: u32,
    /// How to print.
    pub(super) output: OutputArg,
    /// Run each test once before measuring.
    pub(super) warmup: bool,
    /// Where the cost model goes.
    pub(super) fit: Option<PathBuf>,
    /// A row a kernel instead of a row a test.
    pub(super) kernels: bool,
}

impl AdapterOptions {
    /// # Errors
    /// `Usage` for a device that is none, or a tier that the twin does not play.
    pub(super) fn new(args: &AdapterArgs) -> Result<Self> {
        let tier = match args.tier {
            TierArg::Auto => None,
            TierArg::Base => Some(Tier::Base),
            TierArg::Subgroup => Some(Tier::Subgroup),
            TierArg::Matrix => Some(Tier::Matrix),
        };
        let device = match args.device.as_deref() {
            Some("twin") => DeviceChoice::Twin,
            Some("") => {
                return Err(Error::Usage("--device: expected a number, a part of a name or twin, got nothing".into()));
            }
            wanted => DeviceChoice::Adapter(wanted.map(str::to_owned)),
        };
        if device == DeviceChoice::Twin && tier == Some(Tier::Subgroup) {
            return Err(Error::Usage("--device twin has the tiers base and matrix, got --tier subgroup".into()));
        }
        Ok(Self { device, tier, checked_shaders: args.checked_shaders })
    }
}

impl ModelOptions {
    /// # Errors
    /// `Usage` for a flag that makes no sense.
    pub(super) fn new(args: &ModelArgs) -> Result<Self> {
        let kv = match args.kv_type {
            KvTypeArg::F16 => KvType::F16,
            KvTypeArg::F32 => KvType::F32,
            KvTypeArg::Q8 => KvType::Q8,
        };
        if args.model.as_deref() == Some("") {
            return Err(Error::Usage("--model: expected a file, a folder, hf:ORG/REPO or toy, got nothing".into()));
        }
        let adapter = AdapterOptions::new(&args.adapter)?;
        if adapter.tier == Some(Tier::Matrix) && matches!(args.activations, ActivationsArg::Int8) {
            let message =
                "--activations int8 is for the tiers base and subgroup, got --tier matrix: its products take halves";
            return Err(Error::Usage(message.into()));
        }
        Ok(Self {
            model: args.model.clone(),
            tokenizer: args.tokenizer.clone(),
            adapter,
            kv,
            kv_bytes: args.kv_memory.as_deref().map(bytes_from_text).transpose()?,
            activations: match args.activations {
                ActivationsArg::F32 => Activations::F32,
                ActivationsArg::Int8 => Activations::Int8,
            },
            tune: match args.tune {
                TuneArg::Off => Level::Off,
                TuneArg::Fast => Level::Fast,
                TuneArg::Full => Level::Full,
            },
            quantize: args.quantize.map(|quantize| match quantize {
                QuantizeArg::Int8 => Quantize::Int8,
                QuantizeArg::Int4 => Quantize::Int4,
            }),
            context_tokens: args.max_model_len,
            step_tokens: args.max_num_batched_tokens,
            chunk_tokens: args.long_prefill_token_threshold,
            max_submit_nanos: args.max_submit_ms * 1_000_000,
            seed: args.seed,
            trace: args.trace.clone(),
        })
    }
}

impl RunOptions {
    /// `stdin_is_terminal` decides between a pipe and a chat when neither -p nor -f is given.
    ///
    /// # Errors
    /// `Usage` for a flag that makes no sense.
    pub(super) fn new(args: &RunArgs, stdin_is_terminal: bool) -> Result<Self> {
        let prompt = match (&args.prompt, &args.file) {
            (Some(text), _) => PromptSource::Text(text.clone()),
            (None, Some(path)) if path == Path::new("-") => PromptSource::Stdin,
            (None, Some(path)) => PromptSource::File(path.clone()),
            (None, None) if stdin_is_terminal => PromptSource::Chat,
            (None, None) => PromptSource::Stdin,
        };
        if prompt == PromptSource::Chat {
            let flag = if args.raw { Some("--raw") } else { args.json.then_some("--json") };
            if let Some(flag) = flag {
                return Err(Error::Usage(format!("{flag} takes a prompt from -p, -f or a pipe; a chat has neither")));
            }
        }
        if args.stop.iter().any(String::is_empty) {
            return Err(Error::Usage("--stop: expected a text, got nothing".into()));
        }
        Ok(Self {
            model: ModelOptions::new(&args.model)?,
            prompt,
            system: args.system.clone(),
            raw: args.raw,
            max_tokens: args.max_tokens,
            sampling: args.sampling.meant(args.model.seed)?,
            sampling_flags: args.sampling.clone(),
            stops: args.stop.clone(),
            ignore_eos: args.ignore_eos,
            json: args.json,
        })
    }
}

impl ScoreOptions {
    /// # Errors
    /// `Usage` for a flag that makes no sense.
    pub(super) fn new(args: &ScoreArgs, stdout_is_terminal: bool) -> Result<Self> {
        Ok(Self {
            model: ModelOptions::new(&args.model)?,
            input: args.input.clone(),
            top: args.top as usize,
            json: args.json || !stdout_is_terminal,
        })
    }
}

impl BenchOptions {
    /// # Errors
    /// `Usage` for a list that is none, or no test at all.
    pub(super) fn new(args: &BenchArgs) -> Result<Self> {
        let prompts = numbers("-p", &args.n_prompt)?;
        let gens = numbers("-n", &args.n_gen)?;
        let parallel = numbers("--parallel", &args.parallel)?;
        if let Some(bad) = parallel.iter().find(|&&n| n == 0 || n > SEQS_MAX) {
            return Err(Error::Usage(format!("--parallel: expected 1 to {SEQS_MAX} streams, got {bad}")));
        }
        let pairs = args.pg.iter().map(|text| pair(text)).collect::<Result<Vec<_>>>()?;
        let mut tests = Vec::new();
        for n_depth in numbers("-d", &args.n_depth)? {
            for &n_parallel in &parallel {
                let whole =
                    prompts.iter().map(|&p| (p, 0)).chain(gens.iter().map(|&n| (0, n))).chain(pairs.iter().copied());
                let whole = whole.filter(|&test| test != (0, 0));
                tests.extend(whole.map(|(n_prompt, n_gen)| BenchTest { n_prompt, n_gen, n_depth, n_parallel }));
            }
        }
        if tests.is_empty() && args.fit.is_none() {
            return Err(Error::Usage("nothing to measure: -p and -n are both 0 and there is no -pg".into()));
        }
        Ok(Self {
            model: ModelOptions::new(&args.model)?,
            tests,
            repetitions: args.repetitions,
            output: if args.json { OutputArg::Json } else { args.output },
            warmup: !args.no_warmup,
            fit: args.fit.clone(),
            kernels: args.kernels,
        })
    }
}

/// `64MiB`, `2GiB`, `1.5G`, `100MB` or plain bytes.
fn bytes_from_text(text: &str) -> Result<u64> {
    let wrong = || Error::Usage(format!("--kv-memory: expected bytes or a size such as 64MiB, got {text}"));
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        _ => return Err(wrong()),
    };
    let bytes = match number.split_once('.') {
        None => number.parse::<u64>().ok().and_then(|n| n.checked_mul(factor)),
        Some((whole, part)) => fraction(whole, part, factor),
    };
    bytes.filter(|&n| n > 0).ok_or_else(wrong)
}

/// `whole.part × factor`, in integers; at most nine digits behind the point.
fn fraction(whole: &str, part: &str, factor: u64) -> Option<u64> {
    let scale = 10_u64.checked_pow(u32::try_from(part.len()).ok().filter(|&n| (1..=9).contains(&n))?)?;
    let whole = whole.parse::<u64>().ok()?.checked_mul(factor)?;
    let part = part.parse::<u64>().ok()?.checked_mul(factor)? / scale;
    whole.checked_add(part)
}

/// Numbers and ranges `first-last`, `first-last+step`, `first-last*factor`, as llama-bench takes them.
fn numbers(flag: &str, texts: &[String]) -> Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for text in texts {
        let wrong = || Error::Usage(format!("{flag}: expected a number or a range such as 128-512+128, got {text}"));
        let Some((first, rest)) = text.split_once('-') else {
            numbers.push(text.trim().parse().map_err(|_| wrong())?);
            continue;
        };
        let at = rest.find(['+', '*']).unwrap_or(rest.len());
        let (last, step) = rest.split_at(at);
        let first: u32 = first.trim().parse().map_err(|_| wrong())?;
        let last: u32 = last.trim().parse().map_err(|_| wrong())?;
        let by: u32 = if step.is_empty() { 1 } else { step[1..].trim().parse().map_err(|_| wrong())? };
        let multiplies = step.starts_with('*');
        if first > last || by < 1 + u32::from(multiplies) || (multiplies && first == 0) {
            return Err(wrong());
        }
        let next = |n: u32| if multiplies { n.checked_mul(by) } else { n.checked_add(by) };
        let range = std::iter::successors(Some(first), |&n| next(n)).take_while(|&n| n <= last);
        let before = numbers.len();
        numbers.extend(range.take(RANGE_MAX + 1));
        if numbers.len() - before > RANGE_MAX {
            return Err(Error::Usage(format!("{flag}: {text} has more than {RANGE_MAX} values")));
        }
    }
    Ok(numbers)
}

/// Values that one range of `bench` may have.
const RANGE_MAX: usize = 1000;

fn pair(text: &str) -> Result<(u32, u32)> {
    let wrong = || Error::Usage(format!("-pg: expected two numbers such as 512,128, got {text}"));
    let (p, n) = text.split_once(',').ok_or_else(wrong)?;
    Ok((p.trim().parse().map_err(|_| wrong())?, n.trim().parse().map_err(|_| wrong())?))
}

#[cfg(test)]
mod tests {
    use super::{bytes_from_text, numbers};

    #[test]
    fn sizes_are_bytes_or_carry_a_unit() {
        let check = |text, want: Option<u64>| assert_eq!(bytes_from_text(text).ok(), want, "{text}");
        check("1048576", Some(1 << 20));
        check("64MiB", Some(64 << 20));
        check("64mib", Some(64 << 20));
        check("2G", Some(2 << 30));
        check("1.5 GiB", Some(3 << 29));
        check("100MB", Some(100_000_000));
        for text in ["", "0", "MiB", "-5", "1.GiB", "64 apples", "99999999999TiB", "1e9", "1.2.3M"] {
            check(text, None);
        }
    }

    #[test]
    fn lists_are_llama_benchs() {
        let check = |text: &str, want: Option<&[u32]>| {
            let texts: Vec<String> = text.split(',').map(str::to_owned).collect();
            assert_eq!(numbers("-p", &texts).ok().as_deref(), want, "{text}");
        };
        check("512", Some(&[512]));
        check("0,8", Some(&[0, 8]));
        check("1-3", Some(&[1, 2, 3]));
        check("128-512+128", Some(&[128, 256, 384, 512]));
        check("128-512*2", Some(&[128, 256, 512]));
        for text in ["", "x", "5-1", "1-5+0", "1-5*1", "0-5*2", "1-", "-3", "4294967296", "1-4000000000"] {
            check(text, None);
        }
    }
}
