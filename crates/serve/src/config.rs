// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a daemon is told at its start: from flags, from a TOML file, or from both.
//!
//! Here values are read and checked against each other; nothing is opened. An unknown key is an
//! error and not a warning: a misspelt `dirty_limit` that silently keeps its default loses data
//! on the day it matters. [`REFERENCE`] documents every key and is parsed by a test, so that it
//! can't drift from the code.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use flashfront_engine::{BLOCK_BYTES, Durability, Mode, READ_AROUND_BLOCKS_MAX};
use serde::Deserialize;

use crate::frontend::nbd::Listen;

mod units;

#[cfg(test)]
mod tests;

pub use units::{Age, DirtyLimit, FlashBudget, Size, UnitError};

/// A complete, commented config file: every key with unit, default and reason.
pub const REFERENCE: &str = include_str!("config/reference.toml");

/// Least RAM for buffers: the longest NBD read (33 MiB), destage (28 MiB), and one lane (15 MiB).
/// The daemon asks for as much for each lane and for destage once more.
pub const BUFFER_BYTES_MIN: u64 = 76 << 20;

/// All a daemon needs to know.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The cache device, made by `flashfront format`.
    pub cache: PathBuf,
    /// The second cache device, with copies of what is dirty. Which is which is in their superblocks.
    #[serde(default)]
    pub mirror: Option<PathBuf>,
    /// Serve `cache` alone although it is half of a mirrored cache: the operator's word that the other half
    /// will not come back. A flag only.
    #[serde(skip)]
    pub without_mirror: bool,
    /// Where `status`, `set` and `drain` reach the daemon.
    #[serde(default = "control_path")]
    pub control: PathBuf,
    /// The folder that remembers failures of cache devices that can't be marked.
    #[serde(default = "crate::failure::state_path")]
    pub state: Option<PathBuf>,
    /// Where Prometheus finds `/metrics`; nowhere by default.
    #[serde(default)]
    pub http: Option<SocketAddr>,
    /// Listen on other than loopback addresses without encryption.
    #[serde(default)]
    pub insecure: bool,
    /// Serve NBD inside TLS.
    #[serde(default)]
    pub tls: Option<TlsFiles>,
    /// RAM for payload; the index comes on top.
    #[serde(default = "buffer_bytes")]
    pub buffer_bytes: Size,
    /// RAM for copies of blocks that were read from the cache device.
    #[serde(default = "ram_front_bytes")]
    pub ram_front_bytes: Size,
    /// Drop what the cache holds of an origin that was changed behind its back. A flag only:
    /// in a file it would decide about changes nobody has seen yet.
    #[serde(skip)]
    pub accept_changed_origin: bool,
    /// Serve the origins without a cache device; `cache` is not used then. A flag only, for the same reason.
    #[serde(skip)]
    pub without_cache: bool,
    /// The operator's word that the cache may have held dirty data, and that the origins are served without it.
    #[serde(skip)]
    pub accept_missing_dirty_data: bool,
    /// The volumes, in the order they were given to `format`.
    #[serde(default, rename = "volume")]
    pub volumes: Vec<Volume>,
    /// Where clients connect.
    #[serde(default, rename = "listen")]
    pub listeners: Vec<Listener>,
    /// How the cache behaves.
    #[serde(default)]
    pub policy: Policy,
}

/// One origin and the name clients know it by.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Volume {
    /// The NBD export name.
    pub name: String,
    /// The origin.
    pub origin: PathBuf,
    /// The mode to set at start; the one in the superblock stays if there is none.
    #[serde(default, with = "mode_option")]
    pub mode: Option<Mode>,
}

/// A place where clients connect, and what is spoken there.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "ListenTable")]
pub enum Listener {
    /// NBD; clients name the volume.
    Nbd(Listen),
    /// vhost-user-blk, by a unix socket.
    VhostUserBlk {
        /// The socket.
        path: PathBuf,
        /// The volume that it serves; the only one if there is none.
        volume: Option<String>,
    },
    /// The volumes as files in this folder, by FUSE.
    Fuse(PathBuf),
    /// The first volume as /dev/ublkbN, the next one as that of N + 1, and so on.
    Ublk(u32),
}

impl Listener {
    /// The socket of a place `unix:PATH` that speaks vhost-user-blk.
    ///
    /// # Errors
    /// When it is no such place: memory can't be shared over TCP.
    pub fn vhost_user_blk(place: &str, volume: Option<String>) -> Result<Self, String> {
        match Listen::parse(place) {
            Ok(Listen::Unix(path)) => Ok(Self::VhostUserBlk { path, volume }),
            _ => Err(format!(
                "vhost-user-blk address {place:?}: expected unix:PATH; a client shares its memory, so it is on this machine"
            )),
        }
    }

    /// Whether it makes block devices of the machine that the daemon runs on.
    #[must_use]
    pub fn is_of_this_machine(&self) -> bool {
        matches!(self, Self::Fuse(_) | Self::Ublk(_))
    }

    /// The address, if it is NBD's.
    #[must_use]
    pub fn nbd(&self) -> Option<&Listen> {
        match self {
            Self::Nbd(listen) => Some(listen),
            Self::VhostUserBlk { .. } | Self::Fuse(_) | Self::Ublk(_) => None,
        }
    }
}

/// A `[[listen]]` table as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListenTable {
    nbd: Option<String>,
    vhost_user_blk: Option<String>,
    volume: Option<String>,
    fuse: Option<PathBuf>,
    ublk: Option<u32>,
}

impl TryFrom<ListenTable> for Listener {
    type Error = String;

    fn try_from(table: ListenTable) -> Result<Self, String> {
        match table {
            ListenTable { nbd: Some(place), vhost_user_blk: None, fuse: None, ublk: None, volume: None } => {
                Listen::parse(&place).map(Self::Nbd).map_err(|error| error.to_string())
            }
            ListenTable { nbd: None, vhost_user_blk: Some(place), fuse: None, ublk: None, volume } => {
                Self::vhost_user_blk(&place, volume)
            }
            ListenTable { nbd: None, vhost_user_blk: None, fuse: Some(folder), ublk: None, volume: None } => {
                Ok(Self::Fuse(folder))
            }
            ListenTable { nbd: None, vhost_user_blk: None, fuse: None, ublk: Some(number), volume: None } => {
                Ok(Self::Ublk(number))
            }
            ListenTable { vhost_user_blk: None, volume: Some(_), .. } => {
                Err("`volume` is for vhost_user_blk; NBD clients choose a volume by its name, fuse and ublk show all"
                    .to_owned())
            }
            _ => Err("a [[listen]] table has one of the keys nbd, vhost_user_blk, fuse and ublk; each needs a table of its own".to_owned()),
        }
    }
}

/// What TLS is set up from; nbdkit's words for it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The folder of `server-cert.pem`, `server-key.pem` and perhaps `ca-cert.pem`.
    pub certificates: PathBuf,
    /// Serve only clients with a certificate of the authority in `ca-cert.pem`.
    #[serde(default)]
    pub verify_peer: bool,
}

/// How the cache behaves. Nothing of it is in the on-media format.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// The name of the policy that decides what is cached, and what leaves.
    pub name: String,
    /// What may be written to the cache device in a day.
    pub flash_writes_per_day: FlashBudget,
    /// How much may be dirty.
    pub dirty_limit: DirtyLimit,
    /// Streams longer than this bypass the cache; 0 = never.
    pub sequential_bypass: Size,
    /// What is read at once from a slow origin, if a part of it is missed; 0 = only what is asked for.
    pub read_around: Size,
    /// When a write in writeback mode is acknowledged.
    #[serde(with = "durability")]
    pub durability: Durability,
    /// Data should not stay dirty longer than this; from half of it on destage hurries.
    pub max_dirty_age: Age,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            name: flashfront_engine::policy::ALL[0].name.to_owned(),
            flash_writes_per_day: FlashBudget::None,
            dirty_limit: DirtyLimit::Percent(50),
            sequential_bypass: Size(4 << 20),
            read_around: Size(64 << 10),
            durability: Durability::Flush,
            max_dirty_age: Age(std::time::Duration::from_secs(600)),
        }
    }
}

/// Why a config can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file can't be read.
    #[error("{path}: {source}", path = path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not what it should be; the message shows line and column.
    #[error("{path}: {source}\nEvery key is explained by: flashfront serve --print-config", path = path.display())]
    Parse {
        /// Which file.
        path: PathBuf,
        /// Where and why.
        source: Box<toml::de::Error>,
    },
    /// No volume.
    #[error("no volume to serve; give --origin PATH, or a [[volume]] table in the config file")]
    NoVolume,
    /// Nowhere to listen.
    #[error(
        "nowhere to listen; give --nbd unix:PATH, --vhost-user-blk unix:PATH, --fuse DIR or --ublk N, or a [[listen]] table in the config file"
    )]
    NoListen,
    /// Two volumes of one name.
    #[error("two volumes are named `{0}`; names are what clients choose by, give each its own")]
    DuplicateName(String),
    /// Two volumes of one origin.
    #[error("{origin} is the origin of two volumes; each volume needs an origin of its own", origin = .0.display())]
    DuplicateOrigin(PathBuf),
    /// Several volumes, and one disk.
    #[error(
        "vhost_user_blk {path} is one disk, and there are several volumes; say which: volume = \"NAME\" in its [[listen]] table", path = .0.display()
    )]
    WhichVolume(PathBuf),
    /// A volume that isn't there.
    #[error("vhost_user_blk {path} is to serve the volume `{name}`, and no [[volume]] has that name", path = path.display())]
    UnknownVolume {
        /// Where.
        path: PathBuf,
        /// Which.
        name: String,
    },
    /// Nobody has said that dirty data may be missing.
    #[error(
        "--without-cache serves the origin as it is, and nobody can tell from that what is missing. If the cache held dirty data (mode writeback), the origin lacks the newest writes, in no order that a file system expects: files may be old, torn or gone, and what is written now can't be put together with the dirty data later. If the cache can come back, bring it back. If you know that nothing was dirty, or would rather lose it, say --accept-missing-dirty-data"
    )]
    MissingDirtyData,
    /// A name no client could ask for.
    #[error("the volume name `{0}` can't be used; take 1 to 255 letters, digits, `.`, `_` or `-`")]
    BadName(String),
    /// Cache and origin are one.
    #[error("{path} is named as cache device and as origin; they must be two devices", path = .0.display())]
    CacheIsOrigin(PathBuf),
    /// A name that no file can have.
    #[error("the volume name `{0}` can't be that of a file, which --fuse DIR would make of it; choose another")]
    NoFileName(String),
    /// More than can be read around a miss, or a part of a block.
    #[error("read_around is {0}; it must be a multiple of 4 KiB, and at most 256 KiB (0B = only what is asked for)")]
    ReadAround(Size),
    /// Unencrypted traffic to other machines.
    #[error(
        "{0} is reachable from other machines and the traffic is not encrypted; set up TLS with --tls-certificates DIR, or listen on 127.0.0.1 or a unix socket, or say --insecure if the network is trusted"
    )]
    NotLoopback(Listen),
    /// The same of the metrics, which have no TLS.
    #[error(
        "http {0} is reachable from other machines and is never encrypted; listen on 127.0.0.1, or say --insecure if the network is trusted"
    )]
    HttpNotLoopback(SocketAddr),
    /// A host name nobody knows.
    #[error("{at}: {source}")]
    Resolve {
        /// Where.
        at: Listen,
        /// Why.
        source: std::io::Error,
    },
    /// Too little RAM.
    #[error("buffer_bytes is {given}; at least {least} is needed to keep devices busy", least = Size(BUFFER_BYTES_MIN))]
    BufferSmall {
        /// What was asked for.
        given: Size,
    },
}

impl Config {
    /// Flags alone: one cache device, everything else by default.
    #[must_use]
    pub fn new(cache: PathBuf) -> Self {
        Self {
            cache,
            mirror: None,
            without_mirror: false,
            control: control_path(),
            state: crate::failure::state_path(),
            http: None,
            insecure: false,
            tls: None,
            buffer_bytes: buffer_bytes(),
            ram_front_bytes: ram_front_bytes(),
            accept_changed_origin: false,
            without_cache: false,
            accept_missing_dirty_data: false,
            volumes: Vec::new(),
            listeners: Vec::new(),
            policy: Policy::default(),
        }
    }

    /// Reads a file. [`Config::check`] is for later, when flags have been added.
    ///
    /// # Errors
    /// The file can't be read, or says something unknown.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        toml::from_str(&text).map_err(|source| ConfigError::Parse { path: path.to_owned(), source: Box::new(source) })
    }

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
        self.check_shared()?;
        let fuse = self.listeners.iter().any(|listener| matches!(listener, Listener::Fuse(_)));
        if let Some(volume) = self.volumes.iter().find(|volume| fuse && [".", ".."].contains(&&*volume.name)) {
            return Err(ConfigError::NoFileName(volume.name.clone()));
        }
        self.check_places()
    }

    /// What [`Config::check`] does, for somebody who serves nobody.
    ///
    /// # Errors
    /// The first thing that can't work.
    pub(crate) fn check_devices(&self) -> Result<(), ConfigError> {
        let around = self.policy.read_around;
        if !around.0.is_multiple_of(BLOCK_BYTES) || around.0 > READ_AROUND_BLOCKS_MAX * BLOCK_BYTES {
            return Err(ConfigError::ReadAround(around));
        }
        if self.volumes.is_empty() {
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
        if self.buffer_bytes.0 < BUFFER_BYTES_MIN {
            return Err(ConfigError::BufferSmall { given: self.buffer_bytes });
        }
        Ok(())
    }

    /// A socket of vhost-user-blk has one volume.
    fn check_shared(&self) -> Result<(), ConfigError> {
        for listener in &self.listeners {
            match listener {
                Listener::VhostUserBlk { path, volume: None } if self.volumes.len() > 1 => {
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

/// Whether clients can ask for a volume of this name.
pub(crate) fn name_is_usable(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=255).contains(&name.len()) && name.chars().all(plain)
}

/// `$XDG_RUNTIME_DIR/flashfront.sock`, or `/run/flashfront.sock` where there is none (root, system services).
#[must_use]
pub fn control_path() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) if !dir.is_empty() => Path::new(&dir).join("flashfront.sock"),
        _ => PathBuf::from("/run/flashfront.sock"),
    }
}

fn buffer_bytes() -> Size {
    Size(128 << 20)
}

fn ram_front_bytes() -> Size {
    Size(0)
}

/// The names of modes, for serde.
pub(crate) mod mode_option {
    use flashfront_engine::Mode;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(mode: &Option<Mode>, to: S) -> Result<S::Ok, S::Error> {
        mode.map(Mode::name).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Mode>, D::Error> {
        let Some(name) = Option::<String>::deserialize(from)? else {
            return Ok(None);
        };
        let unknown = || {
            let known = Mode::ALL.map(Mode::name).join(", ");
            D::Error::custom(format!("`{name}` is not a mode; there are {known}"))
        };
        Mode::from_name(&name).map(Some).ok_or_else(unknown)
    }
}

/// The names of durabilities, for serde.
mod durability {
    use flashfront_engine::Durability;
    use serde::{Deserialize, Deserializer, de::Error};

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Durability, D::Error> {
        let name = String::deserialize(from)?;
        let known = Durability::ALL.map(Durability::name).join(", ");
        Durability::from_name(&name)
            .ok_or_else(|| D::Error::custom(format!("`{name}` is not a durability; there are {known}")))
    }
}
