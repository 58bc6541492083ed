//! What `bench --fit` writes and `sim --cost-model` reads: a machine and a model as a simulation needs them.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::limits::{CONFIG_BYTES_MAX, CONTEXT_MAX, PAGE_TOKENS, VOCAB_MAX};
use crate::sched::CostModel;

const OP: &str = "cost model";

/// A step lasts `(a + b · prefill tokens + c · decode rows + d · attended pairs) / 1024` nanoseconds, as [`CostModel`] counts them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CostFile {
    /// Name of the model.
    pub model: String,
    /// Name of the adapter.
    pub adapter: String,
    /// Tier of the shaders.
    pub tier: String,
    /// Tokens of a KV page.
    pub page_tokens: u32,
    /// Bytes of a KV page in all layers, as K and V were stored.
    pub page_bytes: u64,
    /// Context that the model was made for.
    pub context_tokens: u32,
    /// Size of the vocabulary.
    pub vocab: u32,
    /// Prompt tokens of a usual chunk of a request that runs alone.
    pub chunk_tokens: u32,
    /// Of a step, in 1/1024 ns.
    pub a: u64,
    /// Of a prefill token.
    pub b: u64,
    /// Of a decode row in a step without a chunk.
    pub c: u64,
    /// Of an attended pair.
    pub d: u64,
    /// Root mean square of the relative errors of predictions.
    pub residual: Option<f64>,
}

impl CostFile {
    /// Reads what `--fit` wrote.
    ///
    /// # Errors
    /// A file that is not there, or is something else.
    pub fn read(path: &Path) -> Result<Self> {
        let io = |source| Error::io("read cost model", path, source);
        let bytes = std::fs::metadata(path).map_err(io)?.len();
        if bytes > CONFIG_BYTES_MAX {
            let got = format!("{bytes} bytes");
            return Err(Error::format(OP, "what bench --fit writes", got, path.display()));
        }
        let text = std::fs::read_to_string(path).map_err(io)?;
        let file: Self = serde_json::from_str(&text)
            .map_err(|error| Error::format(OP, "what bench --fit writes", error, path.display()))?;
        file.check().map_err(|(expected, got)| Error::format(OP, expected, got, path.display()))?;
        Ok(file)
    }

    /// What `--fit` writes.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain fields are JSON") + "\n"
    }

    /// The model as the scheduler takes it.
    #[must_use]
    pub const fn cost(&self) -> CostModel {
        CostModel { a: self.a, b: self.b, c: self.c, d: self.d }
    }

    fn check(&self) -> Result<(), (String, String)> {
        let within = |name: &str, value: u64, least: u64, most: u64| {
            let expected = if least == most { format!("{name} {least}") } else { format!("{name} {least} to {most}") };
            if (least..=most).contains(&value) { Ok(()) } else { Err((expected, value.to_string())) }
        };
        within("page_tokens", self.page_tokens.into(), PAGE_TOKENS.into(), PAGE_TOKENS.into())?;
        within("page_bytes", self.page_bytes, 1, 1 << 40)?;
        within("context_tokens", self.context_tokens.into(), 1, CONTEXT_MAX.into())?;
        within("vocab", self.vocab.into(), 1, VOCAB_MAX.into())?;
        within("chunk_tokens", self.chunk_tokens.into(), 1, CONTEXT_MAX.into())
    }
}
