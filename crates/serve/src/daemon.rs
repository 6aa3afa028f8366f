// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon's life: open everything, replay, serve until told to stop, leave cleanly.
//!
//! Nothing is written before everything that can be refused has been checked, and every socket is
//! held. A clean stop ends with the stale guard's data in the superblock.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use flashfront_device::Arena;
use flashfront_device::real::{Prefer, Reactor};
use flashfront_engine::{Control, Event, Input};
use mio::{Poll, Waker};

use crate::carrier;
use crate::config::{Config, Listener, Size};
use crate::control::{Caller, Response};
use crate::descriptors;
use crate::frontend::Export;
use crate::frontend::nbd::Tls;
use crate::history::SharedHistory;
use crate::origin_errors::AllOriginErrors;
use crate::pressure;
use crate::pump::{Pump, WAKER};
use crate::report::counted;
use crate::stale::Change;
use crate::upgrade::{Channel, UpgradeHandle};

mod above;
mod answer;
mod answered;
mod apart;
mod astray;
mod begin;
#[cfg(test)]
mod beside;
mod buffers;
mod changes;
mod clean;
mod compare;
mod destage;
mod disposable;
mod doors;
mod end;
mod error;
mod figures;
mod front;
mod grown;
mod hangs;
mod held;
mod hooks;
#[cfg(test)]
mod idle;
mod judge;
mod leave;
mod leaver;
mod limit;
mod link;
mod lone;
mod members;
mod mirror;
mod open;
mod opened;
mod own;
mod prefetch;
mod reload;
mod reload_handle;
mod resize;
mod resolve;
mod sample;
mod set;
mod stop;
mod switch;
mod tell;
#[cfg(test)]
mod tests;
mod upgrade;
mod upgrading;
mod volumes;
mod whole;
mod without_cache;

pub use crate::origin_errors::OriginErrors;
use above::Roots;
use answered::answered;
use begin::begin;
pub use destage::{DestageReport, destage};
use doors::Doors;
pub use end::Ended;
use end::Ending;
use error::failed;
pub use error::{DevicesError, DisposableError, MemoryError, OriginsError, ServeError};
pub use front::{Front, FrontHandle};
use grown::AllGrown;
use held::Held;
pub use hooks::{Hooks, Ready, Wrap};
use leave::Leaving;
pub use leave::Left;
use leaver::Leaver;
pub use limit::{LimitError, blocks as dirty_limit_blocks};
use mirror::NewMirror;
use open::{Listening, exports, listen, open, options};
use opened::Opened;
use reload::Running;
pub use reload_handle::{Reload, ReloadHandle};
use sample::{Sampled, Sampler};
pub use stop::StopHandle;
use upgrading::{Before, Given, Handing, Upgrading, begun};
use volumes::orders::Volumes;

/// Runs a daemon until it is stopped, or until another program has taken its place.
///
/// # Errors
/// When it can't start, or the kernel refuses to go on; see [`ServeError`].
pub fn run(config: &Config, mut hooks: Hooks) -> Result<Ended, ServeError> {
    config.check()?;
    let (mut front, mut config, mut usual) = (None, Cow::Borrowed(config), None);
    let mut before = match hooks.predecessor.take() {
        None => Before::Nobody,
        Some(mut predecessor) => {
            descriptors::prepare(&config);
            match predecessor.take_over(|offered| judge::judge(offered, &mut config)) {
                Ok(parcel) => Before::Another(predecessor, parcel),
                Err(why) => {
                    predecessor.fails(why.clone());
                    return Err(ServeError::Upgrade(why));
                }
            }
        }
    };
    loop {
        let lived = lone::live_once(&config, || live(&config, &mut hooks, &mut before, &mut front));
        match lived {
            Err(error) => match (before, usual.take()) {
                (Before::Switched { parcel, operator, .. }, Some(usual)) => {
                    config = usual;
                    before = Before::Itself { parcel, operator, why: error.to_string() };
                }
                (before, _) => {
                    upgrading::failed(before, &error);
                    return Err(error);
                }
            },
            Ok(Life::Ended(ended)) => return Ok(ended),
            Ok(Life::GivesAway(mut handing, closed)) => {
                std::mem::take(&mut handing.served).into_config(config.to_mut());
                handing.parcel.state.front = front.as_ref().and_then(|front| handing.parcel.put(front).ok());
                let takes_over = |pid| hooks.successor.iter().for_each(|successor| successor(pid));
                match handing.give(closed, takes_over) {
                    Given::Back { parcel, operator, why } => {
                        tracing::error!("upgrade: {why}; serving on");
                        before = Before::Itself { parcel, operator, why };
                    }
                    Given::Switched { parcel, operator, mut switch } => match switch.config(&config) {
                        Ok(next) => {
                            usual = Some(std::mem::replace(&mut config, Cow::Owned(next)));
                            before = Before::Switched { parcel, operator, switch };
                        }
                        Err(why) => before = Before::Itself { parcel, operator, why },
                    },
                    Given::Away { upgraded, front: own, operator } => {
                        tracing::info!(
                            "upgrade: {} serves now, as process {}; {} waited {} ms",
                            upgraded.to,
                            upgraded.pid,
                            counted(upgraded.clients, "client"),
                            upgraded.paused_ms
                        );
                        operator.answer(&Response::Upgraded(upgraded));
                        let known = front.as_mut().is_some_and(|front| own.tell(front));
                        return Ok(Ended::HandedOver { front: (!known).then_some(own) });
                    }
                }
            }
        }
    }
}

/// How a life of the daemon ended.
enum Life {
    Ended(Ended),
    /// Everything is to be given to another program; and how the cache was closed.
    GivesAway(Box<Handing>, Result<Ended, ServeError>),
}

/// Lives once: from opening the devices to closing them.
fn live(
    config: &Config,
    hooks: &mut Hooks,
    before: &mut Before,
    front: &mut Option<Channel>,
) -> Result<Life, ServeError> {
    let tls = config.tls.as_ref().map(|files| Tls::load(&files.certificates, files.verify_peer)).transpose()?;
    let (config, opened) = match config.disposable_cache {
        Some(_) => disposable::opened(config, opened)?,
        None => (Cow::Borrowed(config), opened(config)?),
    };
    let config = &config.with_volumes(&opened.volumes);
    config.check_volumes()?;
    let options = options(config, &opened)?;
    if config.listeners.iter().any(Listener::is_of_this_machine) {
        pressure::prepare();
    }
    descriptors::prepare(config);
    let poll = Poll::new().map_err(failed("epoll"))?;
    let waker = Arc::new(Waker::new(poll.registry(), WAKER).map_err(failed("eventfd"))?);
    hooks.stop.wakes(&waker);
    let (caller, calls) = Caller::new(waker);
    let (taps, upgrades) = (caller.taps().clone(), caller.upgrades().clone());
    let exports = exports(config, &opened.superblock, &opened.origins);
    // Before the volumes are mounted: later a look at a mount from this thread would wait for this
    // thread itself.
    let roots = Roots::of(config);
    let mut listening = listen(config, tls.as_ref(), &exports, before.parcel())?;
    let history = SharedHistory::default();
    let mut doors = None;
    if !matches!(before, Before::Another(..) | Before::Switched { .. }) {
        // A successor touches no operator, either, before the daemon's last word.
        doors = Some(Doors::open(config, caller.clone(), &history, before.parcel())?);
    }

    let reactor = Reactor::new(Prefer::Auto)?;
    if hooks.stop.is_asked() {
        // A stop was asked for while the devices were being opened: the cache stays as it is.
        return Ok(Life::Ended(Ended::AtOnce));
    }
    let mut daemon = begin(config, opened, options, reactor, hooks, poll, calls)?;
    daemon.pump.record_for(taps);
    (daemon.upgrades, daemon.doors) = (upgrades, doors);
    daemon.uris = std::mem::take(&mut listening.uris_of_volumes);
    daemon.go_on_with_figures(before.parcel());
    let Some(mut daemon) = daemon.opened()? else { return Ok(Life::Ended(Ended::AtOnce)) };
    (daemon.tls, daemon.leaving) = (tls, Leaving::new(roots));
    before.parcel().into_iter().for_each(|parcel| daemon.set_as_before(parcel));
    before.hear_go()?;
    let uris = std::mem::take(&mut listening.uris);
    if let Err(error) = daemon.begin_serving(listening, exports) {
        // Destage may have begun: the origin is not what the superblock says. So stop as always.
        daemon.stop.stop();
        if let Err(second) = daemon.serve().and_then(|clean| daemon.close(clean)) {
            tracing::warn!("not stopped cleanly: {second}");
        }
        // Requests may have been served: no way back.
        upgrading::failed(std::mem::replace(before, Before::Nobody), &error);
        return Err(error);
    }
    if daemon.doors.is_none() {
        match Doors::open(config, caller, &history, before.parcel()) {
            Ok(doors) => daemon.doors = Some(doors),
            // Clients are worth more than operators.
            Err(error) => tracing::error!("{error}; serving without"),
        }
    }
    daemon.ready = Some(Instant::now());
    daemon.begin_history(history, before.parcel());
    begun(std::mem::replace(before, Before::Nobody), front);
    if let Some(ready) = hooks.ready.take() {
        ready(&uris);
    }
    let clean = daemon.serve()?;
    if let Some(mut handing) = daemon.upgrading.take().filter(|_| clean) {
        daemon.hand_figures_over(&mut handing.parcel);
        daemon.pump.leave_sockets();
        if let Some(doors) = daemon.doors.take() {
            doors.leave();
        }
        return Ok(Life::GivesAway(Box::new(handing), daemon.close(true)));
    }
    drop(daemon.doors.take());
    daemon.close(clean).map(Life::Ended)
}

/// Opens the devices; an error names the device that does not answer.
fn opened(config: &Config) -> Result<Opened, ServeError> {
    answered(config, |config| {
        answered::find(config);
        if config.without_cache { without_cache::open(config) } else { open(config) }
    })?
}

/// A daemon: the pump, the devices, and what it knows beside them.
struct Daemon {
    pump: Pump,
    /// The arenas of the carriers, until these are started.
    arenas: Vec<Arena>,
    /// The configuration. Each volume is at the place of its origin in the superblock.
    config: Config,
    backend: &'static str,
    started: Instant,
    ready: Option<Instant>,
    stop: StopHandle,
    /// Changes of origins, until the cache has dropped what it held before them.
    unsettled: Vec<Change>,
    /// The last stop was a clean one, and there is a cache.
    was_clean: bool,
    held: Held,
    /// The addresses at which clients reach each volume.
    uris: Vec<Vec<String>>,
    /// The value that is in force: the config's or the operator's.
    sequential_bypass: Size,
    new_mirror: NewMirror,
    leaver: Leaver,
    volumes: Volumes,
    reload: ReloadHandle,
    /// The certificates for new connections of NBD.
    tls: Option<Tls>,
    leaving: Leaving,
    origin_errors: AllOriginErrors,
    names: astray::Names,
    grown: AllGrown,
    /// What was before this life.
    earlier: figures::Earlier,
    /// Fills the history; none without an HTTP port.
    sampler: Option<Sampler>,
    /// The sockets of operators; none while a daemon before this one has them.
    doors: Option<Doors>,
    upgrades: UpgradeHandle,
    upgrading: Upgrading,
    /// This process is a `serve`, whose arguments start another one.
    can_upgrade: bool,
}

impl Daemon {
    fn turn(&mut self) -> Result<(), ServeError> {
        let patience = self.leaving.patience().min(self.upgrading.patience());
        let patience = self.sampler.as_ref().map_or(patience, |it| patience.min(it.patience(self.pump.now())));
        let turned = self.pump.turn(patience).map_err(failed("epoll"));
        hangs::tell(&mut self.pump, &self.held);
        self.names.look(self.pump.now(), &self.held);
        turned
    }

    fn tell(&mut self, event: Event) {
        self.follow_members(event);
        tell::tell(event, &self.config, &self.held, &mut self.pump, &mut self.origin_errors);
    }

    fn sampled(&self) -> Sampled<'_> {
        Sampled { config: &self.config, pump: &self.pump, origin_errors: &self.origin_errors }
    }

    fn ending(self) -> Ending {
        let Self { config, pump, held, leaving, origin_errors, was_clean, .. } = self;
        Ending { config, pump, held, leaving, origin_errors, was_clean }
    }

    /// Ends all I/O, writes what the next start must know, and closes the devices.
    fn close(self, clean: bool) -> Result<Ended, ServeError> {
        self.ending().close(clean)
    }

    /// Opens the engine; none if a stop was asked for meanwhile, and then the cache is as before.
    fn opened(mut self) -> Result<Option<Self>, ServeError> {
        match self.replay() {
            Ok(true) => Ok(Some(self)),
            cut_off => {
                self.ending().undo();
                cut_off.map(|_| None)
            }
        }
    }

    /// Lets clients come.
    fn begin_serving(&mut self, listening: Listening, exports: Vec<Export>) -> Result<(), ServeError> {
        // Until a clean stop knows better.
        self.held.origins().iter().for_each(|origin| origin.owe(!self.config.without_cache));
        let mut frontends = listening.here;
        for (carried, (nth, arena)) in listening.carried.into_iter().zip((1..).zip(std::mem::take(&mut self.arenas))) {
            let name = format!("carrier-{nth}");
            let carried = carrier::start(name, carried, arena, exports.clone(), self.pump.clock());
            frontends.extend(carried.map_err(failed("starting a thread"))?);
        }
        self.pump.serve(exports, frontends).map_err(failed("epoll"))?;
        while self.pump.frontends_starting().map_err(failed("starting to serve"))? && !self.stop.is_asked() {
            self.turn()?;
            // An operator's call rings once.
            self.answer_calls();
        }
        Ok(())
    }

    /// Replays the log; false if a stop was asked for meanwhile.
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
                        let change = clean::compare(&self.config, self.pump.engine(), self.held.origins(), &self.stop)?;
                        let drop_clean = change.is_some();
                        self.unsettled.extend(change);
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
                        changes::remember_served(&self.config, self.held.origins(), self.pump.engine().superblock());
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

    /// The log has begun anew without what was dropped.
    fn settle(&mut self) {
        if !self.pump.engine().status().cache_failed {
            let changes = std::mem::take(&mut self.unsettled);
            changes::settle(&self.config, self.pump.engine().superblock(), changes);
        }
    }

    /// Takes a configuration over that was asked for since the last turn.
    fn take_reload(&mut self) {
        let Some(reload) = self.reload.take() else { return };
        let Self { config, pump, tls, sequential_bypass, volumes, .. } = self;
        Running { config, pump, tls: tls.as_ref(), sequential_bypass, volumes }.take_over(reload);
        self.change_volumes();
    }

    /// Notes counters for the windows of `status`, and fills the history if there is one.
    fn sample(&mut self) {
        self.grown.note_due(self.pump.now(), || self.pump.engine().status());
        if let Some(mut sampler) = self.sampler.take() {
            sampler.record(&self.sampled());
            self.sampler = Some(sampler);
        }
    }

    /// Hears what the engine has told; true: it has stopped.
    fn hear(&mut self) -> bool {
        loop {
            let news: Vec<Event> = self.pump.news().collect();
            if news.is_empty() {
                return false;
            }
            for event in news {
                match event {
                    Event::Stopped => return true,
                    Event::VolumeChanged { ticket, .. } => self.volume_changed(ticket),
                    Event::VolumeRefused { ticket, error, .. } => self.volume_refused(ticket, error),
                    other => self.tell(other),
                }
            }
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
            self.go_on_with_upgrade();
            if let Some(clean) = self.leaving.go_on(&self.stop, &mut self.pump, &self.held) {
                return Ok(clean);
            }
            self.turn()?;
            // First, so that what is told of the volumes is of those that there are.
            if self.hear() {
                return Ok(true);
            }
            self.sample();
            self.answer_calls();
        }
    }
}
