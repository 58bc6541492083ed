//! Twostroke: an LLM engine that turns in two strokes, prefill and decode, on any GPU that wgpu reaches.

#[cfg(all(feature = "cli", not(target_arch = "wasm32")))]
pub mod cli;
pub mod clock;
pub mod engine;
pub mod error;
pub mod format;
pub mod gpu;
pub mod kernels;
pub mod limits;
pub mod model;
pub mod recording;
pub mod text;
pub mod twin;
