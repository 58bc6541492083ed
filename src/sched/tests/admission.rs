//! Who is taken, and who is refused.

use super::*;

#[test]
fn what_can_never_run_is_refused_at_once_with_both_numbers() {
    let check = |change: &dyn Fn(&mut Config), prompt: u32, expected: Result<(), Refusal>| {
        let mut config = roomy();
        change(&mut config);
        let mut scheduler = Scheduler::new(config);
        assert_eq!(scheduler.submit(request(1, ids(1, prompt), 5)), expected, "{prompt} tokens");
        assert_eq!(scheduler.idle(), expected.is_err());
    };
    check(&|_| (), 0, Err(Refusal::Empty));
    check(&|_| (), 4_095, Ok(()));
    check(&|_| (), 4_096, Err(Refusal::ContextFull { prompt_tokens: 4_096, context_tokens: 4_096 }));
    check(&|c| c.pages = 4, 63, Ok(()));
    check(&|c| c.pages = 4, 64, Err(Refusal::PoolTooSmall { needed_pages: 5, pages: 4 }));
    check(&|c| c.queue_max = 0, 1, Err(Refusal::QueueFull { waiting: 0, limit: 0 }));
}

#[test]
fn the_queue_is_bounded_by_requests_and_by_tokens() {
    let mut scheduler = Scheduler::new(Config { queue_max: 2, queue_tokens_max: 100, ..roomy() });
    assert_eq!(scheduler.submit(request(1, ids(1, 300), 5)), Ok(()), "alone it may be longer than the queue");
    let full = Refusal::QueueTokensFull { waiting_tokens: 300, prompt_tokens: 10, limit: 100 };
    assert_eq!(scheduler.submit(request(2, ids(2, 10), 5)), Err(full));
    step(&mut scheduler);
    assert_eq!(scheduler.submit(request(3, ids(3, 10), 5)), Ok(()));
    assert_eq!(scheduler.submit(request(4, ids(4, 10), 5)), Ok(()));
    let full = Refusal::QueueFull { waiting: 2, limit: 2 };
    assert_eq!(scheduler.submit(request(5, ids(5, 10), 5)), Err(full));
}

#[test]
fn an_answer_ends_at_max_tokens_or_at_the_context() {
    let check = |context_tokens, pages, max_tokens, expected| {
        let mut scheduler = Scheduler::new(Config { context_tokens, pages, ..roomy() });
        scheduler.submit(request(1, ids(1, 20), max_tokens)).expect("taken");
        let steps = run(&mut scheduler);
        assert_eq!(steps.len(), expected, "context {context_tokens}, {pages} pages, {max_tokens} tokens");
    };
    check(4_096, 1_000, 1, 1);
    check(4_096, 1_000, 9, 9);
    check(25, 1_000, 9, 5);
    check(4_096, 2, 99, 12);
}

#[test]
fn slots_bound_how_many_run() {
    let mut scheduler = Scheduler::new(Config { slots: 3, ..roomy() });
    (0..5).for_each(|id| scheduler.submit(request(id, ids(0, 4), 2)).expect("taken"));
    let first = step(&mut scheduler);
    assert_eq!((first.admitted.len(), first.waiting), (3, 2));
    let slots: Vec<_> = first.admitted.iter().map(|admitted| admitted.slot).collect();
    assert_eq!(slots, [0, 1, 2]);
    assert_eq!(run(&mut scheduler).len(), 3);
}

#[test]
fn policies_have_names() {
    for policy in Policy::ALL {
        assert_eq!(policy.name().parse(), Ok(policy));
    }
    let error = "lifo".parse::<Policy>().expect_err("no such policy");
    assert_eq!(error, "expected slo, fcfs, priority, prefill-first, got \"lifo\"");
}
