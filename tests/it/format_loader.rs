//! Every model of the corpus is refused by the loader too, on the twin, with no more memory than a whole one takes.

use std::path::Path;
use std::time::Duration;

use twostroke::error::{Error, Result};
use twostroke::format::model_files::ModelFiles;
use twostroke::kernels::plan::Plan;
use twostroke::model::{LoadOptions, Model};
use twostroke::twin::Twin;

use crate::format_corpus::{base_models, corpus, tried};

/// What loading may hold above the files' size: a whole base model and the twin's buffers for it take 175 kB.
const PEAK_BYTES: usize = 1 << 20;

fn load(path: &Path) -> Result<()> {
    let files = ModelFiles::open(path)?;
    let options = LoadOptions { step_rows: 16, ..LoadOptions::default() };
    Model::load(&files, &mut Twin::new(), Plan::TWIN, &options, &mut |_, _| Ok(())).map(drop)
}

#[test]
fn models_that_the_corpus_breaks_load_before() {
    for case in base_models() {
        let (result, peak, _) = tried(&case, load);
        println!("{}: {peak} bytes at the peak for files of {}", case.name, case.bytes());
        assert!(peak < PEAK_BYTES, "{}: {peak} bytes", case.name);
        result.unwrap_or_else(|e| panic!("{}: {e}", case.name));
    }
}

#[test]
fn loader_refuses_each_broken_model_at_once_and_says_where() {
    let mut complaints = Vec::new();
    for case in corpus() {
        let (result, peak, took) = tried(&case, load);
        match result {
            Ok(()) => complaints.push(format!("{}: accepted", case.name)),
            Err(error) => {
                complaints.extend(case.complaint(&error.to_string()));
                if !matches!(error, Error::Format { .. } | Error::Unsupported { .. } | Error::Io { .. }) {
                    complaints.push(format!("{}: not the file's error: {error:?}", case.name));
                }
            }
        }
        if took > Duration::from_secs(1) || peak > 16 * case.bytes() + PEAK_BYTES {
            complaints.push(format!("{}: {took:?}, {peak} bytes for files of {}", case.name, case.bytes()));
        }
    }
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}
