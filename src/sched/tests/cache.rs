//! The prompt cache: what is hit, what is not, and why.

use super::*;
use proptest::prelude::*;

/// Runs a request alone; returns its admission.
fn alone(scheduler: &mut Scheduler, id: RequestId, prompt: Vec<u32>, max_tokens: u32) -> Admitted {
    scheduler.submit(request(id, prompt, max_tokens)).expect("taken");
    let steps = run(scheduler);
    steps[0].admitted[0]
}

#[test]
fn f47_a_full_hit_recomputes_only_what_logits_need() {
    let check = |prompt: u32, cached: u32| {
        let mut scheduler = Scheduler::new(roomy());
        assert_eq!(alone(&mut scheduler, 1, ids(1, prompt), 1).cached_tokens, 0);
        for id in 2..4 {
            let again = alone(&mut scheduler, id, ids(1, prompt), 1);
            assert_eq!((again.cached_tokens, again.miss), (cached, None), "{prompt} tokens");
        }
    };
    check(1, 0);
    check(16, 0);
    check(17, 16);
    check(32, 16);
    check(33, 32);
    check(1_000, 992);
}

#[test]
fn f48_a_shorter_prompt_after_a_longer_one_hits_its_own_length() {
    let mut scheduler = Scheduler::new(roomy());
    alone(&mut scheduler, 1, ids(1, 100), 30);
    assert_eq!(alone(&mut scheduler, 2, ids(1, 40), 5).cached_tokens, 32);
}

#[test]
fn a_miss_tells_its_reason_and_where() {
    let mut scheduler = Scheduler::new(Config { pages: 20, ..roomy() });
    let miss = |reason, at| Some(Miss { reason, at });
    assert_eq!(alone(&mut scheduler, 1, ids(1, 100), 1).miss, miss(MissReason::New, 0));
    let mut other = ids(1, 100);
    other[70] += 256;
    let differs = alone(&mut scheduler, 2, other, 1);
    assert_eq!((differs.cached_tokens, differs.miss), (64, miss(MissReason::Differs, 70)));
    let mut longer = ids(1, 96);
    longer.extend(ids(2, 30));
    let new = alone(&mut scheduler, 3, longer, 1);
    assert_eq!((new.cached_tokens, new.miss), (96, miss(MissReason::New, 96)));
    assert_eq!(alone(&mut scheduler, 4, ids(4, 310), 1).miss, miss(MissReason::New, 0));
    let evicted = alone(&mut scheduler, 5, ids(1, 100), 1);
    assert_eq!((evicted.cached_tokens, evicted.miss), (0, miss(MissReason::Evicted, 0)));
}

#[test]
fn salts_separate_and_the_switch_switches_off() {
    let mut scheduler = Scheduler::new(roomy());
    alone(&mut scheduler, 1, ids(1, 100), 1);
    let salted = NewRequest { salt: [8; 32], ..request(2, ids(1, 100), 1) };
    scheduler.submit(salted).expect("taken");
    let admitted = run(&mut scheduler)[0].admitted[0];
    let never_seen = Some(Miss { reason: MissReason::New, at: 0 });
    assert_eq!((admitted.cached_tokens, admitted.miss), (0, never_seen));
    let mut off = Scheduler::new(Config { prefix_caching: false, ..roomy() });
    for id in 0..2 {
        let admitted = alone(&mut off, id, ids(1, 100), 1);
        assert_eq!((admitted.cached_tokens, admitted.miss), (0, None));
    }
    assert_eq!(off.counters().pages_cached, 0);
}

#[test]
fn generated_tokens_are_cached_as_their_pages_fill() {
    let mut scheduler = Scheduler::new(roomy());
    scheduler.submit(request(1, ids(1, 20), 30)).expect("taken");
    let mut all = Vec::new();
    while !scheduler.idle() {
        let step = scheduler.plan().expect("a step");
        all = scheduler.ids(1).to_vec();
        apply(&mut scheduler, &step);
    }
    assert_eq!(all.len(), 49, "all ids but the last, whose K and V nobody computed");
    assert_eq!(alone(&mut scheduler, 2, all, 1).cached_tokens, 48);
}

#[test]
fn where_generated_tokens_are_computed_otherwise_only_prompts_are_kept_and_found() {
    let mut scheduler = Scheduler::new(Config { cache_generated: false, ..roomy() });
    scheduler.submit(request(1, ids(1, 20), 60)).expect("taken");
    (0..30).for_each(|_| drop(step(&mut scheduler)));
    let all = scheduler.ids(1).to_vec();
    assert_eq!(all.len(), 50);
    assert_eq!(scheduler.prefix.len(), 1, "one page is the prompt's alone");
    // The same ids as a prompt: the first page is found, two more are computed as prompts are, and kept.
    let again = NewRequest { priority: -1, ..request(2, all[..49].to_vec(), 1) };
    scheduler.submit(again).expect("taken");
    let admitted = step(&mut scheduler).admitted;
    assert_eq!((admitted[0].id, admitted[0].cached_tokens), (2, 16));
    assert_eq!(scheduler.prefix.len(), 3);
    // Computed anew, the first request must not take these for its own, although their ids are its answer's.
    let failing = scheduler.plan().expect("a step");
    assert_eq!(scheduler.fail(failing.n), [1]);
    scheduler.check();
    let resumed = step(&mut scheduler).admitted;
    assert_eq!((resumed[0].id, resumed[0].cached_tokens, resumed[0].resumed), (1, 16, true));
    run(&mut scheduler);
    assert_eq!(scheduler.prefix.len(), 3);
    // A third one is a prompt all through.
    assert_eq!(alone(&mut scheduler, 3, all[..49].to_vec(), 1).cached_tokens, 48);
}

#[test]
fn a_prefix_that_is_being_computed_is_waited_for_and_computed_once() {
    let mut scheduler = Scheduler::new(Config { step_tokens: 64, ..roomy() });
    for id in 0..20 {
        let mut prompt = ids(1, 100);
        prompt.extend(ids(2 + u32::try_from(id).expect("small"), 3));
        scheduler.submit(request(id, prompt, 1)).expect("taken");
    }
    let steps = run(&mut scheduler);
    let computed: u32 = steps.iter().flat_map(|step| &step.rows).map(|rows| rows.tokens).sum();
    assert_eq!(computed, 103 + 19 * 7);
}

#[test]
fn whoever_needs_another_prefix_passes_by() {
    let mut scheduler = Scheduler::new(Config { chunk_tokens: Some(16), ..roomy() });
    for (id, seed) in [(1, 1), (2, 1), (3, 3)] {
        scheduler.submit(request(id, ids(seed, 40), 1)).expect("taken");
    }
    let first = step(&mut scheduler);
    assert_eq!(rows(&first), [(1, RowKind::Prefill, 0, 16), (3, RowKind::Prefill, 0, 16)]);
    let second = step(&mut scheduler);
    assert_eq!(second.admitted.len(), 0, "the next page is being computed too");
    let third = step(&mut scheduler);
    assert_eq!(third.admitted[0].cached_tokens, 32);
}

#[test]
fn a_cancelled_computation_is_not_waited_for() {
    let mut scheduler = Scheduler::new(Config { chunk_tokens: Some(16), ..roomy() });
    (1..3).for_each(|id| scheduler.submit(request(id, ids(1, 40), 1)).expect("taken"));
    step(&mut scheduler);
    assert!(scheduler.cancel(1));
    assert_eq!(rows(&step(&mut scheduler)), [(2, RowKind::Prefill, 16, 16)]);
}

proptest! {
    /// The naive cache: all that ever ran, compared id by id.
    #[test]
    fn a_hit_is_the_longest_page_aligned_prefix_ever_computed(
        prompts in prop::collection::vec((prop::collection::vec(0..2_u32, 1..6), 0..17_u32, 0..2_u8), 1..12),
    ) {
        let mut scheduler = Scheduler::new(roomy());
        let mut computed: Vec<(u8, Vec<u32>)> = Vec::new();
        for (id, (pages, tail, salt)) in (0..).zip(prompts) {
            let page = |&which: &u32| (0..16).map(move |at| at + 256 * which);
            let mut prompt: Vec<u32> = pages.iter().flat_map(page).collect();
            prompt.extend(0..tail);
            let shared = |other: &(u8, Vec<u32>)| {
                let same = other.1.iter().zip(&prompt).take_while(|(a, b)| a == b).count();
                if other.0 == salt { same.min(prompt.len() - 1) / 16 * 16 } else { 0 }
            };
            let expected = computed.iter().map(shared).max().unwrap_or(0);
            let new = NewRequest { salt: [salt; 32], ..request(id, prompt.clone(), 1) };
            scheduler.submit(new).expect("taken");
            let admitted = run(&mut scheduler)[0].admitted[0];
            prop_assert_eq!(admitted.cached_tokens as usize, expected);
            computed.push((salt, prompt));
        }
    }
}
