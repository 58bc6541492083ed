//! Fair shares between tenants.

use super::*;

/// Tokens computed for each of `tenants` in the first `steps` steps; request ids are tenant × 1,000 + number.
fn served(scheduler: &mut Scheduler, tenants: u64, steps: usize) -> Vec<u32> {
    let mut tokens = vec![0; usize::try_from(tenants).expect("small")];
    for _ in 0..steps {
        for rows in step(scheduler).rows {
            tokens[usize::try_from(rows.id / 1_000).expect("small")] += rows.tokens;
        }
    }
    tokens
}

fn submit(scheduler: &mut Scheduler, tenant: u64, number: u64, prompt_tokens: u32) {
    let id = tenant * 1_000 + number;
    let prompt = ids(u32::try_from(id + 1).expect("small"), prompt_tokens);
    scheduler.submit(NewRequest { tenant, ..request(id, prompt, 10) }).expect("taken");
}

#[test]
fn a_flood_of_one_tenant_leaves_the_others_their_share() {
    let mut scheduler = Scheduler::new(Config { slots: 2, ..roomy() });
    (0..200).for_each(|number| submit(&mut scheduler, 0, number, 50));
    (0..50).for_each(|number| submit(&mut scheduler, 1, number, 100));
    (0..50).for_each(|number| submit(&mut scheduler, 2, number, 20));
    let tokens = served(&mut scheduler, 3, 200);
    let (least, most) = (tokens.iter().min().expect("three"), tokens.iter().max().expect("three"));
    assert!(*most - *least <= 220, "within two requests of each other: {tokens:?}");
}

#[test]
fn who_comes_late_catches_up_no_tokens_of_the_past() {
    let mut scheduler = Scheduler::new(Config { slots: 1, ..roomy() });
    (0..100).for_each(|number| submit(&mut scheduler, 0, number, 50));
    served(&mut scheduler, 1, 300);
    (0..100).for_each(|number| submit(&mut scheduler, 1, number, 50));
    let tokens = served(&mut scheduler, 2, 200);
    assert!(tokens[0].abs_diff(tokens[1]) <= 120, "{tokens:?}");
}

#[test]
fn cached_and_recomputed_tokens_cost_nothing() {
    let mut scheduler = Scheduler::new(roomy());
    submit(&mut scheduler, 0, 1, 100);
    run(&mut scheduler);
    let before = scheduler.tenants.served(0);
    let again = NewRequest { tenant: 0, ..request(2, ids(2, 100), 1) };
    scheduler.submit(again).expect("taken");
    run(&mut scheduler);
    assert_eq!((before, scheduler.tenants.served(0) - before), (109, 4));
}

#[test]
fn nobody_starves_under_an_endless_load() {
    for policy in Policy::ALL {
        let pool = Config { pages: 12, slots: 6, step_tokens: 64, context_tokens: 150, ..roomy() };
        let mut scheduler = Scheduler::new(Config { policy, ..pool });
        let (mut came, mut next) = (std::collections::BTreeMap::new(), 0);
        for now in 0..4_000_u32 {
            while scheduler.counters().waiting < 12 {
                let (seed, length) = (u32::try_from(next).expect("small"), 1 + (next * 37) % 90);
                let prompt = ids(seed, u32::try_from(length).expect("small"));
                let new = request(next, prompt, 1 + seed * 13 % 50);
                scheduler.submit(NewRequest { tenant: next * next % 5, ..new }).expect("taken");
                came.insert(next, now);
                next += 1;
            }
            let step = scheduler.plan().expect("a step");
            for id in apply(&mut scheduler, &step).finished {
                came.remove(&id);
            }
            let oldest = came.values().min().copied().unwrap_or(now);
            assert!(now - oldest < 600, "{policy}: somebody is here for {} steps", now - oldest);
        }
        assert!(next > 300, "{policy}: only {next} requests");
    }
}
