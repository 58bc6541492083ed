//! From `--device` and `--tier` to a player: an adapter's, or the CPU twin.

use super::options::{AdapterOptions, DeviceChoice, ModelOptions};
use super::progress::Progress;
use super::{say, tune_file};
use crate::error::Result;
use crate::gpu::capabilities::DeviceKind;
use crate::gpu::{self, Adapter, GpuPlayer, Measured, Options, TierChoice, adapters};
use crate::kernels::plan::Plan;
use crate::kernels::probe::Probe;
use crate::kernels::{Kernel, Tier};
use crate::recording::Player;
use crate::twin::{self, Twin};

/// A player, and what the rest of the command line wants to know about it.
pub(super) struct Opened {
    /// Plays recordings.
    pub(super) player: Box<dyn Player<Kernel>>,
    /// Which variants suit it.
    pub(super) plan: Plan,
    /// Name for results.
    pub(super) name: String,
    /// API that reaches it.
    pub(super) backend: String,
    /// The adapter itself, to be measured; `None` for the twin.
    pub(super) adapter: Option<Adapter>,
    /// What is known of it with this driver and build lies under this; `None` for the twin.
    pub(super) key: Option<String>,
    /// Whether it lives in the system's memory, so that what is free there is what there is.
    pub(super) host_memory: bool,
}

/// Opens the adapter that is meant, and says which one it is.
///
/// # Errors
/// `NoDevice` with what to install or what there is; `Unsupported` for a tier that it lacks; the driver's.
pub(super) fn open(options: &AdapterOptions) -> Result<Opened> {
    let wanted = match &options.device {
        DeviceChoice::Twin => return Ok(open_twin(options.tier)),
        DeviceChoice::Adapter(wanted) => wanted.as_deref(),
    };
    let spinner = Progress::spinner("looking for adapters");
    let listing = adapters::list_now();
    let (adapter, said) = listing.choose(wanted)?;
    let tier = options.tier.map_or(TierChoice::Auto, TierChoice::Only);
    let player =
        GpuPlayer::open_now(adapter, Options { tier, checked: options.checked_shaders, ..Options::default() })?;
    drop(spinner);
    say(&said);
    for skipped in &listing.skipped {
        tracing::info!("skipped {skipped}");
    }
    let capabilities = player.capabilities();
    let host_memory = matches!(capabilities.kind, DeviceKind::Software | DeviceKind::Integrated);
    Ok(Opened {
        plan: player.plan(),
        name: capabilities.name.clone(),
        backend: capabilities.backend.to_owned(),
        adapter: Some(adapter.clone()),
        host_memory,
        key: Some(tune_file::key_of(&player, options.checked_shaders)),
        player: Box::new(player),
    })
}

/// Opens the adapter for a model: its plan holds what the user chose for it.
///
/// # Errors
/// As [`open`].
pub(super) fn open_for(options: &ModelOptions) -> Result<Opened> {
    let opened = open(&options.adapter)?;
    Ok(Opened { plan: Plan { activations: options.activations, ..opened.plan }, ..opened })
}

/// Measures what an opened adapter can do on the tier it was opened with; `None` for the twin.
///
/// # Errors
/// The driver's.
pub(super) fn measure(adapter: Option<&Adapter>, options: &AdapterOptions) -> Result<Option<Measured>> {
    let Some(adapter) = adapter else { return Ok(None) };
    let _spinner = Progress::spinner("measuring the adapter");
    measured(adapter, options.tier.map_or(TierChoice::Auto, TierChoice::Only)).map(Some)
}

/// Measures an adapter.
///
/// # Errors
/// The driver's.
pub(super) fn measured(adapter: &Adapter, tier: TierChoice) -> Result<Measured> {
    let mut player: GpuPlayer<Probe> = GpuPlayer::open_now(adapter, Options { tier, ..Options::default() })?;
    let f16 = player.plan().tier >= Tier::Subgroup && player.capabilities().features.contains(&"shader-f16");
    gpu::measure(&mut player, f16)
}

fn open_twin(tier: Option<Tier>) -> Opened {
    Opened {
        player: Box::new(Twin::<Kernel>::new()),
        plan: if tier == Some(Tier::Matrix) { Plan::TWIN_MATRIX } else { Plan::TWIN },
        name: twin::NAME.to_owned(),
        backend: "CPU".to_owned(),
        adapter: None,
        host_memory: true,
        key: None,
    }
}
