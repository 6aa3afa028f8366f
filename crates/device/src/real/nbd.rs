// SPDX-License-Identifier: MIT OR Apache-2.0
//! A network block device: the export of an NBD server, as a device.
//!
//! Each has a thread of its own that waits for sockets (ADR 0046). The reactor hands it jobs as it
//! hands them to threads for devices that sleep, and hears of their end in the same way. A server
//! that goes away is connected to again, for ever; meanwhile jobs wait. Whoever can't wait so long
//! has [`crate::wrap::Patience`].

mod again;
mod connection;
mod dial;
mod flight;
mod session;
mod stream;
#[cfg(feature = "tls")]
mod tls;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;

use flashfront_nbd_proto::client::ExportInfo;
use flashfront_nbd_proto::uri::Uri;
use flashfront_nbd_proto::wire::export_flag;
use rustix::event::EventfdFlags;

use super::error::OpenError;
use super::lock::Access;
use super::remote::{Abilities, LinkNews, LinkState, LinkWatch, Remote, Server, Task, locked};
use super::storage::Storage;
use crate::Geometry;
use again::Refused;
use connection::Connection;
use dial::DialError;
use session::Session;

/// The largest unit that the engine can address.
const BLOCK_BYTES_MAX: u32 = 4096;
/// I/Os that a server is given at a time.
const PLACES: usize = 128;

/// What is brought to the thread.
#[derive(Debug, Default)]
struct Inbox {
    tasks: Vec<Box<dyn Task>>,
    dialed: Option<Result<Vec<Connection>, Refused>>,
    /// Nobody waits for the tasks of these any more.
    forgotten: Vec<usize>,
    stopping: bool,
}

/// What the thread shares with those who order.
#[derive(Debug)]
struct Shared {
    inbox: Mutex<Inbox>,
    /// Readable when there is something in the inbox.
    wake: OwnedFd,
    link: Mutex<LinkState>,
    watch: OnceLock<LinkWatch>,
}

impl Shared {
    fn give(&self, put: impl FnOnce(&mut Inbox)) {
        put(&mut locked(&self.inbox));
        // Fails only if the counter is at 2^64 - 2.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn take(&self) -> Inbox {
        // Nothing to read: nothing was brought.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        let mut inbox = locked(&self.inbox);
        let stopping = inbox.stopping;
        Inbox { stopping, ..std::mem::take(&mut *inbox) }
    }

    fn link(&self) -> MutexGuard<'_, LinkState> {
        locked(&self.link)
    }

    fn tell(&self, news: &LinkNews) {
        if let Some(watch) = self.watch.get() {
            (watch.told)(news);
        }
    }
}

/// An open export.
#[derive(Debug)]
struct Export {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Connects. Gives up after some seconds.
pub(super) fn open(path: &Path, uri: &str, access: Access) -> Result<Remote, OpenError> {
    let uri: Uri = uri.parse().map_err(|error: flashfront_nbd_proto::uri::UriError| OpenError::Nbd {
        path: path.into(),
        what: error.what,
        todo: error.todo,
    })?;
    let storage = Storage::of_uri(&uri);
    let server = dial::Server::of(uri).map_err(|error| error.of(path))?;
    let first = server.dial().map_err(|error| error.of(path))?;
    let info = first.info();
    let geometry = geometry_of(&info, access).map_err(|error| error.of(path))?;
    let further = server.dial_further(&info);
    let failed = |doing| move |error| OpenError::Io { path: path.into(), doing, error };
    let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    let wake = wake.map_err(|errno| failed("open")(errno.into()))?;
    let shared = Arc::new(Shared { inbox: Mutex::default(), wake, link: Mutex::default(), watch: OnceLock::new() });
    let connections = std::iter::once(first).chain(further).collect();
    let session = Session::new(Arc::clone(&shared), Arc::new(server), (geometry, access), connections);
    let thread = std::thread::Builder::new().name("nbd".to_owned()).spawn(move || session.run());
    let thread = Some(thread.map_err(failed("open"))?);
    let abilities = Abilities {
        name: "the NBD server",
        geometry,
        storage,
        places: PLACES,
        may_flush: !info.read_only(),
        may_discard: info.can(export_flag::SEND_TRIM),
    };
    Ok(Remote::new(Export { shared, thread }, abilities))
}

impl Server for Export {
    fn submit(&self, task: Box<dyn Task>) {
        self.shared.give(|inbox| inbox.tasks.push(task));
    }

    fn forget(&self, owner: usize) {
        self.shared.give(|inbox| {
            inbox.tasks.retain(|task| task.owner() != owner);
            inbox.forgotten.push(owner);
        });
    }

    fn link(&self) -> LinkState {
        self.shared.link().clone()
    }

    fn watch(&self, watch: LinkWatch) {
        let _ = self.shared.watch.set(watch);
    }
}

impl Drop for Export {
    /// Waits until the server has hung up, some seconds at most: a server that takes one client at
    /// a time is free then.
    fn drop(&mut self) {
        self.shared.give(|inbox| inbox.stopping = true);
        // The thread itself may be the last to have the device.
        if let Some(thread) = self.thread.take().filter(|it| it.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}

/// What an export is as a device, if it can be one.
fn geometry_of(info: &ExportInfo, access: Access) -> Result<Geometry, DialError> {
    let wrong = |what: String, todo| Err(DialError { what, todo });
    let (size_bytes, minimum) = (info.size_bytes, info.sizes.minimum);
    if minimum > BLOCK_BYTES_MAX {
        return wrong(
            format!("the server takes no blocks below {minimum} bytes, and the cache has blocks of {BLOCK_BYTES_MAX}"),
            "let the server take smaller ones (nbdkit --filter=blocksize minblock=512)",
        );
    }
    let block = minimum.max(512);
    if size_bytes == 0 || !size_bytes.is_multiple_of(block.into()) {
        return wrong(
            format!("the export has {size_bytes} bytes, which is no multiple of {block}, or nothing"),
            "give it whole blocks (nbdkit --filter=truncate round-up=4096)",
        );
    }
    if info.sizes.maximum < BLOCK_BYTES_MAX {
        return wrong(
            format!(
                "the server takes at most {} bytes at a time, and the cache has blocks of {BLOCK_BYTES_MAX}",
                info.sizes.maximum
            ),
            "let the server take larger requests (nbdkit --filter=blocksize maxdata=32M)",
        );
    }
    if access == Access::Exclusive && info.read_only() {
        return wrong(
            "the export is read-only".to_owned(),
            "let the server take writes (no --readonly, no -r), or name another export",
        );
    }
    if access == Access::Exclusive && !info.can(export_flag::SEND_FLUSH) && !info.can(export_flag::SEND_FUA) {
        return wrong(
            "the server offers neither FLUSH nor FUA, so nobody knows when a write is durable".to_owned(),
            "use a server that can flush (nbdkit --filter=fua fuamode=emulate has FUA where FLUSH is there)",
        );
    }
    let rotational = info.can(export_flag::ROTATIONAL).then_some(true);
    Ok(Geometry { size_bytes, logical_block_bytes: block, rotational })
}
