//! The worker as a task of the page: it polls, and lets the page draw between.

use std::rc::Rc;

use futures_channel::mpsc::UnboundedReceiver;
use gloo_timers::future::TimeoutFuture;
use js_sys::Uint8Array;
use twostroke::error::{Error, Result};
use wasm_bindgen::prelude::{Closure, JsCast, JsValue, wasm_bindgen};

use super::worker::Worker;
use super::{Command, Said, Says};

#[wasm_bindgen(module = "/web/models.js")]
extern "C" {
    #[wasm_bindgen(catch)]
    async fn fetch_model(url: &str, progress: &Closure<dyn FnMut(f64, f64) -> bool>) -> Result<JsValue, JsValue>;
}

pub(super) fn start(mut commands: UnboundedReceiver<Command>, says: Says) {
    wasm_bindgen_futures::spawn_local(async move {
        let mut worker = Worker::new(says);
        loop {
            while let Ok(command) = commands.try_recv() {
                worker.command(command).await;
            }
            if worker.is_idle() {
                let Ok(command) = commands.recv().await else { return };
                worker.command(command).await;
            } else {
                worker.turn(false).await;
                // A step in flight is answered between two turns of the page.
                TimeoutFuture::new(0).await;
            }
        }
    });
}

/// The bytes of a model of the page's own origin.
pub(super) async fn fetch(url: &str, says: &Rc<Says>) -> Result<Vec<u8>> {
    let told = Rc::clone(says);
    let progress = Closure::new(move |done: f64, total: f64| {
        told.say(Said::Busy { what: "fetching", done: whole(done), total: whole(total), is_bytes: true });
        !told.is_cancelled()
    });
    match fetch_model(url, &progress).await {
        Ok(bytes) => Ok(bytes.unchecked_into::<Uint8Array>().to_vec()),
        Err(_) if says.is_cancelled() => Err(Error::Cancelled),
        Err(error) => Err(Error::Fetch(words(&error))),
    }
}

/// An exception in words.
fn words(error: &JsValue) -> String {
    let message = error.dyn_ref::<js_sys::Error>().map(|error| String::from(error.message()));
    message.or_else(|| error.as_string()).unwrap_or_else(|| "the browser gives no reason".into())
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes, and such casts saturate")]
fn whole(bytes: f64) -> u64 {
    bytes as u64
}
