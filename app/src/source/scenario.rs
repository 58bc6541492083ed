//! A workload in virtual time: the same scheduler and engine loop over a device whose steps last what was measured.

use std::cell::RefCell;
use std::iter::Peekable;
use std::rc::Rc;

use twostroke::engine::event::Event;
use twostroke::error::Result;
use twostroke::limits::PAGE_TOKENS;
use twostroke::sched::Policy;
use twostroke::sim::{Asked, CostFile, Machine};

use super::workload::{Requests, Workload};
use crate::host::Facts;
use crate::run::Store;
use crate::settings::Settings;

/// What `bench --fit` measured of the default model on Mesa's software driver, two cores: a slow machine shows both strokes well.
const MEASURED: &str = include_str!("../../data/lavapipe.json");

/// A workload, how it is served, and on what.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// What is asked.
    pub workload: Workload,
    /// How it is served.
    pub settings: Settings,
    /// What its steps last.
    pub machine: CostFile,
}

/// The machine that is built in.
///
/// # Panics
/// Never: a test reads the file.
#[must_use]
pub fn measured() -> CostFile {
    serde_json::from_str(MEASURED).expect("a test reads the file")
}

/// The machine that a run was made on, as far as its trace tells: the newest cost model that the engine found. `None` where it found none.
#[must_use]
pub fn machine_of(store: &Store, facts: &Facts) -> Option<CostFile> {
    let cost = store.cost()?;
    Some(CostFile {
        model: facts.model.clone(),
        adapter: facts.adapter.clone(),
        tier: facts.tier.to_owned(),
        page_tokens: PAGE_TOKENS,
        page_bytes: facts.page_bytes.max(1),
        context_tokens: facts.context_tokens_made_for,
        vocab: facts.vocab,
        chunk_tokens: if facts.is_software { 128 } else { 512 },
        a: cost.a,
        b: cost.b,
        c: cost.c,
        d: cost.d,
        residual: None,
    })
}

impl Scenario {
    /// Four streams and a long prompt on the machine that is built in.
    #[must_use]
    pub fn long_prompt(policy: Policy) -> Self {
        let settings = Settings { policy, ..Settings::default() };
        Self { workload: Workload::long_prompt(), settings, machine: measured() }
    }

    /// Plays it; the events of its trace. The same scenario gives the same events.
    ///
    /// # Errors
    /// A request that the machine cannot hold.
    pub fn play(&self) -> Result<Vec<Event>> {
        let mut play = self.begin()?;
        while play.step()? {}
        Ok(play.take())
    }

    /// Begins to play it, a step at a time.
    ///
    /// # Errors
    /// A request that the machine cannot hold.
    pub fn begin(&self) -> Result<Play> {
        let (settings, file) = (&self.settings, &self.machine);
        let asked = Asked {
            context_tokens: settings.context_tokens.map(|tokens| tokens.min(file.context_tokens)),
            step_tokens: settings.step_tokens,
            chunk_tokens: settings.chunk_tokens,
            slots: settings.slots,
            kv_bytes: settings.kv_mib.map(|mib| u64::from(mib) << 20),
            pages: None,
            prefix_caching: settings.prefix_caching,
            policy: settings.policy,
            itl_slo_nanos: settings.itl_slo_nanos(),
        };
        let mut machine = Machine::new(file, &asked)?;
        let events = Rc::new(RefCell::new(vec![Event::Meta {
            version: env!("CARGO_PKG_VERSION").into(),
            model: file.model.clone(),
            adapter: format!("{}, simulated", file.adapter),
            tier: file.tier.clone(),
            page_tokens: PAGE_TOKENS,
            pages: machine.pages,
            policy: settings.policy.name().into(),
            unix_ns: 0,
        }]));
        let told = Rc::clone(&events);
        machine.engine.observe(Box::new(move |event| told.borrow_mut().push(event.clone())));
        let next = self.workload.requests(file.vocab, machine.context_tokens)?.peekable();
        Ok(Play { machine, events, next })
    }
}

/// A scenario that is being played: nobody needs to wait for all of it.
pub struct Play {
    machine: Machine,
    /// Those that nobody has taken yet.
    events: Rc<RefCell<Vec<Event>>>,
    next: Peekable<Requests>,
}

impl Play {
    /// Plays on to the end of the next step; `false` when everything is answered.
    ///
    /// # Errors
    /// A request that the machine cannot hold.
    pub fn step(&mut self) -> Result<bool> {
        let Self { machine, next, .. } = self;
        while let Some((_, request)) = next.next_if(|(arrive, _)| *arrive <= machine.clock.nanos()) {
            machine.engine.submit(request)?;
        }
        if !machine.engine.idle() {
            machine.engine.wait()?;
            while machine.engine.next_output().is_some() {}
        } else if let Some((arrive, _)) = next.peek() {
            machine.clock.advance_to(*arrive);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// What has happened since this was asked last.
    #[must_use]
    pub fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut *self.events.borrow_mut())
    }

    /// How far it is, in nanoseconds of its own time.
    #[must_use]
    pub fn nanos(&self) -> u64 {
        self.machine.clock.nanos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for (ask, request) in Workload::long_prompt().asks.iter().zip(one.requests()) {
            assert_eq!(request.output_tokens(), u64::from(ask.output_tokens));
            assert_eq!(request.arrive, ask.arrive);
        }
        assert_eq!(one.steps(), two.steps());
        assert!(one.requests()[3].admitted().is_some_and(|(_, cached)| cached > 0), "streams share a beginning");
    }

    #[test]
    fn a_cache_that_is_off_computes_every_prompt_whole() {
        let play = |prefix_caching| {
            let settings = Settings { prefix_caching, ..Settings::default() };
            let scenario = Scenario { workload: Workload::one_document(), settings, machine: measured() };
            let mut store = Store::default();
            scenario.play().expect("it fits").iter().for_each(|event| store.take(event));
            crate::run::Overview::of(&store)
        };
        let (with, without) = (play(true), play(false));
        assert_eq!(without.cached_tokens, 0);
        assert!(with.cached_tokens > 2000, "{}", with.cached_tokens);
        assert!(with.ttft.expect("answers").median() < without.ttft.expect("answers").median() * 0.7);
    }
}
