//! Text: tokenizer, chat template, ids back to whole UTF-8 deltas. It knows model files, but neither architecture nor GPU.

pub mod chat;
pub mod decode;
pub mod stop;
pub mod tokenizer;
