//! `bench --kernels`: a row a kernel, of one prefill step and one decode step of each test.

use serde::Serialize;

use super::adapter::{self, Opened};
use super::args::OutputArg;
use super::options::{BenchOptions, BenchTest};
use super::output::{Output, json_text};
use super::progress::Progress;
use super::{bench_output, figures, interrupt, load, say};
use crate::engine::chunk_tokens_default;
use crate::engine::profile::{self, Profile};
use crate::error::{Error, Result};
use crate::format::model_files::ModelFiles;
use crate::limits::PAGE_TOKENS;
use crate::model::{Extent, LoadOptions, Model, SequenceRows, Want};

/// A kernel in a step; the fields are those of the JSON, in order.
#[derive(Debug, Serialize)]
struct Row {
    /// As in the table of `bench`.
    test: String,
    /// `prefill` or `decode`.
    stroke: &'static str,
    /// Label, or `step` for the whole.
    kernel: String,
    launches: usize,
    avg_ns: f64,
    /// Of the kernels' sum.
    pct_time: Option<f64>,
    /// Of the f32 rate measured in the same run; products of matrices only.
    pct_flops: Option<f64>,
}

/// Profiles each test and prints the rows.
pub(super) fn run(files: &ModelFiles, options: &BenchOptions, context: u32) -> Result<()> {
    let Opened { mut player, plan, name, adapter: device, host_memory, key, .. } = adapter::open_for(&options.model)?;
    let limits = adapter::measure(device.as_ref(), &options.model.adapter)?;
    if let Some(limits) = &limits {
        say(&format!("measured: {}", figures::measured(limits)));
    }
    let chunk = options.model.chunk_tokens.unwrap_or(chunk_tokens_default(plan)).min(options.model.step_tokens);
    let slots = options.tests.iter().map(|test| test.n_parallel).max().unwrap_or(1);
    let wanted = LoadOptions {
        context_tokens: options.model.context_tokens.or(Some(context)),
        step_rows: chunk.max(slots),
        slots,
        kv: options.model.kv,
        kv_bytes: options.model.kv_bytes,
        sampled_rows: 0,
        quantize: options.model.quantize,
    };
    let mut model = load::model(files, player.as_mut(), plan, &wanted, &name, host_memory)?;
    let (held, rows) = (model.context_tokens(), model.step_rows_max().min(model.logit_rows_max()));
    if held < context || rows < slots {
        return Err(Error::Request(format!(
            "the tests need a context of {context} tokens and steps of {slots} streams, there is room for {held} and {rows}: smaller -p, -n, -d \
             and --parallel, or more --kv-memory"
        )));
    }
    let chunk = chunk.min(model.step_rows_max());
    load::kernels(&mut model, player.as_mut(), &options.model, key.as_deref(), Extent::All)?;
    let mut rows = Vec::new();
    for &test in &options.tests {
        for (stroke, tokens) in [("prefill", test.n_prompt.min(chunk)), ("decode", test.n_gen.min(1))] {
            if tokens == 0 {
                continue;
            }
            let spinner = Progress::spinner(&format!("{stroke} of {}", bench_output::test_name(test)));
            let (is_prefill, most_nanos) = (stroke == "prefill", options.model.max_submit_nanos);
            let profile = step(&model, player.as_mut(), test, is_prefill, tokens, most_nanos)?;
            drop(spinner);
            rows.extend(rows_of(test, stroke, &profile, limits.map(|limits| limits.f32_flops)));
            interrupt::check()?;
        }
    }
    print(options.output, &rows)?;
    say(&format!("{name} | {}", plan.tier.name()));
    Ok(())
}

/// The last chunk of a prompt, or the first decode step of all streams behind it.
fn step(
    model: &Model,
    player: &mut dyn crate::recording::Player<crate::kernels::Kernel>,
    test: BenchTest,
    prefill: bool,
    tokens: u32,
    max_submit_nanos: u64,
) -> Result<Profile> {
    let position = if prefill { test.n_depth + test.n_prompt - tokens } else { test.n_depth + test.n_prompt };
    let streams = if prefill { 1 } else { test.n_parallel };
    let ids: Vec<u32> = (0..tokens).map(|i| (7 + 13 * i) % model.vocab()).collect();
    let each = (position + tokens).div_ceil(PAGE_TOKENS);
    // Streams may share pages here: what is in them is nobody's.
    let pages: Vec<Vec<u32>> =
        (0..streams).map(|stream| (0..each).map(|page| (stream * each + page) % model.pages()).collect()).collect();
    let (prompt_tokens, want) = (if prefill { u32::MAX } else { 0 }, Want::Argmax);
    let sequences: Vec<SequenceRows<'_>> = (0..)
        .zip(&pages)
        .map(|(slot, pages)| SequenceRows { slot, position, tokens: &ids, pages, prompt_tokens, want })
        .collect();
    profile::profile(model, player, &sequences, max_submit_nanos)
}

fn rows_of(test: BenchTest, stroke: &'static str, profile: &Profile, f32_flops: Option<f64>) -> Vec<Row> {
    let test = bench_output::test_name(test);
    let sum: f64 = profile.kernels.iter().map(|kernel| kernel.nanos).sum();
    let launches = profile.kernels.iter().map(|kernel| kernel.launches).sum();
    let share = |nanos: f64| 100.0 * nanos / sum.max(1.0);
    #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
    let of_rate = |flops: Option<u64>, nanos: f64| Some(100.0 * flops? as f64 / nanos.max(1.0) * 1e9 / f32_flops?);
    let whole = Row {
        test: test.clone(),
        stroke,
        kernel: "step".into(),
        launches,
        avg_ns: profile.nanos,
        pct_time: None,
        pct_flops: None,
    };
    let rows = profile.kernels.iter().map(|kernel| Row {
        test: test.clone(),
        stroke,
        kernel: kernel.kernel.clone(),
        launches: kernel.launches,
        avg_ns: kernel.nanos,
        pct_time: Some(share(kernel.nanos)),
        pct_flops: of_rate(kernel.flops, kernel.nanos),
    });
    std::iter::once(whole).chain(rows).collect()
}

fn print(output: OutputArg, rows: &[Row]) -> Result<()> {
    let mut out = Output::stdout();
    let percent = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.1}"));
    match output {
        OutputArg::Json => out.line(&json_text(&rows)),
        OutputArg::Jsonl => rows.iter().try_for_each(|row| out.json(row)),
        OutputArg::Csv => {
            out.line("test,stroke,kernel,launches,avg_ns,pct_time,pct_flops")?;
            rows.iter().try_for_each(|row| {
                let Row { test, stroke, kernel, launches, avg_ns, pct_time, pct_flops } = row;
                let [time, flops] = [*pct_time, *pct_flops].map(percent);
                out.line(&format!(
                    "\"{test}\",\"{stroke}\",\"{kernel}\",\"{launches}\",\"{avg_ns:.0}\",\"{time}\",\"{flops}\""
                ))
            })
        }
        OutputArg::Md => {
            out.line("| test | stroke | kernel | launches | ms | % of the kernels | % of the f32 rate |")?;
            out.line("|---|---|---|--:|--:|--:|--:|")?;
            rows.iter().try_for_each(|row| {
                let Row { test, stroke, kernel, launches, avg_ns, pct_time, pct_flops } = row;
                let [time, flops] = [*pct_time, *pct_flops].map(percent);
                out.line(&format!(
                    "| {test} | {stroke} | {kernel} | {launches} | {:.3} | {time} | {flops} |",
                    avg_ns / 1e6
                ))
            })
        }
    }
}
