// SPDX-License-Identifier: MIT OR Apache-2.0
//! The new program, as the daemon that it takes over from sees it.
//!
//! The new program is a child of the daemon, and touches no client until [`Successor::give`] says
//! `Go`. The daemon kills a new program that fails or hangs. Then the locks of that program are
//! free, and the daemon opens its cache again.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::channel::{Channel, News, Order};
use super::offer::Offer;
use super::parcel::Parcel;
use super::role::{ROLE, SUCCEEDS, Upgraded, ms_since};

/// How long a new program may take to read its configuration.
const STARTS_WITHIN: Duration = Duration::from_secs(10);
/// How long a program that closed its socket may take to end, and how often that is looked at.
const ENDS_WITHIN: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How long it may take to open the cache. Clients are waiting meanwhile.
const OPENS_WITHIN: Duration = Duration::from_secs(20);
/// How long it may take from `Go` to the moment when it serves. Nothing depends on it.
const SERVES_WITHIN: Duration = Duration::from_secs(10);

/// A new program that waits to take over.
#[derive(Debug)]
pub(crate) struct Successor {
    program: PathBuf,
    /// None after the program has taken over, or has ended.
    child: Option<Child>,
    channel: Option<Channel>,
    version: String,
}

/// The program that this process was started from, which may be another file by now.
pub(crate) fn program() -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?;
    // The kernel says so of a file that has been replaced.
    let replaced = path.to_str().and_then(|path| path.strip_suffix(" (deleted)")).map(PathBuf::from);
    Some(replaced.filter(|_| !path.exists()).unwrap_or(path))
}

impl Successor {
    /// Starts a program with the arguments of this one, and lets it judge what there is.
    pub(crate) fn start(program: &Path, offer: Offer) -> Result<Self, String> {
        let shown = program.display();
        let (here, there) = UnixStream::pair().map_err(|error| format!("a socket for the new program: {error}"))?;
        let mut command = Command::new(program);
        command.args(std::env::args_os().skip(1)).env(ROLE, SUCCEEDS).stdin(Stdio::from(OwnedFd::from(there)));
        let child = command.spawn().map_err(|error| format!("{shown}: can't be started: {error}"))?;
        drop(command);
        let mut successor = Self {
            program: program.to_owned(),
            child: Some(child),
            channel: Some(Channel::new(here)),
            version: String::new(),
        };
        match successor.ask(&Order::Offer { offer: Box::new(offer) }, STARTS_WITHIN)? {
            News::Waits { version } => successor.version = version,
            other => return Err(successor.unexpected(&other)),
        }
        Ok(successor)
    }

    /// Gives everything away. An error says why the program has not taken over: then it has ended,
    /// and has touched no client.
    pub(crate) fn give(mut self, parcel: &Parcel, takes_over: impl FnOnce(u32)) -> Result<(Upgraded, Channel), String> {
        let sent = self.channel.as_mut().map_or(Ok(()), |channel| parcel.send(channel));
        sent.map_err(|error| format!("{}: can't be given the clients: {error}", self.program.display()))?;
        match self.hear(OPENS_WITHIN)? {
            News::Opened => {}
            other => return Err(self.unexpected(&other)),
        }
        let pid = self.child.as_ref().map_or(0, Child::id);
        takes_over(pid);
        let said = self.channel.as_mut().map_or(Ok(()), |channel| channel.say(&Order::Go));
        // A new program that has ended never heard that it may begin.
        said.map_err(|error| self.lost(&error))?;
        // From here on the new program has the clients, whatever becomes of it.
        let paused_ms = match self.hear_raw(SERVES_WITHIN) {
            Ok(News::Serves { paused_ms }) => paused_ms,
            Ok(other) => {
                tracing::warn!("upgrade: the new program says {other:?} instead of how long clients waited");
                ms_since(parcel.state.held_ns)
            }
            Err(error) => {
                tracing::error!(
                    "upgrade: the new program was given all clients, and is not heard of any more: {error}"
                );
                ms_since(parcel.state.held_ns)
            }
        };
        let clients = parcel.state.clients;
        let to = std::mem::take(&mut self.version);
        let upgraded = Upgraded { from: parcel.state.version.clone(), to, pid, clients, paused_ms };
        // Its end is not this process's affair, unless this becomes its front.
        self.child = None;
        Ok((upgraded, self.channel.take().ok_or("the socket is gone")?))
    }

    fn ask(&mut self, order: &Order, within: Duration) -> Result<News, String> {
        let said = self.channel.as_mut().map_or(Ok(()), |channel| channel.say(order));
        said.map_err(|error| self.lost(&error))?;
        self.hear(within)
    }

    fn hear(&mut self, within: Duration) -> Result<News, String> {
        match self.hear_raw(within) {
            Ok(News::Fails { why }) => Err(format!("{} refuses: {why}", self.program.display())),
            Ok(news) => Ok(news),
            Err(error) => Err(self.lost(&error)),
        }
    }

    fn hear_raw(&mut self, within: Duration) -> io::Result<News> {
        let channel = self.channel.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        channel.patience(Some(within))?;
        channel.hear()
    }

    /// Says what became of a program that is not heard of any more; ends it.
    fn lost(&mut self, error: &io::Error) -> String {
        let shown = self.program.display().to_string();
        let hangs = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        match self.end(hangs) {
            _ if hangs => format!("{shown}: says nothing for too long, and was killed"),
            Some(status) => {
                format!("{shown}: ended before it took over ({status}); its last words are in the daemon's log")
            }
            None => format!("{shown}: is not heard of: {error}"),
        }
    }

    fn unexpected(&self, news: &News) -> String {
        format!("{}: says {news:?}, which was not its turn", self.program.display())
    }

    /// Ends the program, if it has not ended. A program that closed its socket is about to end by
    /// itself.
    fn end(&mut self, kill: bool) -> Option<std::process::ExitStatus> {
        let ended = self.child.take().and_then(|mut child| {
            let end = Instant::now() + ENDS_WITHIN;
            while !kill && Instant::now() < end {
                if let Ok(Some(status)) = child.try_wait() {
                    return Some(status);
                }
                std::thread::sleep(LOOK_EVERY);
            }
            // A program that ended this moment can't be killed any more.
            let _ = child.kill();
            child.wait().ok()
        });
        // Not before its end: it would take the closed socket for the daemon's death, and serve.
        self.channel = None;
        ended
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        self.end(true);
    }
}
