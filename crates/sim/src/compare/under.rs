// SPDX-License-Identifier: MIT OR Apache-2.0
//! A system under test has a name in its suite. This file knows what the name stands for here.

use flashfront_engine::{Mode, Options};

use crate::rival::{self, Geometry};
use crate::system::{Bare, Flashfront, FlashfrontSpec, System};

/// A system under test.
#[derive(Debug)]
pub struct Under {
    /// The name in the suite.
    pub name: &'static str,
    /// `flashfront`, `hdd`, `ssd`, or a rival's name.
    pub(super) runs: &'static str,
    /// Whether threads asked where others had a depth. Each thread had one request in flight and
    /// its share of the bytes. What one thread goes to others go to as well.
    pub(super) by_threads: bool,
}

impl Under {
    /// Whether the system can be run here.
    pub(super) fn exists(&self) -> bool {
        matches!(self.runs, "flashfront" | "hdd" | "ssd") || rival::ALL.iter().any(|spec| spec.name == self.runs)
    }

    /// Builds the system, its cache empty.
    pub(super) fn build(&self, geometry: &Geometry) -> Box<dyn System> {
        match self.runs {
            "hdd" => Box::new(Bare::new(geometry.origin, geometry.origin_bytes)),
            "ssd" => Box::new(Bare::new(geometry.cache, geometry.cache_bytes)),
            "flashfront" => Box::new(Flashfront::new(&FlashfrontSpec {
                origin: geometry.origin,
                origin_bytes: geometry.origin_bytes,
                cache: geometry.cache,
                cache_bytes: geometry.cache_bytes,
                mode: Mode::Writeback,
                // As the others in these comparisons: nothing goes past the cache because of its
                // length.
                options: Options { sequential_bypass_bytes: 0, ..Options::default() },
            })),
            name => {
                let spec = rival::ALL.iter().find(|spec| spec.name == name);
                (spec.expect("only systems that exist are run").build)(geometry)
            }
        }
    }
}

/// A system that is asked with a job's depth.
pub(super) const fn under(name: &'static str, runs: &'static str) -> Under {
    Under { name, runs, by_threads: false }
}

/// A system that is asked by threads.
pub(super) const fn by_threads(name: &'static str, runs: &'static str) -> Under {
    Under { name, runs, by_threads: true }
}
