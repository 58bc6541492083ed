//! Text: tokenizer, chat template, ids back to whole UTF-8 deltas. It knows model files, but neither architecture nor GPU.
//!
//! ```text
//! GGUF metadata  -> from_gguf \
//!                              > pipeline (text -> ids) + vocabulary (id -> bytes) = Tokenizer
//! tokenizer.json -> from_json /
//! messages -> chat (jinja renders, guard keeps messages from forming control tokens) -> ids
//! ids -> decode -> deltas of whole characters
//! ```

pub mod chat;
pub mod decode;
mod end_tokens;
mod fewest;
mod from_gguf;
mod from_json;
mod guard;
mod jinja;
mod json_file;
mod pipeline;
mod pre_tokenizers;
mod spm;
pub mod stop;
pub mod tokenizer;
mod vocabulary;
