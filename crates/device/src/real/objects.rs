// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume in an object store, as a device (ADR 0054).
//!
//! A thread owns the volume, and a carrier has threads for its requests. A write is in RAM until it
//! is in the store, as in the write cache of a disk. A flush waits for a manifest.
//!
//! The volume is opened to be read. It is taken over before the first write, when nothing can
//! refuse the start any more. From then on its last writer is out.
//!
//! A snapshot of a volume (URL@SNAPSHOT) is never taken over. Any number of hosts may open it.

mod faults;
mod session;
mod thread;

use std::io;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::JoinHandle;

use flashfront_bucket::{Carrier, Error, Pages, Place, Wake, split_snapshot, this_writer};
use flashfront_object::{Mode, Options, SECTOR_BYTES, Volume};

use super::error::OpenError;
use super::remote::{
    Abilities, LinkNews, LinkState, LinkWatch, Mark, OpenBy, Remote, Server, StoreState, Task, locked,
};
use super::storage::Storage;
use crate::Geometry;
use session::Session;

/// I/Os that the thread is given at a time. Reads are requests to the store, and the carrier does
/// some of them at a time.
const PLACES: usize = 64;
/// Extents that were read and are kept in RAM. The cache in front keeps what is read again.
const RECENT_BYTES: usize = 8 << 20;
/// Uploads at a time. Three of 8 MiB fill 100 MB/s, also 100 ms away. Each is RAM.
const UPLOADS: usize = 3;
/// Bytes of the map of a volume that may be in RAM, if not [`Options::map_bytes`].
const MAP_BYTES: &str = "FLASHFRONT_OBJECT_MAP_BYTES";
/// The unit of volumes, where their size allows it: smaller extents would fill the map.
const BLOCK_BYTES: u64 = 4096;

/// What is brought to the thread.
#[derive(Default)]
struct Inbox {
    tasks: Vec<Box<dyn Task>>,
    /// Nobody waits for the tasks of these any more.
    forgotten: Vec<usize>,
    /// The volume, opened to be written; the sender hears when the thread has it.
    opened: Option<(Box<Volume>, Carrier, Sender<()>)>,
    settling: bool,
    /// Whether a cache holds what the volume lacks, if that is news.
    owes: Option<bool>,
    stopping: bool,
    /// Something was brought, or the store has answered.
    is_awake: bool,
}

/// What the thread shares with those who order.
struct Shared {
    inbox: Mutex<Inbox>,
    changed: Condvar,
    link: Mutex<LinkState>,
    mark: Mutex<Mark>,
    watch: OnceLock<LinkWatch>,
}

impl Shared {
    fn give(&self, put: impl FnOnce(&mut Inbox)) {
        let mut inbox = locked(&self.inbox);
        put(&mut inbox);
        let was_awake = std::mem::replace(&mut inbox.is_awake, true);
        drop(inbox);
        // Each notice is a system call. A thread that is awake looks again before it sleeps.
        if !was_awake {
            self.changed.notify_one();
        }
    }

    fn tell(&self, news: &LinkNews) {
        if let Some(watch) = self.watch.get() {
            (watch.told)(news);
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

/// Wakes the thread when the store has answered.
fn wake(shared: &Arc<Shared>) -> Wake {
    let shared = Arc::clone(shared);
    Arc::new(move || shared.give(|_| {}))
}

/// How volumes work here. The engine flushes where a state of the bucket alone may end, and knows
/// that between two flushes all or nothing is there.
fn options() -> io::Result<Options> {
    let usual = Options::default();
    let map_bytes = match std::env::var(MAP_BYTES) {
        Ok(text) => text
            .parse()
            .map_err(|_| io::Error::other(format!("FLASHFRONT_OBJECT_MAP_BYTES is `{text}`: no number of bytes")))?,
        Err(_) => usual.map_bytes,
    };
    Ok(Options { map_bytes, whole_flushes: true, recent_bytes: RECENT_BYTES, uploads: UPLOADS, ..usual })
}

/// An open volume.
#[derive(Debug)]
struct Objects {
    place: Place,
    /// The store can't keep a second writer out, and need not.
    single_writer: bool,
    /// A snapshot, which nobody writes.
    is_snapshot: bool,
    /// The opening that was the newest one when the volume was opened here.
    epoch: u32,
    shared: Arc<Shared>,
    /// Held while the volume is being taken over.
    taking_over: Mutex<()>,
    thread: Option<JoinHandle<()>>,
}

/// Tells a volume, or a snapshot of it, from all others.
fn serial(volume: &[u8; 16], snapshot: Option<&str>) -> String {
    let hex: String = volume.iter().map(|byte| format!("{byte:02x}")).collect();
    let of = snapshot.map_or_else(String::new, |name| format!("@{name}"));
    format!("objects {hex}{of}")
}

/// A volume that was opened.
pub(super) struct Opened {
    pub(super) remote: Remote,
    /// What tells it from others.
    pub(super) serial: String,
    /// What people must know of it.
    pub(super) notice: Option<String>,
}

/// Opens a volume, or a snapshot of it, to be read. Gives up after a minute.
pub(super) fn open(path: &Path, url: &str) -> Result<Opened, OpenError> {
    let failed = |error: Error| OpenError::Objects { error };
    let (of_volume, snapshot) = split_snapshot(url);
    let place = Place::of(of_volume).map_err(failed)?;
    let mode = match snapshot {
        None => Mode::Read,
        Some(name) => flashfront_bucket::read_snapshot(&place, name).map_err(failed)?,
    };
    let mark = Mark { volume: [0; 16], epoch: 0, sequence: 0, opening: None };
    let shared = Arc::new(Shared {
        inbox: Mutex::default(),
        changed: Condvar::new(),
        link: Mutex::default(),
        mark: Mutex::new(mark),
        watch: OnceLock::new(),
    });
    let options = options().map_err(|error| OpenError::Io { path: path.into(), doing: "open", error })?;
    let opened = flashfront_bucket::Session::open_with(&place, mode, options, Some(wake(&shared)));
    let (volume, carrier) = opened.map_err(failed)?.into_parts();
    let open_keys = volume.manifest().form.key.and_then(|_| flashfront_bucket::keys_are_open());
    let notices: Vec<String> = flashfront_bucket::passed_over(&volume).into_iter().chain(open_keys).collect();
    let notice = (!notices.is_empty()).then(|| notices.join("; "));
    *locked(&shared.mark) = mark_of(&volume, None);
    let manifest = volume.manifest();
    let single_writer = manifest.single_writer;
    let serial = serial(&manifest.volume, snapshot);
    let open_by = OpenBy::of(manifest).filter(|_| snapshot.is_none());
    let epoch = manifest.epoch;
    locked(&shared.link).store = Some(StoreState { open_by, ..StoreState::default() });
    let size_bytes = volume.manifest().sectors * SECTOR_BYTES;
    let block = if size_bytes.is_multiple_of(BLOCK_BYTES) { BLOCK_BYTES } else { SECTOR_BYTES };
    let geometry = Geometry { size_bytes, logical_block_bytes: block as u32, rotational: Some(false) };
    let session = Session::new(Arc::clone(&shared), volume, carrier);
    let thread = std::thread::Builder::new().name("objects".to_owned()).spawn(move || thread::run(session));
    let thread = thread.map_err(|error| OpenError::Io { path: path.into(), doing: "open", error })?;
    let abilities = Abilities {
        name: "the object store",
        geometry,
        storage: Storage::of_name(url.trim_end_matches('/')),
        places: PLACES,
        may_flush: true,
        may_discard: true,
    };
    let is_snapshot = snapshot.is_some();
    let objects = Objects {
        place,
        single_writer,
        is_snapshot,
        epoch,
        shared,
        taking_over: Mutex::default(),
        thread: Some(thread),
    };
    Ok(Opened { remote: Remote::new(objects, abilities), serial, notice })
}

fn mark_of(volume: &Volume, opening: Option<u32>) -> Mark {
    let (manifest, newest) = (volume.manifest(), volume.manifest().newest());
    Mark { volume: manifest.volume, epoch: newest.epoch, sequence: newest.sequence, opening }
}

impl Server for Objects {
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
        let mut link = locked(&self.shared.link).clone();
        link.store.get_or_insert_default().requests = self.place.meter().tallies();
        link
    }

    fn watch(&self, watch: LinkWatch) {
        let _ = self.shared.watch.set(watch);
    }

    fn mark(&self) -> Option<Mark> {
        Some(*locked(&self.shared.mark))
    }

    fn is_read_only(&self) -> bool {
        self.is_snapshot
    }

    fn take_over(&self, cache: Option<[u8; 16]>) -> io::Result<()> {
        if self.is_snapshot {
            return Ok(());
        }
        let _one_at_a_time = locked(&self.taking_over);
        let before = *locked(&self.shared.mark);
        if before.opening.is_some() {
            return Ok(());
        }
        let wake = Some(wake(&self.shared));
        let mode = Mode::Write(this_writer(cache, Some(self.epoch)));
        // Before anybody is fenced.
        let place = flashfront_bucket::to_write(&self.place, self.single_writer).map_err(io::Error::other)?;
        let opened = flashfront_bucket::Session::open_with(&place, mode, options()?, wake);
        let (volume, carrier) = opened.map_err(io::Error::other)?.into_parts();
        let now = mark_of(&volume, Some(volume.manifest().epoch));
        if (Mark { opening: None, ..now }) != before {
            return Err(io::Error::other(format!(
                "{}: another writer has changed the volume since it was opened here; start again",
                self.place
            )));
        }
        let (given, taken) = channel();
        self.shared.give(|inbox| inbox.opened = Some((volume, carrier, given)));
        taken.recv().map_err(|_| io::Error::other("the thread of the connections has ended"))
    }

    fn keep_pages(&self, pages: &Pages) {
        self.place.keep_pages(pages, locked(&self.shared.mark).volume);
    }

    fn settle(&self) {
        self.shared.give(|inbox| inbox.settling = true);
    }

    fn owe(&self, owes: bool) {
        self.shared.give(|inbox| inbox.owes = Some(owes));
    }
}

impl Drop for Objects {
    /// Waits some seconds at most for a last manifest, which says that no writer has the volume
    /// open.
    fn drop(&mut self) {
        self.shared.give(|inbox| inbox.stopping = true);
        // The thread itself may be the last to have the device.
        if let Some(thread) = self.thread.take().filter(|it| it.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}
