//! Out of pages, out of luck: preemption, failed steps, a lost device.

use super::*;

#[test]
fn the_youngest_gives_way_and_resumes_at_the_front() {
    let mut scheduler = Scheduler::new(Config { pages: 6, prefix_caching: false, ..roomy() });
    for id in 1..4 {
        scheduler.submit(request(id, ids(u32::try_from(id).expect("small"), 17), 40)).expect("taken");
    }
    scheduler.submit(request(4, ids(4, 17), 1)).expect("taken");
    let steps = run(&mut scheduler);
    let admitted: Vec<_> = steps.iter().flat_map(|step| &step.admitted).map(|a| (a.id, a.resumed)).collect();
    let preempted: Vec<_> = steps.iter().flat_map(|step| &step.preempted).copied().collect();
    assert_eq!(preempted, [3, 2], "the youngest first");
    assert_eq!(admitted, [(1, false), (2, false), (3, false), (2, true), (3, true), (4, false)]);
    assert_eq!(scheduler.counters().preemptions, 2);
}

#[test]
fn a_resumed_request_prefills_its_own_answer_from_the_cache() {
    let mut scheduler = Scheduler::new(Config { pages: 6, ..roomy() });
    (1..3).for_each(|id| {
        scheduler.submit(request(id, ids(u32::try_from(id).expect("small"), 17), 60)).expect("taken");
    });
    let steps = run(&mut scheduler);
    let resumed = steps.iter().find(|step| step.admitted.iter().any(|a| a.resumed)).expect("a resumed one");
    let again = resumed.rows.iter().find(|rows| rows.id == 2).expect("its rows");
    assert_eq!(again.kind, RowKind::Prefill);
    assert!(again.from + again.tokens > 17, "the answer so far is prefilled too");
    assert_eq!(again.from % 16, 0);
}

#[test]
fn who_is_in_flight_is_marked_and_goes_when_its_step_is_applied() {
    let mut scheduler = Scheduler::new(Config { pages: 4, prefix_caching: false, ..roomy() });
    (1..3).for_each(|id| scheduler.submit(request(id, ids(0, 17), 60)).expect("taken"));
    let mut flying = scheduler.plan().expect("a step");
    for _ in 0..15 {
        let next = scheduler.plan().expect("a step");
        apply(&mut scheduler, &std::mem::replace(&mut flying, next));
    }
    // Both want a third page for position 32; 2 is marked, as it is still in flight, and 1 waits for its page.
    assert_eq!(scheduler.plan(), None);
    assert_eq!(scheduler.counters().preemptions, 0);
    apply(&mut scheduler, &flying);
    let next = step(&mut scheduler);
    assert_eq!((rows(&next), next.preempted), (vec![(1, RowKind::Decode, 32, 1)], vec![2]));
}

#[test]
fn unused_cached_pages_go_before_anybody_is_preempted() {
    let mut scheduler = Scheduler::new(Config { pages: 10, ..roomy() });
    scheduler.submit(request(1, ids(1, 100), 1)).expect("taken");
    run(&mut scheduler);
    assert_eq!(scheduler.counters().pages_cached, 6);
    scheduler.submit(request(2, ids(2, 20), 120)).expect("taken");
    run(&mut scheduler);
    let counters = scheduler.counters();
    assert_eq!(counters.preemptions, 0);
    assert!(counters.evictions >= 5, "{counters:?}");
}

#[test]
fn a_failed_step_sends_its_requests_back_and_keeps_the_cache() {
    let mut scheduler = Scheduler::new(Config { chunk_tokens: Some(32), ..roomy() });
    scheduler.submit(request(1, ids(1, 100), 4)).expect("taken");
    step(&mut scheduler);
    let (failed, _) = (scheduler.plan().expect("a step"), scheduler.plan().expect("one behind it"));
    assert_eq!(scheduler.fail(failed.n), [1]);
    scheduler.check();
    assert_eq!(scheduler.steps_in_flight(), 0);
    let again = step(&mut scheduler);
    assert_eq!((again.n, again.admitted[0].cached_tokens, again.admitted[0].resumed), (3, 32, true));
    run(&mut scheduler);
}

#[test]
fn a_lost_device_takes_the_cache_with_it() {
    let mut scheduler = Scheduler::new(Config { chunk_tokens: Some(32), ..roomy() });
    scheduler.submit(request(1, ids(1, 100), 4)).expect("taken");
    step(&mut scheduler);
    scheduler.plan().expect("a step");
    assert_eq!(scheduler.device_lost(), [1]);
    scheduler.check();
    let counters = scheduler.counters();
    assert_eq!((counters.pages_cached, counters.pages_free, counters.waiting), (0, 1_000, 1));
    let again = step(&mut scheduler);
    assert_eq!(again.admitted[0].miss, Some(Miss { reason: MissReason::Evicted, at: 0 }));
    run(&mut scheduler);
}
