//! The cost model, fitted online: how long a step lasts, from how long the last ones did.
//!
//! ```text
//! nanos ~ a + b · prefill tokens + c · decode rows + d · attended pairs
//! ```
//! as [`CostModel`] counts them.
//!
//! Least squares over all steps seen, older ones counting less. Steps of one kind leave coefficients open, so each pulls weakly
//! towards what it was before; none is below zero. A machine that others use too is faster or slower for seconds at a time: the
//! scheduler is told the model times the pace of the last few steps, and a margin over what is left of the noise.

use std::collections::VecDeque;

use crate::limits::{LONE_STEP_NANOS, PREFILL_TILE_TOKENS};
use crate::sched::{CostModel, RowKind, StepRows, UNITS_A_NANO};

const TERMS: usize = 4;
/// What the sums keep with each step: a memory of some 200 steps.
const MEMORY: f64 = 0.995;
/// Steps before the first model is handed out.
const FIRST: u64 = 4;
/// Steps whose predictions are remembered, to tell how far off they are.
const REMEMBERED: usize = 128;
/// Share of steps that should last at most OVER times what the scheduler is told.
const KEPT: f64 = 0.97;
const OVER: f64 = 1.14;
/// What a step counts in the pace, and the most the pace may be off one, as a factor.
const PACE: f64 = 0.2;
const PACE_MAX: f64 = 2.0;
/// Largest margin: what is further off than this is noise that smaller chunks would not cure.
const MARGIN_MAX: f64 = 1.25;
/// Times that kept steps are weighed anew.
const ROUNDS: usize = 8;
/// Relative change of a predicted step that is worth telling the scheduler.
const WORTH: f64 = 0.04;

/// What the cost model counts in a step.
pub type Terms = [f64; TERMS];

/// The four counts of a step's rows.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "counts of a step are far below 2^52")]
pub fn terms(rows: &[StepRows]) -> Terms {
    let (mut prefill, mut decode, mut pairs) = (0_u64, 0_u64, 0_u64);
    for row in rows {
        let (from, count) = (u64::from(row.from), u64::from(row.tokens));
        pairs += count * from + count * (count + 1) / 2;
        match row.kind {
            RowKind::Prefill => prefill += count,
            RowKind::Decode => decode += count,
        }
    }
    // All rows of a step with a chunk share the matmuls' tiles.
    if prefill > 0 {
        prefill = (prefill + decode).next_multiple_of(u64::from(PREFILL_TILE_TOKENS));
        decode = 0;
    }
    [1.0, prefill as f64, decode as f64, pairs as f64]
}

/// The fit.
#[derive(Debug, Clone)]
pub struct Fit {
    /// Sums of term times term, and of term times nanoseconds.
    products: [[f64; TERMS]; TERMS],
    targets: Terms,
    model: Terms,
    handed: Terms,
    steps: u64,
    /// How long the last steps took, in what was predicted at their pace.
    ratios: VecDeque<f64>,
    /// How long steps take now, in what the model says.
    pace: f64,
    /// Pace and margin in `handed`.
    handed_factor: f64,
    /// All steps since [`Fit::keep_steps`], with their nanoseconds.
    kept: Option<Vec<(Terms, u64)>>,
}

/// A model over a known set of steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fitted {
    /// In the scheduler's unit.
    pub cost: CostModel,
    /// Root mean square of the steps' relative errors.
    pub residual: Option<f64>,
}

/// A guess for an adapter on which a chunk of `chunk_tokens` takes half a second: a decode row as dear as four prefill tokens.
#[must_use]
pub fn prior(chunk_tokens: u32) -> CostModel {
    let token = LONE_STEP_NANOS * UNITS_A_NANO / u64::from(chunk_tokens.max(1));
    CostModel { a: 0, b: token, c: 4 * token, d: 0 }
}

impl Fit {
    /// A fit that has seen nothing and believes `prior`.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a guess")]
    pub fn new(prior: CostModel) -> Self {
        let model = [prior.a, prior.b, prior.c, prior.d].map(|units| units as f64 / UNITS_A_NANO as f64);
        let zero = [0.0; TERMS];
        Self {
            products: [zero; TERMS],
            targets: zero,
            model,
            handed: model,
            steps: 0,
            ratios: VecDeque::new(),
            pace: 1.0,
            handed_factor: 1.0,
            kept: None,
        }
    }

    /// Begins to keep every step, forgetting those kept before.
    pub fn keep_steps(&mut self) {
        self.kept = Some(Vec::new());
    }

    /// The model of the kept steps, all counting alike: unlike the online one it forgets none, and what it predicts is their mean
    /// where a machine is now slow, now fast.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "nanoseconds and counts of steps are far below 2^52")]
    pub fn of_kept_steps(&self) -> Fitted {
        let steps = self.kept.as_deref().unwrap_or_default();
        let mut model = self.model;
        // A step weighs by what it is predicted to last, not by what it lasted: else the fast ones would count most.
        for _ in 0..ROUNDS {
            let (mut products, mut targets) = ([[0.0; TERMS]; TERMS], [0.0; TERMS]);
            for (terms, nanos) in steps {
                add(&mut products, &mut targets, terms, *nanos as f64, predict(&model, terms).max(1.0));
            }
            model = solve(&products, &targets, &model);
        }
        let error = |(terms, nanos): &(Terms, u64)| (*nanos as f64 / predict(&model, terms).max(1.0) - 1.0).powi(2);
        let residual = (!steps.is_empty()).then(|| (steps.iter().map(error).sum::<f64>() / steps.len() as f64).sqrt());
        Fitted { cost: scaled(model, 1.0), residual }
    }

    /// Nanoseconds that a step of these terms is predicted to last.
    #[must_use]
    pub fn predict(&self, terms: &Terms) -> f64 {
        predict(&self.model, terms)
    }

    /// The same at the pace of the last steps, as a count.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative; `as` saturates")]
    pub fn expected_nanos(&self, terms: &Terms) -> u64 {
        (self.predict(terms) * self.pace) as u64
    }

    /// Learns from a step. The new model, if it differs enough from the one handed out last.
    #[allow(clippy::cast_precision_loss, reason = "nanoseconds of a step are far below 2^52")]
    pub fn observe(&mut self, terms: &Terms, nanos: u64) -> Option<CostModel> {
        self.steps += 1;
        if let Some(kept) = &mut self.kept {
            kept.push((*terms, nanos));
        }
        if self.steps == 1 {
            // The driver's first launch is like no other.
            return None;
        }
        let nanos = nanos as f64;
        if self.steps > FIRST && nanos > 0.0 {
            let predicted = self.predict(terms).max(1.0);
            self.ratios.push_back(nanos / (predicted * self.pace));
            self.pace += PACE * (nanos / predicted - self.pace);
            self.pace = self.pace.clamp(1.0 / PACE_MAX, PACE_MAX);
            if self.ratios.len() > REMEMBERED {
                self.ratios.pop_front();
            }
        }
        // Relative errors matter: a step of 20 ms and one of 2 s count alike.
        self.products.iter_mut().flatten().chain(&mut self.targets).for_each(|sum| *sum *= MEMORY);
        add(&mut self.products, &mut self.targets, terms, nanos, nanos.max(1.0));
        self.model = solve(&self.products, &self.targets, &self.model);
        let (now, then) = (self.predict(terms), predict(&self.handed, terms));
        let factor = self.margin() * self.pace;
        let is_near = (now * factor - then * self.handed_factor).abs() <= WORTH * now * factor;
        if self.steps <= FIRST || is_near {
            return None;
        }
        (self.handed, self.handed_factor) = (self.model, factor);
        Some(scaled(self.model, factor))
    }

    /// What the scheduler is told more than what is predicted, so that nearly all steps keep what it plans by.
    fn margin(&self) -> f64 {
        let mut ratios: Vec<f64> = self.ratios.iter().copied().collect();
        ratios.sort_by(f64::total_cmp);
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small index"
        )]
        let at = (ratios.len().saturating_sub(1) as f64 * KEPT) as usize;
        ratios.get(at).map_or(1.0, |ratio| (ratio / OVER).clamp(1.0, MARGIN_MAX))
    }
}

fn predict(model: &Terms, terms: &Terms) -> f64 {
    model.iter().zip(terms).map(|(m, t)| m * t).sum()
}

/// Adds a step of `nanos` to the sums, its error counted in `scale`.
fn add(products: &mut [[f64; TERMS]; TERMS], targets: &mut Terms, terms: &Terms, nanos: f64, scale: f64) {
    let weight = 1.0 / (scale * scale);
    for (i, row) in products.iter_mut().enumerate() {
        row.iter_mut().zip(terms).for_each(|(sum, term)| *sum += weight * terms[i] * term);
        targets[i] += weight * terms[i] * nanos;
    }
}

/// A model in the scheduler's unit, times a factor.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "not negative; `as` saturates"
)]
fn scaled(model: Terms, factor: f64) -> CostModel {
    let [a, b, c, d] = model.map(|m| (m * factor * UNITS_A_NANO as f64).round() as u64);
    CostModel { a, b, c, d }
}

/// Least squares with no term below zero: terms that come out negative are left out, one after the other. `before` is what
/// terms that nothing tells apart stay near.
fn solve(products: &[[f64; TERMS]; TERMS], targets: &Terms, before: &Terms) -> Terms {
    let mut used = [true; TERMS];
    loop {
        let solution = solve_used(products, targets, before, &used);
        let worst = (0..TERMS).filter(|&i| solution[i] < 0.0).min_by(|&a, &b| {
            let weight = |i: usize| solution[i] * products[i][i].sqrt();
            weight(a).total_cmp(&weight(b))
        });
        match worst {
            Some(i) => used[i] = false,
            None => return solution,
        }
    }
}

/// Gauss with the terms in use, each scaled to its own size and pulled weakly towards `before`.
fn solve_used(products: &[[f64; TERMS]; TERMS], targets: &Terms, before: &Terms, used: &[bool; TERMS]) -> Terms {
    const PULL: f64 = 1e-6;
    let scale: Terms = std::array::from_fn(|i| products[i][i].sqrt().max(1e-300));
    let mut rows = [[0.0_f64; TERMS + 1]; TERMS];
    for i in 0..TERMS {
        let live = used[i] && products[i][i] > 0.0;
        for j in 0..TERMS {
            rows[i][j] = if live && used[j] { products[i][j] / scale[i] / scale[j] } else { 0.0 };
        }
        rows[i][TERMS] = if live { targets[i] / scale[i] + PULL * before[i] * scale[i] } else { 0.0 };
        rows[i][i] += if live { PULL } else { 1.0 };
        if used[i] && !live {
            // Never seen: as before.
            rows[i][TERMS] = before[i] * scale[i];
        }
    }
    for i in 0..TERMS {
        let pivot = (i..TERMS).max_by(|&a, &b| rows[a][i].abs().total_cmp(&rows[b][i].abs())).unwrap_or(i);
        rows.swap(i, pivot);
        let top = rows[i];
        for row in rows.iter_mut().skip(i + 1) {
            let factor = row[i] / top[i];
            row.iter_mut().zip(top).for_each(|(x, y)| *x -= factor * y);
        }
    }
    let mut solution = [0.0; TERMS];
    for i in (0..TERMS).rev() {
        let known: f64 = (i + 1..TERMS).map(|j| rows[i][j] * solution[j]).sum();
        solution[i] = (rows[i][TERMS] - known) / rows[i][i];
    }
    std::array::from_fn(|i| solution[i] / scale[i])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: RowKind, from: u32, tokens: u32) -> StepRows {
        StepRows { id: 0, slot: 0, kind, from, tokens, last: true }
    }

    #[test]
    fn fit_finds_the_model_that_made_the_steps() {
        let truth = [5e6, 7e6, 3e7, 4e3];
        let mut fit = Fit::new(CostModel::default());
        fit.keep_steps();
        for i in 0..60_u32 {
            let mut rows = vec![row(RowKind::Decode, 10 * i, 1); (i % 5) as usize];
            if i % 3 > 0 {
                rows.push(row(RowKind::Prefill, 16 * i, 8 * (1 + i % 7)));
            }
            if rows.is_empty() {
                continue;
            }
            let terms = terms(&rows);
            let nanos: f64 = truth.iter().zip(terms).map(|(m, t)| m * t).sum();
            fit.observe(&terms, nanos as u64);
        }
        for (got, want) in fit.model.iter().zip(truth) {
            assert!((got / want - 1.0).abs() < 0.01, "{:?}", fit.model);
        }
        let Fitted { cost, residual } = fit.of_kept_steps();
        for (got, want) in [cost.a, cost.b, cost.c, cost.d].into_iter().zip(truth) {
            assert!((got as f64 / 1024.0 / want - 1.0).abs() < 0.01, "{cost:?}");
        }
        assert!(residual.is_some_and(|r| r < 0.01), "{residual:?}");
    }

    #[test]
    fn kept_steps_of_an_uneven_machine_are_predicted_at_their_mean() {
        let mut fit = Fit::new(CostModel::default());
        fit.keep_steps();
        assert_eq!(fit.of_kept_steps(), Fitted { cost: CostModel::default(), residual: None });
        let step = terms(&[row(RowKind::Decode, 99, 1)]);
        for i in 0..2000 {
            // The last steps are the fast ones: the online model has forgotten the others.
            fit.observe(&step, if i % 4 == 0 && i < 1000 { 60_000_000 } else { 20_000_000 });
        }
        let Fitted { cost, residual } = fit.of_kept_steps();
        let predicted = (cost.a + cost.c + 100 * cost.d) as f64 / 1024.0;
        assert!((predicted / 25e6 - 1.0).abs() < 0.01, "{predicted}");
        assert!(
            (residual.expect("steps were kept") / (7.0_f64.sqrt() * 5.0 / 25.0) - 1.0).abs() < 0.01,
            "{residual:?}"
        );
    }

    #[test]
    fn what_is_handed_out_follows_the_machines_pace_and_comes_back() {
        let mut fit = Fit::new(CostModel::default());
        let step = terms(&[row(RowKind::Decode, 99, 1)]);
        let told = |fit: &mut Fit, nanos: u64| {
            (0..40).for_each(|_| _ = fit.observe(&step, nanos));
            fit.handed.iter().zip(step).map(|(m, t)| m * t).sum::<f64>() * fit.handed_factor / 1e7
        };
        assert!((told(&mut fit, 10_000_000) - 1.0).abs() < 0.05);
        assert!(told(&mut fit, 15_000_000) > 1.4, "half as slow again");
        let back = told(&mut fit, 10_000_000);
        assert!(back < MARGIN_MAX * (1.0 + WORTH), "{back}: no more than the margin is left");
    }

    #[test]
    fn steps_of_one_kind_leave_a_model_without_negative_terms() {
        let mut fit = Fit::new(CostModel::default());
        let mut last = None;
        for i in 0..50_u32 {
            let terms = terms(&[row(RowKind::Decode, i, 1)]);
            last = fit.observe(&terms, 30_000_000 - u64::from(i) * 10_000).or(last);
        }
        assert!(fit.model.iter().all(|m| *m >= 0.0), "{:?}", fit.model);
        let predicted = fit.predict(&terms(&[row(RowKind::Decode, 50, 1)]));
        assert!((predicted / 29.5e6 - 1.0).abs() < 0.05, "{predicted}");
        assert!(last.is_some());
    }

    #[test]
    fn prefill_is_counted_in_tiles_and_pairs_by_position() {
        let mixed = terms(&[row(RowKind::Prefill, 16, 9), row(RowKind::Decode, 4, 1)]);
        assert_eq!(mixed, [1.0, 16.0, 0.0, f64::from(16 * 9 + 45 + 5)]);
        assert_eq!(terms(&[row(RowKind::Decode, 0, 1), row(RowKind::Prefill, 0, 8)])[1], 16.0);
        assert_eq!(terms(&[row(RowKind::Decode, 0, 1)])[1], 0.0);
    }
}
