//! `serve`: the server's life, from the first port to the last stream.
//!
//! ```text
//! main thread    tokio: listens at once, says 503 until the model is there, drains on a signal
//! engine thread  loads the model, then drives the engine
//! ```

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::load;
use super::sampling_args::random_seed;
use super::say;
use super::serve_args::{ServeArgs, ServeOptions};
use super::serving::{self, Serving};
use super::{files_of_app, run_batch};
use crate::clock::{Clock, unix_seconds};
use crate::engine::executor::Executor;
use crate::error::{Error, Result};
use crate::server::driver::{Driver, Handle, Line, Meter, Rebuild};
use crate::server::http::{self, Lifetime, Loaded, Phase, Server};
use crate::text::tokenizer::Tokenizer;
use crate::trace;

/// Exit status of a process that a second signal ended.
const EXIT_INTERRUPTED: i32 = 130;
/// How long the engine may take to end when all answers have.
const ENGINE_END: Duration = Duration::from_secs(10);

/// Runs the command.
///
/// # Errors
/// Flags, an address that is taken, whatever keeps the model from running, a device that stays lost.
pub(super) fn serve(args: &ServeArgs) -> Result<()> {
    let options = ServeOptions::new(args)?;
    let places = rlimit::increase_nofile_limit(u64::MAX).unwrap_or(0);
    tracing::info!(places, "open files");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|source| Error::io("start threads", "tokio", source))?;
    runtime.block_on(live(options))
}

async fn live(options: ServeOptions) -> Result<()> {
    let ServeOptions { host, port, names, drain_seconds, watchdog_nanos, access, batch, model } = options;
    let (listener, address) = http::bind(&host, port).await?;
    say(&format!("listening at http://{address}"));
    let seed = model.seed.unwrap_or_else(random_seed);
    let run = u64::try_from(unix_seconds()).unwrap_or(0) << 16 | random_seed() & 0xffff;
    let server = Arc::new(Server::new(access, files_of_app(), seed, run));
    let line = Line::new(Clock::start()).with_watchdog(watchdog_nanos);
    let handle = line.handle();
    let ended = Arc::new(AtomicBool::new(false));
    let engine = {
        let (server, ended) = (server.clone(), ended.clone());
        let work = move || {
            let end = End { server, ended };
            engine_life(&end.server, line, names, batch, model)
        };
        thread::Builder::new().name("engine".into()).spawn(work)
    };
    let engine = engine.map_err(|source| Error::io("start a thread", "engine", source))?;
    let stop = {
        let server = server.clone();
        async move {
            signal().await;
            if *server.phase.borrow() == Phase::Loading {
                // There is nothing to drain.
                std::process::exit(EXIT_INTERRUPTED);
            }
            say("finishing what is under way; a second signal ends it at once");
            tokio::spawn(async {
                signal().await;
                std::process::exit(EXIT_INTERRUPTED);
            });
        }
    };
    let lifetime = Lifetime { drain: Duration::from_secs(drain_seconds) };
    http::serve(listener, server, lifetime, stop).await;
    end(engine, &handle, &ended).await
}

/// Tells the server that its engine has ended, also when it broke down.
struct End {
    server: Arc<Server>,
    ended: Arc<AtomicBool>,
}

impl Drop for End {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        self.server.phase.send_replace(Phase::Over);
    }
}

/// Ends the engine's thread, and says what it ended with.
async fn end(engine: thread::JoinHandle<Result<()>>, handle: &Handle, ended: &AtomicBool) -> Result<()> {
    handle.finish();
    let until = tokio::time::Instant::now() + ENGINE_END;
    while !ended.load(Ordering::SeqCst) && tokio::time::Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    if !ended.load(Ordering::SeqCst) {
        return Err(Error::Busy("the engine's last step does not end".into()));
    }
    engine.join().unwrap_or_else(|_| Err(Error::Request("the engine's thread broke down".into())))
}

/// SIGTERM, or Ctrl-C.
async fn signal() {
    #[cfg(unix)]
    {
        let terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate());
        if let Ok(mut terminate) = terminate {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
    }
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Loads the model and drives it until the end.
fn engine_life(
    server: &Server,
    line: Line,
    names: Vec<String>,
    batch: super::batch_args::BatchOptions,
    model: super::options::ModelOptions,
) -> Result<()> {
    let files = Arc::new(load::files(&model)?);
    let tokenizer = Tokenizer::new(&files.description, model.tokenizer.as_deref())?;
    let writer = batch.trace.as_deref().map(trace::Writer::create).transpose()?;
    let handle = line.handle();
    let (serving, meta) = serving::open_by(&files, &model, &batch, None, handle.clock())?;
    let queue_max = batch.queue_max;
    let Serving { engine, pages, context_tokens, vocab, width, adapter, tier, .. } = serving;
    let root = files.name.clone();
    let file = load::file(&model);
    let names = if names.is_empty() { vec![root.clone()] } else { names };
    let meter = Meter::new(&names[0], handle.clock());
    let (template, defaults) = (run_batch::template(&files.description), run_batch::defaults(&files.description));
    let rebuild: Rebuild = Box::new(move || {
        let made = serving::make(&files, &model, &batch, None)?;
        let got = made.executor.model().pages();
        if got != pages {
            let message = format!("KV pages of the rebuilt device: expected {pages}, got {got}");
            return Err(Error::NoDevice(message));
        }
        Ok(Box::new(made.executor) as Box<dyn Executor>)
    });
    let mut writer = writer;
    let tell = Box::new(move |event: &_| {
        if let Some(writer) = &mut writer {
            writer.write(event);
        }
    });
    let driver = Driver::new(engine, line, meter.clone(), meta, tell, rebuild);
    let shown = names.join(", ");
    let created = unix_seconds();
    server.ready(Loaded {
        names,
        root,
        file,
        tokenizer,
        template,
        defaults,
        context_tokens,
        vocab,
        width,
        queue_max,
        engine: handle,
        meter,
        created,
    });
    say(&format!("ready: {shown} on {adapter} ({}), context {context_tokens} tokens", tier.name()));
    let _ = std::io::stderr().flush();
    driver.run()
}
