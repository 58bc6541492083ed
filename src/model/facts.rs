//! Figures about a model for people and rooflines.

use super::config::Config;
use super::weights::{LinearPlan, WeightPlan};
use crate::format::quantize::Quantize;
use crate::format::table::{Tensor, TensorTable};
use crate::kernels::KvType;

/// What is said of a loaded model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) type_name: String,
    pub(super) file_bytes: u64,
    pub(super) params: u64,
    pub(super) work: TokenWork,
}

/// What the model must compute and read at least: the numerators of a roofline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenWork {
    /// Bytes of weights that a step reads, as they lie on the device.
    pub weight_bytes: u64,
    /// Multiplications and additions of a token in the matrices of all layers.
    pub layer_flops: u64,
    /// Of a row of logits.
    pub head_flops: u64,
    /// Of a query and a key that it attends to, in all layers; windows are not counted off.
    pub pair_flops: u64,
    /// Bytes of K and V of a token in all layers.
    pub kv_bytes: u64,
}

impl TokenWork {
    /// Operations and bytes of `prompt` tokens in chunks of `chunk`, then `answer` tokens one by one, each by `streams` streams side
    /// by side behind `depth` tokens.
    #[must_use]
    pub const fn of(&self, streams: u64, depth: u64, prompt: u64, answer: u64, chunk: u64) -> (u64, u64) {
        let tokens = prompt + answer;
        let pairs = tokens * depth + tokens * (tokens + 1) / 2;
        let rows = answer + if prompt > 0 { 1 } else { 0 };
        let flops = streams * (tokens * self.layer_flops + rows * self.head_flops + pairs * self.pair_flops);
        // Each step reads the weights once; a chunk reads the keys before it once.
        let chunks = (streams * prompt).div_ceil(if chunk > 0 { chunk } else { 1 });
        let decoded = answer * (depth + prompt) + answer * (answer + 1) / 2;
        let before_chunks = chunks * (depth + prompt / 2);
        let bytes = (chunks + answer) * self.weight_bytes + (streams * decoded + before_chunks) * self.kv_bytes;
        (flops, bytes)
    }
}

impl Facts {
    pub(super) fn new(
        config: &Config,
        weights: &WeightPlan,
        table: &TensorTable,
        quantize: Option<Quantize>,
        kv: KvType,
    ) -> Self {
        let used: Vec<&Tensor> = weights.used.iter().map(|&i| &table.tensors[i]).collect();
        let count = |tensor: &Tensor| tensor.shape.iter().product::<u64>();
        let params = used.iter().map(|t| count(t)).sum();
        // The format that most weights have names the whole, as in llama-bench.
        let weights_in =
            |name: &str| -> u64 { used.iter().filter(|t| t.format.name() == name).map(|t| count(t)).sum() };
        let format = used.iter().map(|t| t.format.name()).max_by_key(|name| weights_in(name)).unwrap_or("f32");
        let quantized = quantize.map_or_else(String::new, |quantize| format!(" as {}", quantize.name()));
        // A decode step reads all matrices but the embedding, unless that is the head as well.
        let skipped = usize::from(weights.head.is_some());
        let read = || weights.linears().skip(skipped);
        let flops = |linear: &LinearPlan| 2 * u64::from(linear.rows) * u64::from(linear.k);
        let head_flops = flops(weights.head.as_ref().unwrap_or(&weights.embed));
        let layers = u64::from(config.layers);
        Self {
            type_name: format!("{} {} {}{quantized}", config.arch.name, size(params), format.to_uppercase()),
            file_bytes: used.iter().map(|t| t.bytes).sum(),
            params,
            work: TokenWork {
                weight_bytes: read().map(LinearPlan::bytes).sum(),
                layer_flops: read().map(flops).sum::<u64>() - head_flops,
                head_flops,
                pair_flops: 4 * layers * u64::from(config.heads * config.head_dim),
                kv_bytes: 2 * layers * u64::from(config.kv_heads) * kv.head_bytes(config.head_dim),
            },
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
    fn work_of_a_test_is_counted_by_hand() {
        let work = TokenWork { weight_bytes: 1000, layer_flops: 10, head_flops: 3, pair_flops: 1, kv_bytes: 2 };
        // 5 tokens behind 7: 5 * 7 + 15 pairs; two chunks; one row of logits
        assert_eq!(work.of(1, 7, 5, 0, 4), (5 * 10 + 3 + 50, 2 * 1000 + 2 * (7 + 2) * 2));
        // two streams of 3 tokens behind 7: keys 7 + 1, 7 + 2, 7 + 3 of each
        assert_eq!(work.of(2, 7, 0, 3, 4), (2 * (3 * 10 + 3 * 3 + 27), 3 * 1000 + 2 * 27 * 2));
    }

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
