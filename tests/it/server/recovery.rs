//! A device that fails under load: what is in flight goes on from its tokens on the next one, or is told that there is none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use twostroke::clock::Clock;
use twostroke::engine::event::Event;
use twostroke::engine::executor::{Executor, ModelExecutor, StepOutput};
use twostroke::engine::request::Request;
use twostroke::engine::serving::{Engine, EngineConfig};
use twostroke::error::{Error, Result};
use twostroke::gpu::{GpuPlayer, Options};
use twostroke::kernels::Kernel;
use twostroke::kernels::plan::Plan;
use twostroke::model::ServingRows;
use twostroke::recording::{BufferId, Played, Player, Recording, Ticket};
use twostroke::server::driver::{Answers, Driver, Failure, Handle, Line, Meter, What};
use twostroke::twin::Twin;

use crate::adapters::{find, open};
use crate::engine_serving::{Way, engine_vocab, parts, requests, tiny};

const MODEL: &str = "llama-tied";

/// The twin, until it has begun `steps` steps.
struct Failing {
    inner: ModelExecutor,
    steps: u32,
}

impl Executor for Failing {
    fn submit(&mut self, rows: &[ServingRows<'_>]) -> Result<Ticket> {
        if self.steps == 0 {
            return Err(Error::DeviceLost { reason: "a test took it".into(), adapter: "twin".into() });
        }
        self.steps -= 1;
        self.inner.submit(rows)
    }
    fn poll(&mut self, ticket: Ticket) -> Result<Option<StepOutput>> {
        self.inner.poll(ticket)
    }
    fn wait(&mut self, ticket: Ticket) -> Result<StepOutput> {
        self.inner.wait(ticket)
    }
}

fn executor(steps: u32) -> (EngineConfig, Box<dyn Executor>) {
    let (config, inner) = parts(&tiny(MODEL), Box::new(Twin::new()), Plan::TWIN, &Way::crowd("lost"));
    (config, Box::new(Failing { inner, steps }))
}

/// A driver whose first device lasts `first` steps and each later one `then`; with its handle and the number of rebuilds.
fn driver(first: u32, then: fn(u32) -> u32) -> (Handle, std::thread::JoinHandle<Result<()>>, Arc<AtomicU32>) {
    let line = Line::new(Clock::start());
    let (handle, rebuilds) = (line.handle(), Arc::new(AtomicU32::new(0)));
    let (clock, count) = (handle.clock(), rebuilds.clone());
    let thread = std::thread::spawn(move || {
        let (config, executor) = executor(first);
        let engine = Engine::with_clock(config, executor, Box::new(move || clock.nanos()));
        let rebuild = Box::new(move || Ok(self::executor(then(count.fetch_add(1, Ordering::SeqCst))).1));
        let meta = Event::Cancel { t: 0, id: 0 };
        Driver::new(engine, line, Meter::new("tiny", clock), meta, Box::new(|_| ()), rebuild).run()
    });
    (handle, thread, rebuilds)
}

/// What became of a request: its ids, and why it broke off if it did.
fn read(mut answers: Answers) -> (Vec<u32>, Option<Failure>) {
    let mut ids = Vec::new();
    loop {
        match pollster::block_on(answers.next()).expect("every request ends").what {
            What::Admitted { .. } | What::Pooled(_) => {}
            What::Token(token) => ids.push(token.id),
            What::Finished(_) => return (ids, None),
            What::Failed(failure) => return (ids, Some(failure)),
        }
    }
}

fn ask(handle: &Handle, requests: &[Request]) -> Vec<Answers> {
    requests.iter().map(|request| pollster::block_on(handle.ask(vec![request.clone()])).expect("taken")).collect()
}

#[test]
fn requests_in_flight_go_on_from_their_tokens_when_a_device_is_lost() {
    let requests = requests(engine_vocab(&tiny(MODEL)), 8);
    let answers = |first: u32, then: fn(u32) -> u32| {
        let (handle, thread, rebuilds) = driver(first, then);
        let answers: Vec<_> = ask(&handle, &requests).into_iter().map(read).collect();
        handle.finish();
        thread.join().expect("no panic").expect("it ends well");
        (answers, rebuilds.load(Ordering::SeqCst))
    };
    let (whole, none) = answers(u32::MAX, |_| u32::MAX);
    assert!(none == 0 && whole.iter().all(|(ids, failure)| ids.len() == 40 && failure.is_none()), "{whole:?}");
    // Mid-prefill, then among the first tokens, then in the middle of the answers.
    let (broken, rebuilds) = answers(1, |nth| [5, 20, u32::MAX][nth as usize]);
    assert_eq!((rebuilds, broken), (3, whole));
}

#[test]
fn a_device_that_stays_lost_ends_the_engine_and_every_request_is_told() {
    let requests = requests(engine_vocab(&tiny(MODEL)), 4);
    let (handle, thread, rebuilds) = driver(6, |_| 0);
    let answers: Vec<_> = ask(&handle, &requests).into_iter().map(read).collect();
    assert!(answers.iter().all(|(_, failure)| *failure == Some(Failure::DeviceLost)), "{answers:?}");
    let error = thread.join().expect("no panic").expect_err("the device stays lost");
    assert!(error.to_string().contains("a test took it"), "{error}");
    assert_eq!(rebuilds.load(Ordering::SeqCst), 3);
    assert!(pollster::block_on(handle.ask(vec![requests[0].clone()])).is_err(), "nobody is there any more");
}

/// A real device, which is destroyed as soon as it has taken up `steps` steps.
struct Doomed {
    inner: GpuPlayer<Kernel>,
    steps: u32,
}

impl Player<Kernel> for Doomed {
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
        let ticket = self.inner.submit(recording)?;
        self.steps = self.steps.saturating_sub(1);
        if self.steps == 0 {
            self.inner.destroy();
        }
        Ok(ticket)
    }
    fn poll(&mut self, ticket: Ticket) -> Result<Option<Played>> {
        self.inner.poll(ticket)
    }
    fn wait(&mut self, ticket: Ticket) -> Result<Played> {
        self.inner.wait(ticket)
    }
    fn prepare(&mut self, kernels: &[Kernel]) -> Result<()> {
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

#[test]
fn streams_go_on_when_a_real_device_is_destroyed_and_the_next_request_works() {
    let Some(adapter) = find("llvmpipe") else { return };
    let files = Arc::new(tiny(MODEL));
    let make = {
        let files = files.clone();
        move |steps: u32| {
            let inner = open::<Kernel>(adapter, adapter.capabilities.tier, Options::default());
            let plan = inner.plan();
            parts(&files, Box::new(Doomed { inner, steps }), plan, &Way::crowd("destroyed"))
        }
    };
    let requests = requests(engine_vocab(&files), 6);
    let run = |steps: u32| {
        let line = Line::new(Clock::start());
        let handle = line.handle();
        let (clock, make) = (handle.clock(), make.clone());
        let thread = std::thread::spawn(move || {
            let (config, executor) = make(steps);
            let engine = Engine::with_clock(config, Box::new(executor), Box::new(move || clock.nanos()));
            let rebuild = Box::new(move || Ok(Box::new(make(u32::MAX).1) as Box<dyn Executor>));
            let meta = Event::Cancel { t: 0, id: 0 };
            Driver::new(engine, line, Meter::new("tiny", clock), meta, Box::new(|_| ()), rebuild).run()
        });
        let mut answers: Vec<_> = ask(&handle, &requests).into_iter().map(read).collect();
        answers.extend(ask(&handle, &requests[..1]).into_iter().map(read));
        handle.finish();
        thread.join().expect("no panic").expect("it ends well");
        answers
    };
    let whole = run(u32::MAX);
    assert!(whole.iter().all(|(ids, failure)| ids.len() == 40 && failure.is_none()), "{whole:?}");
    assert_eq!(run(9), whole, "destroyed among the tokens");
}
