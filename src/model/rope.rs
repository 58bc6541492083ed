//! RoPE tables, made on the host in f64: angles of far positions keep their digits, and each adapter gets the same numbers.

use std::f64::consts::PI;

/// How the base frequencies are stretched for long contexts.
#[derive(Debug, Clone, PartialEq)]
pub enum Scaling {
    /// Not at all.
    None,
    /// All divided by a factor.
    Linear {
        /// The factor.
        factor: f64,
    },
    /// High frequencies as they are, low ones divided, blended between: `llama3` in Hugging Face's words.
    Llama3 {
        /// Divides low frequencies.
        factor: f64,
        /// Wavelengths above `original_context / low` are low frequencies.
        low: f64,
        /// Wavelengths below `original_context / high` are high frequencies.
        high: f64,
        /// Context that the model was first trained with.
        original_context: f64,
    },
    /// YaRN: as above with a ramp over dimensions, and a factor on cos and sin.
    Yarn {
        /// Divides low frequencies.
        factor: f64,
        /// Context that the model was first trained with.
        original_context: f64,
        /// Rotations above which a dimension is left alone.
        beta_fast: f64,
        /// Rotations below which a dimension is divided whole.
        beta_slow: f64,
        /// Multiplies cos and sin.
        attention_factor: f64,
        /// Whether the ramp's ends are whole dimensions.
        truncate: bool,
    },
    /// Each frequency divided by its own number: `rope_freqs.weight` of a GGUF.
    Factors(Vec<f32>),
}

/// One set of rotary frequencies.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// Base of the powers.
    pub theta: f64,
    /// Leading elements of a head that rotate; even.
    pub rotary_dim: u32,
    /// Stretching.
    pub scaling: Scaling,
}

impl Rope {
    /// Angle a position for each of the `rotary_dim / 2` pairs.
    #[must_use]
    pub fn inverse_frequencies(&self) -> Vec<f64> {
        let dim = f64::from(self.rotary_dim);
        let plain = (0..self.rotary_dim / 2).map(|i| self.theta.powf(-f64::from(2 * i) / dim));
        match &self.scaling {
            Scaling::None => plain.collect(),
            Scaling::Linear { factor } => plain.map(|f| f / factor).collect(),
            Scaling::Factors(factors) => plain.zip(factors).map(|(f, &by)| f / f64::from(by)).collect(),
            &Scaling::Llama3 { factor, low, high, original_context } => plain
                .map(|f| {
                    let rotations = original_context * f / (2.0 * PI);
                    let keep = ((rotations - low) / (high - low)).clamp(0.0, 1.0);
                    (1.0 - keep) * f / factor + keep * f
                })
                .collect(),
            &Scaling::Yarn { factor, original_context, beta_fast, beta_slow, truncate, .. } => {
                let dimension =
                    |rotations: f64| dim * (original_context / (rotations * 2.0 * PI)).ln() / (2.0 * self.theta.ln());
                let (mut low, mut high) = (dimension(beta_fast), dimension(beta_slow));
                if truncate {
                    (low, high) = (low.floor(), high.ceil());
                }
                let (low, mut high) = (low.max(0.0), high.min(dim - 1.0));
                if low >= high {
                    high = low + 0.001;
                }
                plain
                    .enumerate()
                    .map(|(i, f)| {
                        #[allow(clippy::cast_precision_loss, reason = "an index of at most 128")]
                        let divided = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                        divided * f / factor + (1.0 - divided) * f
                    })
                    .collect()
            }
        }
    }

    /// What cos and sin are multiplied with.
    #[must_use]
    pub fn magnitude(&self) -> f64 {
        match self.scaling {
            Scaling::Yarn { attention_factor, .. } => attention_factor,
            _ => 1.0,
        }
    }

    /// Rows `first .. first + positions` of the table `[position, rotary_dim / 2]` of (cos, sin).
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "f64 to f32 is the rounding wanted")]
    pub fn table(&self, first: u32, positions: u32) -> Vec<[f32; 2]> {
        let (frequencies, magnitude) = (self.inverse_frequencies(), self.magnitude());
        let row = |p: u32| {
            let angle = move |f: &f64| f64::from(p) * f;
            frequencies.iter().map(angle).map(|a| [(a.cos() * magnitude) as f32, (a.sin() * magnitude) as f32])
        };
        (first..first + positions).flat_map(row).collect()
    }
}

/// YaRN's own factor on cos and sin for a stretch of `factor`: 0.1·m·ln(factor) + 1.
#[must_use]
pub fn yarn_magnitude(factor: f64, m: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * m * factor.ln() + 1.0 }
}

#[cfg(test)]
#[path = "rope_tests.rs"]
mod tests;
