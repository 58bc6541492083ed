//! The fault simulator: random arrivals, cancels and stops over tiny pools, with executors that are slow, fail or lose the
//! device, and checkers after every step. One `u64` decides everything, so a violation is told by its seed.
//!
//! The device is a fake whose arithmetic is a chain over the ids: what a cell holds stands for the whole prefix up to it. So
//! a page that was reused, shared or hit wrongly gives another token, which is what "the same bits in any company" means.
//!
//! Checked: [`crate::sched::Scheduler::check`] (pages used + cached + free = total, refcount = holders, no page that may be
//! written is shared or cached, positions = tokens), no page or slot used by two requests in flight, every read cell holds the
//! reader's own prefix, bounds of a step, each accepted request ends exactly once, cancel frees within a step, and all of them
//! end (nobody starves) once faults and arrivals cease.

mod device;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use self::world::{Seen, World};
use crate::sched::Mutant;

/// Seeds of a plain test run, and of `make test-full` (TWOSTROKE_FULL=1).
const SEEDS: u64 = 1_000;
const SEEDS_FULL: u64 = 10_000;
/// Seeds within which each mistake must be caught.
const SEEDS_MUTANT: u64 = 300;

/// Numbers from a seed (SplitMix64).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Below `bound`, which is not 0.
    fn below(&mut self, bound: u32) -> u32 {
        u32::try_from(self.next() % u64::from(bound)).expect("below a u32")
    }

    fn within(&mut self, from: u32, to: u32) -> u32 {
        from + self.below(to - from + 1)
    }

    /// True in `percent` of all cases.
    fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(u32::try_from(choices.len()).expect("few")) as usize]
    }
}

/// A bijection that spreads bits.
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Tells which seed it was when a check panics.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("violated by seed {}", self.0);
        }
    }
}

fn run(seed: u64, mutant: Option<Mutant>) -> Seen {
    let _told = Told(seed);
    let mut world = World::new(seed, mutant);
    world.trouble();
    world.drain();
    world.seen
}

#[test]
fn no_seed_violates_an_invariant() {
    let full = std::env::var_os("TWOSTROKE_FULL").is_some_and(|value| value == "1");
    let mut seen = Seen::default();
    for seed in 0..if full { SEEDS_FULL } else { SEEDS } {
        seen.add(&run(seed, None));
    }
    println!("{seen:?}");
    for &(what, times) in seen.rows() {
        assert!(times >= 50, "{what}: only {times} times, so little was tried");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..20 {
        assert_eq!(run(seed, None), run(seed, None), "seed {seed}");
    }
}

#[test]
fn each_deliberate_mistake_is_caught() {
    for mutant in Mutant::ALL {
        let caught = |seed: &u64| catch_unwind(AssertUnwindSafe(|| run(*seed, Some(mutant)))).is_err();
        let seed = (0..SEEDS_MUTANT).find(caught);
        assert!(seed.is_some(), "{mutant:?} passed {SEEDS_MUTANT} seeds");
        println!("{mutant:?} is caught by seed {seed:?}");
    }
}
