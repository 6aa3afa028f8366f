// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a config can't be used: what is wrong, where, and what would do.

use std::net::SocketAddr;
use std::path::PathBuf;

use flashfront_engine::Mode;

pub use super::read::FileError;
use super::{Age, BUFFER_BYTES_MIN, MAP_FILE_BYTES_MIN, Size, THREADS_MAX};
use crate::address::Listen;

/// Why a config can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file is no text.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is not what it should be; the message shows line and column.
    #[error("{path}: {source}\nEvery key is explained by: flashfront serve --print-config", path = path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The place and the reason.
        source: Box<toml::de::Error>,
    },
    /// The cache device is missing.
    #[error("no cache device; give --cache PATH, or the key `cache` in the config file")]
    NoCache,
    /// A device that is well may take longer.
    #[error(
        "a device timeout of {0} is too short: devices that are well sometimes take longer, and a cache device that did not answer in time is not served again; say 1s or more, or 0s to wait for ever"
    )]
    TimeoutShort(Age),
    /// There is no volume.
    #[error("no volume to serve; give --origin PATH, or a [[volume]] table in the config file")]
    NoVolume,
    /// Nowhere to listen.
    #[error(
        "nowhere to listen; give --nbd unix:PATH, --vhost-user-blk unix:PATH, --fuse DIR or --ublk N, or a [[listen]] table in the config file"
    )]
    NoListen,
    /// Two sockets of one path.
    #[error("{path} is given for two sockets; each of --nbd, --vhost-user-blk and --control needs a path of its own", path = .0.display())]
    DuplicateSocket(PathBuf),
    /// Two volumes of one name.
    #[error("two volumes are named `{0}`; names are what clients choose by, give each its own")]
    DuplicateName(String),
    /// Two volumes of one origin.
    #[error("{origin} is the origin of two volumes; each volume needs an origin of its own", origin = .0.display())]
    DuplicateOrigin(PathBuf),
    /// Several volumes, and one disk.
    #[error(
        "vhost_user_blk {path} is one disk, and there are several volumes; say which: volume = \"NAME\" in its [[listen]] table. Or put {{volume}} into the path: then each volume has a socket of its own", path = .0.display()
    )]
    WhichVolume(PathBuf),
    /// A volume that isn't there.
    #[error("vhost_user_blk {path} is to serve the volume `{name}`, and no [[volume]] has that name", path = path.display())]
    UnknownVolume {
        /// The socket.
        path: PathBuf,
        /// The name of the volume.
        name: String,
    },
    /// The operator has not said that dirty data may be missing.
    #[error(
        "--without-cache serves the origin as it is, and nobody can tell from that what is missing. If the cache held dirty data (mode writeback), the origin lacks the newest writes, in no order that a file system expects: files may be old, torn or gone, and what is written now can't be put together with the dirty data later. If the cache can come back, bring it back. If you know that nothing was dirty, or would rather lose it, say --accept-missing-dirty-data"
    )]
    MissingDirtyData,
    /// A disposable cache whose mode could leave dirty data in it.
    #[error(
        "mode {0} is not for a disposable cache: what only that cache holds is gone with it. Take writethrough or writearound, or leave --disposable-cache out"
    )]
    DisposableMode(Mode),
    /// A disposable cache has no mirror.
    #[error(
        "a disposable cache has no mirror, because nothing in it is ever dirty; leave --mirror or --disposable-cache out"
    )]
    DisposableMirror,
    /// Another device than the cache is called disposable.
    #[error(
        "--disposable-cache names {named}, and the cache device is {cache}; name the cache device the same way both times, or leave the name out",
        named = named.display(), cache = cache.display()
    )]
    DisposableOther {
        /// The device that was called disposable.
        named: PathBuf,
        /// The cache device.
        cache: PathBuf,
    },
    /// `format` makes caches for one origin.
    #[error("a disposable cache is made for one volume, and {0} are given; serve each with a cache of its own")]
    DisposableVolumes(usize),
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
    /// Metrics are reachable from other machines, and have no TLS.
    #[error(
        "http {0} is reachable from other machines and is never encrypted; listen on 127.0.0.1, or say --insecure if the network is trusted"
    )]
    HttpNotLoopback(SocketAddr),
    /// The host name can't be resolved.
    #[error("{at}: {source}")]
    Resolve {
        /// The address.
        at: Listen,
        /// Why.
        source: std::io::Error,
    },
    /// The number of threads is 0, or more than any machine has.
    #[error(
        "threads is {0}; it must be 1 to {THREADS_MAX}: one for the engine, the rest for clients (1 = one does it all)"
    )]
    Threads(usize),
    /// There is no thread for the lanes, or more than any cache has lanes for.
    #[error("lane_threads is {0}; it must be 1 to {THREADS_MAX}, and no more than the cache has lanes")]
    LaneThreads(usize),
    /// There are more threads than could have work.
    #[error(
        "threads is {given}, but only {most} would have work: one for the engine, and one for each vhost-user-blk socket. NBD clients can be spread over any number; fuse brings threads of its own, and ublk runs in the engine's"
    )]
    IdleThreads {
        /// The value that was given.
        given: usize,
        /// The largest value that is of use.
        most: usize,
    },
    /// The RAM is too little.
    #[error("buffer_bytes is {given}; at least {least} is needed to keep devices busy", least = Size(BUFFER_BYTES_MIN))]
    BufferSmall {
        /// The value that was given.
        given: Size,
    },
    /// The file with pages of maps is too small.
    #[error(
        "map_file_bytes is {given}; take at least {least}, or 0 to keep no pages",
        least = Size(MAP_FILE_BYTES_MIN)
    )]
    MapFileSmall {
        /// The value that was given.
        given: Size,
    },
}
