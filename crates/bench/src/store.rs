// SPDX-License-Identifier: MIT OR Apache-2.0
//! The result folder: what was asked for, and what came of it so far.
//!
//! Both are replaced as a whole, so that a power cut leaves the older or the newer one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::BenchError;
use crate::results::{FORMAT, Results};
use crate::suite::Scale;

/// An order for a bench, so that `--resume` can repeat it.
///
/// `--destroy-data` is not in it: after a reboot a device's name may be another one's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The suite's name.
    pub suite: String,
    /// The scale of the suite.
    pub scale: Scale,
    /// How long timed jobs take, if not as long as the suite says.
    pub runtime: Option<Duration>,
    /// The jobs that are run; empty: all.
    pub jobs: Vec<String>,
    /// Whether only jobs that read are wanted.
    pub reads_only: bool,
    /// The targets, as the user wrote them.
    pub targets: Vec<String>,
    /// How often each.
    pub repeats: u32,
    /// Commands before a turn, by target.
    pub before: BTreeMap<String, String>,
    /// Commands after a turn, by target.
    pub after: BTreeMap<String, String>,
    /// The trace that the suite `replay` plays.
    #[serde(default)]
    pub replay: Option<crate::replay::Options>,
    /// The cache device of `fresh`.
    pub cache: Option<PathBuf>,
    /// The origin of `fresh`.
    pub origin: Option<PathBuf>,
}

/// A result folder.
#[derive(Clone, Debug)]
pub struct Store(PathBuf);

impl Store {
    /// Makes a folder, which must be new or empty.
    ///
    /// # Errors
    /// It holds something, or can't be made.
    pub fn new(folder: &Path, request: &Request) -> Result<Self, BenchError> {
        let fail = |error: std::io::Error| BenchError::Failed(format!("{}: can't be made: {error}", folder.display()));
        std::fs::create_dir_all(folder).map_err(fail)?;
        if std::fs::read_dir(folder).map_err(fail)?.next().is_some() {
            return Err(BenchError::Failed(format!(
                "{}: not empty; --out needs a new or empty folder. To go on with a bench there, say --resume {0}",
                folder.display()
            )));
        }
        let store = Self(folder.canonicalize().map_err(fail)?);
        store.put("request.json", request)?;
        Ok(store)
    }

    /// Opens the folder of an earlier bench, by its path or that of its `results.json`.
    ///
    /// # Errors
    /// It is no such folder, or of another version.
    pub fn open(path: &Path) -> Result<(Self, Request, Option<Results>), BenchError> {
        let folder = if path.is_file() { path.parent().unwrap_or(path) } else { path };
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let store =
            Self(folder.canonicalize().map_err(|error| BenchError::Failed(format!("{}: {error}", path.display())))?);
        let request = store.get("request.json")?.ok_or_else(|| {
            BenchError::Failed(format!("{}: not a folder of bench: it has no request.json", path.display()))
        })?;
        Ok((store.clone(), request, store.get::<Results>("results.json")?))
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Writes the results as they are now.
    ///
    /// # Errors
    /// As writing a file.
    pub fn save(&self, results: &Results) -> Result<(), BenchError> {
        self.put("results.json", results)
    }

    fn put(&self, name: &str, value: &impl Serialize) -> Result<(), BenchError> {
        let (path, part) = (self.0.join(name), self.0.join(format!("{name}.part")));
        let fail = |error: std::io::Error| BenchError::Failed(format!("{}: can't be written: {error}", path.display()));
        let mut json = serde_json::to_vec(value).map_err(|error| fail(error.into()))?;
        json.push(b'\n');
        let mut file = File::create(&part).map_err(fail)?;
        file.write_all(&json).and_then(|()| file.sync_all()).map_err(fail)?;
        std::fs::rename(&part, &path).map_err(fail)
    }

    fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, BenchError> {
        let path = self.0.join(name);
        let json = match std::fs::read(&path) {
            Ok(json) => json,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(BenchError::Failed(format!("{}: can't be read: {error}", path.display()))),
        };
        serde_json::from_slice(&json).map(Some).map_err(|error| {
            BenchError::Failed(format!("{}: not what bench (format {FORMAT}) writes: {error}", path.display()))
        })
    }
}
