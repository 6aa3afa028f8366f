// SPDX-License-Identifier: MIT OR Apache-2.0
//! The demo's little world: two sparse files with the pace of a disk and of an SSD. A daemon serves
//! them in a thread of this process.
//!
//! Dropping it stops the daemon and removes what was made, also on errors and Ctrl-C.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;

use anyhow::{Context, anyhow, bail};
use flashfront_device::Device;
use flashfront_device::sim::{Fill, HddSpec, ModelSpec, SsdSpec};
use flashfront_device::wrap::Delay;
use flashfront_engine::Mode;
use flashfront_serve::config::{Config, Listener, Volume};
use flashfront_serve::control::{Client, Command};
use flashfront_serve::daemon::{self, Ended, Hooks, ServeError, StopHandle, Wrap};
use flashfront_serve::frontend::nbd::Listen;
use flashfront_serve::offline::{self, FormatOptions};
use flashfront_serve::report::StatusReport;

/// Size of the demo origin; sparse, so it takes only what is written.
pub(super) const ORIGIN_BYTES: u64 = 2 << 30;
/// Size of the demo cache device: an eighth.
pub(super) const CACHE_BYTES: u64 = 256 << 20;

/// Files and daemon.
pub(super) struct World {
    /// Removes the folder; `None` if it is to stay.
    _temporary: Option<tempfile::TempDir>,
    dir: PathBuf,
    stop: StopHandle,
    daemon: Option<JoinHandle<Result<Ended, ServeError>>>,
}

impl World {
    /// Makes the files, formats, and serves them in passthrough mode.
    pub(super) fn new(keep: Option<&Path>) -> anyhow::Result<Self> {
        let (temporary, dir) = match keep {
            Some(dir) => (None, empty_dir(dir)?),
            None => {
                let temporary = tempfile::Builder::new().prefix("flashfront-try-").tempdir()?;
                let dir = temporary.path().to_owned();
                (Some(temporary), dir)
            }
        };
        let mut world = Self { _temporary: temporary, dir, stop: StopHandle::default(), daemon: None };
        for (path, size) in [(world.origin(), ORIGIN_BYTES), (world.cache(), CACHE_BYTES)] {
            let file = File::create_new(&path).with_context(|| path.display().to_string())?;
            file.set_len(size).with_context(|| path.display().to_string())?;
        }
        offline::format(&FormatOptions {
            mirror: None,
            cache: world.cache(),
            origin: world.origin(),
            name: "demo".to_owned(),
            mode: Mode::Passthrough,
            force: false,
            segment: None,
            lanes: None,
            discard: true,
        })?;
        world.serve()?;
        Ok(world)
    }

    fn serve(&mut self) -> anyhow::Result<()> {
        let mut config = Config::new(self.cache());
        config.control = self.dir.join("control.sock");
        // Nothing is left behind, nor in the way of others.
        config.state = Some(self.dir.join("state"));
        config.volumes.push(Volume::new("demo", self.origin()));
        config.listeners.push(Listener::Nbd(self.place()));
        let (ready, is_ready) = mpsc::channel();
        let hooks = Hooks {
            ready: Some(Box::new(move |_| {
                // Only if the demo has given up meanwhile nobody listens.
                let _ = ready.send(());
            })),
            stop: self.stop.clone(),
            wrap_mirror: None,
            wrap_cache: Some(paced(ModelSpec::Ssd(ssd()))),
            wrap_origin: Some(paced(ModelSpec::Hdd(hdd()))),
            ..Hooks::default()
        };
        let daemon = std::thread::Builder::new()
            .name("daemon".to_owned())
            .spawn(move || daemon::run(&config, hooks))
            .context("can't start a thread")?;
        self.daemon = Some(daemon);
        if is_ready.recv().is_err() {
            // The hook was dropped: the daemon has ended.
            self.end()?;
            bail!("the demo daemon ended before it served");
        }
        Ok(())
    }

    /// Where the volume is served.
    pub(super) fn place(&self) -> Listen {
        Listen::Unix(self.dir.join("nbd.sock"))
    }

    pub(super) fn origin(&self) -> PathBuf {
        self.dir.join("origin.img")
    }

    pub(super) fn cache(&self) -> PathBuf {
        self.dir.join("cache.img")
    }

    /// A connection to the daemon.
    pub(super) fn control(&self) -> anyhow::Result<Control> {
        Ok(Control(Client::connect(&self.dir.join("control.sock"))?))
    }

    /// Stops the daemon cleanly.
    pub(super) fn end(&mut self) -> anyhow::Result<()> {
        let Some(daemon) = self.daemon.take() else { return Ok(()) };
        self.stop.stop();
        daemon.join().map_err(|_| anyhow!("the demo daemon panicked"))??;
        Ok(())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.daemon.is_some() {
            // `end` alone would wait for a clean stop.
            self.stop.stop_at_once();
        }
        if let Err(error) = self.end() {
            tracing::error!("{error:#}");
        }
    }
}

/// The operator's end.
pub(super) struct Control(Client);

impl Control {
    pub(super) fn status(&mut self) -> anyhow::Result<StatusReport> {
        Ok(self.0.status()?)
    }

    pub(super) fn set_mode(&mut self, mode: Mode) -> anyhow::Result<()> {
        let set = Command::Set { volume: None, mode: Some(mode), dirty_limit: None, sequential_bypass: None };
        self.0.call(&set)?;
        Ok(())
    }
}

/// The pace of the demo's origin.
pub(super) fn hdd() -> HddSpec {
    // RAID controllers and cautious operators switch the write cache off.
    HddSpec { write_cache_bytes: 0, ..HddSpec::default() }
}

/// The pace of the demo's cache device.
pub(super) fn ssd() -> SsdSpec {
    SsdSpec::samsung_850_pro(Fill::Clean)
}

fn paced(spec: ModelSpec) -> Wrap {
    Box::new(move |device: Box<dyn Device>| Box::new(Delay::new(device, spec)))
}

/// A folder with nothing in it; made if it isn't there.
fn empty_dir(dir: &Path) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    let mut entries = std::fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    if entries.next().is_some() {
        bail!("{}: not empty; --keep needs an empty or new folder", dir.display());
    }
    Ok(std::fs::canonicalize(dir)?)
}
