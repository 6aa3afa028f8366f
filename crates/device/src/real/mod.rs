// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real devices: regular files and block devices, through io_uring or a pool of threads; exports of
//! NBD servers; volumes in object stores.
//!
//! A [`Reactor`] belongs to one pump thread and serves all its devices with one ring (or pool)
//! and one place to wait in. Opening, locks and synchronous helpers are [`DeviceFile`]'s.
//! Reactor and devices may be made on one thread and moved to another before the first kick;
//! from then on they stay there.

mod aligned;
mod astray;
mod direct;
mod discard;
mod error;
mod extents;
mod file;
mod fingerprint;
mod holder;
mod holes;
mod job;
mod lock;
mod nbd;
mod objects;
mod placed;
mod placement;
mod reactor;
mod remote;
mod remote_job;
mod spin;
mod storage;
mod threads;
mod uring;
mod watched;

pub(crate) use aligned::AlignedBuf;
pub use astray::Astray;
pub use discard::discard;
pub use error::OpenError;
pub use file::DeviceFile;
pub use fingerprint::{Fingerprint, Sampled, fingerprint, has_content, sampled};
pub use flashfront_bucket::{BOUNDS_MS, MapFile, MapFileFigures, Pages, Tally, Verb};
pub use lock::{Access, Identity};
pub use placed::{places_of, uuid_of};
pub use reactor::{Prefer, Reactor, ReactorError, RealDevice};
pub use remote::{LinkCheck, LinkNews, LinkState, LinkWatch, Mark, OpenBy, ReadAt, StoreState, is_in_store, is_uri};
pub use spin::Spin;
pub use storage::{Shared, Storage};
pub use watched::{Silent, asking, each, watched};
