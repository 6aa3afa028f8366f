// SPDX-License-Identifier: MIT OR Apache-2.0
//! dm-cache holds blocks of a fixed size, in place. Each is copied as a whole between origin and
//! cache device.
//!
//! From the kernel's documentation (`device-mapper/cache.rst`), the behaviour of
//! `dm-cache-target.c`, the counters in the logs of 2015, and those of Linux 6.1 in a virtual
//! machine. Who is cached is decided by a policy ([`mq`], [`smq_411`], [`smq`]). Linux 4.12 changed
//! the target so much that there are two ([`until_411`], [`since_412`]). What both do:
//!
//! - A hit goes to the block's place on the cache device, a miss to the origin; nothing is
//!   buffered. A request is cut at the borders of blocks.
//! - A commit writes the changed blocks of the metadata, flushes, writes the superblock and flushes
//!   again. A FLUSH commits, then flushes both devices.
//!
//! Not modelled: writethrough and passthrough, discards, dirty flags and hints written at the end,
//! recovery, splitting of copies into parts of 64 KiB, errors.

mod mq;
mod part;
mod setup;
mod since_412;
mod smq;
mod smq_411;
mod until_411;

use self::setup::{SETUP_2015, SETUP_SMQ};
use super::spec::Spec;

/// The default policy of Linux 3.16, with the settings of the comparison of 2015.
pub(super) const MQ: Spec = Spec {
    name: "dm-cache-mq",
    summary: "dm-cache of Linux 3.16, policy mq, blocks of 256 KiB, copying without a limit (as in the comparison of 2015)",
    source: "Linux 3.16, dm-cache-target.c and dm-cache-policy-mq.c; geomflash, test_dm-cache.log",
    cache_bytes_min: 0,
    build: |geometry| until_411::build(geometry, &SETUP_2015, |places, _| mq::Mq::new(places)),
};

/// lvmcache before Linux 4.12.
pub(super) const SMQ_4_11: Spec = Spec {
    name: "dm-cache-smq-4.11",
    summary: "dm-cache (lvmcache) before Linux 4.12, policy smq, blocks of 64 KiB",
    source: "Linux 4.11, dm-cache-target.c and dm-cache-policy-smq.c",
    cache_bytes_min: 0,
    build: |geometry| until_411::build(geometry, &SETUP_SMQ, smq_411::Smq::new),
};

/// lvmcache since Linux 4.12.
pub(super) const SMQ: Spec = Spec {
    name: "dm-cache-smq",
    summary: "dm-cache (lvmcache) since Linux 4.12, policy smq, blocks of 64 KiB",
    source: "Linux 6.1, dm-cache-target.c and dm-cache-policy-smq.c",
    cache_bytes_min: 0,
    build: |geometry| since_412::build(geometry, &SETUP_SMQ),
};

#[cfg(test)]
mod tests;
