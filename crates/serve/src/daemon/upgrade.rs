// SPDX-License-Identifier: MIT OR Apache-2.0
//! An upgrade, step by step: starts the new program, holds the clients, closes the cache, and gives
//! everything away.
//!
//! Up to the engine's last checkpoint a step back costs nothing but the time that clients waited.
//! After it the cache has to be opened again: by the new program, or by this one if that fails.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use flashfront_device::real::DeviceFile;
use flashfront_engine::{Control, Input, MirrorStatus, OriginStatus};

use super::doors::Doors;
use super::figures::{Earlier, Figures, VolumeFigures};
use super::judge::offer;
use super::resize::NewSize;
use super::sample::Sampler;
use super::upgrading::{HOLD_MAX, Handing, Served, To, Upgrading, refuse};
use super::{Daemon, astray, limit, link, switch};
use crate::config::Volume;
use crate::history::SharedHistory;
use crate::report::{CounterReport, counted};
use crate::upgrade::{
    Bytes, HAND_OVER_WITHOUT_TLS, Parcel, Successor, UpgradeOrder, Wish, program, shared_clock_ns, version,
};

impl Daemon {
    /// Takes the next step of an upgrade.
    pub(super) fn go_on_with_upgrade(&mut self) {
        if let Some(order) = self.upgrades.take() {
            self.order_upgrade(order);
        }
        self.upgrading = match std::mem::take(&mut self.upgrading) {
            Upgrading::Starting { operator, .. } if self.stop.is_asked() => {
                refuse(operator, "the daemon was asked to stop".to_owned());
                Upgrading::Not
            }
            Upgrading::Starting { started, disconnect, operator } => match started.try_recv() {
                Ok(Ok(to)) => {
                    let (parcel, served) = (Parcel::default(), Served::default());
                    self.hold(Handing { operator, disconnect, to, parcel, served })
                }
                Ok(Err(why)) => {
                    refuse(operator, format!("{why}; nothing was changed"));
                    Upgrading::Not
                }
                Err(TryRecvError::Empty) => Upgrading::Starting { started, disconnect, operator },
                Err(TryRecvError::Disconnected) => {
                    refuse(
                        operator,
                        "the thread that started the new program has died; nothing was changed".to_owned(),
                    );
                    Upgrading::Not
                }
            },
            Upgrading::Holding { since, held_ns, handing } => self.go_on_holding(since, held_ns, handing),
            other => other,
        };
    }

    /// Begins an upgrade, or refuses it.
    fn order_upgrade(&mut self, order: UpgradeOrder) {
        let UpgradeOrder { wish, operator } = order;
        if !matches!(self.upgrading, Upgrading::Not) {
            return refuse(operator, "an upgrade, or a change of the cache, is under way already".to_owned());
        }
        if !self.can_upgrade {
            return refuse(operator, "this daemon is no `serve`: it ends with the program that began it".to_owned());
        }
        let (given, disconnect) = match wish {
            Wish::Program { .. } if !self.config.detached.is_empty() => {
                return refuse(
                    operator,
                    "the cache is detached: `flashfront cache attach` gives the volumes one first".to_owned(),
                );
            }
            Wish::Program { program, disconnect } => (program, disconnect),
            Wish::Detach => return switch::order_detach(self, operator),
            Wish::Attach { device, force } => return switch::order_attach(self, device, force, operator),
            Wish::Grow => return switch::order_resize(self, NewSize::OfDevice, operator),
            Wish::Shrink { bytes } => return switch::order_resize(self, NewSize::Bytes(bytes), operator),
        };
        if let Some(why) = self.why_not() {
            return refuse(operator, format!("{why}; nothing was changed"));
        }
        let Some(program) = given.or_else(program) else {
            return refuse(operator, "the program's path is not known; say --program PATH".to_owned());
        };
        tracing::info!("upgrade: starting {}, by the operator", program.display());
        match self.start(program, disconnect) {
            Ok(started) => self.upgrading = Upgrading::Starting { started, disconnect, operator },
            Err(error) => refuse(operator, format!("starting a thread: {error}; nothing was changed")),
        }
    }

    /// Starts the new program by a thread, as it takes its time. `disconnect`: it gets no client
    /// inside TLS.
    fn start(&self, program: PathBuf, disconnect: bool) -> std::io::Result<Receiver<Result<To, String>>> {
        let format = (!self.config.without_cache).then(|| self.pump.engine().superblock().version());
        let mut offered = offer(&self.config, format);
        if disconnect {
            offered.hand_over = HAND_OVER_WITHOUT_TLS;
        }
        if !self.config.without_cache && self.pump.engine().superblock().table.is_some() {
            offered.known = self.config.volumes.iter().map(|volume| volume.name.clone()).collect();
        }
        let (send, started) = channel();
        let stop = self.stop.clone();
        std::thread::Builder::new().name("upgrade".to_owned()).spawn(move || {
            let started = Successor::start(&program, offered).map_err(|why| advise(why, disconnect));
            // A daemon that has ended needs no successor: it is killed as it is dropped.
            let _ = send.send(started.map(To::Program));
            stop.wake();
        })?;
        Ok(started)
    }

    /// Says why there can be no upgrade now.
    pub(super) fn why_not(&self) -> Option<String> {
        let status = self.pump.engine().status();
        if self.stop.is_asked() {
            return Some("the daemon was asked to stop".to_owned());
        }
        if status.cache_failed {
            return Some("the cache device has failed".to_owned());
        }
        if matches!(status.mirror, MirrorStatus::Syncing { .. }) {
            return Some("the mirror is being filled: wait until `status` shows it whole".to_owned());
        }
        if status.succeeding.is_some() || status.promoting.is_some() {
            return Some(
                "clean data is copied from one cache device to the other: wait until `status` shows no more of that"
                    .to_owned(),
            );
        }
        if let Some(what) = astray::any(&self.held) {
            return Some(what);
        }
        if self.volumes.is_busy() {
            return Some("a volume is being added, removed or changed: try again".to_owned());
        }
        if self.pump.devices().any_hangs() {
            return Some("a device hangs, see `status`".to_owned());
        }
        self.pump.clients_stay()
    }

    pub(super) fn hold(&mut self, handing: Handing) -> Upgrading {
        // Something may have changed since the order.
        if let Some(why) = self.why_not() {
            refuse(handing.operator, format!("{why}; nothing was changed"));
            return Upgrading::Not;
        }
        let (since, held_ns) = (Instant::now(), shared_clock_ns());
        self.pump.hold_clients(handing.disconnect);
        self.go_on_holding(since, held_ns, handing)
    }

    fn go_on_holding(&mut self, since: Instant, held_ns: u64, mut handing: Handing) -> Upgrading {
        let held = self.pump.are_clients_held();
        // Not before: writes that were taken would go to an origin that may refuse them.
        let drained = handing.to.may_be_dirty() || held && switch::drains_the_rest(self);
        let refusal = if held && drained {
            match self.why_not() {
                None => match self.fill(&mut handing.parcel, held_ns) {
                    Ok(()) => {
                        if let To::Itself(switch) = &mut handing.to {
                            switch.leaves(&self.config, self.pump.engine().superblock(), &mut handing.parcel);
                        }
                        handing.served = Served::of(&self.config);
                        self.leaving.close_engine(&mut self.pump);
                        return Upgrading::Closing(handing);
                    }
                    Err(error) => format!("the clients can't be handed over: {error}"),
                },
                Some(why) => why,
            }
        } else if self.stop.is_asked() {
            "the daemon was asked to stop".to_owned()
        } else if since.elapsed() < HOLD_MAX {
            return Upgrading::Holding { since, held_ns, handing };
        } else {
            let (mut there, most) = (self.pump.not_held(), HOLD_MAX.as_secs());
            if !drained {
                there.push(counted(self.pump.engine().status().blocks_dirty, "dirty block"));
            }
            let there = there.join(", ");
            self.why_not().unwrap_or_else(|| {
                format!("requests were not finished within {most} s ({there}): a slow origin, or a client that has stopped in the middle; try again")
            })
        };
        self.pump.release_clients();
        if !handing.to.may_be_dirty() {
            self.pump.apply(Input::Control(Control::Drain(false)));
        }
        let waited = since.elapsed().as_millis();
        refuse(handing.operator, format!("{refusal}; clients waited {waited} ms, and nothing was changed"));
        Upgrading::Not
    }

    /// Puts everything into the parcel.
    fn fill(&mut self, parcel: &mut Parcel, held_ns: u64) -> std::io::Result<()> {
        let status = self.pump.engine().status();
        parcel.state.version = version();
        parcel.state.held_ns = held_ns;
        let bypass = self.sequential_bypass;
        parcel.state.sequential_bypass = (bypass != self.config.policy.sequential_bypass).then_some(bypass.0);
        if !self.config.without_cache {
            let usual = limit::blocks(self.config.policy.dirty_limit, self.pump.engine().superblock());
            let usual = usual.is_ok_and(|blocks| blocks == status.dirty_limit_blocks);
            parcel.state.dirty_limit_blocks = (!usual).then_some(status.dirty_limit_blocks);
        }
        parcel.state.draining = status.draining;
        if let Some(doors) = &self.doors {
            doors.hand_over(parcel)?;
        }
        self.pump.hand_over(parcel)
    }

    /// Takes over what an operator had set.
    pub(super) fn set_as_before(&mut self, parcel: &Parcel) {
        let state = &parcel.state;
        if let Some(blocks) = state.dirty_limit_blocks {
            self.pump.apply(Input::Control(Control::SetDirtyLimit { blocks }));
        }
        if let Some(bytes) = state.sequential_bypass {
            self.sequential_bypass = crate::config::Size(bytes);
            self.pump.apply(Input::Control(Control::SetSequentialBypass { bytes }));
        }
        if state.draining {
            self.pump.apply(Input::Control(Control::Drain(true)));
        }
    }

    /// For how long the daemon has been ready, whatever program that was.
    pub(super) fn ready_for(&self) -> Duration {
        self.earlier.ready + self.ready.map_or(Duration::ZERO, |ready| ready.elapsed())
    }

    /// Puts the figures into the parcel, when the engine has stopped.
    pub(super) fn hand_figures_over(&self, parcel: &mut Parcel) {
        let status = self.pump.engine().status();
        let volume = |(volume, file): (&Volume, &Arc<DeviceFile>)| {
            let at = status.origins.binary_search_by_key(&volume.id, |origin| origin.id);
            let origin = at.map_or_else(|_| OriginStatus::default(), |at| status.origins[at]);
            let link = self.earlier.link(volume.id, link::report(file));
            VolumeFigures::new(volume.id, &origin, self.origin_errors.of(volume.id), link)
        };
        let history = self.sampler.as_ref().and_then(Sampler::figures);
        let figures = Figures {
            taken_ns: shared_clock_ns(),
            at_ns: self.earlier.before_ns + self.pump.now().0,
            ready_ns: self.ready_for().as_nanos() as u64,
            counters: CounterReport::from(&status.counters),
            volumes: self.config.volumes.iter().zip(self.held.origins()).map(volume).collect(),
            latencies: self.pump.latencies().figures(),
            grown: self.grown.figures(),
            history: history.map(|(figures, values)| (figures, parcel.put_bytes(|bytes| bytes.extend(values)))),
        };
        figures.put(parcel);
    }

    /// Goes on with the figures of the life before, if there was one.
    pub(super) fn go_on_with_figures(&mut self, parcel: Option<&Parcel>) {
        let Some(mut figures) = parcel.and_then(Figures::of) else { return };
        let before_ns = figures.before_ns(self.pump.now());
        let latencies = std::mem::take(&mut figures.latencies);
        self.pump.go_on_from((&figures.counters).into(), figures.origins(), latencies, before_ns);
        self.grown.go_on(std::mem::take(&mut figures.grown), before_ns);
        for (origin, errors) in figures.errors() {
            self.origin_errors.go_on(origin, errors);
        }
        self.earlier = Earlier::new(figures, before_ns);
    }

    /// Begins the history, if there is an HTTP port, or goes on with that of the life before.
    pub(super) fn begin_history(&mut self, history: SharedHistory, parcel: Option<&Parcel>) {
        if !self.doors.as_ref().is_some_and(Doors::has_http) {
            return;
        }
        let earlier = self.earlier.history.take();
        let bytes = |of: Bytes| parcel.and_then(|parcel| parcel.bytes(of).ok());
        let earlier = earlier.as_ref().and_then(|(figures, values)| Some((figures, bytes(*values)?)));
        self.sampler = Some(Sampler::begin(history, &self.sampled(), self.earlier.before_ns, earlier));
    }
}

/// Says what can be done about a program that takes over by an older version of the hand-over.
fn advise(why: String, disconnect: bool) -> String {
    // An older program has only its own words for that.
    if disconnect || !why.contains("of the hand-over") {
        return why;
    }
    format!(
        "{why}; say --disconnect to hand over by version {HAND_OVER_WITHOUT_TLS}, which closes connections inside TLS"
    )
}
