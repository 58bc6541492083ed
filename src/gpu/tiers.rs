//! What each tier asks of an adapter. The one place that says so.
//!
//! | tier | features | limits |
//! |---|---|---|
//! | base | timestamps where there are any | WebGPU's defaults, also where the adapter has more: passing one is an error |
//! | subgroup | subgroups of at least 8 lanes; f16, 64-bit integers, pipeline caches and timestamps where there are any | the adapter's buffer and binding sizes, else WebGPU's defaults |
//! | matrix | as subgroup, with f16 and cooperative matrices of f16 by f16 into f32, 8 or 16 each way; experimental in wgpu, so only when asked | as subgroup |
//!
//! wgpu 30 reports what passes a limit, with one exception natively: workgroup memory. A test without a GPU measures each
//! variant's instead.

use std::str::FromStr;

use crate::error::{Error, Result};
use crate::kernels::Tier;
use crate::kernels::plan::MatrixSizes;
use crate::limits;

/// Which tier the user wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TierChoice {
    /// Subgroup where possible, else base; matrix never.
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
    /// Configurations of cooperative matrices.
    pub(super) matrices: &'a [wgpu::CooperativeMatrixProperties],
}

/// What a device is asked for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Request {
    pub(super) tier: Tier,
    pub(super) features: wgpu::Features,
    pub(super) limits: wgpu::Limits,
    /// Cooperative matrices that kernels may use; none below tier matrix.
    pub(super) matrix: MatrixSizes,
}

/// The best tier that `auto` takes of an adapter that has at least the base tier.
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
        TierChoice::Only(Tier::Matrix) => match lacks_for_matrix(offer) {
            lacks if lacks.is_empty() => Tier::Matrix,
            lacks => {
                let what = format!("tier matrix on {} (it has {})", offer.name, lacks.join(", "));
                return Err(Error::unsupported(what, "take --tier auto, base or subgroup"));
            }
        },
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
    let (features, limits) = (offer.features & optional, wgpu::Limits::default());
    let mut request = Request { tier, features, limits, matrix: MatrixSizes::default() };
    if tier >= Tier::Subgroup {
        request.features |= wgpu::Features::SUBGROUP;
        request.limits.max_buffer_size = offer.limits.max_buffer_size;
        request.limits.max_storage_buffer_binding_size = offer.limits.max_storage_buffer_binding_size;
    }
    if tier == Tier::Matrix {
        request.features |= wgpu::Features::SHADER_F16 | wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
        request.matrix = matrix_sizes(offer.matrices);
    }
    Ok(request)
}

/// Sizes of the listed cooperative matrices that kernels are made for.
fn matrix_sizes(listed: &[wgpu::CooperativeMatrixProperties]) -> MatrixSizes {
    use wgpu::CooperativeScalarType::{F16, F32};
    let has = |size: u32| {
        let fits = |one: &wgpu::CooperativeMatrixProperties| {
            [one.m_size, one.n_size, one.k_size] == [size; 3] && (one.ab_type, one.cr_type) == (F16, F32)
        };
        listed.iter().any(fits)
    };
    MatrixSizes { sixteen: has(16), eight: has(8) }
}

/// `MxNxK TYPE into TYPE`.
pub(super) fn matrix_name(one: &wgpu::CooperativeMatrixProperties) -> String {
    use wgpu::CooperativeScalarType as Type;
    let name = |scalar| match scalar {
        Type::F16 => "f16",
        Type::F32 => "f32",
        Type::I32 => "i32",
        Type::U32 => "u32",
    };
    format!("{}x{}x{} {} into {}", one.m_size, one.n_size, one.k_size, name(one.ab_type), name(one.cr_type))
}

/// What an adapter has instead of what tier matrix needs; nothing where it has that.
fn lacks_for_matrix(offer: &Offer<'_>) -> Vec<String> {
    let mut lacks = Vec::new();
    let lanes = limits::SUBGROUP_LANES_MIN;
    if !offer.features.contains(wgpu::Features::SUBGROUP) {
        lacks.push("no subgroups".to_owned());
    } else if offer.subgroup_min_size < lanes {
        lacks.push(format!("subgroups of {} lanes, {lanes} are needed", offer.subgroup_min_size));
    }
    if !offer.features.contains(wgpu::Features::SHADER_F16) {
        lacks.push("no f16 in shaders".to_owned());
    }
    if !offer.features.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX) || offer.matrices.is_empty() {
        lacks.push("no cooperative matrices".to_owned());
    } else if matrix_sizes(offer.matrices) == MatrixSizes::default() {
        let listed: Vec<String> = offer.matrices.iter().map(matrix_name).collect();
        let needed = "16x16x16 or 8x8x8 f16 into f32 is needed";
        lacks.push(format!("cooperative matrices of {}; {needed}", listed.join(", ")));
    }
    lacks
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
        let offer = Offer { name: "card", features, limits: &limits, subgroup_min_size: min_size, matrices: &[] };
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
        check(Only(Tier::Matrix), true, 32, Err("it has no cooperative matrices"));
        check(Only(Tier::Matrix), false, 0, Err("it has no subgroups, no cooperative matrices"));
    }

    fn matrix(m_size: u32, k_size: u32, ab_type: wgpu::CooperativeScalarType) -> wgpu::CooperativeMatrixProperties {
        let cr_type = wgpu::CooperativeScalarType::F32;
        wgpu::CooperativeMatrixProperties {
            m_size,
            n_size: 16,
            k_size,
            ab_type,
            cr_type,
            saturating_accumulation: false,
        }
    }

    #[test]
    fn tier_matrix_takes_halves_into_floats_and_says_what_is_listed_instead() {
        use wgpu::CooperativeScalarType::{F16, F32};
        let features = wgpu::Features::SUBGROUP
            | wgpu::Features::SHADER_F16
            | wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX
            | wgpu::Features::SHADER_F64;
        let limits = wgpu::Limits::default();
        let ask = |choice, matrices: &[_]| {
            request(choice, &Offer { name: "card", features, limits: &limits, subgroup_min_size: 32, matrices })
        };
        let only = TierChoice::Only(Tier::Matrix);
        let got = ask(only, &[matrix(16, 16, F32), matrix(16, 16, F16)]).expect("it is listed");
        assert_eq!(got.matrix, MatrixSizes { sixteen: true, eight: false });
        assert_eq!((got.tier, got.features), (Tier::Matrix, features - wgpu::Features::SHADER_F64));
        let error = ask(only, &[matrix(8, 16, F16), matrix(16, 16, F32)]).expect_err("neither fits");
        let text = error.to_string();
        assert!(text.contains("8x16x16 f16 into f32, 16x16x16 f32 into f32; 16x16x16 or 8x8x8"), "{text}");
        assert_eq!(error.exit_code(), 1);
        let auto = ask(TierChoice::Auto, &[matrix(16, 16, F16)]).expect("subgroup");
        assert_eq!((auto.tier, auto.matrix), (Tier::Subgroup, MatrixSizes::default()));
        assert!(!auto.features.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX));
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
