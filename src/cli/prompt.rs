//! The prompt's text: from a flag, a file or a pipe; always whole and always UTF-8.

use std::io::Read;
use std::path::Path;

use super::interrupt;
use super::options::PromptSource;
use crate::error::{Error, Result};
use crate::limits::PROMPT_BYTES_MAX;

/// Reads the prompt; `None` for a chat. Unless `raw`, one newline at the end of a file or pipe is dropped: it ends the last
/// line and says nothing.
///
/// # Errors
/// When it cannot be read, is longer than [`PROMPT_BYTES_MAX`], or is not UTF-8.
pub(super) fn read(source: &PromptSource, raw: bool) -> Result<Option<String>> {
    let text = interrupt::while_waiting(|| read_source(source))?;
    Ok(text.map(|text| if raw || matches!(source, PromptSource::Text(_)) { text } else { without_last_newline(text) }))
}

fn read_source(source: &PromptSource) -> Result<Option<String>> {
    match source {
        PromptSource::Chat => Ok(None),
        PromptSource::Text(text) => Ok(Some(text.clone())),
        PromptSource::File(path) => {
            let file = std::fs::File::open(path).map_err(|source| Error::io("open prompt", path, source))?;
            read_text(file, &path.display().to_string()).map(Some)
        }
        PromptSource::Stdin => read_text(std::io::stdin().lock(), "stdin").map(Some),
    }
}

fn read_text(from: impl Read, name: &str) -> Result<String> {
    let mut bytes = Vec::new();
    let most = PROMPT_BYTES_MAX as u64;
    let got = from.take(most + 1).read_to_end(&mut bytes);
    got.map_err(|source| Error::io("read prompt", Path::new(name), source))?;
    if bytes.len() > PROMPT_BYTES_MAX {
        return Err(Error::Request(format!("prompt: expected at most {most} bytes, got more ({name})")));
    }
    utf8(bytes, "prompt", name).map(without_mark)
}

/// The text of `bytes`.
///
/// # Errors
/// When they are not UTF-8: says where, and what to do.
pub(super) fn utf8(bytes: Vec<u8>, op: &str, name: &str) -> Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let byte = error.as_bytes()[at];
        let hint = "convert the text first, e.g. with iconv -t UTF-8";
        Error::Request(format!("{op}: expected UTF-8, got byte 0x{byte:02x} at offset {at}: {hint} ({name})"))
    })
}

/// The text without the byte order mark that some editors put in front of UTF-8.
pub(super) fn without_mark(mut text: String) -> String {
    if text.starts_with('\u{feff}') {
        text.drain(..'\u{feff}'.len_utf8());
    }
    text
}

fn without_last_newline(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{utf8, without_last_newline};

    #[test]
    fn one_newline_at_the_end_is_dropped() {
        let check = |text: &str, want: &str| assert_eq!(without_last_newline(text.to_owned()), want, "{text:?}");
        check("a\n", "a");
        check("a\r\n", "a");
        check("a\n\n", "a\n");
        check("a", "a");
        check("\n", "");
        check("a\r", "a\r");
    }

    #[test]
    fn bytes_that_are_not_utf8_are_refused_with_their_place() {
        let error = utf8(b"ab\xff".to_vec(), "prompt", "stdin").expect_err("0xff is never UTF-8");
        let message = error.to_string();
        assert!(message.contains("0xff at offset 2"), "{message}");
        assert!(utf8("é".into(), "prompt", "stdin").is_ok());
    }
}
