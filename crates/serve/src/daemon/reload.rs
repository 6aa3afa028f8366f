// SPDX-License-Identifier: MIT OR Apache-2.0
//! Takes over settings that can change while the daemon runs, and names the settings that can't.
//!
//! Everything is read and checked before anything is changed, so that a bad file changes nothing.
//! Certificates are read anew: new connections use the new ones, and old connections go on.

use flashfront_engine::{Control, Input, Mode, OriginId};

use super::error::ServeError;
use super::limit;
use super::reload_handle::Reload;
use super::volumes::orders::{Order, Volumes, Wanted};
use crate::config::{Config, Size};
use crate::frontend::nbd::Tls;
use crate::pump::Pump;

/// Checked changes, before they are made.
#[derive(Debug, Default)]
struct Changes {
    /// The certificates in use, and what takes their place.
    certificates: Option<(Tls, Tls)>,
    dirty_limit_blocks: Option<u64>,
    sequential_bypass_bytes: Option<u64>,
    modes: Vec<(OriginId, Mode)>,
    /// Changes of the volumes, which take their time.
    orders: Vec<Order>,
    /// The changes for the log, as in "dirty_limit is 50%".
    told: Vec<String>,
    /// What becomes of the volumes is told when it is done, or refused.
    ordered: Vec<String>,
}

/// The parts of a running daemon that a reload can change.
pub(super) struct Running<'a> {
    pub(super) config: &'a Config,
    pub(super) pump: &'a mut Pump,
    /// The certificates for new connections of NBD.
    pub(super) tls: Option<&'a Tls>,
    /// The value that is in force.
    pub(super) sequential_bypass: &'a mut Size,
    pub(super) volumes: &'a mut Volumes,
}

impl Running<'_> {
    /// Takes a configuration over.
    pub(super) fn take_over(&mut self, reload: Reload) {
        let Reload { config, taken } = reload;
        let running = self.config;
        let next = config.as_ref().unwrap_or(running);
        let changes = match self.check(config.is_some(), next) {
            Ok(changes) => changes,
            Err(error) => {
                tracing::error!("reload: nothing was changed: {error}");
                return;
            }
        };
        let told = if changes.told.is_empty() { "nothing".to_owned() } else { changes.told.join(", ") };
        let ordered = changes.ordered.join(", ");
        self.change(changes);
        if config.is_none() {
            tracing::info!(
                "reload: there is no configuration file (serve --config), so only certificates are read anew: {told}"
            );
            return;
        }
        tracing::info!("reload: taken over: {told}");
        if !ordered.is_empty() {
            tracing::info!("reload: wanted of the volumes: {ordered}; the log says what becomes of each");
        }
        // It may change what the log tells.
        taken();
        let left = running.changed_until_restart(next);
        if !left.is_empty() {
            tracing::warn!(
                "reload: changed too, but a running daemon can't take that over: {}; restart it for that",
                left.join(", ")
            );
        }
    }

    /// Reads and checks all, and changes nothing.
    fn check(&self, whole: bool, next: &Config) -> Result<Changes, ServeError> {
        let mut changes = Changes::default();
        if let (Some(used), Some(files)) = (self.tls, &next.tls) {
            changes.certificates = Some((used.clone(), Tls::load(&files.certificates, files.verify_peer)?));
            let peers = if files.verify_peer { ", with which clients are verified, too" } else { "" };
            changes.told.push(format!("the certificates in {}{peers}", files.certificates.display()));
        }
        if !whole || self.config.without_cache {
            return Ok(changes);
        }
        let superblock = self.pump.engine().superblock();
        let asked = next.policy.dirty_limit;
        let limit = limit::blocks_at_start(asked, superblock)
            .map_err(|error| ServeError::DirtyLimit { path: self.config.cache.clone(), error })?;
        changes.dirty_limit_blocks = Some(limit);
        changes.told.push(format!("dirty_limit is {asked}"));
        changes.sequential_bypass_bytes = Some(next.policy.sequential_bypass.0);
        changes.told.push(format!("sequential_bypass is {}", next.policy.sequential_bypass));
        let status = self.pump.engine().status();
        for volume in &self.config.volumes {
            let mode = next.volumes.iter().find(|other| other.name == volume.name).and_then(|other| other.mode);
            let before = status.origins.iter().find(|it| it.id == volume.id).map(|it| it.mode);
            if let Some(mode) = mode.filter(|mode| Some(*mode) != before) {
                changes.modes.push((volume.id, mode));
                changes.told.push(format!("the mode of {} is {mode}", volume.name));
            }
        }
        self.check_volumes(next, &mut changes);
        Ok(changes)
    }

    /// Notes volumes that the file names and the cache doesn't have, and changes of the others. No
    /// volume goes because a file no longer names it.
    fn check_volumes(&self, next: &Config, changes: &mut Changes) {
        for volume in &next.volumes {
            let name = volume.name.clone();
            let Some(running) = self.config.volumes.iter().find(|running| running.name == name) else {
                changes.ordered.push(format!("{name} is to be added"));
                let (origin, mode, shares) = (volume.origin.clone(), volume.mode.unwrap_or_default(), volume.shares());
                let read_only = volume.read_only.unwrap_or(false);
                changes.orders.push(Order::Add(Wanted { name, origin, mode, read_only, shares }));
                continue;
            };
            let superblock = self.pump.engine().superblock();
            let Some(record) = superblock.origin(running.id) else { continue };
            if let Some(read_only) = volume.read_only.filter(|read_only| *read_only != record.read_only) {
                changes.ordered.push(format!("{name} is to be {}", if read_only { "read-only" } else { "writable" }));
                changes.orders.push(Order::SetReadOnly { name: name.clone(), read_only });
            }
            let shares = volume.shares();
            if shares.of(record.shares, superblock) != record.shares {
                changes.ordered.push(format!("the limits of {name} are to be {shares}"));
                changes.orders.push(Order::SetShares { name, shares });
            }
        }
        let unnamed = self.config.volumes.iter().filter(|it| next.volumes.iter().all(|other| other.name != it.name));
        let unnamed: Vec<&str> = unnamed.map(|volume| volume.name.as_str()).collect();
        if !unnamed.is_empty() {
            changes.told.push(format!("{}, which the file does not name, stay as they are", unnamed.join(", ")));
        }
    }

    fn change(&mut self, changes: Changes) {
        changes.orders.into_iter().for_each(|order| self.volumes.order(order, None));
        if let Some((used, fresh)) = changes.certificates {
            used.replace(&fresh);
        }
        let limit = changes.dirty_limit_blocks.map(|blocks| Control::SetDirtyLimit { blocks });
        let bypass = changes.sequential_bypass_bytes.map(|bytes| Control::SetSequentialBypass { bytes });
        *self.sequential_bypass = changes.sequential_bypass_bytes.map_or(*self.sequential_bypass, Size);
        let modes = changes.modes.into_iter().map(|(origin, mode)| Control::SetMode { origin, mode });
        for control in limit.into_iter().chain(bypass).chain(modes).collect::<Vec<_>>() {
            self.pump.apply(Input::Control(control));
        }
    }
}
