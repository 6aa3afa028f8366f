// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest that runs the program under test itself, with Debian's kernel (`ublk/kernel.sh`), and
//! says "ok WHAT" for each thing that it has seen.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::guest::{self, Drive, Guest, Machine};
use super::place::Workplace;
use crate::run::{Failed, flashfront, target};

/// What is booted, and what must come of it.
pub(super) struct Inside {
    /// The guest's first program.
    pub(super) script: &'static str,
    /// Its disks, and their sizes.
    pub(super) disks: &'static [(&'static str, u64)],
    /// How many things are to be seen.
    pub(super) seen: usize,
    /// Without a line for so long it hangs.
    pub(super) limit: Duration,
}

impl Inside {
    /// Makes the guest and runs it; returns what it has said.
    pub(super) fn run(&self, keep: bool) -> Result<Vec<String>, Failed> {
        let program = flashfront()?;
        let dir = target().join("vm");
        let place = Workplace::new(&dir, &[])?;
        let kernel = dir.join("ublk");
        guest::make(&place, include_str!("ublk/kernel.sh"), &[("guest.sh", self.script)], &kernel)?;
        for (name, bytes) in self.disks {
            let path = place.path(name);
            let made = fs::File::create(&path).and_then(|file| file.set_len(*bytes));
            made.map_err(|error| Failed::File { path, error })?;
        }
        let said = self.look(&place, &kernel, &program);
        if keep || said.is_err() {
            place.keep();
        }
        said
    }

    /// Boots, and reads what the guest has seen.
    fn look(&self, place: &Workplace, kernel: &Path, program: &Path) -> Result<Vec<String>, Failed> {
        let drives: Vec<Drive<'_>> = self.disks.iter().map(|(name, _)| Drive::File(name)).collect();
        let words = format!("kernel={} program={}", kernel.display(), program.display());
        let limit = self.limit;
        let machine =
            Machine { drives: &drives, words: &words, processors: 2, memory_mib: 1024, sees_root: true, limit };
        let guest = Guest::boot(place, &machine)?;
        let (mut said, mut failed) = (Vec::new(), String::new());
        loop {
            let seen = said.iter().filter(|line: &&String| line.starts_with("ok ")).count();
            match guest.next() {
                Ok(Some(line)) if line == "down" && seen == self.seen => return Ok(said),
                Ok(Some(line)) => {
                    println!("  {line}");
                    failed = if line.starts_with("failed") { line.clone() } else { failed };
                    said.push(line);
                }
                Ok(None) if !failed.is_empty() => return Err(Failed::Usage(failed)),
                Ok(None) | Err(guest::Hangs) => {
                    let console = place.tail("console.log");
                    let all = self.seen;
                    return Err(Failed::Usage(format!(
                        "the guest hangs or has ended after {seen} of {all}:\n{console}"
                    )));
                }
            }
        }
    }
}
