// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache that moves to other devices while the daemon runs.

use std::path::PathBuf;

use super::Config;

impl Config {
    /// The cache is on these devices from now on. What was named before is remembered: a program
    /// that takes over is started in the same words.
    pub(crate) fn move_to(&mut self, cache: PathBuf, mirror: Option<PathBuf>) {
        if self.cache != cache {
            let before = std::mem::replace(&mut self.cache, cache);
            self.moved_from.get_or_insert(before);
        }
        self.mirror = mirror;
    }
}
