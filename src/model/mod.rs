//! Models: architecture as data, weights to buffers, and the decoder as one function that records a step.
//!
//! This layer knows kernels and players but not what an adapter is; it knows no scheduler, sampler or text.

use crate::error::Result;
use crate::format::model_files::ModelFiles;
use crate::kernels::plan::Plan;
use crate::kernels::{Kernel, KvType, Tape};
use crate::limits;
use crate::recording::{BufferId, Player};

/// What a caller chooses before loading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadOptions {
    /// Context to serve: the model's own, or less.
    pub context_tokens: Option<u32>,
    /// Most rows of one step.
    pub step_rows: u32,
    /// Sequences whose pages live at once (rows of the block tables).
    pub slots: u32,
    /// How K and V are stored.
    pub kv: KvType,
    /// Bound of the KV pool in bytes; `None` sizes it as DESIGN.md §4 says.
    pub kv_bytes: Option<u64>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            context_tokens: None,
            step_rows: limits::BATCHED_TOKENS_DEFAULT,
            slots: 1,
            kv: KvType::F16,
            kv_bytes: None,
        }
    }
}

/// What a sequence wants back from a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Nothing: a chunk that is not the last.
    Nothing,
    /// The argmax of the last row's logits.
    Argmax,
    /// All logits of the last row.
    LastLogits,
    /// All logits of every row.
    AllLogits,
}

/// Consecutive tokens of one sequence in a step.
#[derive(Debug, Clone, Copy)]
pub struct SequenceRows<'a> {
    /// Row of the block tables; below [`LoadOptions::slots`].
    pub slot: u32,
    /// Position of the first token.
    pub position: u32,
    /// The tokens.
    pub tokens: &'a [u32],
    /// Page of each 16 positions from 0 up to the last of `tokens`.
    pub pages: &'a [u32],
    /// What comes back.
    pub want: Want,
}

/// Where a sequence's answer lies in [`crate::recording::Played::words`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// First word.
    pub start: usize,
    /// Rows: 0 for [`Want::Nothing`].
    pub rows: u32,
    /// Words a row: 1 for [`Want::Argmax`] (an id, or [`crate::kernels::argmax::NOT_FINITE`]), else the vocabulary (f32 bits).
    pub row_words: u32,
}

/// What a model needs, said before anything is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs {
    /// Bytes of packed weights.
    pub weight_bytes: u64,
    /// Bytes of the KV pool.
    pub kv_bytes: u64,
    /// Bytes of activations, tables and logits.
    pub work_bytes: u64,
    /// Context that the pool holds.
    pub context_tokens: u32,
    /// Pages of the pool.
    pub pages: u32,
}

/// A loaded model: buffers of one player, and what is needed to record steps over them.
pub struct Model {
    _private: Vec<BufferId>,
}

impl Model {
    /// Reads the description, checks it against the tensors, and says what loading will take. Reads no weights.
    ///
    /// # Errors
    /// An unknown architecture, a tensor that is missing or of the wrong shape, numbers that make no sense.
    pub fn needs(files: &ModelFiles, player: &dyn Player<Kernel>, options: &LoadOptions) -> Result<Needs> {
        let _ = (files, player.adapter(), options);
        todo!("H-model")
    }

    /// Streams the weights to the player: read, pack and upload a chunk at a time. `progress(done, total)` counts file bytes;
    /// an error it returns ends the loading.
    ///
    /// # Errors
    /// As [`Model::needs`], and the player's.
    pub fn load(
        files: &ModelFiles,
        player: &mut dyn Player<Kernel>,
        plan: Plan,
        options: &LoadOptions,
        progress: &mut dyn FnMut(u64, u64) -> Result<()>,
    ) -> Result<Self> {
        let _ = (files, player.adapter(), plan, options, progress);
        todo!("H-model")
    }

    /// Records one step over a ragged batch, and says where each sequence's answer will lie.
    /// The caller guarantees that pages are its own and that rows and logit rows stay within the limits below.
    pub fn record(&self, tape: &mut Tape, sequences: &[SequenceRows<'_>]) -> Vec<Answer> {
        let _ = (tape, sequences);
        todo!("H-model")
    }

    /// Kernels that steps of this model use, for [`Player::prepare`].
    #[must_use]
    pub fn kernels(&self) -> Vec<Kernel> {
        todo!("H-model")
    }

    /// Tokens that one sequence may hold, prompt and answer.
    #[must_use]
    pub fn context_tokens(&self) -> u32 {
        todo!("H-model")
    }

    /// Pages of the pool.
    #[must_use]
    pub fn pages(&self) -> u32 {
        todo!("H-model")
    }

    /// Most rows of a step.
    #[must_use]
    pub fn step_rows_max(&self) -> u32 {
        todo!("H-model")
    }

    /// Most rows whose logits a step may return; at least 1.
    #[must_use]
    pub fn logit_rows_max(&self) -> u32 {
        todo!("H-model")
    }

    /// Size of the vocabulary: rows of the embedding.
    #[must_use]
    pub fn vocab(&self) -> u32 {
        todo!("H-model")
    }

    /// Architecture and size as llama-bench prints it, e.g. `llama 135M Q4_1`.
    #[must_use]
    pub fn type_name(&self) -> String {
        todo!("H-model")
    }

    /// Bytes of the tensors in the file.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        todo!("H-model")
    }

    /// Number of parameters.
    #[must_use]
    pub fn params(&self) -> u64 {
        todo!("H-model")
    }

    /// Bytes of weights that one decode step reads, and floating-point operations of one token without attention: for rooflines.
    #[must_use]
    pub fn decode_bytes_and_flops(&self) -> (u64, u64) {
        todo!("H-model")
    }
}
