//! Figures about a model for people and rooflines.

use super::config::Config;
use super::weights::WeightPlan;
use crate::format::table::{Tensor, TensorTable};

/// What is said of a loaded model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) type_name: String,
    pub(super) file_bytes: u64,
    pub(super) params: u64,
    pub(super) decode_bytes: u64,
    pub(super) decode_flops: u64,
}

impl Facts {
    pub(super) fn new(config: &Config, weights: &WeightPlan, table: &TensorTable) -> Self {
        let used: Vec<&Tensor> = weights.used.iter().map(|&i| &table.tensors[i]).collect();
        let count = |tensor: &Tensor| tensor.shape.iter().product::<u64>();
        let params = used.iter().map(|t| count(t)).sum();
        // The format that most weights have names the whole, as in llama-bench.
        let weights_in =
            |name: &str| -> u64 { used.iter().filter(|t| t.format.name() == name).map(|t| count(t)).sum() };
        let format = used.iter().map(|t| t.format.name()).max_by_key(|name| weights_in(name)).unwrap_or("f32");
        // A decode step reads all matrices but the embedding, unless that is the head as well.
        let skipped = usize::from(weights.head.is_some());
        let read = || weights.linears().skip(skipped);
        Self {
            type_name: format!("{} {} {}", config.arch.name, size(params), format.to_uppercase()),
            file_bytes: used.iter().map(|t| t.bytes).sum(),
            params,
            decode_bytes: read().map(super::weights::LinearPlan::bytes).sum(),
            decode_flops: read().map(|l| 2 * u64::from(l.rows) * u64::from(l.k)).sum(),
        }
    }
}

/// A count of parameters as people say it: `135M`, `7.5M`, `1.24B`.
#[allow(clippy::cast_precision_loss, reason = "a figure for people")]
fn size(params: u64) -> String {
    let (value, unit) = match params {
        0..1_000_000 => (params as f64 / 1e3, "K"),
        1_000_000..1_000_000_000 => (params as f64 / 1e6, "M"),
        _ => (params as f64 / 1e9, "B"),
    };
    let digits = match value {
        v if v >= 99.5 => 0,
        v if v >= 9.95 || unit != "B" => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    let text = if digits > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_people_say_them() {
        let table = [
            (134_515_008, "135M"),
            (7_472_512, "7.5M"),
            (1_235_814_400, "1.24B"),
            (8_030_261_248, "8.03B"),
            (70_553_706_496, "70.6B"),
            (999, "1K"),
            (100_000_000, "100M"),
        ];
        for (params, text) in table {
            assert_eq!(size(params), text);
        }
    }
}
