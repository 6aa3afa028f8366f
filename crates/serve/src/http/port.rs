// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connections of the HTTP port: few at a time, and none of a client that asks for nothing.
//!
//! Each connection takes a descriptor, and those are few (1024 as a rule). axum by itself takes any
//! number of connections and waits for them for ever. So a client of the port could keep NBD's
//! clients out (tests: `http::tests`, and `who_asks_for_nothing_over_http_keeps_nobody_out`). When
//! all places are taken, the client that is idle for longest makes room for a new one at once
//! ([`Places`]).

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, Sleep};

use crate::places::{Close, Places};
use crate::unaccepted::Unaccepted;

/// Clients at a time. For the next one the connection of an idle client is closed.
pub(crate) const CONNECTIONS_MAX: usize = 16;
/// How long a client may take from one answer to the next, or to its first.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// When to accept again, if descriptors or memory have run out.
const ACCEPT_AGAIN: Duration = Duration::from_secs(1);

/// The connected clients.
#[derive(Debug, Default)]
struct Crowd {
    places: Mutex<Places<Option<oneshot::Sender<()>>>>,
    /// A client has left, or become idle.
    changed: Notify,
}

impl Close for Option<oneshot::Sender<()>> {
    fn close(&mut self) {
        // The connection notices that its sender has gone.
        self.take();
    }
}

impl Crowd {
    fn lock(&self) -> MutexGuard<'_, Places<Option<oneshot::Sender<()>>>> {
        // Nothing here can panic halfway through a change.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a free place, which an idle client makes at once.
    async fn place(self: &Arc<Self>) -> (Place, oneshot::Receiver<()>) {
        loop {
            {
                let mut places = self.lock();
                if places.len() < CONNECTIONS_MAX {
                    let (close, closed) = oneshot::channel();
                    let id = places.add(Some(close), std::time::Instant::now());
                    return (Place { crowd: Arc::clone(self), id }, closed);
                }
                places.make_room();
            }
            self.changed.notified().await;
        }
    }
}

/// A client's place, given back when it is dropped.
#[derive(Debug)]
struct Place {
    crowd: Arc<Crowd>,
    id: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.crowd.lock().remove(self.id);
        self.crowd.changed.notify_one();
    }
}

/// A client, as its requests know it.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    crowd: Arc<Crowd>,
    id: u64,
}

impl Peer {
    /// The client has sent a whole request.
    pub(super) fn asks(&self) {
        self.crowd.lock().asks(self.id);
    }

    /// The answer is there: from now on the client is waited for.
    pub(super) fn idles(&self) {
        self.crowd.lock().idles(self.id, std::time::Instant::now());
        self.crowd.changed.notify_one();
    }
}

impl Connected<IncomingStream<'_, Port>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Port>) -> Self {
        stream.remote_addr().clone()
    }
}

/// The listening socket.
#[derive(Debug)]
pub(super) struct Port {
    listener: TcpListener,
    crowd: Arc<Crowd>,
    patience: Duration,
    unaccepted: Unaccepted,
}

impl Port {
    pub(super) fn new(listener: TcpListener, patience: Duration) -> Self {
        Self { listener, crowd: Arc::default(), patience, unaccepted: Unaccepted::default() }
    }
}

impl axum::serve::Listener for Port {
    type Io = Client;
    type Addr = Peer;

    async fn accept(&mut self) -> (Client, Peer) {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    self.unaccepted.over();
                    let (place, closed) = self.crowd.place().await;
                    let peer = Peer { crowd: Arc::clone(&self.crowd), id: place.id };
                    let late = Box::pin(tokio::time::sleep(self.patience));
                    return (Client { stream, late, patience: self.patience, closed, _place: place }, peer);
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    self.unaccepted.failed("http", &error);
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Peer> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A client's socket.
#[derive(Debug)]
pub(super) struct Client {
    stream: TcpStream,
    /// Over when it has taken too long.
    late: Pin<Box<Sleep>>,
    patience: Duration,
    /// Resolves when the place is needed.
    closed: oneshot::Receiver<()>,
    _place: Place,
}

impl Client {
    /// Gives up when the client takes longer than it may, or when its place is needed.
    fn in_time<T>(&mut self, polled: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        match polled {
            Poll::Pending if Pin::new(&mut self.closed).poll(cx).is_ready() => {
                Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()))
            }
            Poll::Pending => self.late.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into())),
            ready => ready,
        }
    }
}

impl AsyncRead for Client {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.in_time(polled, cx)
    }
}

impl AsyncWrite for Client {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        if polled.is_ready() {
            // An answer, and no byte of a question: one byte at a time doesn't last for ever.
            let deadline = Instant::now() + self.patience;
            self.late.as_mut().reset(deadline);
        }
        self.in_time(polled, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
