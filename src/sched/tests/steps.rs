//! What a step holds: decode rows first, chunks inside their bounds, steps in flight, cancels.

use super::*;
use RowKind::{Decode, Prefill};

/// 1,000 ns a prefill token, 8,000 a decode row, 100,000 a step.
const COST: CostModel = CostModel { a: 100_000 * 1024, b: 1_000 * 1024, c: 8_000 * 1024, d: 0 };

/// One request that decodes and one of 1,000 prompt tokens that has just come.
fn stream_and_prompt(config: Config) -> Scheduler {
    let mut scheduler = Scheduler::new(config);
    scheduler.set_cost(COST);
    scheduler.submit(request(1, ids(1, 10), 500)).expect("taken");
    step(&mut scheduler);
    scheduler.submit(request(2, ids(2, 1_000), 5)).expect("taken");
    scheduler
}

#[test]
fn chunks_keep_the_predicted_step_inside_the_bound_asked_for() {
    let check = |policy, itl_slo_nanos, chunk_tokens, expected: &[(RequestId, RowKind, u32, u32)]| {
        let mut scheduler = stream_and_prompt(Config { policy, itl_slo_nanos, chunk_tokens, ..roomy() });
        assert_eq!(rows(&step(&mut scheduler)), expected, "{policy} {itl_slo_nanos:?} {chunk_tokens:?}");
    };
    let stream = (1, Decode, 10, 1);
    // The stream's row shares the tiles, and then costs nothing of its own: 100 + 112 us of 2 x 108.
    check(Policy::Slo, None, None, &[stream, (2, Prefill, 0, 111)]);
    check(Policy::Slo, Some(308_000), None, &[stream, (2, Prefill, 0, 207)]);
    check(Policy::Slo, Some(1), None, &[stream, (2, Prefill, 0, 7)]);
    check(Policy::Slo, Some(308_000), Some(17), &[stream, (2, Prefill, 0, 17)]);
    check(Policy::Fcfs, Some(1), None, &[stream, (2, Prefill, 0, 1_000)]);
    check(Policy::Priority, Some(1), Some(64), &[stream, (2, Prefill, 0, 64)]);
    check(Policy::PrefillFirst, Some(1), None, &[(2, Prefill, 0, 1_000)]);
}

#[test]
fn with_nobody_decoding_a_step_may_last_half_a_second() {
    let mut scheduler = Scheduler::new(roomy());
    scheduler.set_cost(CostModel { b: 1_000_000 * 1024, ..CostModel::default() });
    scheduler.submit(request(1, ids(1, 1_000), 5)).expect("taken");
    assert_eq!(rows(&step(&mut scheduler)), [(1, Prefill, 0, 496)]);
}

#[test]
fn under_prefill_first_streams_wait_for_the_last_chunk() {
    let mut scheduler = stream_and_prompt(Config { policy: Policy::PrefillFirst, step_tokens: 400, ..roomy() });
    for _ in 0..3 {
        assert!(step(&mut scheduler).rows.iter().all(|rows| rows.id == 2));
    }
    assert_eq!(rows(&step(&mut scheduler)), [(1, Decode, 10, 1), (2, Decode, 1_000, 1)]);
}

#[test]
fn the_order_of_prompts_is_the_policys() {
    let check = |policy, expected: &[RequestId]| {
        let mut scheduler = Scheduler::new(Config { policy, slots: 1, ..roomy() });
        for (id, priority, tenant) in [(1, 1, 0), (2, 0, 0), (3, 0, 0), (4, 0, 1), (5, -1, 0)] {
            let seed = u32::try_from(id).expect("small");
            let new = NewRequest { priority, tenant, ..request(id, ids(seed, 20), 1) };
            scheduler.submit(new).expect("taken");
        }
        let order: Vec<_> = run(&mut scheduler).iter().map(|step| step.rows[0].id).collect();
        assert_eq!(order, expected, "{policy}");
    };
    check(Policy::Slo, &[5, 4, 2, 3, 1]);
    check(Policy::PrefillFirst, &[5, 4, 2, 3, 1]);
    check(Policy::Priority, &[5, 2, 3, 4, 1]);
    check(Policy::Fcfs, &[1, 2, 3, 4, 5]);
}

#[test]
fn steps_are_planned_ahead_of_their_tokens() {
    let mut scheduler = Scheduler::new(Config { chunk_tokens: Some(16), ..roomy() });
    scheduler.submit(request(1, ids(1, 20), 3)).expect("taken");
    let planned: Vec<_> = (0..4).map(|_| scheduler.plan().expect("a step")).collect();
    let expected = [(1, Prefill, 0, 16), (1, Prefill, 16, 4), (1, Decode, 20, 1), (1, Decode, 21, 1)];
    assert_eq!(planned.iter().flat_map(rows).collect::<Vec<_>>(), expected);
    assert_eq!(scheduler.plan(), None, "four are in flight");
    let finished: Vec<_> = planned.iter().map(|step| apply(&mut scheduler, step).finished).collect();
    assert_eq!(finished, [vec![], vec![], vec![], vec![1]]);
    assert!(scheduler.idle());
}

#[test]
fn a_late_stop_costs_the_rows_in_flight_and_frees_with_the_last_of_them() {
    let mut scheduler = Scheduler::new(roomy());
    scheduler.submit(request(1, ids(1, 20), 300)).expect("taken");
    let (first, second) = (scheduler.plan().expect("prefill"), scheduler.plan().expect("decode"));
    apply(&mut scheduler, &first);
    scheduler.finish(1);
    scheduler.check();
    assert_eq!((scheduler.counters().leaving, scheduler.counters().pages_used), (1, 2));
    assert_eq!(scheduler.plan(), None);
    assert_eq!(apply(&mut scheduler, &second), Applied::default(), "its token is ignored");
    assert!(scheduler.idle());
    assert_eq!((scheduler.counters().pages_used, scheduler.counters().pages_cached), (0, 1));
}

#[test]
fn a_cancel_frees_everything_within_a_step_in_any_state() {
    let mut scheduler = Scheduler::new(Config { slots: 2, chunk_tokens: Some(16), prefix_caching: false, ..roomy() });
    (1..4).for_each(|id| scheduler.submit(request(id, ids(0, if id == 1 { 4 } else { 100 }), 50)).expect("taken"));
    step(&mut scheduler);
    let flying = step(&mut scheduler);
    assert_eq!(rows(&flying), [(1, Decode, 4, 1), (2, Prefill, 16, 16)]);
    assert!(scheduler.cancel(3), "in the queue");
    assert!(scheduler.cancel(2), "half way through its prompt");
    assert_eq!(scheduler.counters().pages_used, 1);
    let flying = scheduler.plan().expect("a step");
    assert!(scheduler.cancel(1), "in flight");
    assert!(!scheduler.cancel(1) && !scheduler.cancel(9));
    assert_eq!(scheduler.counters().pages_used, 1);
    apply(&mut scheduler, &flying);
    assert_eq!(scheduler.counters().pages_used, 0);
    assert!(scheduler.idle());
}

#[test]
fn more_streams_than_logit_rows_take_turns_and_let_prompts_end() {
    let mut scheduler = Scheduler::new(Config { logit_rows: 3, ..roomy() });
    (0..5).for_each(|id| scheduler.submit(request(id, ids(0, 4), 30)).expect("taken"));
    let steps: Vec<_> = (0..40).map(|_| step(&mut scheduler)).collect();
    assert!(steps.iter().all(|step| step.rows.iter().filter(|rows| rows.last).count() <= 3));
    let prefilled = steps.iter().position(|step| step.rows.iter().any(|rows| rows.id == 4)).expect("prefilled");
    assert!(prefilled <= 3, "the fifth prompt ends at step {prefilled}");
    let counts = (0..5).map(|id| steps[4..].iter().filter(|step| step.rows.iter().any(|rows| rows.id == id)).count());
    let counts: Vec<_> = counts.collect();
    let (least, most) = (counts.iter().min().expect("five"), counts.iter().max().expect("five"));
    assert!(most - least <= 1, "{counts:?}");
}
