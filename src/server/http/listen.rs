//! Connections: as many as are allowed, each with its limits, until the server has drained.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::{Phase, Shared, route};
use crate::error::{Error, Result};
use crate::limits::{CONNECTIONS_MAX, HEAD_BYTES_MAX, HEAD_SECONDS_MAX};
use crate::server::driver::Failure;

/// Headers of one request.
const HEADERS_MAX: usize = 100;
/// Pause after a connection that could not be taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long streams may take to tell their clients that the server goes down.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// When the server ends.
pub struct Lifetime {
    /// How long streams may go on after the signal.
    pub drain: Duration,
}

/// Takes a port.
///
/// # Errors
/// `Io` when the address is taken or none of ours.
pub async fn bind(host: &str, port: u16) -> Result<(TcpListener, SocketAddr)> {
    let place = format!("{host}:{port}");
    let listener = TcpListener::bind((host, port)).await.map_err(|source| Error::io("listen", &place, source))?;
    let address = listener.local_addr().map_err(|source| Error::io("listen", &place, source))?;
    Ok((listener, address))
}

/// Serves until `stop` resolves, then drains: nothing new is taken, streams finish within the time they have, the rest is
/// told. Ends early when the engine is over.
pub async fn serve(listener: TcpListener, server: Shared, lifetime: Lifetime, stop: impl Future<Output = ()>) {
    let routes = route::router(server.clone());
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let (closing, closes) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut phase = server.phase.subscribe();
    let over = async move {
        let _ = phase.wait_for(|phase| *phase == Phase::Over).await;
    };
    let (mut stop, mut over) = (pin!(stop), pin!(over));
    loop {
        while connections.try_join_next().is_some() {}
        let place = tokio::select! {
            biased;
            () = &mut stop => break,
            () = &mut over => break,
            place = places.clone().acquire_owned() => place.expect("the semaphore stays open"),
        };
        let accepted = tokio::select! {
            biased;
            () = &mut stop => break,
            () = &mut over => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, _)) => {
                let service = TowerToHyperService::new(routes.clone());
                let closes = closes.clone();
                connections.spawn(async move {
                    connection(socket, service, Some(closes)).await;
                    drop(place);
                });
            }
            Err(error) => {
                // Out of file descriptors, or a client that left at once: others go on.
                tracing::warn!(%error, "a connection was not taken");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    // New connections are still told that there is nothing for them, until the last stream is done.
    server.phase.send_if_modified(|phase| {
        let goes_on = *phase != Phase::Over;
        if goes_on {
            *phase = Phase::Draining;
        }
        goes_on
    });
    tracing::info!(connections = connections.len(), "draining");
    let _ = closing.send(true);
    let told = tokio::time::sleep(lifetime.drain);
    let mut told = pin!(told);
    loop {
        tokio::select! {
            () = &mut told => break,
            accepted = listener.accept() => match (accepted, places.clone().try_acquire_owned()) {
                // It is told so, once.
                (Ok((socket, _)), Ok(place)) => {
                    let service = TowerToHyperService::new(routes.clone());
                    connections.spawn(async move {
                        connection(socket, service, None).await;
                        drop(place);
                    });
                }
                (Ok(_), Err(_)) => {}
                (Err(_), _) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            joined = connections.join_next() => if joined.is_none() { return },
        }
    }
    drop(listener);
    if let Some(loaded) = server.loaded.get() {
        tracing::warn!(connections = connections.len(), "the time to drain is over: what is left is broken off");
        loaded.engine.fail_all(Failure::ShuttingDown);
    }
    let _ = tokio::time::timeout(LAST_WORDS, async { while connections.join_next().await.is_some() {} }).await;
}

/// Serves one connection until `closes`, or for one request where there is none. A client that shuts its sending side is taken as gone,
/// as uvicorn does: nothing else tells of a client that waits for a whole answer and leaves.
async fn connection(
    socket: TcpStream,
    service: TowerToHyperService<axum::Router>,
    closes: Option<watch::Receiver<bool>>,
) {
    // Tokens are small and must not wait for more of them.
    let _ = socket.set_nodelay(true);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(closes.is_some())
        .header_read_timeout(Duration::from_secs(HEAD_SECONDS_MAX))
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(socket), service);
    let mut connection = pin!(connection);
    let closing = async move {
        match closes {
            Some(mut closes) => drop(closes.wait_for(|closes| *closes).await),
            None => std::future::pending().await,
        }
    };
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = closing => {
            // The answer that is under way is the connection's last.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke off");
    }
}
