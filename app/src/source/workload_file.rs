//! A workload as a file: one JSON object, so that it can be run again, elsewhere or with other settings.
//!
//! ```text
//! {"twostroke_workload":1, "name":TEXT, "requests":[{"arrive_ns":N, "output_tokens":N, "prompt":PROMPT}, ...]}
//! PROMPT: [ID, ...]  or  {"tokens":N, "family":N}: made up; those of a family share the first half, without one nothing
//! ```

use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};
use twostroke::error::{Error, Result};
use twostroke::limits::{CONTEXT_MAX, REPLAY_REQUESTS_MAX};

use super::workload::{Ask, PromptOf, Workload};

/// The form that is written and read.
const VERSION: u32 = 1;
/// Largest file that is read.
const BYTES_MAX: u64 = 1 << 30;

#[derive(Serialize, Deserialize)]
struct File {
    twostroke_workload: u32,
    name: String,
    requests: Vec<One>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct One {
    arrive_ns: u64,
    output_tokens: u32,
    prompt: Prompt,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Prompt {
    Ids(Vec<u32>),
    Made {
        tokens: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        family: Option<u32>,
    },
}

impl Workload {
    /// As a file holds it.
    #[must_use]
    pub fn text(&self) -> String {
        let prompt = |prompt: &PromptOf| match prompt {
            PromptOf::Made { tokens, family } => Prompt::Made { tokens: *tokens, family: *family },
            PromptOf::Ids(ids) => Prompt::Ids(ids.to_vec()),
            PromptOf::Planned(planned) => Prompt::Ids(planned.prompt_ids().into_owned()),
        };
        let one =
            |ask: &Ask| One { arrive_ns: ask.arrive, output_tokens: ask.output_tokens, prompt: prompt(&ask.prompt) };
        let requests = self.asks.iter().map(one).collect();
        let file = File { twostroke_workload: VERSION, name: self.name.clone(), requests };
        serde_json::to_string(&file).expect("plain data") + "\n"
    }

    /// Reads a file.
    ///
    /// # Errors
    /// `Io` when it cannot be read; those of [`Workload::of_bytes`].
    pub fn read(path: &Path) -> Result<Self> {
        let place = path.display().to_string();
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(|error| Error::io("open", &place, error))?;
        file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| Error::io("read", &place, error))?;
        Self::of_bytes(&place, &bytes)
    }

    /// Takes what a file that `place` names holds.
    ///
    /// # Errors
    /// `Format` that says what of it is no workload.
    pub fn of_bytes(place: &str, bytes: &[u8]) -> Result<Self> {
        let wrong = |expected: &str, got: String| Error::format("read a workload", expected, got, place);
        if bytes.len() as u64 > BYTES_MAX {
            return Err(wrong("at most 1 GiB", format!("{} bytes", bytes.len())));
        }
        let file: File =
            serde_json::from_slice(bytes).map_err(|error| wrong("a workload as Save writes it", error.to_string()))?;
        if file.twostroke_workload != VERSION {
            return Err(wrong("twostroke_workload 1", file.twostroke_workload.to_string()));
        }
        let most = REPLAY_REQUESTS_MAX as usize;
        if file.requests.is_empty() || file.requests.len() > most {
            return Err(wrong(&format!("1 to {most} requests"), file.requests.len().to_string()));
        }
        let mut asks = Vec::with_capacity(file.requests.len());
        for (number, one) in file.requests.into_iter().enumerate() {
            let prompt = match one.prompt {
                Prompt::Ids(ids) => PromptOf::Ids(ids.into()),
                Prompt::Made { tokens, family } => PromptOf::Made { tokens, family },
            };
            for (name, tokens) in [("prompt", prompt.tokens()), ("output_tokens", one.output_tokens)] {
                if !(1..=CONTEXT_MAX).contains(&tokens) {
                    let expected = format!("1 to {CONTEXT_MAX} tokens as {name} of request {number}");
                    return Err(wrong(&expected, tokens.to_string()));
                }
            }
            asks.push(Ask { arrive: one.arrive_ns, prompt, output_tokens: one.output_tokens });
        }
        Ok(Self { name: file.name, asks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_comes_back_from_its_file() {
        for (_, make) in super::super::BUILT_IN {
            let mut workload = make();
            workload.asks[0].prompt = PromptOf::Ids(vec![1, 2, 3].into());
            let text = workload.text();
            assert_eq!(Workload::of_bytes("w.json", text.as_bytes()).expect("our own"), workload);
        }
    }

    #[test]
    fn what_is_no_workload_is_refused_by_its_name() {
        let one = r#"{"arrive_ns":1,"output_tokens":2,"prompt":{"tokens":3}}"#;
        let file = |requests: &str| format!(r#"{{"twostroke_workload":1,"name":"w","requests":[{requests}]}}"#);
        assert!(Workload::of_bytes("w.json", file(one).as_bytes()).is_ok());
        for (text, says) in [
            ("", "Save"),
            ("[]", "Save"),
            (&file(""), "requests"),
            (&file(one).replace(":1,\"name\"", ":2,\"name\""), "twostroke_workload"),
            (&file(&one.replace(":3", ":0")), "prompt of request 0"),
            (&file(&format!("{one},{}", one.replace(":2", ":0"))), "output_tokens of request 1"),
            (&file(&one.replace("{\"tokens\":3}", "[]")), "prompt of request 0"),
            (&file(&one.replace(":1,", ":-1,")), "Save"),
            (&file(&one.replace(":3", ":4000000000")), "prompt of request 0"),
        ] {
            let error = Workload::of_bytes("w.json", text.as_bytes()).expect_err(text).to_string();
            assert!(error.contains(says) && error.contains("w.json"), "{error}");
        }
    }
}
