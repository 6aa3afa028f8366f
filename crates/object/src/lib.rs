// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume in an object store, as a log of immutable objects (ADR 0048).
//!
//! Nothing here does I/O or knows a clock. [`Opening`] and [`Volume`] are machines. They take
//! inputs and the answers of a store, and return [`Effect`]s. A carrier carries the effects out and
//! brings the answers, in any order. docs/internals/object-format.md describes every byte.
//!
//! The promise: the bucket alone always holds a state in which the volume was. That state has all
//! that an acknowledged flush has covered. `cargo x torture --objects` proves it.
#![forbid(unsafe_code)]

mod batch;
mod books;
mod canary;
mod effect;
mod extent;
mod form;
mod holder;
mod loading;
mod manifest;
mod map;
mod mode;
mod name;
mod near;
mod opening;
mod options;
mod page;
mod pages;
mod place;
mod recent;
mod root;
mod table;
mod volume;
mod wire;
mod wish;

pub use batch::{EXTENT_SECTORS_MAX, Head, Record};
#[cfg(feature = "canary")]
pub use canary::{Canary, plant};
pub use effect::{Answer, Content, Effect, Fault, OpenFault, StoredPage, Ticket, Token, Told, Trouble};
pub use form::{Form, Keys};
pub use holder::Holder;
pub use manifest::{Manifest, ManifestFault, Snapshot, TailEntry};
pub use mode::{Mode, Writer};
pub use name::{Key, Name, Stamp};
pub use opening::Opening;
pub use options::{Options, Unsent, Usage, WriteFault};
pub use pages::PageRequest;
pub use table::{Entry, Kind, Retired};
pub use volume::Volume;
pub use wire::{SECTOR_BYTES, SIZE_MAX, crc};
pub use wish::{Wanted, Wish};
