//! A running server's trace: what is live when one begins to watch, and everything after, as server-sent events.

/// The message of an error event.
pub(super) fn told(data: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(data).ok()?;
    value["error"]["message"].as_str().map(str::to_owned)
}

/// The address of the trace of a server that is called as a person types it: `host:port`, or with a scheme and a path.
#[must_use]
pub fn address(typed: &str) -> String {
    let typed = typed.trim().trim_end_matches('/');
    let typed = typed.strip_suffix("/v1/trace").or_else(|| typed.strip_suffix("/v1")).unwrap_or(typed);
    let scheme = if typed.contains("://") { "" } else { "http://" };
    format!("{scheme}{typed}/v1/trace")
}

#[cfg(not(target_arch = "wasm32"))]
pub(super) use native::watch;
#[cfg(target_arch = "wasm32")]
pub(super) use page::watch;

#[cfg(not(target_arch = "wasm32"))]
mod native {
    use std::sync::mpsc::SyncSender;

    use super::super::file::Said;
    use super::super::lines::{Broken, Lines};

    /// Watches on a thread until the server or the listener is gone.
    pub(in super::super) fn watch(
        url: String,
        key: String,
        sender: SyncSender<Said>,
        wake: impl Fn() + Send + 'static,
    ) {
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let last = match runtime {
                Ok(runtime) => runtime.block_on(follow(&url, &key, &sender, &wake)),
                Err(error) => Some(Said::Failed(error.to_string())),
            };
            if let Some(last) = last {
                let _ = sender.send(last);
            }
            wake();
        });
    }

    /// What the stream came to; `None` when nobody listens any more.
    async fn follow(url: &str, key: &str, sender: &SyncSender<Said>, wake: &impl Fn()) -> Option<Said> {
        let client = reqwest::Client::new();
        let mut request = client.get(url).header("accept", "text/event-stream");
        if !key.is_empty() {
            request = request.bearer_auth(key);
        }
        let mut response = match request.send().await {
            Ok(response) => response,
            Err(error) => return Some(Said::Failed(format!("{url}: {}", chain(&error)))),
        };
        if !response.status().is_success() {
            let status = response.status();
            let text: String = response.text().await.unwrap_or_default().chars().take(300).collect();
            return Some(Said::Failed(format!("{url}: expected a trace, got {status}: {text}")));
        }
        let mut lines = Lines::default();
        loop {
            let chunk = match response.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => return Some(Said::Done(Some("the server has closed its trace".into()))),
                Err(error) => return Some(Said::Failed(format!("{url}: the trace broke off: {}", chain(&error)))),
            };
            let mut events = Vec::new();
            let taken = lines.take(&chunk, &mut events);
            if sender.send(Said::Events(events)).is_err() {
                return None;
            }
            wake();
            match taken {
                Ok(()) => {}
                Err(Broken::Long) => return Some(Said::Failed(format!("{url}: a line does not end"))),
                Err(Broken::Told(why)) => return Some(Said::Done(Some(why))),
            }
        }
    }

    /// An error with what caused it.
    fn chain(error: &dyn std::error::Error) -> String {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        text
    }
}

#[cfg(target_arch = "wasm32")]
mod page {
    use std::sync::mpsc::SyncSender;

    use twostroke::engine::event::Event;
    use wasm_bindgen::JsCast;
    use wasm_bindgen::prelude::Closure;
    use web_sys::{EventSource, MessageEvent};

    use super::super::file::Said;
    use super::told;

    /// Watches until the server or the listener is gone. Browsers send no keys with such a stream.
    pub(in super::super) fn watch(
        url: String,
        _key: String,
        sender: SyncSender<Said>,
        wake: impl Fn() + Send + 'static,
    ) {
        let wake = std::rc::Rc::new(wake);
        let source = match EventSource::new(&url) {
            Ok(source) => source,
            Err(_) => {
                let _ = sender.try_send(Said::Failed(format!("{url} is no address")));
                return wake();
            }
        };
        let (heard, woken, open) = (sender.clone(), wake.clone(), source.clone());
        let message = Closure::<dyn FnMut(MessageEvent)>::new(move |message: MessageEvent| {
            let Some(data) = message.data().as_string() else { return };
            let said = match serde_json::from_str::<Event>(&data) {
                Ok(event) => Said::Events(vec![event]),
                Err(_) => match told(data.as_bytes()) {
                    Some(why) => Said::Done(Some(why)),
                    None => return,
                },
            };
            // Nobody listens any more, or nobody has for long.
            if heard.try_send(said).is_err() {
                open.close();
            }
            woken();
        });
        let open = source.clone();
        let error = Closure::<dyn FnMut()>::new(move || {
            open.close();
            let _ = sender.try_send(Said::Failed(format!("{url}: the trace cannot be reached, or broke off")));
            wake();
        });
        source.set_onmessage(Some(message.as_ref().unchecked_ref()));
        source.set_onerror(Some(error.as_ref().unchecked_ref()));
        // They live as long as the page; a closed source calls them no more.
        message.forget();
        error.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_as_people_type_it() {
        for typed in
            ["127.0.0.1:8000", "http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1", " http://127.0.0.1:8000/v1/trace"]
        {
            assert_eq!(address(typed), "http://127.0.0.1:8000/v1/trace", "{typed}");
        }
    }
}
