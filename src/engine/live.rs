//! Requests while they live, and the rows of a step as an executor takes them.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

use super::pool::Pool;
use super::request::RequestId;
use crate::error::{Error, Result};
use crate::kernels::sample::Rules;
use crate::limits::{LOGIT_BIAS_MAX, PAGE_TOKENS};
use crate::model::{Sample, ServingRows};
use crate::sched::{RowKind, Scheduler, Step};

/// Bias of a token that is not to be chosen; finite, as masks are.
const NEVER: f32 = -1e30;

/// A request that has not ended.
pub(super) struct Live {
    pub(super) rules: Rules,
    /// The same without the tokens that end an answer, and below how many tokens of it they hold.
    pub(super) unending: Option<(u32, Rules)>,
    pub(super) seed: u64,
    pub(super) choice: u32,
    pub(super) logprobs: Option<u32>,
    pub(super) stop_ids: BTreeSet<u32>,
    pub(super) prompt_tokens: u32,
    pub(super) made: u32,
    /// Pages that its slot's block table holds.
    pub(super) pages_known: usize,
    /// Present where the mean of its hidden states is wanted.
    pub(super) pool: Option<Pool>,
}

impl Live {
    /// The rules by which the token at `position` is chosen.
    fn rules_of(&self, position: u32) -> &Rules {
        let made = position - self.prompt_tokens;
        match &self.unending {
            Some((below, rules)) if made < *below => rules,
            _ => &self.rules,
        }
    }
}

pub(super) fn pages_of(tokens: u32) -> usize {
    tokens.div_ceil(PAGE_TOKENS) as usize
}

/// The rows of a step as an executor takes them.
pub(super) fn serving_rows<'a>(
    scheduler: &'a Scheduler,
    live: &'a BTreeMap<RequestId, Live>,
    step: &Step,
) -> Vec<ServingRows<'a>> {
    let rows = step.rows.iter().map(|row| {
        let one = &live[&row.id];
        let (ids, end) = (scheduler.ids(row.id), row.from + row.tokens);
        let tokens = match row.kind {
            RowKind::Prefill => &ids[row.from as usize..end as usize],
            RowKind::Decode => &[],
        };
        ServingRows {
            slot: row.slot,
            position: row.from,
            tokens,
            pages: &scheduler.page_table(row.id)[..pages_of(end)],
            pages_known: one.pages_known,
            prompt_tokens: one.prompt_tokens,
            pool: one.pool.is_some(),
            history: step.admitted.iter().any(|admitted| admitted.id == row.id).then_some(ids),
            sample: row.last.then(|| Sample {
                prompt_tokens: one.prompt_tokens,
                choice: one.choice,
                seed: one.seed,
                rules: one.rules_of(end),
                logprobs: one.logprobs,
            }),
        }
    });
    rows.collect()
}

/// Rules that keep an answer from ending below `min_tokens`; `None` where nothing is to be kept from.
///
/// # Errors
/// `Request` for more end tokens than can be kept away.
pub(super) fn unending(rules: &Rules, ends: &BTreeSet<u32>, min_tokens: u32) -> Result<Option<(u32, Rules)>> {
    if min_tokens == 0 || ends.is_empty() {
        return Ok(None);
    }
    let mut rules = rules.clone();
    rules.bias.retain(|(id, _)| !ends.contains(id));
    rules.bias.extend(ends.iter().map(|&id| (id, NEVER)));
    if rules.bias.len() > LOGIT_BIAS_MAX as usize {
        let count = rules.bias.len();
        let message =
            format!("min_tokens: expected at most {LOGIT_BIAS_MAX} end tokens and biases with it, got {count}");
        return Err(Error::Request(message));
    }
    rules.bias.sort_unstable_by_key(|(id, _)| *id);
    Ok(Some((min_tokens, rules)))
}

/// Key of everything that K and V depend on beside the ids. Hidden states are not kept with the pages, so a request that wants all of
/// its prompt's (`alone`) finds no pages but its own.
pub(super) fn salt(model: &[u8; 32], cache_salt: Option<&str>, alone: Option<RequestId>) -> [u8; 32] {
    let mut hash = Sha256::new_with_prefix(model);
    if let Some(salt) = cache_salt {
        hash.update([1]);
        hash.update(salt);
    }
    if let Some(id) = alone {
        hash.update([2]);
        hash.update(id.to_le_bytes());
    }
    hash.finalize().into()
}
