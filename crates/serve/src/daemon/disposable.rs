// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens a disposable cache device (`--disposable-cache`). It makes a new cache of the device where
//! its content can't be used, and does without the device where it is missing.
//!
//! Local SSDs of cloud machines come back empty after a stop. Nothing is ever dirty in the modes
//! that are allowed here, so an empty cache loses nothing. But a cache of an earlier run, in
//! another mode, may hold dirty data: that is never given up here. (Tests: end to end
//! `disposable`.)

use std::borrow::Cow;
use std::io::ErrorKind;
use std::path::Path;

use flashfront_device::real::{Access, DeviceFile, OpenError};
use flashfront_engine::Mode;
use flashfront_engine::format::Mirror;

use super::answered::answered;
use super::changes;
use super::error::{DevicesError, DisposableError, OriginsError, ServeError};
use super::opened::Opened;
use crate::config::{Config, Disposable};
use crate::offline::{self, FormatOptions};
use crate::report::counted;
use crate::superblock::{self, SuperblockReadError};

/// Opens the devices, by `open`. The configuration that comes back is the one to serve by.
pub(super) fn opened(
    config: &Config,
    open: impl Fn(&Config) -> Result<Opened, ServeError>,
) -> Result<(Cow<'_, Config>, Opened), ServeError> {
    let mut config = config.clone();
    for volume in &mut config.volumes {
        volume.mode.get_or_insert(Mode::Writethrough);
    }
    let error = match open(&config) {
        Ok(opened) => return Ok((Cow::Owned(config), opened)),
        Err(error) => error,
    };
    match unusable(&error, &config.cache) {
        None => return Err(error),
        Some(Unusable::Device(why)) => {
            tracing::warn!(
                "{}: {why}. It is a disposable cache, so the origin is served without it; the next start looks for it again",
                config.cache.display()
            );
            (config.without_cache, config.accept_missing_dirty_data) = (true, true);
        }
        Some(Unusable::Content(why)) => {
            let made = answered(&config, move |config| remake(config, &why))?;
            tracing::warn!("{}: {}; it is a disposable cache, and empty now", config.cache.display(), made?);
        }
    }
    let opened = open(&config)?;
    Ok((Cow::Owned(config), opened))
}

/// What can't be used of a cache.
enum Unusable {
    /// The device itself, and why.
    Device(String),
    /// What the device holds, and why.
    Content(String),
}

/// What of the cache is the reason for an error; nothing, if another device or the operator is.
fn unusable(error: &ServeError, cache: &Path) -> Option<Unusable> {
    let content = |why: &str| Some(Unusable::Content(why.to_owned()));
    match error {
        ServeError::Silent { path, .. } if path == cache => Some(Unusable::Device("it does not answer".to_owned())),
        ServeError::CacheMissing(inner) => match &**inner {
            ServeError::Device(OpenError::Io { error, .. }) if is_gone(error) => {
                Some(Unusable::Device(format!("it can't be opened ({error})")))
            }
            ServeError::Superblock(SuperblockReadError::Read { source, .. }) => {
                Some(Unusable::Device(format!("it can't be read ({source})")))
            }
            ServeError::Superblock(_) => content("it held no cache"),
            _ => None,
        },
        ServeError::Superblock(SuperblockReadError::Resized { .. }) => {
            content("the device has another size than the cache that it held")
        }
        ServeError::Superblock(_) => content("it held no cache that this program knows"),
        ServeError::CacheFailed { dirty: 0, .. } => content("it failed in the last run"),
        ServeError::Devices(DevicesError::Pairing { .. }) => content("it was half of a mirrored cache"),
        ServeError::Origins(OriginsError::Detached(_)) => content("it was detached from its origin"),
        ServeError::Origins(OriginsError::VolumeCount { .. } | OriginsError::OtherOrigin { .. }) => {
            content("it was the cache of another origin")
        }
        ServeError::Origins(OriginsError::OriginSize { .. }) => {
            content("it was the cache of an origin of another size")
        }
        _ => None,
    }
}

/// Whether the device is not there any more; and not only in use, or for other users.
fn is_gone(error: &std::io::Error) -> bool {
    let gone = [libc::ENXIO, libc::ENODEV, libc::ENOMEDIUM, libc::EIO];
    error.kind() == ErrorKind::NotFound || error.raw_os_error().is_some_and(|errno| gone.contains(&errno))
}

/// Makes a new cache for the volume. Returns what became of the old content, for people.
fn remake(config: &Config, why: &str) -> Result<String, ServeError> {
    let device = DeviceFile::open(&config.cache, Access::Exclusive)?;
    let doubtful = doubtful(&device, why)?;
    let is_named = matches!(config.disposable_cache, Some(Disposable::Whatever(_)));
    if !is_named && !doubtful.is_empty() {
        let found = doubtful.join("; ");
        return Err(DisposableError::Occupied { path: config.cache.clone(), found }.into());
    }
    drop(device);
    let [volume] = &config.volumes[..] else { unreachable!("Config::check") };
    let options = FormatOptions {
        cache: config.cache.clone(),
        mirror: None,
        origin: volume.origin.clone(),
        name: volume.name.clone(),
        mode: volume.mode.unwrap_or(Mode::Writethrough),
        force: true,
        segment: None,
        lanes: None,
        discard: true,
    };
    let report = offline::format(&options).map_err(DisposableError::from)?;
    Ok(match report.destroyed.is_empty() {
        true => format!("{why}, and was formatted"),
        false => format!("{why}, and was formatted; destroyed: {}", report.destroyed.join("; ")),
    })
}

/// What lies on the device that may be worth keeping: everything that is not a whole cache without
/// dirty data.
///
/// # Errors
/// When the cache is known to hold dirty data.
fn doubtful(device: &DeviceFile, why: &str) -> Result<Vec<String>, ServeError> {
    let stored = match superblock::read(device) {
        Ok(stored) => stored.superblock,
        Err(error @ (SuperblockReadError::Read { .. } | SuperblockReadError::TableUnreadable { .. })) => {
            return Err(error.into());
        }
        Err(
            SuperblockReadError::Resized { .. }
            | SuperblockReadError::Unusable { .. }
            | SuperblockReadError::TableDamaged { .. },
        ) => {
            return Ok(offline::contents(device));
        }
    };
    let (dirty, places) = changes::dirty([device], &stored);
    if dirty > 0 {
        let (path, why) = (device.path().to_owned(), why.to_owned());
        return Err(DisposableError::Dirty { path, why, dirty }.into());
    }
    let mut doubtful = Vec::new();
    if stored.pairing.mirror != Mirror::None {
        doubtful.push("half of a mirrored cache, whose other half may be newer".to_owned());
    }
    if places > 0 {
        let places = counted(places as u64, "place");
        doubtful.push(format!("a cache that is damaged in {places}, so that it may have dirty data"));
    }
    Ok(doubtful)
}
