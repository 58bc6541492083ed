//! The only layer that names wgpu: adapters, tiers, devices, pipelines, and the player of recordings.
//!
//! ```text
//! adapters      which devices this machine has, and which one is meant
//! capabilities  what one of them can do, as plain data
//! tiers         what each tier asks of it
//! device        wgpu's device with typed errors in place of wgpu's panics; all that differs between native and web
//! pipelines     kernels as compiled pipelines, and bind groups
//! measure       what an adapter can do at most
//! readback      bytes and timestamps on their way back
//! player        recordings played on a device
//! ```
//!
//! It knows kernels only by their [`crate::kernels::program::Program`] face and nothing of models. Whatever a driver does
//! ends as an [`crate::error::Error`]: wgpu's own handlers, which panic, are replaced.

pub mod adapters;
pub mod capabilities;
mod device;
mod faults;
mod measure;
mod pipelines;
mod player;
mod readback;
pub mod tiers;

pub use adapters::{Adapter, Choice};
pub use capabilities::Capabilities;
pub use measure::{Measured, measure};
pub use player::{GpuPlayer, Options};
pub use tiers::TierChoice;
