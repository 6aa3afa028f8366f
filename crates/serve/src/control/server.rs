// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon's end of the control socket: one thread accepts, one thread serves each client.
//!
//! Clients have threads, and not the pump's poll, because a client may send half a line and sleep.
//! Threads cost nothing while there is no client. The accepting thread also watches the clock for
//! all clients. It closes the connection of an idle client when a new one needs its place
//! ([`Places`]). Dropping the [`Server`] ends all threads and removes the socket.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token, Waker};

use super::record::record;
use super::{CONNECTIONS_MAX, Caller, Command, LINE_BYTES_MAX, LINE_TIMEOUT, Response};
use crate::places::Places;
use crate::socket::{BindError, SocketFile, bind};
use crate::unaccepted::{Unaccepted, words};
use crate::upgrade::{Descriptor, Operator, Parcel, UpgradeOrder, Wish};

const SOCKET: Token = Token(0);
const STOP: Token = Token(1);
/// When to accept again, if descriptors or memory have run out.
const ACCEPT_AGAIN: Duration = Duration::from_secs(1);
/// How long a client may take to read its answer when the daemon ends.
const LAST_ANSWER: Duration = Duration::from_secs(1);

/// A running control socket.
#[derive(Debug)]
pub struct Server {
    stop: Arc<Waker>,
    clients: Arc<Clients>,
    thread: Option<JoinHandle<()>>,
    /// A copy of the listening socket, for another program that takes over. Dropped before the
    /// file, which stays while anybody listens.
    listener: UnixListener,
    file: SocketFile,
}

impl Server {
    /// Listens at `path` and passes commands to `caller`.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn start(path: &Path, caller: Caller) -> Result<Self, BindError> {
        Self::with_patience(path, caller, LINE_TIMEOUT)
    }

    /// Starts as [`Server::start`] does, with another patience.
    pub(super) fn with_patience(path: &Path, caller: Caller, patience: Duration) -> Result<Self, BindError> {
        Self::serve(bind(path)?, path, caller, patience)
    }

    /// Serves by the listening socket of another program.
    ///
    /// # Errors
    /// [`BindError`].
    pub(crate) fn take_over(
        path: &Path,
        caller: Caller,
        parcel: &Parcel,
        listener: Descriptor,
    ) -> Result<Self, BindError> {
        let taken = parcel.descriptor(listener).map_err(|source| BindError::Io { path: path.to_owned(), source })?;
        Self::serve((UnixListener::from(taken), SocketFile::of(path)), path, caller, LINE_TIMEOUT)
    }

    /// Puts a copy of the listening socket into a parcel.
    pub(crate) fn hand_over(&self, parcel: &mut Parcel) -> io::Result<Descriptor> {
        parcel.put(&self.listener)
    }

    /// Ends all threads, and leaves the socket to the program that has it.
    pub(crate) fn leave(mut self) {
        self.file.leave();
    }

    fn serve(
        (listener, file): (UnixListener, SocketFile),
        path: &Path,
        caller: Caller,
        patience: Duration,
    ) -> Result<Self, BindError> {
        let fail = |source: io::Error| BindError::Io { path: path.to_owned(), source };
        let copy = listener.try_clone().map_err(fail)?;
        let mut listener = mio::net::UnixListener::from_std(listener);
        let poll = Poll::new().map_err(fail)?;
        poll.registry().register(&mut listener, SOCKET, Interest::READABLE).map_err(fail)?;
        let stop = Arc::new(Waker::new(poll.registry(), STOP).map_err(fail)?);
        let clients = Arc::new(Clients::default());
        let acceptor = Acceptor { poll, listener, clients: Arc::clone(&clients), caller, patience };
        let thread =
            std::thread::Builder::new().name("control".to_owned()).spawn(move || acceptor.run()).map_err(fail)?;
        Ok(Self { stop, clients, thread: Some(thread), file, listener: copy })
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

/// The connected clients, for all threads.
#[derive(Debug, Default)]
struct Clients {
    list: Mutex<List>,
    /// A client has left, or become idle.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct List {
    places: Places<UnixStream>,
    closed: bool,
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, List> {
        // Nothing here can panic halfway through a change.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a free place, which an idle client makes at once. `None`: the server ends. Else
    /// whether a client was closed for that.
    fn wait_for_place(&self) -> Option<bool> {
        let (mut list, mut closed_one) = (self.lock(), false);
        while !list.closed && list.places.len() >= CONNECTIONS_MAX {
            closed_one |= list.places.make_room();
            list = self.changed.wait(list).unwrap_or_else(PoisonError::into_inner);
        }
        (!list.closed).then_some(closed_one)
    }

    /// `None` if the server ends: a reader of this stream would never be woken.
    fn add(&self, stream: UnixStream) -> Option<u64> {
        let mut list = self.lock();
        (!list.closed).then(|| list.places.add(stream, Instant::now()))
    }

    /// The daemon has the client's command. Returns false if the client was told to go meanwhile.
    fn asks(&self, id: u64) -> bool {
        self.lock().places.asks(id)
    }

    /// The server waits for the client.
    fn idles(&self, id: u64) {
        self.lock().places.idles(id, Instant::now());
        self.changed.notify_all();
    }

    fn remove(&self, id: u64) {
        self.lock().places.remove(id);
        self.changed.notify_all();
    }

    /// Closes the connections of clients that were idle for too long, and says how long to wait
    /// until the next look.
    fn close_overdue(&self, patience: Duration) -> Option<Duration> {
        let (mut list, now) = (self.lock(), Instant::now());
        let closed = list.places.close_overdue(now, patience);
        if closed > 0 {
            tracing::debug!(
                "control socket: {closed} closed that sent no command, or read no answer, for {patience:?}"
            );
        }
        list.places.next_overdue(now, patience).map(|at| at.saturating_duration_since(now))
    }

    fn close(&self) {
        let mut list = self.lock();
        list.closed = true;
        list.places.stop_reading();
        self.changed.notify_all();
    }

    /// Waits until all clients have left, but for clients that don't read their answer.
    fn leave(&self) {
        let deadline = Instant::now() + LAST_ANSWER;
        let mut list = self.lock();
        while list.places.len() > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return list.places.close_all();
            }
            list = self.changed.wait_timeout(list, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

struct Acceptor {
    poll: Poll,
    listener: mio::net::UnixListener,
    clients: Arc<Clients>,
    caller: Caller,
    patience: Duration,
}

impl Acceptor {
    fn run(mut self) {
        let mut events = Events::with_capacity(4);
        let mut threads: Vec<JoinHandle<()>> = Vec::new();
        let (mut refused, mut unaccepted) = (false, Unaccepted::default());
        let mut crowded = false;
        'serve: loop {
            let overdue = self.clients.close_overdue(self.patience);
            // A client that could not be accepted waits in the kernel's queue, which tells of it
            // only once.
            let again = refused.then_some(ACCEPT_AGAIN);
            if let Err(error) = self.poll.poll(&mut events, overdue.into_iter().chain(again).min())
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!("control socket: {error}; status, set and drain no longer work");
                break;
            }
            if events.iter().any(|event| event.token() == STOP) {
                break;
            }
            refused = false;
            loop {
                match self.listener.accept() {
                    Ok((stream, _)) => {
                        unaccepted.over();
                        let Some(closed_one) = self.clients.wait_for_place() else { break 'serve };
                        if closed_one && !crowded {
                            tracing::warn!(
                                "control socket: {CONNECTIONS_MAX} clients at a time, and more come: the ones that are idle for longest are closed. Does a program leave its connections open?"
                            );
                        }
                        crowded = closed_one;
                        threads.retain(|thread| !thread.is_finished());
                        match self.serve(stream.into()) {
                            Ok(Some(thread)) => threads.push(thread),
                            Ok(None) => break 'serve,
                            Err(error) => {
                                tracing::warn!("control socket: a client is refused: {}", words(&error));
                            }
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        unaccepted.over();
                        break;
                    }
                    Err(error) => {
                        refused = true;
                        unaccepted.failed("control socket", &error);
                        break;
                    }
                }
            }
        }
        self.clients.close();
        self.clients.leave();
        for thread in threads {
            // A panic there was reported by the panic hook; here is nothing more to do about it.
            let _ = thread.join();
        }
    }

    /// Starts a client's thread; `None` if the server ends.
    fn serve(&self, stream: UnixStream) -> io::Result<Option<JoinHandle<()>>> {
        stream.set_nonblocking(false)?;
        let Some(id) = self.clients.add(stream.try_clone()?) else {
            return Ok(None);
        };
        let (clients, caller) = (Arc::clone(&self.clients), self.caller.clone());
        let spawned = std::thread::Builder::new().name("control-client".to_owned()).spawn(move || {
            if let Err(error) = talk(stream, &caller, &clients, id) {
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
fn talk(mut stream: UnixStream, caller: &Caller, clients: &Clients, id: u64) -> io::Result<()> {
    let mut received = Vec::new();
    loop {
        let line = match read_line(&mut stream, &mut received)? {
            Line::Whole(line) => line,
            Line::End => return Ok(()),
            Line::TooLong => {
                let message = format!("the line is longer than {LINE_BYTES_MAX} bytes");
                return send(&mut stream, &Response::Error { message });
            }
        };
        if !clients.asks(id) {
            return Ok(());
        }
        let response = match serde_json::from_slice(&line) {
            Ok(command @ Command::Record { .. }) => match record(&mut stream, caller, command)? {
                Some(response) => response,
                None => return Ok(()),
            },
            Ok(command) => {
                if let Some(wish) = wish(&command) {
                    // This connection outlives the control socket's threads.
                    let operator = Operator::new(stream.try_clone()?);
                    caller.upgrade(UpgradeOrder { wish, operator });
                    return Ok(());
                }
                caller.call(command)
            }
            Err(error) => Response::Error { message: format!("not a command: {error}") },
        };
        clients.idles(id);
        send(&mut stream, &response)?;
        clients.idles(id);
    }
}

/// Says what is to serve the clients after a command, if that is to change.
fn wish(command: &Command) -> Option<Wish> {
    Some(match command {
        Command::Upgrade { program, disconnect } => Wish::Program { program: program.clone(), disconnect: *disconnect },
        Command::DetachCache {} => Wish::Detach,
        Command::AttachCache { device, force } => Wish::Attach { device: device.clone(), force: *force },
        Command::GrowCache {} => Wish::Grow,
        Command::ShrinkCache { bytes } => Wish::Shrink { bytes: *bytes },
        _ => return None,
    })
}

pub(super) fn send(stream: &mut UnixStream, response: &Response) -> io::Result<()> {
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
fn read_line(stream: &mut UnixStream, received: &mut Vec<u8>) -> io::Result<Line> {
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
        let mut buf = [0; 4096];
        match stream.read(&mut buf) {
            Ok(0) => return Ok(Line::End),
            Ok(len) => received.extend_from_slice(&buf[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
