//! Sessions over a model and a player: one conversation whose KV grows from turn to turn.
//!
//! This layer decides which tokens go into which step. It knows neither files nor text nor what an adapter is.

use crate::error::Result;
use crate::kernels::Kernel;
use crate::model::Model;
use crate::recording::Player;

/// One sequence over a model. Owns the model and its player.
pub struct Session {
    _private: (),
}

impl Session {
    /// A session with nothing in its KV. `chunk_tokens`: most prompt tokens of one step (`--long-prefill-token-threshold`),
    /// `None` for what suits the adapter; the logits do not depend on it.
    #[must_use]
    pub fn new(model: Model, player: Box<dyn Player<Kernel>>, chunk_tokens: Option<u32>) -> Self {
        let _ = (model, player.adapter(), chunk_tokens);
        todo!("H-cli")
    }
    /// The model.
    #[must_use]
    pub fn model(&self) -> &Model {
        todo!("H-cli")
    }
    /// Ids whose K and V the session holds.
    #[must_use]
    pub fn ids(&self) -> &[u32] {
        todo!("H-cli")
    }
    /// Forgets all but the first `tokens` ids.
    pub fn truncate(&mut self, tokens: usize) {
        let _ = tokens;
        todo!("H-cli")
    }
    /// Prefills `ids` (at least one) behind what is there, and returns the argmax after the last one.
    /// `progress(done, total)` is asked between chunks; its error (such as `Cancelled`) ends the prefill, keeping whole chunks.
    ///
    /// # Errors
    /// `ContextFull` (nothing was done), `NotFinite`, or the player's.
    pub fn prefill(&mut self, ids: &[u32], progress: &mut dyn FnMut(u64, u64) -> Result<()>) -> Result<u32> {
        let _ = (ids, progress);
        todo!("H-cli")
    }
    /// Appends one generated id and returns the argmax after it.
    ///
    /// # Errors
    /// As [`Session::prefill`].
    pub fn decode(&mut self, id: u32) -> Result<u32> {
        let _ = id;
        todo!("H-cli")
    }
    /// Logits after each of `ids`, which start a fresh sequence: `each(row, logits)` in order.
    ///
    /// # Errors
    /// As [`Session::prefill`].
    pub fn score(&mut self, ids: &[u32], each: &mut dyn FnMut(usize, &[f32]) -> Result<()>) -> Result<()> {
        let _ = (ids, each);
        todo!("H-cli")
    }
}
