// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control protocol: lines of JSON, to the real socket, and to the decoders of both ends.
//!
//! Each line is answered with one line that a client understands; a line that is too long ends it.
//! The next client is served as if nothing had been.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use flashfront_serve::control::{Caller, Command, LINE_BYTES_MAX, Response, Server};
use tempfile::TempDir;

use crate::Target;

pub(crate) const TARGET: Target = Target {
    name: "control",
    summary: "the control socket: JSON lines from an operator's program",
    input_bytes_max: 4096,
    heap_bytes_max: 4 << 20,
    body,
};

/// In place of a line of an input: one that is too long. The input itself stays short.
const LONG: &[u8] = b"LONG";

thread_local! {
    static DAEMON: RefCell<Option<Daemon>> = const { RefCell::new(None) };
}

fn body(data: &[u8]) {
    data.split(|byte| *byte == b'\n').for_each(decode);
    let daemon = DAEMON.take().unwrap_or_else(Daemon::start);
    let mut said = Vec::new();
    let mut lines = 0;
    let mut ended = false;
    for line in data.split_inclusive(|byte| *byte == b'\n') {
        if line.strip_suffix(b"\n") == Some(LONG) {
            said.resize(said.len() + LINE_BYTES_MAX + 4096, b'x');
            ended = true;
            break;
        }
        said.extend_from_slice(line);
        lines += usize::from(line.ends_with(b"\n"));
    }
    let answers = daemon.ask(&said);
    assert_eq!(answers.len(), lines + usize::from(ended), "one answer for each line");
    if ended {
        assert!(matches!(answers.last(), Some(Response::Error { .. })), "a line without end is no command");
    }
    let answers = daemon.ask(b"{\"command\":\"drain\",\"start\":true}\n");
    assert_eq!(answers, [Response::Done], "the next client is not served");
    DAEMON.set(Some(daemon));
}

/// What is understood can be said again, and means the same.
fn decode(line: &[u8]) {
    if let Ok(command) = serde_json::from_slice::<Command>(line) {
        let said = serde_json::to_vec(&command).expect("a command can be said");
        assert!(said.len() <= LINE_BYTES_MAX.max(line.len() * 6), "{command:?}");
        let again: Command = serde_json::from_slice(&said).expect("a command can be understood");
        assert_eq!(again, command);
    }
    if let Ok(response) = serde_json::from_slice::<Response>(line) {
        let said = serde_json::to_vec(&response).expect("an answer can be said");
        let again: Response = serde_json::from_slice(&said).expect("an answer can be understood");
        // Of numbers that are none (NaN) nothing can be said.
        assert_eq!(format!("{again:?}"), format!("{response:?}"));
    }
}

/// A daemon, as far as its control socket can tell.
struct Daemon {
    /// Dropped first: the pump ends when nobody can call it any more.
    server: Option<Server>,
    pump: Option<JoinHandle<()>>,
    socket: PathBuf,
    _folder: TempDir,
}

impl Daemon {
    fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("flashfront-fuzz-").tempdir().expect("a folder for a socket");
        let socket = folder.path().join("s");
        let poll = mio::Poll::new().expect("a poller");
        let waker = mio::Waker::new(poll.registry(), mio::Token(0)).expect("a waker");
        let (caller, calls) = Caller::new(Arc::new(waker));
        let server = Server::start(&socket, caller).expect("a socket in a new folder");
        let pump = std::thread::spawn(move || {
            let _poll = poll;
            for call in calls {
                let response = match call.command {
                    Command::Set { .. } => Response::Error { message: "no".to_owned() },
                    _ => Response::Done,
                };
                // A client that has gone is no error.
                let _ = call.reply.send(response);
            }
        });
        Self { server: Some(server), pump: Some(pump), socket, _folder: folder }
    }

    /// Says this, and nothing more; what was answered.
    fn ask(&self, said: &[u8]) -> Vec<Response> {
        let mut client = UnixStream::connect(&self.socket).expect("the daemon listens");
        let mut heard = Vec::new();
        let said_all = client.write_all(said).and_then(|()| client.shutdown(Shutdown::Write));
        let heard_all = client.read_to_end(&mut heard);
        // A line that is too long is not read to its end: the answer comes, and then a reset.
        let may_fail = said.len() > LINE_BYTES_MAX;
        assert!(may_fail || (said_all.is_ok() && heard_all.is_ok()), "{said_all:?} {heard_all:?}");
        let lines = heard.split_inclusive(|byte| *byte == b'\n');
        lines.map(|line| serde_json::from_slice(line).expect("an answer is a line of JSON")).collect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.server.take());
        if let Some(pump) = self.pump.take() {
            // It can't panic but by a bug, which has been reported then.
            let _ = pump.join();
        }
    }
}
