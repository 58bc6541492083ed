//! Figures for people: sizes, rates, times.

use crate::gpu::Measured;

/// Bytes with a binary unit, e.g. `93.8 MiB`.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "a figure for people")]
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, factor)| bytes >= *factor) {
        Some((unit, factor)) => format!("{:.1} {unit}", bytes as f64 / *factor as f64),
        None => format!("{bytes} B"),
    }
}

/// `tokens` a second over `nanos`; `None` when there is nothing to divide.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "a figure for people")]
pub(super) fn tokens_per_second(tokens: u64, nanos: u64) -> Option<f64> {
    (tokens > 0 && nanos > 0).then(|| tokens as f64 * 1e9 / nanos as f64)
}

/// Milliseconds, as precise as they are worth.
#[must_use]
pub(super) fn millis(ms: f64) -> String {
    if ms < 10.0 { format!("{ms:.2} ms") } else { format!("{ms:.1} ms") }
}

/// A rate with a decimal unit, e.g. `78.2 GFLOP/s` for `FLOP`.
#[must_use]
pub(super) fn per_second(value: f64, of: &str) -> String {
    const UNITS: [(&str, f64); 4] = [("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)];
    match UNITS.iter().find(|(_, factor)| value >= *factor) {
        Some((unit, factor)) => format!("{:.1} {unit}{of}/s", value / factor),
        None => format!("{value:.1} {of}/s"),
    }
}

/// What an adapter can do, in one line.
#[must_use]
pub(super) fn measured(limits: &Measured) -> String {
    let half = limits.f16_flops.map_or_else(String::new, |rate| format!(", f16 {}", per_second(rate, "FLOP")));
    format!(
        "copy {}, read {}, f32 {}{half}, dots of bytes {}, a launch {:.1} us, a submit {:.0} us",
        per_second(limits.bandwidth_bytes_per_s, "B"),
        per_second(limits.read_bytes_per_s, "B"),
        per_second(limits.f32_flops, "FLOP"),
        per_second(limits.int8_ops, "OP"),
        limits.launch_nanos / 1e3,
        limits.submit_nanos / 1e3,
    )
}

/// Tokens a second.
#[must_use]
pub(super) fn rate(tokens_per_second: f64) -> String {
    if tokens_per_second < 10.0 {
        format!("{tokens_per_second:.2} tokens/s")
    } else {
        format!("{tokens_per_second:.1} tokens/s")
    }
}
