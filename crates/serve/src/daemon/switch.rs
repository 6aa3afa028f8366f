// SPDX-License-Identifier: MIT OR Apache-2.0
//! A running daemon goes on without its cache, or with one again: `flashfront cache detach` and
//! `cache attach`. Or its cache gets another size ([`super::resize`]).
//!
//! Clients are held as for an upgrade. The cache is closed as by a clean stop, and this process
//! begins another life with another configuration. A cache that was detached holds
//! nothing: its superblocks are void before the first request that goes past it. A cache that is
//! attached begins empty. So no block can be older than its origin (tests: end to end `attach`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;

use flashfront_device::real::{Access, DeviceFile, is_uri};
use flashfront_engine::format::{Mirror, OriginRecord, Superblock};
use flashfront_engine::{BLOCK_BYTES, Control, Destage, Input, Mode};

use super::limit::LimitError;
use super::resize::{NewSize, Resize};
use super::upgrading::{Handing, Served, To, Upgrading, refuse};
use super::{Daemon, limit};
use crate::config::{Config, DirtyLimit, Size, Volume};
use crate::control::Response;
use crate::report::counted;
use crate::upgrade::{Operator, Parcel, ms_since};
use crate::{offline, storage, superblock};

/// With more blocks in it, 256 MiB, a cache shrinks only when its end was emptied: clients wait
/// while blocks are moved.
const COPIED_MAX: u64 = 65_536;

/// Another life of the same process.
#[derive(Debug)]
pub(super) struct Switch {
    aim: Aim,
    volumes: Vec<Volume>,
    /// The volumes as a cache knew them.
    known: Vec<OriginRecord>,
}

#[derive(Debug)]
enum Aim {
    /// The device of the cache with this UUID is given back.
    Detach { device: PathBuf, uuid: [u8; 16] },
    /// An empty cache is made on this device.
    Attach {
        device: PathBuf,
        /// Destroy what is on it.
        force: bool,
    },
    /// The cache gets another size.
    Resize(Resize),
}

impl To {
    /// Whether dirty data may stay in the cache.
    pub(super) const fn may_be_dirty(&self) -> bool {
        match self {
            Self::Program(_) => true,
            Self::Itself(switch) => switch.may_be_dirty(),
        }
    }
}

impl Switch {
    const fn new(aim: Aim) -> Self {
        Self { aim, volumes: Vec::new(), known: Vec::new() }
    }

    /// Whether dirty data may stay in the cache.
    pub(super) const fn may_be_dirty(&self) -> bool {
        match &self.aim {
            Aim::Detach { .. } => false,
            Aim::Attach { .. } => true,
            Aim::Resize(resize) => resize.may_be_dirty(),
        }
    }

    /// Notes which volumes there are at the end of this life.
    pub(super) fn leaves(&mut self, config: &Config, superblock: &Superblock, parcel: &mut Parcel) {
        if !matches!(self.aim, Aim::Resize(_)) {
            (parcel.state.draining, parcel.state.dirty_limit_blocks) = (false, None);
        }
        self.volumes.clone_from(&config.volumes);
        self.known = if config.detached.is_empty() { superblock.origins.clone() } else { config.detached.clone() };
        if config.without_cache && config.detached.is_empty() {
            for (record, volume) in self.known.iter_mut().zip(&self.volumes) {
                record.mode = volume.mode.unwrap_or(Mode::Writeback);
            }
        }
    }

    /// Returns the configuration of the next life. The device to attach becomes a cache here, while
    /// no daemon has the origins; and the cache gets its new size.
    pub(super) fn config(&mut self, now: &Config) -> Result<Config, String> {
        let mut next = now.with_volumes(&self.volumes);
        match &mut self.aim {
            Aim::Detach { .. } => {
                (next.without_cache, next.accept_missing_dirty_data) = (true, true);
                next.detached.clone_from(&self.known);
            }
            Aim::Attach { device, force } => {
                (next.without_cache, next.accept_missing_dirty_data) = (false, false);
                next.move_to(device.clone(), None);
                next.without_mirror = false;
                next.detached.clear();
                let origins: Vec<PathBuf> = self.volumes.iter().map(|volume| volume.origin.clone()).collect();
                offline::format_for(device, *force, &self.known, &origins).map_err(|error| error.to_string())?;
            }
            Aim::Resize(resize) => resize.carry_out()?,
        }
        Ok(next)
    }

    /// Makes the superblocks of the detached cache void. From then on the origins alone count, and
    /// may be written.
    pub(super) fn lets_go(&self) -> Result<(), String> {
        let Aim::Detach { device, uuid } = &self.aim else { return Ok(()) };
        let shown = device.display();
        let file = DeviceFile::open(device, Access::Exclusive).map_err(|error| error.to_string())?;
        let stored = superblock::read(&file).map_err(|error| error.to_string())?.superblock;
        if stored.uuid != *uuid || !stored.clean || stored.dirty_blocks > 0 {
            return Err(format!("{shown}: another cache is there now"));
        }
        offline::make_void(&file, &stored).map_err(|error| format!("{shown}: can't make its superblocks void: {error}"))
    }

    /// Tells the operator that clients are served in the other way.
    pub(super) fn is_done(&self, parcel: &Parcel, operator: Operator) {
        let (clients, paused_ms) = (parcel.state.clients, ms_since(parcel.state.held_ns));
        let waited = format!("{} waited {paused_ms} ms", counted(clients, "client"));
        match &self.aim {
            Aim::Detach { device, .. } => {
                tracing::warn!("{}: the cache is detached, and free for other use; {waited}", device.display());
            }
            Aim::Attach { device, .. } => tracing::info!("{}: it is the cache now; {waited}", device.display()),
            Aim::Resize(resize) => return resize.is_done((clients, paused_ms), operator),
        }
        operator.answer(&Response::Switched { clients, paused_ms });
    }
}

/// Begins to give the cache back, or refuses that.
pub(super) fn order_detach(daemon: &mut Daemon, operator: Operator) {
    let aim = match to_detach(daemon) {
        Ok(aim) => aim,
        Err(why) => return refuse(operator, format!("{why}; nothing was changed")),
    };
    tracing::info!("the cache is to be detached, by the operator");
    daemon.upgrading = daemon.hold(Handing {
        operator,
        disconnect: false,
        to: To::Itself(Switch::new(aim)),
        parcel: Parcel::default(),
        served: Served::default(),
    });
}

fn to_detach(daemon: &Daemon) -> Result<Aim, String> {
    let (engine, held) = (daemon.pump.engine(), &daemon.held);
    if daemon.config.without_cache {
        return Err("the volumes are served without a cache already".to_owned());
    }
    if daemon.config.disposable_cache.is_some() {
        return Err("with --disposable-cache the next start makes a cache of the device again: stop, and serve without that flag".to_owned());
    }
    if let Some(why) = daemon.why_not() {
        return Err(why);
    }
    if engine.superblock().pairing.mirror == Mirror::Whole {
        return Err("the cache is on two devices: let one go first, with `flashfront mirror remove`".to_owned());
    }
    if daemon.leaver.path().is_some() {
        return Err("a cache device is being closed; try again in a moment".to_owned());
    }
    let lost = engine.status().lost.len() as u64;
    if lost > 0 {
        let lost = counted(lost, "dirty block");
        return Err(format!("{lost} can't be read from the cache device, see `flashfront status`"));
    }
    match held.members_in_use(engine).as_slice() {
        [(_, file)] => Ok(Aim::Detach { device: file.path().to_owned(), uuid: engine.superblock().uuid }),
        _ => Err("the cache device is not open".to_owned()),
    }
}

/// Begins to take a cache, or refuses that. A thread looks at the device.
pub(super) fn order_attach(daemon: &mut Daemon, device: PathBuf, force: bool, operator: Operator) {
    let why = if !daemon.config.without_cache {
        Some(format!("the volumes have a cache, {}", daemon.config.cache.display()))
    } else if device.is_relative() && !is_uri(&device) {
        Some(format!("{}: name the device by its whole path", device.display()))
    } else {
        daemon.why_not()
    };
    if let Some(why) = why {
        return refuse(operator, format!("{why}; nothing was changed"));
    }
    let kept = daemon.config.detached.iter().map(|record| record.shares.min_bytes).sum();
    let origins: Vec<PathBuf> = daemon.held.origins().iter().map(|origin| origin.path().to_owned()).collect();
    let (send, started) = channel();
    let stop = daemon.stop.clone();
    let look = move || {
        let fit = is_fit(&device, force, &origins, kept);
        let _ = send.send(fit.map(|()| To::Itself(Switch::new(Aim::Attach { device, force }))));
        stop.wake();
    };
    match std::thread::Builder::new().name("attach".to_owned()).spawn(look) {
        Ok(_) => daemon.upgrading = Upgrading::Starting { started, disconnect: false, operator },
        Err(error) => refuse(operator, format!("starting a thread: {error}; nothing was changed")),
    }
}

/// Whether nothing is dirty. If something is, that is destaged while clients are held.
pub(super) fn drains_the_rest(daemon: &mut Daemon) -> bool {
    let status = daemon.pump.engine().status();
    if status.blocks_dirty > 0 && !status.draining {
        daemon.pump.apply(Input::Control(Control::Drain(true)));
    }
    status.blocks_dirty == 0
}

/// Looks at a device that is to become the cache, and refuses one that holds anything. The smallest
/// parts of all volumes (`kept` bytes) need room in it, too.
fn is_fit(device: &Path, force: bool, origins: &[PathBuf], kept: u64) -> Result<(), String> {
    for origin in origins {
        if let Some(shared) = storage::shared(device, origin) {
            let ways = storage::in_brackets(&shared);
            return Err(format!("{}: it is an origin of this daemon, {}{ways}", device.display(), origin.display()));
        }
    }
    let file = DeviceFile::open(device, Access::Exclusive).map_err(|error| error.to_string())?;
    let blocks = offline::is_fit(&file, force).map_err(|error| error.to_string())?;
    if kept > blocks * BLOCK_BYTES / 2 {
        let (device, kept) = (device.display(), Size(kept).told());
        return Err(format!("{device}: the smallest parts of the volumes, {kept}, are more than half of it"));
    }
    Ok(())
}

/// Begins to give the cache another size, or refuses that.
pub(super) fn order_resize(daemon: &mut Daemon, size: NewSize, operator: Operator) {
    let resize = match to_resize(daemon, size) {
        Ok(Some(resize)) => resize,
        Ok(None) => {
            daemon.pump.apply(Input::Control(Control::Vacate { keep_segments: None, dirty_limit_blocks: None }));
            return Resize::is_needless(daemon.pump.engine(), operator);
        }
        Err(why) => return refuse(operator, format!("{why}; nothing was changed")),
    };
    tracing::info!("the cache is to get another size, by the operator");
    daemon.upgrading = daemon.hold(Handing {
        operator,
        disconnect: false,
        to: To::Itself(Switch::new(Aim::Resize(resize))),
        parcel: Parcel::default(),
        served: Served::default(),
    });
}

/// Begins to empty what lies beyond a size, or refuses that. Without a size all of the cache is
/// used again.
pub(super) fn vacate(daemon: &mut Daemon, bytes: Option<u64>) -> Result<(), String> {
    let (keep_segments, dirty_limit_blocks) = match bytes {
        None => (None, None),
        Some(bytes) => {
            let device = device(daemon)?.path().to_owned();
            let now = daemon.pump.engine().superblock();
            let (next, kept) = offline::shrunk(&device, now, bytes).map_err(|error| error.to_string())?;
            let limit = limit_of(daemon, &next).map_err(|error| error.to_string())?;
            (can_move(daemon).then_some(kept), Some(limit))
        }
    };
    daemon.pump.apply(Input::Control(Control::Vacate { keep_segments, dirty_limit_blocks }));
    Ok(())
}

/// Whether what is dirty can be moved to the beginning of the cache.
fn can_move(daemon: &Daemon) -> bool {
    daemon.pump.engine().superblock().lanes == 1 && daemon.config.destage() == Destage::Free
}

/// The device of a cache that can get another size now.
fn device(daemon: &Daemon) -> Result<Arc<DeviceFile>, String> {
    let (engine, held, config) = (daemon.pump.engine(), &daemon.held, &daemon.config);
    let now = engine.superblock();
    if config.without_cache {
        return Err("the volumes are served without a cache".to_owned());
    }
    if config.disposable_cache.is_some() {
        return Err(
            "with --disposable-cache each start makes a cache of the whole device: stop, and serve again".to_owned()
        );
    }
    if let Some(why) = daemon.why_not() {
        return Err(why);
    }
    if now.pairing.mirror == Mirror::Whole {
        return Err("the cache is on two devices: let one go first, with `flashfront mirror remove`, and add a device of the new size afterwards".to_owned());
    }
    if daemon.leaver.path().is_some() {
        return Err("a cache device is being closed; try again in a moment".to_owned());
    }
    let file = held.members_in_use(engine).into_iter().next().map(|(_, file)| file);
    file.ok_or_else(|| "the cache device is not open".to_owned())
}

/// Looks at the cache, and refuses what would fail when clients wait. `None`: the cache has that
/// size already.
fn to_resize(daemon: &Daemon, size: NewSize) -> Result<Option<Resize>, String> {
    let file = device(daemon)?;
    let (device, engine) = (file.path().to_owned(), daemon.pump.engine());
    let now = engine.superblock();
    let next = match size {
        NewSize::OfDevice => {
            let bytes =
                file.size_now().map_err(|error| format!("{}: its size can't be read: {error}", device.display()))?;
            offline::grown(&device, now, bytes).map_err(|error| error.to_string())?
        }
        NewSize::Bytes(bytes) => offline::shrunk(&device, now, bytes).map_err(|error| error.to_string())?.0,
    };
    if next.cache_bytes == now.cache_bytes {
        return Ok(None);
    }
    limit_of(daemon, &next).map_err(|error| error.to_string())?;
    // What can't be moved has to be destaged.
    let may_be_dirty = size == NewSize::OfDevice || can_move(daemon);
    if size != NewSize::OfDevice && may_be_dirty {
        let status = engine.status();
        let left = status.left_in_end.unwrap_or(status.blocks_cached);
        if left > COPIED_MAX {
            let left = Size(left * BLOCK_BYTES).told();
            return Err(format!(
                "clients would wait while {left} are moved: empty the end of the cache first, as `flashfront cache shrink` does"
            ));
        }
    }
    Ok(Some(Resize::new(device, daemon.config.state.clone(), size, may_be_dirty)))
}

/// The dirty limit with the next size, if that is possible.
fn limit_of(daemon: &Daemon, next: &Superblock) -> Result<u64, LimitError> {
    let asked = daemon.config.policy.dirty_limit;
    let then = limit::blocks_at_start(asked, next)?;
    let now = daemon.pump.engine().status().dirty_limit_blocks;
    match limit::blocks(asked, daemon.pump.engine().superblock()) {
        Ok(usual) if usual != now => {
            // An operator has set another one, which is kept.
            let bytes = Size(now * BLOCK_BYTES);
            limit::blocks(DirtyLimit::Size(bytes), next)
        }
        _ => Ok(then),
    }
}
