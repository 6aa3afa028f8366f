// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers the operator's calls, which come over the control socket and the HTTP port.

use flashfront_device::real::MapFile;
use flashfront_engine::format::Mirror;
use flashfront_engine::{Control, DeviceId, DirtyOnRemove, Event, Input, OriginStatus, Status};

use super::astray;
use super::mirror::{self, Aim, Cache, NewMirror};
use super::open::member_id;
use super::prefetch::{compare, prefetch};
use super::set::{Changes, set};
use super::volumes::orders::{Order, Wanted};
use super::whole::whole;
use super::{Daemon, hangs, link, switch};
use crate::control::{CONNECTIONS_MAX, Command, Dirty, Reply, Response};
use crate::frontend::export_of;
use crate::http::ASKING_MAX;
use crate::report::{Facts, StatusReport, VolumeFacts, counted};

/// The most calls that are answered in a turn: one of each connection that there can be. An
/// operator that asks again at once waits until clients have had their turn.
const CALLS_MAX: usize = CONNECTIONS_MAX + ASKING_MAX;

impl Daemon {
    /// The configuration names the cache devices as they are from now on, unless one has failed.
    pub(super) fn follow_members(&mut self, event: Event) {
        match event {
            Event::MemberLeft { device } => self.leaver.note(device, self.pump.engine()),
            Event::MirrorWhole { .. } | Event::MemberLeads { .. } => {}
            _ => return,
        }
        let pairing = self.pump.engine().superblock().pairing;
        if pairing.mirror != Mirror::Alone
            && let Some(lead) = self.held.member(pairing.lead)
        {
            let other = self.held.member(1 - pairing.lead).filter(|_| pairing.mirror == Mirror::Whole);
            let other = other.map(|file| file.path().to_owned());
            let lead = lead.path().to_owned();
            self.config.move_to(lead, other);
        }
    }

    /// Answers the operators' calls that have come.
    pub(super) fn answer_calls(&mut self) {
        let (new_mirror, cache) = self.new_mirror();
        new_mirror.go_on(cache);
        self.leaver.go_on(&mut self.pump, &mut self.held, &self.stop);
        self.change_volumes();
        for _ in 0..CALLS_MAX {
            let Some(call) = self.pump.call() else { return };
            // A change of volumes begins when the one before it has ended.
            if !call.command.changes_volumes() && !call.reply.begin() {
                continue;
            }
            let Some(response) = self.answer(call.command, &call.reply) else {
                self.change_volumes();
                continue;
            };
            // A client that has gone is no error.
            let _ = call.reply.send(response);
        }
        // Calls that are left have rung already, and will not ring again.
        self.stop.wake();
    }

    /// Answers no calls any more. Operators that wait are told so, since the end waits for the
    /// threads that serve them.
    pub(super) fn refuse_calls(&mut self) {
        self.new_mirror.give_up();
        self.volumes.give_up();
        self.pump.refuse_calls();
    }

    /// Carries out a command. `None`: the answer comes later.
    fn answer(&mut self, command: Command, reply: &Reply) -> Option<Response> {
        Some(match command {
            Command::AddMirror { device, force } => {
                let (new_mirror, cache) = self.new_mirror();
                new_mirror.add(cache, &device, force, Aim::Mirror, reply.clone());
                return None;
            }
            Command::ReplaceCache { device, force } => {
                let (new_mirror, cache) = self.new_mirror();
                new_mirror.add(cache, &device, force, Aim::Replace, reply.clone());
                return None;
            }
            Command::VacateCache { bytes } => match switch::vacate(self, bytes) {
                Ok(()) => Response::Done,
                Err(why) => Response::Error { message: format!("{why}; nothing was changed") },
            },
            Command::PromoteMirror { device } => {
                let (_, mut cache) = self.new_mirror();
                mirror::answer(reply, cache.promote(&device));
                return None;
            }
            Command::RemoveMirror { device } => {
                let (_, mut cache) = self.new_mirror();
                mirror::answer(reply, cache.remove(&device));
                return None;
            }
            Command::AddVolume { name, origin, mode, read_only, shares } => {
                let wanted = Wanted { name, origin, mode: mode.unwrap_or_default(), read_only, shares };
                self.volumes.order(Order::Add(wanted), Some(reply.clone()));
                return None;
            }
            Command::RemoveVolume { volume: name, dirty, disconnect } => {
                let dirty = match dirty {
                    Dirty::Refuse => DirtyOnRemove::Refuse,
                    Dirty::Destage => DirtyOnRemove::Destage,
                    Dirty::Discard => DirtyOnRemove::Discard,
                };
                self.volumes.order(Order::Remove { name, dirty, disconnect }, Some(reply.clone()));
                return None;
            }
            Command::RenameVolume { volume: name, name: to } => {
                self.volumes.order(Order::Rename { name, to }, Some(reply.clone()));
                return None;
            }
            Command::SetReadOnly { volume: name, read_only } => {
                self.volumes.order(Order::SetReadOnly { name, read_only }, Some(reply.clone()));
                return None;
            }
            Command::SetShares { volume: name, shares } => {
                self.volumes.order(Order::SetShares { name, shares }, Some(reply.clone()));
                return None;
            }
            Command::GrowVolume { volume: name } => {
                self.volumes.order(Order::Grow { name }, Some(reply.clone()));
                return None;
            }
            Command::Status => {
                Response::Status(Box::new(StatusReport::new(&self.pump.engine().status(), &self.facts())))
            }
            Command::Record { volume } => self.record(volume.as_deref()),
            Command::Prefetch { volume, offset, bytes, replace } => {
                let to = (&self.config, &mut self.pump);
                let begun = prefetch(to, &volume, offset..offset.saturating_add(bytes), replace, reply);
                return begun.err().map(|message| Response::Error { message });
            }
            Command::Compare { volume, offset, bytes } => {
                let begun = compare((&self.config, &mut self.pump), &volume, offset, bytes, reply);
                return begun.err().map(|message| Response::Error { message });
            }
            Command::Drain { .. } | Command::Set { .. } if !self.config.detached.is_empty() => Response::Error {
                message: "the cache is detached, so nothing is dirty, and there is nothing that could be set; `flashfront cache attach` gives the volumes one first".to_owned(),
            },
            Command::Drain { .. } | Command::Set { .. } if self.config.without_cache => Response::Error {
                message: "the origin is served without its cache (serve --without-cache): there is nothing to drain, and nothing that could be set; stop, and serve it with the cache".to_owned(),
            },
            Command::Drain { start } => {
                self.order_drain(start);
                Response::Done
            }
            // The control socket passes upgrades on by itself (`Caller::upgrade`).
            Command::Upgrade { .. }
            | Command::DetachCache {}
            | Command::AttachCache { .. }
            | Command::GrowCache {}
            | Command::ShrinkCache { .. } => {
                Response::Error { message: "an upgrade is asked for over the control socket".to_owned() }
            }
            Command::Stop => {
                self.stop.stop();
                Response::Done
            }
            Command::Set { volume, mode, dirty_limit, sequential_bypass } => {
                let changes = Changes { volume, mode, dirty_limit, sequential_bypass };
                set(&self.config, &mut self.pump, &mut self.sequential_bypass, changes)
            }
        })
    }

    /// Says which volume a recorder gets.
    fn record(&self, name: Option<&str>) -> Response {
        let volumes = &self.config.volumes;
        let found = match name {
            Some(name) => volumes.iter().position(|volume| volume.name == name),
            None => (volumes.len() == 1).then_some(0),
        };
        let Some(at) = found else {
            let known: Vec<&str> = volumes.iter().map(|volume| volume.name.as_str()).collect();
            let message = match name {
                Some(_) => format!("no volume of that name; there are: {}", known.join(", ")),
                None => format!("there are several volumes; say --volume with one of: {}", known.join(", ")),
            };
            return Response::Error { message };
        };
        tracing::info!("volume {}: its requests are recorded, by the operator", volumes[at].name);
        Response::Recording { volume: volumes[at].name.clone(), origin: volumes[at].id.0, began_ns: self.pump.now().0 }
    }

    /// Begins a drain, or ends it.
    fn order_drain(&mut self, start: bool) {
        let status = self.pump.engine().status();
        let dirty = counted(status.blocks_dirty, "dirty block");
        match (status.draining, start) {
            (false, true) => tracing::info!("drain begins, by the operator: {dirty}"),
            (true, false) => tracing::info!("drain ended by the operator: {dirty} left"),
            (true, true) | (false, false) => {}
        }
        self.pump.apply(Input::Control(Control::Drain(start)));
    }

    /// Says why an origin refuses its dirty data.
    fn refused(&self, origin: &OriginStatus, status: &Status) -> Option<String> {
        let why = self.origin_errors.why(origin.id, status.counters.destaged_blocks)?;
        // `destage` tells it in the same words.
        (origin.blocks_dirty > 0).then(|| why.to_string())
    }

    /// The device that becomes the mirror, and what it comes to.
    fn new_mirror(&mut self) -> (&mut NewMirror, Cache<'_>) {
        let cache = Cache {
            config: &self.config,
            pump: &mut self.pump,
            held: &mut self.held,
            stop: &self.stop,
            serves: self.ready.is_some(),
        };
        (&mut self.new_mirror, cache)
    }

    fn facts(&self) -> Facts {
        let status = self.pump.engine().status();
        let engine = status.buffer_bytes + status.ram_front_bytes + status.window_bytes;
        Facts {
            backend: self.backend.to_owned(),
            volumes: (0..self.config.volumes.len()).map(|at| self.volume_facts(at, &status)).collect(),
            uptime_s: self.ready_for().as_secs(),
            clients: self.pump.clients(),
            clients_refused: self.pump.clients_refused(),
            threads: self.config.threads as u64,
            lane_threads: self.config.lane_threads as u64,
            // Without a cache the engine has one in RAM, which is not told.
            lanes: if self.config.without_cache { 0 } else { u64::from(self.pump.engine().superblock().lanes) },
            request_buffer_bytes: self.pump.buffer_bytes().saturating_sub(engine),
            opening: self.ready.is_none(),
            members: [0, 1].map(|number| self.held.member(number).map(|file| whole(file))),
            lead: self.pump.engine().superblock().pairing.lead,
            leaving: self.leaver.path(),
            without_cache: self.config.without_cache,
            detached: !self.config.detached.is_empty(),
            member_hangs: [0, 1].map(|number| hangs::report(&self.pump, member_id(number))),
            recent: self.pump.latencies().of_all(self.pump.now()),
            grown: self.grown.of_all(self.pump.now(), &status),
            map_file: self.held.map_file().map(MapFile::figures),
        }
    }

    fn volume_facts(&self, at: usize, status: &Status) -> VolumeFacts {
        let policy = if self.config.without_cache { "none" } else { &self.config.policy.name };
        let (volume, file) = (&self.config.volumes[at], &self.held.origins()[at]);
        let origin = status.origins.binary_search_by_key(&volume.id, |origin| origin.id).map(|at| &status.origins[at]);
        let records = &self.pump.engine().superblock().origins;
        let record = records.binary_search_by_key(&volume.id, |record| record.id).ok().map(|at| &records[at]);
        let origin_link = self.earlier.link(volume.id, link::report(file));
        VolumeFacts {
            id: volume.id,
            name: volume.name.clone(),
            origin_path: whole(file),
            uris: self.uris.get(at).cloned().unwrap_or_default(),
            durability: self.config.policy.durability.name().to_owned(),
            destage: self.config.destage().name().to_owned(),
            policy: policy.to_owned(),
            origin_error: origin.ok().and_then(|origin| self.refused(origin, status)),
            origin_astray: astray::said(file),
            origin_hang: hangs::report(&self.pump, DeviceId::Origin(volume.id)),
            read_only: record.is_some_and(|record| record.read_only) || origin_link.fenced.is_some(),
            origin_link,
            failed: self.origin_errors.of(volume.id),
            durations: self.pump.durations(volume.id),
            shares: record.map_or_else(Default::default, |record| record.shares),
            clients: export_of(self.pump.exports(), volume.id).map_or(0, |export| export.guests.count() as u64),
            origin_bytes: file.size_at_hand(),
            removing: self.volumes.leaving() == Some(volume.id),
            grown: origin.map_or_else(|_| Default::default(), |it| self.grown.of(self.pump.now(), it)),
        }
    }
}

#[cfg(test)]
mod tests;
