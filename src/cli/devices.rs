//! `devices`: the adapters of this machine, what they are and what they can do.

use serde::Serialize;

use super::args::DevicesArgs;
use super::figures::size;
use super::output::{Output, json_text};
use crate::error::Result;
use crate::gpu::Capabilities;
use crate::gpu::adapters::{self, Listing};
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
    /// Not measured yet.
    bandwidth_bytes_per_s: Option<f64>,
    /// Not measured yet.
    fma_per_s: Option<f64>,
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
        }
    }
    match listing.choose(None) {
        Ok((_, said)) if !args.json => out.line(&format!("default: {said}")),
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    }
}

fn json(listing: &Listing) -> Devices<'_> {
    let adapters = listing.adapters.iter().enumerate().map(|(index, adapter)| device(index, &adapter.capabilities));
    Devices { adapters: adapters.collect(), skipped: &listing.skipped }
}

fn device(index: usize, capabilities: &Capabilities) -> Device<'_> {
    let variants =
        variants::of_tier(capabilities.tier, capabilities.int64()).into_iter().map(|kernel| kernel.spec().label);
    Device { index, capabilities, variants: variants.collect(), bandwidth_bytes_per_s: None, fma_per_s: None }
}

fn text(index: usize, one: &Capabilities) -> String {
    let lanes = match (one.subgroup_min_size, one.subgroup_max_size) {
        (Some(least), Some(most)) if least == most => format!("subgroups of {least} lanes"),
        (Some(least), Some(most)) => format!("subgroups of {least} to {most} lanes"),
        _ => "no subgroups".to_owned(),
    };
    let limits = &one.limits;
    format!(
        "{index}: {}\n   tier {}, {lanes}\n   driver {} {}\n   features {}\n   limits: binding {}, buffer {}, \
         workgroup memory {}, {} invocations, {} workgroups an axis, {} storage buffers\n   {} kernel variants\n",
        one.title(),
        one.tier.name(),
        one.driver,
        one.driver_info,
        if one.features.is_empty() { "none".to_owned() } else { one.features.join(", ") },
        size(limits.binding_bytes_max),
        size(limits.buffer_bytes_max),
        size(u64::from(limits.workgroup_bytes)),
        limits.invocations,
        limits.workgroups,
        limits.storage_buffers,
        variants::of_tier(one.tier, one.int64()).len(),
    )
}
