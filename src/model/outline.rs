//! What can be told of a model before an adapter is chosen, and figures that a simulation needs of a loaded one.

use super::Model;
use super::config::Config;
use super::weights::WeightPlan;
use crate::error::Result;
use crate::format::model_files::ModelFiles;
use crate::limits::BASE_BINDING_BYTES;

/// From the files' headers alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outline {
    /// Rows of the embedding: every token id is below it.
    pub vocab: u32,
    /// Tokens of the context that the model was made for.
    pub context_tokens: u32,
}

impl Outline {
    /// Reads the description and checks it against the tensors.
    ///
    /// # Errors
    /// An unknown architecture, a tensor that is missing or of the wrong shape, numbers that make no sense.
    pub fn read(files: &ModelFiles) -> Result<Self> {
        let config = Config::read(files)?;
        let vocab = WeightPlan::new(&config, &files.table, BASE_BINDING_BYTES, None)?.vocab;
        Ok(Self { vocab, context_tokens: config.context })
    }
}

impl Model {
    /// Tokens of the context that the model was made for; the pool may hold fewer.
    #[must_use]
    pub const fn context_tokens_made_for(&self) -> u32 {
        self.config.context
    }

    /// Bytes of one KV page: K and V in all layers.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.pool.page_bytes * 2 * u64::from(self.config.layers)
    }
}
