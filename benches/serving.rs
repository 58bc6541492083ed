//! Streams against long prompts, and the prompt cache, on the embedded engine: the tables of `benches/README.md`.
//!
//! usage: `cargo bench --bench serving -- MODEL.gguf [--device NAME] [--runs N] [--stream-tokens N] [--prompt-tokens N] [--trace FOLDER]`
//!
//! ```text
//! no stall   4 streams; three long prompts, each sent when the last has its first token; for each setting the gaps of the
//!            streams while prompts are there, the prompts' TTFT, and tokens a second over all
//! cache      20 requests over one 1,000-token prefix: the first's TTFT against the others'
//! ```
//! Before each setting the streams are played undisturbed; what is asked for is a multiple of their median gap. Of several runs the
//! one with the least p99 for what was asked is shown; all are told on standard error.

#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "figures for people")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use twostroke::engine::executor::ModelExecutor;
use twostroke::engine::request::{Output, Request, RequestId};
use twostroke::engine::serving::{Engine, EngineConfig};
use twostroke::engine::{chunk_tokens_default, fit};
use twostroke::format::model_files::ModelFiles;
use twostroke::gpu::adapters::list_now;
use twostroke::gpu::{GpuPlayer, Options};
use twostroke::kernels::{Kernel, KvType};
use twostroke::model::{LoadOptions, Model};
use twostroke::sched::{self, Policy};
use twostroke::trace;

type Failure = Box<dyn std::error::Error>;

const STREAMS: usize = 4;
const PROMPTS: usize = 3;

struct Flags {
    model: String,
    device: Option<String>,
    runs: usize,
    stream_tokens: u32,
    prompt_tokens: usize,
    /// Where a trace of each setting goes, the last run's.
    trace: Option<PathBuf>,
}

fn flags() -> Result<Flags, Failure> {
    let mut flags =
        Flags { model: String::new(), device: None, runs: 1, stream_tokens: 1000, prompt_tokens: 1500, trace: None };
    // cargo passes --bench
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg}: expected a value"));
        match arg.as_str() {
            "--device" => flags.device = Some(value()?),
            "--runs" => flags.runs = value()?.parse()?,
            "--stream-tokens" => flags.stream_tokens = value()?.parse()?,
            "--prompt-tokens" => flags.prompt_tokens = value()?.parse()?,
            "--trace" => flags.trace = Some(value()?.into()),
            model => flags.model = model.to_owned(),
        }
    }
    if flags.model.is_empty() { Err("expected a model file".into()) } else { Ok(flags) }
}

fn engine(flags: &Flags, policy: Policy, slo: Option<u64>, caching: bool) -> Result<Engine, Failure> {
    let listing = list_now();
    let (adapter, _) = listing.choose(flags.device.as_deref())?;
    let mut player: GpuPlayer<Kernel> = GpuPlayer::open_now(adapter, Options::default())?;
    let plan = player.plan();
    let options = LoadOptions {
        context_tokens: Some(2048),
        step_rows: 2048,
        slots: 32,
        kv: KvType::F16,
        kv_bytes: None,
        sampled_rows: 32,
        quantize: None,
    };
    let files = ModelFiles::open(Path::new(&flags.model))?;
    let model = Model::load(&files, &mut player, plan, &options, &mut |_, _| Ok(()))?;
    let sched = sched::Config {
        pages: model.pages(),
        slots: model.slots(),
        step_tokens: model.step_rows_max(),
        chunk_tokens: None,
        context_tokens: model.context_tokens(),
        queue_max: 1000,
        queue_tokens_max: 1 << 20,
        policy,
        itl_slo_nanos: slo,
        prefix_caching: caching,
        cache_generated: !plan.by_phase(),
        logit_rows: model.logit_rows_max(),
    };
    let mut config = EngineConfig::new(sched, model.vocab(), [0; 32]);
    config.prior = fit::prior(chunk_tokens_default(plan));
    config.steps_ahead = if plan.software { 0 } else { config.steps_ahead };
    Ok(Engine::new(config, Box::new(ModelExecutor::new(model, Box::new(player))?)))
}

/// Ids that no two prompts share.
fn ids(seed: u64, count: usize) -> Vec<u32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        100 + u32::try_from((state >> 33) % 20_000).unwrap_or(0)
    };
    (0..count).map(|_| next()).collect()
}

#[derive(Default)]
struct Seen {
    sent: u64,
    tokens: Vec<u64>,
}

/// Plays until every stream and prompt has ended; prompts come once the streams have `lead` tokens each.
fn stall(engine: &mut Engine, flags: &Flags, prompts: usize, lead: usize) -> Result<Played, Failure> {
    let mut seen: BTreeMap<RequestId, Seen> = BTreeMap::new();
    let mut streams = Vec::new();
    for i in 0..STREAMS {
        let request =
            Request { prompt: ids(i as u64, 16), max_tokens: Some(flags.stream_tokens), ..Request::default() };
        streams.push(engine.submit(request)?);
    }
    let (mut sent, mut waiting): (Vec<RequestId>, Option<RequestId>) = (Vec::new(), None);
    let (mut began, mut ended) = (0, u64::MAX);
    while !engine.idle() {
        engine.wait()?;
        while let Some(output) = engine.next_output() {
            if let Output::Token { id, token } = output {
                seen.entry(id).or_default().tokens.push(token.nanos);
                if waiting == Some(id) {
                    waiting = None;
                    ended = token.nanos;
                }
            }
        }
        let ready = streams.iter().all(|id| seen.get(id).is_some_and(|one| one.tokens.len() >= lead));
        if ready && waiting.is_none() && sent.len() < prompts {
            let prompt = ids(100 + sent.len() as u64, flags.prompt_tokens);
            let id = engine.submit(Request { prompt, max_tokens: Some(16), ..Request::default() })?;
            seen.entry(id).or_default().sent = engine.now_nanos();
            began = if sent.is_empty() { engine.now_nanos() } else { began };
            sent.push(id);
            waiting = Some(id);
        }
    }
    let within = |t: u64| prompts == 0 || (t >= began && t <= ended);
    let mut gaps = Vec::new();
    for id in &streams {
        gaps.extend(seen[id].tokens.windows(2).filter(|pair| within(pair[1])).map(|pair| pair[1] - pair[0]));
    }
    let ttfts: Vec<u64> = sent.iter().map(|id| seen[id].tokens[0] - seen[id].sent).collect();
    let last = seen.values().filter_map(|one| one.tokens.last()).max().copied().unwrap_or(0);
    let tokens: usize = seen.values().map(|one| one.tokens.len()).sum::<usize>() + prompts * flags.prompt_tokens;
    Ok(Played { gaps, ttfts, tokens_per_s: tokens as f64 * 1e9 / last as f64 })
}

struct Played {
    gaps: Vec<u64>,
    ttfts: Vec<u64>,
    tokens_per_s: f64,
}

fn percentile(values: &[u64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let at = share * (sorted.len().max(1) - 1) as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    (low as f64 + (high as f64 - low as f64) * at.fract()) / 1e6
}

fn no_stall(flags: &Flags) -> Result<(), Failure> {
    println!(
        "| setting | gap undisturbed (ms) | gap asked | gap p50 | gap p99 | gap max | p99 / asked | prompts' mean TTFT (s) | tokens/s, all |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|");
    let settings = [
        ("--itl-slo 2×", Policy::Slo, Some(2.0)),
        ("--itl-slo 4×", Policy::Slo, Some(4.0)),
        ("prefill-first", Policy::PrefillFirst, None),
    ];
    let mut best: [Option<(f64, Played)>; 3] = [None, None, None];
    for _ in 0..flags.runs {
        for (best, (name, policy, factor)) in best.iter_mut().zip(settings) {
            // Right before: a machine that others use too changes its pace within minutes.
            let alone = stall(&mut engine(flags, Policy::Fcfs, None, false)?, flags, 0, 0)?;
            let alone = percentile(&alone.gaps, 0.5);
            let slo = factor.map(|factor| (factor * alone * 1e6) as u64);
            let mut engine = engine(flags, policy, slo, false)?;
            if let Some(folder) = &flags.trace {
                let mut trace = trace::Writer::create(&folder.join(format!("{}.jsonl", name.replace(' ', ""))))?;
                engine.observe(Box::new(move |event| trace.write(event)));
            }
            let played = stall(&mut engine, flags, PROMPTS, 20)?;
            eprintln!("{name}: {}", figures(alone, factor, &played));
            let share = |alone: f64, played: &Played| percentile(&played.gaps, 0.99) / alone;
            if best.as_ref().is_none_or(|(then, other)| share(alone, &played) < share(*then, other)) {
                *best = Some((alone, played));
            }
        }
    }
    for (best, (name, _, factor)) in best.iter().zip(settings) {
        let (alone, played) = best.as_ref().ok_or("no run")?;
        println!("| {name} | {}", figures(*alone, factor, played));
    }
    Ok(())
}

/// The cells of a row behind the setting's name.
fn figures(alone: f64, factor: Option<f64>, played: &Played) -> String {
    let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| percentile(&played.gaps, share));
    let ttft = played.ttfts.iter().sum::<u64>() as f64 / 1e9 / played.ttfts.len() as f64;
    let (asked, share) = factor.map_or(("–".to_owned(), "–".to_owned()), |factor| {
        (format!("{:.0}", factor * alone), format!("{:.2}", p99 / (factor * alone)))
    });
    format!(
        "{alone:.0} | {asked} | {p50:.0} | {p99:.0} | {max:.0} | {share} | {ttft:.1} | {:.1} |",
        played.tokens_per_s
    )
}

fn cache(flags: &Flags) -> Result<(), Failure> {
    let mut engine = engine(flags, Policy::Slo, None, true)?;
    let prefix = ids(7, 1000);
    let mut ttfts = Vec::new();
    let mut cached = Vec::new();
    for i in 0..20 {
        let mut prompt = prefix.clone();
        prompt.extend(ids(500 + i, 8));
        let sent = engine.now_nanos();
        engine.submit(Request { prompt, max_tokens: Some(1), ..Request::default() })?;
        while !engine.idle() {
            engine.wait()?;
            while let Some(output) = engine.next_output() {
                match output {
                    Output::Token { token, .. } => ttfts.push((token.nanos - sent) as f64 / 1e6),
                    Output::Admitted { cached_tokens, .. } => cached.push(cached_tokens),
                    _ => {}
                }
            }
        }
    }
    let warm = ttfts[1..].iter().sum::<f64>() / (ttfts.len() - 1) as f64;
    println!("\n| | cached tokens of 1,008 | TTFT (ms) | of cold |\n|---|--:|--:|--:|");
    println!("| cold, the first | {} | {:.0} | |", cached[0], ttfts[0]);
    println!("| warm, mean of 19 | {} | {warm:.0} | {:.1} % |", cached[1], 100.0 * warm / ttfts[0]);
    Ok(())
}

fn main() -> Result<(), Failure> {
    let flags = flags()?;
    cache(&flags)?;
    println!();
    no_stall(&flags)
}
