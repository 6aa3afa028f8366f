// SPDX-License-Identifier: MIT OR Apache-2.0
//! A place for the files of one test, gone when it ends.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{must, tool};

/// Two folders: a roomy one on a real file system (the target folder's, since /tmp may be RAM),
/// and one with a short path, since the path of a unix socket has at most 107 bytes.
pub(crate) struct Place {
    roomy: TempDir,
    short: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let builder = || {
            let mut builder = tempfile::Builder::new();
            builder.prefix("flashfront-");
            builder
        };
        let roomy = builder().tempdir_in(env!("CARGO_TARGET_TMPDIR"));
        Self {
            roomy: roomy.expect("the target folder is writable"),
            short: builder()
                .tempdir()
                .expect("the temporary folder is writable"),
        }
    }

    /// The folder for files.
    pub(crate) fn dir(&self) -> &Path {
        self.roomy.path()
    }

    /// Where a file of that name goes.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.roomy.path().join(name)
    }

    /// Where a socket or a mount point of that name goes.
    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        self.short.path().join(name)
    }

    /// Makes a sparse file.
    pub(crate) fn sparse(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.file(name);
        let file = File::create(&path).expect("a file can be made here");
        file.set_len(bytes).expect("a sparse file can be made here");
        path
    }

    /// The content of every file here, as hashes by name; logs are not part of it.
    pub(crate) fn hashes(&self) -> BTreeMap<String, String> {
        let entries = fs::read_dir(self.dir()).expect("the folder is ours");
        let paths = entries.map(|entry| entry.expect("the folder is ours").path());
        let files =
            paths.filter(|path| path.is_file() && path.extension().is_none_or(|it| it != "log"));
        files
            .map(|path| (path.display().to_string(), sha256(&path)))
            .collect()
    }
}

/// The SHA-256 of a file.
fn sha256(path: &Path) -> String {
    let line = must(tool("sha256sum").arg(path));
    line.split(' ').next().unwrap_or_default().to_owned()
}
