//! One simulated run: clients, engine and device around the scheduler, and the checkers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Rng;
use super::device::{Device, Job, VOCABULARY, link, root};
use crate::limits::{LONE_STEP_NANOS, PAGE_TOKENS, PREFILL_TILE_TOKENS};
use crate::sched::{
    Before, Config, CostModel, MissReason, Mutant, NewRequest, Policy, RowKind, Scheduler, Step, UNITS_A_NANO,
};

/// Rounds with arrivals and faults.
const TICKS: u32 = 200;
/// Rounds within which everything must have ended after that.
const DRAIN_TICKS: u32 = 20_000;

/// How often things happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen([(&'static str, u64); 14]);

impl Seen {
    fn count(&mut self, what: &'static str) {
        let row = self.0.iter_mut().find(|row| row.0 == what || row.0.is_empty()).expect("a row for each name");
        *row = (what, row.1 + 1);
    }

    pub(super) fn add(&mut self, other: &Self) {
        for &(what, times) in other.rows() {
            (0..times).for_each(|_| self.count(what));
        }
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &(&'static str, u64)> {
        self.0.iter().filter(|row| !row.0.is_empty())
    }
}

struct Life {
    /// Prompt and all that was sampled, also what came after the end.
    ids: Vec<u32>,
    /// Chain value behind each of `ids`.
    chain: Vec<u64>,
    root: u64,
    ids_max: usize,
    ended: bool,
}

impl Life {
    fn push(&mut self, id: u32) {
        let before = self.chain.last().copied().unwrap_or(self.root);
        self.ids.push(id);
        self.chain.push(link(before, id));
    }
}

pub(super) struct World {
    rng: Rng,
    config: Config,
    cost: CostModel,
    scheduler: Scheduler,
    device: Device,
    lives: BTreeMap<u64, Life>,
    /// Planned and not over.
    flights: VecDeque<(u64, Vec<Job>)>,
    families: Vec<Vec<u32>>,
    /// Most steps in flight, and how often the device is done with one, in percent.
    depth: usize,
    speed: u32,
    pub(super) seen: Seen,
}

fn config(rng: &mut Rng) -> Config {
    let pages = rng.within(2, 30);
    Config {
        pages,
        slots: rng.within(1, 8),
        step_tokens: rng.one_of(&[1, 2, 7, 16, 33, 64, 200]),
        chunk_tokens: rng.one_of(&[None, None, Some(1), Some(5), Some(16), Some(17)]),
        context_tokens: rng.within(PAGE_TOKENS * pages / 2, PAGE_TOKENS * pages + 10),
        queue_max: rng.one_of(&[5, 40]),
        queue_tokens_max: rng.one_of(&[200, 5_000]),
        policy: rng.one_of(&Policy::ALL),
        itl_slo_nanos: rng.one_of(&[None, Some(50), Some(400)]),
        prefix_caching: !rng.chance(15),
        logit_rows: rng.one_of(&[1, 2, 4, 64]),
        cache_generated: !rng.chance(15),
    }
}

fn cost(rng: &mut Rng) -> CostModel {
    let mut figure = |most: u32| u64::from(rng.below(most)) * UNITS_A_NANO;
    CostModel { a: figure(40), b: figure(8), c: figure(10), d: figure(2) }
}

impl World {
    pub(super) fn new(seed: u64, mutant: Option<Mutant>) -> Self {
        let mut rng = Rng(seed);
        let (config, cost) = (config(&mut rng), cost(&mut rng));
        let mut family = || (0..90).map(|_| rng.below(VOCABULARY)).collect();
        let families = (0..3).map(|_| family()).collect();
        let mut scheduler = match mutant {
            Some(mutant) => Scheduler::broken(config.clone(), mutant),
            None => Scheduler::new(config.clone()),
        };
        scheduler.set_cost(cost);
        let device = Device::new(config.pages, config.slots);
        let (depth, speed) = (rng.one_of(&[1, 2, 2, 2, 3, 4]), rng.one_of(&[30, 60, 95]));
        let (lives, flights, seen) = (BTreeMap::new(), VecDeque::new(), Seen::default());
        Self { rng, config, cost, scheduler, device, lives, flights, families, depth, speed, seen }
    }

    /// Arrivals, cancels, and an executor that is slow, fails, or loses the device.
    pub(super) fn trouble(&mut self) {
        for _ in 0..TICKS {
            if self.rng.chance(22) {
                self.arrive();
            }
            if self.rng.chance(3) {
                self.cancel();
            }
            if self.rng.chance(3) {
                self.cost = cost(&mut self.rng);
                self.scheduler.set_cost(self.cost);
            }
            if self.flights.len() < self.depth && self.rng.chance(90) {
                self.plan();
            }
            if self.rng.chance(self.speed) {
                self.finish_step();
            }
            if self.rng.chance(1) {
                self.fail();
            }
            if self.rng.below(400) == 0 {
                self.lose_device();
            }
        }
    }

    /// No more arrivals and faults: everything comes to its end.
    pub(super) fn drain(&mut self) {
        for _ in 0..DRAIN_TICKS {
            while self.flights.len() < self.depth && self.plan() {}
            if self.scheduler.idle() {
                break;
            }
            self.finish_step();
        }
        assert!(self.scheduler.idle(), "somebody starves: {:?}", self.scheduler.counters());
        let counters = self.scheduler.counters();
        assert!(counters.pages_used == 0, "{} pages are held and nobody is there", counters.pages_used);
        let open: Vec<_> = self.lives.iter().filter(|(_, life)| !life.ended).map(|(id, _)| id).collect();
        assert!(open.is_empty(), "requests {open:?} never ended");
    }

    fn prompt(&mut self) -> Vec<u32> {
        let family = self.rng.below(3) as usize;
        let shared = self.rng.one_of(&[0, 0, 15, 16, 17, 32, 48, 80]);
        let mut prompt = self.families[family][..shared].to_vec();
        if shared > 0 && self.rng.chance(25) {
            let at = self.rng.below(u32::try_from(shared).expect("small")) as usize;
            prompt[at] += self.rng.one_of(&[1, 256, 65_536]);
        }
        let own = if self.rng.chance(30) { 0 } else { self.rng.below(40) };
        prompt.extend((0..own).map(|_| self.rng.below(VOCABULARY)));
        prompt
    }

    fn arrive(&mut self) {
        let id = self.lives.len() as u64;
        let (prompt, max_tokens, salt) = (self.prompt(), self.rng.within(1, 90), self.rng.one_of(&[1, 1, 1, 2]));
        let request = NewRequest {
            id,
            prompt: prompt.clone(),
            max_tokens,
            priority: self.rng.one_of(&[0, 0, 0, -1, 1]),
            tenant: u64::from(self.rng.below(3)),
            salt: [salt; 32],
        };
        let before = self.scheduler.counters();
        let refusal = self.scheduler.submit(request);
        self.scheduler.check();
        let room = self.config.context_tokens.min(PAGE_TOKENS * self.config.pages) as usize;
        if let Err(refusal) = refusal {
            assert!(before == self.scheduler.counters(), "a refusal ({refusal}) changed something");
            self.seen.count("refused");
            return;
        }
        assert!(!prompt.is_empty() && prompt.len() < room, "{} tokens were taken for a room of {room}", prompt.len());
        let ids_max = (prompt.len() + max_tokens as usize).min(room);
        let mut life = Life { ids: Vec::new(), chain: Vec::new(), root: root(salt), ids_max, ended: false };
        prompt.iter().for_each(|&id| life.push(id));
        self.lives.insert(id, life);
    }

    fn is_in_flight(&self, id: u64) -> bool {
        self.flights.iter().flat_map(|flight| &flight.1).any(|job| job.rows.id == id)
    }

    fn cancel(&mut self) {
        if self.lives.is_empty() {
            return;
        }
        let id = u64::from(self.rng.below(u32::try_from(self.lives.len()).expect("few")));
        let Some(life) = self.lives.get_mut(&id) else { return };
        let holds = !self.scheduler.page_table(id).is_empty();
        let cancelled = self.scheduler.cancel(id);
        assert!(cancelled != life.ended, "request {id}: ended {}, cancelled {cancelled}", life.ended);
        life.ended = true;
        if cancelled {
            let what = match (holds, self.is_in_flight(id)) {
                (false, _) => "cancelled while waiting",
                (_, false) => "cancelled between steps",
                (_, true) => "cancelled in flight",
            };
            self.seen.count(what);
        }
        self.check();
    }

    /// Plans a step and hands it to the device.
    fn plan(&mut self) -> bool {
        let step = self.scheduler.plan();
        self.scheduler.check();
        let Some(step) = step else { return false };
        self.inspect(&step);
        let job = |rows: &crate::sched::StepRows| {
            let (from, end) = (rows.from as usize, (rows.from + rows.tokens) as usize);
            let ids = self.scheduler.ids(rows.id);
            let ids = if rows.kind == RowKind::Prefill { ids[from..end].to_vec() } else { Vec::new() };
            let table = self.scheduler.page_table(rows.id).to_vec();
            Job { rows: *rows, table, ids, root: self.lives[&rows.id].root }
        };
        let jobs: Vec<Job> = step.rows.iter().map(job).collect();
        self.check_writers(&jobs);
        self.flights.push_back((step.n, jobs));
        self.check();
        true
    }

    /// The bounds of a step.
    fn inspect(&mut self, step: &Step) {
        let Config { step_tokens, chunk_tokens, logit_rows, slots, .. } = self.config;
        let total: u32 = step.rows.iter().map(|rows| rows.tokens).sum();
        let logits = step.rows.iter().filter(|rows| rows.last).count();
        let ids: BTreeSet<u64> = step.rows.iter().map(|rows| rows.id).collect();
        assert!(total > 0 && total <= step_tokens, "{total} rows of {step_tokens}");
        assert!(logits <= logit_rows as usize, "{logits} rows of logits of {logit_rows}");
        assert!(ids.len() == step.rows.len() && ids.len() <= slots as usize, "{} of {slots} requests", ids.len());
        for rows in &step.rows {
            let life = &self.lives[&rows.id];
            assert!(!life.ended, "request {} has ended and gets rows", rows.id);
            let bound = if rows.kind == RowKind::Decode { 1 } else { chunk_tokens.unwrap_or(u32::MAX) };
            assert!(rows.tokens <= bound, "request {}: {} tokens of {bound}", rows.id, rows.tokens);
            let end = (rows.from + rows.tokens) as usize;
            assert!(end < life.ids_max.max(life.ids.len() + 1), "request {} goes past its end", rows.id);
        }
        if self.config.policy == Policy::Slo {
            self.inspect_slo(step);
        }
        for admitted in &step.admitted {
            let miss = match admitted.miss.map(|miss| miss.reason) {
                None => "missed nothing",
                Some(MissReason::New) => "missed a new page",
                Some(MissReason::Evicted) => "missed an evicted page",
                Some(MissReason::Differs) => "missed by a difference",
            };
            self.seen.count(miss);
            if admitted.cached_tokens > 0 {
                self.seen.count("hit");
            }
            if admitted.resumed {
                self.seen.count("resumed");
            }
        }
        step.preempted.iter().for_each(|_| self.seen.count("preempted"));
    }

    /// The predicted time is inside the bound, or the prefill costs nothing, or it is one tile.
    fn inspect_slo(&self, step: &Step) {
        let (mut decode, mut prefill, mut decode_rows, mut prefill_tokens) = (self.cost.a, 0, 0, 0);
        let mut before = Before::default();
        for rows in &step.rows {
            if rows.kind == RowKind::Decode {
                decode += self.cost.decode_units(rows.from);
                decode_rows += 1;
            } else {
                prefill += self.cost.chunk_units(before, rows.from, rows.tokens);
                prefill_tokens += rows.tokens;
                before.chunks = true;
            }
            before.rows += rows.tokens;
        }
        let bound = match (decode_rows, self.config.itl_slo_nanos) {
            (0, _) => LONE_STEP_NANOS * UNITS_A_NANO,
            (_, Some(nanos)) => nanos * UNITS_A_NANO,
            (_, None) => 2 * decode,
        };
        // One tile runs in any case, and what it is rounded up to is free.
        let least = (decode_rows + PREFILL_TILE_TOKENS).next_multiple_of(PREFILL_TILE_TOKENS) - decode_rows;
        let inside = prefill == 0 || decode + prefill <= bound || prefill_tokens <= least;
        assert!(inside, "{decode} + {prefill} units for {prefill_tokens} prompt tokens, bound {bound}");
    }

    /// No page is written, and no slot used, by two requests whose rows are in flight together.
    fn check_writers(&self, jobs: &[Job]) {
        let (mut writers, mut slots) = (BTreeMap::new(), BTreeMap::new());
        for job in self.flights.iter().flat_map(|flight| &flight.1).chain(jobs) {
            let id = job.rows.id;
            let other = *slots.entry(job.rows.slot).or_insert(id);
            assert!(other == id, "slot {} is used by {other} and {id}", job.rows.slot);
            for &page in job.written_pages() {
                let other = *writers.entry(page).or_insert(id);
                assert!(other == id, "page {page} is written by {other} and {id}");
            }
        }
    }

    /// The device is done with the oldest step.
    fn finish_step(&mut self) {
        let Some((n, jobs)) = self.flights.pop_front() else { return };
        let mut results = Vec::new();
        for job in &jobs {
            let life = self.lives.get_mut(&job.rows.id).expect("was planned");
            let token = self.device.play(job, &life.chain);
            assert!(token.is_some() == job.rows.last, "a token where none is due");
            if let Some(token) = token {
                life.push(token);
                results.push((job.rows.id, token));
            }
        }
        if self.rng.chance(20) {
            results.reverse();
        }
        let applied = self.scheduler.apply(n, &results);
        for id in applied.finished {
            let life = self.lives.get_mut(&id).expect("was here");
            assert!(!life.ended && life.ids.len() == life.ids_max, "request {id}: ended {} early", life.ended);
            life.ended = true;
        }
        for (id, _) in results {
            let stops = self.rng.chance(2);
            let life = self.lives.get_mut(&id).expect("was here");
            if !life.ended {
                assert!(self.scheduler.ids(id) == life.ids, "request {id}: other ids than the device gave");
                if stops {
                    life.ended = true;
                    self.scheduler.finish(id);
                }
            }
        }
        self.check();
    }

    fn fail(&mut self) {
        let Some((n, _)) = self.flights.front() else { return };
        let back = self.scheduler.fail(*n);
        self.seen.count("failed");
        for job in self.flights.iter().flat_map(|flight| &flight.1) {
            self.device.spoil(job);
        }
        self.flights.clear();
        assert!(back.iter().all(|id| !self.lives[id].ended), "an ended request is sent back");
        self.check();
    }

    fn lose_device(&mut self) {
        self.scheduler.device_lost();
        self.device.lose();
        self.flights.clear();
        self.seen.count("lost the device");
        let counters = self.scheduler.counters();
        let held = (counters.running, counters.pages_used, counters.pages_cached);
        assert!(held == (0, 0, 0), "after a loss: {held:?} running, used, cached");
        self.check();
    }

    fn check(&self) {
        self.scheduler.check();
        for (id, life) in self.lives.iter().filter(|(_, life)| life.ended) {
            let gone = self.scheduler.ids(*id).is_empty() && self.scheduler.page_table(*id).is_empty();
            assert!(gone || self.is_in_flight(*id), "request {id} has ended with {} ids and stays", life.ids.len());
        }
    }
}
