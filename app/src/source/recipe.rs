//! A workload as `twostroke replay` makes it: the same datasets, arrivals and seeds give the same requests.

use std::path::PathBuf;
use std::sync::Arc;

use twostroke::error::{Error, Result};
use twostroke::load::arrivals::Arrivals;
use twostroke::load::dataset::{Dataset, Spec, Vocabulary};
use twostroke::text::tokenizer::Tokenizer;

use super::workload::{Ask, PromptOf, Workload};

/// A dataset of `replay`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    /// Made-up prompts.
    #[default]
    Random,
    /// A few prefixes, each with many suffixes.
    PrefixRepetition,
    /// First questions of conversations, of a file.
    ShareGpt,
    /// A trace of times, lengths and shared blocks, of a file.
    Mooncake,
}

impl Kind {
    /// All, in `replay`'s order.
    pub const ALL: [Self; 4] = [Self::Random, Self::PrefixRepetition, Self::ShareGpt, Self::Mooncake];

    /// As after `--dataset-name`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::PrefixRepetition => "prefix_repetition",
            Self::ShareGpt => "sharegpt",
            Self::Mooncake => "mooncake",
        }
    }

    /// Whether it is of a file.
    #[must_use]
    pub fn has_file(self) -> bool {
        matches!(self, Self::ShareGpt | Self::Mooncake)
    }
}

/// What a person chooses of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Recipe {
    /// Which.
    pub kind: Kind,
    /// The file's path.
    pub path: String,
    /// Requests.
    pub prompts: u32,
    /// Requests a second; `None`: all at once, or at a trace's own times.
    pub rate: Option<f64>,
    /// Shape of the gaps: 1 is a Poisson process.
    pub burstiness: f64,
    /// Decides what is drawn.
    pub seed: u64,
    /// Tokens that all prompts of `random` begin with, or of each prefix.
    pub prefix_tokens: u32,
    /// Tokens of a prompt behind it.
    pub input_tokens: u32,
    /// Tokens of an answer.
    pub output_tokens: u32,
    /// `random`: lengths vary by this share.
    pub range_ratio: f64,
    /// `prefix_repetition`: how many.
    pub prefixes: u32,
    /// `mooncake`: factor of lengths.
    pub length_scale: f64,
}

impl Default for Recipe {
    fn default() -> Self {
        Self {
            kind: Kind::default(),
            path: String::new(),
            prompts: 32,
            rate: Some(2.0),
            burstiness: 1.0,
            seed: 0,
            prefix_tokens: 64,
            input_tokens: 192,
            output_tokens: 64,
            range_ratio: 0.5,
            prefixes: 4,
            length_scale: 0.1,
        }
    }
}

impl Recipe {
    /// Makes it of ids below `vocab`; `tokenizer` is the open model's.
    ///
    /// # Errors
    /// Numbers that make no sense, what is wrong with the file, and texts where no tokenizer is.
    pub fn make(&self, vocab: u32, tokenizer: Option<&Tokenizer>) -> Result<Workload> {
        let special = tokenizer.map(Tokenizer::special_tokens).unwrap_or_default();
        let path = PathBuf::from(self.path.trim());
        let dataset = match self.kind {
            Kind::Random => Dataset::Random {
                input_tokens: self.input_tokens,
                output_tokens: self.output_tokens,
                range_ratio: self.range_ratio,
                prefix_tokens: self.prefix_tokens,
            },
            Kind::PrefixRepetition => Dataset::PrefixRepetition {
                prefix_tokens: self.prefix_tokens,
                suffix_tokens: self.input_tokens,
                prefixes: self.prefixes,
                output_tokens: self.output_tokens,
            },
            Kind::ShareGpt if tokenizer.is_none() => {
                return Err(Error::Request("sharegpt is texts: open the model that is to read them first".into()));
            }
            Kind::ShareGpt => Dataset::ShareGpt { path, output_tokens: None },
            Kind::Mooncake => Dataset::Mooncake { path, length_scale: self.length_scale, time_scale: 1.0 },
        };
        let rate = self.rate.unwrap_or(f64::INFINITY);
        let spec = Spec {
            dataset,
            prompts: self.prompts,
            warmups: 0,
            arrivals: Arrivals::new(rate, self.burstiness)?,
            seed: self.seed,
        };
        let encode = |text: &str| match tokenizer {
            Some(tokenizer) => tokenizer.encode_raw(text),
            None => unreachable!("texts were refused"),
        };
        let made = spec.make(&Vocabulary::new(vocab, &special)?, &encode)?;
        let ask = |planned: twostroke::load::dataset::Planned| Ask {
            arrive: planned.arrival_nanos,
            output_tokens: planned.output_tokens,
            prompt: PromptOf::Planned(Arc::new(planned)),
        };
        let asks: Vec<Ask> = made.planned.into_iter().map(ask).collect();
        Ok(Workload { name: format!("{}, {} requests", self.kind.name(), asks.len()), asks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds that the recipe gives what `replay` makes of `dataset` with the same number, arrivals and seed.
    fn same(recipe: &Recipe, dataset: Dataset, tokenizer: Option<&Tokenizer>) {
        let rate = recipe.rate.unwrap_or(f64::INFINITY);
        let arrivals = Arrivals::new(rate, recipe.burstiness).expect("positive");
        let spec = Spec { dataset, prompts: recipe.prompts, warmups: 0, arrivals, seed: recipe.seed };
        let vocab = tokenizer.map_or(512, Tokenizer::vocab_size);
        let special = tokenizer.map(Tokenizer::special_tokens).unwrap_or_default();
        let vocabulary = Vocabulary::new(vocab, &special).expect("ids");
        let encode = |text: &str| tokenizer.expect("for texts").encode_raw(text);
        let expected = spec.make(&vocabulary, &encode).expect("it fits").planned;
        let made = recipe.make(vocab, tokenizer).expect("it fits");
        assert!(made.asks.len() == expected.len() && expected.len() > 1, "{recipe:?}");
        for ((arrive, request), planned) in made.requests(vocab, 4096).expect("they fit").zip(&expected) {
            assert_eq!((arrive, request.max_tokens), (planned.arrival_nanos, Some(planned.output_tokens)));
            assert_eq!(request.prompt, *planned.prompt_ids(), "{recipe:?}");
        }
    }

    #[test]
    fn every_dataset_has_the_requests_that_replay_makes() {
        let recipe = Recipe { seed: 7, burstiness: 0.5, ..Recipe::default() };
        let random = Dataset::Random { input_tokens: 192, output_tokens: 64, range_ratio: 0.5, prefix_tokens: 64 };
        same(&recipe, random, None);
        let repetition =
            Dataset::PrefixRepetition { prefix_tokens: 64, suffix_tokens: 192, prefixes: 4, output_tokens: 64 };
        same(&Recipe { kind: Kind::PrefixRepetition, ..recipe.clone() }, repetition, None);
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("trace.jsonl");
        let line = |at: u32| {
            format!(r#"{{"timestamp":{},"input_length":900,"output_length":9,"hash_ids":[3,{at}]}}"#, at * 70)
        };
        std::fs::write(&path, (0..5).map(line).collect::<Vec<_>>().join("\n")).expect("written");
        let typed = |path: &std::path::Path| format!(" {} ", path.display());
        let mooncake = Dataset::Mooncake { path: path.clone(), length_scale: 0.1, time_scale: 1.0 };
        let rate = None;
        same(&Recipe { kind: Kind::Mooncake, path: typed(&path), rate, ..recipe.clone() }, mooncake, None);
        let path = dir.path().join("talks.json");
        let turns =
            r#"[{"value":"Where did the red fox go at night?"},{"value":"It went home to its den in the wood."}]"#;
        let talk = format!(r#"{{"conversations":{turns}}}"#);
        std::fs::write(&path, format!("[{talk},{}]", talk.replace("red fox", "old grey dog"))).expect("written");
        let toy = twostroke::model::toy::files().expect("it is packed in");
        let tokenizer = Tokenizer::new(&toy.description, None).expect("the toy has one");
        let sharegpt = Dataset::ShareGpt { path: path.clone(), output_tokens: None };
        same(&Recipe { kind: Kind::ShareGpt, path: typed(&path), ..recipe }, sharegpt, Some(&tokenizer));
    }

    #[test]
    fn what_cannot_be_made_is_told() {
        let with = |kind, path: &str| Recipe { kind, path: path.into(), ..Recipe::default() };
        let says = |recipe: &Recipe| recipe.make(512, None).expect_err("not made").to_string();
        assert!(says(&with(Kind::ShareGpt, "a.json")).contains("open the model"));
        assert!(says(&with(Kind::Mooncake, "no such file")).contains("no such file"));
        assert!(says(&Recipe { prompts: 0, ..Recipe::default() }).contains('0'));
        assert!(says(&Recipe { rate: Some(0.0), ..Recipe::default() }).contains("rate"));
    }

    #[test]
    fn a_trace_keeps_its_times_when_no_rate_is_given() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("trace.jsonl");
        let lines = [(0, 600, 3), (1500, 1100, 4)].map(|(at, tokens, answer): (u64, u32, u32)| {
            let blocks: Vec<u32> = (0..tokens.div_ceil(512)).collect();
            format!(r#"{{"timestamp":{at},"input_length":{tokens},"output_length":{answer},"hash_ids":{blocks:?}}}"#)
        });
        std::fs::write(&path, lines.join("\n")).expect("written");
        let recipe = Recipe { kind: Kind::Mooncake, path: path.display().to_string(), rate: None, ..Recipe::default() };
        let made = recipe.make(512, None).expect("it fits");
        let seen: Vec<(u64, u32)> = made.asks.iter().map(|ask| (ask.arrive, ask.prompt.tokens())).collect();
        assert_eq!(seen, [(0, 60), (1_500_000_000, 110)]);
        assert_eq!(Workload::of_bytes("w", made.text().as_bytes()).expect("our own").asks.len(), 2);
    }
}
