// SPDX-License-Identifier: MIT OR Apache-2.0
//! A running `flashfront serve`: started, waited for, stopped or killed. It never outlives its
//! test.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};

/// To be ready, or to stop. Far more than needed: the machine may be busy with other tests.
const LIMIT: Duration = Duration::from_secs(60);
/// Between two signals of many.
const PAUSE: Duration = Duration::from_millis(20);
/// For a whole test. Then the daemon is killed, so that a client that waits for it gets an error.
const LIFETIME: Duration = Duration::from_secs(420);

/// A process of `flashfront serve`.
pub(crate) struct Daemon {
    child: Child,
    /// The lines of its stdout; closed when it has ended.
    lines: Receiver<String>,
    /// Its stderr, appended.
    log: PathBuf,
    /// Dropped with us, which ends the watch.
    _watch: Sender<()>,
}

impl Daemon {
    /// Starts `serve`; nothing is known of it yet.
    pub(crate) fn spawn(serve: &mut Command, log: &Path) -> Self {
        let stderr = File::options().create(true).append(true).open(log).expect("the log can be written");
        let spawned = serve.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr).spawn();
        let mut child = spawned.expect("flashfront can be started");
        let stdout = child.stdout.take().expect("the pipe was asked for");
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        let (watch, watched) = mpsc::channel();
        let pid = pid(&child);
        std::thread::spawn(move || {
            if watched.recv_timeout(LIFETIME) == Err(RecvTimeoutError::Timeout) {
                // It may have ended this moment.
                kill_process(pid, Signal::KILL).ok();
            }
        });
        Self { child, lines, log: log.to_owned(), _watch: watch }
    }

    /// Waits until clients may connect; the URI it names.
    #[track_caller]
    pub(crate) fn ready(&self) -> String {
        match self.lines.recv_timeout(LIMIT) {
            Ok(line) => match line.strip_prefix("ready ") {
                Some(uri) => uri.to_owned(),
                None => panic!("instead of `ready URI` the daemon said {line:?}\n{}", self.stderr()),
            },
            Err(why) => panic!("the daemon is not ready: {why}\n{}", self.stderr()),
        }
    }

    /// Waits until clients may connect, or the daemon has refused to start.
    pub(crate) fn is_ready(&self) -> bool {
        self.lines.recv_timeout(LIMIT).is_ok_and(|line| line.starts_with("ready "))
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(pid(&self.child), signal).expect("our own child can be signalled");
    }

    /// Lets it have so many more descriptors than it has now; with `None` as many as usual.
    pub(crate) fn limit_descriptors(&self, more: Option<usize>) {
        let pid = pid(&self.child);
        let usual = getrlimit(Resource::Nofile);
        let limit = more.map_or(usual.current, |more| {
            let folder =
                std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("our own child has descriptors");
            let names = folder.map(|entry| entry.expect("the folder is there").file_name());
            let used: Vec<u64> = names.map(|name| name.to_string_lossy().parse().expect("a number")).collect();
            (0..).filter(|number| !used.contains(number)).nth(more)
        });
        prlimit(Some(pid), Resource::Nofile, Rlimit { current: limit, ..usual }).expect("our own child can be limited");
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn ended(&mut self) -> ExitStatus {
        match self.lines.recv_timeout(LIMIT) {
            Err(RecvTimeoutError::Disconnected) => self.child.wait().expect("our own child can be waited for"),
            Err(RecvTimeoutError::Timeout) => panic!("the daemon does not end\n{}", self.stderr()),
            Ok(line) => panic!("the daemon says more than it may: {line:?}\n{}", self.stderr()),
        }
    }

    /// Sends a signal again and again until it ends. The daemon's own clock says what that means.
    #[track_caller]
    pub(crate) fn ended_by_many(&mut self, signal: Signal) -> ExitStatus {
        let end = Instant::now() + LIMIT;
        loop {
            self.signal(signal);
            match self.lines.recv_timeout(PAUSE) {
                Err(RecvTimeoutError::Disconnected) => {
                    return self.child.wait().expect("our own child can be waited for");
                }
                Err(RecvTimeoutError::Timeout) => assert!(Instant::now() < end, "it does not end\n{}", self.stderr()),
                Ok(line) => panic!("the daemon says more than it may: {line:?}\n{}", self.stderr()),
            }
        }
    }

    /// SIGTERM, which must end it well.
    #[track_caller]
    pub(crate) fn stop(mut self) {
        self.signal(Signal::TERM);
        let status = self.ended();
        assert!(status.success(), "after SIGTERM: {status}\n{}", self.stderr());
        assert!(!self.stderr().contains("panicked"), "{}", self.stderr());
    }

    /// SIGKILL: a crash, as far as a process can have one.
    pub(crate) fn kill9(mut self) {
        self.child.kill().expect("our own child can be killed");
        self.child.wait().expect("our own child can be waited for");
        assert!(!self.stderr().contains("panicked"), "{}", self.stderr());
    }

    /// Waits until it has logged that.
    #[track_caller]
    pub(crate) fn says(&self, words: &str) {
        let end = Instant::now() + LIMIT;
        while !self.stderr().contains(words) {
            assert!(Instant::now() < end, "it does not say {words:?}\n{}", self.stderr());
            std::thread::sleep(PAUSE); // pacing: a poll of a file
        }
    }

    /// What it logged, with what daemons before it logged to the same file.
    pub(crate) fn stderr(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Already dead after `stop` and `kill9`; then both do nothing.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}
