// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control socket against good, broken and hostile clients.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use super::*;

/// A server whose pump answers `set` with an error and everything else with `done`.
struct World {
    dir: tempfile::TempDir,
    server: Option<Server>,
    pump: Option<JoinHandle<Vec<Command>>>,
}

impl World {
    fn new(patience: Duration) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let poll = mio::Poll::new().unwrap();
        let waker = Arc::new(mio::Waker::new(poll.registry(), mio::Token(0)).unwrap());
        let (caller, calls) = Caller::new(waker);
        let server = Server::with_patience(&dir.path().join("s"), caller, patience).unwrap();
        let pump = std::thread::spawn(move || {
            let _poll = poll;
            let mut seen = Vec::new();
            for call in calls {
                let response = match call.command {
                    Command::Set { .. } => Response::Error { message: "no".to_owned() },
                    _ => Response::Done,
                };
                seen.push(call.command);
                let _ = call.reply.send(response);
            }
            seen
        });
        Self { dir, server: Some(server), pump: Some(pump) }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    fn raw(&self) -> UnixStream {
        UnixStream::connect(self.path()).unwrap()
    }

    /// Ends it, and returns what the pump was asked.
    fn end(mut self) -> Vec<Command> {
        self.server.take();
        self.pump.take().unwrap().join().unwrap()
    }
}

#[test]
fn who_may_not_ask_is_told_who_may() {
    let said =
        |kind: std::io::ErrorKind| ClientError::Connect { path: "/run/x".into(), source: kind.into() }.to_string();
    let refused = said(std::io::ErrorKind::PermissionDenied);
    assert!(refused.contains("as root") && !refused.contains("running"), "{refused}");
    assert!(said(std::io::ErrorKind::ConnectionRefused).contains("is `flashfront serve` running"));
}

fn ask(stream: &UnixStream, line: &str) -> String {
    let mut stream = BufReader::new(stream);
    stream.get_mut().write_all(line.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_line(&mut answer).unwrap();
    answer
}

#[test]
fn commands_reach_the_pump_and_answers_come_back() {
    let world = World::new(LINE_TIMEOUT);
    let mut client = Client::connect(&world.path()).unwrap();
    assert_eq!(client.call(&Command::Drain { start: true }).unwrap(), Response::Done);
    let set = Command::Set {
        volume: Some("v".to_owned()),
        mode: Some(Mode::Writearound),
        dirty_limit: Some("20%".parse().unwrap()),
        sequential_bypass: Some(Size(0)),
    };
    let refused = client.call(&set).unwrap_err().to_string();
    assert!(refused.contains("no"), "{refused}");
    drop(client);
    assert_eq!(world.end(), [Command::Drain { start: true }, set]);
}

#[test]
fn nonsense_is_answered_and_the_connection_goes_on() {
    let world = World::new(LINE_TIMEOUT);
    let stream = world.raw();
    for line in [
        "\n",
        "hello\n",
        "{\"command\":\"fly\"}\n",
        "{\"command\":\"drain\"}\n",
        "{\"command\":\"set\",\"mode\":\"fast\"}\n",
        "{\"command\":\"set\",\"speed\":1}\n",
        "\u{0}\u{1}\n",
        "[[[[[[[[\n",
    ] {
        let answer = ask(&stream, line);
        assert!(answer.contains("not a command"), "{line:?}: {answer}");
    }
    assert_eq!(ask(&stream, "{\"command\":\"stop\"}\n"), "{\"reply\":\"done\"}\n");
    drop(stream);
    assert_eq!(world.end(), [Command::Stop]);
}

#[test]
fn a_command_may_come_in_pieces_and_two_in_one() {
    let world = World::new(LINE_TIMEOUT);
    let stream = world.raw();
    (&stream).write_all(b"{\"comm").unwrap();
    assert_eq!(ask(&stream, "and\":\"stop\"}\n"), "{\"reply\":\"done\"}\n");
    (&stream).write_all(b"{\"command\":\"stop\"}\n{\"command\":\"stop\"}\n").unwrap();
    let mut lines = BufReader::new(&stream).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "{\"reply\":\"done\"}");
    assert_eq!(lines.next().unwrap().unwrap(), "{\"reply\":\"done\"}");
}

#[test]
fn an_endless_line_is_cut_off() {
    let world = World::new(LINE_TIMEOUT);
    let mut stream = world.raw();
    let writer = stream.try_clone().unwrap();
    let flood = std::thread::spawn(move || while (&writer).write_all(&[b'x'; 4096]).is_ok() {});
    let mut answer = Vec::new();
    // The reset that follows may come instead of the end of the stream.
    let _ = stream.read_to_end(&mut answer);
    assert!(String::from_utf8_lossy(&answer).contains("longer than 65536"));
    flood.join().unwrap();
}

#[test]
fn a_slow_client_is_left() {
    let world = World::new(Duration::from_millis(50));
    let mut stream = world.raw();
    // It may have left before it is spoken to.
    let _ = stream.write_all(b"{");
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
    }
    assert!(answer.is_empty());
}

const STOP: &str = "{\"command\":\"stop\"}\n";

/// A monitoring script that leaks its connections must not keep the operator out, whatever they
/// have sent.
#[test]
fn silent_clients_hold_up_nobody() {
    for half in ["", "{\"comm"] {
        let world = World::new(LINE_TIMEOUT);
        let crowd: Vec<_> = (0..4 * CONNECTIONS_MAX).map(|_| world.raw()).collect();
        for stream in &crowd {
            // A client that was closed for the sake of others can't be written to.
            let _ = (&mut &*stream).write_all(half.as_bytes());
        }
        for _ in 0..3 {
            assert_eq!(ask(&world.raw(), STOP), "{\"reply\":\"done\"}\n");
        }
        let mut answer = Vec::new();
        let _ = (&crowd[0]).read_to_end(&mut answer);
        assert!(answer.is_empty(), "the first one was closed");
    }
}

#[test]
fn clients_that_read_no_answers_hold_up_nobody() {
    let world = World::new(LINE_TIMEOUT);
    let crowd: Vec<_> = (0..CONNECTIONS_MAX).map(|_| world.raw()).collect();
    let flood = |stream: &UnixStream| {
        let writer = stream.try_clone().unwrap();
        // It ends when the server has closed the connection: before that it waits for room, as the
        // server does.
        std::thread::spawn(move || while (&writer).write_all(STOP.as_bytes()).is_ok() {})
    };
    let floods: Vec<_> = crowd.iter().map(flood).collect();
    for _ in 0..3 {
        assert_eq!(ask(&world.raw(), STOP), "{\"reply\":\"done\"}\n");
    }
    crowd.iter().for_each(|stream| stream.shutdown(std::net::Shutdown::Both).unwrap_or_default());
    floods.into_iter().for_each(|flood| flood.join().unwrap());
}

#[test]
fn a_client_that_asked_stays_when_others_only_connect() {
    let world = World::new(LINE_TIMEOUT);
    let watching = world.raw();
    assert!(ask(&watching, STOP).contains("done"));
    let crowd: Vec<_> = (0..2 * CONNECTIONS_MAX).map(|_| world.raw()).collect();
    // All are accepted when this one is.
    assert!(ask(&world.raw(), STOP).contains("done"));
    assert!(ask(&watching, STOP).contains("done"));
    drop(crowd);
}

#[test]
fn the_end_does_not_wait_for_idle_clients() {
    let world = World::new(LINE_TIMEOUT);
    let crowd: Vec<_> = (0..CONNECTIONS_MAX + 1).map(|_| world.raw()).collect();
    let path = world.path();
    world.end();
    assert!(!path.exists());
    drop(crowd);
}

#[test]
fn the_socket_is_its_owners() {
    let world = World::new(LINE_TIMEOUT);
    let mode = std::fs::metadata(world.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_live_socket_is_refused_and_a_stale_one_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let (listener, file) = bind(&path).unwrap();
    assert!(matches!(bind(&path), Err(BindError::InUse(_))));
    assert!(path.exists());
    drop(listener);
    let (second, second_file) = bind(&path).unwrap();
    drop(file);
    assert!(path.exists(), "the first owner removed the second's socket");
    drop((second, second_file));
    assert!(!path.exists());
}

/// A daemon that replays takes no clients yet; a daemon that a signal has stopped soon takes none.
#[test]
fn a_live_socket_with_a_full_queue_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let _live = bind(&path).unwrap();
    let address = rustix::net::SocketAddrUnix::new(&path).unwrap();
    let mut crowd = Vec::new();
    loop {
        let flags = rustix::net::SocketFlags::NONBLOCK;
        let (family, kind) = (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM);
        let client = rustix::net::socket_with(family, kind, flags, None).unwrap();
        if rustix::net::connect(&client, &address).is_err() {
            break;
        }
        crowd.push(client);
    }
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(bind(&path).map(drop)));
    // A test that would hang fails instead.
    let refused = told.recv_timeout(Duration::from_secs(60)).expect("it waits for a place in the queue");
    assert!(matches!(refused, Err(BindError::InUse(_))), "{refused:?}");
}

#[test]
fn what_is_not_a_socket_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    std::fs::write(&path, "precious").unwrap();
    assert!(matches!(bind(&path), Err(BindError::NotASocket(_))));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    let long = dir.path().join("x".repeat(120));
    assert!(matches!(bind(&long), Err(BindError::TooLong { .. })));
    assert!(matches!(bind(&dir.path().join("no/s")), Err(BindError::Io { .. })));
}

#[test]
fn a_missing_daemon_is_named() {
    let error = Client::connect(Path::new("/nowhere/s")).unwrap_err().to_string();
    assert!(error.contains("/nowhere/s") && error.contains("flashfront serve"), "{error}");
}
