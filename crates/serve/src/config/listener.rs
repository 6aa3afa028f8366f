// SPDX-License-Identifier: MIT OR Apache-2.0
//! The places where clients connect: a `[[listen]]` table each.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::address::Listen;

/// A place where clients connect, and what is spoken there.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "ListenTable")]
pub enum Listener {
    /// NBD; clients name the volume.
    Nbd(Listen),
    /// vhost-user-blk, by a unix socket.
    VhostUserBlk {
        /// The socket. With `{volume}` in it each volume has one, with its name there.
        path: PathBuf,
        /// The volume that it serves; the only one if there is none.
        volume: Option<String>,
    },
    /// The volumes as files in this folder, by FUSE.
    Fuse(PathBuf),
    /// The first volume as /dev/ublkbN, the next one as that of N + 1, and so on.
    Ublk(u32),
}

/// What stands for a volume's name in the path of a socket.
const NAME_IN_PATH: &str = "{volume}";

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

    /// Whether a path of a socket of vhost-user-blk stands for one of each volume.
    #[must_use]
    pub fn is_of_each(path: &Path) -> bool {
        path.as_os_str().as_encoded_bytes().windows(NAME_IN_PATH.len()).any(|it| it == NAME_IN_PATH.as_bytes())
    }

    /// The socket of a volume.
    #[must_use]
    pub fn socket_of(path: &Path, volume: &str) -> PathBuf {
        match path.to_str() {
            Some(text) => text.replace(NAME_IN_PATH, volume).into(),
            None => path.to_owned(),
        }
    }

    /// Whether it makes block devices of the machine that the daemon runs on.
    #[must_use]
    pub fn is_of_this_machine(&self) -> bool {
        matches!(self, Self::Fuse(_) | Self::Ublk(_))
    }

    /// Whether its clients' bytes can be left to a thread other than the engine's
    /// ([`Config::carriers`]).
    #[must_use]
    pub fn is_portable(&self) -> bool {
        matches!(self, Self::Nbd(_) | Self::VhostUserBlk { .. })
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
