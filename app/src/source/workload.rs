//! What is asked, and when: to be simulated, or played on the engine inside, and then again with other settings.

use std::collections::HashMap;
use std::sync::Arc;

use twostroke::engine::request::Request;
use twostroke::error::{Error, Result};
use twostroke::load::dataset::Planned;

use crate::run::Store;

/// A prompt.
#[derive(Debug, Clone, PartialEq)]
pub enum PromptOf {
    /// Made-up tokens. Requests of the same family share the first half of their prompts.
    Made {
        /// How many.
        tokens: u32,
        /// `None` shares nothing.
        family: Option<u32>,
    },
    /// These.
    Ids(Arc<[u32]>),
    /// Of a dataset.
    Planned(Arc<Planned>),
}

impl PromptOf {
    /// How many tokens it has.
    #[must_use]
    pub fn tokens(&self) -> u32 {
        match self {
            Self::Made { tokens, .. } => *tokens,
            Self::Ids(ids) => u32::try_from(ids.len()).unwrap_or(u32::MAX),
            Self::Planned(planned) => planned.prompt_tokens,
        }
    }
}

/// A request of a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// When it arrives, in nanoseconds.
    pub arrive: u64,
    /// Its prompt.
    pub prompt: PromptOf,
    /// Tokens of its answer.
    pub output_tokens: u32,
}

/// Requests by arrival.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Workload {
    /// What it is called.
    pub name: String,
    /// The requests.
    pub asks: Vec<Ask>,
}

/// Makes a workload.
pub type Make = fn() -> Workload;

/// Workloads that are built in, by what they show.
pub const BUILT_IN: [(&str, Make); 3] = [
    ("a long prompt", Workload::long_prompt),
    ("many chats", Workload::many_chats),
    ("one document", Workload::one_document),
];

impl Workload {
    /// Four streams answer when a long prompt comes: what a policy does to them is plain to see.
    #[must_use]
    pub fn long_prompt() -> Self {
        let stream = |n: u64| Ask {
            arrive: n * 120_000_000,
            prompt: PromptOf::Made { tokens: 48, family: Some(0) },
            output_tokens: 160,
        };
        let mut asks: Vec<Ask> = (0..4).map(stream).collect();
        let prompt = PromptOf::Made { tokens: 2000, family: None };
        asks.push(Ask { arrive: 2_500_000_000, prompt, output_tokens: 24 });
        Self { name: "four streams and a long prompt".into(), asks }
    }

    /// Short questions at irregular times, more than run at once: what waiting and batching do.
    #[must_use]
    pub fn many_chats() -> Self {
        let (mut asks, mut arrive) = (Vec::new(), 0);
        for n in 0..32u64 {
            let drawn = draw(n);
            arrive += 60_000_000 + drawn % 500_000_000;
            let prompt =
                PromptOf::Made { tokens: 24 + u32::try_from(drawn >> 32 & 127).expect("small"), family: Some(0) };
            let output_tokens = 16 + u32::try_from(drawn >> 48 & 63).expect("small");
            asks.push(Ask { arrive, prompt, output_tokens });
        }
        Self { name: "many chats".into(), asks }
    }

    /// The same long document asked about again and again: what the prompt cache spares.
    #[must_use]
    pub fn one_document() -> Self {
        let ask = |n: u64| Ask {
            arrive: n * 4_000_000_000,
            prompt: PromptOf::Made { tokens: 1200, family: Some(0) },
            output_tokens: 32,
        };
        Self { name: "questions about one document".into(), asks: (0..6).map(ask).collect() }
    }

    /// What was asked in a run; prompts whose ids are not known are made up. `None` when nothing was.
    #[must_use]
    pub fn of_run(store: &Store, prompts: &HashMap<u64, Arc<[u32]>>) -> Option<Self> {
        let first = store.requests().iter().map(|request| request.arrive).min()?;
        let ask = |request: &crate::run::Request| Ask {
            arrive: request.arrive - first,
            prompt: match prompts.get(&request.id) {
                Some(ids) => PromptOf::Ids(Arc::clone(ids)),
                None => PromptOf::Made { tokens: request.prompt_tokens.max(1), family: None },
            },
            output_tokens: u32::try_from(request.output_tokens()).unwrap_or(u32::MAX).max(1),
        };
        let mut asks: Vec<Ask> = store.requests().iter().map(ask).collect();
        asks.sort_by_key(|ask| ask.arrive);
        Some(Self { name: "what was asked".into(), asks })
    }

    /// As requests of a model with `vocab` tokens, by arrival. The same workload gives the same requests.
    ///
    /// # Errors
    /// A prompt that `context_tokens` do not hold: before any is made, since a trace may tell of any length.
    pub fn requests(&self, vocab: u32, context_tokens: u32) -> Result<Requests> {
        if let Some(ask) = self.asks.iter().find(|ask| ask.prompt.tokens() >= context_tokens) {
            let (prompt_tokens, context_tokens) = (ask.prompt.tokens().into(), context_tokens.into());
            return Err(Error::ContextFull { prompt_tokens, context_tokens });
        }
        let mut asks: Vec<(usize, Ask)> = self.asks.iter().cloned().enumerate().collect();
        asks.sort_by_key(|(_, ask)| ask.arrive);
        Ok(Requests { asks: asks.into_iter(), vocab })
    }
}

/// Requests by arrival, each made when it is due: together their prompts may be larger than memory.
#[derive(Debug, Clone)]
pub struct Requests {
    asks: std::vec::IntoIter<(usize, Ask)>,
    vocab: u32,
}

impl Iterator for Requests {
    /// When it arrives, in nanoseconds, and what it asks.
    type Item = (u64, Request);

    fn next(&mut self) -> Option<Self::Item> {
        let (number, ask) = self.asks.next()?;
        Some((ask.arrive, request(number, &ask, self.vocab)))
    }
}

/// 64 bits that `n` alone decides.
fn draw(n: u64) -> u64 {
    let mixed = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ mixed >> 27
}

fn request(number: usize, ask: &Ask, vocab: u32) -> Request {
    let id = |salt: u64, at: u32| {
        let mixed = (salt << 32 | u64::from(at)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
        u32::try_from(mixed % u64::from(vocab)).expect("below the vocabulary")
    };
    let own = 1 + number as u64;
    let prompt = match &ask.prompt {
        PromptOf::Ids(ids) => ids.iter().map(|id| (*id).min(vocab - 1)).collect(),
        PromptOf::Planned(planned) => planned.prompt_ids().iter().map(|id| (*id).min(vocab - 1)).collect(),
        PromptOf::Made { tokens, family } => (0..*tokens)
            .map(|at| match family {
                Some(family) if at < tokens / 2 => id(1 << 20 | u64::from(*family), at),
                _ => id(own, at),
            })
            .collect(),
    };
    Request { prompt, max_tokens: Some(ask.output_tokens), arrived_nanos: Some(ask.arrive), ..Request::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_by_arrival_and_families_share_a_half() {
        let ask = |arrive, family| Ask { arrive, prompt: PromptOf::Made { tokens: 40, family }, output_tokens: 2 };
        let workload = Workload { name: String::new(), asks: vec![ask(9, Some(1)), ask(3, Some(1)), ask(5, None)] };
        let requests: Vec<(u64, Request)> = workload.requests(1000, 64).expect("they fit").collect();
        assert!(workload.requests(1000, 40).is_err(), "a prompt and no answer");
        assert_eq!(requests.iter().map(|(arrive, _)| *arrive).collect::<Vec<_>>(), [3, 5, 9]);
        let prompt = |at: usize| &requests[at].1.prompt;
        assert_eq!(prompt(0)[..20], prompt(2)[..20]);
        assert_ne!(prompt(0)[20..], prompt(2)[20..]);
        assert_ne!(prompt(0)[..20], prompt(1)[..20]);
        let mut again = workload.requests(1000, 64).expect("they fit");
        assert_eq!(again.next().expect("the first").1.prompt, *prompt(0), "the same again");
    }

    #[test]
    fn what_was_asked_in_a_run_is_asked_again_from_the_first_arrival() {
        let mut store = Store::default();
        let events = crate::source::Scenario::long_prompt(twostroke::sched::Policy::Slo).play().expect("it fits");
        events.iter().for_each(|event| store.take(event));
        let ids: Arc<[u32]> = vec![5; 48].into();
        let again = Workload::of_run(&store, &HashMap::from([(1, Arc::clone(&ids))])).expect("five requests");
        let mut first = Workload::long_prompt();
        first.asks[1].prompt = PromptOf::Ids(ids);
        for (got, expected) in again.asks.iter().zip(&first.asks) {
            assert_eq!((got.arrive, got.output_tokens), (expected.arrive, expected.output_tokens));
            assert_eq!(got.prompt.tokens(), expected.prompt.tokens());
        }
        assert_eq!(again.asks[1].prompt, first.asks[1].prompt);
        assert_eq!(Workload::of_run(&Store::default(), &HashMap::new()), None);
    }

    #[test]
    fn built_in_workloads_are_different_every_one() {
        let all: Vec<Workload> = BUILT_IN.iter().map(|(_, make)| make()).collect();
        assert!(all.iter().all(|one| !one.asks.is_empty() && !one.name.is_empty()));
        assert!(all[0] != all[1] && all[1] != all[2]);
    }
}
