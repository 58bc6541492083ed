//! `mooncake`: a trace of a real service as JSON Lines of `timestamp` (milliseconds), `input_length`, `output_length` and
//! `hash_ids`. An id names a block of 512 prompt tokens; equal ids are equal blocks, so what prompts share is kept.
//!
//! A length scale s makes the block 512 s tokens long, rounded, and all lengths with it: what was shared stays shared.

use std::path::Path;

use serde::Deserialize;

use super::{Blocks, Planned, Prompt, Vocabulary, check_memory, file};
use crate::error::{Error, Result};
use crate::limits::CONTEXT_MAX;
use crate::load::arrivals::nanos;
use crate::load::random::Random;

/// Tokens of a block of the trace.
const BLOCK_TOKENS: u32 = 512;
const EXPECTED: &str = "{\"timestamp\": MS, \"input_length\": N, \"output_length\": N, \"hash_ids\": [...]}";

#[derive(Deserialize)]
struct Line {
    timestamp: f64,
    input_length: u32,
    output_length: u32,
    hash_ids: Vec<u64>,
}

/// `--length-scale` and `--time-scale`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    length: f64,
    time: f64,
}

impl Scale {
    pub(super) fn new(length: f64, time: f64) -> Result<Self> {
        let check = |flag: &str, value: f64, least: f64, most: f64| {
            let fits = value >= least && value <= most;
            let error = || Error::Usage(format!("{flag}: expected {least} to {most}, got {value}"));
            fits.then_some(value).ok_or_else(error)
        };
        let length = check("--length-scale", length, 1e-6, 1000.0)?;
        Ok(Self { length, time: check("--time-scale", time, 0.0, 1e6)? })
    }

    /// At least one token stays.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "CONTEXT_MAX times 1000 at most, clamped"
    )]
    fn tokens(self, tokens: u32) -> u32 {
        (f64::from(tokens) * self.length).round().clamp(1.0, f64::from(CONTEXT_MAX)) as u32
    }

    /// Tokens of a prompt: its whole blocks and the rest of the last one.
    fn prompt_tokens(self, tokens: u32) -> u64 {
        let before = (tokens - 1) / BLOCK_TOKENS;
        let rest = self.tokens(tokens - before * BLOCK_TOKENS).min(self.tokens(BLOCK_TOKENS));
        u64::from(before) * u64::from(self.tokens(BLOCK_TOKENS)) + u64::from(rest)
    }
}

/// The first `count` requests of the trace at `path`, or all, by time of arrival; the first comes at 0.
pub(super) fn read(path: &Path, count: u32, scale: Scale, vocabulary: &Vocabulary, seed: u64) -> Result<Vec<Planned>> {
    let mut requests: Vec<(f64, Planned)> = Vec::new();
    file::lines(path, |bytes, number| {
        let line: Line = serde_json::from_slice(bytes).map_err(|e| file::malformed(path, number, EXPECTED, &e))?;
        let (prompt_tokens, output_tokens) =
            lengths(&line, scale).map_err(|(expected, got)| file::refuse(path, number, expected, got))?;
        let prompt = Prompt::Blocks(Blocks {
            names: line.hash_ids,
            block_tokens: scale.tokens(BLOCK_TOKENS),
            tokens: prompt_tokens,
            vocabulary: vocabulary.clone(),
            seed,
        });
        requests.push((line.timestamp, Planned { arrival_nanos: 0, prompt, prompt_tokens, output_tokens }));
        Ok(requests.len() < usize::try_from(count).unwrap_or(usize::MAX))
    })?;
    requests.sort_by(|a, b| a.0.total_cmp(&b.0));
    let Some(&(first, _)) = requests.first() else {
        return Err(Error::format(file::OP, EXPECTED, "an empty file", path.display()));
    };
    let timed = |(timestamp, planned): (f64, Planned)| Planned {
        arrival_nanos: nanos((timestamp - first) * scale.time / 1000.0),
        ..planned
    };
    Ok(requests.into_iter().map(timed).collect())
}

/// Tokens of prompt and answer, or what was expected and got.
fn lengths(line: &Line, scale: Scale) -> Result<(u32, u32), (&'static str, String)> {
    let refuse = |expected, got: String| Err((expected, got));
    if !(line.timestamp.is_finite() && line.timestamp >= 0.0) {
        return refuse("a timestamp of at least 0 ms", line.timestamp.to_string());
    }
    if !(1..=CONTEXT_MAX).contains(&line.input_length) {
        return refuse("an input_length of 1 token or more, as a context may hold", line.input_length.to_string());
    }
    if line.output_length > CONTEXT_MAX {
        return refuse("an output_length that a context may hold", line.output_length.to_string());
    }
    let blocks = line.input_length.div_ceil(BLOCK_TOKENS);
    if line.hash_ids.len() as u64 != u64::from(blocks) {
        let got = format!("{} for {} tokens", line.hash_ids.len(), line.input_length);
        return refuse("a hash id for each block of 512 tokens", got);
    }
    let prompt = scale.prompt_tokens(line.input_length);
    match u32::try_from(prompt).ok().filter(|tokens| *tokens <= CONTEXT_MAX) {
        Some(tokens) => Ok((tokens, scale.tokens(line.output_length))),
        None => refuse("a scaled prompt that a context may hold", format!("{prompt} tokens")),
    }
}

/// Prompts of their own, as long as the first ones of the trace: nothing that is measured is in the cache by them.
pub(super) fn warmups(
    planned: &[Planned],
    count: u32,
    vocabulary: &Vocabulary,
    random: &mut Random,
) -> Result<Vec<Planned>> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let models: Vec<&Planned> = planned.iter().cycle().take(count).collect();
    let longest = models.iter().map(|model| model.prompt_tokens).max().unwrap_or(0);
    check_memory(count, u64::from(longest))?;
    let of = |model: &&Planned| Planned::of_ids(vocabulary.draw(model.prompt_tokens, random), model.output_tokens);
    Ok(models.iter().map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, count: u32, length: f64, time: f64) -> Result<Vec<Planned>> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("trace.jsonl");
        std::fs::write(&path, text).expect("written");
        let vocabulary = Vocabulary::new(1000, &[]).expect("ids");
        read(&path, count, Scale::new(length, time)?, &vocabulary, 9)
    }

    const THREE: &str = "\
{\"timestamp\": 500, \"input_length\": 1100, \"output_length\": 7, \"hash_ids\": [4, 5, 6]}
{\"timestamp\": 100, \"input_length\": 1024, \"output_length\": 0, \"hash_ids\": [4, 5]}

{\"timestamp\": 600.5, \"input_length\": 3, \"output_length\": 1, \"hash_ids\": [7], \"type\": \"new\"}\n";

    #[test]
    fn equal_ids_are_equal_blocks_at_every_scale() {
        for (length, lengths) in [(1.0, [1024, 1100, 3]), (0.25, [256, 256 + 19, 1]), (2.0, [2048, 2200, 6])] {
            let requests = of(THREE, 9, length, 1.0).expect("readable");
            assert_eq!(requests.iter().map(|r| r.prompt_tokens).collect::<Vec<_>>(), lengths, "scale {length}");
            let ids: Vec<Vec<u32>> = requests.iter().map(|r| r.prompt_ids().into_owned()).collect();
            assert_eq!(ids.iter().map(Vec::len).collect::<Vec<_>>(), lengths.map(|n| n as usize));
            let shared = ids[0].len();
            assert_eq!(ids[0], ids[1][..shared], "scale {length}");
            assert_ne!(ids[0][0], ids[2][0]);
        }
    }

    #[test]
    fn times_begin_at_0_in_order_and_scale() {
        let times =
            |time| of(THREE, 9, 1.0, time).expect("readable").iter().map(|r| r.arrival_nanos).collect::<Vec<_>>();
        assert_eq!(times(1.0), [0, 400_000_000, 500_500_000]);
        assert_eq!(times(0.5), [0, 200_000_000, 250_250_000]);
        assert_eq!(times(0.0), [0, 0, 0]);
        let outputs: Vec<u32> = of(THREE, 9, 1.0, 1.0).expect("readable").iter().map(|r| r.output_tokens).collect();
        assert_eq!(outputs, [1, 7, 1], "an answer has a token");
        assert_eq!(of(THREE, 2, 1.0, 1.0).expect("readable").len(), 2);
    }

    #[test]
    fn a_malformed_line_is_named_by_its_number() {
        let good = THREE.lines().next().expect("a line");
        let check = |line: &str, says: &str| {
            let error = of(&format!("{good}\n\n{line}\n"), 9, 1.0, 1.0).expect_err(line);
            let text = error.to_string();
            assert!(error.exit_code() == 1 && text.contains("line 3") && text.contains(says), "{text}");
        };
        check("{", "EOF");
        check("{}", "timestamp");
        check(r#"{"timestamp": -1, "input_length": 1, "output_length": 1, "hash_ids": [1]}"#, "timestamp");
        check(r#"{"timestamp": 1, "input_length": 0, "output_length": 1, "hash_ids": []}"#, "input_length");
        check(r#"{"timestamp": 1, "input_length": -5, "output_length": 1, "hash_ids": []}"#, "-5");
        check(r#"{"timestamp": 1, "input_length": 513, "output_length": 1, "hash_ids": [1]}"#, "hash id");
        check(r#"{"timestamp": 1, "input_length": 1, "output_length": 4294967295, "hash_ids": [1]}"#, "output_length");
        assert!(of("\n", 1, 1.0, 1.0).expect_err("empty").to_string().contains("empty"));
        for (length, time) in [(0.0, 1.0), (f64::NAN, 1.0), (1.0, -1.0), (1.0, f64::INFINITY)] {
            assert_eq!(of(THREE, 9, length, time).expect_err("refused").exit_code(), 2);
        }
    }

    #[test]
    fn warmups_share_nothing_with_what_is_measured() {
        let requests = of(THREE, 9, 1.0, 1.0).expect("readable");
        let vocabulary = Vocabulary::new(1000, &[]).expect("ids");
        let warm = warmups(&requests, 4, &vocabulary, &mut Random::new(1)).expect("fit");
        assert_eq!(warm.iter().map(|r| r.prompt_tokens).collect::<Vec<_>>(), [1024, 1100, 3, 1024]);
        assert!(warm.iter().all(|w| requests.iter().all(|r| w.prompt_ids()[..3] != r.prompt_ids()[..3])));
    }
}
