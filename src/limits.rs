//! Every bound of the engine, with the relations between bounds asserted at compile time.
//!
//! A queue, loop or buffer that has no bound here has none anywhere, which is a bug.

/// Tokens in one KV page. A power of two that divides [`KEY_TILE_TOKENS`].
pub const PAGE_TOKENS: u32 = 16;
/// Keys that attention takes together; part of the canonical order, so it never changes with the adapter.
pub const KEY_TILE_TOKENS: u32 = 32;
/// Absolute positions in one attention split; part of the canonical order.
pub const SPLIT_TOKENS: u32 = 256;

/// Weights in one quantisation block of the legacy formats, and the unit in which K is counted.
pub const BLOCK_WEIGHTS: u32 = 32;
/// Shortest K slice in blocks; part of the canonical order (DESIGN.md §3).
pub const SLICE_BLOCKS_MIN: u32 = 6;
/// Most slices in which one K is summed; part of the canonical order, and the invocations that share a column in a GEMV.
pub const SLICES_MAX: u32 = 16;
/// Rows of a weight matrix that lie together in the packed layout; row counts are padded to it.
pub const GROUP_ROWS: u32 = 32;

/// Largest head size; the shaders hold one head in workgroup memory.
pub const HEAD_DIM_MAX: u32 = 256;
/// Head sizes are multiples of this (one `vec4<u32>` of f16 pairs).
pub const HEAD_DIM_STEP: u32 = 8;

/// What `Limits::default()` of WebGPU promises and the base tier never passes.
pub const BASE_BINDING_BYTES: u64 = 128 << 20;
/// Storage buffers a shader stage may bind on the base tier.
pub const BASE_STORAGE_BUFFERS: usize = 8;
/// Workgroup memory on the base tier, in bytes.
pub const BASE_WORKGROUP_BYTES: u32 = 16 << 10;
/// Invocations a workgroup on the base tier.
pub const BASE_INVOCATIONS: u32 = 256;
/// Workgroups along one axis of a dispatch on every tier.
pub const BASE_WORKGROUPS: u32 = 65_535;
/// Bytes between two dynamic uniform offsets; a params struct never passes it.
pub const PARAMS_STRIDE: u32 = 256;
/// Lanes of the smallest subgroup that the subgroup tier takes.
pub const SUBGROUP_LANES_MIN: u32 = 8;
/// Smallest buffer: one `vec4<u32>`, so that any buffer can stand in for an unused binding.
pub const BUFFER_BYTES_MIN: u64 = 16;
/// Largest element of an array that a kernel binds; a buffer of this size can be bound to anything.
pub const ELEMENT_BYTES_MAX: u64 = 256;
/// Params of a usual step: first size of the uniform buffer that all launches of a recording share.
pub const PARAMS_BYTES_FIRST: u64 = 256 << 10;
/// Most params of one recording.
pub const PARAMS_BYTES_MAX: u64 = 64 << 20;
/// Bytes that written weights may occupy in staging memory before the player waits for the device.
pub const STAGING_BYTES_MAX: u64 = 32 << 20;
/// Bind groups that are kept from one recording to the next; past it all are made anew.
pub const BIND_GROUPS_MAX: usize = 1 << 16;
/// Recordings that may wait for their answer to be fetched.
pub const RECORDINGS_IN_FLIGHT_MAX: usize = 64;
/// Staging buffers for read-backs that are kept for the next one.
pub const READBACKS_FREE_MAX: usize = 4;

/// Rows (tokens) of one step: vLLM's `max_num_batched_tokens`.
pub const BATCHED_TOKENS_DEFAULT: u32 = 2048;
/// Sequences in flight at once by default: vLLM's `max_num_seqs`.
pub const SEQS_DEFAULT: u32 = 256;
/// Requests that may wait.
pub const QUEUE_MAX: usize = 1 << 16;
/// Prompt tokens that may wait.
pub const QUEUE_TOKENS_MAX: u64 = 1 << 28;
/// Most sequences that can be asked for.
pub const SEQS_MAX: u32 = 4096;
/// Steps submitted ahead of the one that is read back.
pub const STEPS_AHEAD: u32 = 1;
/// Steps planned and not applied that the scheduler follows at most; a page in a browser needs three ahead.
pub const STEPS_IN_FLIGHT_MAX: usize = 4;
/// Prefill tokens that cost a step as much as one: the cost model rounds chunks up to it, and it is the smallest chunk.
pub const PREFILL_TILE_TOKENS: u32 = 8;
/// What a prefill step may be predicted to last while nobody decodes: how long a newcomer may have to wait for it.
pub const LONE_STEP_NANOS: u64 = 500_000_000;
/// Waiting requests that one step passes over because what they need is just being computed.
pub const ADMISSIONS_DEFERRED_MAX: usize = 8;
/// Evicted pages that are remembered, to tell why a prompt missed.
pub const EVICTED_PAGES_MAX: usize = 1 << 14;
/// Tenants without a request whose served tokens are remembered.
pub const TENANTS_IDLE_MAX: usize = 1 << 12;
/// Rows whose logits one step may return.
pub const LOGIT_ROWS_MAX: u32 = 64;
/// Rows of one step whose next token may be sampled; more decode in turns.
pub const SAMPLED_ROWS_MAX: u32 = 256;
/// Largest logprobs that a token may come with.
pub const LOGPROBS_MAX: u32 = 20;
/// Ids whose logits one request may bias.
pub const LOGIT_BIAS_MAX: u32 = 1024;
/// Default bound of the KV pool in bytes.
pub const KV_BYTES_DEFAULT: u64 = 1 << 30;

/// Bytes the loader reads, packs and uploads at a time.
pub const LOAD_CHUNK_BYTES: u64 = 8 << 20;
/// Largest header (GGUF metadata and tensor list, or safetensors JSON) that is read.
pub const HEADER_BYTES_MAX: u64 = 100 << 20;
/// Tensors a model file may list.
pub const TENSORS_MAX: u64 = 1 << 20;
/// Metadata pairs a GGUF may hold.
pub const METADATA_MAX: u64 = 1 << 16;
/// Items of one array in a GGUF's metadata: tokens, scores, merges. Merges may outnumber tokens twice.
pub const METADATA_ITEMS_MAX: u64 = 1 << 22;
/// Bytes of a tensor's name or a metadata key; GGUF itself allows 65,535 for a key and ggml 63 for a name.
pub const NAME_BYTES_MAX: u64 = 1 << 10;
/// Largest `general.alignment` of a GGUF.
pub const ALIGNMENT_MAX: u64 = 1 << 20;
/// Files that one safetensors index may name; each stays open.
pub const SHARDS_MAX: usize = 512;
/// Largest `config.json`, `tokenizer_config.json` and the like; Gemma's is 1.2 MB.
pub const CONFIG_BYTES_MAX: u64 = 8 << 20;
/// Largest `tokenizer.json`; Gemma's is 33 MB.
pub const TOKENIZER_BYTES_MAX: u64 = 128 << 20;
/// Axes of a tensor.
pub const TENSOR_DIMS_MAX: usize = 4;
/// Layers of a model.
pub const LAYERS_MAX: u32 = 1024;
/// Width of a model's residual stream.
pub const HIDDEN_MAX: u32 = 1 << 16;
/// Width of a model's MLP. One group of rows of it must fit a binding, whatever its format.
pub const INTERMEDIATE_MAX: u32 = 1 << 18;
/// Heads of a model.
pub const HEADS_MAX: u32 = 1024;
/// Partial results of decode attention in bytes; more rows go in waves. One row at full context may need more.
pub const ATTN_PARTS_BYTES: u64 = 16 << 20;
/// Rows of the embedding.
pub const VOCAB_MAX: u32 = 1 << 21;
/// Context of a model; rope tables are built up to it.
pub const CONTEXT_MAX: u32 = 1 << 24;

/// Instructions a chat template may run before it is stopped.
pub const TEMPLATE_FUEL: u64 = 10_000_000;
/// Bytes a chat template may write.
pub const TEMPLATE_BYTES_MAX: usize = 16 << 20;
/// Bytes of one prompt before it is tokenised.
pub const PROMPT_BYTES_MAX: usize = 64 << 20;

/// Bytes of one line of a trace; a step of [`BATCHED_TOKENS_DEFAULT`] rows takes 200 KB.
pub const TRACE_LINE_BYTES_MAX: u64 = 16 << 20;
/// Bytes of a workload's file; the largest ShareGPT is 670 MB.
pub const DATASET_BYTES_MAX: u64 = 2 << 30;
/// Requests of one replay, warm-ups included.
pub const REPLAY_REQUESTS_MAX: u32 = 1 << 20;
/// Bytes of one event, or of another body, that a server sends a replay.
pub const EVENT_BYTES_MAX: usize = 1 << 20;
/// Bytes of a stream that a server may send a replay for each token it was asked for, beside [`EVENT_BYTES_MAX`]: an event of one token
/// has a few hundred.
pub const ANSWER_TOKEN_BYTES_MAX: u64 = 16 << 10;
/// Seconds of silence after which a replay counts an answer as failed, by default: a long queue is silent too.
pub const SILENCE_SECONDS: u64 = 600;
/// Seconds that one request of a replay may take in all.
pub const ASK_SECONDS_MAX: u64 = 6 * 3600;
/// Prompt tokens that a replay holds in memory at once.
pub const REPLAY_TOKENS_MAX: u64 = 1 << 28;

/// Answers that one body may ask for, over all its prompts.
pub const CHOICES_MAX: u32 = 128;
/// Inputs of one `/v1/embeddings` body.
pub const EMBEDDING_INPUTS_MAX: usize = 2048;
/// Stop strings of one body.
pub const STOP_STRINGS_MAX: usize = 16;
/// Bytes of one stop string.
pub const STOP_BYTES_MAX: usize = 1 << 10;
/// Lines of a batch file that are read and not yet written: what finishes out of turn waits in memory for its own.
pub const BATCH_LINES_OPEN_MAX: usize = 1 << 12;
/// Lines of a batch file that are taken up between two steps: tokenising more would let the device wait.
pub const BATCH_LINES_A_STEP: usize = 64;

const _: () = assert!(PAGE_TOKENS.is_power_of_two());
const _: () = assert!(KEY_TILE_TOKENS.is_multiple_of(PAGE_TOKENS), "a key tile is whole pages");
const _: () = assert!(SPLIT_TOKENS.is_multiple_of(KEY_TILE_TOKENS), "a split is whole key tiles");
const _: () = assert!(GROUP_ROWS.is_multiple_of(8));
const _: () = assert!(HEAD_DIM_MAX.is_multiple_of(HEAD_DIM_STEP));
const _: () = assert!(LOAD_CHUNK_BYTES < BASE_BINDING_BYTES);
const _: () = assert!(SLICES_MAX * 16 <= BASE_INVOCATIONS, "16 columns by all slices fit one workgroup");
const _: () = assert!(LOGIT_ROWS_MAX <= BATCHED_TOKENS_DEFAULT);
const _: () = assert!(METADATA_ITEMS_MAX >= 2 * VOCAB_MAX as u64, "tokens and merges of the largest vocabulary fit");
const _: () = assert!(PARAMS_BYTES_FIRST <= PARAMS_BYTES_MAX && PARAMS_BYTES_MAX <= BASE_BINDING_BYTES);
const _: () = assert!(LOAD_CHUNK_BYTES <= STAGING_BYTES_MAX, "a loader's chunk is staged whole");
const _: () = assert!(STEPS_AHEAD as usize + 1 < RECORDINGS_IN_FLIGHT_MAX);
const _: () = assert!((STEPS_AHEAD as usize) < STEPS_IN_FLIGHT_MAX && STEPS_IN_FLIGHT_MAX < RECORDINGS_IN_FLIGHT_MAX);
const _: () = assert!(CHOICES_MAX as usize <= QUEUE_MAX, "one body fits the queue");
const _: () = assert!(BATCH_LINES_A_STEP <= BATCH_LINES_OPEN_MAX);
const _: () = assert!(PREFILL_TILE_TOKENS <= PAGE_TOKENS && PREFILL_TILE_TOKENS <= BATCHED_TOKENS_DEFAULT);
const _: () =
    assert!(INTERMEDIATE_MAX as u64 * 4 * GROUP_ROWS as u64 <= BASE_BINDING_BYTES, "a row group is one binding");
const _: () = assert!(HEADS_MAX * HEAD_DIM_MAX <= INTERMEDIATE_MAX, "heads side by side are no wider than an MLP");
const _: () = assert!(HIDDEN_MAX <= INTERMEDIATE_MAX);
const _: () = assert!(CONTEXT_MAX as u64 <= REPLAY_TOKENS_MAX, "a replay holds at least one prompt of any model");

/// Longest that one submit should keep the device, by default: Windows resets a device that is busy for 2 s, and a desktop that shares
/// the card stutters long before.
pub const MAX_SUBMIT_MS: u64 = 100;
/// Most submits that a step is cut into.
pub const SUBMITS_A_STEP_MAX: u64 = 64;

/// Bytes of one HTTP body.
pub const BODY_BYTES_MAX: usize = 8 << 20;
/// Bytes of one HTTP request's head, and what a connection buffers to write.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
/// Seconds that a client may take to send a request's head, or to leave an idle connection open.
pub const HEAD_SECONDS_MAX: u64 = 20;
/// Bytes of all bodies that are held at once, until they have been read into requests.
pub const BODIES_BYTES_MAX: usize = 256 << 20;
/// Bodies that are read into requests at once: a body as JSON takes many times its bytes.
pub const BODIES_READ_MAX: usize = 8;
/// Seconds that a client may take to send a body.
pub const BODY_SECONDS_MAX: u64 = 60;
/// Connections that are open at once.
pub const CONNECTIONS_MAX: usize = 4096;
/// Requests of one key that are answered at once.
pub const KEY_REQUESTS_MAX: usize = 1024;
/// Messages of one chat.
pub const MESSAGES_MAX: usize = 2048;
/// Bytes of an answer that wait for its reader; past it the reader is too slow and loses the answer.
pub const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Events of the live trace that a watcher may lag behind.
pub const FEED_EVENTS_MAX: usize = 4096;
/// Times that a failed device is rebuilt within two minutes.
pub const REBUILDS_MAX: usize = 3;
/// Longest that a step may take before the server says that it is not well, by default.
pub const WATCHDOG_SECONDS: u64 = 60;
/// Seconds of silence in a stream after which it says that it lives.
pub const PING_SECONDS: u64 = 10;
/// Tokens that one `/tokenize` or `/detokenize` takes.
pub const TOKENIZE_TOKENS_MAX: usize = 1 << 20;

const _: () = assert!(BODY_BYTES_MAX <= BODIES_BYTES_MAX, "one body of any size is held");
const _: () = assert!(MESSAGES_MAX * 16 <= BODY_BYTES_MAX, "messages fit a body");
const _: () = assert!(KEY_REQUESTS_MAX <= CONNECTIONS_MAX);
