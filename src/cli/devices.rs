//! `devices`: the adapters of this machine, what they are and what they can do.

use serde::Serialize;

use super::adapter;
use super::args::DevicesArgs;
use super::figures::{self, size};
use super::output::{Output, json_text};
use super::progress::Progress;
use crate::error::Result;
use crate::gpu::adapters::{self, Listing};
use crate::gpu::{Adapter, Capabilities, Measured, TierChoice};
use crate::kernels::variants;

/// What `devices --json` prints.
#[derive(Debug, Serialize)]
struct Devices<'a> {
    adapters: Vec<Device<'a>>,
    skipped: &'a [String],
}

#[derive(Debug, Serialize)]
struct Device<'a> {
    /// What `--device` takes.
    index: usize,
    #[serde(flatten)]
    capabilities: &'a Capabilities,
    /// Labels of the kernels that this adapter may run.
    variants: Vec<String>,
    /// Of a copy, reads and writes together; null where the driver failed to.
    bandwidth_bytes_per_s: Option<f64>,
    /// Single-precision `fma`s.
    fma_per_s: Option<f64>,
    /// All that was measured.
    measured: Option<Measured>,
}

/// Runs the command.
///
/// # Errors
/// `NoDevice` when there is no adapter: it says what to install.
pub(super) fn devices(args: &DevicesArgs) -> Result<()> {
    let listing = adapters::list_now();
    let mut out = Output::stdout();
    if args.json {
        out.line(&json_text(&json(&listing)))?;
    } else {
        for (index, adapter) in listing.adapters.iter().enumerate() {
            out.text(&text(index, &adapter.capabilities))?;
            if let Some(limits) = measured(adapter) {
                out.line(&format!("   measured: {}", figures::measured(&limits)))?;
            }
        }
    }
    match listing.choose(None) {
        Ok((_, said)) if !args.json => out.line(&format!("default: {said}")),
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    }
}

fn json(listing: &Listing) -> Devices<'_> {
    let adapters = listing.adapters.iter().enumerate().map(|(index, adapter)| device(index, adapter));
    Devices { adapters: adapters.collect(), skipped: &listing.skipped }
}

/// What the adapter can do, measured; a driver that fails to is told of and left.
fn measured(adapter: &Adapter) -> Option<Measured> {
    let _spinner = Progress::spinner(&format!("measuring {}", adapter.capabilities.name));
    adapter::measured(adapter, TierChoice::Auto)
        .inspect_err(|error| tracing::warn!("{} can't be measured: {error}", adapter.capabilities.name))
        .ok()
}

fn device(index: usize, adapter: &Adapter) -> Device<'_> {
    let (capabilities, measured) = (&adapter.capabilities, measured(adapter));
    let variants =
        variants::of_tier(capabilities.tier, capabilities.int64()).into_iter().map(|kernel| kernel.spec().label);
    Device {
        index,
        capabilities,
        variants: variants.collect(),
        bandwidth_bytes_per_s: measured.map(|limits| limits.bandwidth_bytes_per_s),
        fma_per_s: measured.map(|limits| limits.f32_flops / 2.0),
        measured,
    }
}

fn text(index: usize, one: &Capabilities) -> String {
    let lanes = match (one.subgroup_min_size, one.subgroup_max_size) {
        (Some(least), Some(most)) if least == most => format!("subgroups of {least} lanes"),
        (Some(least), Some(most)) => format!("subgroups of {least} to {most} lanes"),
        _ => "no subgroups".to_owned(),
    };
    let limits = &one.limits;
    format!(
        "{index}: {}\n   tier {}, {lanes}\n   driver {} {}\n   features {}\n   cooperative matrices {}\n   limits: binding {}, buffer {}, \
         workgroup memory {}, {} invocations, {} workgroups an axis, {} storage buffers\n   {} kernel variants\n",
        one.title(),
        one.tier.name(),
        one.driver,
        one.driver_info,
        if one.features.is_empty() { "none".to_owned() } else { one.features.join(", ") },
        if one.cooperative_matrices.is_empty() { "none".to_owned() } else { one.cooperative_matrices.join(", ") },
        size(limits.binding_bytes_max),
        size(limits.buffer_bytes_max),
        size(u64::from(limits.workgroup_bytes)),
        limits.invocations,
        limits.workgroups,
        limits.storage_buffers,
        variants::of_tier(one.tier, one.int64()).len(),
    )
}
