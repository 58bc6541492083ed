//! What a player needs of a kernel, so that players can be tested with programs of two lines.

use std::fmt::Debug;
use std::hash::Hash;

use super::{Access, Kernel, Spec};
use crate::limits;
use crate::recording::Dispatch;

/// Something that a player can launch: [`Kernel`], and in tests anything small.
pub trait Program: Copy + Eq + Hash + Debug + Send + Sync + 'static {
    /// Facts about it.
    fn spec(self) -> Spec;
    /// The WGSL text, entry point `main`.
    fn wgsl(self) -> String;
    /// Plays one launch on the CPU. `mem[i]` holds the words of binding `i + 1`.
    fn twin(self, params: &[u8], grid: [u32; 3], mem: &mut [Vec<u32>]);
}

impl Program for Kernel {
    fn spec(self) -> Spec {
        Self::spec(self)
    }
    fn wgsl(self) -> String {
        Self::wgsl(self)
    }
    fn twin(self, params: &[u8], grid: [u32; 3], mem: &mut [Vec<u32>]) {
        Self::twin(self, params, grid, mem);
    }
}

/// A digest of all shader files, in hexadecimal: what a build's kernels are made of.
#[must_use]
pub fn shaders_digest() -> String {
    super::template::digest()
}

/// Asserts what both players rely on: as many bindings and params bytes as the program has, params inside `params_len` at
/// their stride, and no buffer that is written bound twice.
pub fn assert_launch<K: Program>(dispatch: &Dispatch<K>, bindings: &[Access], params_bytes: u32, params_len: usize) {
    let kernel = dispatch.kernel;
    let (got, expected) = (dispatch.bindings.len(), bindings.len());
    assert_eq!(got, expected, "{kernel:?} has {expected} bindings, the launch {got}");
    assert_eq!(dispatch.params_bytes, params_bytes, "bytes of the params of {kernel:?}");
    assert!(dispatch.params_offset.is_multiple_of(limits::PARAMS_STRIDE), "params at {}", dispatch.params_offset);
    let end = dispatch.params_offset as usize + limits::PARAMS_STRIDE as usize;
    assert!(end <= params_len, "params of {kernel:?} end at {end} of {params_len}");
    for (i, (id, access)) in dispatch.bindings.iter().zip(bindings).enumerate() {
        let again = dispatch.bindings.iter().enumerate().any(|(j, other)| j != i && other == id);
        assert!(*access == Access::Read || !again, "{kernel:?} writes binding {} and binds {id:?} twice", i + 1);
    }
}
