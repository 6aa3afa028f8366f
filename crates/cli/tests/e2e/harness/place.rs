// SPDX-License-Identifier: MIT OR Apache-2.0
//! A place for the files of one test, gone when it ends.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use crc_fast::{CrcAlgorithm, Digest};
use tempfile::TempDir;

/// Bytes hashed at a time.
const PIECE: usize = 64 << 10;

/// Two folders of a test. A roomy one is on a real file system (the target folder's, since /tmp may
/// be RAM). One has a short path, since the path of a unix socket has at most 107 bytes.
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
            short: builder().tempdir().expect("the temporary folder is writable"),
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
    pub(crate) fn hashes(&self) -> BTreeMap<String, u64> {
        let entries = fs::read_dir(self.dir()).expect("the folder is ours");
        let paths = entries.map(|entry| entry.expect("the folder is ours").path());
        let files = paths.filter(|path| path.is_file() && path.extension().is_none_or(|it| it != "log"));
        files.map(|path| (path.display().to_string(), hash(&path))).collect()
    }
}

/// A hash of a file's content. Zeroes, which are most of it, are only counted.
fn hash(path: &Path) -> u64 {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    let mut file = File::open(path).expect("the file is ours");
    let (mut piece, zeroes) = (vec![0; PIECE], vec![0; PIECE]);
    for nth in 0_u64.. {
        let len = (&mut file).take(PIECE as u64).read(&mut piece).expect("the file is ours");
        if len == 0 {
            digest.update(&file.metadata().expect("the file is open").len().to_le_bytes());
            break;
        }
        if piece[..len] != zeroes[..len] {
            digest.update(&nth.to_le_bytes());
            digest.update(&piece[..len]);
        }
    }
    digest.finalize()
}
