// SPDX-License-Identifier: MIT OR Apache-2.0
//! Policies decide which blocks a cache holds: ours, and those that ours is measured against.
//!
//! Each policy is a file and a line in [`ALL`]. What a policy is asked, and what it answers, is in
//! `contract`.

mod arc;
mod belady;
mod clock;
mod contract;
mod fifo;
pub mod flashfront;
mod larc;
mod lirs;
mod lru;
mod nhit;
mod s3fifo;
mod sieve;
pub(crate) mod smq;
pub(crate) mod table;
mod two_q;
mod wtinylfu;

use flashfront_engine::policy::Spec;

pub use contract::{Access, Build, Changes, Policy, UNIT_BLOCKS_MAX};

/// All policies, in the order of the tables.
pub static ALL: &[Spec<Build>] = &[
    flashfront::SPEC,
    flashfront::SPEC_DISK,
    lru::SPEC,
    fifo::SPEC,
    clock::SPEC,
    two_q::SPEC,
    arc::SPEC,
    lirs::SPEC,
    s3fifo::SPEC,
    sieve::SPEC,
    wtinylfu::SPEC,
    belady::SPEC,
    smq::SPEC,
    smq::SPEC_4K,
    larc::SPEC,
    nhit::SPEC,
];

/// Finds the policy of a name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Spec<Build>> {
    ALL.iter().find(|spec| spec.name == name)
}
