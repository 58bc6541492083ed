//! Flags of `run-batch`, with vLLM's names, and what they mean.

use std::path::{Path, PathBuf};

use clap::Args;

use super::args::ModelArgs;
use super::batch_args::{BatchArgs, BatchOptions};
use super::options::ModelOptions;
use crate::error::{Error, Result};

/// `run-batch`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each line of the input is a request as OpenAI's batch API takes it:
  {\"custom_id\": \"a\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\", \"body\": {\"messages\": [...], \"max_tokens\": 32}}
or with the url /v1/completions and a prompt in the body. The output has a line for each, in the same order. A line that
cannot be answered has a status_code of 400 or more and an error that names the field; the others are answered all the same.

Examples:
  twostroke run-batch -i questions.jsonl -o answers.jsonl
  twostroke run-batch -i questions.jsonl -o answers.jsonl --resume    after Ctrl-C, or a power cut")]
pub(super) struct RunBatchArgs {
    /// Requests as JSON Lines
    #[arg(short, long, value_name = "FILE")]
    pub(super) input_file: PathBuf,
    /// Where the answers go, each as soon as its turn comes; what the file held is replaced
    #[arg(short, long, value_name = "FILE")]
    pub(super) output_file: PathBuf,
    /// Keep the answers that the output has, and go on behind them
    #[arg(long)]
    pub(super) resume: bool,
    /// Answer the whole input N times, the prompt cache growing warm, and write the last
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "resume", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) passes: u32,
    #[command(flatten, next_help_heading = "Batching")]
    pub(super) batch: BatchArgs,
    #[command(flatten, next_help_heading = "Model and adapter")]
    pub(super) model: ModelArgs,
}

/// What the flags mean.
#[derive(Debug, Clone)]
pub(super) struct RunBatchOptions {
    /// What to load.
    pub(super) model: ModelOptions,
    /// How requests share the device.
    pub(super) batch: BatchOptions,
    /// Requests.
    pub(super) input: PathBuf,
    /// Answers.
    pub(super) output: PathBuf,
    /// Go on where the output ends.
    pub(super) resume: bool,
    /// Times to answer it all.
    pub(super) passes: u32,
}

impl RunBatchOptions {
    /// # Errors
    /// `Usage` for a flag that makes no sense.
    pub(super) fn new(args: &RunBatchArgs) -> Result<Self> {
        let model = ModelOptions::new(&args.model)?;
        let same = |a: &Path, b: &Path| matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b);
        if same(&args.input_file, &args.output_file) {
            let path = args.input_file.display();
            return Err(Error::Usage(format!("-o: expected another file than the input, got the same ({path})")));
        }
        Ok(Self {
            batch: args.batch.meant(model.trace.clone())?,
            model,
            input: args.input_file.clone(),
            output: args.output_file.clone(),
            resume: args.resume,
            passes: args.passes,
        })
    }
}
