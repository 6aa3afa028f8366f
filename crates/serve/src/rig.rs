// SPDX-License-Identifier: MIT OR Apache-2.0
//! A rig for tests of whole daemons: two files, a daemon over them in a thread, devices that break.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use flashfront_device::{Arena, Device, DeviceIo, Done, Geometry};
use flashfront_engine::{BLOCK_BYTES, DeviceError, Mode, Op, Time, Token};

use crate::config::{Config, Listener, Volume};
use crate::control;
use crate::daemon::{self, Ended, Hooks, ServeError, StopHandle, Wrap};
use crate::frontend::nbd::{Client, Listen, connect};
use crate::offline::{FormatOptions, format};
use crate::report::StatusReport;

pub(crate) const ORIGIN_BYTES: u64 = 32 << 20;
pub(crate) const CACHE_BYTES: u64 = 16 << 20;

/// Two files in a folder.
pub(crate) struct Bench {
    pub(crate) dir: tempfile::TempDir,
}

/// Makes devices that fail all writes from the moment on that the switch is on.
pub(crate) fn freezing(switch: &Arc<AtomicBool>) -> Wrap {
    let frozen = Arc::clone(switch);
    Box::new(move |inner| Box::new(Freezing { inner, frozen: Arc::clone(&frozen), refused: Vec::new() }))
}

struct Freezing {
    inner: Box<dyn Device>,
    frozen: Arc<AtomicBool>,
    refused: Vec<Token>,
}

impl Device for Freezing {
    fn submit(&mut self, now: Time, io: DeviceIo, arena: &mut Arena) {
        if self.frozen.load(Ordering::SeqCst) && !matches!(io.op, Op::Read | Op::Flush) {
            self.refused.push(io.token);
        } else {
            self.inner.submit(now, io, arena);
        }
    }

    fn kick(&mut self) {
        self.inner.kick();
    }

    fn poll(&mut self, now: Time, arena: &mut Arena, done: &mut Vec<Done>) {
        done.extend(self.refused.drain(..).map(|token| Done { token, result: Err(DeviceError::Io) }));
        self.inner.poll(now, arena, done);
    }

    fn next_event(&self) -> Option<Time> {
        if self.refused.is_empty() { self.inner.next_event() } else { Some(Time(0)) }
    }

    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }
}

/// Makes devices that answer nothing while the switch is on. What they were asked for meanwhile is
/// done when it is off.
pub(crate) fn hanging(switch: &Arc<AtomicBool>) -> Wrap {
    let hangs = Arc::clone(switch);
    Box::new(move |inner| Box::new(Hanging { inner, hangs: Arc::clone(&hangs), asked: Vec::new() }))
}

struct Hanging {
    inner: Box<dyn Device>,
    hangs: Arc<AtomicBool>,
    asked: Vec<DeviceIo>,
}

impl Device for Hanging {
    fn submit(&mut self, now: Time, io: DeviceIo, arena: &mut Arena) {
        if self.hangs.load(Ordering::SeqCst) {
            self.asked.push(io);
        } else {
            self.inner.submit(now, io, arena);
        }
    }

    fn kick(&mut self) {
        self.inner.kick();
    }

    fn poll(&mut self, now: Time, arena: &mut Arena, done: &mut Vec<Done>) {
        if !self.hangs.load(Ordering::SeqCst) {
            self.asked.drain(..).for_each(|io| self.inner.submit(now, io, arena));
        }
        self.inner.poll(now, arena, done);
    }

    fn next_event(&self) -> Option<Time> {
        self.inner.next_event()
    }

    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }
}

/// A daemon over them.
pub(crate) struct Served {
    pub(crate) stop: StopHandle,
    pub(crate) thread: JoinHandle<Result<Ended, ServeError>>,
    pub(crate) nbd: Client,
    pub(crate) control: control::Client,
}

impl Bench {
    pub(crate) fn new() -> Self {
        // The files are in RAM where there is any. On a disk the flushes of the repairs take four
        // times as long as all else.
        let bench = Self { dir: tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap() };
        File::create(bench.origin()).unwrap().set_len(ORIGIN_BYTES).unwrap();
        File::create(bench.cache()).unwrap().set_len(CACHE_BYTES).unwrap();
        bench
    }

    pub(crate) fn formatted() -> Self {
        let bench = Self::new();
        format(&bench.options()).unwrap();
        bench
    }

    /// Makes a rig with a mirror, and the config for both.
    pub(crate) fn mirrored() -> (Self, Config) {
        let bench = Self::new();
        let mirror = Some(bench.path("mirror"));
        File::create(bench.path("mirror")).unwrap().set_len(CACHE_BYTES).unwrap();
        format(&FormatOptions { mirror: mirror.clone(), ..bench.options() }).unwrap();
        let config = Config { mirror, ..bench.config() };
        (bench, config)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn origin(&self) -> PathBuf {
        self.path("origin")
    }

    pub(crate) fn cache(&self) -> PathBuf {
        self.path("cache")
    }

    pub(crate) fn options(&self) -> FormatOptions {
        FormatOptions {
            cache: self.cache(),
            mirror: None,
            origin: self.origin(),
            name: "data".to_owned(),
            mode: Mode::Writeback,
            force: false,
            segment: None,
            lanes: None,
            discard: true,
        }
    }

    pub(crate) fn config(&self) -> Config {
        let mut config = Config::new(self.cache());
        config.control = self.path("control");
        config.state = Some(self.path("state"));
        config.volumes.push(Volume::new("data", self.origin()));
        config.listeners.push(Listener::Nbd(Listen::Unix(self.path("nbd"))));
        config
    }

    /// Returns the error of a start that must fail. A start that doesn't ends at once, and the test
    /// with it.
    pub(crate) fn refused(&self, config: &Config) -> ServeError {
        let stop = StopHandle::default();
        let hooks = Hooks { stop: stop.clone(), ..Hooks::default() };
        daemon::run(config, Hooks { ready: Some(Box::new(move |_| stop.stop())), ..hooks }).unwrap_err()
    }

    pub(crate) fn serve(&self) -> Served {
        self.serve_with(self.config(), Hooks::default())
    }

    /// Serves with an origin that takes no writes, so that dirty data stays dirty.
    pub(crate) fn serve_frozen(&self) -> Served {
        let wrap_origin = Some(freezing(&Arc::new(true.into())));
        self.serve_with(self.config(), Hooks { wrap_origin, ..Hooks::default() })
    }

    pub(crate) fn serve_with(&self, config: Config, hooks: Hooks) -> Served {
        self.try_serve(config, hooks).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn try_serve_frozen(&self) -> Result<Served, ServeError> {
        let wrap_origin = Some(freezing(&Arc::new(true.into())));
        self.try_serve(self.config(), Hooks { wrap_origin, ..Hooks::default() })
    }

    fn try_serve(&self, config: Config, hooks: Hooks) -> Result<Served, ServeError> {
        let (ready, is_ready) = mpsc::channel();
        let hooks = Hooks { ready: Some(Box::new(move |_| ready.send(()).unwrap())), ..hooks };
        let (stop, place) = (hooks.stop.clone(), config.listeners[0].nbd().unwrap().clone());
        let (control, name) = (config.control.clone(), config.volumes[0].name.clone());
        let thread = std::thread::spawn(move || daemon::run(&config, hooks));
        if is_ready.recv().is_err() {
            return Err(thread.join().unwrap().unwrap_err());
        }
        let nbd = connect(&place, &name, true).unwrap();
        Ok(Served { stop, thread, nbd, control: control::Client::connect(&control).unwrap() })
    }
}

impl Served {
    /// Writes `blocks` blocks from `first` on, each with its own content, and makes them durable.
    pub(crate) fn write(&mut self, first: u64, blocks: u64) {
        for block in first..first + blocks {
            let content = vec![block as u8 ^ 0x5a; BLOCK_BYTES as usize];
            self.nbd.write_at(block * BLOCK_BYTES, &content, false).unwrap();
        }
        self.nbd.flush().unwrap();
    }

    /// Reads until a commit of clean blocks is full, and written behind all that was there.
    pub(crate) fn cache_clean_data(&mut self) {
        let before = self.status().counters.commits;
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        for nth in 0..400 {
            self.nbd.read_at((100 + nth * 3) * BLOCK_BYTES, &mut bytes).unwrap();
        }
        while self.status().counters.commits == before {
            std::thread::yield_now();
        }
    }

    /// Asserts that these blocks have their content.
    pub(crate) fn assert_holds(&mut self, first: u64, blocks: u64) {
        let mut content = vec![0; BLOCK_BYTES as usize];
        for block in first..first + blocks {
            self.nbd.read_at(block * BLOCK_BYTES, &mut content).unwrap();
            assert!(content.iter().all(|byte| *byte == block as u8 ^ 0x5a), "block {block}");
        }
    }

    pub(crate) fn status(&mut self) -> StatusReport {
        self.control.status().unwrap()
    }

    pub(crate) fn drain(&mut self) {
        self.control.call(&control::Command::Drain { start: true }).unwrap();
        while self.status().draining {
            std::thread::yield_now();
        }
    }

    /// Asks for a stop; how it ended.
    pub(crate) fn end(self) -> Ended {
        drop(self.nbd);
        self.stop.stop();
        self.thread.join().unwrap().unwrap()
    }

    pub(crate) fn stop(self) {
        self.nbd.disconnect().unwrap();
        self.stop.stop();
        assert!(matches!(self.thread.join().unwrap().unwrap(), Ended::Clean { .. }));
    }

    /// Stops as a crash would.
    pub(crate) fn stop_at_once(self) {
        self.stop.stop_at_once();
        assert_eq!(self.thread.join().unwrap().unwrap(), Ended::AtOnce);
    }
}
