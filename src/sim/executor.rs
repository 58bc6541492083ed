//! A device that computes nothing and takes its time: a step lasts what the cost model says, and begins when the one before is
//! done, as on a GPU that has the next step in its queue.

use std::collections::VecDeque;

use super::VirtualClock;
use crate::engine::executor::{Executor, StepOutput};
use crate::error::Result;
use crate::kernels::sample::Sampled;
use crate::model::ServingRows;
use crate::recording::Ticket;
use crate::sched::{Before, CostModel, UNITS_A_NANO};

/// Computes steps by a virtual clock. Tokens are a fixed hash of the beginning of their sequence and their position.
#[derive(Debug)]
pub struct VirtualExecutor {
    clock: VirtualClock,
    cost: CostModel,
    vocab: u32,
    /// Of each slot: hash of the sequence's ids at its admission.
    sequences: Vec<u64>,
    /// Steps submitted and not answered, in order.
    pending: VecDeque<(Ticket, u64, StepOutput)>,
    /// When the step submitted last will be done.
    last_done: u64,
    next_ticket: u64,
}

impl VirtualExecutor {
    /// A device of this speed. Ids are below `vocab`, which is not 0.
    #[must_use]
    pub fn new(clock: VirtualClock, cost: CostModel, vocab: u32) -> Self {
        assert!(vocab > 0, "a vocabulary of nothing");
        let (sequences, pending) = (Vec::new(), VecDeque::new());
        Self { clock, cost, vocab, sequences, pending, last_done: 0, next_ticket: 0 }
    }

    /// Nanoseconds that a step of these rows lasts: at least 1, so that time passes.
    fn nanos(&self, rows: &[ServingRows<'_>]) -> u64 {
        let mut before = Before::default();
        let units = rows.iter().fold(self.cost.a, |units, row| {
            let tokens = u32::try_from(row.tokens.len()).expect("rows of a step");
            let more = match tokens {
                0 => self.cost.decode_units(row.position),
                _ => self.cost.chunk_units(before, row.position, tokens),
            };
            before = Before { rows: before.rows + tokens.max(1), chunks: before.chunks || tokens > 0 };
            units.saturating_add(more)
        });
        (units / UNITS_A_NANO).max(1)
    }

    fn sampled(&mut self, row: &ServingRows<'_>) -> Option<Sampled> {
        let slot = row.slot as usize;
        if let Some(ids) = row.history {
            let known = self.sequences.len().max(slot + 1);
            self.sequences.resize(known, 0);
            self.sequences[slot] = ids.iter().fold(ids.len() as u64, |hash, &id| spread(hash ^ u64::from(id)));
        }
        row.sample?;
        let position = u64::from(row.position) + row.tokens.len().max(1) as u64;
        let hash = spread(self.sequences[slot] ^ position);
        let id = u32::try_from(hash % u64::from(self.vocab)).expect("below a u32");
        Some(Sampled { id, logprob: None, top: Vec::new() })
    }

    fn answer(&mut self, ticket: Ticket) -> StepOutput {
        let (first, _, output) = self.pending.pop_front().expect("a ticket is answered once");
        assert_eq!(first, ticket, "steps are answered in their order");
        output
    }

    fn done(&self, ticket: Ticket) -> u64 {
        let found = self.pending.iter().find(|(other, _, _)| *other == ticket);
        found.expect("a ticket is answered once").1
    }
}

/// A bijection that spreads bits.
fn spread(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Executor for VirtualExecutor {
    fn submit(&mut self, rows: &[ServingRows<'_>]) -> Result<Ticket> {
        let begins = self.clock.nanos().max(self.last_done);
        self.last_done = begins.saturating_add(self.nanos(rows));
        let sampled = rows.iter().filter_map(|row| self.sampled(row)).collect();
        // Hidden states of no width: there is nothing to be known of a prompt.
        let states = |row: &ServingRows<'_>| row.pool.then(|| vec![Vec::new(); row.tokens.len()]);
        let pooled = rows.iter().filter_map(states).collect();
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.pending.push_back((ticket, self.last_done, StepOutput { sampled, pooled, gpu_nanos: None }));
        Ok(ticket)
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Option<StepOutput>> {
        Ok((self.done(ticket) <= self.clock.nanos()).then(|| self.answer(ticket)))
    }

    fn wait(&mut self, ticket: Ticket) -> Result<StepOutput> {
        self.clock.advance_to(self.done(ticket));
        Ok(self.answer(ticket))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::sample::Rules;
    use crate::model::Sample;

    const COST: CostModel = CostModel { a: 1024 * 1000, b: 1024 * 10, c: 1024 * 100, d: 1024 };

    fn device() -> (VirtualClock, VirtualExecutor) {
        let clock = VirtualClock::default();
        (clock.clone(), VirtualExecutor::new(clock, COST, 100))
    }

    /// Rows of a sequence that has just got its slot.
    fn rows<'a>(slot: u32, position: u32, tokens: &'a [u32], sample: Option<Sample<'a>>) -> ServingRows<'a> {
        let history = (position == 0).then_some(tokens);
        ServingRows {
            slot,
            position,
            tokens,
            pages: &[0],
            pages_known: 0,
            prompt_tokens: 3,
            history,
            pool: false,
            sample,
        }
    }

    fn greedy(rules: &Rules) -> Option<Sample<'_>> {
        Some(Sample { prompt_tokens: 3, choice: 0, seed: 0, rules, logprobs: None })
    }

    fn rules() -> Rules {
        crate::engine::sampling::SamplingParams::default().rules(100).expect("the defaults are fine")
    }

    #[test]
    fn a_step_lasts_what_the_model_says_and_waits_for_the_one_before() {
        let (clock, mut device) = device();
        let rules = rules();
        // 1000 + a tile of 8 at 10 + pairs 1 + 2 + 3
        let first = device.submit(&[rows(0, 0, &[1, 2, 3], greedy(&rules))]).expect("never fails");
        // 1000 + 100 + 4 pairs, behind the first
        let second = device.submit(&[rows(0, 3, &[], greedy(&rules))]).expect("never fails");
        assert_eq!(device.poll(first).expect("never fails"), None, "no time has passed");
        device.wait(first).expect("never fails");
        assert_eq!(clock.nanos(), 1086);
        clock.advance_to(2189);
        assert_eq!(device.poll(second).expect("never fails"), None);
        clock.advance_to(2190);
        assert!(device.poll(second).expect("never fails").is_some());
        // After an idle time a step begins when it is submitted.
        clock.advance_to(10_000);
        let third = device.submit(&[rows(0, 4, &[], greedy(&rules))]).expect("never fails");
        device.wait(third).expect("never fails");
        assert_eq!(clock.nanos(), 11_105);
        clock.advance_to(5);
        assert_eq!(clock.nanos(), 11_105, "time never goes back");
    }

    #[test]
    fn tokens_depend_on_prompt_and_position_only_and_are_in_the_vocabulary() {
        let rules = rules();
        let play = |slot: u32, prompt: &[u32]| {
            let (_, mut device) = device();
            let mut made = Vec::new();
            for position in [0, 3, 4, 5] {
                let tokens = if position == 0 { prompt } else { &[] };
                let other = rows(1 - slot, position, &[9, 9, 9], None);
                let ticket = device.submit(&[other, rows(slot, position, tokens, greedy(&rules))]);
                let output = device.wait(ticket.expect("never fails")).expect("never fails");
                assert_eq!(output.sampled.len(), 1, "one row samples");
                made.push(output.sampled[0].id);
            }
            made
        };
        let one = play(0, &[1, 2, 3]);
        assert!(one.iter().all(|id| *id < 100));
        assert_eq!(one, play(1, &[1, 2, 3]));
        assert_ne!(one, play(0, &[1, 2, 4]));
        assert_ne!(one[0], one[1]);
    }

    /// Keeps what the engine expects of each step.
    struct Told {
        device: VirtualExecutor,
        expected: std::rc::Rc<std::cell::RefCell<Vec<u64>>>,
    }

    impl Executor for Told {
        fn expect(&mut self, nanos: u64) {
            self.expected.borrow_mut().push(nanos);
        }
        fn submit(&mut self, rows: &[ServingRows<'_>]) -> Result<Ticket> {
            self.device.submit(rows)
        }
        fn poll(&mut self, ticket: Ticket) -> Result<Option<StepOutput>> {
            self.device.poll(ticket)
        }
        fn wait(&mut self, ticket: Ticket) -> Result<StepOutput> {
            self.device.wait(ticket)
        }
    }

    #[test]
    fn an_engine_tells_its_executor_what_each_step_will_last() {
        use crate::engine::request::Request;
        use crate::engine::serving::{Engine, EngineConfig};
        let (clock, device) = device();
        let expected = std::rc::Rc::default();
        let told = Told { device, expected: std::rc::Rc::clone(&expected) };
        let sched = crate::sched::Config {
            pages: 16,
            slots: 1,
            step_tokens: 64,
            chunk_tokens: None,
            context_tokens: 200,
            queue_max: 4,
            queue_tokens_max: 1000,
            policy: crate::sched::Policy::Fcfs,
            itl_slo_nanos: None,
            prefix_caching: false,
            cache_generated: true,
            logit_rows: 1,
        };
        let now = clock.clone();
        let config = EngineConfig::new(sched, 100, [0; 32]);
        let mut engine = Engine::with_clock(config, Box::new(told), Box::new(move || now.nanos()));
        engine.submit(Request { prompt: vec![1, 2, 3], max_tokens: Some(60), ..Request::default() }).expect("fits");
        while !engine.idle() {
            engine.wait().expect("never fails");
            while engine.next_output().is_some() {}
        }
        let expected = expected.borrow();
        assert_eq!(expected.len(), 60, "a step a token");
        // 1000 + 100 + a pair a key
        let last = *expected.last().expect("steps");
        assert!(last.abs_diff(1161) < 12, "{last}");
    }

    #[test]
    fn a_device_without_cost_still_lets_time_pass() {
        let clock = VirtualClock::default();
        let mut device = VirtualExecutor::new(clock.clone(), CostModel::default(), 5);
        let ticket = device.submit(&[rows(0, 0, &[1], None)]).expect("never fails");
        assert_eq!(device.wait(ticket).expect("never fails"), StepOutput::default());
        assert_eq!(clock.nanos(), 1);
        let slow = CostModel { a: u64::MAX, b: u64::MAX, c: u64::MAX, d: u64::MAX };
        let mut device = VirtualExecutor::new(clock, slow, 5);
        for _ in 0..3000 {
            let ticket = device.submit(&[rows(0, 0, &[1, 2], None)]).expect("never fails");
            device.wait(ticket).expect("never fails");
        }
    }
}
