//! All integration tests, one binary.

mod alloc;
mod format_gguf;
mod format_safetensors;
mod model_writer;
