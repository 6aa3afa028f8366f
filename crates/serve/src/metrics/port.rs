// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connections of the HTTP port: few at a time, and none of a client that asks for nothing.
//!
//! Each takes a descriptor, and those are few (1024 as a rule): whoever reaches the port could keep NBD's clients out, as
//! axum by itself takes any number and waits for them for ever (tests: here, and `who_asks_for_nothing_over_http_keeps_nobody_out`).

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

use crate::descriptors::Unaccepted;

/// Clients at a time; the next one waits in the kernel's queue.
pub(crate) const CONNECTIONS_MAX: usize = 16;
/// How long a client may take from one answer to the next, or to its first.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// When to accept again, if descriptors or memory have run out.
const ACCEPT_AGAIN: Duration = Duration::from_secs(1);

/// The listening socket.
#[derive(Debug)]
pub(super) struct Port {
    listener: TcpListener,
    places: Arc<Semaphore>,
    patience: Duration,
    unaccepted: Unaccepted,
}

impl Port {
    pub(super) fn new(listener: TcpListener, patience: Duration) -> Self {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        Self { listener, places, patience, unaccepted: Unaccepted::default() }
    }
}

impl axum::serve::Listener for Port {
    type Io = Client;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Client, SocketAddr) {
        let place = Arc::clone(&self.places).acquire_owned().await.expect("nobody closes it");
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => {
                    self.unaccepted.over();
                    let late = Box::pin(tokio::time::sleep(self.patience));
                    return (Client { stream, late, patience: self.patience, _place: place }, address);
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    self.unaccepted.failed("http", &error);
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A client's socket.
#[derive(Debug)]
pub(super) struct Client {
    stream: TcpStream,
    /// Over when it has taken too long.
    late: Pin<Box<Sleep>>,
    patience: Duration,
    _place: OwnedSemaphorePermit,
}

impl Client {
    /// What waits for the client waits no longer than it may take.
    fn in_time<T>(&mut self, polled: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        match polled {
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
