//! How a model is served: what the command line's flags say there, with the same defaults.

use serde::{Deserialize, Serialize};
use twostroke::engine::setup::Choices;
use twostroke::format::quantize::Quantize;
use twostroke::kernels::KvType;
use twostroke::kernels::plan::Activations;
use twostroke::limits;
use twostroke::model::LoadOptions;
use twostroke::sched::Policy;

/// Where it runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Device {
    /// The best adapter there is.
    #[default]
    Best,
    /// The adapter at this place of the list.
    Adapter(usize),
    /// The processor, without any driver: slow, and exact.
    Twin,
}

/// Everything that a run depends on beside the model and what is asked of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Where it runs.
    pub device: Device,
    /// The base tier, though the adapter may have a better one.
    pub base_tier: bool,
    /// Who goes first.
    #[serde(with = "policy")]
    pub policy: Policy,
    /// Gap between tokens in milliseconds that chunks keep within; `None` is auto.
    pub itl_slo_ms: Option<f64>,
    /// Largest prefill chunk; `None` is what suits the device.
    pub chunk_tokens: Option<u32>,
    /// Most tokens of a step.
    pub step_tokens: u32,
    /// Requests that run at once.
    pub slots: u32,
    /// Context; `None` is the model's own.
    pub context_tokens: Option<u32>,
    /// Bytes of the KV pool in MiB; `None` is what the context needs.
    pub kv_mib: Option<u32>,
    /// Full pages are kept for prompts to come.
    pub prefix_caching: bool,
    /// Activations of products as 8-bit integers.
    pub int8: bool,
    /// K and V as 8-bit integers.
    pub kv_q8: bool,
    /// Float weights become this while loading.
    #[serde(with = "quantize")]
    pub quantize: Option<Quantize>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            device: Device::Best,
            base_tier: false,
            policy: Policy::Slo,
            itl_slo_ms: None,
            chunk_tokens: None,
            step_tokens: limits::BATCHED_TOKENS_DEFAULT,
            slots: 8,
            context_tokens: None,
            kv_mib: None,
            prefix_caching: true,
            int8: false,
            kv_q8: false,
            quantize: None,
        }
    }
}

impl Settings {
    /// The same within what the panel lets one choose: settings that were kept in a file may hold anything.
    #[must_use]
    pub fn within_bounds(self) -> Self {
        Self {
            itl_slo_ms: self.itl_slo_ms.map(|ms| ms.clamp(0.1, 1e5)),
            chunk_tokens: self.chunk_tokens.map(|tokens| tokens.clamp(1, 1 << 16)),
            step_tokens: self.step_tokens.clamp(1, 1 << 16),
            slots: self.slots.clamp(1, limits::SEQS_MAX),
            context_tokens: self.context_tokens.map(|tokens| tokens.clamp(16, 1 << 20)),
            kv_mib: self.kv_mib.map(|mib| mib.clamp(1, 1 << 20)),
            ..self
        }
    }

    /// What the model is loaded with.
    pub(crate) fn load_options(&self) -> LoadOptions {
        LoadOptions {
            context_tokens: self.context_tokens,
            step_rows: self.step_tokens,
            slots: self.slots,
            kv: if self.kv_q8 { KvType::Q8 } else { KvType::F16 },
            kv_bytes: self.kv_mib.map(|mib| u64::from(mib) << 20),
            sampled_rows: self.slots.min(limits::SAMPLED_ROWS_MAX),
            quantize: self.quantize,
        }
    }

    /// What the scheduler goes by.
    pub(crate) fn choices(&self) -> Choices {
        Choices {
            chunk_tokens: self.chunk_tokens,
            queue_max: limits::QUEUE_MAX,
            policy: self.policy,
            itl_slo_nanos: self.itl_slo_nanos(),
            prefix_caching: self.prefix_caching,
        }
    }

    /// [`Self::itl_slo_ms`] in nanoseconds.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped, and such casts saturate")]
    pub fn itl_slo_nanos(&self) -> Option<u64> {
        self.itl_slo_ms.map(|ms| (ms.clamp(0.01, 1e6) * 1e6) as u64)
    }

    /// What products take of their activations.
    pub(crate) fn activations(&self) -> Activations {
        if self.int8 { Activations::Int8 } else { Activations::F32 }
    }
}

/// Policies by name.
mod policy {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use twostroke::sched::Policy;

    pub(super) fn serialize<S: Serializer>(policy: &Policy, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(policy.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Policy, D::Error> {
        let name = String::deserialize(deserializer)?;
        let found = Policy::ALL.into_iter().find(|policy| policy.name() == name);
        found.ok_or_else(|| Error::custom(format!("expected a policy, got {name}")))
    }
}

/// Block formats by name.
mod quantize {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use twostroke::format::quantize::Quantize;

    pub(super) fn serialize<S: Serializer>(one: &Option<Quantize>, serializer: S) -> Result<S::Ok, S::Error> {
        match one {
            Some(one) => serializer.serialize_some(one.name()),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Quantize>, D::Error> {
        let Some(name) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
        let found = [Quantize::Int8, Quantize::Int4].into_iter().find(|one| one.name() == name);
        found.map(Some).ok_or_else(|| Error::custom(format!("expected a block format, got {name}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_kept_by_names_and_come_back() {
        let settings = Settings {
            policy: Policy::PrefillFirst,
            device: Device::Adapter(2),
            quantize: Some(Quantize::Int8),
            itl_slo_ms: Some(40.0),
            ..Settings::default()
        };
        let text = serde_json::to_string(&settings).expect("plain data");
        assert!(text.contains("\"prefill-first\""), "{text}");
        assert_eq!(serde_json::from_str::<Settings>(&text).expect("the same"), settings);
        assert_eq!(serde_json::from_str::<Settings>("{}").expect("all defaults"), Settings::default());
        assert!(serde_json::from_str::<Settings>("{\"policy\":\"fastest\"}").is_err());
    }
}
