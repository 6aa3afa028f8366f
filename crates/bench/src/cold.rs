// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page cache of folders: emptied before a job, so that reads come from the target.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Instant;

use rustix::fs::{Advice, fadvise, syncfs};

use crate::error::BenchError;
use crate::figures::Measured;

/// Where root drops the page cache of the whole machine.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// What a reader of figures must know, if caches can't be dropped as a whole.
#[must_use]
pub fn note() -> Option<&'static str> {
    let note = "not root: before each job only the data of files left the page cache. Names and inodes stayed in RAM, \
                so small files look faster than they are. Run as root for a cold start";
    (!is_root()).then_some(note)
}

/// How caches are dropped here, as a command.
pub(crate) fn command() -> Vec<String> {
    if is_root() {
        ["sh", "-c", "sync; echo 3 > /proc/sys/vm/drop_caches"].map(str::to_owned).to_vec()
    } else {
        vec!["posix_fadvise(DONTNEED)".to_owned()]
    }
}

/// Writes all that is dirty on the folder's file system.
pub(crate) fn sync(folder: &Path) -> Result<(), BenchError> {
    let synced = File::open(folder).and_then(|file| syncfs(file).map_err(io::Error::from));
    synced.map_err(|error| BenchError::Failed(format!("{}: {error}", folder.display())))
}

/// Takes a folder's files out of RAM. Root drops all of the machine's page cache, names included.
pub(crate) fn drop_page_cache(folder: &Path) -> Result<(), BenchError> {
    sync(folder)?;
    if is_root() {
        // Containers have root without that right.
        if fs::write(DROP_CACHES, "3").is_ok() {
            return Ok(());
        }
    }
    drop_files(folder).map_err(|error| BenchError::Failed(format!("{}: {error}", folder.display())))
}

fn drop_files(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            drop_files(&entry.path())?;
        } else if kind.is_file() {
            fadvise(File::open(entry.path())?, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}

/// What takes how long; such a job has no requests of its own.
pub(crate) fn timed(work: impl FnOnce() -> Result<(), BenchError>) -> Result<Measured, BenchError> {
    let begin = Instant::now();
    work()?;
    Ok(Measured { seconds: begin.elapsed().as_secs_f64(), ..Measured::default() })
}
