//! What clients speak: wire formats, and the way from a body to requests of the engine and back to a response.
//!
//! This layer knows neither files nor sockets nor how the engine is driven; it turns bytes into plain requests and tokens into
//! plain responses. Whoever owns an engine (`cli`'s commands) carries them to and fro.

pub mod openai;
