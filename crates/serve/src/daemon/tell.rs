// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the engine has to tell, as the operator's log.

use flashfront_engine::{Control, DeviceError, DeviceId, Event, Input, Lba, Op, OriginId};

use super::Daemon;
use super::open::member_id;
use crate::failure;
use crate::origin_errors::advice;
use crate::report::counted;

/// Whether it says only that an I/O was given up.
const fn is_of_hang(event: Event) -> bool {
    let (Event::DeviceFailed { error, .. } | Event::DestageFailed { error, .. } | Event::OriginFailed { error, .. }) =
        event
    else {
        return false;
    };
    matches!(error, DeviceError::TimedOut)
}

impl Daemon<'_> {
    /// Writes the operator's log.
    pub(super) fn tell(&mut self, event: Event) {
        match event {
            Event::DestageFailed { origin, error } => {
                let destaged = self.pump.engine().status().counters.destaged_blocks;
                self.origin_errors.refused(origin, error, destaged);
            }
            Event::OriginFailed { origin, op, .. } => self.origin_errors.count(origin, op),
            _ => {}
        }
        // That a device hangs is told once, and not of each I/O that fails then.
        if !is_of_hang(event) {
            self.log(event);
        }
        if event == Event::FailureUnmarked {
            let (status, superblock) = (self.pump.engine().status(), self.pump.engine().superblock().clone());
            let recorded = failure::record(self.config.state.as_deref(), &superblock, status.blocks_dirty);
            match &recorded {
                Ok(path) => {
                    tracing::warn!("the cache device can't be marked as failed; {} remembers it", path.display())
                }
                Err(error) => tracing::error!(
                    "the cache device can't be marked as failed, nor can that be remembered in the state folder \
                     ({error}): FLUSH and writes of cached blocks fail, since a later start could undo them"
                ),
            }
            self.pump.apply(Input::Control(Control::FailureRecorded { durable: recorded.is_ok() }));
        }
    }

    /// What people call a device.
    pub(super) fn device(&self, id: DeviceId) -> String {
        let file = match id {
            DeviceId::Cache => self.files[0].as_ref(),
            DeviceId::Mirror => self.files[1].as_ref(),
            DeviceId::Origin(origin) => {
                let at = self.pump.engine().superblock().origins.iter().position(|record| record.id == origin);
                at.map(|at| &self.origins[at])
            }
        };
        file.map_or_else(|| format!("{id:?}"), |file| file.path().display().to_string())
    }

    /// The cache device that holds everything.
    fn lead(&self) -> String {
        self.device(member_id(self.pump.engine().superblock().pairing.lead))
    }

    fn log(&self, event: Event) {
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
            Event::ReadFromMirror { key } => tracing::warn!(
                "volume {}: the 8 sectors from {} could not be read from one cache device, or were corrupt there; the other one has them",
                name(key.origin),
                key.block.0 * 8
            ),
            Event::MemberFailed { device } => {
                tracing::error!(
                    "{}: it failed and is left out; the cache goes on with {} alone. `flashfront mirror add DEVICE` puts another in its place",
                    self.device(device),
                    self.lead()
                );
            }
            Event::MemberLeft { device } => {
                tracing::warn!("{}: that {} is left out is recorded durably", self.lead(), self.device(device));
            }
            Event::MirrorWhole { lacking } => {
                let (cache, mirror) = (self.device(DeviceId::Cache), self.device(DeviceId::Mirror));
                tracing::info!(
                    "the mirror is complete: {cache} and {mirror} hold all dirty data; name both at the next start (--cache, --mirror)"
                );
                if lacking > 0 {
                    tracing::error!(
                        "but {lacking} dirty blocks of 4 KiB could not be read from {}, and are on no other device",
                        self.lead()
                    );
                }
            }
            Event::CacheFailed => tracing::error!(
                "{}: the cache device failed, and nothing new is trusted to it. What can still be read of it is served and \
                 destaged; everything else goes to the origin, at its speed. Run `flashfront drain` and stop; this cache will \
                 not be served again",
                self.lead()
            ),
            Event::DeviceFailed { device, op, offset, error } => {
                tracing::error!("{}: {op:?} at byte {offset} failed: {error}", self.device(device));
            }
            Event::OriginFailed { origin, op, lba, sectors, error } => tracing::error!(
                "volume {}: {} {} failed: {error}; {}",
                name(origin),
                asked(op, lba, sectors),
                self.device(DeviceId::Origin(origin)),
                advice(error)
            ),
            Event::DestageFailed { origin, error } => tracing::error!(
                "volume {}: writing dirty data to the origin failed ({error}); it stays in the cache and is tried again",
                name(origin)
            ),
            Event::ModeChanged { origin, mode } => {
                tracing::debug!("volume {}: the superblock says durably that its mode is {mode}", name(origin));
            }
            Event::Drained => match self.pump.engine().status().lost.len() {
                0 => tracing::info!("drained: nothing is dirty"),
                lost => {
                    tracing::warn!("drained but for {}; see `flashfront status`", counted(lost as u64, "lost block"))
                }
            },
            Event::FailureUnmarked | Event::Replayed | Event::Ready { .. } | Event::OpenFailed(_) | Event::Stopped => {}
        }
    }
}

/// What an origin was asked to do.
fn asked(op: Op, lba: Lba, sectors: u64) -> String {
    let doing = match op {
        Op::Flush => return "flushing".to_owned(),
        Op::Read => "reading",
        Op::Write => "writing",
        Op::Discard => "discarding",
        Op::Zero | Op::Punch => "zeroing",
        Op::Map => "looking for holes in",
    };
    let of = if op == Op::Read { "of" } else { "on" };
    format!("{doing} {} from sector {} {of}", counted(sectors, "sector"), lba.0)
}
