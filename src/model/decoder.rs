//! The decoder: one function that records a step over a ragged batch.
//!
//! ```text
//! x ← embed(tokens)
//! each layer:  qkv   ← norm(x) · Wqkv + b            q, k rotated, K and V into their pages
//!              x     ← x + [norm] attn(q, pages) · Wo
//!              x     ← x + [norm] (act(gate) * up) · Wdown      gate, up ← norm(x) · Wgate, norm(x) · Wup
//! logits ← norm(x[wanted rows]) · Whead               hidden states that are wanted themselves: norm(x)
//! ```
//!
//! Additions to `x` ride in the product before them, or, where that is normed, in the norm that follows. Norms of one row ride in the
//! product behind them where launches are dear. Where a plan goes by phase, each product of a layer is two: of generated rows, and of
//! prompts by cooperative matrices; the head's is one.

use super::Model;
use super::batch::Batch;
use crate::kernels::layout::Packed;
use crate::kernels::{Tape, argmax, attn, embed, gate_act, matmul, quant_act, rms_norm, rope_kv};
use crate::recording::BufferId;

/// One packed matrix and the first column that it writes (the first token, for an embedding).
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) packed: Packed,
    pub(super) column: u32,
}

/// Matrices whose products lie side by side.
#[derive(Debug, Clone)]
pub(super) struct Linear {
    pub(super) parts: Vec<Part>,
    /// `[rows]` f32 over all parts.
    pub(super) bias: Option<BufferId>,
}

/// Buffers of a layer.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) attn_norm: BufferId,
    pub(super) qkv: Linear,
    pub(super) qk_norms: Option<BufferId>,
    pub(super) attn_out: Linear,
    pub(super) post_attn_norm: Option<BufferId>,
    pub(super) ffn_norm: BufferId,
    pub(super) gate_up: Linear,
    pub(super) down: Linear,
    pub(super) post_ffn_norm: Option<BufferId>,
    pub(super) k_pages: BufferId,
    pub(super) v_pages: BufferId,
}

/// Buffers before the first layer and after the last.
#[derive(Debug)]
pub(super) struct Head {
    /// Column = first token of the part.
    pub(super) embed: Linear,
    pub(super) norm: BufferId,
    /// The embedding itself where the model ties them.
    pub(super) head: Linear,
}

/// Buffers that each step writes anew. Strides are in [`super::sizes::Sizes`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    /// `[rows, hidden]`: the residual stream.
    pub(super) x: BufferId,
    /// `[rows, hidden]`: its norm.
    pub(super) normed: BufferId,
    /// `[rows, hidden]`: what is to be added to it.
    pub(super) delta: BufferId,
    /// `[rows, hidden]`: the norm of that, in models that have one.
    pub(super) post: BufferId,
    /// `[rows, qkv]`.
    pub(super) qkv: BufferId,
    /// `[rows, q]`: rotated queries.
    pub(super) q: BufferId,
    /// `[rows, attn]`.
    pub(super) attn: BufferId,
    /// `[rows, gate_up]`.
    pub(super) gate_up: BufferId,
    /// `[rows, act]`.
    pub(super) act: BufferId,
    /// `[logit_rows, vocab]`.
    pub(super) logits: BufferId,
    /// `[logit_rows]` u32.
    pub(super) ids: BufferId,
    /// `[rows]` of [`crate::kernels::Row`].
    pub(super) rows: BufferId,
    /// `[rows]` of [`crate::kernels::Tile`].
    pub(super) tiles: BufferId,
    /// `[slots, table_stride]` u32.
    pub(super) tables: BufferId,
    /// `[logit_rows]` u32.
    pub(super) map: BufferId,
    /// Partial results of decode attention.
    pub(super) parts: BufferId,
    /// `[rows, longest row / 32]` of [`quant_act::BLOCK_WORDS`]: what a product reads as bytes.
    pub(super) packed: BufferId,
    /// Two buffers to bind where nothing is needed.
    pub(super) unused: [BufferId; 2],
}

impl Model {
    /// Records the launches of a step whose batch is already uploaded.
    pub(super) fn record_step(&self, tape: &mut Tape, batch: &Batch) {
        let (work, sizes) = (&self.work, &self.sizes);
        self.record_embed(tape, batch);
        // What is still to be added to x, in models that norm it first.
        let mut added: Option<BufferId> = None;
        for (i, layer) in self.layers.iter().enumerate() {
            tape.border();
            self.record_qkv(tape, batch, layer, added);
            self.record_rope_kv(tape, batch, i);
            if batch.map.is_empty() && batch.pooled.is_empty() && i + 1 == self.layers.len() {
                return; // pages are written, nobody asked for more
            }
            self.record_attn(tape, batch, i);
            added = self.record_residual(tape, batch, &layer.attn_out, (work.attn, sizes.attn), layer.post_attn_norm);
            self.record_gated(tape, batch, layer, added);
            added = self.record_residual(tape, batch, &layer.down, (work.act, sizes.act), layer.post_ffn_norm);
        }
        tape.border();
        if !batch.map.is_empty() {
            self.record_head(tape, batch, added);
        }
        if !batch.pooled.is_empty() {
            let args = self.norm_args(work.x, added, self.head.norm, work.normed, None, row_count(batch));
            rms_norm::record(tape, &args);
        }
    }

    /// The read-backs of the rows that are pooled: `hidden` floats a row, run after run. The step's last norm left them there.
    pub(super) fn record_pooled(&self, tape: &mut Tape, batch: &Batch) {
        let row_bytes = u64::from(self.sizes.hidden) * 4;
        for &(first, count) in &batch.pooled {
            tape.read(self.work.normed, u64::from(first) * row_bytes, u64::from(count) * row_bytes);
        }
    }

    fn record_embed(&self, tape: &mut Tape, batch: &Batch) {
        for part in &self.head.embed.parts {
            embed::record(
                tape,
                &embed::Args {
                    weights: part.packed,
                    first_token: part.column,
                    rows: self.work.rows,
                    row_count: row_count(batch),
                    out: self.work.x,
                    out_stride: self.sizes.hidden,
                    scale: self.config.embed_scale,
                    history: self.sampler.map_or(self.work.unused[0], |sampler| sampler.buffers.history),
                    history_stride: self.sampler.map_or(1, |sampler| sampler.sizes.context),
                },
            );
        }
    }

    fn norm_args(
        &self,
        x: BufferId,
        delta: Option<BufferId>,
        weight: BufferId,
        out: BufferId,
        map: Option<BufferId>,
        row_count: u32,
    ) -> rms_norm::Args {
        let [unused_delta, unused_map] = self.work.unused;
        rms_norm::Args {
            x,
            delta,
            weight,
            map,
            out,
            row_count,
            dim: self.config.hidden,
            stride: self.sizes.hidden,
            eps: self.config.eps,
            unused_delta,
            unused_map,
            lanes: rms_norm::choose(self.plan),
        }
    }

    /// What the products of the normed `x + delta` with `linear` read: its norm, or, where they norm it on the way, `x` itself.
    fn record_normed(
        &self,
        tape: &mut Tape,
        batch: &Batch,
        (delta, weight): (Option<BufferId>, BufferId),
        (linear, gated): (&Linear, bool),
    ) -> Input {
        let hidden = self.sizes.hidden;
        let norms = |part: &Part| matmul::norms(self.plan, part.packed.format, gated, row_count(batch), hidden);
        if delta.is_none() && batch.matrix_rows == 0 && linear.parts.iter().all(norms) {
            return Input {
                buffer: self.work.x,
                stride: hidden,
                norm: Some(matmul::Norm { weight, eps: self.config.eps }),
                packed: None,
            };
        }
        rms_norm::record(tape, &self.norm_args(self.work.x, delta, weight, self.work.normed, None, row_count(batch)));
        Input::plain(self.work.normed, hidden)
    }

    fn record_qkv(&self, tape: &mut Tape, batch: &Batch, layer: &Layer, added: Option<BufferId>) {
        let (work, sizes) = (&self.work, &self.sizes);
        let input = self.record_normed(tape, batch, (added, layer.attn_norm), (&layer.qkv, false));
        self.record_matmul(tape, &layer.qkv, input, (work.qkv, sizes.qkv), Rows::of(batch));
    }

    /// `x ← x + linear(from)`. In models that norm the sum's second part: its norm, which the caller adds.
    fn record_residual(
        &self,
        tape: &mut Tape,
        batch: &Batch,
        linear: &Linear,
        (x, stride): (BufferId, u32),
        post_norm: Option<BufferId>,
    ) -> Option<BufferId> {
        let (work, sizes, rows) = (&self.work, &self.sizes, Rows::of(batch));
        let input = Input::plain(x, stride);
        let Some(weight) = post_norm else {
            let input = self.record_packed(tape, linear, false, input, rows);
            for part in &linear.parts {
                let args = matmul_args(linear, part, input, (work.x, sizes.hidden));
                self.record_product(tape, &matmul::Args { add: true, ..args }, rows);
            }
            return None;
        };
        self.record_matmul(tape, linear, input, (work.delta, sizes.hidden), rows);
        rms_norm::record(tape, &self.norm_args(work.delta, None, weight, work.post, None, row_count(batch)));
        Some(work.post)
    }

    fn record_matmul(&self, tape: &mut Tape, linear: &Linear, x: Input, out: (BufferId, u32), rows: Rows) {
        let x = self.record_packed(tape, linear, false, x, rows);
        for part in &linear.parts {
            self.record_product(tape, &matmul_args(linear, part, x, out), rows);
        }
    }

    /// One product, of `rows` instead of what `args` says.
    fn record_product(&self, tape: &mut Tape, args: &matmul::Args, rows: Rows) {
        matmul::record(tape, self.plan, &matmul::Args { rows: rows.ordinary, ..*args });
        if rows.matrix > 0 {
            let args = matmul::Args { rows: rows.matrix, ..*args };
            matmul::matrix::record(tape, self.plan, &args, rows.ordinary);
        }
    }

    /// The input as bytes too, where products of `linear` read it so.
    fn record_packed(&self, tape: &mut Tape, linear: &Linear, gated: bool, input: Input, rows: Rows) -> Input {
        let rows = rows.ordinary;
        let reads = |part: &Part| matmul::packs(self.plan, part.packed.format, gated, rows);
        if rows == 0 || !linear.parts.iter().any(reads) {
            return input;
        }
        assert!(input.norm.is_none(), "packed before its norm");
        let out = self.work.packed;
        quant_act::record(tape, &quant_act::Args { x: input.buffer, x_stride: input.stride, out, rows });
        Input { packed: Some(out), ..input }
    }

    /// `act ← act(gate) * up`: at once where gate and up are one matrix, else their products first.
    fn record_gated(&self, tape: &mut Tape, batch: &Batch, layer: &Layer, added: Option<BufferId>) {
        let (work, sizes, rows) = (&self.work, &self.sizes, Rows::of(batch));
        let whole = match &layer.gate_up.parts[..] {
            [one] => Some(one).filter(|one| one.packed.rows == 2 * self.config.intermediate),
            _ => None,
        };
        let input = self.record_normed(tape, batch, (added, layer.ffn_norm), (&layer.gate_up, whole.is_some()));
        match whole {
            Some(one) => {
                let input = self.record_packed(tape, &layer.gate_up, true, input, rows);
                let args = matmul_args(&layer.gate_up, one, input, (work.act, sizes.act));
                self.record_product(tape, &matmul::Args { gate: Some(self.config.activation), ..args }, rows);
            }
            None => {
                self.record_matmul(tape, &layer.gate_up, input, (work.gate_up, sizes.gate_up), rows);
                self.record_gate_act(tape, batch);
            }
        }
    }

    fn record_rope_kv(&self, tape: &mut Tape, batch: &Batch, layer: usize) {
        let (config, work, sizes) = (&self.config, &self.work, &self.sizes);
        let (rope, rotary_dim) = self.rope(layer);
        let layer = &self.layers[layer];
        rope_kv::record(
            tape,
            &rope_kv::Args {
                qkv: work.qkv,
                qkv_stride: sizes.qkv,
                rope,
                rows: work.rows,
                row_count: row_count(batch),
                tables: work.tables,
                table_stride: sizes.table_stride,
                norm_weights: layer.qk_norms.unwrap_or(work.unused[0]),
                norm: layer.qk_norms.is_some(),
                eps: config.eps,
                q_out: work.q,
                k_pages: layer.k_pages,
                v_pages: layer.v_pages,
                heads: config.heads,
                kv_heads: config.kv_heads,
                head_dim: config.head_dim,
                rotary_dim,
                pairing: config.pairing,
                kv: self.kv,
            },
        );
    }

    fn record_attn(&self, tape: &mut Tape, batch: &Batch, layer: usize) {
        let (config, work, stride) = (&self.config, &self.work, self.sizes.table_stride);
        let geometry = attn::Geometry {
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            scale: config.attn_scale,
            softcap: config.softcap,
            window: config.windows[layer],
        };
        let layer = &self.layers[layer];
        let buffers = attn::Buffers {
            q: work.q,
            k_pages: layer.k_pages,
            v_pages: layer.v_pages,
            tables: work.tables,
            tiles: work.tiles,
            parts: work.parts,
            out: work.attn,
        };
        let (prefill, decode) = self.attn_shapes();
        if batch.prefill_tiles > 0 {
            attn::record_prefill(tape, prefill, geometry, buffers, stride, 0, batch.prefill_tiles);
        }
        for wave in &batch.waves {
            let (first, tiles, splits) = (wave.first_tile, wave.tiles, wave.splits);
            attn::record_decode(tape, decode, geometry, buffers, stride, first, tiles, splits);
        }
    }

    fn record_gate_act(&self, tape: &mut Tape, batch: &Batch) {
        gate_act::record(
            tape,
            &gate_act::Args {
                gate_up: self.work.gate_up,
                gate_up_stride: self.sizes.gate_up,
                out: self.work.act,
                out_stride: self.sizes.act,
                dim: self.config.intermediate,
                row_count: row_count(batch),
                activation: self.config.activation,
            },
        );
    }

    /// Logits of the rows in the map.
    fn record_head(&self, tape: &mut Tape, batch: &Batch, added: Option<BufferId>) {
        let (work, sizes) = (&self.work, &self.sizes);
        let count = u32::try_from(batch.map.len()).expect("checked against the rows of logits");
        let map = Some(work.map);
        rms_norm::record(tape, &self.norm_args(work.x, added, self.head.norm, work.normed, map, count));
        let input = Input::plain(work.normed, sizes.hidden);
        // Of whichever phase: a row's logits take one product always.
        let rows = Rows { ordinary: count, matrix: 0 };
        self.record_matmul(tape, &self.head.head, input, (work.logits, sizes.vocab), rows);
    }

    /// The argmax of the first rows of logits, and the read-backs.
    pub(super) fn record_answers(&self, tape: &mut Tape, batch: &Batch) {
        let (work, sizes) = (&self.work, &self.sizes);
        let count = u32::try_from(batch.map.len()).expect("checked against the rows of logits");
        let row_bytes = u64::from(sizes.vocab) * 4;
        let ids = batch.argmax_rows;
        if ids > 0 {
            argmax::record(tape, work.logits, sizes.vocab, sizes.vocab, ids, work.ids);
            tape.read(work.ids, 0, u64::from(ids) * 4);
        }
        if count > ids {
            tape.read(work.logits, u64::from(ids) * row_bytes, u64::from(count - ids) * row_bytes);
        }
    }
}

/// What a matmul reads: a buffer, the floats between its rows, and the norm that is still to be applied.
#[derive(Debug, Clone, Copy)]
struct Input {
    buffer: BufferId,
    stride: u32,
    norm: Option<matmul::Norm>,
    /// The same as bytes.
    packed: Option<BufferId>,
}

impl Input {
    const fn plain(buffer: BufferId, stride: u32) -> Self {
        Self { buffer, stride, norm: None, packed: None }
    }
}

/// Rows of a product: the first ones by the ordinary family, those behind them by cooperative matrices.
#[derive(Debug, Clone, Copy)]
struct Rows {
    ordinary: u32,
    matrix: u32,
}

impl Rows {
    fn of(batch: &Batch) -> Self {
        Self { ordinary: row_count(batch) - batch.matrix_rows, matrix: batch.matrix_rows }
    }
}

fn matmul_args(linear: &Linear, part: &Part, input: Input, out: (BufferId, u32)) -> matmul::Args {
    matmul::Args {
        weights: part.packed,
        x: input.buffer,
        x_stride: input.stride,
        packed: input.packed,
        bias: linear.bias,
        bias_start: part.column,
        out: out.0,
        out_stride: out.1,
        out_column: part.column,
        rows: 0,
        gate: None,
        add: false,
        norm: input.norm,
    }
}

fn row_count(batch: &Batch) -> u32 {
    u32::try_from(batch.rows.len()).expect("checked against the rows of a step")
}
