// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon's life: open everything, replay, serve until told to stop, leave cleanly.
//!
//! Nothing is written before everything that can be refused has been checked, and every socket is
//! held. A clean stop ends with the stale guard's data in the superblock.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use flashfront_device::Arena;
use flashfront_device::real::{DeviceFile, Prefer, Reactor};
use flashfront_engine::{Control, Engine, Event, Input, Options, Time};
use mio::{Poll, Waker};

use crate::carrier;
use crate::config::{Config, Listener, Size};
use crate::control::{Caller, ControlCall, Server};
use crate::descriptors;
use crate::failure;
use crate::frontend::Export;
use crate::frontend::nbd::Tls;
use crate::history::SharedHistory;
use crate::http::Http;
use crate::origin_errors::AllOriginErrors;
use crate::pressure;
use crate::pump::{Pump, WAKER};
use crate::report::counted;
use crate::stale::Change;

mod above;
mod answer;
mod answered;
mod apart;
#[cfg(test)]
mod beside;
mod buffers;
mod changes;
mod clean;
mod compare;
mod destage;
mod end;
mod error;
mod hangs;
mod hooks;
mod leave;
mod limit;
mod members;
mod mirror;
mod open;
mod opened;
mod reload;
mod reload_handle;
mod sample;
mod set;
mod settle;
mod stop;
mod tell;
#[cfg(test)]
mod tests;
mod without_cache;

pub use crate::origin_errors::OriginErrors;
use above::Roots;
use answered::answered;
use changes::remember;
pub use destage::{DestageReport, destage};
use error::failed;
pub use error::{DevicesError, MemoryError, OriginsError, ServeError};
pub use hooks::{Hooks, Ready, Wrap};
use leave::Leaving;
pub use leave::Left;
pub use limit::{LimitError, blocks as dirty_limit_blocks};
use members::Members;
use mirror::Adding;
use open::{Listening, attach, exports, listen, open, options};
use opened::Opened;
pub use reload_handle::{Reload, ReloadHandle};
use sample::Sampler;
pub use stop::StopHandle;

/// The longest a turn waits when nothing happens.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a daemon ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Cleanly, with so many dirty blocks left in the cache.
    Clean {
        /// Dirty blocks.
        blocks_dirty: u64,
        /// Who was still there, and what an origin refused.
        left: Left,
    },
    /// At once; the next start replays the log.
    AtOnce,
    /// Cleanly, and there was no cache ([`Config::without_cache`]).
    WithoutCache,
    /// Because the cache device failed: the log is not to be replayed without a thought.
    CacheFailed {
        /// Dirty blocks that did not reach their origin.
        blocks_dirty: u64,
    },
}

/// Runs a daemon until it is stopped.
///
/// # Errors
/// When it can't start, or the kernel refuses to go on; see [`ServeError`].
pub fn run(config: &Config, mut hooks: Hooks) -> Result<Ended, ServeError> {
    config.check()?;
    let tls = config.tls.as_ref().map(|files| Tls::load(&files.certificates, files.verify_peer)).transpose()?;
    let opened = opened(config)?;
    let options = options(config, &opened)?;
    if config.listeners.iter().any(Listener::is_of_this_machine) {
        pressure::prepare();
    }
    descriptors::prepare(config);
    let poll = Poll::new().map_err(failed("epoll"))?;
    let waker = Arc::new(Waker::new(poll.registry(), WAKER).map_err(failed("eventfd"))?);
    hooks.stop.wakes(&waker);
    let (caller, calls) = Caller::new(waker);
    let taps = caller.taps().clone();
    let exports = exports(config, &opened.superblock, &opened.origins);
    // Before they are mounted: to look at them from this thread would be to wait for itself.
    let roots = Roots::of(config);
    let mut listening = listen(config, tls.as_ref(), &exports, &opened.origins)?;
    let control = Server::start(&config.control, caller.clone())?;
    let history = SharedHistory::default();
    let http = config.http.map(|address| Http::start(address, caller, history.clone())).transpose()?;
    if let Some(http) = &http {
        tracing::info!("dashboard at http://{0}/, metrics at http://{0}/metrics", http.address());
    }

    let reactor = Reactor::new(Prefer::Auto)?;
    if hooks.stop.is_asked() {
        // Asked for while the devices were being opened: the cache stays as it was left.
        return Ok(Ended::AtOnce);
    }
    let mut daemon = begin(config, opened, options, reactor, &hooks, poll, calls)?;
    daemon.pump.record_for(taps);
    daemon.uris = std::mem::take(&mut listening.uris_of_volumes);
    let Some(mut daemon) = daemon.opened()? else { return Ok(Ended::AtOnce) };
    (daemon.tls, daemon.roots) = (tls, roots);
    let uris = std::mem::take(&mut listening.uris);
    if let Err(error) = daemon.begin_serving(listening, exports) {
        // Destage may have begun, so that the origin is no longer what the superblock says: a stop
        // like any other.
        daemon.stop.stop();
        if let Err(second) = daemon.serve().and_then(|clean| daemon.close(clean)) {
            tracing::warn!("not stopped cleanly: {second}");
        }
        return Err(error);
    }
    if let Some(ready) = hooks.ready.take() {
        ready(&uris);
    }
    daemon.ready = Some(Instant::now());
    if http.is_some() {
        daemon.begin_history(history);
    }
    let clean = daemon.serve()?;
    drop((control, http));
    daemon.close(clean)
}

/// Opens the devices; an error names one that does not answer.
fn opened(config: &Config) -> Result<Opened, ServeError> {
    answered(config, |config| {
        answered::find(config);
        if config.without_cache { without_cache::open(config) } else { open(config) }
    })?
}

/// The first write: from here on the cache is in use, by a new epoch. Returns a daemon to be
/// replayed.
fn begin<'a>(
    config: &'a Config,
    opened: Opened,
    options: Options,
    reactor: Reactor,
    hooks: &Hooks,
    poll: Poll,
    calls: Receiver<ControlCall>,
) -> Result<Daemon<'a>, ServeError> {
    let mut superblock = opened.superblock.clone();
    let was_clean = superblock.clean && !opened.members.is_empty();
    if !opened.members.is_empty() {
        (superblock.clean, superblock.failed, superblock.epoch) = (false, false, superblock.epoch + 1);
        superblock.update += 1;
        superblock.pairing.member = superblock.pairing.lead;
        for (record, volume) in superblock.origins.iter_mut().zip(&config.volumes) {
            record.mode = volume.mode.unwrap_or(record.mode);
        }
    }
    // What can be refused comes before the write.
    let (arena, arenas) = buffers::arenas(config, superblock.lanes).map_err(failed("starting threads for lanes"))?;
    let engine = Engine::new(superblock.clone(), options, Time(0))
        .map_err(|error| ServeError::Open { path: config.cache.clone(), error })?;
    let unsettled = remember(config, &opened)?;
    let watches = compare::watches(config, &opened, superblock.epoch);
    let Opened { members, origins, superblock: before, .. } = opened;
    if !members.is_empty() {
        if let Err((path, error)) = members::put(config, &members, &superblock) {
            // Those that took it say again how the last run ended, as in `undo`; the one that
            // didn't refuses again.
            (superblock.clean, superblock.failed) = (before.clean, before.failed);
            let _ = members::write(config, &members, &mut superblock);
            return Err(begin_failed(&members, path, error));
        }
        failure::forget(config.state.as_deref(), &superblock);
    }

    if let Some(notice) = reactor.notice() {
        tracing::warn!("{notice}");
    }
    for notice in origins.iter().chain(members.iter().map(|(_, file)| file)).filter_map(|file| file.notice()) {
        tracing::warn!("{notice}");
    }
    let backend = reactor.backend_name();
    let devices = attach(config, reactor, &members, &origins, &superblock, watches, hooks)?;
    let mut files = [None, None];
    for (number, file) in members {
        files[usize::from(number)] = Some(file);
    }
    let pump = Pump::new(engine, arena, devices, poll, calls);
    let (started, stop) = (Instant::now(), hooks.stop.clone());
    Ok(Daemon {
        pump,
        arenas,
        config,
        backend,
        started,
        ready: None,
        stop,
        unsettled,
        was_clean,
        files,
        origins,
        uris: Vec::new(),
        sequential_bypass: config.policy.sequential_bypass,
        adding: None,
        reload: hooks.reload.clone(),
        tls: None,
        roots: Roots::default(),
        leaving: Leaving::default(),
        left: Left::default(),
        origin_errors: AllOriginErrors::default(),
        sampler: None,
    })
}

/// A device that refuses its first write. The others have it, and say that it belongs to them.
fn begin_failed(members: &Members, path: PathBuf, source: io::Error) -> ServeError {
    let error = ServeError::Io { what: format!("{}: superblock", path.display()), source };
    match members.iter().find(|(_, file)| file.path() != path) {
        Some((_, other)) => ServeError::HalfMissing { error: Box::new(error), other: other.path().to_owned() },
        None => error,
    }
}

struct Daemon<'a> {
    pump: Pump,
    /// Of the carriers, until they are started.
    arenas: Vec<Arena>,
    config: &'a Config,
    backend: &'static str,
    started: Instant,
    ready: Option<Instant>,
    stop: StopHandle,
    /// Changes of origins, until what the cache held before them is dropped.
    unsettled: Vec<Change>,
    /// The last stop was a clean one, and there is a cache.
    was_clean: bool,
    /// The members of the cache, by their numbers. Like the origins they stay open, and locked,
    /// until what the next start must know is written: by then another device may be found by the
    /// same path.
    files: [Option<Arc<DeviceFile>>; 2],
    /// The origins, in the order of the volumes.
    origins: Vec<Arc<DeviceFile>>,
    /// Where clients reach each volume.
    uris: Vec<Vec<String>>,
    /// As the operator has set it.
    sequential_bypass: Size,
    /// A device on its way to become the mirror.
    adding: Option<Adding>,
    reload: ReloadHandle,
    /// What new connections of NBD are encrypted with.
    tls: Option<Tls>,
    /// What it shows to this machine.
    roots: Roots,
    leaving: Leaving,
    left: Left,
    origin_errors: AllOriginErrors,
    /// What fills the history; none without an HTTP port.
    sampler: Option<Sampler>,
}

impl Daemon<'_> {
    fn turn(&mut self) -> Result<(), ServeError> {
        let turned = self.pump.turn(self.patience().min(self.until_sample())).map_err(failed("epoll"));
        self.tell_hangs();
        turned
    }

    /// Opens the engine; none if a stop was asked for meanwhile. Cut off before anything is served,
    /// the cache is left as it was.
    fn opened(mut self) -> Result<Option<Self>, ServeError> {
        match self.replay() {
            Ok(true) => Ok(Some(self)),
            cut_off => {
                self.undo();
                cut_off.map(|_| None)
            }
        }
    }

    /// Lets clients come.
    fn begin_serving(&mut self, listening: Listening, exports: Vec<Export>) -> Result<(), ServeError> {
        let mut frontends = listening.here;
        for (carried, (nth, arena)) in listening.carried.into_iter().zip((1..).zip(std::mem::take(&mut self.arenas))) {
            let name = format!("carrier-{nth}");
            let carried = carrier::start(name, carried, arena, exports.clone(), self.pump.clock());
            frontends.extend(carried.map_err(failed("starting a thread"))?);
        }
        self.pump.serve(exports, frontends).map_err(failed("epoll"))?;
        while self.pump.frontends_starting().map_err(failed("starting to serve"))? && !self.stop.is_asked() {
            self.turn()?;
            // Who asks rings once.
            self.answer_calls();
        }
        Ok(())
    }

    /// As [`Self::opened`]; false if a stop was asked for meanwhile.
    fn replay(&mut self) -> Result<bool, ServeError> {
        self.pump.apply(Input::Timer);
        let opened = self.replay_whole();
        if self.config.lane_helpers() == 0 {
            self.pump.end_apart();
        }
        opened
    }

    fn replay_whole(&mut self) -> Result<bool, ServeError> {
        loop {
            let news: Vec<Event> = self.pump.news().collect();
            for event in news {
                match event {
                    Event::Ready { .. } if self.config.without_cache => return Ok(true),
                    Event::Replayed => {
                        let drop_clean = self.compare_clean()?;
                        self.pump.apply(Input::Control(Control::GoOn { drop_clean }));
                    }
                    Event::Ready { blocks_cached, blocks_dirty, commits_replayed } => {
                        tracing::info!(
                            "{}: {} cached, {blocks_dirty} of them dirty; {} replayed in {} ms",
                            self.config.cache.display(),
                            counted(blocks_cached, "block"),
                            counted(commits_replayed, "commit"),
                            self.started.elapsed().as_millis()
                        );
                        self.settle();
                        changes::remember_served(self.config, &self.origins, self.pump.engine().superblock());
                        return Ok(true);
                    }
                    Event::OpenFailed(error) => {
                        return Err(ServeError::Open { path: self.config.cache.clone(), error });
                    }
                    other => self.tell(other),
                }
            }
            self.answer_calls();
            if self.stop.is_asked() {
                // Nothing was served yet, so there is nothing to finish: the next start replays
                // again.
                return Ok(false);
            }
            self.turn()?;
        }
    }

    /// Serves until a stop is asked for; says whether it is to be a clean one.
    fn serve(&mut self) -> Result<bool, ServeError> {
        let clean = self.serve_until_stopped();
        self.refuse_calls();
        clean
    }

    fn serve_until_stopped(&mut self) -> Result<bool, ServeError> {
        loop {
            // First, as a turn before this one may have heard the ring.
            self.take_reload();
            if let Some(clean) = self.go_on_leaving()? {
                return Ok(clean);
            }
            self.turn()?;
            self.sample();
            self.answer_calls();
            let news: Vec<Event> = self.pump.news().collect();
            for event in news {
                if event == Event::Stopped {
                    return Ok(true);
                }
                self.tell(event);
            }
        }
    }
}
