//! Which of several variants a plan takes; all of a class are bit-equal, but for sizes of cooperative matrices. The first candidate is
//! what was measured best on adapters of its kind; another is chosen where a driver gets that one wrong, or where it was timed and
//! lost.

use super::plan::Plan;
use super::{Kernel, KvType, attn, matmul};
use crate::format::block::BlockFormat;

/// Launches that take one variant together. Rows of a step never decide between candidates: what does is the class, and it has a
/// kernel for few rows and one for many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Products with weights of a format; `rows` of activations a lane: 1, 2, 4 or 8.
    Matmul {
        /// Format of the weights.
        format: BlockFormat,
        /// Rows a lane.
        rows: u8,
        /// Ends in the activation of a gate.
        gated: bool,
    },
    /// Products of prompt tokens by cooperative matrices; a candidate is a size, and sizes differ in bits, so none is timed.
    Matrix {
        /// Format of the weights.
        format: BlockFormat,
        /// Ends in the activation of a gate.
        gated: bool,
    },
    /// Prefill attention.
    AttnPrefill {
        /// How pages store K and V.
        kv: KvType,
        /// Head size.
        head_dim: u16,
    },
    /// Decode attention.
    AttnDecode {
        /// How pages store K and V.
        kv: KvType,
        /// Head size.
        head_dim: u16,
    },
}

/// The candidate taken in each class, by its place; 0 is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Choices {
    matmul: [[[u8; 2]; 4]; BlockFormat::ALL.len()],
    matrix: [[u8; 2]; BlockFormat::ALL.len()],
    prefill: u8,
    decode: u8,
}

impl Choices {
    /// The first candidate of every class.
    pub const FIRST: Self = Self {
        matmul: [[[0; 2]; 4]; BlockFormat::ALL.len()],
        matrix: [[0; 2]; BlockFormat::ALL.len()],
        prefill: 0,
        decode: 0,
    };

    fn place(&mut self, class: Class) -> &mut u8 {
        match class {
            Class::Matmul { format, rows, gated } => {
                &mut self.matmul[format as usize][row_place(rows)][usize::from(gated)]
            }
            Class::Matrix { format, gated } => &mut self.matrix[format as usize][usize::from(gated)],
            // A model has one head size.
            Class::AttnPrefill { .. } => &mut self.prefill,
            Class::AttnDecode { .. } => &mut self.decode,
        }
    }

    /// Takes candidate `place` of a class from now on.
    pub fn set(&mut self, class: Class, place: u8) {
        *self.place(class) = place;
    }

    /// Place of the candidate that a class takes.
    #[must_use]
    pub fn get(mut self, class: Class) -> u8 {
        *self.place(class)
    }
}

fn row_place(rows: u8) -> usize {
    rows.ilog2().min(3) as usize
}

impl Kernel {
    /// The class that this kernel is a candidate of; `None` for kernels of which there is one.
    #[must_use]
    pub fn class(self) -> Option<Class> {
        match self {
            Self::Matmul(matmul::Shape { format, rows, gated, .. }) => Some(Class::Matmul { format, rows, gated }),
            Self::MatmulMatrix(matmul::matrix::Shape { format, gated, .. }) => Some(Class::Matrix { format, gated }),
            Self::AttnPrefill(attn::Shape { kv, head_dim, .. }) => Some(Class::AttnPrefill { kv, head_dim }),
            Self::AttnDecode(attn::Shape { kv, head_dim, .. }) => Some(Class::AttnDecode { kv, head_dim }),
            _ => None,
        }
    }
}

impl Class {
    /// Candidates on adapters of a plan's kind: at least one.
    #[must_use]
    pub fn candidates(self, plan: Plan) -> u8 {
        match self {
            Self::Matmul { rows, gated, .. } => matmul::candidates(plan, rows, gated),
            Self::Matrix { .. } => matmul::matrix::candidates(plan),
            Self::AttnPrefill { .. } | Self::AttnDecode { .. } => attn::candidates(plan),
        }
    }

    /// For files and people.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Matmul { format, rows, gated } => {
                format!("matmul{} {} r{rows}", if gated { " gated" } else { "" }, format.name())
            }
            Self::Matrix { format, gated } => {
                format!("matmul_matrix{} {}", if gated { " gated" } else { "" }, format.name())
            }
            Self::AttnPrefill { kv, head_dim } => format!("attn_prefill {} d{head_dim}", kv.name()),
            Self::AttnDecode { kv, head_dim } => format!("attn_decode {} d{head_dim}", kv.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_kept_for_its_class_alone() {
        let class = |rows, gated| Class::Matmul { format: BlockFormat::Q4_1, rows, gated };
        let mut choices = Choices::default();
        choices.set(class(4, true), 1);
        assert_eq!(choices.get(class(4, true)), 1);
        for other in [class(4, false), class(2, true), class(8, true), class(1, true)] {
            assert_eq!(choices.get(other), 0);
        }
    }
}
