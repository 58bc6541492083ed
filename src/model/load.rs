//! Weights from the file to the device: read, check, pack and upload a chunk at a time, so that the loader's own memory
//! stays small whatever the model's size.

use super::config::Config;
use super::decoder::{Head, Layer, Linear, Part};
use super::rope::Rope;
use super::weights::{LayerPlan, LinearPlan, PartPlan, TensorIndex, WeightPlan};
use crate::error::{Error, Result};
use crate::format::quantize;
use crate::format::table::{Tensor, TensorTable};
use crate::kernels::Kernel;
use crate::kernels::layout::{self, Packed, Planes};
use crate::limits::{BLOCK_WEIGHTS, GROUP_ROWS, LOAD_CHUNK_BYTES};
use crate::recording::{BufferId, Player};

/// Streams tensors of one model to one player.
pub(super) struct Loader<'a> {
    pub(super) table: &'a TensorTable,
    pub(super) player: &'a mut dyn Player<Kernel>,
    pub(super) progress: &'a mut dyn FnMut(u64, u64) -> Result<()>,
    /// Bound where a kernel has no use for a binding.
    pub(super) unused: BufferId,
    done: u64,
    total: u64,
    bytes: Vec<u8>,
    /// Of a tensor that is quantized on the way: its weights, and their blocks.
    floats: Vec<f32>,
    blocks: Vec<u8>,
    planes: Planes,
}

impl<'a> Loader<'a> {
    pub(super) fn new(
        table: &'a TensorTable,
        plan: &WeightPlan,
        player: &'a mut dyn Player<Kernel>,
        progress: &'a mut dyn FnMut(u64, u64) -> Result<()>,
    ) -> Result<Self> {
        let total = plan.used.iter().map(|&i| table.tensors[i].bytes).sum();
        let unused = player.create_buffer("unused", 256)?;
        progress(0, total)?;
        let (bytes, floats, blocks) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { table, player, progress, unused, done: 0, total, bytes, floats, blocks, planes: Planes::default() })
    }

    /// Embedding, and head where it is not the embedding.
    pub(super) fn head(&mut self, config: &Config, plan: &WeightPlan) -> Result<Head> {
        let embed = self.linear(&plan.embed)?;
        let head = plan.head.as_ref().map(|head| self.linear(head)).transpose()?;
        let norm = self.vector("output_norm", &[plan.output_norm], config.norm_offset)?;
        Ok(Head { head: head.unwrap_or_else(|| embed.clone()), embed, norm })
    }

    /// One layer without its pages.
    pub(super) fn layer(&mut self, config: &Config, plan: &LayerPlan) -> Result<Layer> {
        let offset = config.norm_offset;
        let post = |loader: &mut Self, label: &str, tensor: Option<TensorIndex>| {
            tensor.map(|tensor| loader.vector(label, &[tensor], offset)).transpose()
        };
        Ok(Layer {
            attn_norm: self.vector("attn_norm", &[plan.attn_norm], offset)?,
            qkv: self.linear(&plan.qkv)?,
            qk_norms: plan.qk_norms.map(|norms| self.vector("qk_norms", &norms, offset)).transpose()?,
            attn_out: self.linear(&plan.attn_out)?,
            post_attn_norm: post(self, "post_attn_norm", plan.post_attn_norm)?,
            ffn_norm: self.vector("ffn_norm", &[plan.ffn_norm], offset)?,
            gate_up: self.linear(&plan.gate_up)?,
            down: self.linear(&plan.down)?,
            post_ffn_norm: post(self, "post_ffn_norm", plan.post_ffn_norm)?,
            k_pages: self.unused,
            v_pages: self.unused,
        })
    }

    /// The table of one set of rotary frequencies, made and uploaded a run of positions at a time.
    pub(super) fn rope(&mut self, rope: &Rope, positions: u32) -> Result<BufferId> {
        let row_bytes = u64::from(rope.rotary_dim) * 4;
        let buffer = self.player.create_buffer("rope", row_bytes * u64::from(positions))?;
        let step = u32::try_from(LOAD_CHUNK_BYTES / row_bytes).expect("8 MiB of rows of at least 8 bytes");
        let mut first = 0;
        while first < positions {
            let count = step.min(positions - first);
            let rows = rope.table(first, count);
            self.player.write(buffer, u64::from(first) * row_bytes, bytemuck::cast_slice(&rows))?;
            first += count;
        }
        Ok(buffer)
    }

    fn linear(&mut self, plan: &LinearPlan) -> Result<Linear> {
        let bias = if plan.biases.is_empty() { None } else { Some(self.bias(plan)?) };
        let parts = plan.parts.iter().map(|part| self.part(plan, part)).collect::<Result<_>>()?;
        Ok(Linear { parts, bias })
    }

    fn part(&mut self, plan: &LinearPlan, part: &PartPlan) -> Result<Part> {
        let sizes = layout::plane_bytes(part.format, part.rows, plan.k);
        let label = &plan.label;
        let mut plane = |what: &str, bytes: u64| match bytes {
            0 => Ok(self.unused),
            bytes => self.player.create_buffer(&format!("{label} {what}"), bytes),
        };
        let packed = Packed {
            format: part.format,
            rows: part.rows,
            k: plan.k,
            codes: plane("codes", sizes.codes)?,
            scales: plane("scales", sizes.scales)?,
            high: plane("high", sizes.high)?,
        };
        let mut row = 0;
        for run in &part.runs {
            let tensor = &self.table.tensors[run.tensor];
            let row_bytes = tensor.bytes / tensor.shape[0];
            let groups = (LOAD_CHUNK_BYTES / (row_bytes * u64::from(GROUP_ROWS))).max(1);
            let step = u32::try_from(groups).unwrap_or(1 << 16).saturating_mul(GROUP_ROWS);
            let mut at = 0;
            while at < run.rows {
                let rows = step.min(run.rows - at);
                self.chunk(tensor, &packed, run.first_row + at, rows, row)?;
                at += rows;
                row += rows;
            }
        }
        assert_eq!(row, part.rows, "runs of {label} cover the part");
        Ok(Part { packed, column: part.column })
    }

    /// Rows `first .. first + rows` of a tensor become the rows of `packed` from `to` on.
    fn chunk(&mut self, tensor: &Tensor, packed: &Packed, first: u32, rows: u32, to: u32) -> Result<()> {
        assert!(to.is_multiple_of(GROUP_ROWS), "row {to} of a part does not start a group");
        self.table.read_rows(tensor, first.into(), rows.into(), &mut self.bytes)?;
        self.finite(tensor)?;
        let stored = match packed.format == tensor.format {
            true => &self.bytes,
            false => {
                self.floats.resize(rows as usize * packed.k as usize, 0.0);
                tensor.format.decode(&self.bytes, &mut self.floats)?;
                quantize::encode(packed.format, &self.floats, &mut self.blocks);
                &self.blocks
            }
        };
        layout::pack(packed.format, rows, packed.k, stored, &mut self.planes)?;
        let before = layout::plane_bytes(packed.format, to, packed.k);
        let planes = [
            (packed.codes, before.codes, &self.planes.codes),
            (packed.scales, before.scales, &self.planes.scales),
            (packed.high, before.high, &self.planes.high),
        ];
        for (buffer, offset, words) in planes {
            if !words.is_empty() {
                self.player.write(buffer, offset, bytemuck::cast_slice(words))?;
            }
        }
        self.count(self.bytes.len() as u64)
    }

    /// Vectors one after the other in one buffer, `offset` added to each element, then zeros to whole blocks.
    fn vector(&mut self, label: &str, tensors: &[TensorIndex], offset: f32) -> Result<BufferId> {
        let mut all = Vec::new();
        for &index in tensors {
            all.extend(self.floats(index)?.iter().map(|w| w + offset));
        }
        all.resize(all.len().next_multiple_of(BLOCK_WEIGHTS as usize), 0.0);
        self.upload(label, &all)
    }

    fn bias(&mut self, plan: &LinearPlan) -> Result<BufferId> {
        let mut all = Vec::new();
        for &(tensor, rows) in &plan.biases {
            match tensor {
                Some(index) => all.extend(self.floats(index)?),
                None => all.resize(all.len() + rows as usize, 0.0),
            }
        }
        assert_eq!(all.len(), plan.rows as usize, "a bias for each row of {}", plan.label);
        self.upload(&format!("{} bias", plan.label), &all)
    }

    fn floats(&mut self, index: TensorIndex) -> Result<Vec<f32>> {
        let tensor = &self.table.tensors[index];
        let values = self.table.read_floats(tensor)?;
        if let Some(bad) = values.iter().find(|v| !v.is_finite()) {
            return Err(Error::format("tensor values", "finite numbers", bad, self.table.place(tensor)));
        }
        self.count(tensor.bytes)?;
        Ok(values)
    }

    fn upload(&mut self, label: &str, values: &[f32]) -> Result<BufferId> {
        let buffer = self.player.create_buffer(label, values.len() as u64 * 4)?;
        self.player.write(buffer, 0, bytemuck::cast_slice(values))?;
        Ok(buffer)
    }

    fn finite(&self, tensor: &Tensor) -> Result<()> {
        if tensor.format.is_finite(&self.bytes) {
            return Ok(());
        }
        let expected = if tensor.format.has_scales() { "finite scales" } else { "finite numbers" };
        Err(Error::format("tensor values", expected, "NaN or infinity", self.table.place(tensor)))
    }

    fn count(&mut self, bytes: u64) -> Result<()> {
        self.done += bytes;
        (self.progress)(self.done.min(self.total), self.total)
    }
}
