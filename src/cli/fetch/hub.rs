//! `hf:ORG/REPO[:FILE]`: models of the Hugging Face hub, in the hub's own cache folder, shared with its other clients.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use hf_hub::progress::{DownloadEvent, ProgressEvent, ProgressHandler};
use hf_hub::repository::{RepoTreeEntry, RepoTypeModel};
use hf_hub::{HFClient, HFError, HFRepositorySync};
use indicatif::ProgressBar;

use super::{show_busy, show_bytes};
use crate::error::{Error, Result};

/// How long the hub may take to answer the first question; downloads have no such bound.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// What a model folder needs of a repository, as globs.
const FOLDER_FILES: [&str; 8] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.*",
    "model*.safetensors",
    "model.safetensors.index.json",
];

/// A repository, and perhaps one file of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HubModel {
    org: String,
    repo: String,
    file: Option<String>,
}

impl HubModel {
    /// Parses what follows `hf:`.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let usage = || Error::Usage(format!("hf:{text} is not hf:ORG/REPO or hf:ORG/REPO:FILE"));
        let (id, file) = text.split_once(':').map_or((text, None), |(id, file)| (id, Some(file)));
        let (org, repo) = id.split_once('/').ok_or_else(usage)?;
        let name_ok = |name: &str| {
            !name.is_empty()
                && !name.starts_with('.')
                && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        };
        // The file becomes a path below the cache folder: no way out of it.
        let part_ok = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(['\\', ':', '\0']);
        if !name_ok(org) || !name_ok(repo) || !file.is_none_or(|file| file.split('/').all(part_ok)) {
            return Err(usage());
        }
        Ok(Self { org: org.into(), repo: repo.into(), file: file.map(Into::into) })
    }
}

impl std::fmt::Display for HubModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "hf:{}/{}", self.org, self.repo)?;
        self.file.as_ref().map_or(Ok(()), |file| write!(f, ":{file}"))
    }
}

/// The model in the hub's cache folder. Asks no one.
pub(super) fn present(wanted: &HubModel) -> Result<PathBuf> {
    let missing = || Error::Request(format!("{wanted} is not here yet: `twostroke fetch {wanted}` brings it"));
    let repository = repository(wanted)?;
    if let Some(file) = &wanted.file {
        return repository.download_file().filename(file.as_str()).local_files_only(true).send().map_err(|_| missing());
    }
    let folder = repository.snapshot_download().local_files_only(true).send().map_err(|_| missing())?;
    if folder.join("config.json").exists() { Ok(folder) } else { only_gguf(&folder).ok_or_else(missing) }
}

/// The model in the hub's cache folder, downloaded as far as it is not there. An interrupted download goes on.
pub(super) fn fetch(wanted: &HubModel, bar: &ProgressBar) -> Result<PathBuf> {
    let failed = |error: HFError| Error::Fetch(format!("{wanted}: {}", chain(&error)));
    let repository = repository(wanted)?;
    show_busy(bar, "asking the hub");
    let files = within(ANSWER_LIMIT, wanted, {
        let repository = repository.clone();
        move || repository.list_tree().send()
    })?
    .map_err(failed)?;
    bar.disable_steady_tick();
    let progress = Bar(bar.clone());
    match choose(wanted, &names(files))? {
        Choice::File(file) => repository.download_file().filename(file).progress(progress).send().map_err(failed),
        Choice::Folder => {
            let globs = FOLDER_FILES.map(str::to_owned).to_vec();
            repository.snapshot_download().allow_patterns(globs).progress(progress).send().map_err(failed)
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Choice {
    Folder,
    File(String),
}

/// The named file; else the repository as a folder of safetensors; else its only GGUF file. `files` are those of the root.
fn choose(wanted: &HubModel, files: &[String]) -> Result<Choice> {
    if let Some(file) = &wanted.file {
        // A file of a sub-folder is not in the list; the hub itself says whether there is one.
        let known = file.contains('/') || files.contains(file);
        let known = known.then(|| Choice::File(file.clone()));
        return known.ok_or_else(|| Error::Fetch(format!("{wanted}: no such file there; there are: {}", list(files))));
    }
    if files.iter().any(|file| file == "config.json") && files.iter().any(|file| file.ends_with(".safetensors")) {
        return Ok(Choice::Folder);
    }
    let ggufs: Vec<String> = files.iter().filter(|file| file.ends_with(".gguf")).cloned().collect();
    match ggufs.as_slice() {
        [file] => Ok(Choice::File(file.clone())),
        [] => Err(Error::Fetch(format!(
            "{wanted}: neither safetensors nor a GGUF file there; there are: {}",
            list(files)
        ))),
        _ => Err(Error::Fetch(format!("{wanted} has several models, name one as {wanted}:FILE: {}", list(&ggufs)))),
    }
}

fn list(files: &[String]) -> String {
    const SHOWN: usize = 20;
    let more = if files.len() > SHOWN { ", …" } else { "" };
    files.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ") + more
}

fn names(entries: Vec<RepoTreeEntry>) -> Vec<String> {
    let mut names: Vec<String> = entries
        .into_iter()
        .filter_map(|entry| match entry {
            RepoTreeEntry::File { path, .. } => Some(path),
            RepoTreeEntry::Directory { .. } => None,
        })
        .collect();
    names.sort();
    names
}

fn only_gguf(folder: &Path) -> Option<PathBuf> {
    let paths = std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut ggufs = paths.filter(|path| path.extension().is_some_and(|extension| extension == "gguf"));
    let first = ggufs.next()?;
    ggufs.next().is_none().then_some(first)
}

fn repository(wanted: &HubModel) -> Result<HFRepositorySync<RepoTypeModel>> {
    let client = HFClient::builder().retry_max_attempts(1).build_sync();
    let client = client.map_err(|error| Error::Fetch(format!("the hub's client: {}", chain(&error))))?;
    Ok(client.model(wanted.org.as_str(), wanted.repo.as_str()))
}

/// `call` on a thread of its own, given up when it takes too long: a firewall that swallows packets must not hang us.
fn within<T: Send + 'static>(
    limit: Duration,
    wanted: &HubModel,
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        // The receiver is gone when the call came too late.
        let _ = sender.send(call());
    });
    receiver.recv_timeout(limit).map_err(|_| {
        Error::Fetch(format!(
            "{wanted}: the hub did not answer within {} s; is it reachable from here?",
            limit.as_secs()
        ))
    })
}

/// The error and what caused it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text += ": ";
            text += &cause_text;
        }
        source = cause.source();
    }
    text
}

/// Draws the hub's progress.
struct Bar(ProgressBar);

impl ProgressHandler for Bar {
    fn on_progress(&self, event: &ProgressEvent) {
        let ProgressEvent::Download(event) = event else { return };
        match event {
            DownloadEvent::Start { total_bytes, .. } => show_bytes(&self.0, "downloading", *total_bytes),
            DownloadEvent::AggregateProgress { bytes_completed, .. } => self.0.set_position(*bytes_completed),
            DownloadEvent::Progress { files } => {
                // Deltas: only the largest file matters to a person who waits.
                if let Some(file) = files.iter().max_by_key(|file| file.total_bytes) {
                    self.0.set_position(file.bytes_completed);
                }
            }
            DownloadEvent::Complete => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub_model(org: &str, repo: &str, file: Option<&str>) -> HubModel {
        HubModel { org: org.into(), repo: repo.into(), file: file.map(Into::into) }
    }

    #[test]
    fn a_hub_name_is_org_repo_and_perhaps_a_file() {
        let check = |text: &str, want: Option<HubModel>| assert_eq!(HubModel::parse(text).ok(), want, "{text}");
        check("a/b", Some(hub_model("a", "b", None)));
        check("Org-1/My_model.v2", Some(hub_model("Org-1", "My_model.v2", None)));
        check("a/b:c.gguf", Some(hub_model("a", "b", Some("c.gguf"))));
        check("a/b:sub/c.gguf", Some(hub_model("a", "b", Some("sub/c.gguf"))));
        for wrong in [
            "",
            "a",
            "/",
            "a/",
            "/b",
            "a/b/c",
            "a/b:",
            "a/b:/c",
            "a/b:../c",
            "a/b:c/../d",
            "a/b:c//d",
            "a/b:c\\d",
            "../b",
            "a/..",
            "a b/c",
            "a/b:c:d",
            "ä/b",
            ".a/b",
        ] {
            check(wrong, None);
        }
    }

    #[test]
    fn a_wrong_hub_name_is_wrong_usage() {
        assert_eq!(HubModel::parse("a").expect_err("no repo").exit_code(), 2);
    }

    #[test]
    fn the_repository_decides_what_is_fetched() {
        let files = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let check = |file: Option<&str>, names: &[&str], want: Result<Choice, &str>| match (
            choose(&hub_model("o", "r", file), &files(names)),
            want,
        ) {
            (Ok(got), Ok(want)) => assert_eq!(got, want, "{file:?} of {names:?}"),
            (Err(got), Err(want)) => assert!(got.to_string().contains(want), "{got}"),
            (got, want) => panic!("{file:?} of {names:?}: got {got:?}, expected {want:?}"),
        };
        let file = |name: &str| Ok(Choice::File(name.to_owned()));
        check(None, &["config.json", "model.safetensors", "x.gguf"], Ok(Choice::Folder));
        check(None, &["config.json", "x.gguf"], file("x.gguf"));
        check(None, &["x.gguf", "y.gguf"], Err("name one as hf:o/r:FILE: x.gguf, y.gguf"));
        check(None, &["README.md"], Err("neither safetensors nor a GGUF"));
        check(Some("y.gguf"), &["x.gguf", "y.gguf"], file("y.gguf"));
        check(Some("z.gguf"), &["x.gguf"], Err("there are: x.gguf"));
        check(Some("sub/z.gguf"), &["x.gguf"], file("sub/z.gguf"));
    }

    #[test]
    fn a_hub_that_never_answers_is_given_up() {
        let (_keep, never) = mpsc::channel::<()>();
        let wanted = hub_model("o", "r", None);
        let got = within(Duration::from_millis(20), &wanted, move || never.recv());
        assert!(got.expect_err("no answer").to_string().contains("did not answer"));
        assert_eq!(within(Duration::from_secs(20), &wanted, || 7).expect("an answer"), 7);
    }
}
