//! A device that is lost while answers are made: on the toy, by the processor.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, channel};

use twostroke::engine::executor::StepOutput;
use twostroke::engine::sampling::SamplingParams;
use twostroke::model::ServingRows;
use twostroke::recording::Ticket;

use super::*;
use crate::settings::Device;

const TOKENS: u32 = 8;

/// A device that is gone.
struct Gone;

impl Executor for Gone {
    fn submit(&mut self, _: &[ServingRows<'_>]) -> Result<Ticket> {
        Err(Error::DeviceLost { reason: "a test took it".into(), adapter: "twin".into() })
    }
    fn poll(&mut self, _: Ticket) -> Result<Option<StepOutput>> {
        unreachable!("nothing was submitted")
    }
    fn wait(&mut self, _: Ticket) -> Result<StepOutput> {
        unreachable!("nothing was submitted")
    }
}

/// A worker with the model open, and what it says.
fn worker(source: Source) -> (Worker, Receiver<Said>) {
    let (sender, said) = channel();
    let says = Says { sender, wake: Box::new(|| ()), cancel: Arc::new(AtomicBool::new(false)) };
    let mut worker = Worker::new(says);
    let settings = Settings { device: Device::Twin, context_tokens: Some(128), ..Settings::default() };
    pollster::block_on(worker.open(source, settings));
    assert!(worker.served.is_some(), "{:?}", said.try_iter().last());
    (worker, said)
}

fn ask(worker: &mut Worker, id: AskId, text: &str) {
    let sampling = SamplingParams { temperature: 0.8, seed: Some(id), ..SamplingParams::default() };
    let prompt = Prompt::Text(text.into());
    worker.ask(&Ask { id, prompt, max_tokens: Some(TOKENS), sampling, ignore_eos: true });
}

/// Turns until two answers have ended; the device is taken away after `taken_after` turns. What was said meanwhile.
fn play(worker: &mut Worker, said: &Receiver<Said>, taken_after: Option<u32>) -> Vec<Said> {
    ask(worker, 1, "The fox went");
    ask(worker, 2, "Once upon a time there was");
    let mut turns = 0;
    while !worker.is_idle() {
        if taken_after == Some(turns) {
            worker.served.as_mut().expect("a model").opened.engine.replace_executor(Box::new(Gone));
        }
        pollster::block_on(worker.turn(true));
        turns += 1;
    }
    said.try_iter().collect()
}

/// Ids and end of an answer.
fn answer(said: &[Said], wanted: AskId) -> (Vec<u32>, Option<Finish>) {
    let ids = said.iter().filter_map(|said| match said {
        Said::Text { id, token, .. } if *id == wanted => Some(*token),
        _ => None,
    });
    let finish = said.iter().find_map(|said| match said {
        Said::Ended { id, finish } if *id == wanted => Some(finish.clone()),
        _ => None,
    });
    (ids.collect(), finish)
}

#[test]
fn answers_go_on_where_they_were_on_a_new_device() {
    let (mut worker, said) = worker(Source::Toy);
    let whole = play(&mut worker, &said, None);
    let broken = play(&mut worker, &said, Some(4));
    for id in [1, 2] {
        let (ids, finish) = answer(&whole, id);
        assert_eq!((ids.len(), finish), (TOKENS as usize, Some(Finish::Length)));
        assert_eq!(answer(&broken, id), answer(&whole, id), "the same answer, each token once");
    }
    let at = |good: fn(&Said) -> bool| broken.iter().position(good);
    let lost = at(|said| matches!(said, Said::Lost(why) if why.contains("a test took it"))).expect("it is told");
    let opened = at(|said| matches!(said, Said::Opened(_))).expect("so is the new one");
    assert!(lost < opened);
    assert!(!whole.iter().any(|said| matches!(said, Said::Lost(_))));
}

#[test]
fn a_device_that_cannot_be_had_again_ends_answers_and_gives_the_model_up() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("toy.gguf");
    let toy = concat!(env!("CARGO_MANIFEST_DIR"), "/../assets/smollm2-draft-7m.q4_1.gguf");
    std::fs::copy(toy, &path).expect("copied");
    let (mut worker, said) = worker(Source::Named(Some(path.display().to_string())));
    std::fs::remove_file(&path).expect("removed");
    let broken = play(&mut worker, &said, Some(2));
    for id in [1, 2] {
        let (ids, finish) = answer(&broken, id);
        assert!(ids.len() < TOKENS as usize);
        assert!(matches!(&finish, Some(Finish::Failed(why)) if why.contains("open the model again")), "{finish:?}");
    }
    assert!(matches!(broken.last(), Some(Said::Refused(why)) if why.contains("given up after")));
    let tries = broken.iter().filter(|said| matches!(said, Said::Lost(_))).count();
    assert_eq!(tries, REBUILDS_MAX as usize);
    ask(&mut worker, 3, "Are you there?");
    assert!(matches!(said.try_recv(), Ok(Said::Ended { finish: Finish::Failed(why), .. }) if why.contains("no model")));
}
