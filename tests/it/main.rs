//! All integration tests, one binary.

#![allow(clippy::cast_possible_truncation, reason = "numbers of tests are small")]

mod adapters;
mod alloc;
mod browser_dump;
mod cli_batch;
mod cli_bench;
mod cli_chat;
mod cli_corpus;
mod cli_program;
mod cli_replay;
mod cli_run;
mod cli_sameness;
mod cli_score;
mod cli_sim;
mod cli_usage;
mod engine_serving;
mod engine_tune;
mod format_blocks;
mod format_corpus;
mod format_gguf;
mod format_loader;
mod format_safetensors;
mod golden_gemma3;
mod golden_smollm2;
mod golden_tiny;
mod gpu_measure;
mod gpu_player;
mod gpu_programs;
mod gpu_variants;
mod kernel_attn;
mod kernel_rope_kv;
mod kernel_sample;
mod kernels;
mod layers;
mod load_replay;
mod model_batch;
mod model_hf_folder;
mod model_load;
mod model_stepper;
mod model_writer;
mod pairwise;

mod server_openai;
mod shaders;
mod text_chat;
mod text_decode;
mod text_tokenizer;
mod text_vocab;
mod trace_cli;
mod trace_convert;
mod trace_perfetto;
