// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links to the servers of network volumes: what the log says of them, and who is let in again.
//!
//! A server that is there again must have the export as it was. The device compares the size. Here
//! the record of samples is compared, as after a crash.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use flashfront_device::real::{DeviceFile, LinkNews, LinkWatch, ReadAt};
use flashfront_engine::format::{OriginRecord, Superblock};

use super::members::Members;
use crate::config::Config;
use crate::report::{LinkReport, StoreReport, begun_seconds};
use crate::{stale, superblock};

/// Looks after the links of all devices that have one.
pub(super) fn look_after(config: &Config, members: &Members, origins: &[Arc<DeviceFile>], superblock: &Superblock) {
    for (origin, record) in origins.iter().zip(&superblock.origins) {
        look_after_origin(config, origin, record, (!members.is_empty()).then_some(superblock));
    }
    members.iter().for_each(|(_, member)| look_after_member(member, superblock));
}

/// Looks after an origin; without a cache there is no record of its samples.
pub(super) fn look_after_origin(
    config: &Config,
    origin: &Arc<DeviceFile>,
    record: &OriginRecord,
    cache: Option<&Superblock>,
) {
    let (state, record) = (config.state.clone(), record.clone());
    let owner = cache.map(|superblock| (superblock.uuid, superblock.epoch));
    watch(origin, "the origin", move |read| match owner {
        Some(owner) => same(state.as_deref(), &record, owner, read),
        None => Ok(()),
    });
}

/// Looks after the link of a cache device. A server that is there again must have this cache, in
/// this opening. Blocks have checksums, and a lost write fails the device's flush.
pub(super) fn look_after_member(member: &Arc<DeviceFile>, superblock: &Superblock) {
    let (uuid, epoch) = (superblock.uuid, superblock.epoch);
    let (path, size_bytes) = (member.path().to_owned(), member.geometry().size_bytes);
    watch(member, "the cache device", move |read| {
        let found = superblock::read_with(&path, size_bytes, |at, into| read(at, into));
        match found {
            Ok(it) if (it.superblock.uuid, it.superblock.epoch) == (uuid, epoch) => Ok(()),
            _ => Err("the export came back with other content (it is not the cache of this opening)".to_owned()),
        }
    });
}

fn watch(
    device: &Arc<DeviceFile>,
    role: &'static str,
    check: impl Fn(&mut ReadAt<'_>) -> Result<(), String> + Send + Sync + 'static,
) {
    let name = device.path().display().to_string();
    // The log goes where this thread's goes.
    let log = tracing::dispatcher::get_default(Clone::clone);
    let told = move |news: &LinkNews| tracing::dispatcher::with_default(&log, || tell(&name, role, news));
    device.watch_link(LinkWatch { check: Box::new(check), told: Box::new(told) });
}

/// Whether samples of the origin hold what the last daemon may have left there.
fn same(
    state: Option<&Path>,
    record: &OriginRecord,
    (uuid, epoch): ([u8; 16], u64),
    read: &mut ReadAt<'_>,
) -> Result<(), String> {
    let Some(place) = stale::is_changed(state, record, &uuid, epoch, read) else { return Ok(()) };
    let what = match place {
        Some(at) => format!("at byte {at} it holds what was never left there"),
        None => "it was not written here, and its samples are others than before".to_owned(),
    };
    Err(format!("the export came back with other content ({what})"))
}

fn tell(name: &str, role: &str, news: &LinkNews) {
    match news {
        LinkNews::Lost { why, unflushed } => {
            let unflushed = match unflushed {
                true => {
                    " What no flush had covered counts as lost there: what is dirty is written again, and the next FLUSH fails."
                }
                false => "",
            };
            tracing::warn!(
                "{name}: {role} is away: {why}. It is connected to again, for ever; what the cache has is served meanwhile.{unflushed}"
            );
        }
        LinkNews::Refused { why } => tracing::error!(
            "{name}: {role} is there again, and is not used: {why}. Let its server serve what it served before, or stop this daemon"
        ),
        LinkNews::Fenced { by } => tracing::error!(
            "{name}: {role} was opened by another writer ({by}), so nothing is written to it any more, and clients may only read. What it has not got stays dirty here, and is lost to that writer. Stop this daemon; or stop the other one, and start this one anew"
        ),
        LinkNews::Back { after } => {
            let after = humantime::format_duration(Duration::from_millis(after.as_millis() as u64));
            tracing::info!("{name}: {role} is there again, after {after}, and is used as before");
        }
    }
}

/// The link to the origin's server, for `status`. An origin of this machine has none, and is there.
pub(super) fn report(origin: &DeviceFile) -> LinkReport {
    let link = origin.link().unwrap_or_default();
    let (away_s, why) = link.away.map_or((None, None), |(since, why)| (Some(since.elapsed().as_secs()), Some(why)));
    let requests = link.store.as_ref().map(|store| StoreReport::new(store.requests.clone()));
    let store = link.store.unwrap_or_default();
    LinkReport {
        away_s,
        why,
        reconnects: link.reconnects,
        unsent_bytes: store.unsent_bytes,
        unsent_age_s: store.unsent_since.map_or(0, |since| begun_seconds(since.elapsed())),
        fenced: store.fenced,
        requests,
    }
}
