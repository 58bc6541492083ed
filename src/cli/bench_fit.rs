//! `bench --fit`: the cost model of this machine, from steps of many sizes, for `sim`.

use std::path::Path;

use super::bench;
use super::progress::Progress;
use super::say;
use super::serving::Serving;
use crate::engine::request::Request;
use crate::error::{Error, Result};
use crate::load::random::Random;
use crate::sched::CostModel;
use crate::sim::CostFile;

/// Context that the fit's streams need.
pub(super) const CONTEXT_TOKENS: u32 = 640;
/// Streams side by side.
pub(super) const SLOTS: u32 = 8;

/// Runs streams of many lengths, side by side and alone, and writes the model that fits them.
pub(super) fn fit(serving: &mut Serving, path: &Path, random: &mut Random) -> Result<()> {
    let spinner = Progress::spinner("fitting the cost model");
    for side_by_side in [1, SLOTS, 2, 4, SLOTS, 1] {
        let requests = (0..side_by_side).map(|i| {
            let tokens = [8, 200, 64, 520, 16, 128, 333, 24][i as usize % 8];
            let prompt = bench::ids(random, tokens, serving.vocab);
            Request { prompt, max_tokens: Some(8 + 4 * (i % 4)), ..Request::default() }
        });
        let requests = requests.collect();
        bench::run(&mut serving.engine, requests)?;
    }
    drop(spinner);
    let fitted = serving.engine.fit();
    let CostModel { a, b, c, d } = fitted.cost_model();
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
        residual: fitted.residual(),
    };
    std::fs::write(path, file.text()).map_err(|source| Error::io("write cost model", path, source))?;
    say(&format!("cost model, residual {:.0} %: {}", 100.0 * file.residual.unwrap_or(0.0), path.display()));
    Ok(())
}
