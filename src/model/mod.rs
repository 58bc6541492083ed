//! Models: architecture as data, weights to buffers, and the decoder as one function that records a step.
//!
//! This layer knows kernels and players but not what an adapter is; it knows no scheduler, sampler or text.
//!
//! ```text
//! arch     the table of architectures            config   the numbers of one checkpoint, from GGUF or config.json
//! weights  which tensors become which matrices   load     streams them to the player
//! sizes    context, pages, rows of a step        rope     tables of cos and sin
//! batch    a ragged batch as the kernels see it  decoder  records a step
//! serving  steps whose tokens are sampled on the device      kernels  which kernels steps launch
//! ```

pub mod arch;
mod batch;
pub mod config;
mod config_gguf;
mod config_hf;
mod decoder;
mod facts;
mod json;
mod kernels;
mod load;
mod outline;
pub mod random;
pub mod rope;
mod serving;
mod sizes;
pub mod toy;
mod weights;

use crate::error::{Error, Result};
use crate::format::model_files::ModelFiles;
use crate::format::quantize::Quantize;
use crate::kernels::plan::{Activations, Plan};
use crate::kernels::{Kernel, KvType, Row, Tape, Tile, attn, quant_act};
use crate::limits;
use crate::recording::{BufferId, Player};
use batch::Batch;
use config::Config;
use decoder::{Head, Layer, Work};
use facts::Facts;
pub use facts::TokenWork;
pub use kernels::Extent;
use load::Loader;
pub use outline::Outline;
pub use serving::{Sample, ServingAnswer, ServingRows};
use serving::{Sampler, allocate_sampler};
use sizes::{Pool, Sizes};
use weights::WeightPlan;

/// What a caller chooses before loading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadOptions {
    /// Context to serve: the model's own, or less.
    pub context_tokens: Option<u32>,
    /// Most rows of one step.
    pub step_rows: u32,
    /// Sequences whose pages live at once (rows of the block tables).
    pub slots: u32,
    /// How K and V are stored.
    pub kv: KvType,
    /// Bound of the KV pool in bytes; `None` sizes it as DESIGN.md §4 says.
    pub kv_bytes: Option<u64>,
    /// Rows of a step that may yield tokens by [`Model::record_serving`]; 0 for [`Model::record`] alone.
    pub sampled_rows: u32,
    /// What float matrices become on the way to the device.
    pub quantize: Option<Quantize>,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            context_tokens: None,
            step_rows: limits::BATCHED_TOKENS_DEFAULT,
            slots: 1,
            kv: KvType::F16,
            kv_bytes: None,
            sampled_rows: 0,
            quantize: None,
        }
    }
}

/// What a sequence wants back from a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Nothing: a chunk that is not the last.
    Nothing,
    /// The argmax of the last row's logits.
    Argmax,
    /// All logits of the last row.
    LastLogits,
    /// All logits of every row.
    AllLogits,
}

/// Consecutive tokens of one sequence in a step.
#[derive(Debug, Clone, Copy)]
pub struct SequenceRows<'a> {
    /// Row of the block tables; below [`LoadOptions::slots`].
    pub slot: u32,
    /// Position of the first token.
    pub position: u32,
    /// The tokens.
    pub tokens: &'a [u32],
    /// Page of each 16 positions from 0 up to the last of `tokens`.
    pub pages: &'a [u32],
    /// Positions below it are a prompt's, others were generated: where a plan goes by phase they take different products.
    pub prompt_tokens: u32,
    /// What comes back.
    pub want: Want,
}

/// Where a sequence's answer lies in [`crate::recording::Played::words`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// First word.
    pub start: usize,
    /// Rows: 0 for [`Want::Nothing`].
    pub rows: u32,
    /// Words a row: 1 for [`Want::Argmax`] (an id, or [`crate::kernels::argmax::NOT_FINITE`]), else the vocabulary (f32 bits).
    pub row_words: u32,
}

/// What a model needs, said before anything is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs {
    /// Bytes of packed weights.
    pub weight_bytes: u64,
    /// Bytes of the same tensors in the file.
    pub file_bytes: u64,
    /// Bytes of the KV pool.
    pub kv_bytes: u64,
    /// Bytes of activations, tables and logits.
    pub work_bytes: u64,
    /// Context that the pool holds.
    pub context_tokens: u32,
    /// Pages of the pool.
    pub pages: u32,
}

/// A loaded model: buffers of one player, and what is needed to record steps over them.
#[derive(Debug)]
pub struct Model {
    config: Config,
    plan: Plan,
    kv: KvType,
    pool: Pool,
    sizes: Sizes,
    head: Head,
    layers: Vec<Layer>,
    /// Tables of layers without and with a window; the same buffer where they do not differ.
    ropes: [BufferId; 2],
    work: Work,
    sampler: Option<Sampler>,
    facts: Facts,
}

/// Everything that is decided before a byte of weights is read.
struct Blueprint {
    config: Config,
    weights: WeightPlan,
    pool: Pool,
    sizes: Sizes,
}

impl Blueprint {
    fn new(files: &ModelFiles, player: &dyn Player<Kernel>, options: &LoadOptions) -> Result<Self> {
        let binding_bytes = player.binding_bytes_max();
        let config = Config::read(files)?;
        let weights = WeightPlan::new(&config, &files.table, binding_bytes, options.quantize)?;
        let pool = Pool::new(&config, options, binding_bytes)?;
        let sizes = Sizes::new(&config, weights.vocab, options, pool.context, binding_bytes)?;
        Ok(Self { config, weights, pool, sizes })
    }
}

impl Model {
    /// Reads the description, checks it against the tensors, and says what loading will take. Reads no weights.
    ///
    /// # Errors
    /// An unknown architecture, a tensor that is missing or of the wrong shape, numbers that make no sense.
    pub fn needs(files: &ModelFiles, player: &dyn Player<Kernel>, plan: Plan, options: &LoadOptions) -> Result<Needs> {
        let Blueprint { config, weights, pool, sizes } = Blueprint::new(files, player, options)?;
        let work: u64 = work_sizes(&config, &sizes, plan).iter().map(|(_, bytes)| bytes).sum();
        let rope_tables = std::iter::once(&config.rope).chain(&config.local_rope);
        let ropes: u64 = rope_tables.map(|rope| u64::from(rope.rotary_dim) * 4 * u64::from(pool.context)).sum();
        Ok(Needs {
            weight_bytes: weights.linears().map(weights::LinearPlan::bytes).sum(),
            file_bytes: weights.used.iter().map(|&i| files.table.tensors[i].bytes).sum(),
            kv_bytes: pool.buffer_bytes() * 2 * u64::from(config.layers),
            work_bytes: work + ropes,
            context_tokens: pool.context,
            pages: pool.pages,
        })
    }

    /// Streams the weights to the player: read, pack and upload a chunk at a time. `progress(done, total)` counts file bytes;
    /// an error it returns ends the loading.
    ///
    /// # Errors
    /// As [`Model::needs`], and the player's.
    pub fn load(
        files: &ModelFiles,
        player: &mut dyn Player<Kernel>,
        plan: Plan,
        options: &LoadOptions,
        progress: &mut dyn FnMut(u64, u64) -> Result<()>,
    ) -> Result<Self> {
        let Blueprint { config, weights, pool, sizes } = Blueprint::new(files, player, options)?;
        let facts = Facts::new(&config, &weights, &files.table, options.quantize, options.kv);
        let mut loader = Loader::new(&files.table, &weights, player, progress)?;
        let head = loader.head(&config, &weights)?;
        let layers = weights.layers.iter().map(|layer| loader.layer(&config, layer));
        let mut layers = layers.collect::<Result<Vec<_>>>()?;
        let rope = loader.rope(&config.rope, pool.context)?;
        let local = config.local_rope.as_ref().map(|local| loader.rope(local, pool.context)).transpose()?;
        let work = allocate_work(loader.player, &config, &sizes, plan, loader.unused)?;
        let sampler = allocate_sampler(loader.player, &pool, &sizes, options, work.logits)?;
        // Last, because it alone can do with less: it takes what memory is left.
        let wanted = pool.context;
        let pool = allocate_pool(loader.player, pool, &mut layers)?;
        if pool.context < wanted {
            let got = pool.context;
            tracing::warn!("context lowered from {wanted} to {got} tokens: the adapter refused more KV pages");
        }
        Ok(Self {
            plan,
            kv: options.kv,
            pool,
            sizes,
            head,
            layers,
            ropes: [rope, local.unwrap_or(rope)],
            work,
            sampler,
            facts,
            config,
        })
    }

    /// Records one step over a ragged batch, and says where each sequence's answer will lie.
    /// The caller guarantees that pages are its own, that tokens are below [`Model::vocab`], and that rows and logit rows
    /// stay within the limits below.
    pub fn record(&self, tape: &mut Tape, sequences: &[SequenceRows<'_>]) -> Vec<Answer> {
        let batch = self.lay_out(sequences);
        let work = &self.work;
        tape.upload(work.rows, 0, &batch.rows);
        tape.upload(work.tiles, 0, &batch.tiles);
        tape.upload(work.map, 0, &batch.map);
        for sequence in sequences {
            let offset = u64::from(sequence.slot) * u64::from(self.sizes.table_stride) * 4;
            tape.upload(work.tables, offset, sequence.pages);
        }
        self.record_step(tape, &batch);
        if !batch.map.is_empty() {
            self.record_answers(tape, &batch);
        }
        batch.answers
    }

    fn lay_out(&self, sequences: &[SequenceRows<'_>]) -> Batch {
        let (prefill, _) = self.attn_shapes();
        let tile_tokens = attn::tile_tokens(prefill, self.config.heads / self.config.kv_heads);
        // Decode spreads a row's keys over workgroups; without thousands of lanes to fill, rows of a tile had rather share them (lavapipe,
        // 4 rows of a chunk at position 1,000: a step of 8 rows 145 ms, of 16 rows, tiled, 152).
        let decode_rows = if self.plan.software { 1 } else { sizes::DECODE_ROWS };
        Batch::new(sequences, &self.sizes, decode_rows, tile_tokens, self.plan.by_phase())
    }

    /// How K and V are stored.
    #[must_use]
    pub const fn kv(&self) -> KvType {
        self.kv
    }

    /// Which variants it takes.
    #[must_use]
    pub const fn plan(&self) -> Plan {
        self.plan
    }

    /// Takes other variants from now on. What was loaded stays.
    pub fn set_plan(&mut self, plan: Plan) {
        assert_eq!(plan.by_phase(), self.plan.by_phase(), "phases are a matter of the tier");
        assert_eq!(plan.activations, self.plan.activations, "activations are chosen before loading");
        self.plan = plan;
    }

    /// K and columns of a product as most of a token's are.
    #[must_use]
    pub const fn typical_product(&self) -> (u32, u32) {
        (self.config.hidden, self.config.intermediate)
    }

    /// Sequences whose pages and history may live at once.
    #[must_use]
    pub const fn slots(&self) -> u32 {
        self.sizes.slots
    }

    /// Tokens that one sequence may hold, prompt and answer.
    #[must_use]
    pub const fn context_tokens(&self) -> u32 {
        self.pool.context
    }

    /// Pages of the pool.
    #[must_use]
    pub const fn pages(&self) -> u32 {
        self.pool.pages
    }

    /// Most rows of a step.
    #[must_use]
    pub const fn step_rows_max(&self) -> u32 {
        self.sizes.rows
    }

    /// Most rows whose logits a step may return; at least 1.
    #[must_use]
    pub const fn logit_rows_max(&self) -> u32 {
        self.sizes.logit_rows
    }

    /// Width of the residual stream.
    #[must_use]
    pub const fn width(&self) -> u32 {
        self.config.hidden
    }

    /// Size of the vocabulary: rows of the embedding.
    #[must_use]
    pub const fn vocab(&self) -> u32 {
        self.sizes.vocab
    }

    /// Architecture and size as llama-bench prints it, e.g. `llama 135M Q4_1`.
    #[must_use]
    pub fn type_name(&self) -> String {
        self.facts.type_name.clone()
    }

    /// Bytes of the tensors in the file.
    #[must_use]
    pub const fn file_bytes(&self) -> u64 {
        self.facts.file_bytes
    }

    /// Number of parameters.
    #[must_use]
    pub const fn params(&self) -> u64 {
        self.facts.params
    }

    /// What a token takes: for rooflines.
    #[must_use]
    pub const fn work(&self) -> TokenWork {
        self.facts.work
    }

    /// Table and rotating elements of a layer.
    fn rope(&self, layer: usize) -> (BufferId, u32) {
        let local = self.config.local_rope.as_ref().filter(|_| self.config.windows[layer] > 0);
        match local {
            Some(local) => (self.ropes[1], local.rotary_dim),
            None => (self.ropes[0], self.config.rope.rotary_dim),
        }
    }

    /// Variants of prefill and decode attention.
    fn attn_shapes(&self) -> (attn::Shape, attn::Shape) {
        let (head_dim, group) = (self.config.head_dim, self.config.heads / self.config.kv_heads);
        (self.plan.attn_prefill(self.kv, head_dim, group), self.plan.attn_decode(self.kv, head_dim, group))
    }
}

/// Makes the pages of all layers; halves their number as long as the adapter refuses.
fn allocate_pool(player: &mut dyn Player<Kernel>, mut pool: Pool, layers: &mut [Layer]) -> Result<Pool> {
    loop {
        let mut made = Vec::new();
        let failed = layers.iter_mut().enumerate().find_map(|(i, layer)| {
            for (name, pages) in [("k", &mut layer.k_pages), ("v", &mut layer.v_pages)] {
                match player.create_buffer(&format!("layer {i} {name} pages"), pool.buffer_bytes()) {
                    Ok(buffer) => *pages = buffer,
                    Err(error) => return Some(error),
                }
                made.push(*pages);
            }
            None
        });
        match failed {
            None => return Ok(pool),
            Some(Error::OutOfMemory { .. }) if pool.pages > 1 => {
                made.into_iter().for_each(|buffer| player.drop_buffer(buffer));
                pool = pool.with_pages(pool.pages / 2);
            }
            Some(error) => return Err(error),
        }
    }
}

/// Label and bytes of each work buffer, in the order of [`Work`]'s fields up to `packed`.
fn work_sizes(config: &Config, sizes: &Sizes, plan: Plan) -> [(&'static str, u64); 17] {
    let (rows, logit_rows) = (u64::from(sizes.rows), u64::from(sizes.logit_rows));
    let floats = |rows: u64, stride: u32| rows * u64::from(stride) * 4;
    let packed = match plan.activations {
        Activations::F32 => 4,
        Activations::Int8 => quant_act::bytes(sizes.rows, sizes.hidden.max(sizes.attn).max(sizes.act)),
    };
    let post = if config.arch.post_norms { floats(rows, sizes.hidden) } else { 4 };
    [
        ("x", floats(rows, sizes.hidden)),
        ("normed", floats(rows, sizes.hidden)),
        ("delta", floats(rows, sizes.hidden)),
        ("post", post),
        ("qkv", floats(rows, sizes.qkv)),
        ("q", floats(rows, sizes.q)),
        ("attn", floats(rows, sizes.attn)),
        ("gate_up", floats(rows, sizes.gate_up)),
        ("act", floats(rows, sizes.act)),
        ("logits", floats(logit_rows + u64::from(sizes.penalised_rows), sizes.vocab)),
        ("ids", logit_rows * 4),
        ("rows", rows * size_of::<Row>() as u64),
        ("tiles", rows * size_of::<Tile>() as u64),
        ("tables", floats(sizes.slots.into(), sizes.table_stride)),
        ("map", logit_rows * 4),
        ("parts", u64::from(sizes.row_splits) * sizes.split_bytes),
        ("packed", packed),
    ]
}

fn allocate_work(
    player: &mut dyn Player<Kernel>,
    config: &Config,
    sizes: &Sizes,
    plan: Plan,
    unused: BufferId,
) -> Result<Work> {
    let mut buffers = [unused; 17];
    for (buffer, (label, bytes)) in buffers.iter_mut().zip(work_sizes(config, sizes, plan)) {
        *buffer = player.create_buffer(label, bytes)?;
    }
    let [x, normed, delta, post, qkv, q, attn, gate_up, act, logits, ids, rows, tiles, tables, map, parts, packed] =
        buffers;
    let unused = [unused, player.create_buffer("unused", 256)?];
    Ok(Work {
        x,
        normed,
        delta,
        post,
        qkv,
        q,
        attn,
        gate_up,
        act,
        logits,
        ids,
        rows,
        tiles,
        tables,
        map,
        parts,
        packed,
        unused,
    })
}
