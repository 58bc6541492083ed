//! Sampling: the shaders against the twin to the last bit, both against the rules in f64, draws against their distribution.

mod case;

use twostroke::engine::sampling::{adjusted, logprobs, probabilities};
use twostroke::gpu::Options;
use twostroke::kernels::argmax::NOT_FINITE;
use twostroke::kernels::sample::{JOB_FIELDS, Rules, Sampled, Stage};
use twostroke::kernels::{Kernel, Tape};
use twostroke::recording::Player;
use twostroke::twin::Twin;

use self::case::{Asked, Case, KINDS, logits};
use crate::adapters::for_each_adapter;
use crate::pairwise::{Random, table};

/// How far below the least kept logit (f64) a drawn one may lie: cuts are made on logits and sums rounded to f32.
const CUT: f64 = 1e-4;
/// Largest error of a logprob, relative to 1 + |logprob|: a mass has 24 bits, the smallest of them is 2^-31.
const LOGPROB: f64 = 5e-5;

const TEMPERATURES: [f32; 5] = [0.0, 1e-9, 0.3, 1.0, 2.0];
const TOP_KS: [Option<u32>; 7] = [None, Some(1), Some(2), Some(20), Some(333), Some(9000), Some(1_000_000)];
const TOP_PS: [f32; 5] = [1.0, 0.95, 0.5, 1e-6, 0.9999];
const MIN_PS: [f32; 4] = [0.0, 0.05, 1e-4, 1.0];
const PENALTIES: [[f32; 3]; 5] =
    [[1.0, 0.0, 0.0], [1.3, 0.0, 0.0], [1.0, 0.5, 0.0], [1.0, 0.0, -1.5], [0.7, -0.25, 1.0]];
const BIASES: [usize; 3] = [0, 3, 200];
const LOGPROBS: [Option<u32>; 4] = [None, Some(0), Some(5), Some(20)];

/// Vocabulary and rows of each launch: odd ones, edges of a chunk, a small model's, more rows than a wave takes.
const LAUNCHES: [(u32, usize); 11] = [
    (1, 5),
    (2, 130),
    (63, 20),
    (65, 130),
    (1000, 60),
    (4095, 20),
    (4096, 20),
    (4097, 130),
    (8193, 20),
    (49_152, 30),
    (102_400, 12),
];

fn ids(count: usize, dim: u32, random: &mut Random) -> Vec<u32> {
    (0..count).map(|_| random.below((dim as usize).min(40)) as u32).collect()
}

/// All launches, their rows taken in turn from a table in which every pair of levels occurs.
fn cases() -> Vec<Case> {
    let levels = [
        TEMPERATURES.len(),
        TOP_KS.len(),
        TOP_PS.len(),
        MIN_PS.len(),
        PENALTIES.len(),
        BIASES.len(),
        LOGPROBS.len(),
        KINDS,
    ];
    let mut rows = table(&levels, 41, 400).into_iter().cycle();
    let mut random = Random::new(42);
    let mut case = |(dim, count): (u32, usize)| {
        let mut all = Vec::new();
        let asked = (0..count as u32).map(|row| {
            let level = rows.next().expect("a cycle");
            let [repetition, frequency, presence] = PENALTIES[level[4]];
            let mut biased: Vec<u32> = ids(BIASES[level[5]], dim, &mut random);
            biased.sort_unstable();
            biased.dedup();
            let rules = Rules {
                repetition,
                frequency,
                presence,
                bias: biased.into_iter().map(|id| (id, 4.0 * random.unit())).collect(),
                temperature: TEMPERATURES[level[0]],
                min_p: MIN_PS[level[3]],
                top_k: TOP_KS[level[1]],
                top_p: TOP_PS[level[2]],
            };
            all.push(logits(level[7], dim, &mut random));
            let (prompt, generated) = (random.below(20), random.below(20));
            Asked {
                prompt: ids(prompt, dim, &mut random),
                generated: ids(generated, dim, &mut random),
                seed: random.bits(),
                choice: random.below(3) as u32,
                logprobs: LOGPROBS[level[6]],
                ..Asked::new(row, rules)
            }
        });
        let asked = asked.collect();
        // 38 tokens at most: a history may end at the context, where the choice has no place.
        Case { dim, context: 38, logits: all, asked }
    };
    LAUNCHES.into_iter().map(&mut case).collect()
}

/// Holds what a row yielded against the rules in f64.
fn check_reference(what: &str, case: &Case, asked: &Asked, got: &Sampled) {
    let logits = &case.logits[asked.logits_row as usize];
    let (prompt, generated) = (&asked.prompt, &asked.generated);
    let all = probabilities(&asked.rules, logits, prompt, generated).expect("finite");
    let y = adjusted(&asked.rules, logits, prompt, generated);
    let kept = (0..all.len()).filter(|&id| all[id] > 0.0);
    let least = kept.map(|id| y[id]).fold(f64::INFINITY, f64::min);
    let drawn = y[got.id as usize];
    let slack = CUT * (1.0 + least.abs());
    assert!(drawn >= least - slack, "{what}: drew {} at {drawn}, the least kept is at {least}", got.id);
    let raw = logprobs(logits);
    let near = |got: f32, id: u32| {
        let want = raw[id as usize];
        let bound = LOGPROB * (1.0 + want.abs());
        assert!((f64::from(got) - want).abs() <= bound, "{what}: logprob {got} of {id}, by f64 {want}");
    };
    assert_eq!(got.logprob.is_some(), asked.logprobs.is_some(), "{what}");
    if let Some(logprob) = got.logprob {
        near(logprob, got.id);
    }
    let mut order: Vec<u32> = (0..case.dim).collect();
    let key = |id: u32| logits[id as usize];
    order.sort_by(|&a, &b| key(b).partial_cmp(&key(a)).expect("finite").then(a.cmp(&b)));
    order.truncate(asked.logprobs.unwrap_or(0) as usize);
    assert_eq!(got.top.iter().map(|(id, _)| *id).collect::<Vec<_>>(), order, "{what}: top ids");
    got.top.iter().for_each(|&(id, logprob)| near(logprob, id));
}

#[test]
fn every_rule_on_every_adapter_is_the_twins_to_the_last_bit_and_within_the_f64_reference() {
    let cases = cases();
    let twins: Vec<_> = cases.iter().map(|case| case.play("twin", &mut Twin::new())).collect();
    for (case, twin) in cases.iter().zip(&twins) {
        for (asked, got) in case.asked.iter().zip(twin) {
            check_reference(&format!("twin, {} logits, {asked:?}", case.dim), case, asked, got);
        }
    }
    for_each_adapter(|label, open| {
        let mut player = open(Options::default());
        for (case, twin) in cases.iter().zip(&twins) {
            let got = case.play(label, &mut player);
            for ((asked, got), want) in case.asked.iter().zip(&got).zip(twin) {
                assert_eq!(got, want, "{label}, {} logits, {asked:?}", case.dim);
            }
        }
    });
}

/// Runs `check` on the twin and on every adapter.
fn everywhere(mut check: impl FnMut(&str, &mut dyn Player<Kernel>)) {
    check("twin", &mut Twin::new());
    for_each_adapter(|label, open| check(label, &mut open(Options::default())));
}

fn warm(temperature: f32) -> Rules {
    Rules { temperature, ..Rules::default() }
}

#[test]
fn rows_that_are_not_finite_are_reported_and_hurt_no_other() {
    let mut random = Random::new(3);
    let rules = [
        Rules::default(),
        warm(1.0),
        Rules { top_k: Some(5), ..warm(0.7) },
        Rules { top_p: 0.5, presence: 1.0, ..warm(0.7) },
    ];
    let bad = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -f32::NAN];
    for dim in [1_u32, 300, 5000] {
        let mut case = Case { dim, context: 8, logits: vec![], asked: vec![] };
        for row in 0..32 {
            let mut values = logits(0, dim, &mut random);
            if row % 2 == 1 {
                values[random.below(dim as usize)] = bad[row as usize / 2 % 4];
            }
            case.logits.push(values);
            case.asked.push(Asked::new(row, rules[row as usize / 2 % 4].clone()));
        }
        everywhere(|label, player| {
            for (row, got) in case.play(label, player).iter().enumerate() {
                let none = Sampled { id: NOT_FINITE, logprob: None, top: vec![] };
                assert_eq!(*got == none, row % 2 == 1, "{label}: {dim} logits, row {row}: {got:?}");
            }
        });
    }
}

/// Draws `count` ids by one rule, from one row, over positions and choices.
fn draws(label: &str, player: &mut dyn Player<Kernel>, rules: &Rules, values: &[f32], count: u32) -> Vec<u32> {
    let mut ids = Vec::new();
    let mut case = Case { dim: values.len() as u32, context: 1000, logits: vec![values.to_vec()], asked: vec![] };
    for i in 0..count {
        let prompt = vec![0; (i % 400) as usize];
        let row =
            Asked { logits_row: 0, prompt, choice: i / 400, logprobs: None, seed: 77, ..Asked::new(0, rules.clone()) };
        // Each its own slot, or their histories would lie over each other.
        case.asked.push(Asked { slot: case.asked.len() as u32, ..row });
        if case.asked.len() == 250 || i + 1 == count {
            ids.extend(case.play(label, player).iter().map(|one| one.id));
            case.asked.clear();
        }
    }
    ids
}

#[test]
fn draws_follow_the_distribution() {
    let mut random = Random::new(9);
    let values: Vec<f32> = (0..300).map(|_| 2.0 * (random.unit() + random.unit())).collect();
    let rules = [
        warm(1.0),
        warm(0.4),
        Rules { top_k: Some(7), ..warm(1.5) },
        Rules { top_p: 0.6, ..warm(1.0) },
        Rules { min_p: 0.3, ..warm(1.0) },
        Rules { min_p: 0.1, top_k: Some(50), top_p: 0.9, bias: vec![(3, 3.0)], ..warm(0.8) },
    ];
    everywhere(|label, player| {
        let count = if label == "twin" { 6000 } else { 1000 };
        for rules in &rules {
            let expected = probabilities(rules, &values, &[0], &[]).expect("finite");
            let mut seen = vec![0_u32; values.len()];
            draws(label, player, rules, &values, count).iter().for_each(|&id| seen[id as usize] += 1);
            // Ids that are expected fewer than 8 times share a bin.
            let (mut statistic, mut bins, mut rest) = (0.0, 0, (0.0, 0.0));
            let mut add = |want: f64, got: f64| {
                statistic += (got - want).powi(2) / want;
                bins += 1;
            };
            for (p, got) in expected.iter().zip(&seen) {
                let (want, got) = (p * f64::from(count), f64::from(*got));
                assert!(want > 0.0 || got == 0.0, "{label}: {rules:?} drew what it cuts");
                if want >= 8.0 { add(want, got) } else { rest = (rest.0 + want, rest.1 + got) }
            }
            if rest.0 > 0.0 {
                add(rest.0, rest.1);
            }
            // Mean and 4 standard deviations of chi-square.
            let freedom = f64::from(bins - 1);
            let most = freedom + 4.0 * (2.0 * freedom).sqrt();
            assert!(statistic <= most, "{label}: {rules:?}: {statistic} in {bins} bins, at most {most}");
        }
    });
}

#[test]
fn company_slot_and_place_never_change_a_row() {
    let mut random = Random::new(12);
    let dim = 5003;
    let own = logits(0, dim, &mut random);
    let rules = [
        Rules::default(),
        warm(1.0),
        Rules { top_k: Some(40), top_p: 0.9, ..warm(0.8) },
        Rules { repetition: 1.2, presence: 0.5, bias: vec![(7, 2.0)], min_p: 0.02, top_p: 0.7, ..warm(1.2) },
    ];
    let one = |rules: &Rules| Asked {
        prompt: vec![5, 6, 7, 7],
        generated: vec![8, 8, 9],
        seed: 1 << 40,
        ..Asked::new(0, rules.clone())
    };
    let mut alone = Case { dim, context: 64, logits: vec![own.clone()], asked: vec![] };
    let mut crowd = Case {
        dim,
        context: 64,
        logits: (0..90).map(|i| logits(i % KINDS, dim, &mut random)).collect(),
        asked: vec![],
    };
    for i in 0..90_u32 {
        let mut other = Asked { generated: vec![i; i as usize % 30], ..Asked::new(i, rules[i as usize % 4].clone()) };
        other.logprobs = [None, Some(0), Some(20)][i as usize % 3];
        crowd.asked.push(other);
    }
    everywhere(|label, player| {
        for rules in &rules {
            alone.asked = vec![one(rules)];
            let want = alone.play(label, player);
            for at in [0_usize, 41, 89] {
                let mut crowd = crowd.clone();
                crowd.logits[at].clone_from(&own);
                crowd.asked[at] = Asked { logits_row: at as u32, slot: at as u32, ..one(rules) };
                assert_eq!(crowd.play(label, player)[at], want[0], "{label}: {rules:?} as row {at} of 90");
            }
        }
    });
}

#[test]
fn f41_temperature_zero_and_nearly_zero_are_greedy_and_equal_to_top_k_1() {
    let mut random = Random::new(14);
    let values = logits(0, 2000, &mut random);
    let rules =
        [warm(0.0), warm(1e-9), warm(1e-6), Rules { top_k: Some(1), ..warm(1.0) }, Rules { top_p: 1e-9, ..warm(2.0) }];
    let asked = (0..).zip(rules).map(|(i, rules)| Asked { logits_row: 0, slot: i, ..Asked::new(i, rules) }).collect();
    let want = twostroke::kernels::argmax::argmax(&values);
    let case = Case { dim: 2000, context: 4, logits: vec![values], asked };
    everywhere(|label, player| {
        for one in case.play(label, player) {
            assert_eq!(one.id, want, "{label}");
            assert!(one.logprob.is_some_and(f32::is_finite), "{label}: {one:?}");
        }
    });
}

#[test]
fn f43_presence_and_frequency_count_the_answer_only_and_repetition_the_prompt_too() {
    // The prompt holds the id that the model wants first.
    let values = vec![1.0, 3.0, 2.5, 0.0];
    let rules = [
        Rules { presence: 2.0, ..Rules::default() },
        Rules { frequency: 2.0, ..Rules::default() },
        Rules { repetition: 1.5, ..Rules::default() },
    ];
    let mut asked = Vec::new();
    for (prompt, generated) in [(vec![1, 1, 1], vec![]), (vec![0], vec![1])] {
        for rules in &rules {
            let i = asked.len() as u32;
            let row = Asked {
                logits_row: 0,
                prompt: prompt.clone(),
                generated: generated.clone(),
                ..Asked::new(i, rules.clone())
            };
            asked.push(row);
        }
    }
    let case = Case { dim: 4, context: 8, logits: vec![values], asked };
    everywhere(|label, player| {
        let ids: Vec<u32> = case.play(label, player).iter().map(|one| one.id).collect();
        assert_eq!(ids, [1, 1, 2, 2, 2, 2], "{label}");
    });
}

#[test]
fn long_histories_are_counted_whole() {
    let dim = 500;
    let values = vec![0.0; dim as usize];
    // Both lie in several chunks of the history. A negative frequency makes the id that was generated once more the best one.
    let mut generated = vec![3; 9000];
    generated.extend(vec![4; 8999]);
    let rules = Rules { frequency: -0.001, ..Rules::default() };
    let first = Asked { prompt: vec![7; 5000], generated, ..Asked::new(0, rules) };
    let second =
        Asked { rules: Rules { repetition: 1.5, bias: vec![(7, 1.0), (8, 0.9)], ..Rules::default() }, ..first.clone() };
    let asked = vec![first, Asked { slot: 1, logits_row: 0, ..second }];
    let case = Case { dim, context: 23_000, logits: vec![values], asked };
    everywhere(|label, player| {
        let ids: Vec<u32> = case.play(label, player).iter().map(|one| one.id).collect();
        assert_eq!(ids, [3, 7], "{label}");
    });
}

#[test]
fn searches_over_a_row_of_ties_end_before_a_driver_ends_them() {
    // lavapipe stops an invocation's loops after 65,536 turns; top-k and top-p both halve keys and ids of the whole row here.
    let dim = 256_000;
    let rules = [
        Rules { top_k: Some(200_000), top_p: 0.7, ..warm(1.0) },
        Rules { top_k: Some(9000), top_p: 0.95, min_p: 0.01, ..warm(2.0) },
        Rules { top_p: 0.9, ..warm(0.5) },
    ];
    let mut random = Random::new(21);
    let rows = [logits(4, dim, &mut random), logits(3, dim, &mut random), logits(2, dim, &mut random)];
    let asked = (0..9_u32).map(|i| Asked { logits_row: i % 3, ..Asked::new(i, rules[i as usize / 3].clone()) });
    let case = Case { dim, context: 2, asked: asked.collect(), logits: rows.to_vec() };
    let want = case.play("twin", &mut Twin::new());
    for_each_adapter(|label, open| assert_eq!(case.play(label, &mut open(Options::default())), want, "{label}"));
}

#[test]
fn jobs_have_the_same_fields_in_wgsl_and_in_rust() {
    for stage in Stage::ALL {
        let module = naga::front::wgsl::parse_str(&Kernel::Sample(stage).wgsl()).expect("it parses");
        let job = module.types.iter().find(|(_, ty)| ty.name.as_deref() == Some("Job")).expect("a Job").1;
        let naga::TypeInner::Struct { members, .. } = &job.inner else { panic!("a job is a struct") };
        let fields: Vec<_> = members.iter().map(|m| (m.name.as_deref().unwrap_or(""), m.offset)).collect();
        assert_eq!(fields, JOB_FIELDS, "{stage:?}");
    }
}

#[test]
fn nothing_to_sample_records_nothing() {
    let case = Case { dim: 10, context: 4, logits: vec![vec![0.0; 10]], asked: vec![] };
    let mut player = Twin::new();
    let buffers = case.buffers(&mut player);
    let mut tape = Tape::new();
    let answer = twostroke::kernels::sample::record(&mut tape, case.sizes(), &buffers, &[]);
    assert_eq!((tape.commands.len(), answer.bytes()), (0, 0));
}
