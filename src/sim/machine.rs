//! From a cost file and what the user asks for to an engine by a virtual clock.

use super::{CostFile, VirtualClock, VirtualExecutor};
use crate::engine::serving::{Engine, EngineConfig};
use crate::error::{Error, Result};
use crate::limits::{self, PAGE_TOKENS};
use crate::sched::{Config, Policy};

/// What can be asked for, under the names of the command line.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Context; `None` is the model's.
    pub context_tokens: Option<u32>,
    /// Tokens of a step.
    pub step_tokens: u32,
    /// Largest chunk of one prompt.
    pub chunk_tokens: Option<u32>,
    /// Requests that run at once.
    pub slots: u32,
    /// Most memory for keys and values.
    pub kv_bytes: Option<u64>,
    /// Pages of the pool, whatever the memory.
    pub pages: Option<u32>,
    /// Whether full pages are kept.
    pub prefix_caching: bool,
    /// Who goes first.
    pub policy: Policy,
    /// Gap that chunks keep within; `None` is auto.
    pub itl_slo_nanos: Option<u64>,
}

/// A machine that is not there.
pub struct Machine {
    /// Its engine, idle.
    pub engine: Engine,
    /// The clock it goes by.
    pub clock: VirtualClock,
    /// Context that the pool holds.
    pub context_tokens: u32,
    /// Pages of the pool.
    pub pages: u32,
}

impl Machine {
    /// The machine of `file`. Its cost model is known from the start and never learned: what a step lasts is what it was
    /// predicted to last.
    ///
    /// # Errors
    /// A context above the model's, or a pool below one page.
    pub fn new(file: &CostFile, asked: &Asked) -> Result<Self> {
        let sched = sched(file, asked)?;
        let (context_tokens, pages) = (sched.context_tokens, sched.pages);
        let mut config = EngineConfig::new(sched, file.vocab, [0; 32]);
        config.prior = file.cost();
        config.learns = false;
        let clock = VirtualClock::default();
        let executor = VirtualExecutor::new(clock.clone(), file.cost(), file.vocab);
        let hand = clock.clone();
        let engine = Engine::with_clock(config, Box::new(executor), Box::new(move || hand.nanos()));
        Ok(Self { engine, clock, context_tokens, pages })
    }
}

/// The scheduler's set-up, sized as a loaded model sizes it.
fn sched(file: &CostFile, asked: &Asked) -> Result<Config> {
    let known = file.context_tokens;
    let context = match asked.context_tokens {
        Some(n) if n > known => {
            return Err(Error::Usage(format!("a context of {n} tokens was asked for, the model was made for {known}")));
        }
        asked => asked.unwrap_or(known),
    };
    let pages = pages(file, asked, context)?;
    let context = context.min(pages.saturating_mul(PAGE_TOKENS));
    // A request that runs alone gets no step larger than a chunk.
    let alone = if asked.slots == 1 { asked.chunk_tokens.unwrap_or(file.chunk_tokens) } else { u32::MAX };
    let step_tokens = asked.step_tokens.min(alone).min(context.saturating_mul(asked.slots));
    Ok(Config {
        pages,
        slots: asked.slots,
        step_tokens,
        chunk_tokens: asked.chunk_tokens,
        context_tokens: context,
        queue_max: limits::QUEUE_MAX,
        queue_tokens_max: limits::QUEUE_TOKENS_MAX,
        policy: asked.policy,
        itl_slo_nanos: asked.itl_slo_nanos,
        prefix_caching: asked.prefix_caching,
        cache_generated: true,
        logit_rows: asked.slots.min(limits::SAMPLED_ROWS_MAX).min(step_tokens),
    })
}

fn pages(file: &CostFile, asked: &Asked, context: u32) -> Result<u32> {
    let one = u64::from(context.div_ceil(PAGE_TOKENS));
    let all = one * u64::from(asked.slots);
    let pages = match (asked.pages, asked.kv_bytes) {
        (Some(pages), _) => u64::from(pages),
        (None, Some(bytes)) => all.min(bytes / file.page_bytes),
        (None, None) => all.min((limits::KV_BYTES_DEFAULT / file.page_bytes).max(one)),
    };
    if pages == 0 {
        let (what, bytes) = (format!("one KV page of {PAGE_TOKENS} tokens"), file.page_bytes);
        let place = format!("a bound of {} bytes", asked.kv_bytes.unwrap_or(0));
        return Err(Error::OutOfMemory { what, bytes, place });
    }
    Ok(u32::try_from(pages).unwrap_or(u32::MAX / PAGE_TOKENS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> CostFile {
        CostFile {
            model: "m".into(),
            adapter: "a".into(),
            tier: "base".into(),
            page_tokens: PAGE_TOKENS,
            page_bytes: 368_640,
            context_tokens: 8192,
            vocab: 49_152,
            chunk_tokens: 128,
            a: 1,
            b: 1,
            c: 1,
            d: 1,
            residual: None,
        }
    }

    fn asked() -> Asked {
        Asked {
            context_tokens: None,
            step_tokens: 2048,
            chunk_tokens: None,
            slots: 256,
            kv_bytes: None,
            pages: None,
            prefix_caching: true,
            policy: Policy::Slo,
            itl_slo_nanos: None,
        }
    }

    #[test]
    fn pool_and_context_are_sized_as_a_loaded_model_sizes_them() {
        let check = |change: fn(&mut Asked), pages: u32, context: u32, step: u32| {
            let mut asked = asked();
            change(&mut asked);
            let config = sched(&file(), &asked).expect("fits");
            assert_eq!((config.pages, config.context_tokens, config.step_tokens), (pages, context, step), "{asked:?}");
        };
        check(|_| (), 2912, 8192, 2048);
        check(|a| a.slots = 1, 512, 8192, 128);
        check(|a| (a.slots, a.chunk_tokens) = (1, Some(64)), 512, 8192, 64);
        check(|a| a.context_tokens = Some(100), 7 * 256, 100, 2048);
        check(|a| a.kv_bytes = Some(10 * 368_640 + 1), 10, 160, 2048);
        check(|a| a.pages = Some(9), 9, 144, 2048);
        check(|a| (a.slots, a.context_tokens) = (2, Some(20)), 4, 20, 40);
    }

    #[test]
    fn senseless_bounds_are_refused_with_their_numbers() {
        let error = |asked: Asked| sched(&file(), &asked).expect_err("refused");
        let long = error(Asked { context_tokens: Some(9000), ..asked() });
        assert!(long.exit_code() == 2 && long.to_string().contains("9000"), "{long}");
        let small = error(Asked { kv_bytes: Some(1000), ..asked() });
        assert!(small.exit_code() == 1 && small.to_string().contains("1000 bytes"), "{small}");
    }
}
