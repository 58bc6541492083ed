//! `bench --fit`: the cost model of this machine, from steps of many sizes, for `sim`.

use std::path::Path;

use super::bench;
use super::progress::Progress;
use super::say;
use super::serving::Serving;
use crate::engine::fit::Fitted;
use crate::engine::request::Request;
use crate::error::{Error, Result};
use crate::load::random::Random;
use crate::sched::{CostModel, Policy};
use crate::sim::CostFile;

/// Context that the fit's streams need.
pub(super) const CONTEXT_TOKENS: u32 = 640;
/// Streams side by side.
pub(super) const SLOTS: u32 = 8;

/// Streams of each round, side by side. The first round is for pipelines and caches: its steps are like no later ones.
const ROUNDS: [u32; 8] = [SLOTS, 1, SLOTS, 2, 4, SLOTS, 1, 2];

/// Runs streams of many lengths, side by side and alone, and writes the model that fits their steps.
pub(super) fn fit(serving: &mut Serving, path: &Path, random: &mut Random) -> Result<()> {
    let spinner = Progress::spinner("fitting the cost model");
    // Small chunks beside running streams, as those have them who will ask.
    serving.engine.set_policy(Policy::Slo);
    for (round, side_by_side) in ROUNDS.into_iter().enumerate() {
        if round == 1 {
            serving.engine.fit().keep_steps();
        }
        let requests = (0..side_by_side).map(|i| {
            let tokens = [48, 160, 8, 520, 96, 24, 200, 64][(i as usize + round) % 8];
            let prompt = bench::ids(random, tokens, serving.vocab);
            Request { prompt, max_tokens: Some(8 + 4 * (i % 4)), ..Request::default() }
        });
        let requests = requests.collect();
        bench::run(&mut serving.engine, requests)?;
    }
    drop(spinner);
    let Fitted { cost: CostModel { a, b, c, d }, residual } = serving.engine.fit().of_kept_steps();
    let file = CostFile {
        model: serving.model.clone(),
        adapter: serving.adapter.clone(),
        tier: serving.tier.name().to_owned(),
        page_tokens: crate::limits::PAGE_TOKENS,
        page_bytes: serving.page_bytes,
        context_tokens: serving.context_tokens_made_for,
        vocab: serving.vocab,
        chunk_tokens: serving.chunk_tokens,
        a,
        b,
        c,
        d,
        residual,
    };
    std::fs::write(path, file.text()).map_err(|source| Error::io("write cost model", path, source))?;
    say(&format!("cost model, residual {:.0} %: {}", 100.0 * file.residual.unwrap_or(0.0), path.display()));
    Ok(())
}
