//! Files that a person drops or chooses: a path natively, the bytes in a page, which has no paths.

use std::path::PathBuf;
#[cfg(target_arch = "wasm32")]
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Largest file that a page takes into its memory, of which it has 4 GiB for everything.
pub const PAGE_FILE_BYTES_MAX: u64 = 1 << 30;

/// A file.
#[derive(Debug, Clone)]
pub enum Picked {
    /// On this machine.
    Path(PathBuf),
    /// In the page.
    #[cfg(target_arch = "wasm32")]
    Bytes {
        /// Its name.
        name: String,
        /// All of it.
        bytes: Arc<[u8]>,
    },
    /// It was not taken, and why.
    Refused(String),
}

impl Picked {
    /// Whether its name is a model's.
    #[must_use]
    pub fn is_model(&self) -> bool {
        let is_gguf = |name: &std::path::Path| name.extension().is_some_and(|end| end.eq_ignore_ascii_case("gguf"));
        match self {
            Self::Path(path) => is_gguf(path) || path.is_dir(),
            #[cfg(target_arch = "wasm32")]
            Self::Bytes { name, .. } => is_gguf(std::path::Path::new(name)),
            Self::Refused(_) => false,
        }
    }
}

/// Files on their way: the dialog is open, or the page still reads.
pub struct Picks {
    sender: Sender<Picked>,
    receiver: Receiver<Picked>,
}

impl Default for Picks {
    fn default() -> Self {
        let (sender, receiver) = channel();
        Self { sender, receiver }
    }
}

impl Picks {
    /// Opens the system's dialog, or the page's; `wake` is called when a file was chosen.
    pub fn choose(&self, wake: impl Fn() + Send + 'static) {
        let dialog = rfd::AsyncFileDialog::new()
            .set_title("A model, a trace or a workload")
            .add_filter("Models, traces, workloads", &["gguf", "jsonl", "json"])
            .add_filter("All files", &["*"])
            .pick_file();
        let sender = self.sender.clone();
        task(async move {
            // Nobody chose anything.
            let Some(file) = dialog.await else { return };
            let _ = sender.send(chosen(&file).await);
            wake();
        });
    }

    /// A file that was dropped; `wake` is called when it is there.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn dropped(&self, file: &egui::DroppedFileHandle, wake: impl Fn() + Send + 'static) {
        let _ = self.sender.send(Picked::Path(file.path().to_owned()));
        wake();
    }

    /// A file that was dropped; `wake` is called when it is there.
    #[cfg(target_arch = "wasm32")]
    pub fn dropped(&self, file: &egui::DroppedFileHandle, wake: impl Fn() + Send + 'static) {
        let (file, sender) = (Arc::clone(file), self.sender.clone());
        task(async move {
            let name = file.path().display().to_string();
            let bytes = file.web_file().map_or(0, |file| whole(file.size()));
            let picked = match refusal(&name, bytes) {
                Some(why) => Picked::Refused(why),
                None => match file.bytes_async().await {
                    Ok(bytes) => Picked::Bytes { name, bytes: bytes.into() },
                    Err(why) => Picked::Refused(format!("{name}: {why}")),
                },
            };
            let _ = sender.send(picked);
            wake();
        });
    }

    /// A file that has come.
    #[must_use]
    pub fn take(&self) -> Option<Picked> {
        self.receiver.try_recv().ok()
    }
}

/// Why a page takes no file of this size, if it does not; asked before any of it is read.
#[must_use]
pub fn refusal(name: &str, bytes: u64) -> Option<String> {
    (bytes > PAGE_FILE_BYTES_MAX).then(|| {
        let (is, most) = (bytes.div_ceil(1_000_000), PAGE_FILE_BYTES_MAX / 1_000_000);
        format!("{name}: {is} MB are more than a page can hold ({most} MB); the desktop program opens it")
    })
}

#[cfg(not(target_arch = "wasm32"))]
#[expect(clippy::unused_async, reason = "a page waits for it")]
async fn chosen(file: &rfd::FileHandle) -> Picked {
    Picked::Path(file.path().to_owned())
}

#[cfg(target_arch = "wasm32")]
async fn chosen(file: &rfd::FileHandle) -> Picked {
    let name = file.file_name();
    match refusal(&name, whole(file.inner().size())) {
        Some(why) => Picked::Refused(why),
        None => Picked::Bytes { name, bytes: file.read().await.into() },
    }
}

/// A size as browsers tell it.
#[cfg(target_arch = "wasm32")]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole numbers, and such casts saturate")]
fn whole(size: f64) -> u64 {
    size as u64
}

/// Runs a task beside the frames.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn task(task: impl Future<Output = ()> + Send + 'static) {
    std::thread::spawn(move || pollster::block_on(task));
}

/// Runs a task beside the frames.
#[cfg(target_arch = "wasm32")]
pub(crate) fn task(task: impl Future<Output = ()> + 'static) {
    wasm_bindgen_futures::spawn_local(task);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_a_page_cannot_hold_is_refused_by_its_size() {
        assert_eq!(refusal("a.gguf", PAGE_FILE_BYTES_MAX), None);
        let why = refusal("big.gguf", 3 << 30).expect("too large");
        assert_eq!(why, "big.gguf: 3222 MB are more than a page can hold (1073 MB); the desktop program opens it");
    }

    #[test]
    fn models_are_told_from_traces_by_name() {
        assert!(Picked::Path("a/B.GGUF".into()).is_model());
        assert!(!Picked::Path("a/b.jsonl".into()).is_model());
        assert!(Picked::Path(std::env::temp_dir()).is_model(), "a folder of safetensors");
    }
}
