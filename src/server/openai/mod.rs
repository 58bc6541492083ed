//! OpenAI's wire format: chat completions, completions, embeddings, batch files.
//!
//! ```text
//! body ──fields, params, prompt──▶ Job ──▶ engine requests, one a choice
//! engine tokens ──choice──▶ Answering ──response, logprobs, usage──▶ body
//!                                      └─stream──▶ events
//! embeddings: texts in, means of hidden states out
//! batch: the lines of a batch file, one such body each
//! error: what goes wrong, as clients expect to be told
//! ```

mod answering;
pub mod batch;
mod choice;
mod embeddings;
mod error;
mod fields;
mod job;
mod logprobs;
mod params;
mod prompt;
mod response;
mod stream;
mod usage;

pub use answering::{Answering, Pushed};
pub use embeddings::Embeddings;
pub use error::{ApiError, ErrorBody};
pub use job::{Endpoint, Host, Job, drawn_seed};
pub use params::Params;
pub use prompt::{prompt_ids, prompt_text};
pub use response::{Body, Head};
pub use stream::{PING, Stream};
