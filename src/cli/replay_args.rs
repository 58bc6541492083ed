//! Flags of `replay` and `sim` that say what the workload is, with vLLM's names and defaults, and what they mean.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::error::{Error, Result};
use crate::load::arrivals::Arrivals;
use crate::load::dataset::{Dataset, Spec};
use crate::load::goodput::Goodput;
use crate::load::replay::Options;

/// `--dataset-name`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum DatasetArg {
    /// Made-up prompts of --random-input-len tokens
    #[value(name = "random")]
    Random,
    /// Made-up prompts over a few shared prefixes
    #[value(name = "prefix_repetition")]
    PrefixRepetition,
    /// Conversations of --dataset-path
    #[value(name = "sharegpt")]
    ShareGpt,
    /// A trace in --dataset-path: times, lengths, shared blocks
    #[value(name = "mooncake")]
    Mooncake,
}

/// What is asked, and when.
#[derive(Debug, Args)]
pub(super) struct WorkloadArgs {
    /// The workload
    #[arg(long, visible_alias = "dataset", value_enum, value_name = "NAME", default_value_t = DatasetArg::Random)]
    pub(super) dataset_name: DatasetArg,
    /// File of sharegpt (JSON) or mooncake (JSON Lines)
    #[arg(long, value_name = "FILE")]
    pub(super) dataset_path: Option<PathBuf>,
    /// Number of requests; a trace may hold fewer
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) num_prompts: u32,
    /// Requests a second; inf sends all at once, or a trace at its own times
    #[arg(long, value_name = "RATE", default_value_t = f64::INFINITY, allow_hyphen_values = true)]
    pub(super) request_rate: f64,
    /// Shape of the gamma-distributed gaps: 1 is a Poisson process, less is burstier, inf is a constant gap
    #[arg(long, value_name = "SHAPE", default_value_t = 1.0, allow_hyphen_values = true)]
    pub(super) burstiness: f64,
    /// Most requests in flight; waiting for a place among them is no latency
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) max_concurrency: Option<u32>,
    /// Requests that go first and are not measured
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) num_warmups: u32,
    #[command(flatten)]
    pub(super) synthetic: SyntheticArgs,
    /// sharegpt: tokens of every answer; absent: as long as it was
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) sharegpt_output_len: Option<u32>,
    /// mooncake: factor of all lengths
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, allow_hyphen_values = true)]
    pub(super) length_scale: f64,
    /// mooncake: factor of all times; 0.5 is twice as fast
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, allow_hyphen_values = true)]
    pub(super) time_scale: f64,
    /// Go on after an end token: every answer is as long as planned
    #[arg(long)]
    pub(super) ignore_eos: bool,
    #[command(flatten)]
    pub(super) result: ResultArgs,
}

/// Lengths of made-up prompts.
#[derive(Debug, Args)]
pub(super) struct SyntheticArgs {
    /// random: tokens of a prompt
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub(super) random_input_len: u32,
    /// random: tokens of an answer
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub(super) random_output_len: u32,
    /// random: lengths are uniform within this share below and above
    #[arg(long, value_name = "RATIO", default_value_t = 0.0, allow_hyphen_values = true)]
    pub(super) random_range_ratio: f64,
    /// random: tokens in front that all prompts share
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) random_prefix_len: u32,
    /// `prefix_repetition`: tokens of a prefix
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(super) prefix_repetition_prefix_len: u32,
    /// `prefix_repetition`: tokens of a suffix
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(super) prefix_repetition_suffix_len: u32,
    /// `prefix_repetition`: number of prefixes
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(super) prefix_repetition_num_prefixes: u32,
    /// `prefix_repetition`: tokens of an answer
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub(super) prefix_repetition_output_len: u32,
}

/// What of the result is printed.
#[derive(Debug, Args)]
pub(super) struct ResultArgs {
    /// Limits that a good answer keeps, in milliseconds: ttft:MS, tpot:MS, e2el:MS
    #[arg(long, value_name = "NAME:MS", num_args = 1.., value_delimiter = ' ')]
    pub(super) goodput: Vec<String>,
    /// Percentiles to report
    #[arg(long, value_name = "P,P", default_value = "99", value_delimiter = ',')]
    pub(super) metric_percentiles: Vec<String>,
    /// Put every request's figures into the JSON
    #[arg(long)]
    pub(super) save_detailed: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// What the flags mean.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WorkloadOptions {
    /// The workload.
    pub(super) spec: Spec,
    /// How it is played.
    pub(super) replay: Options,
    /// Go on after an end token.
    pub(super) ignore_eos: bool,
    /// What is asked of an answer.
    pub(super) goodput: Option<Goodput>,
    /// Percentiles to report.
    pub(super) percentiles: Vec<f64>,
    /// Every request's figures.
    pub(super) detailed: bool,
    /// One JSON object.
    pub(super) json: bool,
}

impl WorkloadArgs {
    /// Checks the flags against each other. `seed` is `--seed`; vLLM's default is 0.
    ///
    /// # Errors
    /// `Usage`.
    pub(super) fn meant(&self, seed: u64) -> Result<WorkloadOptions> {
        let spec = Spec {
            dataset: self.dataset()?,
            prompts: self.num_prompts,
            warmups: self.num_warmups,
            arrivals: Arrivals::new(self.request_rate, self.burstiness)?,
            seed,
        };
        Ok(WorkloadOptions {
            spec,
            replay: Options { max_concurrency: self.max_concurrency },
            ignore_eos: self.ignore_eos,
            goodput: Goodput::parse(&self.result.goodput)?,
            percentiles: self.result.metric_percentiles.iter().map(|p| percentile(p)).collect::<Result<_>>()?,
            detailed: self.result.save_detailed,
            json: self.result.json,
        })
    }

    fn dataset(&self) -> Result<Dataset> {
        let made = &self.synthetic;
        let path = |name: &str| {
            let missing = || Error::Usage(format!("--dataset-name {name}: expected its file in --dataset-path"));
            self.dataset_path.clone().ok_or_else(missing)
        };
        if let (Some(path), DatasetArg::Random | DatasetArg::PrefixRepetition) = (&self.dataset_path, self.dataset_name)
        {
            let message = format!("--dataset-path {}: expected --dataset-name sharegpt or mooncake", path.display());
            return Err(Error::Usage(message));
        }
        Ok(match self.dataset_name {
            DatasetArg::Random => Dataset::Random {
                input_tokens: made.random_input_len,
                output_tokens: made.random_output_len,
                range_ratio: made.random_range_ratio,
                prefix_tokens: made.random_prefix_len,
            },
            DatasetArg::PrefixRepetition => Dataset::PrefixRepetition {
                prefix_tokens: made.prefix_repetition_prefix_len,
                suffix_tokens: made.prefix_repetition_suffix_len,
                prefixes: made.prefix_repetition_num_prefixes,
                output_tokens: made.prefix_repetition_output_len,
            },
            DatasetArg::ShareGpt => {
                Dataset::ShareGpt { path: path("sharegpt")?, output_tokens: self.sharegpt_output_len }
            }
            DatasetArg::Mooncake => Dataset::Mooncake {
                path: path("mooncake")?,
                length_scale: self.length_scale,
                time_scale: self.time_scale,
            },
        })
    }
}

fn percentile(text: &str) -> Result<f64> {
    let percent = text.trim().parse::<f64>().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| Error::Usage(format!("--metric-percentiles: expected 0 to 100, got {text}")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        workload: WorkloadArgs,
    }

    fn meant(line: &str) -> Result<WorkloadOptions> {
        let args = std::iter::once("replay").chain(line.split_whitespace());
        Line::try_parse_from(args).map_err(|e| Error::Usage(e.to_string()))?.workload.meant(0)
    }

    #[test]
    fn defaults_are_vllms() {
        let options = meant("").expect("nothing is needed");
        let random = Dataset::Random { input_tokens: 1024, output_tokens: 128, range_ratio: 0.0, prefix_tokens: 0 };
        assert_eq!(options.spec.dataset, random);
        assert_eq!((options.spec.prompts, options.spec.warmups), (1000, 0));
        assert!(options.spec.arrivals.at_once() && options.spec.arrivals.burstiness() == 1.0);
        assert_eq!((options.percentiles, options.goodput, options.replay), (vec![99.0], None, Options::default()));
        let repetition = meant("--dataset prefix_repetition").expect("an alias").spec.dataset;
        let expected =
            Dataset::PrefixRepetition { prefix_tokens: 256, suffix_tokens: 256, prefixes: 10, output_tokens: 128 };
        assert_eq!(repetition, expected);
    }

    #[test]
    fn every_flag_arrives() {
        let options = meant(
            "--dataset-name mooncake --dataset-path t.jsonl --length-scale 0.1 --time-scale 2 --num-prompts 7 \
             --request-rate inf --burstiness inf --max-concurrency 3 --num-warmups 2 --ignore-eos --save-detailed --json \
             --metric-percentiles 50,99.9 --goodput ttft:100 tpot:5",
        )
        .expect("fine");
        let path = PathBuf::from("t.jsonl");
        assert_eq!(options.spec.dataset, Dataset::Mooncake { path, length_scale: 0.1, time_scale: 2.0 });
        assert_eq!((options.spec.prompts, options.spec.warmups), (7, 2));
        assert_eq!(options.replay.max_concurrency, Some(3));
        assert_eq!(options.percentiles, [50.0, 99.9]);
        let goodput = options.goodput.expect("given");
        assert_eq!((goodput.ttft_ms, goodput.tpot_ms, goodput.e2el_ms), (Some(100.0), Some(5.0), None));
        assert!(options.ignore_eos && options.detailed && options.json);
        let options = meant("--request-rate 2.5 --goodput ttft:1 --goodput e2el:2").expect("fine");
        assert!(options.spec.arrivals.rate() == 2.5 && options.goodput.expect("given").e2el_ms == Some(2.0));
    }

    #[test]
    fn what_makes_no_sense_is_wrong_usage_and_named() {
        for (line, says) in [
            ("--dataset-name banana", "banana"),
            ("--dataset-name sharegpt", "--dataset-path"),
            ("--dataset-name mooncake", "--dataset-path"),
            ("--dataset-path a.json", "--dataset-path"),
            ("--request-rate 0", "--request-rate"),
            ("--request-rate -1", "--request-rate"),
            ("--request-rate nan", "--request-rate"),
            ("--burstiness 0", "--burstiness"),
            ("--num-prompts 0", "--num-prompts"),
            ("--max-concurrency 0", "--max-concurrency"),
            ("--goodput itl:4", "--goodput"),
            ("--goodput ttft:-4", "--goodput"),
            ("--metric-percentiles 101", "--metric-percentiles"),
            ("--metric-percentiles x", "--metric-percentiles"),
        ] {
            let error = meant(line).expect_err(line);
            assert!(error.exit_code() == 2 && error.to_string().contains(says), "{line}: {error}");
        }
    }
}
