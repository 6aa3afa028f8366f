// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache devices of a start: one, or the two members of a mirrored cache.
//!
//! Which superblock counts is the engine's to say (`format::choose`). What is served here is never
//! older than what any member held, but by the operator's word, `--without-mirror` (tests: end to
//! end `mirror`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flashfront_device::real::{Access, DeviceFile, OpenError, asking};
use flashfront_engine::format::{Mirror, PairingError, Superblock, choose};

use super::answered::answered;
use super::error::{DevicesError, ServeError, failed};
use crate::config::Config;
use crate::mixup::Mixup;
use crate::{storage, superblock};

/// Cache devices by their number of member; the lead comes first.
pub(super) type Members = Vec<(u8, Arc<DeviceFile>)>;

/// Opens what the config names and chooses. Nothing is written.
pub(super) fn open(config: &Config) -> Result<(Members, Superblock), ServeError> {
    let Some(mirror) = config.mirror.as_ref().filter(|_| !config.without_mirror) else {
        return one(config);
    };
    // One of two that does not answer may not be needed, so each is waited for by itself.
    let compared = answered(config, {
        let mirror = mirror.clone();
        move |config| {
            let ask = || (storage::shared(&config.cache, &mirror), storage::same_disk(&config.cache, &mirror));
            asking(&mirror, ask)
        }
    });
    if let Ok((Some(shared), _)) = compared {
        return Err(mixed_up(Mixup::SameDevice { one: config.cache.clone(), other: mirror.clone(), shared }));
    }
    if let Ok((_, Some(notice))) = &compared {
        tracing::warn!("{notice}");
    }
    let member = |path: &Path| {
        let path = path.to_owned();
        answered(config, move |_| member(&path)).unwrap_or_else(|silent| Err(silent.into()))
    };
    let (first, second) = match (member(&config.cache), member(mirror)) {
        (Ok(first), Ok(second)) => (first, second),
        (Err(error), Ok(found)) | (Ok(found), Err(error)) if is_lost(&error) => return alone(found, error),
        (Err(error), _) | (_, Err(error)) => return Err(error),
    };
    let refused = |error| DevicesError::Pairing {
        path: config.cache.clone(),
        other: Some(mirror.clone()),
        advice: match error {
            PairingError::Strangers => {
                "Name the right one. To make one the mirror of the other: serve that one alone, and `flashfront mirror add` this"
            }
            PairingError::MemberMissing => {
                "The newer one of the two belongs with a third device: name that one, or serve the newer one with --without-mirror if the third will not come back"
            }
            PairingError::LeftOut => "Name the one that was served last",
        },
        error,
    };
    let chosen = choose(&first.1, Some(&second.1), false).map_err(refused)?;
    let number = |member: &(DeviceFile, Superblock)| member.1.pairing.member;
    let lead_first = if number(&first) == chosen.pairing.lead { [first, second] } else { [second, first] };
    let whole = chosen.pairing.mirror == Mirror::Whole;
    let mut members = Members::new();
    for it in lead_first {
        if whole || number(&it) == chosen.pairing.member {
            members.push((number(&it), Arc::new(it.0)));
        } else {
            tracing::warn!(
                "{path}: it was left out of its mirrored cache after a failure, so what it holds is old; it is not used. `flashfront mirror add {path} --force` makes it the mirror again",
                path = it.0.path().display()
            );
        }
    }
    Ok((members, chosen))
}

/// Opens a cache of one device: it has no mirror, or is served without its mirror.
fn one(config: &Config) -> Result<(Members, Superblock), ServeError> {
    let (file, stored) = member(&config.cache)?;
    let chosen = choose(&stored, None, config.without_mirror).map_err(|error| DevicesError::Pairing {
        path: config.cache.clone(),
        other: None,
        error,
        advice: match error {
            PairingError::LeftOut => "Serve the other one",
            _ => "Name it with --mirror. If it will not come back: --without-mirror serves this one alone, and what only the other one holds is lost",
        },
    })?;
    if stored.pairing.mirror == Mirror::Whole {
        tracing::warn!(
            "{}: the other half of the mirrored cache is left out, as ordered; once this one serves, that one counts as old. `flashfront mirror add` makes a new one",
            config.cache.display()
        );
    }
    Ok((Vec::from([(chosen.pairing.member, Arc::new(file))]), chosen))
}

/// Opens with one of two members: the other isn't needed if it was left out before.
fn alone(found: (DeviceFile, Superblock), error: ServeError) -> Result<(Members, Superblock), ServeError> {
    let (file, stored) = found;
    let other = file.path().to_owned();
    // That the origin could be served without its cache is no advice here.
    let error = if let ServeError::CacheMissing(inner) = error { inner } else { Box::new(error) };
    match choose(&stored, None, false) {
        Ok(chosen) if chosen.pairing.mirror == Mirror::Alone => {
            tracing::warn!(
                "{error}; it was left out of its mirrored cache before, so {} is complete, and served alone; `flashfront mirror add` makes a new mirror",
                other.display()
            );
            Ok((Vec::from([(chosen.pairing.member, Arc::new(file))]), chosen))
        }
        Ok(_) => Err(DevicesError::NotMirrored { path: other }.into()),
        Err(_) => Err(ServeError::HalfMissing { error, other }),
    }
}

/// Whether the device is not there, or not what it was; and not only in use.
fn is_lost(error: &ServeError) -> bool {
    use crate::superblock::SuperblockReadError::Resized;
    matches!(
        error,
        ServeError::CacheMissing(_)
            | ServeError::Device(OpenError::Size { .. } | OpenError::Kind { .. } | OpenError::ReadOnly { .. })
            | ServeError::Superblock(Resized { .. })
            | ServeError::Silent { .. }
    )
}

fn member(path: &Path) -> Result<(DeviceFile, Superblock), ServeError> {
    let file = DeviceFile::open(path, Access::Exclusive).map_err(ServeError::of_cache_device)?;
    let stored = superblock::read(&file).map_err(ServeError::of_superblock)?;
    if let Some((offset, error)) = &stored.damaged {
        tracing::warn!(
            "{}: the superblock at byte {offset} is unusable ({error}); using the other copy, and mending this one",
            path.display()
        );
    }
    Ok((file, stored.superblock))
}

fn mixed_up(mixup: Mixup) -> ServeError {
    DevicesError::Mixup(mixup).into()
}

/// Refuses an origin that is a cache: served, its log would be overwritten.
pub(super) fn refuse_cache(origin: &DeviceFile) -> Result<(), ServeError> {
    match superblock::is_cache(origin) {
        Ok(false) => Ok(()),
        Ok(true) => Err(mixed_up(Mixup::OriginIsCache(origin.path().to_owned()))),
        Err(source) => Err(failed(format!("{}: can't be read", origin.path().display()))(source)),
    }
}

/// Why there is no cache to serve; if an origin is one, that is why.
pub(super) fn or_swapped(config: &Config, error: ServeError) -> ServeError {
    let origins = config.volumes.iter().filter_map(|it| DeviceFile::open(&it.origin, Access::ReadOnly).ok());
    origins
        .filter_map(|it| refuse_cache(&it).err())
        .find(|it| matches!(it, ServeError::Devices(DevicesError::Mixup(Mixup::OriginIsCache(_)))))
        .unwrap_or(error)
}

/// Writes the next update to all members; says which one refused.
pub(super) fn write(
    config: &Config,
    members: &Members,
    superblock: &mut Superblock,
) -> Result<(), (PathBuf, io::Error)> {
    superblock.update += 1;
    put(config, members, superblock)
}

/// Writes this update to all members; says which one refused.
pub(super) fn put(config: &Config, members: &Members, superblock: &Superblock) -> Result<(), (PathBuf, io::Error)> {
    let mut refused = Ok(());
    let mut left: Vec<_> = members.iter().collect();
    // The tables of all members come first (`Superblock::read_table`).
    for step in [superblock::put_table, superblock::put_copies] {
        left.retain(|(number, file)| {
            let mut own = superblock.clone();
            own.pairing.member = *number;
            let device = Arc::clone(file);
            let written = answered(config, move |_| step(&device, &own)).unwrap_or_else(|silent| Err(silent.into()));
            // The others get it all the same.
            let written = written.map_err(|error| (file.path().to_owned(), error));
            let is_written = written.is_ok();
            if refused.is_ok() {
                refused = written;
            }
            is_written
        });
    }
    refused
}
