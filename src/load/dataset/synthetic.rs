//! Made-up prompts: `random` and `prefix_repetition`.

use super::{Planned, Vocabulary, check_memory};
use crate::error::{Error, Result};
use crate::limits::CONTEXT_MAX;
use crate::load::random::Random;

/// Lengths of `random`, in tokens, both ends included.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lengths {
    input: (u32, u32),
    output: (u32, u32),
    prefix: u32,
}

impl Lengths {
    pub(super) fn new(input: u32, output: u32, ratio: f64, prefix: u32) -> Result<Self> {
        if !(0.0..1.0).contains(&ratio) {
            return Err(Error::Usage(format!("--random-range-ratio: expected 0 to less than 1, got {ratio}")));
        }
        check_length("--random-input-len", input, 0)?;
        check_length("--random-output-len", output, 1)?;
        check_length("--random-prefix-len", prefix, 0)?;
        if input == 0 && prefix == 0 {
            return Err(Error::Usage("--random-input-len: expected at least one token with the prefix, got 0".into()));
        }
        let (low, high) = around(input, ratio);
        // A prompt has a token, and so has an answer.
        let low = if prefix == 0 { low.max(1) } else { low };
        let (short, long) = around(output, ratio);
        Ok(Self { input: (low, high), output: (short.max(1), long), prefix })
    }
}

fn check_length(flag: &str, tokens: u32, least: u32) -> Result<()> {
    if (least..=CONTEXT_MAX).contains(&tokens) {
        return Ok(());
    }
    Err(Error::Usage(format!("{flag}: expected {least} to {CONTEXT_MAX} tokens, got {tokens}")))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most twice CONTEXT_MAX")]
fn around(mean: u32, ratio: f64) -> (u32, u32) {
    let mean = f64::from(mean);
    ((mean * (1.0 - ratio)).floor() as u32, (mean * (1.0 + ratio)).ceil() as u32)
}

/// `count` prompts: a shared prefix, then ids that follow each other from a random one on.
pub(super) fn random(
    count: usize,
    lengths: &Lengths,
    vocabulary: &Vocabulary,
    random: &mut Random,
) -> Result<Vec<Planned>> {
    check_memory(count, u64::from(lengths.prefix) + u64::from(lengths.input.1))?;
    let prefix = vocabulary.draw(lengths.prefix, random);
    let mut one = |index: usize| {
        let input = random.between(lengths.input.0, lengths.input.1);
        let output = random.between(lengths.output.0, lengths.output.1);
        let first = random.below(vocabulary.allowed.len() as u64) + index as u64;
        let mut ids = prefix.clone();
        ids.extend((0..u64::from(input)).map(|place| vocabulary.around(first + place)));
        Planned::of_ids(ids, output)
    };
    Ok((0..count).map(&mut one).collect())
}

/// `count` prompts over `prefixes` prefixes, each used as often as the others or once more, shuffled.
pub(super) fn prefix_repetition(
    count: usize,
    prefixes: u32,
    [prefix, suffix, output]: [u32; 3],
    vocabulary: &Vocabulary,
    random: &mut Random,
) -> Result<Vec<Planned>> {
    check_length("--prefix-repetition-prefix-len", prefix, 0)?;
    check_length("--prefix-repetition-suffix-len", suffix, 0)?;
    check_length("--prefix-repetition-output-len", output, 1)?;
    if prefixes == 0 || prefix + suffix == 0 {
        let got = format!("{prefixes} prefixes of {prefix} and suffixes of {suffix} tokens");
        return Err(Error::Usage(format!("prefix_repetition: expected at least one prefix and one token, got {got}")));
    }
    check_memory(count, u64::from(prefix) + u64::from(suffix))?;
    let used = usize::try_from(prefixes).map_or(count, |prefixes| prefixes.min(count));
    let heads: Vec<Vec<u32>> = (0..used).map(|_| vocabulary.draw(prefix, random)).collect();
    let mut one = |index: usize| {
        let mut ids = heads[index % used].clone();
        ids.extend(vocabulary.draw(suffix, random));
        Planned::of_ids(ids, output)
    };
    let mut requests: Vec<Planned> = (0..count).map(&mut one).collect();
    random.shuffle(&mut requests);
    Ok(requests)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn vocabulary() -> Vocabulary {
        Vocabulary::new(100, &[0, 50]).expect("98 ids")
    }

    #[test]
    fn random_prompts_share_the_prefix_and_vary_within_the_range() {
        let lengths = Lengths::new(40, 10, 0.25, 5).expect("fine");
        let requests = random(200, &lengths, &vocabulary(), &mut Random::new(1)).expect("fits");
        let prefix = &requests[0].prompt_ids()[..5];
        for request in &requests {
            let ids = request.prompt_ids();
            assert_eq!(&ids[..5], prefix);
            assert!((35..=55).contains(&request.prompt_tokens) && ids.len() == request.prompt_tokens as usize);
            assert!((7..=13).contains(&request.output_tokens));
            assert!(ids.iter().all(|id| *id < 100 && *id != 0 && *id != 50));
        }
        let all: Vec<u32> = requests.iter().map(|r| r.prompt_tokens).collect();
        assert!(all.contains(&35) && all.contains(&55), "both ends are drawn");
    }

    #[test]
    fn prefixes_are_used_equally_and_suffixes_differ() {
        let requests = prefix_repetition(23, 5, [8, 4, 3], &vocabulary(), &mut Random::new(1)).expect("fits");
        let mut uses = BTreeMap::new();
        for request in &requests {
            *uses.entry(request.prompt_ids()[..8].to_vec()).or_insert(0) += 1;
        }
        let mut counts: Vec<i32> = uses.into_values().collect();
        counts.sort_unstable();
        assert_eq!(counts, [4, 4, 5, 5, 5]);
        let mut tails: Vec<_> = requests.iter().map(|r| r.prompt_ids()[8..].to_vec()).collect();
        tails.sort();
        tails.dedup();
        assert_eq!(tails.len(), 23);
    }

    #[test]
    fn lengths_that_make_no_sense_are_wrong_usage() {
        for (input, output, ratio, prefix) in [
            (0, 1, 0.0, 0),
            (1, 0, 0.0, 0),
            (1, 1, 1.0, 0),
            (1, 1, -0.1, 0),
            (1, 1, f64::NAN, 0),
            (u32::MAX, 1, 0.0, 0),
        ] {
            assert_eq!(Lengths::new(input, output, ratio, prefix).expect_err("refused").exit_code(), 2);
        }
        let wrong = |prefixes, lengths| prefix_repetition(1, prefixes, lengths, &vocabulary(), &mut Random::new(0));
        for (prefixes, lengths) in [(0, [1, 1, 1]), (1, [0, 0, 1]), (1, [1, 1, 0]), (1, [u32::MAX, 1, 1])] {
            assert_eq!(wrong(prefixes, lengths).expect_err("refused").exit_code(), 2);
        }
        let lengths = Lengths::new(1 << 20, 1, 0.0, 0).expect("a context may be so long");
        let error = random(1 << 20, &lengths, &vocabulary(), &mut Random::new(0)).expect_err("memory");
        assert_eq!(error.exit_code(), 2);
        let lengths = Lengths::new(1, 1, 0.9, 0).expect("fine");
        let requests = random(50, &lengths, &vocabulary(), &mut Random::new(0)).expect("fits");
        assert!(requests.iter().all(|r| r.prompt_tokens >= 1 && r.output_tokens >= 1));
    }
}
