// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guards everything that the user has not named in full from writes.
//!
//! A word of the user (`--destroy-data`) lets bench overwrite a device that is not in use. Nothing
//! lets bench write to a device that is mounted, a swap area, or a member of LVM, a RAID or a
//! cache.

use std::path::Path;

use flashfront_device::probe::probe;
use flashfront_device::real::{Access, DeviceFile};

use crate::error::BenchError;
use crate::target::{TargetSpec, What};

/// Contents that are never overwritten, even with the user's word: another machine or program
/// counts on them.
const MEMBERS: [&str; 5] =
    ["LVM2 physical volume", "Linux RAID member", "bcache ", "ZFS pool member", "Flashfront cache device"];

/// The user's words: paths and URIs whose data may be destroyed.
#[derive(Clone, Debug, Default)]
pub struct MayDestroy(pub Vec<String>);

impl MayDestroy {
    fn names(&self, what: &str) -> bool {
        self.0.iter().any(|it| it == what)
    }

    /// Checks that each word is about something that is used, or it is a slip of the hand.
    ///
    /// # Errors
    /// The first word that is about nothing.
    pub fn all_used<'a>(&self, used: impl Iterator<Item = &'a str>) -> Result<(), BenchError> {
        let used: Vec<&str> = used.collect();
        match self.0.iter().find(|it| !used.contains(&it.as_str())) {
            Some(unused) => Err(BenchError::Wrong(format!(
                "--destroy-data {unused} names nothing that this bench uses; write it as --target, --cache or --origin has it: {}",
                used.join(", ")
            ))),
            None => Ok(()),
        }
    }
}

/// Lists the contents of a target that would be destroyed, in words; empty if nothing was
/// recognised.
///
/// # Errors
/// The target may not be used so.
pub fn check(target: &TargetSpec, writes: bool, may: &MayDestroy) -> Result<Vec<String>, BenchError> {
    match &target.what {
        What::Device(path) | What::File { path, exists: true } => path_is_free(path, &target.text, writes, may),
        What::Nbd(uri) if writes && !may.names(uri) => Err(refusal(uri)),
        _ => Ok(Vec::new()),
    }
}

/// Checks as [`check`] does, for a path that is there, as the user wrote it.
///
/// # Errors
/// The path may not be used so.
pub fn path_is_free(path: &Path, text: &str, writes: bool, may: &MayDestroy) -> Result<Vec<String>, BenchError> {
    if !writes {
        return Ok(Vec::new());
    }
    // First what no word helps against.
    open(path, true)?;
    let found = probe(path).map_err(|error| BenchError::Failed(format!("{text}: can't be read: {error}")))?;
    let found: Vec<String> = found.into_iter().map(|found| found.what).collect();
    if let Some(member) = found.iter().find(|found| MEMBERS.iter().any(|it| found.starts_with(it))) {
        return Err(BenchError::Failed(format!(
            "{text} holds: {member}. bench never overwrites such a member; if nobody needs it, wipe it first: wipefs --all {text}"
        )));
    }
    if may.names(text) {
        return Ok(found);
    }
    Err(if found.is_empty() {
        refusal(text)
    } else {
        BenchError::Failed(format!("{text} holds: {}. {}", found.join("; "), refusal(text)))
    })
}

/// Opens a device or a file, so that no other program takes it while bench has it.
///
/// # Errors
/// It is in use, or can't be opened.
pub fn open(path: &Path, writes: bool) -> Result<DeviceFile, BenchError> {
    let access = if writes { Access::Exclusive } else { Access::ReadOnly };
    DeviceFile::open(path, access).map_err(|error| BenchError::Failed(error.to_string()))
}

fn refusal(what: &str) -> BenchError {
    BenchError::Failed(format!(
        "bench would overwrite {what}; if all data on it may go, say so: --destroy-data {what}. Or take only the jobs that read: --reads-only"
    ))
}

#[cfg(test)]
mod tests;
