// SPDX-License-Identifier: MIT OR Apache-2.0
//! Holds those who have files of the folder open, and hands the mount to another program.
//!
//! Fuser's thread answers a question of ours last, and rests then. The pump finishes what the
//! thread took before. What comes meanwhile waits in the kernel, for whoever reads the mount's
//! descriptor next.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use flashfront_engine::OriginId;
use serde::{Deserialize, Serialize};

use super::super::visit::Visit;
use super::super::{Export, export_of};
use super::{Fuse, Opened, PlaceError, Shared, Stage, place, place_of};
use crate::upgrade::{Descriptor, Parcel};

/// A mount, and the files that are open.
#[derive(Debug, Serialize, Deserialize)]
struct SavedFuse {
    folder: PathBuf,
    device: Descriptor,
    /// The number of the next file that is opened.
    next: u64,
    open: Vec<SavedOpen>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedOpen {
    number: u64,
    origin: u32,
    who: String,
}

impl Fuse {
    /// Goes on with the mount that another program has handed over. A mount that had ended is made
    /// anew.
    ///
    /// # Errors
    /// See [`PlaceError`].
    pub(crate) fn take_over(folder: &Path, volumes: &[Export], parcel: &Parcel) -> Result<Self, PlaceError> {
        let failed = |error: io::Error| PlaceError::TakeOver { folder: folder.to_owned(), error };
        // The folder must not be looked at: its answers would wait for this program.
        let whole = place::whole_path(folder).map_err(failed)?;
        let saved = parcel.state.fuse.iter().cloned().map(serde_json::from_value::<SavedFuse>);
        let saved = saved.collect::<Result<Vec<_>, _>>().map_err(|error| failed(error.into()))?;
        let Some(saved) = saved.into_iter().find(|saved| saved.folder == whole) else {
            return Self::mount(folder, volumes);
        };
        let device = parcel.descriptor(saved.device).map_err(failed)?;
        let shared = Shared::new(volumes);
        shared.next.store(saved.next, Ordering::Relaxed);
        for SavedOpen { number, origin, who } in saved.open {
            let origin = OriginId(origin);
            let mut visit = Visit::begin(place_of(&whole), who);
            let _is_in = export_of(volumes, origin).is_some_and(|export| visit.open(export));
            shared.visits().insert(number, Opened { origin, visit });
        }
        Self::with(whole, shared, |volumes, _| Ok(Stage::Waits(volumes, device))).map_err(failed)
    }

    /// Lets fuser's thread rest after the next question for the file system's size, and asks that.
    pub(super) fn hold_clients(&mut self) {
        self.shared.rest.begin();
        let folder = self.folder.clone();
        // By a thread: the answer may need the pump, and comes from the next program if others came
        // first.
        let asked = std::thread::Builder::new().name("fuse-hold".to_owned()).spawn(move || {
            // An error is told by those who wait for the thread's rest.
            let _ = rustix::fs::statfs(&folder);
        });
        if let Err(error) = asked {
            tracing::warn!("{}: can't hold its clients: {error}", self.folder.display());
        }
    }

    /// Goes on with all requests.
    pub(super) fn release_clients(&mut self) {
        self.held = false;
        self.shared.rest.end();
    }

    /// Puts a copy of the descriptor and the files that are open into the parcel.
    pub(super) fn put_into(&self, parcel: &mut Parcel) -> io::Result<()> {
        // The next program makes a mount anew that somebody has ended.
        let Some(session) = self.live() else { return Ok(()) };
        let visits = self.shared.visits();
        let open = visits.iter().map(|(number, opened)| SavedOpen {
            number: *number,
            origin: opened.origin.0,
            who: opened.visit.who().to_owned(),
        });
        let saved = SavedFuse {
            folder: self.folder.clone(),
            device: parcel.put(session)?,
            next: self.shared.next.load(Ordering::Relaxed),
            open: open.collect(),
        };
        parcel.state.clients += visits.len() as u64;
        parcel.state.fuse.push(serde_json::to_value(saved)?);
        Ok(())
    }

    /// Leaves the mount to the program that has its descriptor. Fuser's thread ends.
    pub(super) fn leave_mount(&mut self) {
        if let Stage::Serves(session) = std::mem::replace(&mut self.stage, Stage::Over) {
            self.shared.leaving.store(true, Ordering::SeqCst);
            session.leave();
            self.shared.rest.end();
        }
    }
}
