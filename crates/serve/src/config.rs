// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration of a daemon: from flags, from a TOML file, or from both.
//!
//! Values are read here and checked against each other; nothing is opened. An unknown key is an
//! error and not a warning: a misspelt `dirty_limit` that silently keeps its default loses data on
//! the day it matters. [`REFERENCE`] documents every key and is parsed by a test, so that it can't
//! drift from the code.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use flashfront_engine::format::OriginRecord;
use flashfront_engine::{Destage, Durability, Mode, OriginId};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

mod changed;
mod check;
mod disposable;
mod error;
mod listener;
pub(crate) mod mode_option;
mod moved;
mod names;
mod read;
mod shares;
mod timeouts;
mod units;

#[cfg(test)]
mod tests;

pub(crate) use check::{is_for_disposable, name_is_usable};
pub use disposable::Disposable;
use disposable::disposable_option;
pub use error::{ConfigError, FileError};
pub use flashfront_units::Size;
pub use listener::Listener;
pub use shares::{OwnAge, OwnPart, OwnSize, OwnWeight, SharesAsked, told as shares_told};
pub use timeouts::{CACHE_TIMEOUT, ORIGIN_TIMEOUT};
pub use units::{Age, DirtyLimit, FlashBudget, UnitError};

/// A complete, commented config file: every key with unit, default and reason.
pub const REFERENCE: &str = include_str!("config/reference.toml");

/// The least RAM for buffers.
/// The clients of one thread need 52 MiB, 40 of them for the longest NBD read. An engine of one
/// lane needs 68 MiB. The daemon asks for more if there are more lanes, or more threads with
/// clients.
pub const BUFFER_BYTES_MIN: u64 = 124 << 20;

/// RAM for buffers if nothing is said, and lanes and threads don't need more.
pub const BUFFER_BYTES_DEFAULT: u64 = 160 << 20;

/// The least size of a file with pages of maps.
pub const MAP_FILE_BYTES_MIN: u64 = 16 << 20;

/// Threads that can be asked for.
pub const THREADS_MAX: usize = 64;

/// The configuration of a daemon.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The cache device, made by `flashfront format`. Empty if a file leaves it to the flag.
    #[serde(default)]
    pub cache: PathBuf,
    /// The second cache device, with copies of dirty data. The superblocks say which device is
    /// which.
    #[serde(default)]
    pub mirror: Option<PathBuf>,
    /// Make a cache of whatever `cache` holds, where that can't be used; only for modes in which
    /// nothing is ever dirty.
    #[serde(default, deserialize_with = "disposable_option")]
    pub disposable_cache: Option<Disposable>,
    /// Serve `cache` alone although it is half of a mirrored cache: the operator's word that the
    /// other half will not come back. A flag only.
    #[serde(skip)]
    pub without_mirror: bool,
    /// How long each device may take for an I/O, if it has no time of its own; 0 = for ever. By
    /// default [`CACHE_TIMEOUT`] and [`ORIGIN_TIMEOUT`].
    #[serde(default)]
    pub device_timeout: Option<Age>,
    /// How long `cache` may take for an I/O, instead of `device_timeout`.
    #[serde(default)]
    pub cache_device_timeout: Option<Age>,
    /// How long the mirror may take for an I/O; a mirror that is added later has it, too.
    #[serde(default)]
    pub mirror_device_timeout: Option<Age>,
    /// The socket at which `status`, `set` and `drain` reach the daemon.
    #[serde(default = "control_path", deserialize_with = "said_control")]
    pub control: PathBuf,
    /// The folder that remembers failures of cache devices that can't be marked.
    #[serde(default = "crate::failure::state_path")]
    pub state: Option<PathBuf>,
    /// The file that keeps pages of maps of volumes in object stores; by default one in the state
    /// folder.
    #[serde(default)]
    pub map_file: Option<PathBuf>,
    /// Bytes that this file may have; 0 = there is none.
    #[serde(default = "no_bytes")]
    pub map_file_bytes: Size,
    /// The address of the dashboard and of `/metrics` for Prometheus; none by default.
    #[serde(default, deserialize_with = "http_option")]
    pub http: Option<SocketAddr>,
    /// Listen on other than loopback addresses without encryption.
    #[serde(default)]
    pub insecure: bool,
    /// Serve NBD inside TLS.
    #[serde(default)]
    pub tls: Option<TlsFiles>,
    /// RAM for payload; the index comes on top. By default [`BUFFER_BYTES_DEFAULT`], or as much as
    /// lanes and threads need.
    #[serde(default)]
    pub buffer_bytes: Option<Size>,
    /// RAM for copies of blocks that were read from the cache device.
    #[serde(default = "no_bytes")]
    pub ram_front_bytes: Size,
    /// Take all RAM for payload, the RAM front's too, in pages of 2 MiB; large buffers are in them
    /// anyway.
    #[serde(default)]
    pub huge_pages: bool,
    /// Threads: one for the engine, and the rest for the clients' bytes; 1 = one does it all.
    #[serde(default = "threads")]
    pub threads: usize,
    /// Threads that do the work of the cache's lanes, the engine's among them; 1 = it alone.
    #[serde(default = "threads")]
    pub lane_threads: usize,
    /// The least that the log tells. The program reads it, and flags override it.
    #[serde(default)]
    pub log_level: LogLevel,
    /// Drop what the cache holds of an origin that was changed behind its back. It is a flag only:
    /// in a file it would decide about changes that are still to come.
    #[serde(skip)]
    pub accept_changed_origin: bool,
    /// Take volumes in object stores over from the hosts that have them open. A flag only, for the
    /// same reason.
    #[serde(skip)]
    pub take_over: bool,
    /// Serve the origins without a cache device; `cache` is not used then. A flag only, for the
    /// same reason.
    #[serde(skip)]
    pub without_cache: bool,
    /// The volumes as a cache knew them that was detached while they were served.
    #[serde(skip)]
    pub(crate) detached: Vec<OriginRecord>,
    /// The cache device that was named, if the cache has moved since.
    #[serde(skip)]
    pub(crate) moved_from: Option<PathBuf>,
    /// The operator's word that the cache may have held dirty data, and that the origins are served
    /// without it.
    #[serde(skip)]
    pub accept_missing_dirty_data: bool,
    /// The volumes, in the order they were given to `format`.
    #[serde(default, rename = "volume")]
    pub volumes: Vec<Volume>,
    /// The addresses at which clients connect.
    #[serde(default, rename = "listen")]
    pub listeners: Vec<Listener>,
    /// How the cache behaves.
    #[serde(default)]
    pub policy: Policy,
}

/// The levels of the log, the gravest first; each level also tells what the levels before it tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Things that went wrong.
    Error,
    /// Things that may go wrong.
    Warn,
    /// News.
    #[default]
    Info,
    /// The daemon's work, and clients that come and go.
    Debug,
    /// The steps of that work.
    Trace,
}

impl LogLevel {
    /// The level as a configuration names it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// An origin and the name clients know it by.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Volume {
    /// The id of the origin in the cache. A start finds it.
    #[serde(skip)]
    pub id: OriginId,
    /// The NBD export name.
    #[serde(default = "volume_name")]
    pub name: String,
    /// The origin.
    pub origin: PathBuf,
    /// The mode to set at start; the one in the superblock stays if there is none.
    #[serde(default, with = "mode_option")]
    pub mode: Option<Mode>,
    /// Whether clients may not write, to set at start; as it was if there is none.
    #[serde(default)]
    pub read_only: Option<bool>,
    /// How long the origin may take for an I/O; 0 = for ever. By default
    /// [`Config::device_timeout`].
    #[serde(default)]
    pub device_timeout: Option<Age>,
    /// The part of the cache that others leave to it, to set at start; as it was if there is none.
    #[serde(default)]
    pub share_min: Option<OwnPart>,
    /// The largest part of the cache that it may have, to set at start; as it was if there is none.
    #[serde(default)]
    pub share_max: Option<OwnPart>,
    /// What it gets of the cache beside other volumes with a weight, to set at start; as it was if
    /// there is none.
    #[serde(default)]
    pub weight: Option<OwnWeight>,
    /// The most of its data that may be dirty, to set at start; as it was if there is none.
    #[serde(default)]
    pub dirty_limit: Option<OwnPart>,
    /// How long its data may stay dirty, to set at start; as it was if there is none.
    #[serde(default)]
    pub dirty_age: Option<OwnAge>,
    /// Streams longer than this bypass the cache, to set at start; as it was if there is none.
    #[serde(default)]
    pub sequential_bypass: Option<OwnSize>,
    /// How much is read at once from a slow origin, to set at start; as it was if there is none.
    #[serde(default)]
    pub read_around: Option<OwnSize>,
}

impl Volume {
    /// A volume of that name, with all else as it is in the cache, or by default.
    #[must_use]
    pub fn new(name: &str, origin: PathBuf) -> Self {
        Self {
            id: OriginId(0),
            name: name.to_owned(),
            origin,
            mode: None,
            read_only: None,
            device_timeout: None,
            share_min: None,
            share_max: None,
            weight: None,
            dirty_limit: None,
            dirty_age: None,
            sequential_bypass: None,
            read_around: None,
        }
    }

    /// What is said of its shares and limits.
    #[must_use]
    pub const fn shares(&self) -> SharesAsked {
        let Self { share_min, share_max, weight, dirty_limit, dirty_age, sequential_bypass, read_around, .. } = *self;
        SharesAsked { share_min, share_max, weight, dirty_limit, dirty_age, sequential_bypass, read_around }
    }

    /// Whether its origin is in an object store.
    #[must_use]
    pub fn is_in_store(&self) -> bool {
        flashfront_device::real::is_in_store(&self.origin)
    }
}

/// The files for TLS, in nbdkit's words.
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
    /// The bytes that may be written to the cache device in a day.
    pub flash_writes_per_day: FlashBudget,
    /// The share of the cache, or the size, that may be dirty.
    pub dirty_limit: DirtyLimit,
    /// Streams longer than this bypass the cache; 0 = never.
    pub sequential_bypass: Size,
    /// Bytes that are read at once from a slow origin if a part of them is missed; 0: only the
    /// requested bytes.
    pub read_around: Size,
    /// When a write in writeback mode is acknowledged.
    #[serde(with = "names::durability")]
    pub durability: Durability,
    /// Data should not stay dirty longer than this; from half of it on destage hurries.
    pub max_dirty_age: Age,
    /// In which order dirty data goes to its origin; `None`: as the origins want it.
    #[serde(with = "names::destage")]
    pub destage: Option<Destage>,
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
            destage: None,
        }
    }
}

impl Config {
    /// This configuration with other volumes: those that the cache has.
    pub(crate) fn with_volumes(&self, volumes: &[Volume]) -> Self {
        Self { volumes: volumes.to_vec(), ..self.clone() }
    }

    /// In which order dirty data goes to its origin. A volume in an object store is there to
    /// survive this machine, and only the order of FLUSHes leaves something that can be used.
    #[must_use]
    pub fn destage(&self) -> Destage {
        let in_store = self.volumes.iter().any(Volume::is_in_store);
        self.policy.destage.unwrap_or(if in_store { Destage::Ordered } else { Destage::Free })
    }

    /// The volume of an origin.
    pub(crate) fn volume(&self, id: OriginId) -> Option<&Volume> {
        self.volumes.iter().find(|volume| volume.id == id)
    }

    /// Flags alone: one cache device, everything else by default.
    #[must_use]
    pub fn new(cache: PathBuf) -> Self {
        Self {
            cache,
            mirror: None,
            disposable_cache: None,
            without_mirror: false,
            device_timeout: None,
            cache_device_timeout: None,
            mirror_device_timeout: None,
            control: control_path(),
            state: crate::failure::state_path(),
            map_file: None,
            map_file_bytes: no_bytes(),
            http: None,
            insecure: false,
            tls: None,
            buffer_bytes: None,
            ram_front_bytes: no_bytes(),
            huge_pages: false,
            threads: threads(),
            lane_threads: threads(),
            log_level: LogLevel::default(),
            accept_changed_origin: false,
            take_over: false,
            without_cache: false,
            detached: Vec::new(),
            moved_from: None,
            accept_missing_dirty_data: false,
            volumes: Vec::new(),
            listeners: Vec::new(),
            policy: Policy::default(),
        }
    }

    /// Threads beside the engine's: none where there are no clients.
    #[must_use]
    pub fn carriers(&self) -> usize {
        if self.listeners.is_empty() { 0 } else { self.threads.saturating_sub(1) }
    }

    /// Threads beside the engine's that do lanes' work. Without a cache there are no lanes to speak
    /// of.
    #[must_use]
    pub fn lane_helpers(&self) -> usize {
        if self.without_cache { 0 } else { self.lane_threads.saturating_sub(1) }
    }

    /// Reads a file. [`Config::check`] is for later, when flags have been added.
    ///
    /// # Errors
    /// The file can't be read, is no text, or says something unknown.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let failed = |source| ConfigError::Parse { path: path.to_owned(), source: Box::new(source) };
        toml::from_str(&read::text(path)?).map_err(failed)
    }
}

/// The control socket of a daemon that a system service is, or root starts where no session is.
pub(crate) const CONTROL_OF_A_SERVICE: &str = "/run/flashfront.sock";

/// The control socket: `$XDG_RUNTIME_DIR/flashfront.sock`, or `/run/flashfront.sock` where there is
/// no such folder (root, system services).
#[must_use]
pub fn control_path() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) if !dir.is_empty() => Path::new(&dir).join("flashfront.sock"),
        _ => PathBuf::from(CONTROL_OF_A_SERVICE),
    }
}

/// A control socket as it is said: a path, or `unix:` and a path, as for clients.
#[must_use]
pub fn control_said(said: &Path) -> PathBuf {
    match said.as_os_str().as_encoded_bytes().strip_prefix(b"unix:") {
        Some(path) => PathBuf::from(OsStr::from_bytes(path)),
        None => said.to_owned(),
    }
}

fn said_control<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    PathBuf::deserialize(from).map(|said| control_said(&said))
}

/// The socket at which a daemon is asked: [`control_path`], or if no daemon answers there, the
/// socket of the only service.
///
/// A user who has logged in has the variable, a service has not.
#[must_use]
pub fn control_path_to_ask() -> PathBuf {
    let own = control_path();
    // A killed daemon leaves its socket behind.
    let is_silent = UnixStream::connect(&own).is_err();
    only(&control_paths_of_services(Path::new("/run"))).filter(|_| is_silent).unwrap_or(own)
}

fn only(sockets: &[PathBuf]) -> Option<PathBuf> {
    if let [socket] = sockets { Some(socket.clone()) } else { None }
}

/// Lists control sockets of services in `run`: the usual one, and one for each NAME of
/// `flashfront@NAME`.
///
/// A socket of a daemon that was killed does not count. A socket that this user may not open
/// counts.
pub(crate) fn control_paths_of_services(run: &Path) -> Vec<PathBuf> {
    let usual = Path::new(CONTROL_OF_A_SERVICE).strip_prefix("/run").unwrap_or(Path::new(CONTROL_OF_A_SERVICE));
    let mut sockets = vec![run.join(usual)];
    let names = std::fs::read_dir(run.join("flashfront")).into_iter().flatten().flatten();
    sockets.extend(names.map(|name| name.path().join("control.sock")));
    sockets.retain(|socket| match UnixStream::connect(socket) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
    });
    sockets.sort();
    sockets
}

fn volume_name() -> String {
    "data".to_owned()
}

fn threads() -> usize {
    1
}

fn no_bytes() -> Size {
    Size(0)
}

/// Reads the value of `http` and `--http`.
///
/// # Errors
/// A sentence that says what is wrong with it.
pub fn http_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("`{text}` is not an IP address with a port, such as 127.0.0.1:9809 or [::1]:9809"))
}

fn http_option<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    text.map(|text| http_address(&text).map_err(D::Error::custom)).transpose()
}
