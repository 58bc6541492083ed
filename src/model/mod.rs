//! Models: architecture as data, weights to buffers, and the decoder as one function that records a step.
