// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the operator asks of a running daemon, over the control socket and the HTTP port.

use std::path::Path;
use std::sync::mpsc::Sender;

use flashfront_engine::{Control, DeviceId, Input, OriginStatus, Status};

use super::open::member_id;
use super::set::Changes;
use super::{Daemon, OriginErrors};
use crate::control::{CONNECTIONS_MAX, Command, Response};
use crate::http::ASKING_MAX;
use crate::report::{Facts, StatusReport, VolumeFacts, counted};

/// Calls answered in a turn: all who can be there, as each has one at a time. Who asks again at
/// once waits until clients have had their turn.
const CALLS_MAX: usize = CONNECTIONS_MAX + ASKING_MAX;

impl Daemon<'_> {
    pub(super) fn answer_calls(&mut self) {
        self.go_on_adding();
        for _ in 0..CALLS_MAX {
            let Some(call) = self.pump.call() else { return };
            let Some(response) = self.answer(call.command, &call.reply) else { continue };
            // A client that has gone is no error.
            let _ = call.reply.send(response);
        }
        // Those who are left have rung already.
        self.stop.wake();
    }

    /// Nobody is answered any more. Who waits is told so: the threads that serve operators are
    /// waited for at the end.
    pub(super) fn refuse_calls(&mut self) {
        self.adding = None;
        self.pump.refuse_calls();
    }

    /// `None`: it is answered later.
    fn answer(&mut self, command: Command, reply: &Sender<Response>) -> Option<Response> {
        Some(match command {
            Command::AddMirror { device, force } => {
                self.add_mirror(&device, force, reply.clone());
                return None;
            }
            Command::Status => {
                Response::Status(Box::new(StatusReport::new(&self.pump.engine().status(), &self.facts())))
            }
            Command::Record { volume } => self.record(volume.as_deref()),
            Command::Drain { .. } | Command::Set { .. } if self.config.without_cache => Response::Error {
                message: "the origin is served without its cache (serve --without-cache): there is nothing to drain, and nothing that could be set; stop, and serve it with the cache".to_owned(),
            },
            Command::Drain { start } => {
                self.order_drain(start);
                Response::Done
            }
            Command::Stop => {
                self.stop.stop();
                Response::Done
            }
            Command::Set { volume, mode, dirty_limit, sequential_bypass } => {
                self.set(Changes { volume, mode, dirty_limit, sequential_bypass })
            }
        })
    }

    /// Which volume is to be recorded.
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
        Response::Recording {
            volume: volumes[at].name.clone(),
            origin: self.pump.engine().superblock().origins[at].id.0,
            began_ns: self.pump.now().0,
        }
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

    /// Why an origin refuses its dirty data.
    fn refused(&self, origin: &OriginStatus, status: &Status) -> Option<String> {
        let why = self.origin_errors.why(origin.id, status.counters.destaged_blocks)?;
        // As `destage` tells it.
        (origin.blocks_dirty > 0).then(|| why.to_string())
    }

    fn facts(&self) -> Facts {
        let status = self.pump.engine().status();
        let engine = status.buffer_bytes + status.ram_front_bytes + status.window_bytes;
        Facts {
            backend: self.backend.to_owned(),
            volumes: (0..self.config.volumes.len()).map(|at| self.volume_facts(at, &status)).collect(),
            uptime_s: self.ready.map_or(0, |ready| ready.elapsed().as_secs()),
            clients: self.pump.clients(),
            threads: self.config.threads as u64,
            lane_threads: self.config.lane_threads as u64,
            // Without a cache its place is taken by one in RAM, of which nothing is told.
            lanes: if self.config.without_cache { 0 } else { u64::from(self.pump.engine().superblock().lanes) },
            request_buffer_bytes: self.pump.buffer_bytes().saturating_sub(engine),
            opening: self.ready.is_none(),
            members: [0, 1].map(|at: usize| self.files[at].as_ref().map(|file| whole(file.path()))),
            lead: self.pump.engine().superblock().pairing.lead,
            without_cache: self.config.without_cache,
            member_hangs: [0, 1].map(|number| self.hang(member_id(number))),
        }
    }

    fn volume_facts(&self, at: usize, status: &Status) -> VolumeFacts {
        let policy = if self.config.without_cache { "none" } else { &self.config.policy.name };
        VolumeFacts {
            name: self.config.volumes[at].name.clone(),
            origin_path: whole(self.origins[at].path()),
            uris: self.uris.get(at).cloned().unwrap_or_default(),
            durability: self.config.policy.durability.name().to_owned(),
            policy: policy.to_owned(),
            origin_error: status.origins.get(at).and_then(|origin| self.refused(origin, status)),
            origin_hang: status.origins.get(at).and_then(|it| self.hang(DeviceId::Origin(it.id))),
            failed: status.origins.get(at).map_or_else(OriginErrors::default, |it| self.origin_errors.of(it.id)),
            durations: self.pump.durations(self.pump.engine().superblock().origins[at].id),
        }
    }
}

/// A path that means the same to a reader in another folder.
fn whole(path: &Path) -> String {
    std::path::absolute(path).as_deref().unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests;
