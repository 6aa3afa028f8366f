// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the values of a config against each other, before anything is opened.

use std::net::ToSocketAddrs;

use flashfront_engine::{BLOCK_BYTES, Mode, READ_AROUND_BLOCKS_MAX};

use super::{BUFFER_BYTES_MIN, Config, ConfigError, Listener, MAP_FILE_BYTES_MIN, THREADS_MAX};
use crate::address::Listen;

impl Config {
    /// Checks the values against each other.
    ///
    /// # Errors
    /// The first thing that can't work.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_devices()?;
        if self.without_cache && !self.accept_missing_dirty_data {
            return Err(ConfigError::MissingDirtyData);
        }
        if self.listeners.is_empty() {
            return Err(ConfigError::NoListen);
        }
        self.check_disposable()?;
        self.check_sockets()?;
        self.check_threads()?;
        self.check_places()
    }

    /// Checks where clients find the volumes, once it is known which volumes the cache has.
    ///
    /// # Errors
    /// The first thing that can't work.
    pub(crate) fn check_volumes(&self) -> Result<(), ConfigError> {
        self.check_shared()?;
        let fuse = self.listeners.iter().any(|listener| matches!(listener, Listener::Fuse(_)));
        match self.volumes.iter().find(|volume| fuse && [".", ".."].contains(&&*volume.name)) {
            Some(volume) => Err(ConfigError::NoFileName(volume.name.clone())),
            None => Ok(()),
        }
    }

    /// Checks as [`Config::check`] does, for a program without clients.
    ///
    /// # Errors
    /// The first thing that can't work.
    pub(crate) fn check_devices(&self) -> Result<(), ConfigError> {
        let around = self.policy.read_around;
        if !around.0.is_multiple_of(BLOCK_BYTES) || around.0 > READ_AROUND_BLOCKS_MAX * BLOCK_BYTES {
            return Err(ConfigError::ReadAround(around));
        }
        if self.cache.as_os_str().is_empty() && !self.without_cache {
            return Err(ConfigError::NoCache);
        }
        if self.volumes.is_empty() && self.without_cache {
            return Err(ConfigError::NoVolume);
        }
        for (nth, volume) in self.volumes.iter().enumerate() {
            if !name_is_usable(&volume.name) {
                return Err(ConfigError::BadName(volume.name.clone()));
            }
            if volume.origin == self.cache && !self.without_cache {
                return Err(ConfigError::CacheIsOrigin(volume.origin.clone()));
            }
            for earlier in &self.volumes[..nth] {
                if earlier.name == volume.name {
                    return Err(ConfigError::DuplicateName(volume.name.clone()));
                }
                if earlier.origin == volume.origin {
                    return Err(ConfigError::DuplicateOrigin(volume.origin.clone()));
                }
            }
        }
        if let Some(given) = self.buffer_bytes.filter(|given| given.0 < BUFFER_BYTES_MIN) {
            return Err(ConfigError::BufferSmall { given });
        }
        let given = self.map_file_bytes;
        if given.0 > 0 && given.0 < MAP_FILE_BYTES_MIN {
            return Err(ConfigError::MapFileSmall { given });
        }
        self.check_timeouts()
    }

    /// Refuses what could leave data only in a cache that may vanish.
    fn check_disposable(&self) -> Result<(), ConfigError> {
        let Some(disposable) = &self.disposable_cache else { return Ok(()) };
        if let Some(named) = disposable.named().filter(|named| *named != self.cache) {
            return Err(ConfigError::DisposableOther { named: named.to_owned(), cache: self.cache.clone() });
        }
        let modes = self.volumes.iter().filter_map(|volume| volume.mode);
        if let Some(mode) = modes.into_iter().find(|mode| !is_for_disposable(*mode)) {
            return Err(ConfigError::DisposableMode(mode));
        }
        if self.mirror.is_some() {
            return Err(ConfigError::DisposableMirror);
        }
        match self.volumes.len() {
            0 => Err(ConfigError::NoVolume),
            1 => Ok(()),
            given => Err(ConfigError::DisposableVolumes(given)),
        }
    }

    /// Finds sockets that are named twice: the second one would be refused as another daemon's.
    fn check_sockets(&self) -> Result<(), ConfigError> {
        let mut paths = vec![&self.control];
        for listener in &self.listeners {
            let (Listener::Nbd(Listen::Unix(path)) | Listener::VhostUserBlk { path, .. }) = listener else { continue };
            if paths.contains(&path) {
                return Err(ConfigError::DuplicateSocket(path.clone()));
            }
            paths.push(path);
        }
        Ok(())
    }

    /// Each thread has something to do.
    fn check_threads(&self) -> Result<(), ConfigError> {
        let given = self.threads;
        if !(1..=THREADS_MAX).contains(&given) {
            return Err(ConfigError::Threads(given));
        }
        if !(1..=THREADS_MAX).contains(&self.lane_threads) {
            return Err(ConfigError::LaneThreads(self.lane_threads));
        }
        let most = 1 + self.listeners.iter().filter(|listener| listener.is_portable()).count();
        if given > most && self.listeners.iter().all(|listener| listener.nbd().is_none()) {
            return Err(ConfigError::IdleThreads { given, most });
        }
        Ok(())
    }

    /// A socket of vhost-user-blk has one volume.
    fn check_shared(&self) -> Result<(), ConfigError> {
        for listener in &self.listeners {
            match listener {
                Listener::VhostUserBlk { path, volume: None }
                    if self.volumes.len() > 1 && !Listener::is_of_each(path) =>
                {
                    return Err(ConfigError::WhichVolume(path.clone()));
                }
                Listener::VhostUserBlk { path, volume: Some(name) }
                    if self.volumes.iter().all(|volume| volume.name != *name) =>
                {
                    return Err(ConfigError::UnknownVolume { path: path.clone(), name: name.clone() });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Other machines see nothing unencrypted unless the operator says so.
    fn check_places(&self) -> Result<(), ConfigError> {
        if self.insecure {
            return Ok(());
        }
        if let Some(http) = self.http
            && !http.ip().is_loopback()
        {
            return Err(ConfigError::HttpNotLoopback(http));
        }
        if self.tls.is_some() {
            return Ok(());
        }
        for nbd in self.listeners.iter().filter_map(Listener::nbd) {
            let Listen::Tcp { host, port } = nbd else {
                continue;
            };
            let mut addresses = (host.as_str(), *port)
                .to_socket_addrs()
                .map_err(|source| ConfigError::Resolve { at: nbd.clone(), source })?;
            if addresses.any(|address| !address.ip().is_loopback()) {
                return Err(ConfigError::NotLoopback(nbd.clone()));
            }
        }
        Ok(())
    }
}

/// Whether nothing ever is dirty in this mode, although the cache is used.
pub(crate) fn is_for_disposable(mode: Mode) -> bool {
    matches!(mode, Mode::Writethrough | Mode::Writearound)
}

/// Whether clients can ask for a volume of this name.
pub(crate) fn name_is_usable(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=255).contains(&name.len()) && name.chars().all(plain)
}
