// SPDX-License-Identifier: MIT OR Apache-2.0
//! A running daemon goes on without its cache, or with one again: `flashfront cache detach` and
//! `cache attach`.
//!
//! Clients are held as for an upgrade. The cache is closed as by a clean stop, with nothing dirty,
//! and this process begins another life with another configuration. A cache that was detached holds
//! nothing: its superblocks are void before the first request that goes past it. A cache that is
//! attached begins empty. So no block can be older than its origin (tests: end to end `attach`).

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;

use flashfront_device::real::{Access, DeviceFile, is_uri};
use flashfront_engine::format::{Mirror, OriginRecord, Superblock};
use flashfront_engine::{BLOCK_BYTES, Control, Input, Mode};

use super::Daemon;
use super::upgrading::{Handing, To, Upgrading, refuse};
use crate::config::{Config, Size, Volume};
use crate::control::Response;
use crate::report::counted;
use crate::upgrade::{Operator, Parcel, ms_since};
use crate::{offline, storage, superblock};

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
}

impl To {
    /// Whether dirty data may stay in the cache.
    pub(super) const fn may_be_dirty(&self) -> bool {
        !matches!(self, Self::Itself(Switch { aim: Aim::Detach { .. }, .. }))
    }
}

impl Switch {
    const fn new(aim: Aim) -> Self {
        Self { aim, volumes: Vec::new(), known: Vec::new() }
    }

    /// Notes which volumes there are at the end of this life.
    pub(super) fn leaves(&mut self, config: &Config, superblock: &Superblock, parcel: &mut Parcel) {
        (parcel.state.draining, parcel.state.dirty_limit_blocks) = (false, None);
        self.volumes.clone_from(&config.volumes);
        self.known = if config.detached.is_empty() { superblock.origins.clone() } else { config.detached.clone() };
        if config.without_cache && config.detached.is_empty() {
            for (record, volume) in self.known.iter_mut().zip(&self.volumes) {
                record.mode = volume.mode.unwrap_or(Mode::Writeback);
            }
        }
    }

    /// Returns the configuration of the next life. The device to attach becomes a cache here, while
    /// no daemon has the origins.
    pub(super) fn config(&self, now: &Config) -> Result<Config, String> {
        let mut next = now.with_volumes(&self.volumes);
        match &self.aim {
            Aim::Detach { .. } => {
                (next.without_cache, next.accept_missing_dirty_data) = (true, true);
                next.detached.clone_from(&self.known);
            }
            Aim::Attach { device, force } => {
                (next.without_cache, next.accept_missing_dirty_data) = (false, false);
                (next.cache, next.mirror, next.without_mirror) = (device.clone(), None, false);
                next.detached.clear();
                let origins: Vec<PathBuf> = self.volumes.iter().map(|volume| volume.origin.clone()).collect();
                offline::format_for(device, *force, &self.known, &origins).map_err(|error| error.to_string())?;
            }
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
        devices: Default::default(),
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
    if let Some(why) = daemon.why_not(false) {
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
        daemon.why_not(false)
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
