//! Model files as a table of tensors and their metadata. Reads by position, never maps a file, allocates nothing from an
//! unchecked field. It knows no architecture, no tokenizer and no GPU.

pub mod block;
pub mod gguf;
pub mod k_quants;
pub mod model_files;
pub mod quantize;
pub mod random;
pub mod safetensors;
pub mod source;
pub mod table;
