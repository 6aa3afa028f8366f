// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens the origin of a volume that is to be added. A device may take its time, so a thread of its
//! own does that, and clients notice nothing.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use flashfront_device::real::{Access, DeviceFile, OpenBy, Storage, watched};
use flashfront_engine::NewVolume;
use flashfront_engine::format::{OriginRecord, Shares};

use super::super::members;
use super::super::own::Own;
use super::super::stop::StopHandle;
use super::error::VolumesError;
use super::orders::Wanted;
use crate::daemon::whole::whole;
use crate::offline::uuid_text;
use crate::stale::{self, How};
use crate::storage;

/// What the thread must know of the daemon.
pub(super) struct Known {
    /// Devices in use, each with the volume that it is the origin of; a cache device has none.
    pub(super) used: Vec<(Arc<DeviceFile>, Option<String>)>,
    pub(super) state: Option<PathBuf>,
    pub(super) uuid: [u8; 16],
    /// The limits of the volume.
    pub(super) shares: Shares,
    /// What the daemon offers itself.
    pub(super) own: Own,
    /// How long the device may take to answer.
    pub(super) timeout: Option<Duration>,
}

/// An open origin, and what the cache is to know of it.
pub(super) struct Opened {
    pub(super) file: DeviceFile,
    pub(super) volume: NewVolume,
    /// Nobody else writes it any more.
    pub(super) is_taken_over: bool,
}

/// Begins to open the origin.
pub(super) fn begin(
    wanted: &Wanted,
    known: Known,
    stop: &StopHandle,
) -> Result<Receiver<Result<Opened, VolumesError>>, VolumesError> {
    let wanted = wanted.clone();
    by_thread(known.timeout, stop, move || open(&wanted, &known))
}

/// Begins to take the origin over, when nothing else speaks against the volume.
pub(super) fn begin_taking_over(
    opened: Opened,
    known: Known,
    stop: &StopHandle,
) -> Result<Receiver<Result<Opened, VolumesError>>, VolumesError> {
    by_thread(known.timeout, stop, move || take_over(opened, &known))
}

fn by_thread(
    limit: Option<Duration>,
    stop: &StopHandle,
    work: impl FnOnce() -> Result<Opened, VolumesError> + Send + 'static,
) -> Result<Receiver<Result<Opened, VolumesError>>, VolumesError> {
    let (sender, opened) = mpsc::channel();
    let stop = stop.clone();
    let thread = move || {
        let opened = watched(|_| limit, work);
        let opened = opened.unwrap_or_else(|silent| Err(VolumesError::Serve(silent.into())));
        // A daemon that has ended meanwhile doesn't need it.
        let _ = sender.send(opened);
        stop.wake();
    };
    std::thread::Builder::new().name("volume".to_owned()).spawn(thread).map_err(VolumesError::Thread)?;
    Ok(opened)
}

fn open(wanted: &Wanted, known: &Known) -> Result<Opened, VolumesError> {
    let path = &wanted.origin;
    // Before the lock, which would only say "busy".
    let behind = Storage::behind(path);
    for (used, volume) in &known.used {
        if let Some(shared) = behind.as_ref().and_then(|it| it.shared_with(used.storage())) {
            let role = volume.as_ref().map_or("a cache device".to_owned(), |name| format!("the origin of `{name}`"));
            let (used, ways) = (used.path().to_owned(), storage::in_brackets(&shared));
            return Err(VolumesError::InUse { path: path.clone(), used, role, ways });
        }
    }
    if let Some(place) = known.own.reached_by(path) {
        return Err(VolumesError::Own { path: path.clone(), place });
    }
    let file = DeviceFile::open(path, Access::Exclusive)?;
    members::refuse_cache(&file).map_err(VolumesError::Serve)?;
    if let Some(OpenBy { who, epoch, owes, .. }) =
        stale::other_writer(&file, Some(known.uuid), &OriginRecord::default())
    {
        let origin = path.clone();
        return Err(match owes {
            true => VolumesError::OwedElsewhere { origin, who, epoch },
            false => VolumesError::OpenElsewhere { origin, who, epoch },
        });
    }
    let volume = NewVolume {
        name: wanted.name.clone(),
        identity: String::new(),
        origin_path: whole(&file),
        size_bytes: file.geometry().size_bytes,
        block_bytes: file.geometry().logical_block_bytes,
        whole_flushes: file.mark().is_some(),
        mode: wanted.mode,
        read_only: wanted.read_only || file.is_snapshot(),
        shares: known.shares,
        fingerprint: 0,
        changed_ns: 0,
    };
    Ok(Opened { file, volume, is_taken_over: false })
}

/// Has its other writers fenced, and notes what the origin has.
fn take_over(mut opened: Opened, known: &Known) -> Result<Opened, VolumesError> {
    let Opened { file, volume, is_taken_over } = &mut opened;
    let unread = |source| VolumesError::Read { path: file.path().to_owned(), source };
    file.take_over(Some(known.uuid)).map_err(unread)?;
    let mut record = OriginRecord::default();
    stale::record(file, &mut record).map_err(unread)?;
    leave_others(file, known)?;
    (volume.identity, volume.fingerprint, volume.changed_ns) = (record.identity, record.fingerprint, record.changed_ns);
    *is_taken_over = true;
    Ok(opened)
}

/// Makes durable that each other cache of this origin is older from now on.
fn leave_others(file: &DeviceFile, known: &Known) -> Result<(), VolumesError> {
    let (state, uuid) = (known.state.as_deref(), uuid_text(&known.uuid));
    if stale::served_by(state, file)?.is_some_and(|it| it.cache != uuid) {
        // This cache holds nothing of it.
        let remembered = stale::remember(state, file, How::ServedWithAnotherCache, vec![uuid]);
        let unremembered =
            super::super::changes::unremembered(file, "is newer than the cache that it was served with before");
        remembered.map_err(|error| VolumesError::Serve(unremembered(error)))?;
    }
    Ok(())
}
