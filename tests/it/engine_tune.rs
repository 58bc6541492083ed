//! Drivers that lie: kernels that are wrong are found before use, named, and worked around; when none of a class is right, that is said.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use twostroke::engine::executor::{Executor, ModelExecutor};
use twostroke::engine::profile::profile;
use twostroke::engine::tune::{Forgetful, Keeper, Level, Memory, Tuner};
use twostroke::error::{Error, Result};
use twostroke::gpu::Options;
use twostroke::kernels::plan::{Activations, MatrixSizes, Plan};
use twostroke::kernels::sample::Rules;
use twostroke::kernels::{Kernel, KvType};
use twostroke::limits::SUBMITS_A_STEP_MAX;
use twostroke::model::{Extent, LoadOptions, Model, Sample, SequenceRows, ServingRows, Want, toy};
use twostroke::recording::{BufferId, Played, Player, Recording, Ticket};
use twostroke::twin::Twin;

use crate::adapters::for_each_adapter;
use crate::model_stepper::{Device, Stepper};

/// Says of a kernel's label whether it is meant.
type Meant = fn(&str) -> bool;

/// A driver that is wrong about some kernels: what reads see after one of them has run has its signs turned, or it refuses to compile them.
struct Liar<P> {
    inner: P,
    lies_about: Meant,
    refuses: Meant,
    lying: BTreeSet<Ticket>,
    /// Launches only what was prepared.
    strict: bool,
    prepared: Rc<RefCell<BTreeSet<Kernel>>>,
    /// Pieces of each recording.
    pieces: Rc<RefCell<Vec<u32>>>,
}

impl<P> Liar<P> {
    fn new(inner: P, lies_about: Meant) -> Self {
        let (lying, prepared, pieces) = Default::default();
        Self { inner, lies_about, refuses: |_| false, lying, strict: false, prepared, pieces }
    }

    fn twist(&mut self, ticket: Ticket, mut played: Played) -> Played {
        if self.lying.remove(&ticket) {
            // The signs of a few.
            played.words.iter_mut().skip(3).take(20).for_each(|word| *word ^= 1 << 31);
        }
        played
    }
}

impl<P: Player<Kernel>> Player<Kernel> for Liar<P> {
    fn create_buffer(&mut self, label: &str, bytes: u64) -> Result<BufferId> {
        self.inner.create_buffer(label, bytes)
    }
    fn drop_buffer(&mut self, buffer: BufferId) {
        self.inner.drop_buffer(buffer);
    }
    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<()> {
        self.inner.write(buffer, offset, data)
    }
    fn submit(&mut self, recording: &Recording<Kernel>) -> Result<Ticket> {
        for dispatch in recording.dispatches().filter(|_| self.strict) {
            let label = dispatch.kernel.spec().label;
            assert!(self.prepared.borrow().contains(&dispatch.kernel), "{label} is launched and was not built");
        }
        self.pieces.borrow_mut().push(recording.pieces);
        let ticket = self.inner.submit(recording)?;
        if recording.dispatches().any(|dispatch| (self.lies_about)(&dispatch.kernel.spec().label)) {
            self.lying.insert(ticket);
        }
        Ok(ticket)
    }
    fn poll(&mut self, ticket: Ticket) -> Result<Option<Played>> {
        let played = self.inner.poll(ticket)?;
        Ok(played.map(|played| self.twist(ticket, played)))
    }
    fn wait(&mut self, ticket: Ticket) -> Result<Played> {
        let played = self.inner.wait(ticket)?;
        Ok(self.twist(ticket, played))
    }
    fn prepare(&mut self, kernels: &[Kernel]) -> Result<()> {
        if let Some(kernel) = kernels.iter().find(|kernel| (self.refuses)(&kernel.spec().label)) {
            let message = format!("{}: internal compiler error", kernel.spec().label);
            return Err(Error::Gpu { op: "compile kernel", message, adapter: self.adapter().to_owned() });
        }
        self.prepared.borrow_mut().extend(kernels);
        self.inner.prepare(kernels)
    }
    fn binding_bytes_max(&self) -> u64 {
        self.inner.binding_bytes_max()
    }
    fn buffer_bytes_max(&self) -> u64 {
        self.inner.buffer_bytes_max()
    }
    fn adapter(&self) -> &str {
        self.inner.adapter()
    }
}

fn options() -> LoadOptions {
    LoadOptions { kv: KvType::F16, context_tokens: Some(64), ..LoadOptions::default() }
}

fn load(player: &mut dyn Player<Kernel>, plan: Plan) -> Model {
    Model::load(&toy::files().unwrap(), player, plan, &options(), &mut |_, _| Ok(())).unwrap()
}

/// Builds all kernels, and times what `level` says.
fn settle(model: &mut Model, player: &mut dyn Player<Kernel>, level: Level, memory: &mut Memory) -> Result<()> {
    let mut tuner = Tuner::new(level, memory.clone(), Box::new(Forgetful), model);
    let settled = tuner.settle(model, player, &mut |_, _| Ok(()));
    memory.clone_from(tuner.memory());
    settled
}

fn labels(model: &Model) -> Vec<String> {
    model.kernels(Extent::All).iter().map(|kernel| kernel.spec().label).collect()
}

#[test]
fn a_lying_driver_is_caught_named_and_worked_around() {
    for_each_adapter(|label, open| {
        let player = open(Options::default());
        let plan = player.plan();
        // What a product of one row takes first here, and what it takes instead.
        let lies: Meant = if plan.tier.name() == "base" {
            |label| label.starts_with("matmul") && label.contains("_r1c") && label.ends_with("storage")
        } else {
            |label| label.starts_with("matmul") && label.contains("_r1c") && label.contains("subgroup")
        };
        let mut liar = Liar::new(player, lies);
        let mut model = load(&mut liar, plan);
        assert!(labels(&model).iter().any(|label| lies(label)), "{label}: {:?}", labels(&model));
        let mut memory = Memory::default();
        settle(&mut model, &mut liar, Level::Off, &mut memory).unwrap();
        assert!(!labels(&model).iter().any(|label| lies(label)), "{label}: {:?}", labels(&model));
        assert!(!memory.bad.is_empty() && memory.bad.iter().all(|label| lies(label)), "{label}: {:?}", memory.bad);
        // What takes over gives the bits that the driver without lies gives.
        let ids: Vec<u32> = (0..20).map(|i| 40 + 13 * i).collect();
        let feed = |player: Box<dyn Player<Kernel>>, plan: Plan| {
            let mut device = Device { player, plan };
            Stepper::load(&toy::files().unwrap(), &mut device, &options()).unwrap().feed(&ids, 1, Want::LastLogits)
        };
        let worked_around = feed(Box::new(liar), model.plan());
        assert_eq!(worked_around, feed(Box::new(open(Options::default())), plan), "{label}");
        // Known from then on: nothing that was wrong is compiled again.
        let mut again = Liar { refuses: lies, ..Liar::new(open(Options::default()), |_| false) };
        let mut model = load(&mut again, plan);
        settle(&mut model, &mut again, Level::Off, &mut memory).unwrap();
    });
}

#[test]
fn a_driver_that_lies_about_all_variants_is_an_error_that_says_so() {
    let all: [(Meant, &str); 3] = [
        (|label| label.starts_with("matmul") && label.contains("_r8c"), " r8: all 2 variants"),
        (|label| label.starts_with("attn_prefill"), "attn_prefill f16"),
        (|label| label.starts_with("matmul_matrix_gated_"), "matmul_matrix gated"),
    ];
    for (lies, says) in all {
        let mut liar = Liar::new(Twin::<Kernel>::new(), lies);
        let mut model = load(&mut liar, Plan::TWIN_MATRIX);
        let settled = settle(&mut model, &mut liar, Level::Off, &mut Memory::default());
        let error = settled.expect_err("no variant is right").to_string();
        assert!(error.contains(says) && error.contains("wrong or refused") && error.contains("twin"), "{error}");
    }
}

#[test]
fn matrices_of_a_size_that_is_wrong_give_way_to_the_other_and_no_clock_chooses_between_them() {
    let plan = Plan { matrix: MatrixSizes::ALL, ..Plan::TWIN_MATRIX };
    let sizes = |model: &Model| -> BTreeSet<String> {
        let labels = labels(model).into_iter().filter(|label| label.starts_with("matmul_matrix"));
        labels.map(|label| label.rsplit('_').next().expect("a size").to_owned()).collect()
    };
    let settled = |lies: Meant| {
        let (mut liar, mut memory) = (Liar::new(Twin::<Kernel>::new(), lies), Memory::default());
        let mut model = load(&mut liar, plan);
        settle(&mut model, &mut liar, Level::Full, &mut memory).unwrap();
        (sizes(&model), memory)
    };
    let (right, memory) = settled(|_| false);
    assert_eq!(right, ["m16".to_owned()].into());
    assert!(memory.winners.keys().all(|class| !class.contains("matrix")) && !memory.winners.is_empty(), "{memory:?}");
    assert!(memory.good.iter().any(|label| label.starts_with("matmul_matrix")), "{memory:?}");
    let (wrong, memory) = settled(|label| label.starts_with("matmul_matrix") && label.ends_with("_m16"));
    assert_eq!(wrong, ["m8".to_owned()].into());
    assert!(memory.bad.iter().all(|label| label.ends_with("_m16")) && !memory.bad.is_empty(), "{memory:?}");
}

#[test]
fn a_kernel_that_is_refused_is_worked_around_and_the_others_stay() {
    let refuses: Meant = |label| label.contains("_r4c") && label.ends_with("storage");
    let mut picky = Liar { refuses, ..Liar::new(Twin::<Kernel>::new(), |_| false) };
    let mut model = load(&mut picky, Plan::TWIN);
    let before = labels(&model);
    let mut memory = Memory::default();
    settle(&mut model, &mut picky, Level::Off, &mut memory).unwrap();
    let after = labels(&model);
    assert!(before.iter().any(|label| refuses(label)) && !after.iter().any(|label| refuses(label)), "{after:?}");
    let kept = |label: &&String| !refuses(label);
    assert!(before.iter().filter(kept).all(|label| after.contains(label)), "{before:?} {after:?}");
}

#[test]
fn timing_remembers_a_winner_of_each_class_and_does_not_ask_twice() {
    /// Counts what is compiled for the first time.
    #[derive(Clone, Default)]
    struct Counter(Rc<Cell<usize>>);
    impl Keeper for Counter {
        fn compiling(&mut self, labels: &[String]) {
            self.0.set(self.0.get() + labels.len());
        }
        fn compiled(&mut self, _memory: &Memory) {}
    }
    let plan = Plan { activations: Activations::Int8, ..Plan::TWIN };
    let mut memory = Memory::default();
    let settle = |memory: &mut Memory| {
        let (mut player, counter) = (Twin::<Kernel>::new(), Counter::default());
        let mut model = load(&mut player, plan);
        let mut tuner = Tuner::new(Level::Full, memory.clone(), Box::new(counter.clone()), &mut model);
        tuner.settle(&mut model, &mut player, &mut |_, _| Ok(())).unwrap();
        memory.clone_from(tuner.memory());
        (model.plan(), counter.0.get())
    };
    let (first, compiled) = settle(&mut memory);
    assert!(compiled > 10 && memory.bad.is_empty(), "{compiled}, {memory:?}");
    assert!(memory.winners.keys().any(|class| class.contains("r8") && class.ends_with("int8")), "{memory:?}");
    let kept = memory.clone();
    let (second, compiled) = settle(&mut memory);
    assert_eq!((second, compiled, &memory), (first, 0, &kept));
}

#[test]
fn a_winner_that_turns_out_wrong_gives_way_to_the_first_candidate() {
    let lies: Meant = |label| label.starts_with("matmul_q4_1_r8") && label.ends_with("workgroup");
    let mut memory = Memory::default();
    memory.winners.insert("matmul q4_1 r8 f32".into(), 1);
    let mut liar = Liar::new(Twin::<Kernel>::new(), lies);
    let mut model = load(&mut liar, Plan::TWIN);
    settle(&mut model, &mut liar, Level::Off, &mut memory).unwrap();
    assert_eq!(model.plan(), Plan::TWIN);
    assert!(memory.bad.iter().any(|label| lies(label)), "{memory:?}");
}

#[test]
fn timing_tries_the_candidates_of_every_class_on_each_driver() {
    for_each_adapter(|label, open| {
        let mut player = open(Options::default());
        let plan = player.plan();
        let mut model = load(&mut player, plan);
        let mut memory = Memory::default();
        settle(&mut model, &mut player, Level::Full, &mut memory).unwrap();
        assert!(memory.bad.is_empty(), "{label}: {memory:?}");
        // A class that was timed has its candidates compiled and right.
        let variants = |class: &str| memory.good.iter().filter(|one| one.starts_with(class)).count();
        assert!(variants("matmul_q4_1_r1") >= 2 && variants("matmul_gated_q8_0_r1") >= 1, "{label}: {memory:?}");
    });
}

fn load_serving(player: &mut dyn Player<Kernel>, plan: Plan) -> Model {
    let options = LoadOptions { context_tokens: Some(300), slots: 3, sampled_rows: 3, ..options() };
    Model::load(&toy::files().unwrap(), player, plan, &options, &mut |_, _| Ok(())).unwrap()
}

/// Steps of two prompts and their answers, each step by itself and side by side: the tokens, and the steps that waited for kernels.
fn answers(executor: &mut ModelExecutor) -> (Vec<u32>, Vec<bool>) {
    let (rules, pages) = (Rules::default(), [[0, 1, 2, 3], [4, 5, 6, 7]]);
    let ids: Vec<u32> = (0..40).map(|i| 40 + 13 * i).collect();
    let rows = |slot: usize, position: u32, tokens: &'static [u32]| ServingRows {
        slot: slot.try_into().unwrap(),
        position,
        tokens,
        pages: &pages[slot],
        pages_known: 0,
        prompt_tokens: 40,
        history: None,
        pool: false,
        sample: Some(Sample { prompt_tokens: 40, choice: 0, seed: 0, rules: &rules, logprobs: None }),
    };
    let ids: &'static [u32] = ids.leak();
    let steps = [
        vec![rows(0, 0, ids)],
        vec![rows(0, 40, &[])],
        vec![rows(1, 0, ids)],
        vec![rows(0, 41, &[]), rows(1, 40, &[])],
        vec![rows(0, 42, &[]), rows(1, 41, &[])],
    ];
    let (mut tokens, mut waited) = (Vec::new(), Vec::new());
    for step in steps {
        let ticket = executor.submit(&step).unwrap();
        waited.push(executor.building_nanos() > 0);
        tokens.extend(executor.wait(ticket).unwrap().sampled.into_iter().map(|sampled| sampled.id));
    }
    (tokens, waited)
}

#[test]
fn a_usual_first_request_waits_for_its_own_kernels_alone_and_later_steps_for_theirs() {
    let mut twin = Twin::<Kernel>::new();
    let model = load_serving(&mut twin, Plan::TWIN);
    let mut honest = ModelExecutor::new(model, Box::new(twin)).unwrap();
    let expected = answers(&mut honest).0;
    // Right about all that a first request launches, wrong about the first candidate for two rows.
    let lies: Meant = |label| label.contains("_r2c") && label.ends_with("storage");
    let mut liar = Liar { strict: true, ..Liar::new(Twin::<Kernel>::new(), lies) };
    let prepared = Rc::clone(&liar.prepared);
    let mut model = load_serving(&mut liar, Plan::TWIN);
    let (first, all) = (model.kernels(Extent::First), model.kernels(Extent::All));
    assert!(first.iter().all(|kernel| all.contains(kernel)), "{first:?} {all:?}");
    let mut tuner = Tuner::new(Level::Full, Memory::default(), Box::new(Forgetful), &mut model);
    let mut seen = Vec::new();
    let mut progress = |built: usize, of: usize| {
        seen.push((built, of));
        Ok(())
    };
    tuner.build(&mut model, &mut liar, Extent::First, &mut progress).unwrap();
    assert_eq!((seen[0], *seen.last().unwrap()), ((0, first.len()), (first.len(), first.len())));
    assert_eq!(prepared.borrow().iter().copied().collect::<Vec<_>>(), first, "no other");
    let mut executor = ModelExecutor::tuned(model, Box::new(liar), tuner);
    let (tokens, waited) = answers(&mut executor);
    assert_eq!(tokens, expected);
    assert_eq!(waited, [false, false, false, true, false], "two rows are new to the fourth step");
    let built = |label: &str| prepared.borrow().iter().any(|kernel| kernel.spec().label.contains(label));
    assert!(built("_r2c") && !built("_r4c") && !built("sample_mass"), "{prepared:?}");
    // What nobody waits for is done when there is time.
    while executor.work_ahead(Extent::All).unwrap() {}
    assert!(built("_r4c") && built("sample_mass"), "{prepared:?}");
    assert_eq!(answers(&mut executor), (expected, vec![false; 5]));
}

#[test]
fn a_step_whose_kernels_are_all_wrong_is_an_error_before_anything_is_launched() {
    let lies: Meant = |label| label.contains("_r2c");
    let mut liar = Liar { strict: true, ..Liar::new(Twin::<Kernel>::new(), lies) };
    let mut model = load_serving(&mut liar, Plan::TWIN);
    let mut tuner = Tuner::new(Level::Off, Memory::default(), Box::new(Forgetful), &mut model);
    tuner.build(&mut model, &mut liar, Extent::First, &mut |_, _| Ok(())).unwrap();
    let mut executor = ModelExecutor::tuned(model, Box::new(liar), tuner);
    let rules = Rules::default();
    let row = |slot| ServingRows {
        slot,
        position: 0,
        tokens: &[7],
        pages: &[0],
        pages_known: 0,
        prompt_tokens: 1,
        history: None,
        pool: false,
        sample: Some(Sample { prompt_tokens: 1, choice: 0, seed: 0, rules: &rules, logprobs: None }),
    };
    let ticket = executor.submit(&[row(0)]).unwrap();
    executor.wait(ticket).unwrap();
    let error = executor.submit(&[row(0), row(1)]).expect_err("no variant is right").to_string();
    assert!(error.contains(" r2: all 2 variants"), "{error}");
    let ticket = executor.submit(&[row(1)]).unwrap();
    executor.wait(ticket).unwrap();
}

#[test]
fn a_profile_is_played_in_submits_as_short_as_asked_for() {
    let mut player = Liar::new(Twin::<Kernel>::new(), |_| false);
    let model = load(&mut player, Plan::TWIN);
    let sequence =
        SequenceRows { slot: 0, position: 0, tokens: &[5, 6, 7], pages: &[0], prompt_tokens: 3, want: Want::Argmax };
    let mut pieces = |max_submit_nanos: u64| {
        player.pieces.borrow_mut().clear();
        profile(&model, &mut player, &[sequence], max_submit_nanos).unwrap();
        player.pieces.borrow().clone()
    };
    let most = u32::try_from(SUBMITS_A_STEP_MAX).unwrap();
    assert!(pieces(1).iter().all(|&pieces| pieces == most), "nothing is done within a nanosecond");
    let roomy = pieces(u64::MAX);
    assert!(roomy.len() > 3 && roomy.iter().all(|&pieces| pieces == 1), "{roomy:?}");
}

#[test]
fn a_kernel_that_killed_a_process_and_has_no_other_variant_is_tried_again() {
    let mut player = Twin::<Kernel>::new();
    let mut model = load(&mut player, Plan::TWIN);
    let kernels = model.kernels(Extent::All);
    let lonely = kernels.iter().find(|kernel| kernel.class().is_none()).expect("one").spec().label;
    let mut memory = Memory::default();
    memory.bad.insert(lonely.clone());
    settle(&mut model, &mut player, Level::Off, &mut memory).unwrap();
    assert!(memory.bad.is_empty() && memory.good.contains(&lonely), "{memory:?}");
}
