//! The engine: requests in, tokens out. It decides when steps run; which rows they hold is the scheduler's.
//!
//! This layer knows neither files nor text nor what an adapter is.
//!
//! ```text
//! serving    submit / poll: the loop around scheduler and executor (live: its requests)
//! request    what goes in and comes out          sampling   parameters of the choice of tokens, and its rules
//! executor   what computes a step                fit        the cost model, learned from steps
//! event      what is told of all this            scorer     a text on its own: the logits of every row
//! tune       variants checked and timed             trial      one launch of a variant over made-up data
//! setup      from a loaded model to an engine
//! ```

pub mod event;
pub mod executor;
pub mod fit;
mod live;
mod pool;
pub mod profile;
pub mod request;
pub mod sampling;
mod scorer;
pub mod serving;
pub mod setup;
pub mod trial;
pub mod tune;

pub use scorer::{Scorer, chunk_tokens_default};
