//! Where bytes come from: a file, or bytes in memory (the packed toy model, a page's download).

use std::path::Path;

use crate::error::Result;

/// Bytes that can be read at any position, from several threads.
pub trait ByteSource: Send + Sync {
    /// All bytes there are.
    fn len(&self) -> u64;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Fills `out` from `offset` on.
    ///
    /// # Errors
    /// When the range passes the end, or the system refuses.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()>;
    /// The name for messages: the path.
    fn name(&self) -> &str;
}

/// Opens a file for positioned reads.
///
/// # Errors
/// When it is not a readable regular file.
pub fn open(path: &Path) -> Result<Box<dyn ByteSource>> {
    let _ = path;
    todo!("H-format")
}
