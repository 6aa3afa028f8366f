// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operator's end of the control socket.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{ANSWER_TIMEOUT, Command, Response};
use crate::config::{CONTROL_OF_A_SERVICE, control_paths_of_services};
use crate::report::StatusReport;

/// Why the daemon could not be asked, or would not.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The socket has no daemon behind it.
    #[error("{path}: no daemon answers there ({source}); {advice}", path = path.display(), advice = advice(path, source))]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The connection broke.
    #[error("{path}: the daemon has gone ({source})", path = path.display())]
    Gone {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The daemon has not answered in time.
    #[error("{path}: the daemon has not answered for {} s; it is stopped, or hangs: see its log", waited.as_secs(), path = path.display())]
    Silent {
        /// The socket.
        path: PathBuf,
        /// How long that was.
        waited: Duration,
    },
    /// An answer this program does not understand.
    #[error("{path}: the daemon's answer is not understood ({source}); is it another version?", path = path.display())]
    Answer {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// The daemon says no.
    #[error("the daemon refuses: {0}")]
    Refused(String),
}

fn advice(path: &Path, source: &io::Error) -> String {
    let services = control_paths_of_services(Path::new("/run"));
    if services.len() > 1 && !services.iter().any(|it| it == path) {
        let paths: Vec<String> = services.iter().map(|it| it.display().to_string()).collect();
        return format!("several services are running: say --control with one of {}", paths.join(", "));
    }
    advice_of_one(path, source).to_owned()
}

fn advice_of_one(path: &Path, source: &io::Error) -> &'static str {
    let is_in_a_session = std::env::var_os("XDG_RUNTIME_DIR").is_some_and(|dir| !dir.is_empty());
    match source.kind() {
        io::ErrorKind::NotFound if path == Path::new(CONTROL_OF_A_SERVICE) && !is_in_a_session => {
            "is `flashfront serve` running? XDG_RUNTIME_DIR is not set here, so only the socket of a system service was looked for: say --control PATH, that of the daemon's first lines or its file"
        }
        io::ErrorKind::PermissionDenied => "the socket is its daemon's user's alone: ask as that user, or as root",
        _ => "is `flashfront serve` running, and with this --control?",
    }
}

/// A daemon that has not answered for so long is told of.
const SILENCE: Duration = Duration::from_secs(5);

/// Tells that the daemon has not answered for so long, and how long it is waited for.
pub type OnSilence = fn(&Path, Duration, Duration);

/// A connection to a daemon.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    stream: BufReader<UnixStream>,
    patience: Duration,
    on_silence: Option<OnSilence>,
}

impl Client {
    /// Connects to the daemon that listens at `path`.
    ///
    /// # Errors
    /// No daemon does, or this user may not.
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let fail = |source| ClientError::Connect { path: path.to_owned(), source };
        let stream = UnixStream::connect(path).map_err(fail)?;
        // Longer than the daemon waits for its own loop, so that it has the last word.
        let patience = 2 * ANSWER_TIMEOUT;
        stream.set_read_timeout(Some(patience)).map_err(fail)?;
        Ok(Self { path: path.to_owned(), stream: BufReader::new(stream), patience, on_silence: None })
    }

    /// Has this called while the daemon does not answer; `None`: nothing.
    pub fn on_silence(&mut self, tell: Option<OnSilence>) {
        self.on_silence = tell;
    }

    /// Waits this long for an answer.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn wait_at_most(&mut self, patience: Duration) -> Result<(), ClientError> {
        self.patience = patience;
        self.set_timeout(patience).map_err(|source| ClientError::Gone { path: self.path.clone(), source })
    }

    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.stream.get_ref().set_read_timeout(Some(timeout))
    }

    /// Reads a line, and tells of it if that takes long.
    fn read_line(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        let Some(tell) = self.on_silence.filter(|_| self.patience > SILENCE) else {
            return self.stream.read_until(b'\n', &mut line).map(|_| line);
        };
        self.set_timeout(SILENCE)?;
        let mut read = self.stream.read_until(b'\n', &mut line);
        if read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            tell(&self.path, SILENCE, self.patience);
            self.set_timeout(self.patience - SILENCE)?;
            // What has come already stays in `line`.
            read = self.stream.read_until(b'\n', &mut line);
        }
        self.set_timeout(self.patience)?;
        read.map(|_| line)
    }

    /// Returns the connection for a recorder.
    pub(super) fn into_parts(self) -> (PathBuf, BufReader<UnixStream>) {
        (self.path, self.stream)
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// [`ClientError`]; a [`Response::Error`] comes as [`ClientError::Refused`].
    pub fn call(&mut self, command: &Command) -> Result<Response, ClientError> {
        let gone = |path: &Path| {
            let path = path.to_owned();
            move |source| ClientError::Gone { path, source }
        };
        let answer = |path: &Path| {
            let path = path.to_owned();
            move |source| ClientError::Answer { path, source }
        };
        let mut line = serde_json::to_string(command).map_err(answer(&self.path))?;
        line.push('\n');
        self.stream.get_mut().write_all(line.as_bytes()).map_err(gone(&self.path))?;
        let line = self.read_line().map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => ClientError::Silent { path: self.path.clone(), waited: self.patience },
            _ => gone(&self.path)(error),
        })?;
        if line.is_empty() {
            return Err(gone(&self.path)(io::ErrorKind::UnexpectedEof.into()));
        }
        match serde_json::from_slice(&line).map_err(answer(&self.path))? {
            Response::Error { message } => Err(ClientError::Refused(message)),
            response => Ok(response),
        }
    }

    /// Asks for the status.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn status(&mut self) -> Result<StatusReport, ClientError> {
        match self.call(&Command::Status)? {
            Response::Status(report) => Ok(*report),
            other => Err(ClientError::Refused(format!("an answer to another question: {other:?}"))),
        }
    }
}
