// SPDX-License-Identifier: MIT OR Apache-2.0
//! A daemon's start: opens and checks the devices, and makes of the config what the engine wants.
//!
//! Nothing is written here, so that whatever is refused is left as it was.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use flashfront_device::Device;
use flashfront_device::real::{Access, DeviceFile, Reactor, each};
use flashfront_device::wrap::Patience;
use flashfront_engine::format::{OriginRecord, Superblock};
use flashfront_engine::{Destage, DeviceId, Durability, Engine, Options, OriginId, policy};

use super::apart::check_apart;
use super::error::failed;
use super::error::{OriginsError, ServeError};
use super::hooks::{Hooks, Wrap};
use super::members::{self, Members};
use super::opened::Opened;
use super::resolve::resolve;
use super::{buffers, changes, compare, limit, without_cache};
use crate::carrier::Portable;
use crate::config::{Config, Listener, Size, Volume};
use crate::failure;
#[cfg(feature = "fuse")]
use crate::frontend::fuse::Fuse;
use crate::frontend::nbd::{Gate, Listen, Nbd, NbdOptions, Tls};
#[cfg(feature = "ublk")]
use crate::frontend::ublk::{Ublk, UblkOptions};
use crate::frontend::vhost_user_blk::{VhostUserBlk, deal};
use crate::frontend::{Export, Frontend};
use crate::pump::Devices;
use crate::stale::{self, Change, Verdict, Watch};
use crate::upgrade::Parcel;

pub(super) fn open(config: &Config) -> Result<Opened, ServeError> {
    let (members, mut superblock) = members::open(config).map_err(|error| members::or_swapped(config, error))?;
    let recorded = failure::recorded(config.state.as_deref(), &superblock)?;
    if let Some(dirty) = recorded.or_else(|| superblock.failed.then_some(superblock.dirty_blocks))
        && (dirty == 0 || !config.accept_changed_origin)
    {
        return Err(ServeError::CacheFailed { path: config.cache.clone(), dirty });
    }
    let count = superblock.origins.len();
    if count == 0 {
        return Err(OriginsError::Detached(config.cache.clone()).into());
    }
    let volumes = resolve(config, &superblock)?;
    buffers::check(config, superblock.lanes)?;
    let caches = members.iter().map(|(_, file)| file.path());
    check_apart(caches.chain(volumes.iter().map(|volume| volume.origin.as_path())))?;
    let remembered = stale::all_remembered(config.state.as_deref())?;
    let log = tracing::dispatcher::get_default(Clone::clone);
    let found = each(&volumes, |at, volume| {
        tracing::dispatcher::with_default(&log, || look(config, volume, &members, &superblock, at, &remembered))
    });
    let (mut origins, mut changes) = (Vec::new(), Vec::new());
    // After a failure writes went past the log, so that its clean blocks may be old too.
    let mut drop_clean = recorded.is_some() || superblock.failed;
    let mut epoch = superblock.epoch;
    for found in found {
        let Origin { file, is_changed, known, later_epoch } = found?;
        drop_clean |= is_changed;
        epoch = epoch.max(later_epoch.unwrap_or(0));
        changes.extend(known);
        origins.push(Arc::new(file));
    }
    // From now on this copy is the newest.
    superblock.epoch = epoch;
    Ok(Opened { members, origins, volumes, superblock, drop_clean, changes })
}

/// An open origin, and what is known of it.
struct Origin {
    file: DeviceFile,
    /// Clean data must be dropped.
    is_changed: bool,
    /// The changes that are remembered.
    known: Vec<Change>,
    /// The number of the last opening, if this is a copy from before it.
    later_epoch: Option<u64>,
}

/// Opens an origin, and compares it.
fn look(
    config: &Config,
    volume: &Volume,
    members: &Members,
    superblock: &Superblock,
    at: usize,
    remembered: &[Change],
) -> Result<Origin, ServeError> {
    let file = DeviceFile::open(&volume.origin, Access::Exclusive)?;
    members::refuse_cache(&file)?;
    if let Some(by) = stale::other_writer(&file, Some(superblock.uuid), &superblock.origins[at])
        && !config.take_over
    {
        return Err(OriginsError::held(&volume.origin, by).into());
    }
    fit(config, volume, &file, &superblock.origins[at])?;
    let known = changes::find(&file, superblock, at, remembered)?;
    let later = changes::later_opening(config, &file, superblock)?;
    let how = known.first().map(changes::how).or_else(|| later.as_ref().map(changes::how_later));
    let how = match how {
        None if !superblock.clean && superblock.epoch > 0 => compare::samples(config, &file, superblock, at),
        how => how,
    };
    let is_changed = guard(config, volume, &file, members, superblock, at, how)?;
    Ok(Origin { file, is_changed, known, later_epoch: later.map(|it| it.epoch) })
}

/// Uses of an origin what the volume has of it. An origin that shrank is refused.
fn fit(config: &Config, volume: &Volume, origin: &DeviceFile, record: &OriginRecord) -> Result<(), ServeError> {
    let (path, cache) = (volume.origin.clone(), config.cache.clone());
    let (found, expected) = (origin.geometry().size_bytes, record.size_bytes);
    if found < expected {
        return Err(OriginsError::OriginSize { origin: path, cache, expected, found }.into());
    }
    if found > expected {
        tracing::warn!(
            "{}: the origin is larger than the volume {} ({} and {}); `flashfront volume grow {}` gives clients the rest",
            path.display(),
            record.name,
            Size(found).told(),
            Size(expected).told(),
            record.name
        );
        origin.use_bytes(expected);
    }
    Ok(())
}

/// Asks the stale guard, and what is remembered; says whether clean data must be dropped.
fn guard(
    config: &Config,
    volume: &Volume,
    origin: &DeviceFile,
    members: &Members,
    superblock: &Superblock,
    at: usize,
    known: Option<String>,
) -> Result<bool, ServeError> {
    let record = &superblock.origins[at];
    let (path, cache) = (volume.origin.clone(), config.cache.clone());
    let verdict = stale::compare(origin, record, superblock.clean)
        .map_err(failed(format!("{}: reading samples", volume.origin.display())))?;
    let (shown, accepted) = (volume.origin.display(), config.accept_changed_origin);
    if verdict == Verdict::Other && !accepted {
        return Err(OriginsError::OtherOrigin { origin: path, cache, expected: record.identity.clone() }.into());
    }
    // A cache that was never opened holds nothing.
    if let Some(how) = known.filter(|_| superblock.epoch > 0) {
        changes::check(config, origin, members, superblock, how)?;
        return Ok(true);
    }
    match verdict {
        Verdict::Unchanged => Ok(false),
        // After a crash `compare` has compared the samples; clean blocks are compared at replay.
        Verdict::Unknown => Ok(false),
        Verdict::Changed if superblock.dirty_blocks > 0 && !accepted => {
            Err(OriginsError::OriginChanged { origin: path, cache, dirty: superblock.dirty_blocks }.into())
        }
        Verdict::Other | Verdict::Changed => {
            tracing::warn!("{shown} was changed since the last clean stop: dropping all clean data of the cache");
            Ok(true)
        }
    }
}

/// Says why there is no policy of this name.
pub(super) fn unknown_policy(name: &str) -> Option<ServeError> {
    let known = || policy::ALL.iter().map(|spec| spec.name).collect::<Vec<_>>().join(", ");
    policy::by_name(name).is_none().then(|| ServeError::Policy { name: name.to_owned(), known: known() })
}

pub(super) fn options(config: &Config, opened: &Opened) -> Result<Options, ServeError> {
    let superblock = &opened.superblock;
    let known = || policy::ALL.iter().map(|spec| spec.name).collect::<Vec<_>>().join(", ");
    let chosen = policy::by_name(&config.policy.name)
        .ok_or_else(|| ServeError::Policy { name: config.policy.name.clone(), known: known() })?;
    let limit = match config.without_cache {
        // Nothing ever is dirty.
        true => *Engine::dirty_limits(superblock).start(),
        false => limit::blocks_at_start(config.policy.dirty_limit, superblock)
            .map_err(|error| ServeError::DirtyLimit { path: config.cache.clone(), error })?,
    };
    let destage = config.with_volumes(&opened.volumes).destage();
    if destage == Destage::Ordered && superblock.version() < 2 && !config.without_cache {
        return Err(ServeError::OrderNeedsVersion2 { path: config.cache.clone() });
    }
    let units = superblock.origins.iter().zip(&opened.origins);
    let stores = units.clone().filter(|(_, file)| file.mark().is_some()).map(|(record, _)| record.id);
    Ok(Options {
        whole_flushes: stores.collect(),
        policy: chosen,
        durability: config.policy.durability,
        destage,
        dirty_limit_blocks: Some(limit),
        ram_front_bytes: config.ram_front_bytes.0,
        flash_writes_per_day_bytes: config.policy.flash_writes_per_day.bytes(superblock.cache_bytes),
        read_around_blocks: config.policy.read_around.0 / flashfront_engine::BLOCK_BYTES,
        sequential_bypass_bytes: config.policy.sequential_bypass.0,
        dirty_age_max_ns: u64::try_from(config.policy.max_dirty_age.0.as_nanos()).unwrap_or(u64::MAX),
        drop_clean: opened.drop_clean,
        // After a crash what the cache has of clean blocks is compared with the origins.
        hold_replayed: !superblock.clean && superblock.epoch > 0 && !opened.drop_clean && !config.without_cache,
        origin_block_bytes: units.map(|(record, file)| (record.id, file.geometry().logical_block_bytes)).collect(),
        ..Options::default()
    })
}

/// The front-ends, each listening.
#[derive(Default)]
pub(super) struct Listening {
    /// An address of each front-end, to be told when the daemon is ready.
    pub(super) uris: Vec<String>,
    /// All addresses of each volume, in the order of the volumes.
    pub(super) uris_of_volumes: Vec<Vec<String>>,
    /// Front-ends for the pump's thread.
    pub(super) here: Vec<Box<dyn Frontend>>,
    /// Front-ends for each carrier.
    pub(super) carried: Vec<Vec<Portable>>,
}

impl Listening {
    /// Gives a front-end to the carrier that has the fewest; to the pump if there are none.
    fn place(&mut self, frontend: Portable, exports: &[Export]) {
        self.note_uris(&*frontend, exports);
        match self.carried.iter_mut().min_by_key(|carried| carried.len()) {
            Some(carried) => carried.push(frontend),
            None => self.here.push(frontend),
        }
    }

    fn place_here(&mut self, frontend: Box<dyn Frontend>, exports: &[Export]) {
        self.note_uris(&*frontend, exports);
        self.here.push(frontend);
    }

    fn note_uris(&mut self, frontend: &dyn Frontend, exports: &[Export]) {
        self.uris.push(frontend.uri());
        for (uris, export) in self.uris_of_volumes.iter_mut().zip(exports) {
            uris.extend(frontend.uri_of(export));
        }
    }

    /// Listens for clients of NBD; with a parcel by the `nth` socket of NBD in it.
    fn nbd(
        &mut self,
        at: &Listen,
        options: NbdOptions,
        exports: &[Export],
        nth: usize,
        parcel: Option<&Parcel>,
    ) -> Result<(), ServeError> {
        let carriers = self.carried.len();
        let what = || format!("taking over the clients of NBD at {at}");
        if carriers == 0 {
            let nbd = match parcel {
                None => Nbd::bind(at, options)?,
                Some(parcel) => Nbd::take_over(at, options, nth, exports, parcel).map_err(failed(what()))?,
            };
            self.place_here(Box::new(nbd), exports);
            return Ok(());
        }
        let (gate, all) = match parcel {
            None => Gate::bind(at, options, carriers)?,
            Some(parcel) => Gate::take_over(at, options, nth, carriers, exports, parcel).map_err(failed(what()))?,
        };
        self.place_here(Box::new(gate), exports);
        for (carried, nbd) in self.carried.iter_mut().zip(all) {
            carried.push(Box::new(nbd));
        }
        Ok(())
    }
}

/// Listens everywhere; with a parcel by the sockets that are in it, and with its clients.
pub(super) fn listen(
    config: &Config,
    tls: Option<&Tls>,
    exports: &[Export],
    parcel: Option<&Parcel>,
) -> Result<Listening, ServeError> {
    let carried = std::iter::repeat_with(Vec::new).take(config.carriers()).collect();
    let uris_of_volumes = vec![Vec::new(); exports.len()];
    let mut listening = Listening { carried, uris_of_volumes, ..Listening::default() };
    let uri_export = match &config.volumes[..] {
        [first, _, ..] => first.name.clone(),
        _ => String::new(),
    };
    let durable = is_durable(config);
    let mut nbds = 0;
    let taking = |at: &Path| failed(format!("taking over the clients of vhost-user-blk at {}", at.display()));
    let mut sockets = match parcel {
        Some(parcel) => {
            let places = vhost_user_blk_places(config, exports);
            let first = places.first().map_or(config.control.as_path(), |(path, _)| path);
            deal(&places, parcel).map_err(taking(first))?.into_iter()
        }
        None => Vec::new().into_iter(),
    };
    for place in &config.listeners {
        match place {
            Listener::Nbd(at) => {
                let options = NbdOptions {
                    insecure: config.insecure,
                    tls: tls.cloned(),
                    uri_export: uri_export.clone(),
                    ..NbdOptions::default()
                };
                listening.nbd(at, options, exports, nbds, parcel)?;
                nbds += 1;
            }
            Listener::VhostUserBlk { path, volume } => {
                for export in vhost_user_blk_of(volume.as_deref(), path, exports) {
                    let path = Listener::socket_of(path, &export.name);
                    let server = match (parcel, sockets.next().flatten()) {
                        (Some(parcel), Some(saved)) => {
                            VhostUserBlk::take_over(&saved, export, durable, parcel).map_err(taking(&path))?
                        }
                        _ => VhostUserBlk::bind(&path, export.origin, durable)?,
                    };
                    listening.place(Box::new(server), exports);
                }
            }
            Listener::Fuse(folder) => listening.place_here(fuse(folder, exports, parcel)?, exports),
            Listener::Ublk(first) => {
                for (export, volume) in exports.iter().zip(&config.volumes) {
                    listening.place_here(ublk(config, *first, volume, export)?, exports);
                }
            }
        }
    }
    Ok(listening)
}

/// The sockets of vhost-user-blk with their volumes, in the order of the configuration.
fn vhost_user_blk_places(config: &Config, exports: &[Export]) -> Vec<(PathBuf, OriginId)> {
    let places = config.listeners.iter().map(|place| match place {
        Listener::VhostUserBlk { path, volume } => {
            let served = vhost_user_blk_of(volume.as_deref(), path, exports).into_iter();
            served.map(|export| (Listener::socket_of(path, &export.name), export.origin)).collect()
        }
        Listener::Nbd(_) | Listener::Fuse(_) | Listener::Ublk(_) => Vec::new(),
    });
    places.flatten().collect()
}

/// The volumes that a place of vhost-user-blk serves, each by a socket of its own.
fn vhost_user_blk_of<'a>(named: Option<&str>, path: &Path, exports: &'a [Export]) -> Vec<&'a Export> {
    let all = Listener::is_of_each(path);
    let served = |export: &&Export| named.is_none_or(|name| export.name == name);
    exports.iter().filter(served).take(if all { usize::MAX } else { 1 }).collect()
}

/// Listens for the clients of one more volume where the configuration has a place for each.
pub(super) fn listen_for(
    config: &Config,
    volume: &Volume,
    export: &Export,
) -> Result<Vec<Box<dyn Frontend>>, ServeError> {
    let durable = is_durable(config);
    let mut frontends: Vec<Box<dyn Frontend>> = Vec::new();
    for place in &config.listeners {
        match place {
            Listener::VhostUserBlk { path, volume: None } if Listener::is_of_each(path) => {
                let path = Listener::socket_of(path, &export.name);
                frontends.push(Box::new(VhostUserBlk::bind(&path, export.origin, durable)?));
            }
            Listener::Ublk(first) => frontends.push(ublk(config, *first, volume, export)?),
            Listener::VhostUserBlk { .. } | Listener::Nbd(_) | Listener::Fuse(_) => {}
        }
    }
    Ok(frontends)
}

/// Whether what is acknowledged never dies with the daemon. Without a cache the origin has
/// acknowledged it.
fn is_durable(config: &Config) -> bool {
    config.policy.durability == Durability::Always || config.without_cache
}

#[cfg(feature = "fuse")]
fn fuse(folder: &Path, exports: &[Export], parcel: Option<&Parcel>) -> Result<Box<dyn Frontend>, ServeError> {
    Ok(Box::new(match parcel {
        Some(parcel) => Fuse::take_over(folder, exports, parcel)?,
        None => Fuse::mount(folder, exports)?,
    }))
}

#[cfg(not(feature = "fuse"))]
fn fuse(_folder: &Path, _exports: &[Export], _parcel: Option<&Parcel>) -> Result<Box<dyn Frontend>, ServeError> {
    Err(ServeError::NotBuilt { what: "--fuse", feature: "fuse" })
}

#[cfg(feature = "ublk")]
fn ublk(config: &Config, first: u32, volume: &Volume, export: &Export) -> Result<Box<dyn Frontend>, ServeError> {
    // The number of a volume's device never changes, whichever volumes come and go.
    let number = first.saturating_add(export.origin.0);
    // A device doesn't outlive the kernel, so a path will do to know it again.
    let origin = volume.origin.canonicalize().unwrap_or_else(|_| volume.origin.clone());
    // Size and name are no marks: the volume may grow or be renamed before the daemon ends, and the
    // device stays as it was.
    let mut mark = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
    for part in [b"flashfront\0", origin.as_os_str().as_encoded_bytes()] {
        mark.update(part);
    }
    let options = UblkOptions { number, origin: export.origin, mark: mark.finalize(), recoverable: is_durable(config) };
    Ok(Box::new(Ublk::open(export, options)?))
}

#[cfg(not(feature = "ublk"))]
fn ublk(_config: &Config, _first: u32, _volume: &Volume, _export: &Export) -> Result<Box<dyn Frontend>, ServeError> {
    Err(ServeError::NotBuilt { what: "--ublk", feature: "ublk" })
}

pub(super) fn exports(config: &Config, superblock: &Superblock, origins: &[Arc<DeviceFile>]) -> Vec<Export> {
    let parts = config.volumes.iter().zip(&superblock.origins).zip(origins);
    parts.map(|((volume, record), origin)| export(volume, record, origin)).collect()
}

/// A volume for clients. Requests that are smaller than the origin's unit are merged by the engine.
pub(super) fn export(volume: &Volume, record: &OriginRecord, origin: &DeviceFile) -> Export {
    Export {
        // As the record is about to say, too.
        read_only: volume.read_only.unwrap_or(record.read_only) || origin.is_snapshot(),
        discard_zeroes: origin.discard_zeroes(),
        ..Export::new(&volume.name, record.id, record.size_bytes)
    }
}

/// The engine's name for a member.
pub(super) const fn member_id(number: u8) -> DeviceId {
    if number == 0 { DeviceId::Cache } else { DeviceId::Mirror }
}

/// Makes a device that has only this time to answer.
pub(super) fn patient(device: Box<dyn Device>, timeout: Option<Duration>, places: usize) -> Box<dyn Device> {
    let limit_ns = timeout.map(|timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
    Box::new(Patience::new(device, limit_ns, places))
}

pub(super) fn attach(
    config: &Config,
    reactor: Reactor,
    members: &Members,
    origins: &[Arc<DeviceFile>],
    superblock: &Superblock,
    watches: Vec<Option<Watch>>,
    hooks: &Hooks,
) -> Result<Devices, ServeError> {
    let device = |file: &Arc<DeviceFile>, hook: &Option<Wrap>, timeout| {
        let device: Box<dyn Device> = Box::new(reactor.attach(Arc::clone(file)));
        let device = if let Some(wrap) = hook { wrap(device) } else { device };
        patient(device, timeout, file.places())
    };
    let mut all: Vec<(DeviceId, Box<dyn Device>)> = Vec::new();
    if members.is_empty() {
        all.push((DeviceId::Cache, Box::new(without_cache::ram(superblock))));
    }
    for (number, file) in members {
        // The faults are ordered by the words of the command line.
        let hook = if file.path() == config.cache { &hooks.wrap_cache } else { &hooks.wrap_mirror };
        all.push((member_id(*number), device(file, hook, config.timeout_of_cache(file.path()))));
    }
    let ids = superblock.origins.iter().map(|record| record.id);
    let watches = watches.into_iter().chain(std::iter::repeat_with(|| None));
    for (((id, file), volume), watch) in ids.zip(origins).zip(&config.volumes).zip(watches) {
        let mut device = device(file, &hooks.wrap_origin, config.timeout_of_origin(volume));
        if let Some(watch) = watch {
            let (name, stop) = (file.path().display().to_string(), hooks.stop.clone());
            device = Box::new(watch.around(device, name, move || stop.wake()));
        }
        all.push((DeviceId::Origin(id), device));
    }
    Ok(Devices { all, reactor })
}
