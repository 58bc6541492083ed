//! A workload in virtual time: the same scheduler and engine loop over a device whose steps last what was measured.

use std::cell::RefCell;
use std::rc::Rc;

use twostroke::engine::event::Event;
use twostroke::engine::request::Request;
use twostroke::error::Result;
use twostroke::limits::{BATCHED_TOKENS_DEFAULT, PAGE_TOKENS};
use twostroke::sched::Policy;
use twostroke::sim::{Asked, CostFile, Machine};

/// What `bench --fit` measured of the default model on Mesa's software driver, two cores: a slow machine shows both strokes well.
const MEASURED: &str = include_str!("../../data/lavapipe.json");

/// A request of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// When it arrives, in nanoseconds.
    pub arrive: u64,
    /// Tokens of its prompt.
    pub prompt_tokens: u32,
    /// Tokens of its answer.
    pub output_tokens: u32,
    /// Requests of the same family share the first half of their prompts; `None` shares nothing.
    pub family: Option<u32>,
}

/// A workload and how it is served.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// What is asked.
    pub asks: Vec<Ask>,
    /// Who goes first.
    pub policy: Policy,
    /// Gap between tokens that chunks keep within; `None` is auto.
    pub itl_slo_nanos: Option<u64>,
    /// Largest chunk of one prompt.
    pub chunk_tokens: Option<u32>,
    /// Tokens of a step.
    pub step_tokens: u32,
    /// Requests that run at once.
    pub slots: u32,
    /// Pages of the pool; `None` is what the memory holds.
    pub pages: Option<u32>,
    /// Whether full pages are kept for prompts to come.
    pub prefix_caching: bool,
}

impl Scenario {
    /// Four streams answer when a long prompt comes: what a policy does to them is plain to see.
    #[must_use]
    pub fn long_prompt(policy: Policy) -> Self {
        let stream = |n: u64| Ask { arrive: n * 120_000_000, prompt_tokens: 48, output_tokens: 160, family: Some(0) };
        let mut asks: Vec<Ask> = (0..4).map(stream).collect();
        asks.push(Ask { arrive: 2_500_000_000, prompt_tokens: 2000, output_tokens: 24, family: None });
        Self {
            asks,
            policy,
            itl_slo_nanos: None,
            chunk_tokens: None,
            step_tokens: BATCHED_TOKENS_DEFAULT,
            slots: 8,
            pages: None,
            prefix_caching: true,
        }
    }

    /// Plays it on the measured machine; the events of its trace. The same scenario gives the same events.
    ///
    /// # Errors
    /// A request that the machine cannot hold.
    pub fn play(&self) -> Result<Vec<Event>> {
        let file: CostFile = serde_json::from_str(MEASURED).expect("a test reads the file");
        let asked = Asked {
            context_tokens: None,
            step_tokens: self.step_tokens,
            chunk_tokens: self.chunk_tokens,
            slots: self.slots,
            kv_bytes: None,
            pages: self.pages,
            prefix_caching: self.prefix_caching,
            policy: self.policy,
            itl_slo_nanos: self.itl_slo_nanos,
        };
        let mut machine = Machine::new(&file, &asked)?;
        let events = Rc::new(RefCell::new(vec![Event::Meta {
            version: env!("CARGO_PKG_VERSION").into(),
            model: file.model.clone(),
            adapter: format!("{}, simulated", file.adapter),
            tier: file.tier.clone(),
            page_tokens: PAGE_TOKENS,
            pages: machine.pages,
            policy: self.policy.name().into(),
            unix_ns: 0,
        }]));
        let told = events.clone();
        machine.engine.observe(Box::new(move |event| told.borrow_mut().push(event.clone())));
        let mut asks: Vec<(usize, &Ask)> = self.asks.iter().enumerate().collect();
        asks.sort_by_key(|(_, ask)| ask.arrive);
        let mut next = asks.into_iter().peekable();
        loop {
            while let Some((number, ask)) = next.next_if(|(_, ask)| ask.arrive <= machine.clock.nanos()) {
                machine.engine.submit(request(number, ask, file.vocab))?;
            }
            if !machine.engine.idle() {
                machine.engine.wait()?;
                while machine.engine.next_output().is_some() {}
            } else if let Some((_, ask)) = next.peek() {
                machine.clock.advance_to(ask.arrive);
            } else {
                break;
            }
        }
        drop(machine);
        Ok(Rc::into_inner(events).expect("the engine is gone").into_inner())
    }
}

fn request(number: usize, ask: &Ask, vocab: u32) -> Request {
    let id = |salt: u64, at: u32| {
        let mixed = (salt << 32 | u64::from(at)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
        u32::try_from(mixed % u64::from(vocab)).expect("below the vocabulary")
    };
    let shared = ask.family.map_or(0, |_| ask.prompt_tokens / 2);
    let own = 1 + number as u64;
    let prompt = (0..ask.prompt_tokens).map(|at| match ask.family {
        Some(family) if at < shared => id(1 << 20 | u64::from(family), at),
        _ => id(own, at),
    });
    Request {
        prompt: prompt.collect(),
        max_tokens: Some(ask.output_tokens),
        arrived_nanos: Some(ask.arrive),
        ..Request::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Store;

    fn store(policy: Policy) -> Store {
        let mut store = Store::default();
        Scenario::long_prompt(policy).play().expect("it fits").iter().for_each(|event| store.take(event));
        store
    }

    #[test]
    fn a_long_prompt_stalls_streams_prefill_first_and_not_under_slo() {
        let worst = |store: &Store| {
            let gaps = store.requests()[..4].iter().flat_map(|request| request.gaps(store));
            gaps.fold(0.0, f64::max)
        };
        let (stalled, kept) = (worst(&store(Policy::PrefillFirst)), worst(&store(Policy::Slo)));
        assert!(stalled > 8.0 * kept, "{stalled} ms and {kept} ms");
    }

    #[test]
    fn every_request_is_answered_whole_and_the_same_again() {
        let (one, two) = (store(Policy::Slo), store(Policy::Slo));
        assert_eq!(one.requests().len(), 5);
        for (ask, request) in Scenario::long_prompt(Policy::Slo).asks.iter().zip(one.requests()) {
            assert_eq!(request.output_tokens(), u64::from(ask.output_tokens));
            assert_eq!(request.arrive, ask.arrive);
        }
        assert_eq!(one.steps(), two.steps());
        assert!(one.requests()[3].admitted().is_some_and(|(_, cached)| cached > 0), "streams share a beginning");
    }
}
