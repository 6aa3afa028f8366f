// SPDX-License-Identifier: MIT OR Apache-2.0
//! A daemon that is short of descriptors: nobody may take all of them, and who could not be served
//! is served later.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::harness::{Daemon, Volume, free_port, must, tool};

/// A test that would hang fails instead.
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn who_asks_for_nothing_over_http_keeps_nobody_out() {
    let volume = Volume::new(32, 64);
    must(&mut volume.format());
    let http = free_port();
    let daemon = Daemon::spawn(volume.serve().args(["--http", &format!("127.0.0.1:{http}")]), &volume.log);
    daemon.ready();
    daemon.limit_descriptors(Some(20));
    let connect = || TcpStream::connect(("127.0.0.1", http)).expect("the daemon listens");
    let crowd: Vec<TcpStream> = (0..100).map(|_| connect()).collect();
    let mut client = UnixStream::connect(&volume.socket).expect("the daemon listens");
    client.set_read_timeout(Some(LIMIT)).expect("a socket has timeouts");
    let greeted = client.read_exact(&mut [0; 18]);
    assert!(greeted.is_ok(), "{greeted:?}: clients of HTTP have all descriptors\n{}", daemon.stderr());
    drop(crowd);
    assert_well(&mut prober(http));
    daemon.stop();
}

#[test]
fn operators_who_could_not_be_accepted_are_when_there_are_descriptors_again() {
    let mut volume = Volume::served(32, 64, "writeback");
    volume.limit_descriptors(Some(0));
    let mut operator = UnixStream::connect(&volume.control).expect("the daemon listens");
    operator.set_read_timeout(Some(LIMIT)).expect("a socket has timeouts");
    operator.write_all(b"{\"command\":\"status\"}\n").expect("it listens");
    until_it_says(|| volume.stderr(), "control socket: no file descriptor is left");
    volume.limit_descriptors(None);
    let status = operator.read(&mut [0; 100]);
    assert!(status.is_ok(), "{status:?}\n{}", volume.stderr());
    volume.stop();
}

#[test]
fn probers_who_could_not_be_accepted_are_when_there_are_descriptors_again() {
    let volume = Volume::new(32, 64);
    must(&mut volume.format());
    let http = free_port();
    let daemon = Daemon::spawn(volume.serve().args(["--http", &format!("127.0.0.1:{http}")]), &volume.log);
    daemon.ready();
    daemon.limit_descriptors(Some(0));
    let mut prober = prober(http);
    until_it_says(|| daemon.stderr(), "http: no file descriptor is left");
    daemon.limit_descriptors(None);
    assert_well(&mut prober);
    daemon.stop();
}

/// By NBD, with one thread and with several, and by vhost-user-blk: it is said once, with the limit
/// and what to do.
#[test]
fn clients_who_could_not_be_accepted_are_when_there_are_descriptors_again() {
    for threads in [1, 3] {
        let mut volume = Volume::new(32, 64);
        volume.threads = threads;
        must(&mut volume.format());
        volume.start();
        volume.limit_descriptors(Some(0));
        let mut clients: Vec<UnixStream> =
            (0..3).map(|_| UnixStream::connect(&volume.socket).expect("the daemon listens")).collect();
        until_it_says(|| volume.stderr(), "no file descriptor is left");
        let log = volume.stderr();
        assert!(log.contains("NBD at unix:") && log.contains("LimitNOFILE=") && log.contains("ulimit -n"), "{log}");
        volume.limit_descriptors(None);
        for client in &mut clients {
            client.set_read_timeout(Some(LIMIT)).expect("a socket has timeouts");
            let greeted = client.read_exact(&mut [0; 18]);
            assert!(greeted.is_ok(), "{greeted:?}, {threads} threads\n{}", volume.stderr());
        }
        assert_eq!(volume.stderr().matches("no file descriptor is left").count(), 1, "{}", volume.stderr());
        volume.stop();
    }
}

/// A soft limit that is too low is raised; a hard one is told.
#[test]
fn the_limit_of_descriptors_is_raised_or_told() {
    for (limit, raised) in [("-Sn 70", true), ("-n 70", false)] {
        let volume = Volume::new(32, 64);
        must(&mut volume.format());
        let serve = volume.serve();
        let mut limited = tool("sh");
        limited.arg("-c").arg(format!("ulimit {limit} && exec \"$@\"")).arg("sh");
        limited.arg(serve.get_program()).args(serve.get_args()).env_remove("XDG_RUNTIME_DIR");
        let daemon = Daemon::spawn(&mut limited, &volume.log);
        daemon.ready();
        let (log, limits) = (daemon.stderr(), format!("/proc/{}/limits", volume.status()["pid"]));
        let limits = std::fs::read_to_string(limits).expect("the daemon runs");
        let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("there is such a limit");
        let soft: u64 = line.split_whitespace().nth(3).and_then(|it| it.parse().ok()).expect("a number");
        assert_eq!(soft > 70, raised, "{limits}");
        assert_eq!(log.contains("70 file descriptors are all that this process may have"), !raised, "{log}");
        daemon.stop();
    }
}

/// Somebody who asks how the daemon is.
fn prober(http: u16) -> TcpStream {
    let mut prober = TcpStream::connect(("127.0.0.1", http)).expect("the daemon listens");
    prober.set_read_timeout(Some(LIMIT)).expect("a socket has timeouts");
    prober.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("it listens");
    prober
}

#[track_caller]
fn assert_well(prober: &mut TcpStream) {
    let mut answer = String::new();
    prober.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

fn until_it_says(stderr: impl Fn() -> String, word: &str) {
    while !stderr().contains(word) {
        assert!(!stderr().contains("panicked"), "{}", stderr());
        std::thread::yield_now();
    }
}
