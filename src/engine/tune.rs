//! Which variants a model takes on an adapter: each is checked against its twin before use, and where there are several, and the user
//! wants it, they are timed. Drivers lie, refuse, and now and then take the process with them.
//!
//! ```text
//! check   every product and attention variant the model uses, over a small launch (other kernels have one variant, and are
//!         not tried); a wrong one is named, and the next candidate of its class takes over
//! time    candidates of a class, bit-equal to each other; the fastest is remembered
//! keep    what was found, by whoever calls: this layer knows no files
//! ```

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::trial::{self, SMALL, Size};
use crate::error::{Error, Result};
use crate::kernels::choices::Class;
use crate::kernels::plan::{Activations, Plan};
use crate::kernels::{Kernel, matmul};
use crate::model::Model;
use crate::recording::Player;
use crate::twin::Twin;

/// How much is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Nothing; variants are checked all the same.
    Off,
    /// Products of one row and of many, on hardware; a software driver's order is known.
    Fast,
    /// All classes that have a choice.
    Full,
}

/// What is remembered of an adapter with one driver and one build.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// Labels of variants that were compiled and right.
    pub good: BTreeSet<String>,
    /// Labels of variants that were wrong, refused, or took the process with them.
    pub bad: BTreeSet<String>,
    /// Place of the candidate that was fastest, by class and activations.
    pub winners: BTreeMap<String, u8>,
}

/// Keeps what was found, so that the next process need not find it again.
pub trait Keeper {
    /// Variants by these labels are about to be compiled for the first time: if this process dies now, one of them is why.
    fn compiling(&mut self, labels: &[String]);
    /// They were compiled, or refused in good order.
    fn compiled(&mut self, memory: &Memory);
    /// An earlier process died while it compiled several: one at a time, this time.
    fn one_by_one(&self) -> bool {
        false
    }
}

/// Keeps nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Forgetful;

impl Keeper for Forgetful {
    fn compiling(&mut self, _labels: &[String]) {}
    fn compiled(&mut self, _memory: &Memory) {}
}

/// A candidate must be faster by this much to replace one before it: what a busy machine makes of equals.
const WORTH: f64 = 0.95;
/// Rows of a timed product of many.
const TIMED_ROWS: u32 = 64;
/// Largest sides of a timed matrix.
const TIMED_SIDE: u32 = 4096;

/// Compiles and checks all variants that `model` uses on `player`, lets it choose others where these are wrong, and times candidates
/// as `level` says.
///
/// # Errors
/// When no candidate of a class is right, naming it; a lost device.
pub fn settle(
    model: &mut Model,
    player: &mut dyn Player<Kernel>,
    level: Level,
    memory: &mut Memory,
    keeper: &mut dyn Keeper,
) -> Result<()> {
    let mut tuner = Tuner { player, memory, keeper, checked: BTreeSet::new() };
    let mut plan = model.plan();
    let classes = classes(model);
    for &class in &classes {
        let winner = tuner.memory.winners.get(&name(class, plan.activations)).copied().unwrap_or(0);
        plan.choices.set(class, winner.min(class.candidates(plan) - 1));
    }
    tuner.check_all(model, &mut plan)?;
    let software = plan.software;
    let timed = |class: &Class| match (level, class) {
        // Sizes of matrices differ in bits: which one runs must not depend on a clock.
        (Level::Off, _) | (_, Class::Matrix { .. }) => false,
        (Level::Fast, Class::Matmul { rows: 1 | 8, .. }) => !software,
        (Level::Fast, _) => false,
        (Level::Full, _) => true,
    };
    let (k, columns) = model.typical_product();
    let size = Size { rows: TIMED_ROWS, columns: columns.min(TIMED_SIDE), k: k.next_multiple_of(256).min(TIMED_SIDE) };
    for &class in classes.iter().filter(|&class| timed(class)) {
        tuner.time(model, &mut plan, class, size)?;
    }
    // Winners may bring kernels that nothing has checked in this model's constants.
    tuner.check_all(model, &mut plan)
}

/// Classes of the kernels that a model uses.
fn classes(model: &Model) -> BTreeSet<Class> {
    model.kernels().into_iter().filter_map(Kernel::class).collect()
}

fn name(class: Class, activations: Activations) -> String {
    format!("{} {}", class.name(), activations.name())
}

fn without_norm(kernel: Kernel) -> Kernel {
    match kernel {
        Kernel::Matmul(shape) => Kernel::Matmul(matmul::Shape { normed: false, ..shape }),
        other => other,
    }
}

struct Tuner<'a> {
    player: &'a mut dyn Player<Kernel>,
    memory: &'a mut Memory,
    keeper: &'a mut dyn Keeper,
    /// In this process.
    checked: BTreeSet<Kernel>,
}

impl Tuner<'_> {
    /// Until every kernel of the model is compiled and right.
    fn check_all(&mut self, model: &mut Model, plan: &mut Plan) -> Result<()> {
        let mut wrong_places: BTreeSet<(Class, u8)> = BTreeSet::new();
        loop {
            model.set_plan(*plan);
            let new: Vec<Kernel> = model.kernels().into_iter().filter(|k| !self.checked.contains(k)).collect();
            let Some(wrong) = self.check(&new)? else { return Ok(()) };
            let class = wrong.class().expect("a kernel without a class is never called wrong");
            wrong_places.insert((class, plan.choices.get(class)));
            let count = class.candidates(*plan);
            let Some(place) = (0..count).find(|&place| !wrong_places.contains(&(class, place))) else {
                let message = format!(
                    "{}: all {count} variants are wrong or refused on this driver; another --tier or --device, or a newer driver, may do",
                    class.name()
                );
                return Err(Error::Gpu { op: "check kernels", message, adapter: self.player.adapter().to_owned() });
            };
            plan.choices.set(class, place);
        }
    }

    /// Compiles and checks `kernels`; the first that is wrong.
    fn check(&mut self, kernels: &[Kernel]) -> Result<Option<Kernel>> {
        let bad = |kernel: &&Kernel| kernel.class().is_some() && self.memory.bad.contains(&kernel.spec().label);
        if let Some(&kernel) = kernels.iter().find(bad) {
            tracing::debug!("{} was wrong before on this driver", kernel.spec().label);
            return Ok(Some(kernel));
        }
        if let Some(refused) = self.compile(kernels)? {
            return Ok(Some(refused));
        }
        for &kernel in kernels {
            if !self.is_right(kernel)? {
                self.call_wrong(kernel, "gives wrong results");
                return Ok(Some(kernel));
            }
            self.checked.insert(kernel);
        }
        let before = self.memory.good.len();
        self.memory.good.extend(kernels.iter().map(|kernel| kernel.spec().label));
        if self.memory.good.len() > before {
            self.keeper.compiled(self.memory);
        }
        Ok(None)
    }

    /// Compiles `kernels`; one that the driver refuses and that another can stand in for.
    fn compile(&mut self, kernels: &[Kernel]) -> Result<Option<Kernel>> {
        let is_new = |kernel: &&Kernel| !self.memory.good.contains(&kernel.spec().label);
        let new: Vec<Kernel> = kernels.iter().filter(is_new).copied().collect();
        let groups: Vec<&[Kernel]> = if self.keeper.one_by_one() {
            new.chunks(1).collect()
        } else {
            vec![&new[..]].into_iter().filter(|g| !g.is_empty()).collect()
        };
        for group in groups {
            let labels: Vec<String> = group.iter().map(|kernel| kernel.spec().label).collect();
            self.keeper.compiling(&labels);
            let mut built = self.player.prepare(group);
            if group.len() > 1 && matches!(built, Err(Error::Gpu { .. })) {
                // Which one?
                for kernel in group {
                    if let Err(error) = self.player.prepare(&[*kernel]) {
                        built = Err(error);
                        self.keeper.compiled(self.memory);
                        return self.refused(*kernel, built);
                    }
                }
                built = Ok(());
            }
            self.keeper.compiled(self.memory);
            if built.is_err() {
                return self.refused(group[0], built);
            }
        }
        self.player.prepare(kernels)?;
        Ok(None)
    }

    fn refused(&mut self, kernel: Kernel, built: Result<()>) -> Result<Option<Kernel>> {
        match built {
            Err(error @ Error::Gpu { .. }) if kernel.class().is_some() => {
                self.call_wrong(kernel, &format!("was refused: {error}"));
                Ok(Some(kernel))
            }
            other => other.map(|()| None),
        }
    }

    fn call_wrong(&mut self, kernel: Kernel, how: &str) {
        let label = kernel.spec().label;
        tracing::warn!("{label} {how} on {}; another variant takes over", self.player.adapter());
        self.memory.bad.insert(label);
        self.keeper.compiled(self.memory);
    }

    fn is_right(&mut self, kernel: Kernel) -> Result<bool> {
        match (trial::outcome(self.player, kernel, SMALL)?, trial::outcome(&mut Twin::new(), kernel, SMALL)?) {
            (Some(got), Some(twin)) => Ok(trial::agrees(kernel, SMALL, &got, &twin)),
            _ => Ok(true),
        }
    }

    /// Times the candidates of a class; the winner is set in the plan and remembered.
    fn time(&mut self, model: &mut Model, plan: &mut Plan, class: Class, size: Size) -> Result<()> {
        let key = name(class, plan.activations);
        if class.candidates(*plan) < 2 || self.memory.winners.contains_key(&key) {
            return Ok(());
        }
        let before = plan.choices.get(class);
        let mut reference: Option<Vec<u32>> = None;
        let mut best: Option<(u8, f64)> = None;
        for place in 0..class.candidates(*plan) {
            plan.choices.set(class, place);
            model.set_plan(*plan);
            let kernels: Vec<Kernel> = model.kernels().into_iter().filter(|k| k.class() == Some(class)).collect();
            // Not one that norms on the way: that is no candidate's own, and others have none to compare it with.
            let Some(kernel) = kernels.first().copied().map(without_norm) else { break };
            let fresh: Vec<Kernel> = kernels.into_iter().filter(|k| !self.checked.contains(k)).collect();
            if self.check(&fresh)?.is_some() {
                continue;
            }
            let outcome = trial::outcome(self.player, kernel, SMALL)?;
            if reference.is_some() && outcome != reference {
                tracing::warn!(
                    "{} gives other bits than its equals on {}; it is not used",
                    kernel.spec().label,
                    self.player.adapter()
                );
                continue;
            }
            reference = reference.or(outcome);
            let Some(nanos) = trial::nanos(self.player, kernel, size)? else { break };
            tracing::debug!(kernel = kernel.spec().label, us = nanos / 1e3, "timed");
            if best.is_none_or(|(_, least)| nanos < WORTH * least) {
                best = Some((place, nanos));
            }
        }
        plan.choices.set(class, best.map_or(before, |(place, _)| place));
        if let Some((place, _)) = best {
            self.memory.winners.insert(key, place);
            self.keeper.compiled(self.memory);
        }
        Ok(())
    }
}
