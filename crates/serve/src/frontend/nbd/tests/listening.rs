// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses and what is found at them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use super::super::listen::Acceptor;
use super::super::stream::Socket;
use super::super::{BindError, Listen, Nbd, NbdOptions};
use crate::control::BindError as SocketError;

fn bind(path: &Path) -> Result<Nbd, BindError> {
    Nbd::bind(&Listen::Unix(path.to_owned()), NbdOptions::default())
}

#[test]
fn addresses_are_read_and_written() {
    for (text, uri) in [
        ("unix:/run/a b.sock", "nbd+unix:///?socket=/run/a%20b.sock"),
        ("tcp:127.0.0.1:10809", "nbd://127.0.0.1:10809"),
        ("tcp:localhost:1", "nbd://localhost:1"),
        ("tcp:[::1]:10809", "nbd://[::1]:10809"),
    ] {
        let listen = Listen::parse(text).unwrap();
        assert_eq!(listen.uri("", false), uri);
        assert_eq!(listen.to_string(), text);
    }
    // A relative path means something else in the client's folder.
    let whole = std::env::current_dir().unwrap().join("rel");
    assert_eq!(Listen::parse("unix:rel").unwrap().uri("", false), format!("nbd+unix:///?socket={}", whole.display()));
    assert_eq!(Listen::parse("unix:/s").unwrap().uri("a?b", false), "nbd+unix:///a%3Fb?socket=/s");
    assert_eq!(Listen::parse("tcp:h:1").unwrap().uri("v1", false), "nbd://h:1/v1");
    assert_eq!(Listen::parse("tcp:[::1]:1").unwrap().uri("v1", true), "nbds://[::1]:1/v1");
    assert_eq!(Listen::parse("unix:/s").unwrap().uri("", true), "nbd+unix:///?socket=/s");
}

#[test]
fn bad_addresses_say_what_is_expected() {
    for (text, word) in [
        ("/run/sock", "unix:PATH"),
        ("", "unix:PATH"),
        ("unix:", "path"),
        ("tcp:", "port"),
        ("tcp:host", "port"),
        ("tcp:host:", "port"),
        ("tcp:host:65536", "port"),
        ("tcp::10809", "host"),
        ("tcp:[]:10809", "host"),
    ] {
        let error = Listen::parse(text).unwrap_err().to_string();
        assert!(error.contains(word) && error.contains(&format!("{text:?}")), "{error}");
    }
}

#[test]
fn tcp_beyond_this_machine_is_refused() {
    for text in ["tcp:0.0.0.0:0", "tcp:[::]:0", "tcp:192.0.2.1:0"] {
        let listen = Listen::parse(text).unwrap();
        let error = Nbd::bind(&listen, NbdOptions::default()).unwrap_err();
        assert!(matches!(error, BindError::Insecure(_)), "{error}");
        let text = error.to_string();
        assert!(text.contains("--insecure") && text.contains("--tls-certificates"), "{text}");
    }
    let options = NbdOptions { insecure: true, ..NbdOptions::default() };
    let nbd = Nbd::bind(&Listen::parse("tcp:0.0.0.0:0").unwrap(), options).unwrap();
    assert!(matches!(nbd.address(), Listen::Tcp { port, .. } if *port != 0));
}

#[test]
fn the_socket_is_for_its_owner_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let nbd = bind(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    drop(nbd);
}

#[test]
fn a_dead_daemons_socket_is_replaced_and_a_living_ones_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "std leaves the file, as a killed daemon does");
    let living = bind(&path).unwrap();
    let error = bind(&path).unwrap_err();
    assert!(matches!(error, BindError::Unix(SocketError::InUse(_))), "{error}");
    assert!(path.exists());
    drop(living);
    bind(&path).unwrap();
}

#[test]
fn another_kind_of_file_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "precious").unwrap();
    let error = bind(&path).unwrap_err();
    assert!(matches!(error, BindError::Unix(SocketError::NotASocket(_))), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    let nowhere = bind(&dir.path().join("no/such/dir")).unwrap_err();
    assert!(nowhere.to_string().contains("no/such/dir"), "{nowhere}");
}

#[test]
fn a_socket_that_took_our_place_is_not_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let nbd = bind(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let other = UnixListener::bind(&path).unwrap();
    drop(nbd);
    assert!(path.exists());
    drop(other);
}

/// A machine that has lost its power closes no connection, and its clients would keep their places
/// for ever.
#[test]
fn clients_of_machines_that_are_gone_are_noticed() {
    let (mut acceptor, at) = Acceptor::bind(&Listen::parse("tcp:127.0.0.1:0").unwrap(), false).unwrap();
    let Listen::Tcp { host, port } = at else { panic!("not TCP") };
    let _client = std::net::TcpStream::connect((host, port)).unwrap();
    // The kernel has it in its queue when the client is told.
    let Socket::Tcp(socket) = acceptor.accept().unwrap().socket else { panic!("not TCP") };
    assert!(rustix::net::sockopt::socket_keepalive(&socket).unwrap());
    assert!(rustix::net::sockopt::tcp_keepidle(&socket).unwrap() <= std::time::Duration::from_secs(60));
}
