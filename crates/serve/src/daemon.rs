// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon's life: open everything, replay, serve until told to stop, leave cleanly.
//!
//! Nothing is written before everything that can be refused has been checked, and every socket is
//! held. A clean stop ends with the stale guard's data in the superblock.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use flashfront_device::real::{Access, DeviceFile, OpenError as DeviceOpenError, Prefer, Reactor, ReactorError};
use flashfront_device::{Arena, Device};
use flashfront_engine::format::Superblock;
use flashfront_engine::{Control, Engine, Event, Input, OpenError, Options, OriginId, Time};
use mio::{Poll, Waker};

use crate::config::{Config, ConfigError, Volume};
use crate::control::{BindError, Caller, Command, Response, Server};
use crate::frontend::nbd::{BUFFER_BYTES_MIN, BindError as NbdBindError, Nbd, NbdOptions};
use crate::frontend::{Export, Frontend};
use crate::metrics::{Http, HttpError};
use crate::pump::{Devices, Pump, WAKER};
use crate::report::{Facts, StatusReport};
use crate::stale::{self, Verdict};
use crate::superblock::{self, SuperblockReadError};

/// The longest a turn waits when nothing happens.
const PATIENCE: Duration = Duration::from_secs(60);
/// Buffers of a lane: three open commits, eight in flight, one for a privileged entry, replay and
/// checkpoint.
const LANE_BUFFER_BYTES: u64 = 14 << 20;
/// Buffers of destage: sixteen runs of 1 MiB, and small ones.
const DESTAGE_BUFFER_BYTES: u64 = 24 << 20;

/// Why the daemon could not start, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The config can't be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A device can't be opened.
    #[error(transparent)]
    Device(#[from] DeviceOpenError),
    /// No way to do I/O.
    #[error(transparent)]
    Reactor(#[from] ReactorError),
    /// The superblock can't be used.
    #[error(transparent)]
    Superblock(#[from] SuperblockReadError),
    /// Cache and origin are one.
    #[error("{cache} and {origin} are the same device; a cache needs a device of its own", cache = cache.display(), origin = origin.display())]
    SameDevice {
        /// The cache device.
        cache: PathBuf,
        /// The origin.
        origin: PathBuf,
    },
    /// The cache has no origins.
    #[error("{path}: this cache belongs to no origin (it was detached); make a new one with `flashfront format`", path = .0.display())]
    Detached(PathBuf),
    /// The volumes named are not those of the cache.
    #[error(
        "{cache}: the cache was formatted for {expected} origin(s), {given} given; name each origin that it was formatted for",
        cache = cache.display()
    )]
    VolumeCount {
        /// The cache device.
        cache: PathBuf,
        /// What the superblock says.
        expected: usize,
        /// What was given.
        given: usize,
    },
    /// Another size than the cache knows.
    #[error(
        "{origin}: the origin has {found} bytes, but the cache {cache} was made for one of {expected} bytes: it is another device, or it was resized; to give up what the cache holds, format it anew",
        origin = origin.display(), cache = cache.display()
    )]
    OriginSize {
        /// The origin.
        origin: PathBuf,
        /// The cache device.
        cache: PathBuf,
        /// What the superblock says.
        expected: u64,
        /// What the device has.
        found: u64,
    },
    /// Another device than the cache knows.
    #[error(
        "{origin} is not the origin that the cache {cache} was made for (that was {expected}); name the right one, or say --accept-changed-origin if you know that the content is the same",
        origin = origin.display(), cache = cache.display()
    )]
    OtherOrigin {
        /// The origin.
        origin: PathBuf,
        /// The cache device.
        cache: PathBuf,
        /// Its recorded identity.
        expected: String,
    },
    /// Changed behind our back, and the cache holds dirty data.
    #[error(
        "{origin} was changed since the last clean stop, and the cache {cache} holds {dirty} dirty blocks ({size}) for its old content; writing them could destroy the new one. Restore the origin, or say --accept-changed-origin to keep the dirty blocks and write them over it",
        origin = origin.display(), cache = cache.display(), size = crate::config::Size(dirty * 4096)
    )]
    OriginChanged {
        /// The origin.
        origin: PathBuf,
        /// The cache device.
        cache: PathBuf,
        /// Dirty blocks.
        dirty: u64,
    },
    /// The last run ended with the cache device failing.
    #[error(
        "{path}: this cache device failed in the last run, so its log may hold dirty blocks that are older than the origin. {advice}",
        path = path.display(),
        advice = if *dirty == 0 { "All data was on the origin by then: nothing is lost by making a new cache with `flashfront format --force`".to_owned() } else { format!("{dirty} blocks had not reached the origin; if the origin was not changed since, --accept-changed-origin replays them") }
    )]
    CacheFailed {
        /// The cache device.
        path: PathBuf,
        /// Dirty blocks at the end.
        dirty: u64,
    },
    /// Replay is not possible.
    #[error("{path}: {error}", path = path.display())]
    Open {
        /// The cache device.
        path: PathBuf,
        /// Why.
        error: OpenError,
    },
    /// Too little RAM for the lanes.
    #[error("buffer_bytes must be at least {least} for a cache of {lanes} lanes", least = crate::config::Size(*least))]
    BufferSmall {
        /// Needed.
        least: u64,
        /// Lanes.
        lanes: u32,
    },
    /// A front-end can't listen.
    #[error(transparent)]
    Nbd(#[from] NbdBindError),
    /// The control socket can't be made.
    #[error(transparent)]
    Control(#[from] BindError),
    /// No metrics.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// An unknown policy.
    #[error("no {kind} policy is named `{name}`; there are: {known}")]
    Policy {
        /// Admission or replacement.
        kind: &'static str,
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The kernel refuses.
    #[error("{what}: {source}")]
    Io {
        /// Doing what.
        what: String,
        /// Why.
        source: io::Error,
    },
}

fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> ServeError {
    let what = what.into();
    move |source| ServeError::Io { what, source }
}

/// Asks a daemon to stop, from any thread: once = cleanly, twice = now.
#[derive(Clone, Debug, Default)]
pub struct StopHandle {
    asked: Arc<AtomicUsize>,
    waker: Arc<std::sync::OnceLock<Arc<Waker>>>,
}

impl StopHandle {
    /// Asks (again).
    pub fn stop(&self) {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if let Some(waker) = self.waker.get()
            && let Err(error) = waker.wake()
        {
            tracing::error!("can't wake the daemon: {error}");
        }
    }

    fn times(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// Changes a device into a slower or faultier one.
pub type Wrap = Box<dyn Fn(Box<dyn Device>) -> Box<dyn Device> + Send>;

/// Is told the URIs.
pub type Ready = Box<dyn FnOnce(&[String]) + Send>;

/// What the caller wants to do on the way.
#[derive(Default)]
pub struct Hooks {
    /// Called once with the URIs when clients may connect.
    pub ready: Option<Ready>,
    /// Asks for a stop.
    pub stop: StopHandle,
    /// Wraps the cache device.
    pub wrap_cache: Option<Wrap>,
    /// Wraps each origin.
    pub wrap_origin: Option<Wrap>,
}

/// How a daemon ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Cleanly, with so many dirty blocks left in the cache.
    Clean {
        /// Dirty blocks.
        blocks_dirty: u64,
    },
    /// At once; the next start replays the log.
    AtOnce,
    /// Because the cache device failed: the log is not to be replayed without a thought.
    CacheFailed {
        /// Dirty blocks that did not reach their origin.
        blocks_dirty: u64,
    },
}

/// What is open before anything is written.
struct Opened {
    cache: DeviceFile,
    origins: Vec<DeviceFile>,
    superblock: Superblock,
    drop_clean: bool,
}

/// Runs a daemon until it is stopped.
///
/// # Errors
/// When it can't start, or the kernel refuses to go on; see [`ServeError`].
pub fn run(config: &Config, mut hooks: Hooks) -> Result<Ended, ServeError> {
    config.check()?;
    let opened = open(config)?;
    let options = options(config, &opened)?;
    let poll = Poll::new().map_err(failed("epoll"))?;
    let waker = Arc::new(Waker::new(poll.registry(), WAKER).map_err(failed("eventfd"))?);
    // A handle that was used before is woken by its count.
    let _ = hooks.stop.waker.set(Arc::clone(&waker));
    let (caller, calls) = Caller::new(waker);
    let frontends = listen(config)?;
    let control = Server::start(&config.control, caller.clone())?;
    let http = config.http.map(|address| Http::start(address, caller)).transpose()?;

    let Opened { cache, origins, mut superblock, .. } = opened;
    (superblock.clean, superblock.failed, superblock.epoch) = (false, false, superblock.epoch + 1);
    for (record, volume) in superblock.origins.iter_mut().zip(&config.volumes) {
        record.mode = volume.mode.unwrap_or(record.mode);
    }
    superblock::write(&cache, &mut superblock).map_err(failed(format!("{}: superblock", cache.path().display())))?;

    let reactor = Reactor::new(Prefer::Auto)?;
    if let Some(notice) = reactor.notice() {
        tracing::warn!("{notice}");
    }
    for notice in origins.iter().chain([&cache]).filter_map(DeviceFile::notice) {
        tracing::warn!("{notice}");
    }
    let exports = exports(config, &superblock, &origins);
    let reserve = u64::from(superblock.lanes) * LANE_BUFFER_BYTES + DESTAGE_BUFFER_BYTES;
    let arena = Arena::with_reserve(config.buffer_bytes.0, reserve);
    let backend = reactor.backend_name();
    let devices = attach(reactor, cache, origins, &superblock, &hooks);
    let engine = Engine::new(superblock, options, Time(0))
        .map_err(|error| ServeError::Open { path: config.cache.clone(), error })?;
    let pump = Pump::new(engine, arena, devices, poll, calls).map_err(failed("epoll"))?;
    let uris = frontends.iter().map(|frontend| frontend.uri()).collect();
    let mut daemon = Daemon { pump, config, backend, started: Instant::now(), ready: None, stop: hooks.stop.clone() };
    if !daemon.replay()? {
        return Ok(Ended::AtOnce);
    }
    daemon.pump.serve(exports, frontends).map_err(failed("epoll"))?;
    let uris: Vec<String> = uris;
    if let Some(ready) = hooks.ready.take() {
        ready(&uris);
    }
    daemon.ready = Some(Instant::now());
    let clean = daemon.serve()?;
    drop((control, http));
    daemon.close(clean)
}

fn open(config: &Config) -> Result<Opened, ServeError> {
    let cache = DeviceFile::open(&config.cache, Access::Exclusive)?;
    let stored = superblock::read(&cache)?;
    if let Some((offset, error)) = &stored.damaged {
        tracing::warn!(
            "{}: the superblock at byte {offset} is unusable ({error}); using the other copy, and mending this one",
            config.cache.display()
        );
    }
    let superblock = stored.superblock;
    if superblock.failed && (superblock.dirty_blocks == 0 || !config.accept_changed_origin) {
        return Err(ServeError::CacheFailed { path: config.cache.clone(), dirty: superblock.dirty_blocks });
    }
    let count = superblock.origins.len();
    if count == 0 {
        return Err(ServeError::Detached(config.cache.clone()));
    }
    if count != config.volumes.len() {
        let (cache, given) = (config.cache.clone(), config.volumes.len());
        return Err(ServeError::VolumeCount { cache, expected: count, given });
    }
    let least = u64::from(superblock.lanes) * LANE_BUFFER_BYTES + DESTAGE_BUFFER_BYTES + BUFFER_BYTES_MIN;
    if config.buffer_bytes.0 < least {
        return Err(ServeError::BufferSmall { least, lanes: superblock.lanes });
    }
    let mut opened = Opened { cache, origins: Vec::new(), superblock, drop_clean: false };
    for (at, volume) in config.volumes.iter().enumerate() {
        let path = &volume.origin;
        let is_cache = std::fs::canonicalize(path).ok() == std::fs::canonicalize(&config.cache).ok();
        let same = || ServeError::SameDevice { cache: config.cache.clone(), origin: path.clone() };
        if is_cache {
            return Err(same());
        }
        let origin = DeviceFile::open(path, Access::Exclusive)?;
        if origin.identity().same_device(opened.cache.identity()) {
            return Err(same());
        }
        opened.drop_clean |= guard(config, volume, &origin, &opened.superblock, at)?;
        opened.origins.push(origin);
    }
    Ok(opened)
}

/// Asks the stale guard; says whether clean data must be dropped.
fn guard(
    config: &Config,
    volume: &Volume,
    origin: &DeviceFile,
    superblock: &Superblock,
    at: usize,
) -> Result<bool, ServeError> {
    let record = &superblock.origins[at];
    let (path, cache) = (volume.origin.clone(), config.cache.clone());
    let found = origin.geometry().size_bytes;
    if found != record.size_bytes {
        return Err(ServeError::OriginSize { origin: path, cache, expected: record.size_bytes, found });
    }
    let verdict = stale::compare(origin, record, superblock.clean)
        .map_err(failed(format!("{}: reading samples", volume.origin.display())))?;
    let (shown, accepted) = (volume.origin.display(), config.accept_changed_origin);
    match verdict {
        Verdict::Unchanged => Ok(false),
        Verdict::Unknown => {
            tracing::info!("{shown}: the last stop was not clean, so its content was not compared with the cache's");
            Ok(false)
        }
        Verdict::Other if !accepted => {
            Err(ServeError::OtherOrigin { origin: path, cache, expected: record.identity.clone() })
        }
        Verdict::Changed if superblock.dirty_blocks > 0 && !accepted => {
            Err(ServeError::OriginChanged { origin: path, cache, dirty: superblock.dirty_blocks })
        }
        Verdict::Other | Verdict::Changed => {
            tracing::warn!("{shown} was changed since the last clean stop: dropping all clean data of the cache");
            Ok(true)
        }
    }
}

fn options(config: &Config, opened: &Opened) -> Result<Options, ServeError> {
    let policy = &config.policy;
    let superblock = &opened.superblock;
    let slots = u64::from(superblock.segments_per_lane) * u64::from(superblock.segment_blocks);
    let capacity = u64::from(superblock.lanes) * slots;
    let admission = choose("admission", policy.admission.as_deref(), flashfront_engine::admission::ALL)?;
    let replacement = choose("replacement", policy.replacement.as_deref(), flashfront_engine::replacement::ALL)?;
    let units = superblock.origins.iter().zip(&opened.origins);
    Ok(Options {
        admission,
        replacement,
        durability: policy.durability,
        dirty_limit_blocks: Some(policy.dirty_limit.blocks(capacity)),
        sequential_bypass_bytes: policy.sequential_bypass.0,
        dirty_age_max_ns: u64::try_from(policy.max_dirty_age.0.as_nanos()).unwrap_or(u64::MAX),
        drop_clean: opened.drop_clean,
        origin_block_bytes: units.map(|(record, file)| (record.id, file.geometry().logical_block_bytes)).collect(),
        ..Options::default()
    })
}

fn choose<Build>(
    kind: &'static str,
    name: Option<&str>,
    all: &'static [flashfront_engine::policy::Spec<Build>],
) -> Result<&'static flashfront_engine::policy::Spec<Build>, ServeError> {
    let Some(name) = name else { return Ok(&all[0]) };
    let known = || all.iter().map(|spec| spec.name).collect::<Vec<_>>().join(", ");
    let found = all.iter().find(|spec| spec.name == name);
    found.ok_or_else(|| ServeError::Policy { kind, name: name.to_owned(), known: known() })
}

fn listen(config: &Config) -> Result<Vec<Box<dyn Frontend>>, ServeError> {
    let mut frontends: Vec<Box<dyn Frontend>> = Vec::new();
    let uri_export = if config.volumes.len() == 1 { String::new() } else { config.volumes[0].name.clone() };
    for place in &config.listeners {
        let options = NbdOptions { insecure: config.insecure, uri_export: uri_export.clone(), ..NbdOptions::default() };
        frontends.push(Box::new(Nbd::bind(&place.nbd, options)?));
    }
    Ok(frontends)
}

fn exports(config: &Config, superblock: &Superblock, origins: &[DeviceFile]) -> Vec<Export> {
    let parts = config.volumes.iter().zip(&superblock.origins).zip(origins);
    let export = |((volume, record), _): ((&Volume, &flashfront_engine::format::OriginRecord), &DeviceFile)| Export {
        name: volume.name.clone(),
        origin: record.id,
        size_bytes: record.size_bytes,
        // Smaller requests than the origin's unit are merged by the engine.
        block_bytes: 512,
        read_only: false,
    };
    parts.map(export).collect()
}

fn attach(
    reactor: Reactor,
    cache: DeviceFile,
    origins: Vec<DeviceFile>,
    superblock: &Superblock,
    hooks: &Hooks,
) -> Devices {
    let wrap = |hook: &Option<Wrap>, device: Box<dyn Device>| match hook {
        Some(wrap) => wrap(device),
        None => device,
    };
    let cache = wrap(&hooks.wrap_cache, Box::new(reactor.attach(cache)));
    let ids = superblock.origins.iter().map(|record| record.id);
    let origins = ids.zip(origins).map(|(id, file)| {
        let device: Box<dyn Device> = Box::new(reactor.attach(file));
        (id, wrap(&hooks.wrap_origin, device))
    });
    let origins = origins.collect();
    Devices { cache, origins, reactor }
}

struct Daemon<'a> {
    pump: Pump,
    config: &'a Config,
    backend: &'static str,
    started: Instant,
    ready: Option<Instant>,
    stop: StopHandle,
}

impl Daemon<'_> {
    fn turn(&mut self) -> Result<(), ServeError> {
        self.pump.turn(PATIENCE).map_err(failed("epoll"))
    }

    /// Opens the engine; false if a stop was asked for meanwhile.
    fn replay(&mut self) -> Result<bool, ServeError> {
        self.pump.apply(Input::Timer);
        loop {
            let news: Vec<Event> = self.pump.news().collect();
            for event in news {
                match event {
                    Event::Ready { blocks_cached, blocks_dirty, commits_replayed } => {
                        tracing::info!(
                            "{}: {blocks_cached} blocks cached, {blocks_dirty} of them dirty; {commits_replayed} commits replayed in {} ms",
                            self.config.cache.display(),
                            self.started.elapsed().as_millis()
                        );
                        return Ok(true);
                    }
                    Event::OpenFailed(error) => {
                        return Err(ServeError::Open { path: self.config.cache.clone(), error });
                    }
                    other => self.tell(other),
                }
            }
            self.answer_calls();
            if self.stop.times() > 0 {
                // Nothing was served yet, so there is nothing to finish: the next start replays again.
                return Ok(false);
            }
            self.turn()?;
        }
    }

    /// Serves until a stop is asked for; says whether it is to be a clean one.
    fn serve(&mut self) -> Result<bool, ServeError> {
        let mut stopping = false;
        let mut closing = false;
        loop {
            self.turn()?;
            self.answer_calls();
            let news: Vec<Event> = self.pump.news().collect();
            for event in news {
                if event == Event::Stopped {
                    return Ok(true);
                }
                self.tell(event);
            }
            match self.stop.times() {
                0 => {}
                1 => {
                    if !std::mem::replace(&mut stopping, true) {
                        tracing::info!("stopping: finishing what is in flight");
                        self.pump.stop_frontends();
                    }
                }
                _ => {
                    tracing::warn!("stopping at once; the next start replays the log");
                    return Ok(false);
                }
            }
            if stopping && !closing && self.pump.frontends_idle() {
                closing = true;
                self.pump.apply(Input::Control(Control::Stop));
            }
        }
    }

    /// Leaves the stale guard's data.
    fn close(self, clean: bool) -> Result<Ended, ServeError> {
        let mut superblock = self.pump.engine().superblock().clone();
        let status = self.pump.engine().status();
        let blocks_dirty = status.blocks_dirty;
        let config = self.config;
        // Closes the devices and gives up their locks.
        drop(self.pump);
        if !clean {
            return Ok(Ended::AtOnce);
        }
        let cache = DeviceFile::open(&config.cache, Access::Exclusive)?;
        for (record, volume) in superblock.origins.iter_mut().zip(&config.volumes) {
            let origin = DeviceFile::open(&volume.origin, Access::Exclusive)?;
            let what = || failed(format!("{}: reading samples", volume.origin.display()));
            origin.sync().map_err(what())?;
            stale::record(&origin, record).map_err(what())?;
        }
        (superblock.clean, superblock.failed) = (!status.cache_failed, status.cache_failed);
        superblock.dirty_blocks = blocks_dirty;
        superblock::write(&cache, &mut superblock)
            .map_err(failed(format!("{}: superblock", config.cache.display())))?;
        Ok(if status.cache_failed { Ended::CacheFailed { blocks_dirty } } else { Ended::Clean { blocks_dirty } })
    }

    fn answer_calls(&mut self) {
        while let Some(call) = self.pump.call() {
            let response = self.answer(call.command);
            // A client that has gone is no error.
            let _ = call.reply.send(response);
        }
    }

    fn answer(&mut self, command: Command) -> Response {
        match command {
            Command::Status => {
                Response::Status(Box::new(StatusReport::new(&self.pump.engine().status(), &self.facts())))
            }
            Command::Drain { start } => {
                self.pump.apply(Input::Control(Control::Drain(start)));
                Response::Done
            }
            Command::Stop => {
                self.stop.stop();
                Response::Done
            }
            Command::Set { volume, mode, dirty_limit, sequential_bypass } => {
                let named = |at: &usize| volume.as_ref().is_none_or(|name| *name == self.config.volumes[*at].name);
                let volumes: Vec<usize> = (0..self.config.volumes.len()).filter(named).collect();
                if volumes.is_empty() {
                    let known: Vec<&str> = self.config.volumes.iter().map(|volume| volume.name.as_str()).collect();
                    let message = format!("no volume of that name; there are: {}", known.join(", "));
                    return Response::Error { message };
                }
                if let Some(mode) = mode {
                    for at in volumes {
                        let origin = self.pump.engine().superblock().origins[at].id;
                        self.pump.apply(Input::Control(Control::SetMode { origin, mode }));
                    }
                }
                if let Some(limit) = dirty_limit {
                    let blocks = limit.blocks(self.pump.engine().status().capacity_blocks);
                    self.pump.apply(Input::Control(Control::SetDirtyLimit { blocks }));
                }
                if let Some(size) = sequential_bypass {
                    self.pump.apply(Input::Control(Control::SetSequentialBypass { bytes: size.0 }));
                }
                Response::Done
            }
        }
    }

    fn facts(&self) -> Facts {
        let engine = self.pump.engine().status().buffer_bytes;
        Facts {
            backend: self.backend.to_owned(),
            volumes: self.config.volumes.iter().map(|volume| volume.name.clone()).collect(),
            uptime_s: self.ready.map_or(0, |ready| ready.elapsed().as_secs()),
            clients: self.pump.clients(),
            request_buffer_bytes: self.pump.buffer_bytes().saturating_sub(engine),
            opening: self.ready.is_none(),
        }
    }

    /// Writes the operator's log.
    fn tell(&self, event: Event) {
        let name = |id: OriginId| {
            let at = self.pump.engine().superblock().origins.iter().position(|record| record.id == id);
            at.map_or("?", |at| self.config.volumes[at].name.as_str())
        };
        match event {
            Event::Corrupt { key, dirty: false } => tracing::warn!(
                "volume {}: sector {} was corrupt on the cache device; read from the origin instead",
                name(key.origin),
                key.block.0 * 8
            ),
            Event::Corrupt { key, dirty: true } => tracing::error!(
                "volume {}: the 8 sectors from {} are LOST: dirty, and corrupt on the cache device. Reads of them fail until they are written anew; `flashfront status` lists them",
                name(key.origin),
                key.block.0 * 8
            ),
            Event::DeviceFailed { device, op, offset, error } => {
                tracing::error!("{device:?}: {op:?} at byte {offset} failed: {error:?}");
            }
            Event::DestageFailed { origin, error } => tracing::error!(
                "volume {}: writing dirty data to the origin failed ({error:?}); it stays in the cache and is tried again",
                name(origin)
            ),
            Event::ModeChanged { origin, mode } => tracing::info!("volume {}: mode is {mode} now", name(origin)),
            Event::Drained => tracing::info!("drained: nothing is dirty"),
            Event::Ready { .. } | Event::OpenFailed(_) | Event::Stopped => {}
        }
    }
}
