// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps pages of maps in a plain file on the SSD (ADR 0081).
//!
//! A page that was fetched for an open volume is kept, and comes from the file when it is wanted
//! again. All of the file may be lost, torn or old at any time. A page leaves it only if it has the
//! checksum that the volume knows.
//!
//! A thread owns the file. Whoever wants a page waits for it a moment, and then asks the store. So
//! a disk that is full, slow or broken takes nothing from the volumes.

mod segments;
#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use segments::PageKey;
use segments::{Refused, Segments};

/// A page is waited for so long. A store takes about as long.
const PATIENCE: Duration = Duration::from_millis(50);
/// Orders that may wait, and bytes of pages among them.
const ORDERS: usize = 64;
const WAITING_BYTES: usize = 8 << 20;
/// A process that is on its way out may have the file for so long.
const BUSY_WAIT: Duration = Duration::from_secs(5);
const BUSY_STEP: Duration = Duration::from_millis(20);
/// The end waits so long for the thread.
const LEAVE: Duration = Duration::from_secs(1);

/// Hears once why pages are not kept.
type Tell = Box<dyn Fn(&str) + Send>;

/// What is known of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapFileFigures {
    /// Where it is.
    pub path: PathBuf,
    /// The bytes that it may have.
    pub size_bytes: u64,
    /// Whether it was read, and keeps pages.
    pub is_ready: bool,
    /// Pages in it, and their bytes.
    pub pages: u64,
    /// As above.
    pub page_bytes: u64,
    /// GETs that were answered from the file, and those that the store had to answer.
    pub saved_gets: u64,
    /// As above.
    pub missed_gets: u64,
    /// Why nothing is kept.
    pub off: Option<String>,
}

enum Order {
    Find(Vec<PageKey>, SyncSender<Option<Vec<Vec<u8>>>>),
    Keep(Vec<(PageKey, Vec<u8>)>),
    End,
}

#[derive(Debug, Default)]
struct Shared {
    path: PathBuf,
    size_bytes: u64,
    is_ready: AtomicBool,
    /// An order was not carried out in time, and no other one since.
    is_late: AtomicBool,
    waiting_bytes: AtomicUsize,
    pages: AtomicU64,
    page_bytes: AtomicU64,
    saved_gets: AtomicU64,
    missed_gets: AtomicU64,
    off: Mutex<Option<String>>,
}

/// The file, as volumes use it.
#[derive(Clone, Debug)]
pub struct Pages {
    shared: Arc<Shared>,
    orders: SyncSender<Order>,
    patience: Duration,
}

/// The file. It is closed when this is dropped.
#[derive(Debug)]
pub struct MapFile {
    pages: Pages,
    /// Ends when the file is closed.
    closed: Receiver<()>,
}

impl MapFile {
    /// Opens the file, or makes it, without waiting for that. Until it is open nothing is kept. If
    /// it can't be had, `tell` hears why.
    ///
    /// # Errors
    /// If the kernel has no thread.
    pub fn open(path: &Path, size_bytes: u64, tell: Box<dyn Fn(&str) + Send>) -> std::io::Result<Self> {
        Self::open_with(path, size_bytes, PATIENCE, tell)
    }

    fn open_with(path: &Path, size_bytes: u64, patience: Duration, tell: Tell) -> std::io::Result<Self> {
        let shared = Arc::new(Shared { path: path.to_owned(), size_bytes, ..Shared::default() });
        let (orders, taken) = sync_channel(ORDERS);
        let (close, closed) = channel();
        let keeper = Keeper { shared: Arc::clone(&shared), orders: taken, tell, _close: close };
        std::thread::Builder::new().name("map-file".to_owned()).spawn(move || keeper.work())?;
        Ok(Self { pages: Pages { shared, orders, patience }, closed })
    }

    /// The file, for volumes.
    #[must_use]
    pub const fn pages(&self) -> &Pages {
        &self.pages
    }

    /// What is known of it.
    #[must_use]
    pub fn figures(&self) -> MapFileFigures {
        let shared = &self.pages.shared;
        let number = |it: &AtomicU64| it.load(Ordering::Relaxed);
        MapFileFigures {
            path: shared.path.clone(),
            size_bytes: shared.size_bytes,
            is_ready: shared.is_ready.load(Ordering::Acquire),
            pages: number(&shared.pages),
            page_bytes: number(&shared.page_bytes),
            saved_gets: number(&shared.saved_gets),
            missed_gets: number(&shared.missed_gets),
            off: shared.off.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

impl Drop for MapFile {
    /// Waits until the file is closed, unless its disk is slow: then it is closed later.
    fn drop(&mut self) {
        self.pages.shared.is_ready.store(false, Ordering::Release);
        // A full queue is that of a slow disk.
        let _ = self.pages.orders.try_send(Order::End);
        let _ = self.closed.recv_timeout(LEAVE);
    }
}

impl Pages {
    /// The content of all these pages, if the file has it and tells it soon.
    pub(crate) fn find(&self, keys: &[PageKey]) -> Option<Vec<Vec<u8>>> {
        let shared = &self.shared;
        if !shared.is_ready.load(Ordering::Acquire) || shared.is_late.load(Ordering::Relaxed) {
            return None;
        }
        let (give, take) = sync_channel(1);
        self.orders.try_send(Order::Find(keys.to_vec(), give)).ok()?;
        let found = take.recv_timeout(self.patience);
        if matches!(found, Err(RecvTimeoutError::Timeout)) {
            shared.is_late.store(true, Ordering::Relaxed);
        }
        found.ok()?
    }

    /// Counts a GET, which the file has saved or not.
    pub(crate) fn count(&self, is_saved: bool) {
        let shared = &self.shared;
        let counter = if is_saved { &shared.saved_gets } else { &shared.missed_gets };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Keeps pages, unless the file is busy.
    pub(crate) fn keep(&self, pages: Vec<(PageKey, Vec<u8>)>) {
        let shared = &self.shared;
        let bytes: usize = pages.iter().map(|(_, content)| content.len()).sum();
        let waiting = shared.waiting_bytes.load(Ordering::Relaxed);
        if pages.is_empty() || !shared.is_ready.load(Ordering::Acquire) || waiting + bytes > WAITING_BYTES {
            return;
        }
        shared.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.orders.try_send(Order::Keep(pages)).is_err() {
            shared.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

/// The thread of the file.
struct Keeper {
    shared: Arc<Shared>,
    orders: Receiver<Order>,
    tell: Tell,
    /// Dropped at the end, after the file.
    _close: Sender<()>,
}

impl Keeper {
    fn work(self) {
        if let Err(why) = self.keep_pages() {
            let why = format!("{}: {why}", self.shared.path.display());
            *self.shared.off.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.clone());
            (self.tell)(&why);
        }
        self.shared.is_ready.store(false, Ordering::Release);
        self.note(0, 0);
    }

    fn note(&self, pages: u64, bytes: u64) {
        self.shared.pages.store(pages, Ordering::Relaxed);
        self.shared.page_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Keeps pages until the end, or says why that can't go on.
    fn keep_pages(&self) -> Result<(), String> {
        let Shared { path, size_bytes, .. } = &*self.shared;
        let mut segments = open_soon(path, *size_bytes).map_err(|why| why.to_string())?;
        self.note(segments.pages(), segments.page_bytes());
        self.shared.is_ready.store(true, Ordering::Release);
        let done = self.carry_out(&mut segments);
        done.map_err(|error| match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                // Others need the room more.
                let _ = segments.empty();
                "the disk is full, so the file was emptied, and no page is kept until the next start; take a smaller \
                 map_file_bytes, or name a file on another disk with map_file"
                    .to_owned()
            }
            _ => format!(
                "{error}; no page is kept until the next start; see to that disk, or name a file on another one"
            ),
        })
    }

    fn carry_out(&self, segments: &mut Segments) -> std::io::Result<()> {
        while let Ok(order) = self.orders.recv() {
            match order {
                Order::Find(keys, give) => {
                    let mut found = Vec::new();
                    for key in &keys {
                        match segments.find(key)? {
                            Some(content) => found.push(content),
                            None => break,
                        }
                    }
                    // Whoever asked may have gone to the store.
                    let _ = give.try_send((found.len() == keys.len()).then_some(found));
                }
                Order::Keep(pages) => {
                    let bytes: usize = pages.iter().map(|(_, content)| content.len()).sum();
                    self.shared.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
                    for (key, content) in &pages {
                        segments.keep(key, content)?;
                    }
                }
                Order::End => return Ok(()),
            }
            self.note(segments.pages(), segments.page_bytes());
            self.shared.is_late.store(false, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Opens the file, and waits a little for a process that is on its way out.
fn open_soon(path: &Path, size_bytes: u64) -> Result<Segments, Refused> {
    let began = Instant::now();
    loop {
        match Segments::open(path, size_bytes) {
            // pacing: no process tells when it lets a lock go.
            Err(Refused::Busy) if began.elapsed() < BUSY_WAIT => std::thread::sleep(BUSY_STEP),
            result => return result,
        }
    }
}
