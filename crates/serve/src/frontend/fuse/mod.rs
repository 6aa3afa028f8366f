// SPDX-License-Identifier: MIT OR Apache-2.0
//! The FUSE front-end: a folder with one file per volume, which the loop driver makes a block
//! device.
//!
//! It is for hosts that have neither ublk nor nbd. One mount of a folder serves all volumes, by
//! their names. The crate `fuser` mounts and speaks the protocol; its thread hands requests to the
//! pump through [`inlet`](super::inlet). `volumes` is what that thread does, `session` the thread
//! with its descriptor, `ask` a request on its way, `place` the folder before and after. `hold`
//! gives the mount to another program, while the thread is in its `rest`.
//!
//! Payload of a read goes from its buffer to the kernel. Payload of a write is copied twice: by
//! fuser's thread, which needs its buffer back, and by the pump, whose buffers are its own. The
//! file has no page cache (direct I/O, whatever the opener asks for), so each FSYNC is a FLUSH of
//! all that was acknowledged.
//!
//! The folder is unmounted at the end. The next start clears what a crash leaves (test:
//! `a_mount_that_a_crash_left_is_cleared`).

use std::collections::HashMap;
use std::io::{self, ErrorKind::NotFound};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use flashfront_engine::{OriginId, RequestError, RequestId, Time};
use mio::{Registry, event::Event};

use super::inlet::Inlet;
use super::visit::Visit;
use super::{Core, Export, Frontend, TokenRange};
use crate::address::escape;
use crate::upgrade::Parcel;

mod ask;
mod hold;
mod place;
mod rest;
mod session;
mod volumes;

use ask::FuseAsk;
pub use place::PlaceError;
use rest::Rest;
use session::Session;
use volumes::Volumes;

/// The source by which our mounts are known among others.
const SOURCE: &str = "flashfront";

/// Data that both threads share.
#[derive(Debug)]
struct Shared {
    /// The volumes, sorted by their origins.
    volumes: RwLock<Arc<[Export]>>,
    /// The files that are open, by the numbers that the kernel says with each request.
    visits: Mutex<HashMap<u64, Opened>>,
    /// The number of the next one.
    next: AtomicU64,
    /// The end of the session is our own doing.
    leaving: AtomicBool,
    rest: Rest,
}

/// A file that is open.
#[derive(Debug)]
struct Opened {
    origin: OriginId,
    visit: Visit,
}

impl Shared {
    fn new(volumes: &[Export]) -> Self {
        Self {
            volumes: RwLock::new(volumes.into()),
            visits: Mutex::default(),
            next: AtomicU64::new(0),
            leaving: AtomicBool::new(false),
            rest: Rest::default(),
        }
    }

    /// The volumes at this moment.
    fn volumes(&self) -> Arc<[Export]> {
        Arc::clone(&self.volumes.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn visits(&self) -> MutexGuard<'_, HashMap<u64, Opened>> {
        // Nothing here can panic halfway through a change.
        self.visits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How far the mount is.
#[derive(Debug)]
enum Stage {
    /// Another program's mount, whose descriptor nobody reads yet.
    Waits(Volumes, OwnedFd),
    Serves(Session),
    /// The folder is unmounted, or another program's.
    Over,
}

/// The FUSE front-end.
#[derive(Debug)]
pub struct Fuse {
    inlet: Inlet<FuseAsk>,
    stage: Stage,
    shared: Arc<Shared>,
    folder: PathBuf,
    uri: String,
    stopping: bool,
    /// Fuser's thread rests, and what it took is answered.
    held: bool,
}

impl Fuse {
    /// Mounts. Requests are answered once the pump runs.
    ///
    /// # Errors
    /// See [`PlaceError`]; then nothing is mounted.
    pub fn mount(folder: &Path, volumes: &[Export]) -> Result<Self, PlaceError> {
        let folder = place::prepare(folder)?;
        let failed = |error: io::Error| PlaceError::Mount { folder: folder.clone(), error };
        let mount = |volumes, folder: &Path| Ok(Stage::Serves(Session::mount(volumes, folder)?));
        Self::with(folder.clone(), Shared::new(volumes), mount).map_err(failed)
    }

    fn with(
        folder: PathBuf,
        shared: Shared,
        stage: impl FnOnce(Volumes, &Path) -> io::Result<Stage>,
    ) -> io::Result<Self> {
        let (inlet, feed) = Inlet::new()?;
        let file = match &*shared.volumes() {
            [one] => folder.join(&one.name),
            _ => folder.clone(),
        };
        let shared = Arc::new(shared);
        let stage = stage(Volumes::new(feed, Arc::clone(&shared), folder.clone()), &folder)?;
        Ok(Self { inlet, stage, shared, folder, uri: uri(&file), stopping: false, held: false })
    }

    /// The session, unless it is over.
    fn live(&self) -> Option<&Session> {
        match &self.stage {
            Stage::Serves(session) if !session.is_over() => Some(session),
            _ => None,
        }
    }

    /// Takes the folder away. A program that still has a file open gets errors from now on.
    fn unmount(&mut self) {
        let Stage::Serves(session) = std::mem::replace(&mut self.stage, Stage::Over) else {
            return;
        };
        // First, so that fuser's thread waits no longer.
        self.inlet.close();
        self.shared.rest.end();
        let open = self.clients();
        if open > 0 {
            tracing::warn!(
                "{}: unmounted while {open} opened files of it were in use; what is above them (a loop device?) gets I/O errors from now on",
                self.folder.display()
            );
        }
        self.shared.leaving.store(true, Ordering::SeqCst);
        if let Err(error) = place::take_away(&self.folder, session) {
            tracing::warn!("{}: can't unmount: {error}; umount --lazy will", self.folder.display());
        }
    }
}

/// The front-end's name in messages.
fn place_of(folder: &Path) -> String {
    format!("FUSE at {}", folder.display())
}

fn uri(file: &Path) -> String {
    format!("file://{}", escape(file.as_os_str().as_encoded_bytes()))
}

impl Drop for Fuse {
    fn drop(&mut self) {
        self.unmount();
    }
}

impl Frontend for Fuse {
    fn uri(&self) -> String {
        self.uri.clone()
    }

    fn uri_of(&self, export: &Export) -> Option<String> {
        Some(uri(&self.folder.join(&export.name)))
    }

    fn exports_changed(&mut self, exports: &[Export]) {
        let before = self.shared.volumes();
        *self.shared.volumes.write().unwrap_or_else(PoisonError::into_inner) = exports.into();
        for (export, file) in volumes::resized(&before, exports) {
            // Only what the kernel knows of the file: there is no page cache, which could be waited
            // for. A file that nobody has looked at is none to forget.
            let told = self.live().map(|session| session.notifier().inval_inode(file, -1, 0));
            if let Some(Err(error)) = told.filter(|told| !told.as_ref().is_err_and(|it| it.kind() == NotFound)) {
                tracing::warn!(
                    "{}: the kernel can't be told that it has grown: {error}; who opens the file anew sees it",
                    self.folder.join(&export.name).display()
                );
            }
        }
    }

    fn tokens_max(&self) -> usize {
        1
    }

    fn register(&mut self, registry: &Registry, tokens: TokenRange) -> io::Result<()> {
        self.inlet.register(registry, tokens)?;
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Waits(volumes, device) => self.stage = Stage::Serves(Session::take_over(volumes, &device)?),
            other => self.stage = other,
        }
        Ok(())
    }

    fn ready(&mut self, _event: &Event, _registry: &Registry, core: &mut dyn Core) {
        self.inlet.take_in(core);
    }

    fn reply(&mut self, id: RequestId, result: Result<(), RequestError>, _core: &mut dyn Core) {
        self.inlet.reply(id, result);
    }

    fn refused(&mut self, id: RequestId, _core: &mut dyn Core) {
        self.inlet.refused(id);
    }

    fn room(&mut self, _core: &mut dyn Core) {
        // Requests that wait are tried at the end of every turn.
    }

    fn turn_end(&mut self, now: Time, _registry: &Registry, core: &mut dyn Core) -> bool {
        // Asked first: what the thread took before its rest is in the inlet after this.
        let rests = self.shared.rest.is_kept();
        let more = self.inlet.turn_end(now, core);
        self.held = rests && self.inlet.is_idle();
        if self.stopping && self.inlet.is_idle() {
            self.unmount();
        }
        more
    }

    fn next_timer(&self) -> Option<Time> {
        self.inlet.next_timer()
    }

    fn stop(&mut self, _registry: &Registry, core: &mut dyn Core) {
        self.stopping = true;
        self.inlet.stop(core);
    }

    fn idle(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    fn clients(&self) -> usize {
        self.shared.visits().len()
    }

    fn stays(&self) -> Option<String> {
        None
    }

    fn hold(&mut self, _forced: bool, _core: &mut dyn Core) {
        self.hold_clients();
    }

    fn held(&self) -> bool {
        self.held || self.live().is_none()
    }

    fn release(&mut self) {
        self.release_clients();
    }

    fn hand_over(&mut self, parcel: &mut Parcel, _core: &mut dyn Core) -> io::Result<()> {
        self.put_into(parcel)
    }

    fn leave(&mut self) {
        self.leave_mount();
    }
}
