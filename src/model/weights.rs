//! The weight plan: which tensors of the file become which matrices on the device, found and checked before any is read.
//!
//! Projections that read the same activations (q, k, v; gate, up) write side by side into one row of output. Neighbours
//! of one format become a single packed matrix, because every launch costs more than its bytes on small models:
//!
//! ```text
//! columns   0 ······ q ······ | ··· k ··· | ··· v ···
//! parts     [ q4_1: q and k together     ] [ q5_0: v ]      each at its column of the output row
//! ```
//!
//! A part is cut by rows where one of its planes would pass the binding limit.

use super::config::{BiasRule, Config};
use crate::error::{Error, Result};
use crate::format::block::BlockFormat;
use crate::format::quantize::{Quantize, Use};
use crate::format::table::TensorTable;
use crate::kernels::layout;
use crate::limits;

/// Index of a tensor in [`TensorTable::tensors`].
pub(super) type TensorIndex = usize;

/// Consecutive rows of one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) tensor: TensorIndex,
    pub(super) first_row: u32,
    pub(super) rows: u32,
}

/// One packed matrix: runs of one format, all but the last in whole row groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PartPlan {
    pub(super) format: BlockFormat,
    /// First column of the output (first token, for an embedding).
    pub(super) column: u32,
    pub(super) rows: u32,
    pub(super) runs: Vec<Run>,
}

/// A matrix `[rows, k]` in parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LinearPlan {
    pub(super) label: String,
    pub(super) rows: u32,
    pub(super) k: u32,
    pub(super) parts: Vec<PartPlan>,
    /// Bias tensors and the rows they cover, `None` for zeros; empty when there is no bias at all.
    pub(super) biases: Vec<(Option<TensorIndex>, u32)>,
}

/// Tensors of a layer.
#[derive(Debug, Clone)]
pub(super) struct LayerPlan {
    pub(super) attn_norm: TensorIndex,
    pub(super) qkv: LinearPlan,
    pub(super) qk_norms: Option<[TensorIndex; 2]>,
    pub(super) attn_out: LinearPlan,
    pub(super) post_attn_norm: Option<TensorIndex>,
    pub(super) ffn_norm: TensorIndex,
    pub(super) gate_up: LinearPlan,
    pub(super) down: LinearPlan,
    pub(super) post_ffn_norm: Option<TensorIndex>,
}

/// Tensors of a model.
#[derive(Debug, Clone)]
pub(super) struct WeightPlan {
    pub(super) vocab: u32,
    pub(super) embed: LinearPlan,
    /// `None` when the head is the embedding.
    pub(super) head: Option<LinearPlan>,
    pub(super) output_norm: TensorIndex,
    pub(super) layers: Vec<LayerPlan>,
    /// Every tensor that is read, each once.
    pub(super) used: Vec<TensorIndex>,
}

impl WeightPlan {
    /// Finds and checks every tensor of the model; `binding_bytes` bounds the planes, `quantize` says what float matrices become.
    ///
    /// # Errors
    /// A tensor that is missing, of the wrong shape or format, or that the architecture does not know.
    pub(super) fn new(
        config: &Config,
        table: &TensorTable,
        binding_bytes: u64,
        quantize: Option<Quantize>,
    ) -> Result<Self> {
        let mut finder = Finder::new(config, table, binding_bytes, quantize)?;
        let (names, hidden) = (&config.names, config.hidden);
        let embed_name = format!("{}{}", finder.prefix, names.embed);
        let vocab = match config.vocab {
            Some(vocab) => vocab,
            None => finder.rows_of(&embed_name)?,
        };
        let embed = finder.vocabulary("embed", embed_name, vocab, hidden)?;
        let output_norm = finder.vector(&format!("{}{}", finder.prefix, names.output_norm), hidden)?;
        let heads: Vec<_> = names.head_prefixes.iter().map(|prefix| format!("{prefix}{}", names.head)).collect();
        let found = heads.iter().find(|name| table.get(name).is_some());
        let head = match (config.tied, found) {
            (Some(true), _) | (None, None) => None,
            (Some(false) | None, found) => {
                let name = found.unwrap_or(&heads[0]).clone();
                Some(finder.vocabulary("head", name, vocab, hidden)?)
            }
        };
        let layers = (0..config.layers).map(|i| finder.layer(config, i)).collect::<Result<_>>()?;
        finder.refuse_unknown(config)?;
        let used = (0..table.tensors.len()).filter(|&i| finder.used[i]).collect();
        Ok(Self { vocab, embed, head, output_norm, layers, used })
    }

    /// All matrices, the embedding first.
    pub(super) fn linears(&self) -> impl Iterator<Item = &LinearPlan> {
        let layers = self.layers.iter().flat_map(|l| [&l.qkv, &l.attn_out, &l.gate_up, &l.down]);
        std::iter::once(&self.embed).chain(&self.head).chain(layers)
    }
}

impl LinearPlan {
    /// Bytes of all planes.
    pub(super) fn bytes(&self) -> u64 {
        self.parts
            .iter()
            .map(|part| {
                let planes = layout::plane_bytes(part.format, part.rows, self.k);
                planes.codes + planes.scales + planes.high
            })
            .sum()
    }
}

/// Looks tensors up, and remembers which were used.
struct Finder<'a> {
    table: &'a TensorTable,
    file: &'a str,
    binding_bytes: u64,
    quantize: Option<Quantize>,
    prefix: &'static str,
    used: Vec<bool>,
}

impl<'a> Finder<'a> {
    fn new(config: &'a Config, table: &'a TensorTable, binding_bytes: u64, quantize: Option<Quantize>) -> Result<Self> {
        let names = &config.names;
        let has = |prefix: &&&str| table.get(&format!("{prefix}{}", names.embed)).is_some();
        let prefix = names.prefixes.iter().find(has).or(names.prefixes.first());
        let prefix = *prefix.expect("a row of ARCHS names at least one prefix");
        let used = vec![false; table.tensors.len()];
        Ok(Self { table, file: &config.file, binding_bytes, quantize, prefix, used })
    }

    fn find(&mut self, name: &str, shape: &[u64]) -> Result<TensorIndex> {
        let Ok(index) = self.table.tensors.binary_search_by(|t| t.name.as_str().cmp(name)) else {
            let expected = format!("`{name}` {shape:?}");
            return Err(Error::format("find tensor", expected, "no such tensor", self.file));
        };
        let tensor = &self.table.tensors[index];
        if tensor.shape != shape {
            let got = format!("{:?}", tensor.shape);
            return Err(Error::format("tensor shape", format!("{shape:?}"), got, self.table.place(tensor)));
        }
        self.used[index] = true;
        Ok(index)
    }

    fn vector(&mut self, name: &str, dim: u32) -> Result<TensorIndex> {
        let index = self.find(name, &[dim.into()])?;
        let tensor = &self.table.tensors[index];
        if tensor.format.has_scales() {
            let (expected, got) = ("f32, f16 or bf16", tensor.format.name());
            return Err(Error::format("tensor format", expected, got, self.table.place(tensor)));
        }
        Ok(index)
    }

    /// Rows of a matrix whose height the configuration leaves open.
    fn rows_of(&self, name: &str) -> Result<u32> {
        let Some(tensor) = self.table.get(name) else {
            return Err(Error::format("find tensor", format!("`{name}`"), "no such tensor", self.file));
        };
        let rows = tensor.shape.first().copied().unwrap_or(0);
        match u32::try_from(rows) {
            Ok(n) if (1..=limits::VOCAB_MAX).contains(&n) => Ok(n),
            _ => {
                Err(Error::format("vocabulary", format!("1 to {}", limits::VOCAB_MAX), rows, self.table.place(tensor)))
            }
        }
    }

    fn layer(&mut self, config: &Config, layer: u32) -> Result<LayerPlan> {
        let (names, hidden, head_dim) = (&config.names, config.hidden, config.head_dim);
        let before = format!("{}{}{layer}.", self.prefix, names.layer);
        let name = |name: &str| format!("{before}{name}");
        let [qkv_bias, attn_out_bias, mlp_bias] = config.biases;
        let wide = config.intermediate;
        let rows = config.qkv_rows();
        let label = |op: &str| format!("layer {layer} {op}");
        let qkv = [0, 1, 2].map(|i| (name(names.qkv[i]), rows[i]));
        let gate_up = names.gate_up.map(|n| (name(n), wide));
        let post = |finder: &mut Self, post: &str| match config.arch.post_norms {
            true => finder.vector(&name(post), hidden).map(Some),
            false => Ok(None),
        };
        Ok(LayerPlan {
            attn_norm: self.vector(&name(names.attn_norm), hidden)?,
            qkv: self.linear(&label("qkv"), &qkv, hidden, qkv_bias)?,
            qk_norms: if config.arch.qk_norm {
                let [q, k] = names.qk_norms.map(name);
                Some([self.vector(&q, head_dim)?, self.vector(&k, head_dim)?])
            } else {
                None
            },
            attn_out: self.linear(&label("attn_out"), &[(name(names.attn_out), hidden)], rows[0], attn_out_bias)?,
            post_attn_norm: post(self, names.post_attn_norm)?,
            ffn_norm: self.vector(&name(names.ffn_norm), hidden)?,
            gate_up: self.linear(&label("gate_up"), &gate_up, hidden, mlp_bias)?,
            down: self.linear(&label("down"), &[(name(names.down), hidden)], wide, mlp_bias)?,
            post_ffn_norm: post(self, names.post_ffn_norm)?,
        })
    }

    /// A row a token.
    fn vocabulary(&mut self, label: &str, name: String, vocab: u32, k: u32) -> Result<LinearPlan> {
        self.matrix(label, &[(name, vocab)], k, BiasRule::Absent, Use::Vocabulary)
    }

    /// A matrix of a layer, of one or more tensors `(name, rows)` below each other, names without `.weight`.
    fn linear(&mut self, label: &str, tensors: &[(String, u32)], k: u32, bias: BiasRule) -> Result<LinearPlan> {
        self.matrix(label, tensors, k, bias, Use::Layer)
    }

    fn matrix(
        &mut self,
        label: &str,
        tensors: &[(String, u32)],
        k: u32,
        bias: BiasRule,
        of: Use,
    ) -> Result<LinearPlan> {
        let mut runs = Vec::new();
        let mut biases = Vec::new();
        for (name, rows) in tensors {
            let stem = name.strip_suffix(".weight").unwrap_or(name);
            let tensor = self.find(&format!("{stem}.weight"), &[(*rows).into(), k.into()])?;
            let stored = self.table.tensors[tensor].format;
            let format = self.quantize.map_or(stored, |quantize| quantize.format(stored, k.into(), of));
            runs.push((format, Run { tensor, first_row: 0, rows: *rows }));
            let bias_name = format!("{stem}.bias");
            let there = match bias {
                BiasRule::Absent => false,
                BiasRule::Required => true,
                BiasRule::Optional => self.table.get(&bias_name).is_some(),
            };
            biases.push((if there { Some(self.vector(&bias_name, *rows)?) } else { None }, *rows));
        }
        if biases.iter().all(|(tensor, _)| tensor.is_none()) {
            biases.clear();
        }
        let parts = parts(&runs, k, self.binding_bytes);
        Ok(LinearPlan { label: label.to_owned(), rows: tensors.iter().map(|t| t.1).sum(), k, parts, biases })
    }

    /// A tensor in a layer that nobody asked for would mean other numbers than the model's.
    fn refuse_unknown(&self, config: &Config) -> Result<()> {
        let names = &config.names;
        let before = format!("{}{}", self.prefix, names.layer);
        for (tensor, _) in self.table.tensors.iter().zip(&self.used).filter(|(_, used)| !**used) {
            let Some(rest) = tensor.name.strip_prefix(&before) else { continue };
            if names.ignored.iter().any(|name| rest.ends_with(name)) {
                continue;
            }
            let expected = format!("only tensors that {} of {} layers has", config.arch.name, config.layers);
            return Err(Error::format("tensor list", expected, "one more", self.table.place(tensor)));
        }
        let spare = self.used.iter().filter(|used| !**used).count();
        if spare > 0 {
            tracing::debug!("{}: {spare} tensors are not needed", config.file);
        }
        Ok(())
    }
}

/// Joins neighbours of one format, then cuts what passes the binding limit.
fn parts(runs: &[(BlockFormat, Run)], k: u32, binding_bytes: u64) -> Vec<PartPlan> {
    let mut joined: Vec<PartPlan> = Vec::new();
    let mut column = 0;
    for &(format, run) in runs {
        match joined.last_mut() {
            Some(part) if part.format == format && part.rows.is_multiple_of(limits::GROUP_ROWS) => {
                part.rows += run.rows;
                part.runs.push(run);
            }
            _ => joined.push(PartPlan { format, column, rows: run.rows, runs: vec![run] }),
        }
        column += run.rows;
    }
    joined.iter().flat_map(|part| cut(part, layout::rows_within(part.format, k, binding_bytes))).collect()
}

/// Pieces of at most `rows_max` rows, a multiple of the row group.
fn cut(part: &PartPlan, rows_max: u32) -> Vec<PartPlan> {
    assert!(rows_max.is_multiple_of(limits::GROUP_ROWS), "{rows_max} rows are not whole groups");
    let mut pieces: Vec<PartPlan> = Vec::new();
    let mut column = part.column;
    for run in &part.runs {
        let mut first_row = run.first_row;
        while first_row < run.first_row + run.rows {
            let room = pieces.last().map_or(0, |piece| rows_max - piece.rows);
            if room == 0 {
                pieces.push(PartPlan { format: part.format, column, rows: 0, runs: Vec::new() });
            }
            let piece = pieces.last_mut().expect("one was pushed when there was none");
            let rows = (run.first_row + run.rows - first_row).min(rows_max - piece.rows);
            piece.runs.push(Run { tensor: run.tensor, first_row, rows });
            piece.rows += rows;
            first_row += rows;
            column += rows;
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A part: column, rows, runs as (tensor, first row, rows).
    type Expected<'a> = (u32, u32, &'a [(TensorIndex, u32, u32)]);

    /// Tensors as (format, rows), against parts.
    #[track_caller]
    fn check(tensors: &[(BlockFormat, u32)], binding_bytes: u64, want: &[Expected<'_>]) {
        let runs: Vec<_> = tensors
            .iter()
            .enumerate()
            .map(|(tensor, &(format, rows))| (format, Run { tensor, first_row: 0, rows }))
            .collect();
        let got = parts(&runs, 64, binding_bytes);
        let got: Vec<(u32, u32, Vec<_>)> = got
            .iter()
            .map(|p| (p.column, p.rows, p.runs.iter().map(|r| (r.tensor, r.first_row, r.rows)).collect()))
            .collect();
        let want: Vec<_> = want.iter().map(|(column, rows, runs)| (*column, *rows, runs.to_vec())).collect();
        assert_eq!(got, want, "{tensors:?} within {binding_bytes}");
    }

    #[test]
    fn neighbours_of_one_format_become_one_part() {
        use BlockFormat::{Q4_1, Q5_0};
        let all = u64::MAX;
        check(&[(Q4_1, 64)], all, &[(0, 64, &[(0, 0, 64)])]);
        check(&[(Q4_1, 64), (Q4_1, 32), (Q4_1, 32)], all, &[(0, 128, &[(0, 0, 64), (1, 0, 32), (2, 0, 32)])]);
        check(
            &[(Q4_1, 64), (Q4_1, 32), (Q5_0, 32)],
            all,
            &[(0, 96, &[(0, 0, 64), (1, 0, 32)]), (96, 32, &[(2, 0, 32)])],
        );
        // a ragged end is only good for the last of a part
        check(&[(Q4_1, 40), (Q4_1, 32), (Q4_1, 8)], all, &[(0, 40, &[(0, 0, 40)]), (40, 40, &[(1, 0, 32), (2, 0, 8)])]);
    }

    #[test]
    fn parts_are_cut_at_row_groups_by_the_binding_limit() {
        use BlockFormat::{F32, Q4_1};
        // f32, k = 64: a group of 32 rows takes 8,192 bytes
        check(&[(F32, 100)], 16_384, &[(0, 64, &[(0, 0, 64)]), (64, 36, &[(0, 64, 36)])]);
        check(&[(F32, 32), (F32, 64)], 16_384, &[(0, 64, &[(0, 0, 32), (1, 0, 32)]), (64, 32, &[(1, 32, 32)])]);
        // q4_1, k = 64: a group takes 1,024 bytes; never less than one group
        check(&[(Q4_1, 64)], 100, &[(0, 32, &[(0, 0, 32)]), (32, 32, &[(0, 32, 32)])]);
    }
}
