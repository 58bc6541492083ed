//! How much of everything: context, pages, rows of a step, and the buffers that follow. Integers only, nothing allocated.

use super::LoadOptions;
use super::config::Config;
use crate::error::{Error, Result};
use crate::kernels::sample::PENALISED_ROWS;
use crate::kernels::{KvType, padded};
use crate::limits::{self, PAGE_TOKENS, SPLIT_TOKENS};

/// Rows of one sequence that still go through decode attention, a tile each; more make prefill tiles.
/// Both give the same bits; decode spreads one row's keys over workgroups.
pub(super) const DECODE_ROWS: u32 = 4;

/// The KV pool and the context that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pool {
    pub(super) pages: u32,
    pub(super) context: u32,
    /// Bytes of one page of K, or of V, in one layer.
    pub(super) page_bytes: u64,
}

impl Pool {
    /// Sizes the pool: `kv_bytes` where it is given, else what all slots can fill, but at most
    /// [`limits::KV_BYTES_DEFAULT`] unless one context needs more; and no buffer passes `binding_bytes`.
    ///
    /// # Errors
    /// A context of nothing or above the model's, or a bound below one page.
    pub(super) fn new(config: &Config, options: &LoadOptions, binding_bytes: u64) -> Result<Self> {
        let context = context(config, options, binding_bytes)?;
        let page_bytes = page_bytes(config, options.kv);
        let all_layers = page_bytes * 2 * u64::from(config.layers);
        let one = u64::from(context.div_ceil(PAGE_TOKENS));
        let budget = match options.kv_bytes {
            Some(bytes) => bytes / all_layers,
            None => (limits::KV_BYTES_DEFAULT / all_layers).max(one),
        };
        let pages = (one * u64::from(options.slots)).min(budget).min(binding_bytes / page_bytes);
        let pages = u32::try_from(pages).unwrap_or(u32::MAX / PAGE_TOKENS);
        if pages == 0 {
            let bound = options.kv_bytes.unwrap_or(binding_bytes);
            let what = format!("one KV page of {PAGE_TOKENS} tokens");
            return Err(Error::OutOfMemory { what, bytes: all_layers, place: format!("a bound of {bound} bytes") });
        }
        Ok(Self { pages: 0, context, page_bytes }.with_pages(pages))
    }

    /// The same with fewer pages.
    pub(super) fn with_pages(self, pages: u32) -> Self {
        Self { pages, context: self.context.min(pages.saturating_mul(PAGE_TOKENS)), ..self }
    }

    /// Bytes of one K or V buffer.
    pub(super) fn buffer_bytes(&self) -> u64 {
        u64::from(self.pages) * self.page_bytes
    }
}

/// The context asked for, or the model's, as far as tables of one row a position fit a binding.
fn context(config: &Config, options: &LoadOptions, binding_bytes: u64) -> Result<u32> {
    let asked = match options.context_tokens {
        Some(0) => return Err(Error::Usage("a context of 0 tokens holds nothing".into())),
        Some(n) if n > config.context => {
            let known = config.context;
            return Err(Error::Usage(format!("a context of {n} tokens was asked for, the model was made for {known}")));
        }
        Some(n) => n,
        None => config.context,
    };
    let rotary = std::iter::once(&config.rope).chain(&config.local_rope).map(|r| r.rotary_dim).max().unwrap_or(2);
    let by_rope = binding_bytes / (u64::from(rotary) * 4);
    let by_parts = binding_bytes / split_bytes(config) * u64::from(SPLIT_TOKENS);
    Ok(asked.min(u32::try_from(by_rope.min(by_parts).max(1)).unwrap_or(u32::MAX)))
}

fn page_bytes(config: &Config, kv: KvType) -> u64 {
    u64::from(config.kv_heads * PAGE_TOKENS) * kv.head_bytes(config.head_dim)
}

/// Bytes of one decode row's partial result in one split.
fn split_bytes(config: &Config) -> u64 {
    u64::from(config.heads * (config.head_dim + 2)) * 4
}

/// Splits that keys up to `position` make.
pub(super) const fn splits(position: u32) -> u32 {
    position / SPLIT_TOKENS + 1
}

/// Sizes of the work buffers: rows, strides in floats, and counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) rows: u32,
    pub(super) logit_rows: u32,
    /// Rows behind the model's logits, for the penalised copies of sampling.
    pub(super) penalised_rows: u32,
    pub(super) slots: u32,
    /// Pages a slot of the block tables.
    pub(super) table_stride: u32,
    /// Stride of the residual stream, its norm and what is added to it.
    pub(super) hidden: u32,
    pub(super) qkv: u32,
    pub(super) q: u32,
    /// Stride of attention's output.
    pub(super) attn: u32,
    pub(super) gate_up: u32,
    /// Stride of the gated activation.
    pub(super) act: u32,
    pub(super) vocab: u32,
    /// Decode rows times splits that the parts buffer holds.
    pub(super) row_splits: u32,
    /// Bytes of one of those.
    pub(super) split_bytes: u64,
}

impl Sizes {
    /// Sizes for a context; `binding_bytes` bounds each buffer.
    ///
    /// # Errors
    /// No rows or slots, or a single row that passes the binding limit.
    pub(super) fn new(
        config: &Config,
        vocab: u32,
        options: &LoadOptions,
        context: u32,
        binding_bytes: u64,
    ) -> Result<Self> {
        if options.step_rows == 0 || options.slots == 0 {
            return Err(Error::Usage("a step needs at least one row and one sequence".into()));
        }
        let [q, k, v] = config.qkv_rows();
        let mut sizes = Self {
            rows: 1,
            logit_rows: 1,
            penalised_rows: if options.sampled_rows > 0 { PENALISED_ROWS } else { 0 },
            slots: options.slots,
            table_stride: context.div_ceil(PAGE_TOKENS),
            hidden: padded(config.hidden),
            qkv: q + k + v,
            q,
            attn: padded(q),
            gate_up: 2 * config.intermediate,
            act: padded(config.intermediate),
            vocab,
            row_splits: 1,
            split_bytes: split_bytes(config),
        };
        let row_bytes = u64::from(sizes.hidden.max(sizes.qkv).max(sizes.attn).max(sizes.gate_up).max(sizes.act)) * 4;
        let logit_bytes = u64::from(vocab) * 4;
        let least = row_bytes.max(logit_bytes * u64::from(1 + sizes.penalised_rows));
        if least > binding_bytes {
            let what = "one row of activations or logits".to_owned();
            let place = format!("bindings of {binding_bytes} bytes");
            return Err(Error::OutOfMemory { what, bytes: least, place });
        }
        let at_most = |bytes: u64, row: u64| u32::try_from(bytes / row).unwrap_or(u32::MAX);
        // A slot has its ids, and its block table, in one binding with all others.
        sizes.slots = options.slots.min(at_most(binding_bytes, u64::from(context) * 4)).max(1);
        let whole = u64::from(context) * u64::from(sizes.slots);
        sizes.rows = options.step_rows.min(at_most(whole, 1)).min(at_most(binding_bytes, row_bytes));
        let wanted = match options.sampled_rows {
            0 => limits::LOGIT_ROWS_MAX,
            rows => rows.min(limits::SAMPLED_ROWS_MAX),
        };
        let logit_rows = at_most(binding_bytes, logit_bytes) - sizes.penalised_rows;
        sizes.logit_rows = wanted.min(sizes.rows).min(logit_rows);
        let one = u64::from(splits(context - 1));
        let all = one * u64::from(sizes.rows.min(sizes.slots.saturating_mul(DECODE_ROWS)));
        let bound = limits::ATTN_PARTS_BYTES.min(binding_bytes) / sizes.split_bytes;
        sizes.row_splits = u32::try_from(all.min(bound.max(one))).unwrap_or(u32::MAX);
        Ok(sizes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::arch::ARCHS;
    use crate::model::config::BiasRule;
    use crate::model::rope::{Rope, Scaling};

    /// SmolLM2-135M.
    fn config() -> Config {
        Config {
            arch: &ARCHS[0],
            names: ARCHS[0].gguf_names,
            file: "m.gguf".into(),
            layers: 30,
            hidden: 576,
            intermediate: 1536,
            heads: 9,
            kv_heads: 3,
            head_dim: 64,
            vocab: Some(49_152),
            context: 8192,
            eps: 1e-5,
            norm_offset: 0.0,
            tied: None,
            activation: ARCHS[0].activation,
            pairing: ARCHS[0].gguf_pairing,
            rope: Rope { theta: 1e5, rotary_dim: 64, scaling: Scaling::None },
            local_rope: None,
            windows: vec![0; 30],
            attn_scale: 0.125,
            softcap: 0.0,
            embed_scale: 1.0,
            biases: [BiasRule::Absent; 3],
        }
    }

    #[track_caller]
    fn check(options: LoadOptions, binding_bytes: u64, pages: u32, context: u32) {
        let pool = Pool::new(&config(), &options, binding_bytes).unwrap();
        assert_eq!((pool.pages, pool.context), (pages, context), "{options:?} within {binding_bytes}");
    }

    #[test]
    fn pool_holds_one_context_and_never_passes_a_bound() {
        let one = LoadOptions::default();
        let base = limits::BASE_BINDING_BYTES;
        let page = 30 * 2 * 3 * 64 * 16 * 2; // 368,640 bytes with f16
        check(one, base, 512, 8192);
        check(LoadOptions { context_tokens: Some(100), ..one }, base, 7, 100);
        check(LoadOptions { slots: 4, ..one }, base, 2048, 8192);
        check(LoadOptions { slots: 256, ..one }, base, u32::try_from(limits::KV_BYTES_DEFAULT / page).unwrap(), 8192);
        // the context is lowered to what the pool holds
        check(LoadOptions { kv_bytes: Some(10 * page + 1), ..one }, base, 10, 160);
        check(one, 100 * page / 60, 100, 1600);
        check(LoadOptions { kv: KvType::F32, kv_bytes: Some(10 * page), ..one }, base, 5, 80);
    }

    #[test]
    fn senseless_bounds_are_refused_with_their_numbers() {
        let one = LoadOptions::default();
        let error =
            |options: LoadOptions| Pool::new(&config(), &options, limits::BASE_BINDING_BYTES).unwrap_err().to_string();
        let page = error(LoadOptions { kv_bytes: Some(1000), ..one });
        assert!(page.contains("368640 bytes") && page.contains("1000 bytes"), "{page}");
        let long = error(LoadOptions { context_tokens: Some(9000), ..one });
        assert!(long.contains("9000") && long.contains("8192"), "{long}");
        assert!(error(LoadOptions { context_tokens: Some(0), ..one }).contains("0 tokens"));
    }

    #[test]
    fn rows_follow_the_narrowest_bound() {
        let sizes = |options: LoadOptions, context, binding| {
            let sizes = Sizes::new(&config(), 49_152, &options, context, binding).unwrap();
            (sizes.rows, sizes.logit_rows, sizes.row_splits)
        };
        let one = LoadOptions::default();
        let base = limits::BASE_BINDING_BYTES;
        assert_eq!(sizes(one, 8192, base), (2048, 64, 4 * 32));
        assert_eq!(sizes(one, 100, base), (100, 64, 4));
        assert_eq!(sizes(LoadOptions { step_rows: 10, ..one }, 8192, base), (10, 10, 4 * 32));
        // 1 MiB: 85 rows of gate and up, 5 rows of logits
        assert_eq!(sizes(one, 8192, 1 << 20), (85, 5, 4 * 32));
        // 16 MiB of partial results: 7,061 rows times splits, of 9 × 66 floats
        let many = LoadOptions { slots: 256, ..one };
        assert_eq!(sizes(many, 8192, base), (2048, 64, 7061));
    }
}
