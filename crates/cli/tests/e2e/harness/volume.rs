// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache device and an origin as files, and the daemon that serves them.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use flashfront_serve::frontend::nbd::{Client, Listen, connect};
use rustix::process::Signal;
use serde_json::Value;

use super::{Daemon, MIB, Place, flashfront, must, output, show, tool};

/// A cache device and an origin.
pub(crate) struct Volume {
    // Ends before the files it uses.
    daemon: Option<Daemon>,
    pub(crate) cache: PathBuf,
    pub(crate) origin: PathBuf,
    pub(crate) socket: PathBuf,
    pub(crate) control: PathBuf,
    pub(crate) log: PathBuf,
    /// What it is formatted with.
    pub(crate) lanes: usize,
    /// What it is served with.
    pub(crate) threads: usize,
    pub(crate) lane_threads: usize,
    /// Other options of `serve`.
    pub(crate) options: Vec<&'static str>,
    pub(crate) place: Place,
}

impl Volume {
    /// Two sparse files, not formatted.
    pub(crate) fn new(cache_mib: u64, origin_mib: u64) -> Self {
        let place = Place::new();
        Self {
            daemon: None,
            cache: place.sparse("cache.img", cache_mib * MIB),
            origin: place.sparse("origin.img", origin_mib * MIB),
            socket: place.socket("nbd"),
            control: place.socket("control"),
            log: place.file("daemon.log"),
            lanes: 1,
            threads: 1,
            lane_threads: 1,
            options: Vec::new(),
            place,
        }
    }

    /// A volume that is formatted and served.
    #[track_caller]
    pub(crate) fn served(cache_mib: u64, origin_mib: u64, mode: &str) -> Self {
        let mut volume = Self::new(cache_mib, origin_mib);
        must(volume.format().args(["--mode", mode]));
        volume.start();
        volume
    }

    /// `format` of this volume, to be run.
    pub(crate) fn format(&self) -> Command {
        let mut command = flashfront();
        command.arg("format").arg("--cache").arg(&self.cache).arg("--origin").arg(&self.origin);
        command.arg(format!("--lanes={}", self.lanes));
        command
    }

    /// `serve` of this volume, to be run.
    pub(crate) fn serve(&self) -> Command {
        let mut command = self.serve_nowhere();
        command.arg("--nbd").arg(format!("unix:{}", self.socket.display()));
        command.arg(format!("--threads={}", self.threads)).arg(format!("--lane-threads={}", self.lane_threads));
        command.args(&self.options);
        command
    }

    /// `serve` of this volume without an address for clients.
    pub(crate) fn serve_nowhere(&self) -> Command {
        self.serve_nowhere_from(&self.cache)
    }

    /// `serve` from another cache device, for clients of NBD.
    pub(crate) fn serve_from(&self, cache: &Path) -> Command {
        let mut command = self.serve_nowhere_from(cache);
        command.arg("--nbd").arg(format!("unix:{}", self.socket.display()));
        command
    }

    fn serve_nowhere_from(&self, cache: &Path) -> Command {
        let mut command = flashfront();
        command.arg("serve").arg("--cache").arg(cache).arg("--origin").arg(&self.origin);
        command.arg("--control").arg(&self.control);
        command.arg("--state").arg(self.place.file("state"));
        command
    }

    /// A verb that speaks with the running daemon.
    pub(crate) fn ask(&self, verb: &str) -> Command {
        let mut command = flashfront();
        command.arg(verb).arg("--control").arg(&self.control);
        command
    }

    /// A verb of a verb that speaks with the running daemon.
    pub(crate) fn ask_two(&self, [verb, of_it]: [&str; 2]) -> Command {
        let mut command = flashfront();
        command.arg(verb).arg(of_it).arg("--control").arg(&self.control);
        command
    }

    /// Serves, and waits until clients may connect.
    #[track_caller]
    pub(crate) fn start(&mut self) {
        let daemon = self.spawn();
        let uri = daemon.ready();
        assert_eq!(uri, self.uri(), "the URI of the ready line");
        self.daemon = Some(daemon);
    }

    /// Serves by this command, and waits until clients may connect.
    #[track_caller]
    pub(crate) fn start_by(&mut self, serve: &mut Command) {
        let daemon = Daemon::spawn(serve, &self.log);
        daemon.ready();
        self.daemon = Some(daemon);
    }

    /// Serves a cache that has several volumes, and waits until clients may connect.
    #[track_caller]
    pub(crate) fn start_several(&mut self) {
        let daemon = self.spawn();
        daemon.ready();
        self.daemon = Some(daemon);
    }

    /// Starts serving and does not wait.
    pub(crate) fn spawn(&self) -> Daemon {
        assert!(self.daemon.is_none(), "this volume is served already");
        Daemon::spawn(&mut self.serve(), &self.log)
    }

    /// A volume on these devices, to be served by another daemon; they stay these.
    pub(crate) fn again(&self) -> Self {
        Self { cache: self.cache.clone(), origin: self.origin.clone(), ..Self::new(1, 1) }
    }

    /// Waits for the daemon's end, however it ends.
    pub(crate) fn exit(&mut self) -> std::process::ExitStatus {
        self.daemon.take().expect("the volume is served").ended()
    }

    /// SIGTERM; it must end well.
    #[track_caller]
    pub(crate) fn stop(&mut self) {
        self.daemon.take().expect("the volume is served").stop();
    }

    /// SIGKILL.
    #[track_caller]
    pub(crate) fn kill9(&mut self) {
        self.daemon.take().expect("the volume is served").kill9();
    }

    /// Sends the daemon a signal.
    #[track_caller]
    pub(crate) fn signal(&self, signal: Signal) {
        self.daemon.as_ref().expect("the volume is served").signal(signal);
    }

    /// Lets the daemon have so many more descriptors than it has; with `None` as many as usual.
    #[track_caller]
    pub(crate) fn limit_descriptors(&self, more: Option<usize>) {
        self.daemon.as_ref().expect("the volume is served").limit_descriptors(more);
    }

    /// Waits for the daemon's end, which must be a good one.
    #[track_caller]
    pub(crate) fn ended(&mut self) {
        let mut daemon = self.daemon.take().expect("the volume is served");
        let status = daemon.ended();
        assert!(status.success(), "{status}\n{}", daemon.stderr());
    }

    /// Where clients connect.
    pub(crate) fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    /// A connection.
    #[track_caller]
    pub(crate) fn connect(&self) -> Client {
        let connected = connect(&Listen::Unix(self.socket.clone()), "", true);
        connected.unwrap_or_else(|error| panic!("{error}\n{}", self.stderr()))
    }

    /// `status --json`.
    #[track_caller]
    pub(crate) fn status(&self) -> Value {
        let text = must(self.ask("status").arg("--json"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("status says no JSON, {error}: {text}"))
    }

    /// A number of `status --json`.
    #[track_caller]
    pub(crate) fn gauge(&self, key: &str) -> u64 {
        let status = self.status();
        status[key].as_u64().unwrap_or_else(|| panic!("status has no number {key}: {status}"))
    }

    /// `drain`; nothing is dirty afterwards.
    #[track_caller]
    pub(crate) fn drain(&self) {
        must(&mut self.ask("drain"));
        assert_eq!(self.gauge("blocks_dirty"), 0, "after drain");
    }

    /// `check` of the stopped cache must find nothing wrong.
    #[track_caller]
    pub(crate) fn assert_sound(&self) {
        let output = output(flashfront().arg("check").arg(&self.cache).arg("--json"));
        let report: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("check says no JSON, {error}: {}", show(&output)));
        assert_eq!(report["ok"], true, "{report}\n{}", self.stderr());
        assert_eq!(report["damage"].as_array().map(Vec::len), Some(0), "{report}");
        assert!(output.status.success(), "{}", show(&output));
    }

    /// What the volume's clients see must be what that file holds.
    #[track_caller]
    pub(crate) fn assert_serves(&self, file: &Path) {
        let mut client = self.connect();
        let mut file = File::open(file).expect("the file is there");
        let bytes = file.metadata().expect("the file is open").len();
        assert_eq!(client.info().size_bytes, bytes, "size of the export");
        let (mut seen, mut wanted) = (vec![0; MIB as usize], vec![0; MIB as usize]);
        for offset in (0..bytes).step_by(MIB as usize) {
            let len = (bytes - offset).min(MIB) as usize;
            client.read_at(offset, &mut seen[..len]).expect("the volume can be read");
            file.read_exact(&mut wanted[..len]).expect("the file can be read");
            assert!(seen[..len] == wanted[..len], "the MiB at {offset} differs\n{}", self.stderr());
        }
        client.disconnect().expect("the daemon is there");
    }

    /// What all daemons of this volume have logged.
    pub(crate) fn stderr(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// Both files must hold the same bytes.
#[track_caller]
pub(crate) fn assert_same(one: &Path, other: &Path) {
    must(tool("cmp").arg(one).arg(other));
}
