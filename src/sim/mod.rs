//! Simulation: the very same scheduler under a clock and a device that are not real. This layer never touches a GPU.

#[cfg(test)]
mod faults;
