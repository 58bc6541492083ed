//! Figures for people: sizes, rates, times.

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

/// Tokens a second.
#[must_use]
pub(super) fn rate(tokens_per_second: f64) -> String {
    if tokens_per_second < 10.0 {
        format!("{tokens_per_second:.2} tokens/s")
    } else {
        format!("{tokens_per_second:.1} tokens/s")
    }
}
