// SPDX-License-Identifier: MIT OR Apache-2.0
//! The target `fresh`: a Flashfront volume for each turn, with an empty cache, which is gone
//! afterwards.
//!
//! The real daemon serves it, in a thread of this process. A device that is not given is a file
//! with the pace of a disk or an SSD.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;

use flashfront_bench::fill::{self, Made};
use flashfront_bench::results::Target;
use flashfront_bench::suite::{Scale, Suite};
use flashfront_bench::{BenchError, Fresh, FreshMaker, safety};
use flashfront_device::Device;
use flashfront_device::sim::{Known, known};
use flashfront_device::wrap::Delay;
use flashfront_engine::Mode;
use flashfront_serve::config::{Config, Listener, Volume};
use flashfront_serve::daemon::{self, Ended, Hooks, ServeError, StopHandle, Wrap};
use flashfront_serve::frontend::nbd::Listen;
use flashfront_serve::offline::{self, FormatOptions};
use tempfile::TempDir;

use crate::human;

/// The pace of an origin that is not given.
const DISK: &str = "wd-re-4tb";
/// The pace of a cache device that is not given.
const SSD: &str = "samsung-850-pro";
/// A smaller cache has no room for the segments that its log keeps free.
const CACHE_BYTES_MIN: u64 = 32 << 20;
/// Bytes that are overwritten at both ends of a cache device that was given, so that it is no cache
/// any more.
const WIPE_BYTES: usize = 512 << 10;
const NAME: &str = "bench";

/// The devices and options of volumes.
pub(super) struct Maker {
    cache: Part,
    origin: Part,
    cache_bytes: u64,
    /// The folder for sockets, whose paths must be short.
    sockets: TempDir,
}

/// A device of the volume.
struct Part {
    given: Option<PathBuf>,
    made: Option<Made>,
    pace: &'static str,
}

impl Part {
    fn exists(&self) -> bool {
        self.given.as_ref().is_some_and(|path| path.exists())
    }

    fn path(&self) -> Result<&Path, BenchError> {
        let made = self.made.as_ref().map(Made::path);
        made.or(self.given.as_deref())
            .ok_or_else(|| BenchError::Failed("the files of `fresh` are not made yet".to_owned()))
    }

    fn wrap(&self) -> Option<Wrap> {
        if self.given.is_some() {
            return None;
        }
        let Known { model, size_bytes, .. } = known().into_iter().find(|it| it.name == self.pace)?;
        Some(Box::new(move |device| -> Box<dyn Device> { Box::new(Delay::beginning_of(device, model, size_bytes)) }))
    }
}

impl Maker {
    pub(super) fn new(cache: Option<PathBuf>, origin: Option<PathBuf>, cache_bytes: u64) -> anyhow::Result<Self> {
        let part = |given, pace| Part { given, made: None, pace };
        Ok(Self {
            cache: part(cache, SSD),
            origin: part(origin, DISK),
            cache_bytes: cache_bytes.max(CACHE_BYTES_MIN).next_multiple_of(1 << 20),
            sockets: tempfile::Builder::new().prefix("flashfront-bench-").tempdir()?,
        })
    }

    fn config(&self, mode: Mode) -> Result<Config, BenchError> {
        let mut config = Config::new(self.cache.path()?.to_owned());
        config.control = self.sockets.path().join("control.sock");
        config.state = Some(self.sockets.path().join("state"));
        config.volumes.push(Volume { mode: Some(mode), ..Volume::new(NAME, self.origin.path()?.to_owned()) });
        config.listeners.push(Listener::Nbd(self.place()));
        Ok(config)
    }

    fn place(&self) -> Listen {
        Listen::Unix(self.sockets.path().join("nbd.sock"))
    }
}

impl FreshMaker for Maker {
    fn describe(&self, mode: Mode) -> Target {
        let part = |part: &Part, what: &str, bytes: Option<u64>| match (&part.given, bytes) {
            (Some(path), _) => format!("{what} {}", path.display()),
            (None, Some(bytes)) => format!("{what} a file of {} with the pace of {}", human::bytes(bytes), part.pace),
            (None, None) => format!("{what} a file with the pace of {}", part.pace),
        };
        let (cache, origin) =
            (part(&self.cache, "cache device", Some(self.cache_bytes)), part(&self.origin, "origin", None));
        let given = [&self.cache, &self.origin].into_iter().filter_map(|it| it.given.as_deref());
        Target {
            devices: given.flat_map(flashfront_bench::devices_of).collect(),
            notes: vec![format!(
                "a Flashfront volume made for each turn, its cache empty, {mode}: {origin}, {cache}; through NBD"
            )],
            ..Target::default()
        }
    }

    fn overwrites(&self, writes: bool) -> Vec<PathBuf> {
        let parts = [Some(&self.cache), Some(&self.origin).filter(|_| writes)];
        parts.into_iter().flatten().filter(|part| part.exists()).filter_map(|part| part.given.clone()).collect()
    }

    fn prepare(
        &mut self,
        suite: &Suite,
        scale: Scale,
        folder: &Path,
        watch: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), BenchError> {
        let needs = suite.needs_bytes().next_multiple_of(1 << 20);
        if self.origin.exists() {
            let has = safety::open(self.origin.path()?, false)?.geometry().size_bytes;
            if has < needs {
                return Err(fill::too_small(&self.origin.path()?.display().to_string(), has, needs, scale.divisor()));
            }
        } else {
            let path = self.origin.given.clone().unwrap_or_else(|| ours(folder, "fresh-origin.img"));
            fill::has_room(path.parent().unwrap_or(folder), needs, scale.divisor())?;
            self.origin.made = Some(Made::new(&path, needs, &fill::read_ranges(suite), watch)?);
        }
        if !self.cache.exists() {
            let path = self.cache.given.clone().unwrap_or_else(|| ours(folder, "fresh-cache.img"));
            fill::has_room(path.parent().unwrap_or(folder), self.cache_bytes, scale.divisor())?;
            self.cache.made = Some(Made::new(&path, self.cache_bytes, &[], watch)?);
        }
        Ok(())
    }

    fn make(&self, mode: Mode) -> Result<Box<dyn Fresh>, BenchError> {
        let fail = |what: &str, error: &dyn std::fmt::Display| {
            BenchError::Failed(format!("the target fresh: {what}: {error}"))
        };
        offline::format(&FormatOptions {
            mirror: None,
            cache: self.cache.path()?.to_owned(),
            origin: self.origin.path()?.to_owned(),
            name: NAME.to_owned(),
            mode,
            // Files are bench's own; a given device has the user's word.
            force: true,
            segment: None,
            lanes: None,
            discard: true,
        })
        .map_err(|error| fail("format", &error))?;
        let config = self.config(mode)?;
        let (stop, (ready, is_ready)) = (StopHandle::default(), mpsc::channel());
        let hooks = Hooks {
            ready: Some(Box::new(move |_| {
                // The bench may have given up meanwhile.
                let _ = ready.send(());
            })),
            stop: stop.clone(),
            wrap_cache: self.cache.wrap(),
            wrap_origin: self.origin.wrap(),
            ..Hooks::default()
        };
        let daemon = std::thread::Builder::new()
            .name("daemon".to_owned())
            .spawn(move || daemon::run(&config, hooks))
            .map_err(|error| fail("thread", &error))?;
        let wiped = self.cache.given.clone().filter(|_| self.cache.made.is_none());
        let mut served = Served { uri: self.place().uri(NAME, false), stop, daemon: Some(daemon), wiped };
        if is_ready.recv().is_err() {
            // The hook is gone: the daemon has ended, and says why.
            served.join()?;
            return Err(fail("serve", &"the daemon ended before it served"));
        }
        Ok(Box::new(served))
    }
}

/// A file of ours in the result folder. What a killed bench has left of that name goes.
fn ours(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    // Usually it isn't there; what can't be removed is told when it can't be made.
    let _ = std::fs::remove_file(&path);
    path
}

struct Served {
    uri: String,
    stop: StopHandle,
    daemon: Option<JoinHandle<Result<Ended, ServeError>>>,
    /// A cache device that is to be no cache any more.
    wiped: Option<PathBuf>,
}

impl Served {
    fn join(&mut self) -> Result<(), BenchError> {
        let Some(daemon) = self.daemon.take() else { return Ok(()) };
        let ended = daemon.join().map_err(|_| BenchError::Failed("the daemon of `fresh` panicked".to_owned()))?;
        ended.map_err(|error| BenchError::Failed(format!("the target fresh: {error}")))?;
        let Some(path) = self.wiped.take() else { return Ok(()) };
        let device = safety::open(&path, true)?;
        let zeroes = vec![0; WIPE_BYTES];
        let end = device.geometry().size_bytes - WIPE_BYTES as u64;
        let wiped =
            device.write_at(0, &zeroes).and_then(|()| device.write_at(end, &zeroes)).and_then(|()| device.sync());
        wiped.map_err(|error| BenchError::Failed(format!("{}: can't be wiped: {error}", path.display())))
    }
}

impl Fresh for Served {
    fn uri(&self) -> String {
        self.uri.clone()
    }

    fn end(mut self: Box<Self>) -> Result<(), BenchError> {
        // Dirty data needs no origin any more: the volume is gone.
        self.stop.stop_at_once();
        self.join()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.stop_at_once();
        if let Err(error) = self.join() {
            tracing::error!("{error}");
        }
    }
}
