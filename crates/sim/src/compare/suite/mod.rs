// SPDX-License-Identifier: MIT OR Apache-2.0
//! The suites say what was run in each published comparison, on what, and in what order. Each is a
//! file here and a line in [`ALL`].

mod cache_size_2017;
mod caches_2015;
mod lvmcache_2017;
mod writeboost_2013;

use super::task::Suite;

/// All suites.
pub const ALL: &[Suite] = &[caches_2015::SUITE, writeboost_2013::SUITE, lvmcache_2017::SUITE, cache_size_2017::SUITE];
