//! `bench`: prefill and decode rates, measured as llama-bench does. How they are printed is `bench_output`'s.

use super::args::BenchArgs;
use super::batch_args::BatchOptions;
use super::bench_output::{self, BenchRow};
use super::options::{BenchOptions, BenchTest};
use super::output::Output;
use super::progress::Progress;
use super::serving::{self, Serving};
use super::{adapter, bench_fit, bench_kernels, figures, interrupt, load, say};
use crate::engine::request::{Output as Made, Request};
use crate::engine::serving::Engine;
use crate::error::{Error, Result};
use crate::gpu::Measured;
use crate::load::random::Random;
use crate::sched::Policy;

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
    let context = if options.fit.is_some() { context.max(bench_fit::CONTEXT_TOKENS) } else { context };
    let files = load::files(&options.model)?;
    if options.kernels {
        return bench_kernels::run(&files, &options, context);
    }
    let mut serving = open(&files, &options, context).map_err(|error| match error {
        Error::Usage(text) if options.model.context_tokens.is_none() => Error::Usage(format!(
            "{text} (the longest test of -p, -n and -d needs {context}: {longest} and 1 for an answer)"
        )),
        other => other,
    })?;
    drop(files);
    let held = serving.context_tokens;
    if u64::from(held) < longest + 1 {
        let what = "smaller -p, -n and -d, or more --kv-memory";
        return Err(Error::Request(format!(
            "the longest test of -p, -n and -d needs {context} tokens ({longest} and 1 for an answer), the context holds {held}: {what}"
        )));
    }
    let mut out = Output::stdout();
    let mut table = bench_output::Table::new(options.output);
    table.begin(&mut out)?;
    let mut random = Random::new(options.model.seed.unwrap_or(0));
    let device = serving.device.as_ref().filter(|_| !options.tests.is_empty());
    let limits = adapter::measure(device, &options.model.adapter)?;
    if let Some(limits) = &limits {
        say(&format!("measured: {}", figures::measured(limits)));
    }
    for &test in &options.tests {
        let samples_ns = measure(&mut serving, test, &options, &mut random)?;
        let row = row(&serving, test, samples_ns, limits.as_ref());
        table.row(&mut out, &row)?;
        if let Some(text) = bench_output::roofline(test, &row) {
            say(&text);
        }
    }
    table.end(&mut out)?;
    if let Some(path) = &options.fit {
        bench_fit::fit(&mut serving, path, &mut random)?;
    }
    say(&format!("{} | {}", serving.adapter, serving.tier.name()));
    Ok(())
}

fn open(files: &crate::format::model_files::ModelFiles, options: &BenchOptions, context: u32) -> Result<Serving> {
    let slots = options.tests.iter().map(|test| test.n_parallel).max().unwrap_or(1);
    let slots = if options.fit.is_some() { slots.max(bench_fit::SLOTS) } else { slots };
    // Streams that run side by side are measured side by side: no chunk is held back for their sake.
    let policy = Policy::Fcfs;
    let batch = BatchOptions { policy, slots, ..BatchOptions::alone(options.model.trace.clone()) };
    serving::open(files, &options.model, &batch, Some(context))
}

/// Nanoseconds of each repetition.
fn measure(serving: &mut Serving, test: BenchTest, options: &BenchOptions, random: &mut Random) -> Result<Vec<u64>> {
    let spinner = Progress::spinner(&format!("{} x {}", options.repetitions, bench_output::test_name(test)));
    let (engine, vocab) = (&mut serving.engine, serving.vocab);
    if options.warmup {
        let short = BenchTest { n_gen: test.n_gen.min(1), n_depth: 0, ..test };
        play(engine, short, &[], vocab, random)?;
    }
    // What lies before each stream is computed once; its full pages are then in the cache.
    let depth = ids(random, test.n_depth, vocab);
    if test.n_depth > 0 {
        run(engine, vec![Request { prompt: depth.clone(), max_tokens: Some(1), ..Request::default() }])?;
    }
    let mut samples = Vec::new();
    for _ in 0..options.repetitions {
        samples.push(play(engine, test, &depth, vocab, random)?);
    }
    drop(spinner);
    Ok(samples)
}

/// Plays a test's streams side by side behind `depth`; returns nanoseconds: from the start, or where nothing is prefilled, from
/// the last stream's first token.
fn play(engine: &mut Engine, test: BenchTest, depth: &[u32], vocab: u32, random: &mut Random) -> Result<u64> {
    let stream = |random: &mut Random| {
        let mut prompt = depth.to_vec();
        // Something must be there to go on from.
        let own = if depth.is_empty() && test.n_prompt == 0 { 1 } else { test.n_prompt };
        prompt.extend(ids(random, own, vocab));
        Request { prompt, max_tokens: Some(test.n_gen + 1), ..Request::default() }
    };
    let requests = (0..test.n_parallel).map(|_| stream(random)).collect();
    let times = run(engine, requests)?;
    let end = times.iter().map(|time| time.last).max().unwrap_or(0);
    let first = times.iter().map(|time| time.first).max().unwrap_or(0);
    let start = times.iter().map(|time| time.start).min().unwrap_or(0);
    Ok(end - if test.n_prompt == 0 { first } else { start })
}

/// When a stream began, had its first token and its last, by the engine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    start: u64,
    first: u64,
    last: u64,
}

/// Runs requests side by side to their end; end tokens do not end them.
pub(super) fn run(engine: &mut Engine, requests: Vec<Request>) -> Result<Vec<Times>> {
    let start = engine.now_nanos();
    let ids = requests.into_iter().map(|request| engine.submit(request)).collect::<Result<Vec<_>>>()?;
    let mut times = vec![Times { start, first: 0, last: 0 }; ids.len()];
    while !engine.idle() {
        engine.wait()?;
        while let Some(made) = engine.next_output() {
            let Made::Token { id, token } = made else { continue };
            let Some(at) = ids.iter().position(|&other| other == id) else { continue };
            let time = &mut times[at];
            time.first = if time.first == 0 { token.nanos } else { time.first };
            time.last = token.nanos;
        }
        interrupt::check()?;
    }
    Ok(times)
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn row<'a>(serving: &'a Serving, test: BenchTest, samples_ns: Vec<u64>, limits: Option<&Measured>) -> BenchRow<'a> {
    let tokens = (f64::from(test.n_prompt) + f64::from(test.n_gen)) * f64::from(test.n_parallel);
    let samples_ts: Vec<f64> = samples_ns.iter().map(|&ns| tokens * 1e9 / ns.max(1) as f64).collect();
    let count = samples_ns.len().max(1) as u64;
    let avg_ns = samples_ns.iter().sum::<u64>() / count;
    let BenchTest { n_prompt, n_gen, n_depth, n_parallel } = test;
    let [streams, depth, prompt, answer] = [n_parallel, n_depth, n_prompt, n_gen].map(u64::from);
    let (flops, bytes) = serving.work.of(streams, depth, prompt, answer, serving.chunk_tokens.into());
    let share = |amount: u64, rate: f64| 100.0 * amount as f64 / (rate * avg_ns.max(1) as f64 / 1e9);
    BenchRow {
        model_type: serving.type_name.clone(),
        model_size: serving.file_bytes,
        model_n_params: serving.params,
        n_prompt: test.n_prompt,
        n_gen: test.n_gen,
        n_depth: test.n_depth,
        n_parallel: test.n_parallel,
        adapter: &serving.adapter,
        tier: serving.tier.name(),
        avg_ns,
        avg_ts: mean(&samples_ts),
        stddev_ts: standard_deviation(&samples_ts),
        pct_bandwidth: limits.map(|limits| share(bytes, limits.read_bytes_per_s)),
        pct_flops: limits.map(|limits| share(flops, limits.f32_flops)),
        samples_ns,
        samples_ts,
        backend: &serving.backend,
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

/// Token ids that are the same for the same seed.
pub(super) fn ids(random: &mut Random, count: u32, vocab: u32) -> Vec<u32> {
    (0..count).map(|_| random.between(0, vocab - 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::{Random, ids, mean, standard_deviation};

    #[test]
    fn statistics_are_of_a_sample() {
        assert!((standard_deviation(&[1.0, 2.0, 3.0, 4.0]) - 1.290_994).abs() < 1e-6);
        assert!((mean(&[1.0, 2.0]) - 1.5).abs() < 1e-12);
        assert!(standard_deviation(&[5.0]).abs() < 1e-12);
        assert!(mean(&[]).abs() < 1e-12);
    }

    #[test]
    fn ids_depend_on_the_seed_only_and_are_in_the_vocabulary() {
        let drawn = ids(&mut Random::new(7), 100, 13);
        assert_eq!(drawn, ids(&mut Random::new(7), 100, 13));
        assert!(drawn.iter().all(|&id| id < 13));
        assert_ne!(drawn, ids(&mut Random::new(8), 100, 13));
    }
}
