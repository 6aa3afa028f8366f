// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon's end of the control socket: one thread accepts, one thread serves each client.
//!
//! Threads and not the pump's poll, because a client may send half a line and sleep; they cost
//! nothing while nobody asks. Dropping the [`Server`] ends them all and removes the socket.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token, Waker};

use super::socket::{BindError, SocketFile, bind};
use super::{CONNECTIONS_MAX, Caller, LINE_BYTES_MAX, LINE_TIMEOUT, Response};

const SOCKET: Token = Token(0);
const STOP: Token = Token(1);
/// When to accept again, if descriptors or memory have run out.
const ACCEPT_AGAIN: Duration = Duration::from_secs(1);

/// A running control socket.
#[derive(Debug)]
pub struct Server {
    stop: Arc<Waker>,
    clients: Arc<Clients>,
    thread: Option<JoinHandle<()>>,
    _file: SocketFile,
}

impl Server {
    /// Listens at `path` and passes commands to `caller`.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn start(path: &Path, caller: Caller) -> Result<Self, BindError> {
        Self::with_timeout(path, caller, LINE_TIMEOUT)
    }

    /// As [`Server::start`], with another patience.
    pub(super) fn with_timeout(path: &Path, caller: Caller, timeout: Duration) -> Result<Self, BindError> {
        let fail = |source: io::Error| BindError::Io { path: path.to_owned(), source };
        let (listener, file) = bind(path)?;
        let mut listener = mio::net::UnixListener::from_std(listener);
        let poll = Poll::new().map_err(fail)?;
        poll.registry().register(&mut listener, SOCKET, Interest::READABLE).map_err(fail)?;
        let stop = Arc::new(Waker::new(poll.registry(), STOP).map_err(fail)?);
        let clients = Arc::new(Clients::default());
        let acceptor = Acceptor { poll, listener, clients: Arc::clone(&clients), caller, timeout };
        let thread =
            std::thread::Builder::new().name("control".to_owned()).spawn(move || acceptor.run()).map_err(fail)?;
        Ok(Self { stop, clients, thread: Some(thread), _file: file })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Wakes a wait for a free place as well as the poll.
        self.clients.close();
        if self.stop.wake().is_ok()
            && let Some(thread) = self.thread.take()
        {
            // A panic there was reported by the panic hook; here is nothing more to do about it.
            let _ = thread.join();
        }
    }
}

/// Who is connected.
#[derive(Debug, Default)]
struct Clients {
    list: Mutex<List>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct List {
    streams: HashMap<u64, UnixStream>,
    next: u64,
    closed: bool,
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, List> {
        // Nothing here can panic halfway through a change.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a free place; false if the server ends.
    fn wait_for_place(&self) -> bool {
        let full = |list: &mut List| list.streams.len() >= CONNECTIONS_MAX && !list.closed;
        let list = self.left.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner);
        !list.closed
    }

    /// `None` if the server ends: nobody would wake a reader of this stream.
    fn add(&self, stream: UnixStream) -> Option<u64> {
        let mut list = self.lock();
        if list.closed {
            return None;
        }
        list.next += 1;
        let id = list.next;
        list.streams.insert(id, stream);
        Some(id)
    }

    fn remove(&self, id: u64) {
        self.lock().streams.remove(&id);
        self.left.notify_one();
    }

    fn close(&self) {
        let mut list = self.lock();
        list.closed = true;
        for stream in list.streams.values() {
            // Readers see the end of the stream; an answer under way still gets out.
            let _ = stream.shutdown(Shutdown::Read);
        }
        self.left.notify_all();
    }
}

struct Acceptor {
    poll: Poll,
    listener: mio::net::UnixListener,
    clients: Arc<Clients>,
    caller: Caller,
    timeout: Duration,
}

impl Acceptor {
    fn run(mut self) {
        let mut events = Events::with_capacity(4);
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        let mut refused = false;
        'serve: loop {
            // Who could not be accepted waits in the kernel's queue, of which there is no second event.
            if let Err(error) = self.poll.poll(&mut events, refused.then_some(ACCEPT_AGAIN))
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!("control socket: {error}; status, set and drain no longer work");
                break;
            }
            if events.iter().any(|event| event.token() == STOP) {
                break;
            }
            threads.retain(|thread| !thread.is_finished());
            let told = std::mem::take(&mut refused);
            loop {
                if !self.clients.wait_for_place() {
                    break 'serve;
                }
                match self.listener.accept() {
                    Ok((stream, _)) => match self.serve(stream.into()) {
                        Ok(Some(thread)) => threads.push(thread),
                        Ok(None) => break 'serve,
                        Err(error) => tracing::warn!("control client refused: {error}"),
                    },
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => {
                        refused = true;
                        if !told {
                            tracing::warn!("control client refused: {error}; it is tried again");
                        }
                        break;
                    }
                }
            }
        }
        for thread in threads {
            let _ = thread.join();
        }
    }

    /// Starts a client's thread; `None` if the server ends.
    fn serve(&self, stream: UnixStream) -> io::Result<Option<JoinHandle<()>>> {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(self.timeout))?;
        let Some(id) = self.clients.add(stream.try_clone()?) else {
            return Ok(None);
        };
        let (clients, caller, timeout) = (Arc::clone(&self.clients), self.caller.clone(), self.timeout);
        let spawned = std::thread::Builder::new().name("control-client".to_owned()).spawn(move || {
            if let Err(error) = talk(stream, &caller, timeout) {
                tracing::debug!("control client: {error}");
            }
            clients.remove(id);
        });
        if spawned.is_err() {
            self.clients.remove(id);
        }
        spawned.map(Some)
    }
}

/// Serves one client until it leaves, is too slow, or sends a line that is too long.
fn talk(mut stream: UnixStream, caller: &Caller, timeout: Duration) -> io::Result<()> {
    let mut received = Vec::new();
    loop {
        let line = match read_line(&mut stream, &mut received, timeout)? {
            Line::Whole(line) => line,
            Line::End => return Ok(()),
            Line::TooLong => {
                let message = format!("the line is longer than {LINE_BYTES_MAX} bytes");
                return send(&mut stream, &Response::Error { message });
            }
        };
        let response = match serde_json::from_slice(&line) {
            Ok(command) => caller.call(command),
            Err(error) => Response::Error { message: format!("not a command: {error}") },
        };
        send(&mut stream, &response)?;
    }
}

fn send(stream: &mut UnixStream, response: &Response) -> io::Result<()> {
    let mut line = serde_json::to_vec(response)?;
    line.push(b'\n');
    stream.write_all(&line)
}

enum Line {
    Whole(Vec<u8>),
    End,
    TooLong,
}

/// Reads up to the next newline; `received` keeps what came after it.
fn read_line(stream: &mut UnixStream, received: &mut Vec<u8>, timeout: Duration) -> io::Result<Line> {
    let deadline = Instant::now() + timeout;
    let mut scanned = 0;
    loop {
        if let Some(end) = received[scanned..].iter().position(|&byte| byte == b'\n') {
            let rest = received.split_off(scanned + end + 1);
            return Ok(Line::Whole(std::mem::replace(received, rest)));
        }
        scanned = received.len();
        if scanned > LINE_BYTES_MAX {
            return Ok(Line::TooLong);
        }
        // A deadline for the line and not for each read: one byte at a time doesn't last for ever.
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let mut buf = [0; 4096];
        match stream.read(&mut buf) {
            Ok(0) => return Ok(Line::End),
            Ok(len) => received.extend_from_slice(&buf[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
