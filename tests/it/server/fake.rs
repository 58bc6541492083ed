//! The whole server in this process over a device that computes nothing: its steps last as long as it is told, it answers every
//! prompt with tokens that depend on nothing but the prompt, and it fails when it is told.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use twostroke::clock::Clock;
use twostroke::engine::event::Event;
use twostroke::engine::executor::{Executor, StepOutput};
use twostroke::engine::sampling::SamplingParams;
use twostroke::engine::serving::{Engine, EngineConfig};
use twostroke::error::{Error, Result};
use twostroke::kernels::argmax::NOT_FINITE;
use twostroke::kernels::sample::Sampled;
use twostroke::limits;
use twostroke::model::{ServingRows, toy};
use twostroke::recording::Ticket;
use twostroke::sched::{self, Policy};
use twostroke::server::driver::{Driver, Line, Meter};
use twostroke::server::http::{self, Access, Lifetime, Loaded};
use twostroke::text::tokenizer::Tokenizer;

/// Requests that run at once.
pub(crate) const SLOTS: u32 = 256;
/// How long a step may take.
pub(crate) const WATCHDOG: Duration = Duration::from_millis(500);
/// Pages of the pool.
pub(crate) const PAGES: u32 = 1 << 16;

/// What befalls a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The device is lost.
    Lost,
    /// Its memory does not suffice.
    OutOfMemory,
    /// It takes longer.
    Slow(Duration),
    /// The first token that it yields is of no finite logits.
    NotFinite,
}

/// Says what befalls which step; steps of all devices are counted through.
pub(crate) type Faults = Arc<dyn Fn(u64) -> Option<Fault> + Send + Sync>;

/// What tests look at while it runs.
#[derive(Default)]
pub(crate) struct Seen {
    /// Steps that were begun.
    pub(crate) steps: AtomicU64,
    /// Steps with a fault that took effect.
    pub(crate) faults: AtomicU64,
    /// Devices that were made after the first.
    pub(crate) rebuilds: AtomicU64,
    /// Pages that are in use, by the last step.
    pub(crate) pages_used: AtomicU64,
}

/// The device.
pub(crate) struct Device {
    step: Duration,
    faults: Faults,
    seen: Arc<Seen>,
    /// Ids that are words.
    words: Arc<[u32]>,
    /// Of each slot, what its tokens depend on.
    keys: Vec<u64>,
    pending: VecDeque<(Ticket, Instant, Option<Error>, StepOutput)>,
    last_done: Instant,
    next_ticket: u64,
}

impl Device {
    pub(crate) fn new(step: Duration, faults: Faults, seen: Arc<Seen>, words: Arc<[u32]>) -> Self {
        let keys = vec![0; SLOTS as usize];
        let (pending, last_done, next_ticket) = (VecDeque::new(), Instant::now(), 0);
        Self { step, faults, seen, words, keys, pending, last_done, next_ticket }
    }

    fn sampled(&mut self, row: &ServingRows<'_>) -> Option<Sampled> {
        let slot = row.slot as usize;
        if let Some(ids) = row.history {
            self.keys[slot] = ids[..row.prompt_tokens as usize].iter().fold(7, |key, id| mix(key ^ u64::from(*id)));
        }
        row.sample?;
        let position = u64::from(row.position) + row.tokens.len().max(1) as u64;
        let at = mix(self.keys[slot] ^ position) % self.words.len() as u64;
        let id = self.words[usize::try_from(at).expect("below the length")];
        Some(Sampled { id, logprob: None, top: Vec::new() })
    }

    fn answer(&mut self, ticket: Ticket) -> Result<StepOutput> {
        let (first, _, error, output) = self.pending.pop_front().expect("a ticket is answered once");
        assert_eq!(first, ticket, "steps are answered in their order");
        error.map_or(Ok(output), Err)
    }
}

fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Executor for Device {
    fn submit(&mut self, rows: &[ServingRows<'_>]) -> Result<Ticket> {
        let fault = (self.faults)(self.seen.steps.fetch_add(1, Ordering::SeqCst));
        let mut sampled: Vec<Sampled> = rows.iter().filter_map(|row| self.sampled(row)).collect();
        let (mut lasts, mut error) = (self.step, None);
        match fault {
            None => {}
            // A driver may say so at once, or only when the result is asked for.
            Some(Fault::Lost) if self.next_ticket.is_multiple_of(2) => {
                self.seen.faults.fetch_add(1, Ordering::SeqCst);
                return Err(Error::DeviceLost { reason: "a test took it".into(), adapter: "fake".into() });
            }
            Some(Fault::Lost) => {
                error = Some(Error::DeviceLost { reason: "a test took it".into(), adapter: "fake".into() });
            }
            Some(Fault::OutOfMemory) => {
                error = Some(Error::OutOfMemory { what: "a step".into(), bytes: 1 << 40, place: "fake".into() });
            }
            Some(Fault::Slow(more)) => lasts += more,
            Some(Fault::NotFinite) => {
                if let Some(first) = sampled.first_mut() {
                    first.id = NOT_FINITE;
                    self.seen.faults.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
        self.seen.faults.fetch_add(u64::from(error.is_some()), Ordering::SeqCst);
        self.last_done = self.last_done.max(Instant::now()) + lasts;
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let output = StepOutput { sampled, ..StepOutput::default() };
        self.pending.push_back((ticket, self.last_done, error, output));
        Ok(ticket)
    }

    fn poll(&mut self, ticket: Ticket) -> Result<Option<StepOutput>> {
        let done = self.pending.front().expect("a step is in flight").1;
        if done > Instant::now() { Ok(None) } else { self.answer(ticket).map(Some) }
    }

    fn wait(&mut self, ticket: Ticket) -> Result<StepOutput> {
        let done = self.pending.front().expect("a step is in flight").1;
        std::thread::sleep(done.saturating_duration_since(Instant::now()));
        self.answer(ticket)
    }
}

/// How the engine over it is set up.
pub(crate) fn config(vocab: u32) -> EngineConfig {
    let sched = sched::Config {
        pages: PAGES,
        slots: SLOTS,
        step_tokens: 2048,
        chunk_tokens: None,
        context_tokens: 4096,
        queue_max: limits::QUEUE_MAX,
        queue_tokens_max: limits::QUEUE_TOKENS_MAX,
        policy: Policy::Fcfs,
        itl_slo_nanos: None,
        prefix_caching: false,
        cache_generated: true,
        logit_rows: SLOTS,
    };
    EngineConfig::new(sched, vocab, [7; 32])
}

/// The toy's tokenizer, and its ids that are words of their own.
pub(crate) fn words() -> (Tokenizer, Arc<[u32]>) {
    let files = toy::files().expect("the toy is built in");
    let tokenizer = Tokenizer::new(&files.description, None).expect("the toy has a tokenizer");
    let is_word =
        |id: &u32| tokenizer.spelling(*id).is_ok_and(|word| word.iter().all(u8::is_ascii_graphic) && !word.is_empty());
    let special = tokenizer.special_tokens();
    let words = (0..tokenizer.vocab_size()).filter(|id| is_word(id) && !special.contains(id)).collect();
    (tokenizer, words)
}

/// A server over it.
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Seen>,
    /// Of the server's own threads.
    pub(crate) runtime: tokio::runtime::Handle,
    stop: Option<oneshot::Sender<()>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Fake {
    /// Starts one whose steps last `step`.
    pub(crate) fn start(step: Duration, faults: Faults) -> Self {
        let (tokenizer, words) = words();
        let vocab = tokenizer.vocab_size();
        let seen = Arc::new(Seen::default());
        let line = Line::new(Clock::start()).with_watchdog(u64::try_from(WATCHDOG.as_nanos()).expect("half a second"));
        let handle = line.handle();
        let clock = handle.clock();
        let meter = Meter::new("fake", clock);
        let engine = {
            let (seen, meter, faults) = (seen.clone(), meter.clone(), faults.clone());
            let run = move || {
                let device = Device::new(step, faults.clone(), seen.clone(), words.clone());
                let engine = Engine::with_clock(config(vocab), Box::new(device), Box::new(move || clock.nanos()));
                let (again, watched) = (seen.clone(), seen.clone());
                let rebuild = Box::new(move || {
                    again.rebuilds.fetch_add(1, Ordering::SeqCst);
                    Ok(Box::new(Device::new(step, faults.clone(), again.clone(), words.clone())) as Box<dyn Executor>)
                });
                let tell = Box::new(move |event: &Event| {
                    if let Event::Step { pages_used, .. } = event {
                        watched.pages_used.store(u64::from(*pages_used), Ordering::SeqCst);
                    }
                });
                let meta = Event::Cancel { t: 0, id: 0 };
                // How it ends is for those that it answers.
                let _ = Driver::new(engine, line, meter, meta, tell, rebuild).run();
            };
            std::thread::Builder::new().name("fake engine".into()).spawn(run).expect("a thread")
        };
        let access =
            Access { keys: Vec::new(), origins: Vec::new(), hosts: Vec::new(), is_loopback: true, shared_cache: false };
        let server = Arc::new(http::Server::new(access, None, 1, 1));
        server.ready(Loaded {
            names: vec!["fake".into()],
            root: "fake".into(),
            file: None,
            tokenizer,
            template: None,
            defaults: SamplingParams::default(),
            context_tokens: 4096,
            vocab,
            width: 1,
            queue_max: limits::QUEUE_MAX,
            engine: handle.clone(),
            meter,
            created: 0,
        });
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).thread_name("fake io").enable_all().build();
        let runtime = runtime.expect("threads");
        let (stop, stopped) = oneshot::channel();
        let (listener, address) = runtime.block_on(http::bind("127.0.0.1", 0)).expect("a port");
        let io = runtime.handle().clone();
        let serving = std::thread::spawn(move || {
            let stopped = async {
                let _ = stopped.await;
            };
            runtime.block_on(http::serve(listener, server, Lifetime { drain: Duration::ZERO }, stopped));
            handle.finish();
        });
        Self { address, seen, runtime: io, stop: Some(stop), threads: vec![engine, serving] }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        drop(self.stop.take());
        for thread in self.threads.drain(..) {
            if thread.join().is_err() && !std::thread::panicking() {
                panic!("a thread of the server panicked");
            }
        }
    }
}

/// No fault at all.
pub(crate) fn sound() -> Faults {
    Arc::new(|_| None)
}
