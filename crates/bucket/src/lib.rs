// SPDX-License-Identifier: MIT OR Apache-2.0
//! Carries the objects of a volume: to and from a folder or an object store, by threads that wait.
//!
//! `flashfront-object` decides, and does no I/O. A [`Store`] does one request at a time. A
//! [`Carrier`] has threads for several. A [`Session`] is a volume whose work is waited for.
#![forbid(unsafe_code)]

mod carrier;
#[cfg(feature = "s3")]
mod cloud;
mod error;
mod fit;
mod folder;
#[cfg(feature = "s3")]
mod hedge;
mod hold;
mod kept_pages;
mod keys;
mod map_file;
mod meter;
mod metered;
mod offline;
mod place;
mod session;
mod store;
mod survey;
mod this;

pub use carrier::{Back, Carrier, Kind, Wake};
pub use error::Error;
pub use fit::to_write;
pub use hold::without_clone;
pub use keys::{keys, keys_are_open};
pub use map_file::{MapFile, MapFileFigures, Pages};
pub use meter::{BOUNDS_MS, Meter, Recent, Tally, Verb};
pub use offline::{clone, create, forget, read_snapshot, snapshot};
pub use place::{Place, is_url, split_snapshot};
pub use session::{Session, passed_over};
pub use store::{Listed, Memory, Store};
pub use survey::{Damage, Survey, survey, sweep_leftovers};
pub use this::{is_own, random_id, this_holder, this_host, this_writer, uuid_text, who};
