// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a change of the volumes is refused. Nothing has changed then.

use std::io;
use std::path::PathBuf;

use flashfront_device::real::OpenError;
use flashfront_engine::{BLOCK_BYTES, VolumeError};

use super::super::error::ServeError;
use crate::config::{ConfigError, Size};
use crate::report::counted;
use crate::stale::ChangeError;

/// Why the volumes stay as they are.
#[derive(Debug, thiserror::Error)]
pub(in crate::daemon) enum VolumesError {
    #[error(
        "the origins are served without a cache, whose volumes could be changed; `flashfront cache attach` gives them an empty one, or stop, and serve them with the cache that they had"
    )]
    WithoutCache,
    #[error("a disposable cache is made for one volume; serve each further one with a cache of its own")]
    Disposable,
    #[error("the cache is still being replayed; try again when it serves")]
    Opening,
    #[error("no volume `{name}`; there are: {known}")]
    Unknown { name: String, known: String },
    #[error(
        "{origin}: {who} has the volume open to write (opening {epoch}); stop the daemon there. If it is dead, add the volume while no daemon serves this cache, and start with --take-over",
        origin = origin.display()
    )]
    OpenElsewhere { origin: PathBuf, who: String, epoch: u32 },
    #[error(
        "{origin}: {who} holds writes that the store lacks (opening {epoch}, closed); start the daemon of that cache and drain it. To give them up, add the volume while no daemon serves this cache, and start with --take-over",
        origin = origin.display()
    )]
    OwedElsewhere { origin: PathBuf, who: String, epoch: u32 },
    #[error("{origin}: a snapshot is never written; make a clone of it for a writer (flashfront object clone)", origin = .0.display())]
    Snapshot(PathBuf),
    #[error(
        "volume `{0}` is being removed, and its dirty blocks are written to its origin first; change volumes when that is done (`flashfront volume list` shows what is left)"
    )]
    Removing(String),
    #[error("there is a volume `{0}` already; choose another name")]
    NameTaken(String),
    #[error(transparent)]
    Name(ConfigError),
    #[error("{path}: name the origin by its whole path, as the daemon may run in another folder", path = .0.display())]
    Relative(PathBuf),
    #[error(
        "{path} is in use by this cache, as {used}, {role}{ways}; each volume needs an origin of its own",
        path = path.display(), used = used.display()
    )]
    InUse { path: PathBuf, used: PathBuf, role: String, ways: String },
    #[error(
        "{path} leads to this daemon itself, by {place}; no volume can be the origin of another volume of its daemon",
        path = path.display()
    )]
    Own { path: PathBuf, place: String },
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Serve(ServeError),
    #[error(transparent)]
    State(#[from] ChangeError),
    #[error("{path}: can't be read: {source}", path = path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the thread that opens the origin can't be started: {0}")]
    Thread(io::Error),
    #[error("the origin was not opened, because of a bug; see the log")]
    Panicked,
    #[error(
        "volume `{name}` has {}, who would lose it; let them go first, or say --disconnect",
        counted(*clients as u64, "client")
    )]
    Clients { name: String, clients: usize },
    #[error(
        "`{0}` is the only volume of the cache; take the cache off with `flashfront detach`, or add another volume first"
    )]
    Last(String),
    #[error(
        "volume `{name}` has {} ({}) that its origin lacks; --destage writes them there first, --discard-dirty gives them up for ever",
        counted(*blocks, "dirty block"), Size(blocks * BLOCK_BYTES)
    )]
    Dirty { name: String, blocks: u64 },
    #[error(
        "volume `{0}`: its origin is an export, and the connections to its server keep the size that it had when they began; stop the daemon, and grow the volume with --cache"
    )]
    GrownExport(String),
    #[error(
        "{path}: the origin has {}, less than the {} of its volume: its end is gone, and reads there fail but for what the cache has; give it its size again",
        found.told(), size.told(), path = path.display()
    )]
    Shrunk { path: PathBuf, size: Size, found: Size },
    #[error("volume `{name}`: {error}")]
    Engine { name: String, error: VolumeError },
}
