//! The engine: requests in, tokens out. It decides when steps run; which rows they hold is the scheduler's.
//!
//! This layer knows neither files nor text nor what an adapter is.
//!
//! ```text
//! serving    submit / poll: the loop around scheduler and executor
//! request    what goes in and comes out          sampling   parameters of the choice of tokens, and its rules
//! executor   what computes a step                fit        the cost model, learned from steps
//! event      what is told of all this            session    one sequence for scores: prefill, logits of every row
//! ```

pub mod event;
pub mod executor;
pub mod fit;
pub mod request;
pub mod sampling;
pub mod serving;
mod session;

pub use session::{Session, chunk_tokens_default};
