// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control socket, at which an operator talks to a running daemon: a JSON object per line each
//! way.
//!
//! The socket's mode 0600 is the only permission there is: a program that may open it may do
//! everything. The pump's thread is never kept waiting by a client here. Threads of their own read
//! and write the sockets, and pass whole [`Command`]s on through a [`Caller`]. Bounds:
//! [`LINE_BYTES_MAX`], [`CONNECTIONS_MAX`], [`LINE_TIMEOUT`] (tests: `control::tests`).
//!
//! `{"command":"status"}` is answered by `{"reply":"status","mode":"writeback",...}`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use flashfront_engine::Mode;
use serde::{Deserialize, Serialize};

use crate::config::{DirtyLimit, SharesAsked, Size, mode_option};
use crate::report::StatusReport;
use crate::tap::Taps;
use crate::upgrade::{UpgradeHandle, UpgradeOrder};

mod client;
mod record;
mod recorder;
mod reply;
mod server;
#[cfg(test)]
mod tests;

pub use crate::socket::{BindError, SocketFile, bind};
pub use crate::upgrade::Upgraded;
pub use client::{Client, ClientError, OnSilence};
pub use recorder::Recorder;
pub use server::Server;

/// The longest line either way but for a status with many lost ranges.
pub const LINE_BYTES_MAX: usize = 64 << 10;
/// The most clients at a time. For the next one the connection of an idle client is closed.
pub const CONNECTIONS_MAX: usize = 16;
/// The longest range that is prefetched by one command: less than a second of a disk's time, and
/// beside clients less than [`ANSWER_TIMEOUT`].
pub const PREFETCH_BYTES_MAX: u64 = 1 << 20;
/// How long a client may take for one line, and for reading its answer; then its connection is
/// closed.
pub const LINE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a command may take to be answered. The pump answers between two turns of its loop. So
/// this is not reached, unless the pump hangs or another change has to end first.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// A command of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// How is it?
    Status,
    /// Change what may be changed while it runs. What is absent stays.
    Set {
        /// The volume; all volumes if absent. Only the mode is a volume's own.
        #[serde(default)]
        volume: Option<String>,
        /// How writes are treated from now on.
        #[serde(default, with = "mode_option")]
        mode: Option<Mode>,
        /// The share of the cache, or the size, that may be dirty.
        #[serde(default)]
        dirty_limit: Option<DirtyLimit>,
        /// Streams longer than this bypass the cache; 0 = never.
        #[serde(default)]
        sequential_bypass: Option<Size>,
    },
    /// Add a volume. The answer comes when the cache has it durably, and clients may come.
    AddVolume {
        /// Its name.
        name: String,
        /// The whole path of its origin, or its address.
        origin: PathBuf,
        /// How writes are treated; writeback if absent.
        #[serde(default, with = "mode_option")]
        mode: Option<Mode>,
        /// Whether clients may not write.
        #[serde(default)]
        read_only: bool,
        /// Its limits; none of its own if absent.
        #[serde(default)]
        shares: SharesAsked,
    },
    /// Remove a volume. The answer comes when the cache has it no more. With `destage`, and dirty
    /// data, it comes when that begins: `status` shows the volume until it is gone.
    RemoveVolume {
        /// The volume.
        volume: String,
        /// What becomes of dirty data.
        #[serde(default)]
        dirty: Dirty,
        /// Remove it although it has clients.
        #[serde(default)]
        disconnect: bool,
    },
    /// Give a volume another name.
    RenameVolume {
        /// The volume.
        volume: String,
        /// Its new name.
        name: String,
    },
    /// Let clients write to a volume, or not.
    SetReadOnly {
        /// The volume.
        volume: String,
        /// Clients may not write.
        read_only: bool,
    },
    /// Give a volume limits of its own, or take them away. What is absent stays.
    SetShares {
        /// The volume.
        volume: String,
        /// Its limits.
        shares: SharesAsked,
    },
    /// Give clients the new part of an origin that has become larger. The answer comes when the
    /// cache has the new size durably.
    GrowVolume {
        /// The volume.
        volume: String,
    },
    /// Destage everything at full speed, or stop doing so. Answered at once; `status` shows the
    /// progress in `blocks_dirty` and the end in `draining`.
    Drain {
        /// Begin or end it.
        start: bool,
    },
    /// Make a device the mirror of the cache, or replace the member that failed.
    ///
    /// The answer comes when the device is taken. `status` shows the progress in
    /// `mirror_copied_blocks`, and the end in `mirror`.
    AddMirror {
        /// The whole path of the device.
        device: PathBuf,
        /// Destroy what is on it.
        #[serde(default)]
        force: bool,
    },
    /// Move the cache to another device, with all that it holds.
    ///
    /// The answer comes when the device is taken. `status` shows the progress in
    /// `mirror_copied_blocks`, and in `leaving_path` the old device until it is free.
    ReplaceCache {
        /// The whole path of the device.
        device: PathBuf,
        /// Destroy what is on it.
        #[serde(default)]
        force: bool,
    },
    /// Let one of two cache devices go, or a new one that is being filled.
    ///
    /// Answered when it begins; `status` shows the rest as for `replace_cache`.
    RemoveMirror {
        /// The whole path of the device.
        device: PathBuf,
    },
    /// Let the other one of two cache devices lead, and the lead be its mirror.
    ///
    /// Answered when it begins; `status` shows the progress in `mirror_copied_blocks`, and in
    /// `promoting_path` the new lead until it leads.
    PromoteMirror {
        /// The whole path of the device that is to lead.
        device: PathBuf,
    },
    /// Take the cache away from its volumes, which are served by their origins alone.
    ///
    /// Nothing may be dirty but what was written lately. Clients stay connected.
    DetachCache {},
    /// Give volumes that are served without a cache the cache on this device.
    AttachCache {
        /// The whole path of the device: the cache that was detached, or an empty device.
        device: PathBuf,
        /// Destroy what is on it.
        #[serde(default)]
        force: bool,
    },
    /// Make the cache as large as its device, which was made larger before.
    ///
    /// The cache keeps what it holds. Clients stay connected.
    GrowCache {},
    /// Empty what lies beyond this size, so that [`Command::ShrinkCache`] has little to do; none:
    /// use all of the cache again.
    ///
    /// Answered when it begins; `status` shows in `left_in_end_blocks` what is left. A stop ends
    /// it. With several lanes, or ordered destage, a drain takes its place.
    VacateCache {
        /// The size.
        bytes: Option<u64>,
    },
    /// Make the cache smaller. Its device can be made smaller afterwards.
    ///
    /// The cache keeps what is dirty, and of clean data as much as fits. With several lanes, or
    /// ordered destage, nothing may be dirty but what was written lately. Clients stay connected.
    ShrinkCache {
        /// The new size.
        bytes: u64,
    },
    /// Tell of each request of a volume from now on. After the answer the connection is for that
    /// alone.
    Record {
        /// The volume; the only one if absent.
        #[serde(default)]
        volume: Option<String>,
    },
    /// Bring a range of a volume into the cache. The answer comes when that is done; an operator
    /// that wants more asks again then.
    Prefetch {
        /// The volume.
        volume: String,
        /// First byte.
        offset: u64,
        /// Bytes, at most [`PREFETCH_BYTES_MAX`].
        bytes: u64,
        /// Blocks that were not asked for lately may leave for it.
        #[serde(default)]
        replace: bool,
    },
    /// See whether a volume has these bytes.
    Compare {
        /// The volume.
        volume: String,
        /// The place of the first byte.
        offset: u64,
        /// The bytes, all in one block.
        bytes: Vec<u8>,
    },
    /// Let another program take over, with the clients. Answered when it serves.
    Upgrade {
        /// The whole path of the new program; that of this one if absent.
        #[serde(default)]
        program: Option<PathBuf>,
        /// Close the connections that can't be handed over.
        #[serde(default)]
        disconnect: bool,
    },
    /// Stop cleanly, as on SIGTERM. Answered when it begins.
    Stop,
}

/// What becomes of the dirty data of a volume that is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dirty {
    /// A volume with dirty data stays.
    #[default]
    Refuse,
    /// The dirty data is destaged first.
    Destage,
    /// The dirty data is given up, for ever.
    Discard,
}

/// An answer of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Response {
    /// The answer to [`Command::Status`].
    Status(Box<StatusReport>),
    /// The answer to [`Command::Record`]: requests follow, in frames.
    Recording {
        /// The volume's name.
        volume: String,
        /// The id of its origin.
        origin: u32,
        /// The present time of the clock of the requests.
        began_ns: u64,
    },
    /// The answer to [`Command::Upgrade`]: another program serves.
    Upgraded(Upgraded),
    /// The answer to [`Command::DetachCache`] and [`Command::AttachCache`].
    Switched {
        /// Clients that stayed connected.
        clients: u64,
        /// For how long they waited.
        paused_ms: u64,
    },
    /// The answer to [`Command::GrowCache`] and [`Command::ShrinkCache`].
    Resized {
        /// The size of the cache before.
        from_bytes: u64,
        /// Its size now.
        to_bytes: u64,
        /// RAM of its index.
        index_bytes: u64,
        /// Clients that stayed connected.
        clients: u64,
        /// For how long they waited.
        paused_ms: u64,
    },
    /// The command is done, or begun.
    Done,
    /// The answer to [`Command::Compare`] if the volume has other bytes there.
    OtherBytes,
    /// The command was refused; nothing was changed.
    Error {
        /// The fault, its place, and the advice.
        message: String,
    },
}

impl Command {
    /// Whether the command changes the volumes. Such changes come one after the other.
    pub(crate) const fn changes_volumes(&self) -> bool {
        matches!(
            self,
            Self::AddVolume { .. }
                | Self::RemoveVolume { .. }
                | Self::RenameVolume { .. }
                | Self::SetReadOnly { .. }
                | Self::SetShares { .. }
                | Self::GrowVolume { .. }
        )
    }
}

/// Where the answer to a command goes.
pub type Reply = reply::Reply<Response>;

/// A command on its way to the pump.
#[derive(Debug)]
pub struct ControlCall {
    /// The command.
    pub command: Command,
    /// The channel for the answer. A client that has gone is no error.
    pub reply: Reply,
}

/// The way to the pump, for any thread.
#[derive(Clone, Debug)]
pub struct Caller {
    calls: Sender<ControlCall>,
    waker: Arc<mio::Waker>,
    taps: Taps,
    upgrades: UpgradeHandle,
}

impl Caller {
    /// A caller, and the end that the pump drains whenever `waker` wakes it.
    #[must_use]
    pub fn new(waker: Arc<mio::Waker>) -> (Self, Receiver<ControlCall>) {
        let (calls, receiver) = mpsc::channel();
        (Self { calls, waker, taps: Taps::default(), upgrades: UpgradeHandle::default() }, receiver)
    }

    /// The taps, where requests are noted for recorders.
    #[must_use]
    pub fn taps(&self) -> &Taps {
        &self.taps
    }

    /// The way of orders to upgrade.
    pub(crate) fn upgrades(&self) -> &UpgradeHandle {
        &self.upgrades
    }

    /// Leaves an order to upgrade. The daemon answers it, and keeps the operator's connection.
    pub(crate) fn upgrade(&self, order: UpgradeOrder) {
        self.upgrades.ask(order);
        if let Err(error) = self.waker.wake() {
            tracing::error!("can't wake the daemon: {error}");
        }
    }

    /// Asks the pump and waits for its answer.
    #[must_use]
    pub fn call(&self, command: Command) -> Response {
        let (reply, answer) = reply::reply();
        let sent = self.calls.send(ControlCall { command, reply });
        if sent.is_err() || self.waker.wake().is_err() {
            return Response::Error { message: "the daemon is stopping".to_owned() };
        }
        answer.wait(ANSWER_TIMEOUT).unwrap_or_else(|message| Response::Error { message })
    }
}
