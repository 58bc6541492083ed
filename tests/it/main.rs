//! All integration tests, one binary.

mod adapters;
mod alloc;
mod browser_dump;
mod cli_bench;
mod cli_chat;
mod cli_corpus;
mod cli_program;
mod cli_run;
mod cli_score;
mod cli_usage;
mod format_corpus;
mod format_gguf;
mod format_loader;
mod format_safetensors;
mod gpu_player;
mod gpu_programs;
mod kernel_attn;
mod kernels;
mod layers;
mod model_writer;
mod pairwise;
mod shaders;
mod text_chat;
mod text_decode;
mod text_tokenizer;
mod text_vocab;
