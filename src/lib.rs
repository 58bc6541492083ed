//! Twostroke: an LLM engine that turns in two strokes, prefill and decode, on any GPU that wgpu reaches.
//!
//! # Architecture
//!
//! ## Map
//! A module imports only from those above it; a test reads the `use crate::` lines and holds the order.
//!
//! ```text
//! limits error clock   every bound with its relations, one Error, time as nanoseconds
//! format               GGUF and safetensors as one table of tensors; block formats and their CPU decode
//! text                 tokenizer, chat template, ids back to whole UTF-8
//! recording            what a GPU shall do: buffer handles and commands, without a GPU; the Player trait
//! kernels              one file an op: params, dispatch arithmetic, CPU twin; the shaders' constants; which variant where
//! gpu                  the only layer that names wgpu: adapters, tiers, devices, pipelines, the player
//! twin                 the CPU's player of the same recordings
//! model                architecture as data, weights to buffers, the decoder as one function that records a step
//! sched                integers in, integers out: admission, chunks, pages, the prompt cache, preemption
//! engine               submit and poll: the loop around the scheduler; sampling; the events it tells of its work
//! load                 workloads: datasets, arrivals, replay against a target, statistics
//! trace                the engine's events as files, for Perfetto and as figures
//! sim                  the same engine by a virtual clock on a device that only takes its time; faults
//! server               what clients speak: OpenAI's bodies to requests, tokens to responses
//! cli                  the commands of the binary (native, feature `cli`)
//! shaders/             one WGSL template an op, the same name as its file in kernels; shaders/shared for includes
//! ```
//!
//! All but `cli` builds for wasm32.
//!
//! ## Life of a token
//! ```text
//! text ──text──▶ ids ──engine──▶ request ──sched──▶ rows of a step ──model──▶ Recording ──gpu or twin──▶ id ──engine──▶ ──text──▶ delta
//!                                                                                       └─▶ the next step, on the device
//! ```
//! A prompt becomes ids (template pieces and message texts apart). The scheduler admits the request, finds what is cached
//! of it, gives it a slot and pages, and cuts what is left into chunks that fit beside everybody's decode rows.
//! `Model::record` writes one step for a ragged batch: embedding gather, then per layer norm, QKV, RoPE with K and V into
//! their pages, flash attention over the pages, output projection, norm, gate and up, activation, down; then the head on
//! the rows that yield a token, and the kernels that choose it by each request's own rules. The ids stay on the device,
//! where the next step, already submitted, finds them; a small record of each rides the read-back. `engine` applies them:
//! pages that filled up are hashed into the prompt cache, answers end, and text that is now certain goes out.
//!
//! ## Invariants
//! - **Same bits.** A row's logits depend on its own tokens, the model and the device: not on chunking, on who else is in the
//!   step, or on whether the row was prefilled or decoded. Every sum has one order (`kernels::matmul`, `kernels::attn`):
//!   K in fixed slices of blocks, keys in tiles of 32 within splits of 256 absolute positions, joined ascending.
//! - **Integers decide.** The scheduler has no float, clock or hash order: the same calls give the same steps. What it is told
//!   of time is the engine's cost model, in fixed point. Draws are integer masses under a counter RNG keyed by seed, choice and
//!   position.
//! - **Pages have one writer.** A page that others may read is full and never written again; used, cached and free pages are
//!   recounted whenever the engine is idle (`Scheduler::check`).
//! - **One list, two players.** The model never calls wgpu. What it records is played by the GPU and by the CPU twin, whose
//!   kernels take the very params structs the shaders get; nothing can drift unseen.
//! - **Activations are padded with zeros** to whole blocks of 32 along a row (`kernels::padded`): buffers start as zeros, and
//!   no shader writes anything else there, so that matmuls need no guard along K.
//! - **Nothing outside is trusted.** File fields are checked before they size anything; driver errors, lost devices and
//!   refused allocations arrive as [`error::Error`]. Our own numbers are asserted, in release too.
//! - **No binding passes the device's limit**: weights are split by rows (`model::weights`), pools are capped, and more than
//!   65,535 workgroups are folded into two axes (`kernels::fold`).
//! - `unsafe` is in `gpu::pipelines` alone: shader modules without run-time checks, which `--checked-shaders` switches back on.

#![cfg_attr(
    test,
    allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "numbers of tests are small")
)]

#[cfg(all(feature = "cli", not(target_arch = "wasm32")))]
pub mod cli;
pub mod clock;
pub mod engine;
pub mod error;
pub mod format;
pub mod gpu;
pub mod kernels;
pub mod limits;
pub mod load;
pub mod model;
pub mod recording;
pub mod sched;
pub mod server;
pub mod sim;
pub mod text;
pub mod trace;
pub mod twin;
