//! Flags of everything that batches, with vLLM's names, and what they mean.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::error::{Error, Result};
use crate::limits::{QUEUE_MAX, SEQS_DEFAULT, SEQS_MAX};
use crate::model::Extent;
use crate::sched::Policy;

/// How requests share the device.
#[derive(Debug, Clone, Args)]
pub(super) struct BatchArgs {
    /// Most requests that run at once
    #[arg(long, value_name = "N", default_value_t = SEQS_DEFAULT, value_parser = clap::value_parser!(u32).range(1..=i64::from(SEQS_MAX)))]
    pub(super) max_num_seqs: u32,
    /// Compute every prompt anew instead of keeping and finding full pages
    #[arg(long)]
    pub(super) no_enable_prefix_caching: bool,
    /// Who goes first, and how large a prefill chunk is
    #[arg(long, value_enum, value_name = "POLICY", default_value_t = PolicyArg::Slo)]
    pub(super) scheduling_policy: PolicyArg,
    /// Gap between a stream's tokens that prefill chunks keep within, in milliseconds; auto is twice what the running
    /// streams take alone
    #[arg(long, value_name = "MS|auto", default_value = "auto", allow_hyphen_values = true)]
    pub(super) itl_slo: String,
}

/// `--scheduling-policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum PolicyArg {
    /// Streams keep the gap asked for; chunks take what is left
    Slo,
    /// Decode first, chunks fill the step, in order of arrival
    Fcfs,
    /// As fcfs, lower priority values first
    Priority,
    /// A prompt stops all streams until it is prefilled: the old way
    PrefillFirst,
}

impl PolicyArg {
    const fn policy(self) -> Policy {
        match self {
            Self::Slo => Policy::Slo,
            Self::Fcfs => Policy::Fcfs,
            Self::Priority => Policy::Priority,
            Self::PrefillFirst => Policy::PrefillFirst,
        }
    }
}

/// What the flags mean.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BatchOptions {
    /// Requests that run at once.
    pub(super) slots: u32,
    /// Whether full pages are kept.
    pub(super) prefix_caching: bool,
    /// The policy.
    pub(super) policy: Policy,
    /// The gap asked for; `None` is auto.
    pub(super) itl_slo_nanos: Option<u64>,
    /// Requests that may wait.
    pub(super) queue_max: usize,
    /// Kernels that are there before the first request; the others come when a step needs them.
    pub(super) kernels: Extent,
    /// Where the trace goes.
    pub(super) trace: Option<PathBuf>,
}

impl BatchOptions {
    /// For commands that run one request at a time.
    pub(super) fn alone(trace: Option<PathBuf>) -> Self {
        let policy = Policy::Slo;
        Self {
            slots: 1,
            prefix_caching: true,
            policy,
            itl_slo_nanos: None,
            queue_max: QUEUE_MAX,
            kernels: Extent::All,
            trace,
        }
    }
}

impl BatchArgs {
    /// # Errors
    /// `Usage` for a gap that is none.
    pub(super) fn meant(&self, trace: Option<PathBuf>) -> Result<BatchOptions> {
        Ok(BatchOptions {
            slots: self.max_num_seqs,
            prefix_caching: !self.no_enable_prefix_caching,
            policy: self.scheduling_policy.policy(),
            itl_slo_nanos: slo(&self.itl_slo)?,
            queue_max: QUEUE_MAX,
            kernels: Extent::All,
            trace,
        })
    }
}

fn slo(text: &str) -> Result<Option<u64>> {
    if text == "auto" {
        return Ok(None);
    }
    let wrong = || Error::Usage(format!("--itl-slo: expected milliseconds above 0 or auto, got {text}"));
    let ms = text.parse::<f64>().ok().filter(|ms| *ms > 0.0 && *ms <= 1e9).ok_or_else(wrong)?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 1e15")]
    Ok(Some((ms * 1e6) as u64))
}

#[cfg(test)]
mod tests {
    use super::slo;

    #[test]
    fn a_gap_is_positive_milliseconds_or_auto() {
        assert_eq!(slo("auto").expect("fine"), None);
        assert_eq!(slo("80").expect("fine"), Some(80_000_000));
        assert_eq!(slo("0.5").expect("fine"), Some(500_000));
        for text in ["0", "-4", "nan", "inf", "", "80ms"] {
            assert_eq!(slo(text).expect_err(text).exit_code(), 2);
        }
    }
}
