//! The server as clients meet it: a process, a port, and the toy model on the CPU twin, so that no adapter is needed.

mod answers;
pub(crate) mod fake;
mod faults;
mod fields;
mod life;
mod page;
pub(crate) mod process;
mod recovery;
mod replay;
mod security;
mod soak;

use std::sync::{Arc, Mutex, PoisonError, Weak};

use process::Server;

/// A server that the tests which run just now share; they leave it as they found it. It ends with the last of them.
fn shared() -> Arc<Server> {
    static SERVER: Mutex<Weak<Server>> = Mutex::new(Weak::new());
    let mut weak = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    weak.upgrade().unwrap_or_else(|| {
        let args = ["--model", "toy", "--device", "twin", "--served-model-name", "gpt-4o,toy"];
        let server = Arc::new(Server::start(&args));
        *weak = Arc::downgrade(&server);
        server
    })
}
