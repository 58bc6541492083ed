//! The trace for those who watch: what is live now, then every event.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::broadcast;

use crate::engine::event::Event;
use crate::engine::request::RequestId;
use crate::limits::FEED_EVENTS_MAX;

/// Tells events to watchers. Nothing is formatted while there are none.
#[derive(Clone)]
pub(super) struct Feed {
    sender: broadcast::Sender<Arc<str>>,
    now: Arc<Mutex<Now>>,
}

/// What a newcomer must know.
struct Now {
    meta: Event,
    cost: Option<Event>,
    /// Arrival and last admission of requests that live.
    live: BTreeMap<RequestId, Vec<Event>>,
}

impl Feed {
    pub(super) fn new(meta: &Event) -> Self {
        let now = Now { meta: meta.clone(), cost: None, live: BTreeMap::new() };
        Self { sender: broadcast::channel(FEED_EVENTS_MAX).0, now: Arc::new(Mutex::new(now)) }
    }

    /// Passes an event on.
    pub(super) fn tell(&self, event: &Event) {
        self.now.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take(event);
        if self.sender.receiver_count() > 0 {
            let _ = self.sender.send(line(event));
        }
    }

    /// What is live, and what follows.
    pub(super) fn watch(&self) -> (Vec<Arc<str>>, broadcast::Receiver<Arc<str>>) {
        let now = self.now.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let events = [&now.meta].into_iter().chain(&now.cost).chain(now.live.values().flatten());
        (events.map(line).collect(), self.sender.subscribe())
    }
}

impl Now {
    fn take(&mut self, event: &Event) {
        match event {
            Event::Arrive { id, .. } => {
                self.live.insert(*id, vec![event.clone()]);
            }
            Event::Admit { id, .. } | Event::Preempt { id, .. } => {
                if let Some(events) = self.live.get_mut(id) {
                    events.truncate(1);
                    events.push(event.clone());
                }
            }
            Event::Finish { id, .. } => {
                self.live.remove(id);
            }
            Event::Cost { .. } => self.cost = Some(event.clone()),
            _ => {}
        }
    }
}

fn line(event: &Event) -> Arc<str> {
    serde_json::to_string(event).expect("an event serialises").into()
}
