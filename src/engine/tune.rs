//! Builds a model's kernels, those that are needed soonest first, and decides which variants it takes on an adapter: each is checked
//! against its twin before use, and where there are several, and the user wants it, they are timed. Drivers lie, refuse, and now and
//! then take the process with them.
//!
//! ```text
//! build   what a usual first request launches, or all; what a step lacks is built before it is submitted
//! check   every product and attention variant among these, over a small launch (other kernels have one variant, and are
//!         not tried); a wrong one is named, and the next candidate of its class takes over
//! time    candidates of a class, bit-equal to each other; the fastest is remembered
//! keep    what was found, by whoever calls: this layer knows no files
//! ```

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::trial::{self, SMALL, Size};
use crate::clock::{Clock, millis_from_nanos};
use crate::error::{Error, Result};
use crate::kernels::choices::Class;
use crate::kernels::plan::{Activations, Plan};
use crate::kernels::{Kernel, matmul};
use crate::model::{Extent, Model};
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
    /// What the driver made of all kernels so far, where it tells.
    fn keep_pipelines(&mut self, _data: &[u8]) {}
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
/// Fewest kernels that are built together: as many as the processors take side by side, and no more, so that a bar moves and whoever
/// comes meanwhile need not wait for all.
const TOGETHER_MIN: usize = 4;

/// Called with the kernels that are built, and how many there will be; an error that it returns ends the building.
pub type Progress<'a> = &'a mut dyn FnMut(usize, usize) -> Result<()>;

/// Builds the kernels of one model on one player, those asked for first, the others when they are. No step launches a kernel that was
/// not built here.
pub struct Tuner {
    level: Level,
    memory: Memory,
    keeper: Box<dyn Keeper>,
    /// Compiled, and right where it has a twin to be held against, in this process.
    built: BTreeSet<Kernel>,
    /// Places of candidates that are not to be taken.
    wrong: BTreeSet<(Class, u8)>,
    /// Classes whose candidates were timed, or cannot be.
    timed: BTreeSet<Class>,
    /// Something was built that no earlier process knew, and the driver was not asked yet what it made of it.
    is_unkept: bool,
    /// What a model with this plan uses.
    listed: Option<(Plan, Extent, Vec<Kernel>)>,
}

impl Tuner {
    /// Nothing built. Lets `model` take the candidates that were fastest when they were timed.
    #[must_use]
    pub fn new(level: Level, memory: Memory, keeper: Box<dyn Keeper>, model: &mut Model) -> Self {
        let mut plan = model.plan();
        for class in classes(&model.kernels(Extent::All)) {
            let winner = memory.winners.get(&name(class, plan.activations)).copied().unwrap_or(0);
            plan.choices.set(class, winner.min(class.candidates(plan) - 1));
        }
        model.set_plan(plan);
        let (built, wrong, timed) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        Self { level, memory, keeper, built, wrong, timed, is_unkept: false, listed: None }
    }

    /// What was found so far, by this process and those before it.
    #[must_use]
    pub const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Whether a kernel may be launched.
    #[must_use]
    pub fn is_built(&self, kernel: Kernel) -> bool {
        self.built.contains(&kernel)
    }

    /// Builds all that `model` uses, and times candidates as the level says.
    ///
    /// # Errors
    /// As [`Tuner::build`].
    pub fn settle(&mut self, model: &mut Model, player: &mut dyn Player<Kernel>, progress: Progress<'_>) -> Result<()> {
        self.build(model, player, Extent::All, progress)?;
        while self.work(model, player, Extent::All)? {}
        Ok(())
    }

    /// Compiles and checks the variants that `model` uses, and lets it choose others where these are wrong.
    ///
    /// # Errors
    /// When no candidate of a class is right, naming it; a lost device; what `progress` returns.
    pub fn build(
        &mut self,
        model: &mut Model,
        player: &mut dyn Player<Kernel>,
        extent: Extent,
        progress: Progress<'_>,
    ) -> Result<()> {
        loop {
            let kernels = self.list(model, extent);
            let missing = self.missing(&kernels);
            progress(kernels.len() - missing.len(), kernels.len())?;
            if missing.is_empty() {
                self.keep(player);
                return Ok(());
            }
            self.build_some(model, player, &missing)?;
        }
    }

    /// The same for kernels that depend on the model's choices as `wanted` says: those of a step that is to be played now.
    ///
    /// # Errors
    /// As [`Tuner::build`].
    pub fn build_for(
        &mut self,
        model: &mut Model,
        player: &mut dyn Player<Kernel>,
        wanted: &dyn Fn(&Model) -> Vec<Kernel>,
    ) -> Result<()> {
        loop {
            let missing = self.missing(&wanted(model));
            if missing.is_empty() {
                self.keep(player);
                return Ok(());
            }
            self.build_some(model, player, &missing)?;
        }
    }

    /// Does a piece of the work that nobody waits for: a few kernels of `extent` that are not built, else candidates of a class that
    /// were never timed. `false` when there was none left.
    ///
    /// # Errors
    /// As [`Tuner::build`].
    pub fn work(&mut self, model: &mut Model, player: &mut dyn Player<Kernel>, extent: Extent) -> Result<bool> {
        let kernels = self.list(model, extent);
        let missing = self.missing(&kernels);
        if !missing.is_empty() {
            self.build_some(model, player, &missing)?;
            return Ok(true);
        }
        let software = model.plan().software;
        let Some(class) = classes(&kernels).into_iter().find(|&class| self.is_to_time(class, software)) else {
            self.keep(player);
            return Ok(false);
        };
        self.timed.insert(class);
        let (k, columns) = model.typical_product();
        let (columns, k) = (columns.min(TIMED_SIDE), k.next_multiple_of(256).min(TIMED_SIDE));
        self.time(model, player, class, Size { rows: TIMED_ROWS, columns, k })?;
        Ok(true)
    }

    fn list(&mut self, model: &Model, extent: Extent) -> Vec<Kernel> {
        match &self.listed {
            Some((plan, of, kernels)) if (*plan, *of) == (model.plan(), extent) => kernels.clone(),
            _ => {
                let kernels = model.kernels(extent);
                self.listed = Some((model.plan(), extent, kernels.clone()));
                kernels
            }
        }
    }

    /// What is not built of `kernels`, each once: first those that have no choice, which the checks of the others launch too.
    fn missing(&self, kernels: &[Kernel]) -> Vec<Kernel> {
        let missing = kernels.iter().copied().filter(|&kernel| !self.is_built(kernel));
        let missing: BTreeSet<(bool, Kernel)> = missing.map(|kernel| (kernel.class().is_some(), kernel)).collect();
        missing.into_iter().map(|(_, kernel)| kernel).collect()
    }

    fn is_to_time(&self, class: Class, software: bool) -> bool {
        let named = match (self.level, class) {
            // Sizes of matrices differ in bits: which one runs must not depend on a clock.
            (Level::Off, _) | (_, Class::Matrix { .. }) => false,
            (Level::Fast, Class::Matmul { rows: 1 | 8, .. }) => !software,
            (Level::Fast, _) => false,
            (Level::Full, _) => true,
        };
        named && !self.timed.contains(&class)
    }

    /// Asks the driver what it made of new kernels, for later processes.
    fn keep(&mut self, player: &dyn Player<Kernel>) {
        if std::mem::take(&mut self.is_unkept)
            && let Some(data) = player.compiled()
        {
            self.keeper.keep_pipelines(&data);
        }
    }

    /// Builds the first of `missing`. Where one is wrong the model takes another instead.
    fn build_some(&mut self, model: &mut Model, player: &mut dyn Player<Kernel>, missing: &[Kernel]) -> Result<()> {
        let together = std::thread::available_parallelism().map_or(1, usize::from).max(TOGETHER_MIN);
        let Some(wrong) = self.check(player, &missing[..together.min(missing.len())])? else { return Ok(()) };
        let class = wrong.class().expect("a kernel without a class is never called wrong");
        let mut plan = model.plan();
        self.wrong.insert((class, plan.choices.get(class)));
        let count = class.candidates(plan);
        let Some(place) = (0..count).find(|&place| !self.wrong.contains(&(class, place))) else {
            let message = format!(
                "{}: all {count} variants are wrong or refused on this driver; another --tier or --device, or a newer driver, may do",
                class.name()
            );
            return Err(Error::Gpu { op: "check kernels", message, adapter: player.adapter().to_owned() });
        };
        plan.choices.set(class, place);
        model.set_plan(plan);
        Ok(())
    }

    /// Compiles and checks `kernels`; the first that is wrong.
    fn check(&mut self, player: &mut dyn Player<Kernel>, kernels: &[Kernel]) -> Result<Option<Kernel>> {
        let bad = |kernel: &&Kernel| kernel.class().is_some() && self.memory.bad.contains(&kernel.spec().label);
        if let Some(&kernel) = kernels.iter().find(bad) {
            tracing::debug!("{} was wrong before on this driver", kernel.spec().label);
            return Ok(Some(kernel));
        }
        for kernel in kernels.iter().filter(|kernel| self.memory.bad.contains(&kernel.spec().label)) {
            let label = kernel.spec().label;
            tracing::warn!("{label} has no other variant: it is compiled again, though an earlier process died of it");
        }
        let clock = Clock::start();
        if let Some(refused) = self.compile(player, kernels)? {
            return Ok(Some(refused));
        }
        let compiled_nanos = clock.nanos();
        for &kernel in kernels {
            if !is_right(player, kernel)? {
                self.call_wrong(player, kernel, "gives wrong results");
                return Ok(Some(kernel));
            }
            self.built.insert(kernel);
        }
        let [compile_ms, check_ms] = [compiled_nanos, clock.nanos() - compiled_nanos].map(millis_from_nanos);
        tracing::debug!(kernels = kernels.len(), compile_ms, check_ms, "built");
        let mut is_news = false;
        for label in kernels.iter().map(|kernel| kernel.spec().label) {
            is_news |= self.memory.bad.remove(&label) | self.memory.good.insert(label);
        }
        if is_news {
            self.is_unkept = true;
            self.keeper.compiled(&self.memory);
        }
        Ok(None)
    }

    /// Compiles `kernels`; one that the driver refuses and that another can stand in for.
    fn compile(&mut self, player: &mut dyn Player<Kernel>, kernels: &[Kernel]) -> Result<Option<Kernel>> {
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
            let mut built = player.prepare(group);
            if group.len() > 1 && matches!(built, Err(Error::Gpu { .. })) {
                // Which one?
                for kernel in group {
                    if let Err(error) = player.prepare(&[*kernel]) {
                        built = Err(error);
                        self.keeper.compiled(&self.memory);
                        return self.refused(player, *kernel, built);
                    }
                }
                built = Ok(());
            }
            self.keeper.compiled(&self.memory);
            if built.is_err() {
                return self.refused(player, group[0], built);
            }
        }
        player.prepare(kernels)?;
        Ok(None)
    }

    fn refused(&mut self, player: &dyn Player<Kernel>, kernel: Kernel, built: Result<()>) -> Result<Option<Kernel>> {
        match built {
            Err(error @ Error::Gpu { .. }) if kernel.class().is_some() => {
                self.call_wrong(player, kernel, &format!("was refused: {error}"));
                Ok(Some(kernel))
            }
            other => other.map(|()| None),
        }
    }

    fn call_wrong(&mut self, player: &dyn Player<Kernel>, kernel: Kernel, how: &str) {
        let label = kernel.spec().label;
        tracing::warn!("{label} {how} on {}; another variant takes over", player.adapter());
        self.memory.bad.insert(label);
        self.keeper.compiled(&self.memory);
    }

    /// Times the candidates of a class; the winner is taken and remembered.
    fn time(&mut self, model: &mut Model, player: &mut dyn Player<Kernel>, class: Class, size: Size) -> Result<()> {
        let mut plan = model.plan();
        let key = name(class, plan.activations);
        if class.candidates(plan) < 2 || self.memory.winners.contains_key(&key) {
            return Ok(());
        }
        let before = plan.choices.get(class);
        let mut reference: Option<Vec<u32>> = None;
        let mut best: Option<(u8, f64)> = None;
        for place in 0..class.candidates(plan) {
            plan.choices.set(class, place);
            model.set_plan(plan);
            let kernels: Vec<Kernel> =
                model.kernels(Extent::All).into_iter().filter(|k| k.class() == Some(class)).collect();
            // Not one that norms on the way: that is no candidate's own, and others have none to compare it with.
            let Some(kernel) = kernels.first().copied().map(without_norm) else { break };
            if self.check(player, &self.missing(&kernels))?.is_some() {
                continue;
            }
            let outcome = trial::outcome(player, kernel, SMALL)?;
            if reference.is_some() && outcome != reference {
                let (label, adapter) = (kernel.spec().label, player.adapter());
                tracing::warn!("{label} gives other bits than its equals on {adapter}; it is not used");
                continue;
            }
            reference = reference.or(outcome);
            let Some(nanos) = trial::nanos(player, kernel, size)? else { break };
            tracing::debug!(kernel = kernel.spec().label, us = nanos / 1e3, "timed");
            if best.is_none_or(|(_, least)| nanos < WORTH * least) {
                best = Some((place, nanos));
            }
        }
        plan.choices.set(class, best.map_or(before, |(place, _)| place));
        model.set_plan(plan);
        if let Some((place, _)) = best {
            self.memory.winners.insert(key, place);
            self.keeper.compiled(&self.memory);
        }
        Ok(())
    }
}

fn is_right(player: &mut dyn Player<Kernel>, kernel: Kernel) -> Result<bool> {
    match (trial::outcome(player, kernel, SMALL)?, trial::outcome(&mut Twin::new(), kernel, SMALL)?) {
        (Some(got), Some(twin)) => Ok(trial::agrees(kernel, SMALL, &got, &twin)),
        _ => Ok(true),
    }
}

/// Classes of kernels that have a choice.
fn classes(kernels: &[Kernel]) -> BTreeSet<Class> {
    kernels.iter().copied().filter_map(Kernel::class).collect()
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
