//! The only layer that names wgpu: tiers, devices, pipelines, the player of recordings, timestamps.
