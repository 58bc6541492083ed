//! Which adapters this machine has, and which of them is meant.

use std::cmp::Reverse;

use super::capabilities::{Capabilities, DeviceKind};
use super::tiers;
use crate::error::{Error, Result};

/// An adapter that has at least the base tier.
#[derive(Debug, Clone)]
pub struct Adapter {
    /// What it is and can do.
    pub capabilities: Capabilities,
    pub(super) handle: wgpu::Adapter,
}

/// The adapter that was meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Its place in the list.
    pub index: usize,
    /// What to say aloud, e.g. `using llvmpipe (software Vulkan); no hardware adapter found`.
    pub said: String,
}

/// What a machine has.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// Adapters, best first: discrete, integrated, virtual, software; the higher tier first within a kind.
    pub adapters: Vec<Adapter>,
    /// Adapters that were left out, each with the reason.
    pub skipped: Vec<String>,
}

/// Lists the adapters of this machine. A device that several backends offer is listed once, by the first of Metal, Vulkan,
/// DX12. `WGPU_BACKEND` narrows the backends.
pub async fn list() -> Listing {
    let backends =
        wgpu::Backends::VULKAN | wgpu::Backends::METAL | wgpu::Backends::DX12 | wgpu::Backends::BROWSER_WEBGPU;
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = backends.with_env() & backends;
    descriptor.flags = wgpu::InstanceFlags::empty().with_env();
    let instance = wgpu::Instance::new(descriptor);
    let mut listing = Listing::default();
    for handle in instance.enumerate_adapters(backends).await {
        let capabilities = Capabilities::new(&handle);
        if !handle.get_downlevel_capabilities().flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS) {
            listing.skipped.push(format!("{}: it has no compute shaders", capabilities.title()));
        } else if let Some(reason) = tiers::shortfall(&handle.limits()) {
            listing.skipped.push(format!("{}: {reason}", capabilities.title()));
        } else {
            listing.adapters.push(Adapter { capabilities, handle });
        }
    }
    sort_and_deduplicate(&mut listing.adapters, |adapter| &adapter.capabilities);
    listing
}

/// [`list`], waiting for it. Not callable in a page.
#[must_use]
pub fn list_now() -> Listing {
    pollster::block_on(list())
}

impl Listing {
    /// The adapter that `wanted` names; see [`choose`].
    ///
    /// # Errors
    /// As [`choose`].
    pub fn choose(&self, wanted: Option<&str>) -> Result<(&Adapter, String)> {
        let all: Vec<_> = self.adapters.iter().map(|adapter| adapter.capabilities.clone()).collect();
        let choice = choose(&all, &self.skipped, wanted)?;
        Ok((&self.adapters[choice.index], choice.said))
    }
}

/// The adapter that `wanted` names: a place in the list or part of a name, in any case; the first of the list for `None`.
///
/// # Errors
/// [`Error::NoDevice`]: no adapter at all (it says what to install), none that matches, or several.
pub fn choose(all: &[Capabilities], skipped: &[String], wanted: Option<&str>) -> Result<Choice> {
    if all.is_empty() {
        return Err(Error::NoDevice(nothing_found(skipped)));
    }
    let Some(wanted) = wanted else {
        return Ok(Choice { index: 0, said: said_by_default(&all[0]) });
    };
    let index = match wanted.parse::<usize>() {
        Ok(index) if index < all.len() => index,
        _ => by_name(all, wanted)?,
    };
    Ok(Choice { index, said: format!("using {}", all[index].title()) })
}

fn by_name(all: &[Capabilities], wanted: &str) -> Result<usize> {
    let part = wanted.to_lowercase();
    let matches: Vec<usize> = (0..all.len()).filter(|&i| all[i].name.to_lowercase().contains(&part)).collect();
    match matches[..] {
        [index] => Ok(index),
        [] => Err(Error::NoDevice(format!("no device matches {wanted:?}; there are: {}", numbered(all)))),
        _ => Err(Error::NoDevice(format!("several devices match {wanted:?}; there are: {}", numbered(all)))),
    }
}

fn numbered(all: &[Capabilities]) -> String {
    let lines: Vec<String> = all.iter().enumerate().map(|(i, one)| format!("{i} = {}", one.title())).collect();
    lines.join(", ")
}

/// The default is the best of the list, so a software one means that there is nothing else.
fn said_by_default(chosen: &Capabilities) -> String {
    if chosen.software() {
        format!("using {} (software {}); no hardware adapter found", chosen.name, chosen.backend)
    } else {
        format!("using {}", chosen.title())
    }
}

fn nothing_found(skipped: &[String]) -> String {
    let mut text = "no GPU adapter found. Install a Vulkan driver (Debian, Ubuntu: apt-get install mesa-vulkan-drivers; \
        Fedora: dnf install mesa-vulkan-drivers; Arch: pacman -S vulkan-swrast; NVIDIA, or Windows: the card's own driver); \
        Mesa's package drives AMD and Intel cards, and the CPU where there is no card. Or play without one: --device twin"
        .to_owned();
    for one in skipped {
        text.push_str("; skipped ");
        text.push_str(one);
    }
    text
}

fn sort_and_deduplicate<T>(list: &mut Vec<T>, of: impl Fn(&T) -> &Capabilities) {
    list.sort_by_key(|one| backend_rank(of(one).backend));
    let mut kept: Vec<T> = Vec::new();
    for one in list.drain(..) {
        if !kept.iter().any(|other| same_device(of(other), of(&one))) {
            kept.push(one);
        }
    }
    kept.sort_by_key(|one| (of(one).kind, Reverse(of(one).tier)));
    *list = kept;
}

/// Whether two entries are one device. Twins in one machine share name and ids, but not backend and bus address.
fn same_device(a: &Capabilities, b: &Capabilities) -> bool {
    let (software_a, software_b) = (a.kind == DeviceKind::Software, b.kind == DeviceKind::Software);
    if a.backend == b.backend {
        return !a.pci_bus_id.is_empty() && a.pci_bus_id == b.pci_bus_id && software_a == software_b;
    }
    let same_ids = a.device != 0 && (a.vendor, a.device) == (b.vendor, b.device);
    software_a == software_b && (same_ids || a.name == b.name)
}

fn backend_rank(backend: &str) -> u8 {
    match backend {
        "Metal" => 0,
        "Vulkan" => 1,
        "DX12" => 2,
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::super::capabilities::AdapterLimits;
    use super::*;
    use crate::kernels::Tier;

    fn adapter(name: &str, kind: DeviceKind, backend: &'static str, device: u32, pci: &str) -> Capabilities {
        Capabilities {
            name: name.to_owned(),
            backend,
            kind,
            vendor: 1,
            device,
            pci_bus_id: pci.to_owned(),
            driver: String::new(),
            driver_info: String::new(),
            tier: if name == "SwiftShader" { Tier::Base } else { Tier::Subgroup },
            subgroup_min_size: None,
            subgroup_max_size: None,
            cooperative_matrices: Vec::new(),
            features: Vec::new(),
            limits: AdapterLimits {
                binding_bytes_max: 0,
                buffer_bytes_max: 0,
                storage_buffers: 0,
                workgroup_bytes: 0,
                invocations: 0,
                workgroups: 0,
            },
        }
    }

    fn machine() -> Vec<Capabilities> {
        vec![
            adapter("Radeon 780M", DeviceKind::Integrated, "Vulkan", 3, "0000:05"),
            adapter("SwiftShader", DeviceKind::Software, "Vulkan", 5, ""),
            adapter("GeForce RTX 4090", DeviceKind::Discrete, "DX12", 4, ""),
            adapter("GeForce RTX 4090", DeviceKind::Discrete, "Vulkan", 4, "0000:01"),
            adapter("GeForce RTX 4090", DeviceKind::Discrete, "Vulkan", 4, "0000:02"),
            adapter("llvmpipe (LLVM 15)", DeviceKind::Software, "Vulkan", 0, ""),
            adapter("Radeon 780M", DeviceKind::Integrated, "Vulkan", 3, "0000:05"),
        ]
    }

    #[test]
    fn list_is_sorted_and_each_device_is_in_it_once() {
        let mut list = machine();
        sort_and_deduplicate(&mut list, |one| one);
        let titles: Vec<_> = list.iter().map(|one| format!("{} {}", one.title(), one.pci_bus_id)).collect();
        let expected = [
            "GeForce RTX 4090 (discrete, Vulkan) 0000:01",
            "GeForce RTX 4090 (discrete, Vulkan) 0000:02",
            "Radeon 780M (integrated, Vulkan) 0000:05",
            "llvmpipe (LLVM 15) (software, Vulkan) ",
            "SwiftShader (software, Vulkan) ",
        ];
        assert_eq!(titles, expected);
    }

    #[test]
    fn device_is_chosen_by_number_or_part_of_its_name() {
        let mut list = machine();
        sort_and_deduplicate(&mut list, |one| one);
        let check = |wanted: Option<&str>, expected: std::result::Result<usize, &str>| match (
            choose(&list, &[], wanted),
            expected,
        ) {
            (Ok(choice), Ok(index)) => assert_eq!(choice.index, index, "{wanted:?}"),
            (Err(error), Err(part)) => {
                assert!(error.to_string().contains(part), "{error}");
                assert!(error.to_string().contains("3 = llvmpipe (LLVM 15) (software, Vulkan)"), "{error}");
            }
            (got, _) => panic!("{wanted:?}: expected {expected:?}, got {got:?}"),
        };
        check(None, Ok(0));
        check(Some("1"), Ok(1));
        check(Some("RADEON"), Ok(2));
        check(Some("llvmpipe"), Ok(3));
        check(Some("780"), Ok(2));
        check(Some("4090"), Err("several devices match"));
        check(Some("Arc"), Err("no device matches"));
        check(Some("9"), Err("several devices match"));
    }

    #[test]
    fn software_default_says_that_there_is_no_hardware() {
        let list = [adapter("llvmpipe", DeviceKind::Software, "Vulkan", 0, "")];
        let choice = choose(&list, &[], None).expect("one adapter");
        assert_eq!(choice.said, "using llvmpipe (software Vulkan); no hardware adapter found");
        assert_eq!(choose(&list, &[], Some("0")).expect("it").said, "using llvmpipe (software, Vulkan)");
    }

    #[test]
    fn machine_without_adapter_learns_what_to_install() {
        let error = choose(&[], &["GMA (integrated, Vulkan): too old".to_owned()], None).expect_err("no adapter");
        assert!(matches!(error, Error::NoDevice(_)));
        assert_eq!(error.exit_code(), 1);
        for part in ["apt-get install mesa-vulkan-drivers", "--device twin", "skipped GMA"] {
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
