// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes events of the engine to the operator's log.

use flashfront_engine::format::Mirror;
use flashfront_engine::{Control, DeviceError, DeviceId, Engine, Event, Input, Lba, Op, OriginId};

use super::held::Held;
use crate::config::Config;
use crate::failure;
use crate::origin_errors::{AllOriginErrors, advice};
use crate::pump::Pump;
use crate::report::counted;
use crate::stale;

/// Whether an event says only that an I/O was given up.
const fn is_of_hang(event: Event) -> bool {
    let (Event::DeviceFailed { error, .. } | Event::DestageFailed { error, .. } | Event::OriginFailed { error, .. }) =
        event
    else {
        return false;
    };
    matches!(error, DeviceError::TimedOut)
}

/// Writes an event of the engine to the operator's log, and counts errors of origins.
///
/// If the cache device can't be marked as failed, the state folder remembers that, and the engine
/// is told whether it does.
pub(super) fn tell(event: Event, config: &Config, held: &Held, pump: &mut Pump, errors: &mut AllOriginErrors) {
    match event {
        Event::DestageFailed { origin, error } => {
            let destaged = pump.engine().status().counters.destaged_blocks;
            errors.refused(origin, error, destaged);
        }
        Event::OriginFailed { origin, op, .. } => errors.count(origin, op),
        _ => {}
    }
    // `hangs` tells once that a device hangs; each I/O that fails then is not told.
    if !is_of_hang(event) {
        log(event, config, held, pump.engine());
    }
    if let Event::OriginFailed { origin, error: DeviceError::ReadOnly, .. } = event
        && held.origin(origin).is_some_and(|file| stale::is_fenced(file))
    {
        // What is acknowledged now would never reach the store.
        pump.apply(Input::Control(Control::RefuseWrites { origin }));
    }
    if event == Event::FailureUnmarked {
        let (status, superblock) = (pump.engine().status(), pump.engine().superblock().clone());
        let recorded = failure::record(config.state.as_deref(), &superblock, status.blocks_dirty);
        match &recorded {
            Ok(path) => {
                tracing::warn!("the cache device can't be marked as failed; {} remembers it", path.display())
            }
            Err(error) => tracing::error!(
                "the cache device can't be marked as failed, nor can that be remembered in the state folder \
                     ({error}): FLUSH and writes of cached blocks fail, since a later start could undo them"
            ),
        }
        pump.apply(Input::Control(Control::FailureRecorded { durable: recorded.is_ok() }));
    }
}

fn log(event: Event, config: &Config, held: &Held, engine: &Engine) {
    let name = |id: OriginId| config.volume(id).map_or("?", |volume| volume.name.as_str());
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
                held.name(device),
                held.name_of_lead(engine)
            );
        }
        Event::MemberLeads { device } => {
            tracing::info!("{}: it leads now, with all that is cached; the other one is its mirror", held.name(device));
        }
        Event::MemberLeft { device } if engine.superblock().pairing.mirror == Mirror::None => {
            let (left, lead) = (held.name(device), held.name_of_lead(engine));
            tracing::info!(
                "{left}: it has left the cache, which is on {lead} alone; name that at the next start (--cache)"
            );
        }
        Event::MemberLeft { device } => {
            tracing::warn!("{}: that {} is left out is recorded durably", held.name_of_lead(engine), held.name(device));
        }
        Event::MirrorWhole { lacking } => {
            let (cache, mirror) = (held.name(DeviceId::Cache), held.name(DeviceId::Mirror));
            tracing::info!(
                "the mirror is complete: {cache} and {mirror} hold all dirty data; name both at the next start (--cache, --mirror)"
            );
            if lacking > 0 {
                tracing::error!(
                    "but {lacking} dirty blocks of 4 KiB could not be read from {}, and are on no other device",
                    held.name_of_lead(engine)
                );
            }
        }
        Event::CacheFailed => tracing::error!(
            "{}: the cache device failed, and nothing new is trusted to it. What can still be read of it is served and \
                 destaged; everything else goes to the origin, at its speed. Run `flashfront drain` and stop; this cache will \
                 not be served again",
            held.name_of_lead(engine)
        ),
        Event::DeviceFailed { device, op, offset, error } => {
            tracing::error!("{}: {op:?} at byte {offset} failed: {error}", held.name(device));
        }
        Event::OriginFailed { origin, op, lba, sectors, error } => tracing::error!(
            "volume {}: {} {} failed: {error}; {}",
            name(origin),
            asked(op, lba, sectors),
            held.name(DeviceId::Origin(origin)),
            advice(error, held.site(DeviceId::Origin(origin)), &held.name(DeviceId::Origin(origin)))
        ),
        Event::DestageFailed { origin, error } => tracing::error!(
            "volume {}: writing dirty data to the origin failed ({error}); it stays in the cache and is tried again",
            name(origin)
        ),
        Event::ModeChanged { origin, mode } => {
            tracing::debug!("volume {}: the superblock says durably that its mode is {mode}", name(origin));
        }
        Event::VolumeChanged { origin, .. } => {
            tracing::debug!("volume with the id {}: its change is durable", origin.0)
        }
        Event::VolumeRefused { error, .. } => tracing::debug!("a change of the volumes was refused: {error}"),
        Event::Drained => match engine.status().lost.len() {
            0 => tracing::info!("drained: nothing is dirty"),
            lost => {
                tracing::warn!("drained but for {}; see `flashfront status`", counted(lost as u64, "lost block"))
            }
        },
        Event::FailureUnmarked | Event::Replayed | Event::Ready { .. } | Event::OpenFailed(_) | Event::Stopped => {}
    }
}

/// Says for people which operation an origin was to do.
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
