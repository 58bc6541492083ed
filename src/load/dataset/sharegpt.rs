//! `sharegpt`: conversations of people with a model. A request is a conversation's first turn, its answer as long as the
//! second turn was. As vLLM does it: very short and very long ones are left out, and too few are drawn again.

use std::io::{BufRead, Read};
use std::path::Path;

use serde::Deserialize;

use super::{Encode, Planned, Prompt, check_memory, file};
use crate::error::{Error, Result};
use crate::limits::CONTEXT_MAX;
use crate::load::random::Random;

/// Fewest tokens of a prompt and of an answer.
const TOKENS_MIN: usize = 4;
/// Most tokens of a prompt.
const PROMPT_TOKENS_MAX: usize = 1024;
/// Most tokens of both.
const TOKENS_MAX: usize = 2048;

#[derive(Deserialize)]
struct Conversation {
    conversations: Vec<Turn>,
}

#[derive(Deserialize)]
struct Turn {
    value: String,
}

/// `count` requests of the file at `path`.
pub(super) fn sample(
    path: &Path,
    count: usize,
    output_tokens: Option<u32>,
    encode: Encode<'_>,
    random: &mut Random,
) -> Result<Vec<Planned>> {
    check_memory(count, PROMPT_TOKENS_MAX as u64)?;
    if let Some(tokens) = output_tokens
        && !(1..=CONTEXT_MAX).contains(&tokens)
    {
        return Err(Error::Usage(format!("--sharegpt-output-len: expected 1 to {CONTEXT_MAX} tokens, got {tokens}")));
    }
    let mut pairs = read(path)?;
    random.shuffle(&mut pairs);
    let mut requests = Vec::new();
    for (question, answer) in pairs {
        if requests.len() == count {
            break;
        }
        requests.extend(request(question, &answer, output_tokens, encode)?);
    }
    if requests.is_empty() {
        let expected = "a conversation of two turns of usual length";
        return Err(Error::format(file::OP, expected, "none", path.display()));
    }
    let distinct = requests.len() as u64;
    while requests.len() < count {
        let again = usize::try_from(random.below(distinct)).expect("an index");
        requests.push(requests[again].clone());
    }
    Ok(requests)
}

/// Question and answer of each conversation that has both.
fn read(path: &Path) -> Result<Vec<(String, String)>> {
    const EXPECTED: &str = "{\"conversations\": [{\"value\": \"...\"}, ...]}";
    let mut input = file::open(path)?;
    let first = loop {
        let Some(byte) = input.fill_buf().map_err(|e| Error::io(file::OP, path, e))?.first().copied() else {
            return Err(Error::format(file::OP, EXPECTED, "an empty file", path.display()));
        };
        if !byte.is_ascii_whitespace() {
            break byte;
        }
        input.consume(1);
    };
    let mut all = Vec::new();
    if first == b'[' {
        let mut bytes = Vec::new();
        input.read_to_end(&mut bytes).map_err(|e| Error::io(file::OP, path, e))?;
        let parsed: Vec<Conversation> = serde_json::from_slice(&bytes)
            .map_err(|error| file::malformed(path, error.line() as u64, EXPECTED, &error))?;
        all.extend(parsed.into_iter().filter_map(pair));
    } else {
        file::lines(path, |line, number| {
            let parsed = serde_json::from_slice(line).map_err(|e| file::malformed(path, number, EXPECTED, &e))?;
            all.extend(pair(parsed));
            Ok(true)
        })?;
    }
    Ok(all)
}

fn pair(conversation: Conversation) -> Option<(String, String)> {
    let mut turns = conversation.conversations.into_iter().map(|turn| turn.value);
    Some((turns.next()?, turns.next()?))
}

fn request(text: String, answer: &str, output: Option<u32>, encode: Encode<'_>) -> Result<Option<Planned>> {
    // A token is a byte at least, and usually no more than sixteen: the rest need not be encoded to be left out.
    if text.len() < TOKENS_MIN || text.len() > PROMPT_TOKENS_MAX * 64 {
        return Ok(None);
    }
    let ids = encode(&text)?;
    let output_tokens = match output {
        Some(tokens) => usize::try_from(tokens).unwrap_or(usize::MAX),
        None => encode(answer)?.len(),
    };
    let short = ids.len() < TOKENS_MIN || (output.is_none() && output_tokens < TOKENS_MIN);
    let long = ids.len() > PROMPT_TOKENS_MAX || ids.len().saturating_add(output_tokens) > TOKENS_MAX;
    if short || long {
        return Ok(None);
    }
    let tokens = |count: usize| u32::try_from(count).expect("at most TOKENS_MAX");
    let (prompt_tokens, output_tokens) = (tokens(ids.len()), tokens(output_tokens));
    Ok(Some(Planned { arrival_nanos: 0, prompt: Prompt::Text { text, ids }, prompt_tokens, output_tokens }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A token a byte.
    fn bytes(text: &str) -> Result<Vec<u32>> {
        Ok(text.bytes().map(u32::from).collect())
    }

    fn of(text: &str, count: usize, output: Option<u32>) -> Result<Vec<Planned>> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("share.json");
        std::fs::write(&path, text).expect("written");
        sample(&path, count, output, &bytes, &mut Random::new(1))
    }

    fn conversation(turns: &[&str]) -> String {
        let turns: Vec<_> = turns.iter().map(|turn| serde_json::json!({"from": "x", "value": turn})).collect();
        serde_json::json!({"id": "a", "conversations": turns}).to_string()
    }

    #[test]
    fn first_turns_of_usual_length_are_taken_and_too_few_are_drawn_again() {
        let long = "x".repeat(1025);
        let all = [
            conversation(&["question one", "answer"]),
            conversation(&["question two", "an answer", "more", "and more"]),
            conversation(&["alone"]),
            conversation(&[]),
            conversation(&["abc", "prompt too short"]),
            conversation(&["answer too short", "abc"]),
            conversation(&[&long, "prompt too long"]),
            conversation(&["together too long", &long.repeat(2)]),
        ];
        for text in [format!(" \n[{}]", all.join(",\n")), all.join("\n")] {
            let requests = of(&text, 5, None).expect("two fit");
            let mut seen: Vec<_> = requests.iter().map(|r| (r.prompt.clone(), r.output_tokens)).collect();
            assert_eq!(seen.len(), 5);
            seen.sort_by_key(|(_, output)| *output);
            seen.dedup();
            let text = |text: &str| Prompt::Text { text: text.to_owned(), ids: bytes(text).expect("bytes") };
            assert_eq!(seen, [(text("question one"), 6), (text("question two"), 9)]);
        }
        let requests = of(&all.join("\n"), 9, Some(2)).expect("an answer's length is not looked at");
        assert!(requests.iter().all(|r| r.output_tokens == 2));
        assert!(requests.iter().any(|r| r.prompt_tokens == 16), "the one whose answer was too short");
    }

    #[test]
    fn a_malformed_file_is_named_by_its_line() {
        let good = conversation(&["question one", "answer"]);
        let check = |text: &str, says: &str| {
            let error = of(text, 1, None).expect_err(text);
            assert!(error.exit_code() == 1 && error.to_string().contains(says), "{error}");
        };
        check(&format!("{good}\n{{\"conversations\": 5}}\n"), "line 2");
        check(&format!("{good}\n\n{{}}\n"), "line 3");
        check(&format!("[{good},\n{{\"id\": 1}}]"), "line 2");
        check(&format!("[{good},\n"), "line 2");
        check("", "empty file");
        check("[]", "none");
        check(&conversation(&["abc", "d"]), "none");
    }
}
