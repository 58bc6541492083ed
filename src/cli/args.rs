//! What was typed: the flags as clap reads them. What they mean is `options`'.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::batch_args::BatchArgs;
use super::replay_args::WorkloadArgs;
use super::run_batch_args::RunBatchArgs;
use super::sampling_args::SamplingArgs;
use super::serve_args::ServeArgs;

const EXAMPLES: &str = "\
Examples:
  twostroke run                                  chat with the default model
  twostroke run -p \"Why is the sky blue?\"        one answer, streamed
  git diff | twostroke run --system \"Review it\"  a prompt from a pipe
  twostroke bench -p 512 -n 128                  prefill and decode speed, as llama-bench measures it
  twostroke replay --num-prompts 32 --ignore-eos many requests at once: TTFT, TPOT, throughput
  twostroke serve                                OpenAI's API at http://127.0.0.1:8080
  twostroke devices                              what adapters there are and what they can do

Without --model the default model is used (SmolLM2-135M-Instruct Q4_1, 98 MB); `twostroke fetch` gets it.
--model toy needs no download: 7 MB of fluent nonsense, packed into this program.
Exit status: 0 done, 1 failed, 2 wrong usage.";

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "twostroke",
    version,
    about = "An LLM engine on wgpu: prefill and decode on any GPU that Vulkan, Metal or DX12 can reach",
    after_help = EXAMPLES,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(super) struct CommandLine {
    /// What to do.
    #[command(subcommand)]
    pub(super) command: Command,
    /// Say more on stderr: -v what is loaded where, -vv each request, -vvv each step. `TWOSTROKE_LOG` takes a filter such
    /// as `twostroke::gpu=debug` instead
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub(super) verbose: u8,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Answer a prompt, or chat on a terminal
    Run(RunArgs),
    /// Log-probabilities of given texts: nll a token, argmax a position, top logits of the last one
    Score(ScoreArgs),
    /// Measure prefill and decode speed, with llama-bench's flags and fields
    Bench(BenchArgs),
    /// Play a workload of many requests, with the flags, datasets and fields of vLLM's benchmark
    Replay(ReplayArgs),
    /// Play a workload in virtual time: what `replay` would measure on the machine of a cost model
    Sim(SimArgs),
    /// List adapters, their limits, features and tiers
    Devices(DevicesArgs),
    /// Download a model into the cache and print its path
    Fetch(FetchArgs),
    /// Look at a trace: convert it for Perfetto, or sum it up
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Answer a file of requests in OpenAI's batch format, all at once
    RunBatch(RunBatchArgs),
    /// Serve OpenAI's API: chat and completions, streamed or not, for many clients at once
    Serve(ServeArgs),
}

/// Flags of all commands that load a model.
#[derive(Debug, Args)]
pub(super) struct ModelArgs {
    /// Model: a .gguf file, a Hugging Face folder, hf:ORG/REPO[:FILE], `toy`, or for `bench` random:135M, random:1B, random:8B; absent: the
    /// default model
    #[arg(short, long, value_name = "MODEL")]
    pub(super) model: Option<String>,
    /// tokenizer.json, where the model's folder holds none
    #[arg(long, value_name = "FILE")]
    pub(super) tokenizer: Option<PathBuf>,
    #[command(flatten)]
    pub(super) adapter: AdapterArgs,
    /// How keys and values are stored
    #[arg(long, value_enum, default_value_t = KvTypeArg::F16, value_name = "TYPE")]
    pub(super) kv_type: KvTypeArg,
    /// What products take of their activations: floats, or bytes with a scale per 32 values, which is faster and less accurate. Float
    /// weights always take floats
    #[arg(long, value_enum, default_value_t = ActivationsArg::F32, value_name = "TYPE")]
    pub(super) activations: ActivationsArg,
    /// What is timed at first use of an adapter (by run behind its first answer), to choose among kernels that give the same bits:
    /// nothing; those that matter most, on hardware; or all that have a choice. Products and attention are checked against the CPU
    /// before use whatever this says
    #[arg(long, value_enum, default_value_t = TuneArg::Fast, value_name = "HOW")]
    pub(super) tune: TuneArg,
    /// Quantize float weights (F16, BF16, F32) while they are loaded; embedding and head stay at 8 bits. Weights that come
    /// quantized are left alone
    #[arg(long, value_enum, value_name = "BITS")]
    pub(super) quantize: Option<QuantizeArg>,
    /// Most memory for keys and values: bytes, or 64MiB, 2GiB
    #[arg(long, value_name = "SIZE")]
    pub(super) kv_memory: Option<String>,
    /// Context in tokens, prompt and answer together: the model's own, or less
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) max_model_len: Option<u32>,
    /// Most tokens of one step
    #[arg(long, value_name = "N", default_value_t = crate::limits::BATCHED_TOKENS_DEFAULT, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) max_num_batched_tokens: u32,
    /// Largest prefill chunk in tokens; absent: what suits the adapter. The logits do not depend on it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) long_prefill_token_threshold: Option<u32>,
    /// Longest that one submit should keep the device: steps that are predicted to last longer are cut, so that a desktop on the same
    /// card stays responsive
    #[arg(long, value_name = "MS", default_value_t = crate::limits::MAX_SUBMIT_MS, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub(super) max_submit_ms: u64,
    /// Seed of everything drawn at random (greedy answers draw nothing)
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,
    /// Write every arrival, step and finish to this file as JSON Lines; see `twostroke trace`
    #[arg(long, value_name = "FILE")]
    pub(super) trace: Option<PathBuf>,
}

/// Flags that choose where it runs.
#[derive(Debug, Args)]
pub(super) struct AdapterArgs {
    /// Adapter: its number or a part of its name as `twostroke devices` lists them, or `twin` for the CPU reference;
    /// absent: discrete before integrated before software
    #[arg(long, value_name = "N|NAME|twin")]
    pub(super) device: Option<String>,
    /// What the shaders may use
    #[arg(long, value_enum, default_value_t = TierArg::Auto, value_name = "TIER")]
    pub(super) tier: TierArg,
    /// Keep the driver's bounds checks in the shaders
    #[arg(long)]
    pub(super) checked_shaders: bool,
}

/// `--tier`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum TierArg {
    /// The best that the adapter has
    Auto,
    /// WebGPU's default limits and no optional feature
    Base,
    /// Subgroups of at least 8 lanes
    Subgroup,
    /// Cooperative matrices: prompts as products of halves, where the adapter has them; new, and never taken by auto
    Matrix,
}

/// `--quantize`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum QuantizeArg {
    /// 8 bits and a scale per 32 weights
    Int8,
    /// 4 bits, a scale and a minimum per 32 weights
    Int4,
}

/// `--tune`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum TuneArg {
    /// Nothing
    Off,
    /// Products of one row and of many, once an adapter, driver and version; a software driver's order is known
    Fast,
    /// All kernels that have a choice
    Full,
}

/// `--activations`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ActivationsArg {
    /// Single floats
    F32,
    /// Bytes, a scale per 32 values
    Int8,
}

/// `--kv-type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum KvTypeArg {
    /// Halves
    F16,
    /// Single floats: twice the memory
    F32,
    /// Bytes, a scale per token, head and 32 values: half the memory of f16
    Q8,
}

/// `run`.
#[derive(Debug, Args)]
#[command(after_help = "\
The prompt comes from -p, from -f FILE, from stdin when that is not a terminal, or from you in a chat: on a terminal without
-p or -f. In the chat, /clear forgets the conversation, /exit or Ctrl-D leaves; Ctrl-C stops the answer, twice leaves.

Examples:
  twostroke run -p \"Name three primary colours.\"
  twostroke run --raw -p \"Once upon a time\" --max-tokens 64 --stop \"The End\"
  twostroke run --json -f question.txt | jq .text
  twostroke run --model hf:Qwen/Qwen3-0.6B --device 0

The prompt is never cut: one that exceeds the context is refused. After the answer one line on stderr tells TTFT (time from
the request to its first token), prefill rate, TPOT (time per output token after the first), decode rate, adapter and tier.")]
pub(super) struct RunArgs {
    /// The prompt
    #[arg(short, long, value_name = "TEXT", conflicts_with = "file", allow_hyphen_values = true)]
    pub(super) prompt: Option<String>,
    /// Read the prompt from a file. Without --raw one newline at its end is dropped, as for stdin
    #[arg(short, long, value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
    /// System message of the chat template
    #[arg(long, value_name = "TEXT", conflicts_with = "raw", allow_hyphen_values = true)]
    pub(super) system: Option<String>,
    /// Take the prompt as it is, without chat template; control tokens such as <|im_start|> in it are parsed
    #[arg(long)]
    pub(super) raw: bool,
    /// Most tokens of the answer; absent: the room left in the context
    #[arg(long, short = 'n', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) max_tokens: Option<u32>,
    /// End the answer in front of this text; may be given several times
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(super) stop: Vec<String>,
    /// Go on after an end token, up to --max-tokens
    #[arg(long)]
    pub(super) ignore_eos: bool,
    /// Print one JSON object instead of streaming text
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten, next_help_heading = "Sampling")]
    pub(super) sampling: SamplingArgs,
    #[command(flatten, next_help_heading = "Model and adapter")]
    pub(super) model: ModelArgs,
}

/// `score`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each line of the input is {\"text\": \"...\"} (encoded as `run --raw` does) or {\"ids\": [1, 2, 3]} (needs no tokenizer).
Each line of the output answers one of the input: ids, nll (of ids[i+1] after ids[..=i]), mean_nll, argmax (after each
id), top_ids and top_logits (after the last id). On a terminal without --json a short table is printed instead.

Example:
  echo '{\"text\": \"The capital of France is Paris\"}' | twostroke score --input - --top 5 --json")]
pub(super) struct ScoreArgs {
    /// JSON Lines to score; - is stdin
    #[arg(long, short, value_name = "FILE")]
    pub(super) input: PathBuf,
    /// How many logits of the last position to print
    #[arg(long, value_name = "K", default_value_t = 10)]
    pub(super) top: u32,
    /// Print JSON Lines also on a terminal
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten, next_help_heading = "Model and adapter")]
    pub(super) model: ModelArgs,
}

/// `bench`.
#[derive(Debug, Args)]
#[command(after_help = "\
Lists are as llama-bench takes them: -p 128,512 or -p 128 -p 512, and ranges first-last+step or first-last*factor. 0 leaves
a test out. pp512 is prefill of 512 tokens, tg128 is 128 decode steps, both alone in the batch; @ d1024 behind 1024 tokens.

Examples:
  twostroke bench
  twostroke bench -p 128,512 -n 32 -d 0,4096 -r 3 -o json")]
pub(super) struct BenchArgs {
    /// Prompt lengths to prefill
    #[arg(short = 'p', long, value_name = "N", default_value = "512", value_delimiter = ',')]
    pub(super) n_prompt: Vec<String>,
    /// Numbers of tokens to generate
    #[arg(short = 'n', long, value_name = "N", default_value = "128", value_delimiter = ',')]
    pub(super) n_gen: Vec<String>,
    /// Prompt and generation in one test; may be given several times (also as -pg)
    #[arg(long = "pg", value_name = "PP,TG")]
    pub(super) pg: Vec<String>,
    /// Tokens that are in the KV cache before the test starts
    #[arg(short = 'd', long, value_name = "N", default_value = "0", value_delimiter = ',')]
    pub(super) n_depth: Vec<String>,
    /// Repetitions of each test
    #[arg(short = 'r', long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) repetitions: u32,
    /// Output format
    #[arg(short = 'o', long, value_enum, value_name = "FORMAT", default_value_t = OutputArg::Md)]
    pub(super) output: OutputArg,
    /// The same as -o json
    #[arg(long, conflicts_with = "output")]
    pub(super) json: bool,
    /// Streams side by side, each as the other flags say; the rate counts all of them
    #[arg(long, value_name = "N", default_value = "1", value_delimiter = ',')]
    pub(super) parallel: Vec<String>,
    /// A row a kernel, of one prefill and one decode step of each test, instead of a row a test
    #[arg(long, conflicts_with = "fit")]
    pub(super) kernels: bool,
    /// Write the cost model of this machine, for `sim`
    #[arg(long, value_name = "FILE")]
    pub(super) fit: Option<PathBuf>,
    /// Measure from the first run on
    #[arg(long)]
    pub(super) no_warmup: bool,
    #[command(flatten, next_help_heading = "Model and adapter")]
    pub(super) model: ModelArgs,
}

/// `bench -o`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputArg {
    /// Table in Markdown
    Md,
    /// One JSON array
    Json,
    /// One JSON object a line
    Jsonl,
    /// Comma-separated values, without the samples
    Csv,
}

/// `replay`.
#[derive(Debug, Args)]
#[command(after_help = "\
Latency counts from a request's planned arrival; a request waits for one of --max-concurrency places at its own expense.
Ctrl-C stops the run and prints what is done.

Examples:
  twostroke replay --num-prompts 32 --random-input-len 256 --random-output-len 64 --ignore-eos
  twostroke replay --dataset-name prefix_repetition --num-prompts 50 --request-rate 2 --json
  twostroke replay --dataset-name mooncake --dataset-path trace.jsonl --length-scale 0.05 --trace t.jsonl
  twostroke replay --url http://127.0.0.1:8080 --num-prompts 32 --random-input-len 256 --ignore-eos

With --url the model is needed for its vocabulary and its tokenizer alone, and what is said of batching and adapter means nothing.")]
pub(super) struct ReplayArgs {
    #[command(flatten, next_help_heading = "Workload")]
    pub(super) workload: WorkloadArgs,
    /// Server of OpenAI's API to ask instead of the engine in this process, such as http://127.0.0.1:8080; OPENAI_API_KEY is its key
    #[arg(long, visible_alias = "base-url", value_name = "URL", help_heading = "Server")]
    pub(super) url: Option<String>,
    /// Path to ask at: one that ends in /chat/completions gets messages, else token ids or texts go as prompts [default: /v1/completions]
    #[arg(long, value_name = "PATH", help_heading = "Server")]
    pub(super) endpoint: Option<String>,
    /// Name that requests give the model; absent: the server's first
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    pub(super) served_model_name: Option<String>,
    /// Seconds without a byte of an answer after which it counts as failed [default: 600]
    #[arg(long, value_name = "SECS", help_heading = "Server", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(super) silence: Option<u64>,
    #[command(flatten, next_help_heading = "Batching")]
    pub(super) batch: BatchArgs,
    #[command(flatten, next_help_heading = "Model and adapter")]
    pub(super) model: ModelArgs,
}

/// `sim`.
#[derive(Debug, Args)]
#[command(after_help = "\
The same scheduler and the same engine loop as in `replay`, over a device whose steps last what the cost model predicts.
Same seed, same bytes. It takes all flags of `replay`. Those that choose an adapter or how K and V are stored change nothing:
both are the cost model's. --model or --tokenizer only matters for texts (sharegpt); without one 4 bytes count as a token.

Examples:
  twostroke bench -p 0 -n 0 --fit machine.json
  twostroke sim --cost-model machine.json --num-prompts 1000 --request-rate 3 --goodput ttft:500 tpot:80")]
pub(super) struct SimArgs {
    /// The machine, as `bench --fit` wrote it
    #[arg(long, value_name = "FILE")]
    pub(super) cost_model: PathBuf,
    /// Pages of the KV pool, each of 16 tokens; absent: what --kv-memory holds
    #[arg(long, visible_alias = "num-gpu-blocks", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(u32::MAX / crate::limits::PAGE_TOKENS)))]
    pub(super) num_gpu_blocks_override: Option<u32>,
    #[command(flatten, next_help_heading = "Workload")]
    pub(super) workload: WorkloadArgs,
    #[command(flatten, next_help_heading = "Batching")]
    pub(super) batch: BatchArgs,
    #[command(flatten, next_help_heading = "Model")]
    pub(super) model: ModelArgs,
}

/// `devices`.
#[derive(Debug, Args)]
pub(super) struct DevicesArgs {
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// `fetch`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  twostroke fetch                     the default model
  twostroke fetch hf:Qwen/Qwen3-0.6B  a folder from the hub
Models lie in $TWOSTROKE_CACHE, or the user's cache folder. A download that broke off is resumed.")]
pub(super) struct FetchArgs {
    /// hf:ORG/REPO[:FILE]; absent: the default model
    #[arg(value_name = "MODEL")]
    pub(super) model: Option<String>,
}

/// `trace`.
#[derive(Debug, Subcommand)]
pub(super) enum TraceCommand {
    /// Convert a trace to the JSON that ui.perfetto.dev and chrome://tracing open: a track a request, a track of steps
    #[command(after_help = "Example:\n  twostroke trace convert t.jsonl t.json")]
    Convert {
        /// The trace, JSON Lines
        #[arg(value_name = "IN")]
        input: PathBuf,
        /// Where the JSON goes; a file that is there is replaced
        #[arg(value_name = "OUT")]
        output: PathBuf,
    },
    /// Latencies, cache hits, preemptions and steps of a trace
    #[command(after_help = "Example:\n  twostroke trace summary t.jsonl --json | jq .ttft_ms.p99")]
    Summary {
        /// The trace, JSON Lines
        #[arg(value_name = "IN")]
        input: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}
