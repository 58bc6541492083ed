//! The engine on the CPU twin and on every adapter: a request's tokens and logprobs are the same bits in any company.

use std::collections::BTreeMap;
use std::path::Path;

use twostroke::engine::executor::ModelExecutor;
use twostroke::engine::fit;
use twostroke::engine::request::{FinishReason, Output, Request, RequestId, Token};
use twostroke::engine::sampling::SamplingParams;
use twostroke::engine::serving::{Engine, EngineConfig};
use twostroke::format::model_files::ModelFiles;
use twostroke::gpu::Options;
use twostroke::kernels::plan::{MatrixSizes, Plan};
use twostroke::kernels::{Kernel, KvType};
use twostroke::limits;
use twostroke::model::{LoadOptions, Model};
use twostroke::recording::Player;
use twostroke::sched::{self, Policy};
use twostroke::twin::Twin;

use crate::adapters::for_each_adapter;
use crate::pairwise::Random;

/// One way to run the same requests.
#[derive(Debug, Clone)]
pub(crate) struct Way {
    name: &'static str,
    slots: u32,
    chunk: Option<u32>,
    caching: bool,
    pages: Option<u32>,
    policy: Policy,
    steps_ahead: u32,
    reversed: bool,
    passes: u32,
}

impl Way {
    pub(crate) fn crowd(name: &'static str) -> Self {
        Self {
            name,
            slots: 16,
            chunk: None,
            caching: true,
            pages: None,
            policy: Policy::Fcfs,
            steps_ahead: limits::STEPS_AHEAD,
            reversed: false,
            passes: 1,
        }
    }
}

/// All ways, the first of which the others are compared with.
fn ways() -> Vec<Way> {
    let crowd = Way::crowd;
    let mut ways = vec![
        Way { slots: 1, caching: false, ..crowd("alone") },
        Way { caching: false, ..crowd("all at once, no cache") },
        crowd("all at once, cold cache"),
        Way { passes: 2, ..crowd("warm cache") },
        Way { policy: Policy::PrefillFirst, ..crowd("prefill first") },
        Way { policy: Policy::Slo, ..crowd("slo") },
        Way { steps_ahead: 0, ..crowd("no step ahead") },
        Way { steps_ahead: 3, ..crowd("three steps ahead") },
        Way { reversed: true, ..crowd("reversed") },
        Way { pages: Some(10), caching: false, ..crowd("tiny pool") },
        Way { pages: Some(10), steps_ahead: 0, ..crowd("tiny pool, cache") },
    ];
    ways.extend([1, 16, 17, 64].map(|chunk| Way { chunk: Some(chunk), ..crowd("chunks") }));
    ways
}

/// Eight requests of 1 to 120 tokens: greedy, sampled, penalised; two share a prefix.
pub(crate) fn requests(vocab: u32, count: usize) -> Vec<Request> {
    let mut random = Random::new(17);
    let mut ids = |n: usize| -> Vec<u32> { (0..n).map(|_| random.below(u64::from(vocab) as usize) as u32).collect() };
    let shared = ids(40);
    let lengths = [1, 7, 16, 20, 24, 33, 48, 120];
    (0..count)
        .map(|i| {
            let mut prompt = if i % 4 == 3 { shared.clone() } else { Vec::new() };
            let length = lengths[i % lengths.len()].max(prompt.len() + 1);
            prompt.extend(ids(length - prompt.len()));
            let sampled = SamplingParams { temperature: 0.9, seed: Some(i as u64), ..SamplingParams::default() };
            let sampling = match i % 4 {
                0 => SamplingParams::default(),
                1 => SamplingParams { top_k: 20, top_p: 0.9, ..sampled },
                2 => SamplingParams { repetition_penalty: 1.2, presence_penalty: 0.5, min_p: 0.05, ..sampled },
                _ => SamplingParams { frequency_penalty: 0.7, logit_bias: BTreeMap::from([(5, 2.0)]), ..sampled },
            };
            let sampling = SamplingParams { logprobs: Some(if i % 2 == 0 { 3 } else { 0 }), ..sampling };
            Request { prompt, max_tokens: Some(40), sampling, ..Request::default() }
        })
        .collect()
}

fn engine(files: &ModelFiles, player: Box<dyn Player<Kernel>>, plan: Plan, way: &Way) -> Engine {
    let (config, executor) = parts(files, player, plan, way);
    Engine::new(config, Box::new(executor))
}

/// What an engine is made of.
pub(crate) fn parts(
    files: &ModelFiles,
    mut player: Box<dyn Player<Kernel>>,
    plan: Plan,
    way: &Way,
) -> (EngineConfig, ModelExecutor) {
    let options = LoadOptions {
        context_tokens: Some(160),
        step_rows: 256,
        slots: way.slots,
        kv: KvType::F16,
        kv_bytes: None,
        sampled_rows: way.slots,
        quantize: None,
    };
    let model = Model::load(files, player.as_mut(), plan, &options, &mut |_, _| Ok(())).expect("a good model");
    let sched = sched::Config {
        pages: way.pages.unwrap_or(model.pages()),
        slots: model.slots(),
        step_tokens: model.step_rows_max(),
        chunk_tokens: way.chunk,
        context_tokens: model.context_tokens(),
        queue_max: 100,
        queue_tokens_max: 100_000,
        policy: way.policy,
        itl_slo_nanos: None,
        prefix_caching: way.caching,
        cache_generated: !plan.by_phase(),
        logit_rows: model.logit_rows_max(),
    };
    let mut config = EngineConfig::new(sched, model.vocab(), [7; 32]);
    config.steps_ahead = way.steps_ahead;
    config.prior = fit::prior(64);
    (config, ModelExecutor::new(model, player).expect("kernels compile"))
}

/// An id, its logprob's bits, and the top ones'.
type Bits = (u32, Option<u32>, Vec<(u32, u32)>);

/// What a request yielded.
#[derive(Debug, Clone, Default, PartialEq)]
struct Answer {
    tokens: Vec<Bits>,
    finish: Option<FinishReason>,
    cached: u32,
    /// Bits of the mean of its prompt's hidden states.
    pooled: Vec<u32>,
}

fn bits(token: &Token) -> Bits {
    let top = token.top.iter().map(|(id, logprob)| (*id, logprob.to_bits())).collect();
    (token.id, token.logprob.map(f32::to_bits), top)
}

/// Runs requests to their end and hands back what each yielded, in their order.
fn run(engine: &mut Engine, requests: Vec<Request>) -> Vec<Answer> {
    let ids: Vec<RequestId> = requests.into_iter().map(|request| engine.submit(request).expect("taken")).collect();
    let mut answers: BTreeMap<RequestId, Answer> = BTreeMap::new();
    while !engine.idle() {
        engine.wait().expect("the device works");
        while let Some(output) = engine.next_output() {
            match output {
                Output::Admitted { id, cached_tokens, .. } => answers.entry(id).or_default().cached = cached_tokens,
                Output::Prefilled { .. } => {}
                Output::Pooled { id, mean } => {
                    answers.entry(id).or_default().pooled = mean.into_iter().map(f32::to_bits).collect();
                }
                Output::Token { id, token } => answers.entry(id).or_default().tokens.push(bits(&token)),
                Output::Finished { id, reason } => answers.entry(id).or_default().finish = Some(reason),
            }
        }
    }
    engine.scheduler().check();
    ids.iter().map(|id| answers.remove(id).expect("every request ends")).collect()
}

fn play(files: &ModelFiles, player: Box<dyn Player<Kernel>>, plan: Plan, way: &Way) -> (Vec<Answer>, u64) {
    let mut engine = engine(files, player, plan, way);
    let mut all = requests(engine_vocab(files), 12);
    // Two that want hidden states, among those that want tokens.
    for i in [7, 2] {
        all.insert(i, Request { max_tokens: Some(1), pool: true, ..all[i].clone() });
    }
    if way.reversed {
        all.reverse();
    }
    let mut answers = Vec::new();
    for _ in 0..way.passes {
        answers = run(&mut engine, all.clone());
    }
    if way.reversed {
        answers.reverse();
    }
    (answers, engine.scheduler().counters().preemptions)
}

pub(crate) fn engine_vocab(files: &ModelFiles) -> u32 {
    let options = LoadOptions { context_tokens: Some(160), sampled_rows: 1, ..LoadOptions::default() };
    let mut twin = Twin::new();
    Model::load(files, &mut twin, Plan::TWIN, &options, &mut |_, _| Ok(())).expect("a good model").vocab()
}

pub(crate) fn tiny(name: &str) -> ModelFiles {
    ModelFiles::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiny").join(name)).expect("a checkpoint")
}

fn check(label: &str, files: &ModelFiles, open: &dyn Fn() -> (Box<dyn Player<Kernel>>, Plan), ways: &[Way]) {
    let mut first: Option<Vec<Answer>> = None;
    for way in ways {
        let (player, plan) = open();
        let (answers, preemptions) = play(files, player, plan, way);
        assert!(answers.iter().all(|answer| answer.finish.is_some()), "{label} {way:?}");
        assert!(answers.iter().all(|answer| answer.pooled.is_empty() != answer.tokens.is_empty()), "{label} {way:?}");
        assert_eq!(answers.iter().filter(|answer| !answer.pooled.is_empty()).count(), 2, "{label} {way:?}");
        if way.pages.is_some() {
            assert!(preemptions >= 3, "{label} {}: {preemptions} preemptions", way.name);
        }
        let Some(first) = &first else {
            first = Some(answers);
            continue;
        };
        for (i, (got, want)) in answers.iter().zip(first).enumerate() {
            assert_eq!(got.tokens, want.tokens, "{label}, request {i}: {way:?} against alone");
            assert_eq!(got.finish, want.finish, "{label}, request {i}: {way:?}");
            assert_eq!(got.pooled, want.pooled, "{label}, request {i}: {way:?}");
        }
    }
}

#[test]
fn f45_a_request_has_the_same_bits_in_any_company_on_the_twin() {
    let open = || (Box::new(Twin::new()) as Box<dyn Player<Kernel>>, Plan::TWIN);
    check("twin", &tiny("llama-tied"), &open, &ways());
}

#[test]
fn f45_a_request_has_the_same_bits_in_any_company_on_every_adapter() {
    let full = std::env::var_os("TWOSTROKE_FULL").is_some();
    let names: &[&str] = if full { &["llama-tied", "mistral-sw", "qwen3", "gemma3"] } else { &["mistral-sw"] };
    for_each_adapter(|label, make| {
        let slow = label.contains("SwiftShader") && !full;
        let all = ways();
        let ways: Vec<Way> = if slow { [0, 2, 3, 9, 11].map(|i| all[i].clone()).to_vec() } else { all };
        for name in names {
            let open = || {
                let player = make(Options::default());
                let plan = player.plan();
                (Box::new(player) as Box<dyn Player<Kernel>>, plan)
            };
            check(&format!("{label} {name}"), &tiny(name), &open, &ways);
        }
    });
}

#[test]
fn by_phase_a_request_has_the_same_bits_in_any_company_on_the_twin() {
    let open = |plan: Plan| move || (Box::new(Twin::new()) as Box<dyn Player<Kernel>>, plan);
    check("matrix twin", &tiny("llama-tied"), &open(Plan::TWIN_MATRIX), &ways());
    // As hardware would: another cut of attention, norms in launches of their own, matrices of 8.
    let hardware = Plan { software: false, matrix: MatrixSizes { sixteen: false, eight: true }, ..Plan::TWIN_MATRIX };
    let some = [0, 2, 3, 9, 10, 13].map(|i| ways()[i].clone());
    check("matrix twin as hardware", &tiny("gemma3"), &open(hardware), &some);
}

#[test]
fn by_phase_an_answer_that_becomes_a_prompt_is_computed_as_one() {
    let files = tiny("llama-tied");
    let engine = |plan| engine(&files, Box::new(Twin::new()), plan, &Way::crowd("cache"));
    for (plan, cached) in [(Plan::TWIN, 48), (Plan::TWIN_MATRIX, 16)] {
        let mut warm = engine(plan);
        let first = requests(engine_vocab(&files), 8)[3].clone();
        let first = Request { prompt: first.prompt[..20].to_vec(), ..first };
        let answer = run(&mut warm, vec![first.clone()]);
        let mut prompt = first.prompt.clone();
        prompt.extend(answer[0].tokens[..30].iter().map(|token| token.0));
        let second = Request { prompt, ..first };
        let got = run(&mut warm, vec![second.clone()]);
        assert_eq!(got[0].cached, cached, "{plan:?}");
        assert_eq!(got[0].tokens, run(&mut engine(plan), vec![second])[0].tokens, "{plan:?}: as if fresh");
    }
}

fn twin_engine(way: &Way) -> (Engine, u32) {
    let files = tiny("llama-tied");
    (engine(&files, Box::new(Twin::new()), Plan::TWIN, way), engine_vocab(&files))
}

#[test]
fn f47_the_same_prompt_again_recomputes_only_what_its_last_page_holds() {
    let (mut engine, vocab) = twin_engine(&Way::crowd("cache"));
    let request = &requests(vocab, 8)[7];
    let cold = run(&mut engine, vec![request.clone()]);
    let warm = run(&mut engine, vec![request.clone()]);
    assert_eq!((cold[0].cached, warm[0].cached), (0, 112), "120 tokens: seven whole pages, the eighth is recomputed");
    assert_eq!(cold[0].tokens, warm[0].tokens);
    let salted = Request { cache_salt: Some("other".into()), ..request.clone() };
    let answer = run(&mut engine, vec![salted]);
    assert_eq!(answer[0].cached, 0, "another salt shares nothing");
    assert_eq!(cold[0].tokens, answer[0].tokens);
}

#[test]
fn f48_a_shorter_prompt_after_a_longer_one_is_answered_as_if_fresh() {
    let (mut engine, vocab) = twin_engine(&Way::crowd("cache"));
    let long = requests(vocab, 8)[7].clone();
    let short = Request { prompt: long.prompt[..50].to_vec(), ..long.clone() };
    run(&mut engine, vec![long]);
    let after = run(&mut engine, vec![short.clone()]);
    let (mut fresh, _) = twin_engine(&Way::crowd("cache"));
    assert_eq!(after[0].tokens, run(&mut fresh, vec![short])[0].tokens);
    assert_eq!(after[0].cached, 48);
}

#[test]
fn an_id_that_differs_is_never_hit_past_it() {
    let (mut engine, vocab) = twin_engine(&Way::crowd("cache"));
    let base = requests(vocab, 8)[7].clone();
    run(&mut engine, vec![base.clone()]);
    for at in [0_usize, 15, 16, 31, 63, 64, 111] {
        for by in [1, 256] {
            let mut other = base.clone();
            other.prompt[at] = (other.prompt[at] + by) % vocab;
            let got = run(&mut engine, vec![other.clone()]);
            assert!(got[0].cached as usize <= at, "differs at {at} by {by}, {} cached", got[0].cached);
            let (mut fresh, _) = twin_engine(&Way { caching: false, ..Way::crowd("fresh") });
            assert_eq!(got[0].tokens, run(&mut fresh, vec![other])[0].tokens, "differs at {at} by {by}");
        }
    }
}

#[test]
fn a_cancelled_request_frees_its_pages_within_a_step_and_hurts_nobody() {
    // In the queue, in the middle of its prompt, in the middle of its answer.
    for (slots, chunk, after_tokens) in [(1, None, 0), (4, Some(16), 0), (4, None, 3)] {
        let way = Way { slots, chunk, caching: false, steps_ahead: 1, ..Way::crowd("cancel") };
        let (mut engine, vocab) = twin_engine(&way);
        let all = requests(vocab, 8);
        let alone = run(&mut engine, vec![all[4].clone()]);
        let stays = engine.submit(all[4].clone()).expect("taken");
        let goes = engine.submit(all[7].clone()).expect("taken");
        let (mut tokens, mut made, mut cancelled, mut ended) = (Vec::new(), 0, false, false);
        while !engine.idle() {
            engine.wait().expect("the device works");
            while let Some(output) = engine.next_output() {
                match output {
                    Output::Token { id, token } if id == stays => tokens.push(bits(&token)),
                    Output::Token { .. } => made += 1,
                    Output::Finished { id, reason } if id == goes => ended = reason == FinishReason::Cancelled,
                    _ => {}
                }
            }
            if !cancelled && made >= after_tokens {
                cancelled = engine.cancel(goes);
                assert!(cancelled && !engine.cancel(goes), "cancelled once");
                engine.wait().expect("the device works");
                engine.wait().expect("the device works");
                let held = engine.scheduler().page_table(goes).len();
                assert_eq!(held, 0, "pages are free after the steps in flight");
            }
        }
        assert!(ended, "the end is told");
        assert_eq!(engine.scheduler().counters().pages_used, 0);
        // Those of the last waits inside the cancellation may have been missed: what is there is a prefix or all of it.
        assert_eq!(tokens, alone[0].tokens, "the other one's bits");
    }
}

#[test]
fn what_can_never_run_is_refused_with_its_numbers_and_changes_nothing() {
    let way = Way { pages: Some(4), ..Way::crowd("refused") };
    let (mut engine, vocab) = twin_engine(&way);
    let refused = |engine: &mut Engine, request: Request| engine.submit(request).expect_err("refused").to_string();
    let with = |prompt: Vec<u32>| Request { prompt, ..Request::default() };
    let long = refused(&mut engine, with(vec![1; 160]));
    assert!(long.contains("160") && long.contains("exceed"), "{long}");
    let pool = refused(&mut engine, with(vec![1; 100]));
    assert!(pool.contains("7 pages") && pool.contains("has 4"), "{pool}");
    assert!(refused(&mut engine, with(vec![])).contains("empty"));
    assert!(refused(&mut engine, with(vec![vocab])).contains("vocabulary"));
    let hot = SamplingParams { temperature: 3.0, ..SamplingParams::default() };
    assert!(refused(&mut engine, Request { sampling: hot, ..with(vec![1]) }).contains("temperature"));
    assert!(refused(&mut engine, Request { max_tokens: Some(0), ..with(vec![1]) }).contains("max_tokens"));
    assert!(engine.idle());
}

#[test]
fn f24_any_of_several_end_tokens_ends_an_answer() {
    let (mut engine, _) = twin_engine(&Way::crowd("ends"));
    let forced = SamplingParams { logit_bias: BTreeMap::from([(9, 100.0)]), ..SamplingParams::default() };
    let stop_ids = [3, 9].into_iter().collect();
    let request = Request { prompt: vec![1, 2], sampling: forced, stop_ids, ..Request::default() };
    let answer = run(&mut engine, vec![request]);
    assert_eq!((answer[0].tokens.len(), answer[0].finish), (1, Some(FinishReason::Stop)));
}

#[test]
fn f43_presence_counts_the_answer_only_and_repetition_the_prompt_too() {
    let (mut engine, vocab) = twin_engine(&Way::crowd("penalties"));
    let base = requests(vocab, 8)[4].clone();
    let greedy = |sampling: SamplingParams| Request { max_tokens: Some(1), sampling, ..base.clone() };
    let plain = run(&mut engine, vec![greedy(SamplingParams::default())]);
    let wanted = plain[0].tokens[0].0;
    // The prompt holds the token that the model wants first.
    let mut prompt = base.prompt.clone();
    prompt[0] = wanted;
    let ask = |sampling: SamplingParams| Request { prompt: prompt.clone(), ..greedy(sampling) };
    let first = |engine: &mut Engine, sampling| run(engine, vec![ask(sampling)])[0].tokens[0].clone();
    let none = first(&mut engine, SamplingParams { logprobs: Some(1), ..SamplingParams::default() });
    let presence = SamplingParams { presence_penalty: 2.0, logprobs: Some(1), ..SamplingParams::default() };
    assert_eq!(first(&mut engine, presence), none);
    let repetition = SamplingParams { repetition_penalty: 50.0, logprobs: Some(1), ..SamplingParams::default() };
    let penalised = first(&mut engine, repetition);
    assert_eq!(penalised.2, none.2, "logprobs are raw");
    if prompt.contains(&none.0) {
        assert_ne!(penalised.0, none.0, "the repeated token is not taken again");
    }
}

#[test]
fn f41_a_temperature_next_to_nothing_is_greedy() {
    let (mut engine, vocab) = twin_engine(&Way::crowd("greedy"));
    let base = requests(vocab, 8)[4].clone();
    let answers: Vec<_> = [0.0, 1e-9]
        .map(|temperature| {
            let sampling =
                SamplingParams { temperature, seed: Some(3), logprobs: Some(2), ..SamplingParams::default() };
            run(&mut engine, vec![Request { sampling, ..base.clone() }])
        })
        .to_vec();
    assert_eq!(answers[0][0].tokens, answers[1][0].tokens);
    let finite = |token: &(u32, Option<u32>, Vec<(u32, u32)>)| f32::from_bits(token.1.expect("asked for")).is_finite();
    assert!(answers[0][0].tokens.iter().all(finite));
}

#[test]
fn more_end_tokens_than_min_tokens_can_keep_away_are_refused_and_change_nothing() {
    let files = tiny("llama-tied");
    let mut engine = engine(&files, Box::new(Twin::new()), Plan::TWIN, &Way::crowd("refused"));
    let stop_ids = (0..=limits::LOGIT_BIAS_MAX).collect();
    let request = Request { prompt: vec![1, 2], max_tokens: Some(3), ..Request::default() };
    let error = engine.submit(Request { stop_ids, min_tokens: 1, ..request.clone() }).expect_err("too many");
    assert!(error.to_string().starts_with("min_tokens: expected"), "{error}");
    assert!(engine.idle() && engine.scheduler().counters().waiting == 0);
    assert_eq!(run(&mut engine, vec![request])[0].tokens.len(), 3);
}

/// DESIGN.md §6's bound for these checkpoints' logits, here for what the head reads.
const POOLED_TOLERANCE: f32 = 2e-3;

fn check_pooled(label: &str, open: &dyn Fn() -> (Box<dyn Player<Kernel>>, Plan)) {
    for name in ["gemma3", "llama-tied", "llama-untied-mha", "llama3-rope", "mistral-sw", "qwen2", "qwen3"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiny").join(name);
        let json = |file: &str| -> serde_json::Value {
            serde_json::from_slice(&std::fs::read(folder.join(file)).expect("a golden")).expect("JSON")
        };
        let prompt = serde_json::from_value(json("golden.json")["ids"].clone()).expect("ids");
        let golden: Vec<f32> = serde_json::from_value(json("embedding.json")["mean"].clone()).expect("a mean");
        let (player, plan) = open();
        let way = Way { chunk: Some(16), ..Way::crowd("golden") };
        let mut engine = engine(&tiny(name), player, plan, &way);
        let request = Request { prompt, max_tokens: Some(1), pool: true, ..Request::default() };
        let answer = run(&mut engine, vec![request]).remove(0);
        assert_eq!(answer.pooled.len(), golden.len(), "{name} on {label}");
        for (i, (got, want)) in answer.pooled.iter().map(|&bits| f32::from_bits(bits)).zip(golden).enumerate() {
            let bound = POOLED_TOLERANCE * (1.0 + want.abs());
            assert!((got - want).abs() <= bound, "{name} on {label}: value {i} is {got}, expected {want} ± {bound}");
        }
    }
}

#[test]
fn means_of_hidden_states_are_those_of_transformers_on_the_twin() {
    check_pooled("twin", &|| (Box::new(Twin::new()), Plan::TWIN));
}

#[test]
fn means_of_hidden_states_are_those_of_transformers_on_every_adapter() {
    for_each_adapter(|label, make| {
        check_pooled(label, &|| {
            let player = make(Options::default());
            let plan = player.plan();
            (Box::new(player), plan)
        });
    });
}
