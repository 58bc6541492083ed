//! `bench`: prefill and decode rates, measured as llama-bench does. How they are printed is `bench_output`'s.

use super::args::BenchArgs;
use super::bench_output::{self, BenchRow};
use super::load::{self, Loaded};
use super::options::{BenchOptions, BenchTest};
use super::output::Output;
use super::progress::Progress;
use super::{interrupt, say};
use crate::clock::Clock;
use crate::engine::Session;
use crate::error::{Error, Result};

/// Runs the command.
///
/// # Errors
/// Whatever keeps a test from being measured.
pub(super) fn bench(args: &BenchArgs) -> Result<()> {
    let options = BenchOptions::new(args)?;
    let longest = options.tests.iter().map(|test| test.tokens()).max().unwrap_or(0);
    let context = u32::try_from(longest + 1).map_err(|_| Error::Usage(format!("{longest} tokens in one test")))?;
    if let Some(most) = options.model.context_tokens.filter(|&most| most < context) {
        return Err(Error::Usage(format!(
            "--max-model-len: the longest test of -p, -n and -d needs {context} tokens ({longest} and 1 for an answer), got {most}"
        )));
    }
    let files = load::files(&options.model)?;
    let mut loaded = load::load(&files, &options.model, Some(context)).map_err(|error| match error {
        Error::Usage(text) if options.model.context_tokens.is_none() => Error::Usage(format!(
            "{text} (the longest test of -p, -n and -d needs {context}: {longest} and 1 for an answer)"
        )),
        other => other,
    })?;
    drop(files);
    let held = loaded.session.model().context_tokens();
    if held < context {
        let what = "smaller -p, -n and -d, or more --kv-memory";
        return Err(Error::Request(format!(
            "the longest test of -p, -n and -d needs {context} tokens ({longest} and 1 for an answer), the context holds {held}: {what}"
        )));
    }
    let mut out = Output::stdout();
    let mut table = bench_output::Table::new(options.output);
    table.begin(&mut out)?;
    let mut random = Random { state: options.model.seed };
    for &test in &options.tests {
        let samples_ns = measure(&mut loaded, test, &options, &mut random)?;
        table.row(&mut out, &row(&loaded, test, samples_ns))?;
    }
    table.end(&mut out)?;
    say(&format!("{} | {}", loaded.adapter, loaded.tier.name()));
    Ok(())
}

/// Nanoseconds of each repetition.
fn measure(loaded: &mut Loaded, test: BenchTest, options: &BenchOptions, random: &mut Random) -> Result<Vec<u64>> {
    let spinner = Progress::spinner(&format!("{} x {}", options.repetitions, bench_output::test_name(test)));
    let session = &mut loaded.session;
    if options.warmup {
        let short = BenchTest { n_gen: test.n_gen.min(1), n_depth: 0, ..test };
        session.truncate(0);
        play(session, short, random)?;
    }
    session.truncate(0);
    if test.n_depth > 0 {
        let ids = random.ids(test.n_depth, session.model().vocab());
        session.prefill(&ids, &mut |_, _| interrupt::check())?;
    }
    let mut samples = Vec::new();
    for _ in 0..options.repetitions {
        session.truncate(test.n_depth as usize);
        samples.push(play(session, test, random)?);
    }
    drop(spinner);
    Ok(samples)
}

/// Plays prompt and generation of a test behind what the session holds; returns nanoseconds. As in llama-bench the generated
/// tokens are drawn at random beforehand, so that models that fall into a loop are measured like others.
fn play(session: &mut Session, test: BenchTest, random: &mut Random) -> Result<u64> {
    let vocab = session.model().vocab();
    let prompt = random.ids(test.n_prompt, vocab);
    let generated = random.ids(test.n_gen, vocab);
    let clock = Clock::start();
    if !prompt.is_empty() {
        session.prefill(&prompt, &mut |_, _| interrupt::check())?;
    }
    for id in generated {
        session.decode(id)?;
        interrupt::check()?;
    }
    Ok(clock.nanos())
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn row<'a>(loaded: &'a Loaded, test: BenchTest, samples_ns: Vec<u64>) -> BenchRow<'a> {
    let tokens = f64::from(test.n_prompt) + f64::from(test.n_gen);
    let samples_ts: Vec<f64> = samples_ns.iter().map(|&ns| tokens * 1e9 / ns.max(1) as f64).collect();
    let model = loaded.session.model();
    let count = samples_ns.len().max(1) as u64;
    BenchRow {
        model_type: model.type_name(),
        model_size: model.file_bytes(),
        model_n_params: model.params(),
        n_prompt: test.n_prompt,
        n_gen: test.n_gen,
        n_depth: test.n_depth,
        n_parallel: 1,
        adapter: &loaded.adapter,
        tier: loaded.tier.name(),
        avg_ns: samples_ns.iter().sum::<u64>() / count,
        avg_ts: mean(&samples_ts),
        stddev_ts: standard_deviation(&samples_ts),
        pct_bandwidth: None,
        pct_flops: None,
        samples_ns,
        samples_ts,
        backend: &loaded.backend,
    }
}

#[allow(clippy::cast_precision_loss, reason = "few samples")]
fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// Of a sample, as llama-bench: 0 for fewer than two.
#[allow(clippy::cast_precision_loss, reason = "few samples")]
fn standard_deviation(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = mean(values);
    let squares: f64 = values.iter().map(|x| (x - mean) * (x - mean)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

/// splitmix64: token ids that are the same for the same seed.
struct Random {
    state: u64,
}

impl Random {
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn ids(&mut self, count: u32, vocab: u32) -> Vec<u32> {
        let below = |x: u64| u32::try_from(x % u64::from(vocab)).expect("below a u32");
        (0..count).map(|_| below(self.next())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Random, mean, standard_deviation};

    #[test]
    fn statistics_are_of_a_sample() {
        assert!((standard_deviation(&[1.0, 2.0, 3.0, 4.0]) - 1.290_994).abs() < 1e-6);
        assert!((mean(&[1.0, 2.0]) - 1.5).abs() < 1e-12);
        assert!(standard_deviation(&[5.0]).abs() < 1e-12);
        assert!(mean(&[]).abs() < 1e-12);
    }

    #[test]
    fn ids_depend_on_the_seed_only_and_are_in_the_vocabulary() {
        let ids = Random { state: 7 }.ids(100, 13);
        assert_eq!(ids, Random { state: 7 }.ids(100, 13));
        assert!(ids.iter().all(|&id| id < 13));
        assert_ne!(ids, Random { state: 8 }.ids(100, 13));
    }
}
