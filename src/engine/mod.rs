//! Sessions over a model and a player.
