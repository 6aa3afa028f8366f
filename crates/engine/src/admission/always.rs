// SPDX-License-Identifier: MIT OR Apache-2.0
//! Admits every miss, as bcache does.

use alloc::boxed::Box;

use super::{Admission, Build, View};
use crate::policy::Spec;

pub(super) const SPEC: Spec<Build> = Spec {
    name: "always",
    summary: "every block that misses; one scan flushes the cache and wears the flash",
    source: "bcache",
    build: |_| Box::new(Always),
};

struct Always;

impl Admission for Always {
    fn admit(&mut self, _: u64, _: View) -> bool {
        true
    }

    fn evicted(&mut self, _: u64) {}

    fn bytes(&self) -> u64 {
        0
    }
}
