//! What each tier asks of an adapter. The one place that says so.
//!
//! | tier | features | limits |
//! |---|---|---|
//! | base | timestamps where there are any | WebGPU's defaults, also where the adapter has more: passing one is an error |
//! | subgroup | subgroups of at least 8 lanes; f16, 64-bit integers, pipeline caches and timestamps where there are any | the adapter's buffer and binding sizes, else WebGPU's defaults |
//! | matrix | – | not built yet |
//!
//! wgpu 30 reports what passes a limit, with one exception natively: workgroup memory. A test without a GPU measures each
//! variant's instead.

use std::str::FromStr;

use crate::error::{Error, Result};
use crate::kernels::Tier;
use crate::limits;

/// Which tier the user wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TierChoice {
    /// Subgroup where possible, else base.
    #[default]
    Auto,
    /// This one, or an error.
    Only(Tier),
}

impl FromStr for TierChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let tiers = [Tier::Base, Tier::Subgroup, Tier::Matrix];
        let tier = tiers.into_iter().find(|tier| tier.name() == text);
        tier.map(Self::Only)
            .ok_or_else(|| Error::Usage(format!("tier: expected auto, base, subgroup or matrix, got {text:?}")))
    }
}

/// What the choice looks at.
#[derive(Debug, Clone)]
pub(super) struct Offer<'a> {
    /// The adapter's name, for messages.
    pub(super) name: &'a str,
    pub(super) features: wgpu::Features,
    pub(super) limits: &'a wgpu::Limits,
    /// Lanes of the smallest subgroup; meaningless without the feature.
    pub(super) subgroup_min_size: u32,
}

/// What a device is asked for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Request {
    pub(super) tier: Tier,
    pub(super) features: wgpu::Features,
    pub(super) limits: wgpu::Limits,
}

/// The best tier of an adapter that has at least the base tier.
pub(super) fn best(offer: &Offer<'_>) -> Tier {
    let subgroups = offer.features.contains(wgpu::Features::SUBGROUP);
    if subgroups && offer.subgroup_min_size >= limits::SUBGROUP_LANES_MIN { Tier::Subgroup } else { Tier::Base }
}

/// Why an adapter is below the base tier, or `None` when it isn't.
pub(super) fn shortfall(adapter: &wgpu::Limits) -> Option<String> {
    let mut reason = None;
    wgpu::Limits::default().check_limits_with_fail_fn(adapter, true, |limit, needed, got| {
        reason = Some(format!("its {limit} is {got}, {needed} is needed"));
    });
    reason
}

/// What to ask of the adapter for `choice`.
pub(super) fn request(choice: TierChoice, offer: &Offer<'_>) -> Result<Request> {
    let best = best(offer);
    let tier = match choice {
        TierChoice::Auto => best,
        TierChoice::Only(Tier::Base) => Tier::Base,
        TierChoice::Only(Tier::Subgroup) if best >= Tier::Subgroup => Tier::Subgroup,
        TierChoice::Only(Tier::Subgroup) => return Err(no_subgroups(offer)),
        TierChoice::Only(Tier::Matrix) => {
            return Err(Error::unsupported("tier matrix", "it comes later; take --tier auto, base or subgroup"));
        }
    };
    let optional = match tier {
        Tier::Base => wgpu::Features::TIMESTAMP_QUERY,
        Tier::Subgroup | Tier::Matrix => {
            wgpu::Features::TIMESTAMP_QUERY
                | wgpu::Features::SHADER_F16
                | wgpu::Features::SHADER_INT64
                | wgpu::Features::PIPELINE_CACHE
        }
    };
    let mut request = Request { tier, features: offer.features & optional, limits: wgpu::Limits::default() };
    if tier >= Tier::Subgroup {
        request.features |= wgpu::Features::SUBGROUP;
        request.limits.max_buffer_size = offer.limits.max_buffer_size;
        request.limits.max_storage_buffer_binding_size = offer.limits.max_storage_buffer_binding_size;
    }
    Ok(request)
}

fn no_subgroups(offer: &Offer<'_>) -> Error {
    let (name, lanes) = (offer.name, limits::SUBGROUP_LANES_MIN);
    let what = if offer.features.contains(wgpu::Features::SUBGROUP) {
        let got = offer.subgroup_min_size;
        format!("tier subgroup on {name} (its smallest subgroup has {got} lanes, {lanes} are needed)")
    } else {
        format!("tier subgroup on {name} (it has no subgroups; {lanes} lanes are needed)")
    };
    Error::unsupported(what, "take --tier base or auto")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(choice: TierChoice, subgroups: bool, min_size: u32, expected: std::result::Result<Tier, &str>) {
        let limits = wgpu::Limits { max_buffer_size: 1 << 40, ..wgpu::Limits::default() };
        let mut features = wgpu::Features::TIMESTAMP_QUERY | wgpu::Features::SHADER_F16 | wgpu::Features::SHADER_F64;
        features.set(wgpu::Features::SUBGROUP, subgroups);
        let offer = Offer { name: "card", features, limits: &limits, subgroup_min_size: min_size };
        match (request(choice, &offer), expected) {
            (Ok(request), Ok(tier)) => {
                assert_eq!(request.tier, tier);
                let base = tier == Tier::Base;
                assert_eq!(request.limits == wgpu::Limits::default(), base, "only base stays at the default limits");
                assert_eq!(request.features == wgpu::Features::TIMESTAMP_QUERY, base, "{:?}", request.features);
                assert!(!request.features.contains(wgpu::Features::SHADER_F64));
            }
            (Err(error), Err(part)) => {
                assert!(error.to_string().contains(part), "{error}");
                assert_eq!(error.exit_code(), 1);
            }
            (got, expected) => panic!("{choice:?}: expected {expected:?}, got {got:?}"),
        }
    }

    #[test]
    fn tier_follows_choice_and_subgroup_size() {
        use TierChoice::{Auto, Only};
        check(Auto, false, 0, Ok(Tier::Base));
        check(Auto, true, 4, Ok(Tier::Base));
        check(Auto, true, 8, Ok(Tier::Subgroup));
        check(Only(Tier::Base), true, 32, Ok(Tier::Base));
        check(Only(Tier::Subgroup), true, 32, Ok(Tier::Subgroup));
        check(Only(Tier::Subgroup), true, 4, Err("has 4 lanes"));
        check(Only(Tier::Subgroup), false, 4, Err("no subgroups"));
        check(Only(Tier::Matrix), true, 32, Err("comes later"));
    }

    #[test]
    fn tier_names_parse() {
        for (text, expected) in [("auto", TierChoice::Auto), ("subgroup", TierChoice::Only(Tier::Subgroup))] {
            assert_eq!(text.parse::<TierChoice>().expect("a name"), expected);
        }
        assert_eq!("warp".parse::<TierChoice>().expect_err("no name").exit_code(), 2);
    }

    #[test]
    fn adapter_below_base_says_which_limit() {
        let small = wgpu::Limits { max_storage_buffers_per_shader_stage: 4, ..wgpu::Limits::default() };
        let reason = shortfall(&small).expect("below base");
        assert_eq!(reason, "its max_storage_buffers_per_shader_stage is 4, 8 is needed");
        assert_eq!(shortfall(&wgpu::Limits::default()), None);
    }
}
