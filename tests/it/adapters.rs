//! The adapters that tests run on: both software drivers, each on its tiers, and whatever hardware there is.
//!
//! A driver that is not installed is skipped aloud; with `REQUIRE_GPU=1` it is a failure.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use twostroke::gpu::adapters::{Listing, list_now};
use twostroke::gpu::{Adapter, GpuPlayer, Options, TierChoice};
use twostroke::kernels::Tier;
use twostroke::kernels::program::Program;

/// Software drivers by a part of their adapter's name, and the tiers that they have.
const SOFTWARE: [(&str, &[Tier]); 2] = [("llvmpipe", &[Tier::Base, Tier::Subgroup]), ("SwiftShader", &[Tier::Base])];

/// All adapters of this machine, listed once.
pub(crate) fn listing() -> &'static Listing {
    static LISTING: OnceLock<Listing> = OnceLock::new();
    LISTING.get_or_init(list_now)
}

/// The adapter whose name contains `part`, or a skip.
pub(crate) fn find(part: &str) -> Option<&'static Adapter> {
    let found = listing().adapters.iter().find(|adapter| adapter.capabilities.name.contains(part));
    if found.is_none() {
        skip(part);
    }
    found
}

/// Calls `each` with a label such as `llvmpipe subgroup` and a function that opens a player on that adapter and tier.
pub(crate) fn for_each_adapter<K: Program>(mut each: impl FnMut(&str, &dyn Fn(Options) -> GpuPlayer<K>)) {
    for (adapter, tier) in adapters() {
        let label = format!("{} {}", adapter.capabilities.name, tier.name());
        each(&label, &|options| open(adapter, tier, options));
    }
}

/// Opens a player on an adapter and tier.
pub(crate) fn open<K: Program>(adapter: &Adapter, tier: Tier, options: Options) -> GpuPlayer<K> {
    let options = Options { tier: TierChoice::Only(tier), ..options };
    GpuPlayer::open_now(adapter, options).unwrap_or_else(|e| panic!("{}: {e}", adapter.capabilities.title()))
}

fn adapters() -> Vec<(&'static Adapter, Tier)> {
    let mut all = Vec::new();
    for adapter in listing().adapters.iter().filter(|adapter| !adapter.capabilities.software()) {
        let tiers = [Tier::Base, Tier::Subgroup].into_iter().filter(|tier| *tier <= adapter.capabilities.tier);
        all.extend(tiers.map(|tier| (adapter, tier)));
    }
    for (part, tiers) in SOFTWARE {
        if let Some(adapter) = find(part) {
            all.extend(tiers.iter().map(|tier| (adapter, *tier)));
        }
    }
    all
}

fn skip(name: &str) {
    static SKIPS: AtomicUsize = AtomicUsize::new(0);
    let required = std::env::var("REQUIRE_GPU").is_ok_and(|value| value == "1");
    assert!(!required, "no adapter {name}, and REQUIRE_GPU=1; there are {:?}", names());
    println!("SKIP no adapter {name} (skip {} of this run)", SKIPS.fetch_add(1, Ordering::Relaxed) + 1);
}

fn names() -> Vec<String> {
    listing().adapters.iter().map(|adapter| adapter.capabilities.title()).collect()
}
