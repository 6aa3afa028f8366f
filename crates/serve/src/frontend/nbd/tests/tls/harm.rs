// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that break off, stall, lie or flood: the others are served on, and nothing leaks.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

use super::super::super::Listen;
use super::super::ram::Ram;
use super::super::server::{Order, Server};
use super::super::talk::{client_flags, hello, request};
use super::super::turns::Turns;
use super::client::{Duplex, ask, asked, dial, dial_and_ask, open, session};
use super::pki::Pki;
use flashfront_nbd_proto::wire::command;

fn serve(pki: &Pki) -> Server {
    let at = Listen::parse("tcp:127.0.0.1:0").unwrap();
    let dir = tempfile::tempdir().unwrap();
    Server::start_at(Ram::new(64 << 20, 512), Order::Fifo, &at, pki.options(false), dir)
}

/// The first bytes of a client's TLS.
fn client_hello(config: &Arc<ClientConfig>) -> Vec<u8> {
    let mut bytes = Vec::new();
    session(config).write_tls(&mut bytes).unwrap();
    bytes
}

/// Whether the server has hung up, after whatever it said.
fn hung_up(socket: &mut Box<dyn Duplex>) -> bool {
    match socket.read_to_end(&mut Vec::new()) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn plain_bytes_after_the_answer_end_the_connection() {
    let pki = Pki::new();
    let server = serve(&pki);
    let mut good = open(&server.at, &pki.any_client(), false).unwrap();
    for bytes in [hello(true)[4..].to_vec(), request(command::FLUSH, 0, 1, 0, 0), vec![0; 100_000], vec![0xff; 5]] {
        let mut socket = dial_and_ask(&server.at);
        // The server may be gone before all of it is written.
        drop(socket.write_all(&bytes));
        assert!(hung_up(&mut socket));
    }
    // And what comes in one go with STARTTLS.
    let mut socket = dial(&server.at);
    socket.write_all(&[ask(), client_hello(&pki.any_client())].concat()).unwrap();
    assert!(hung_up(&mut socket));
    good.write_all(&request(command::FLUSH, 0, 1, 0, 0)).unwrap();
    good.read_exact(&mut [0; 16]).unwrap();
    assert_eq!(server.stop().requests, 1);
}

#[test]
fn tls_without_starttls_is_hung_up_on() {
    let pki = Pki::new();
    let server = serve(&pki);
    let mut socket = dial(&server.at);
    socket.write_all(&client_hello(&pki.any_client())).unwrap();
    assert!(hung_up(&mut socket));
    server.stop();
}

#[test]
fn handshakes_that_break_off_leave_nothing_behind() {
    let pki = Pki::new();
    let server = serve(&pki);
    let config = pki.any_client();
    let whole = client_hello(&config);
    for cut in (0..=whole.len()).step_by(13) {
        let mut socket = dial_and_ask(&server.at);
        socket.write_all(&whole[..cut]).unwrap();
    }
    // More of them than there are places: each must have been given back.
    assert!(whole.len() / 13 + 70 > 64);
    for _ in 0..70 {
        drop(dial_and_ask(&server.at));
    }
    open(&server.at, &config, true).unwrap();
    server.stop();
}

#[test]
fn a_slow_tls_handshake_ends() {
    let pki = Pki::new();
    let server = serve(&pki);
    let config = pki.any_client();
    let mut good = open(&server.at, &config, false).unwrap();
    let mut flush = move || {
        good.write_all(&request(command::FLUSH, 0, 1, 0, 0)).unwrap();
        good.read_exact(&mut [0; 16]).unwrap();
    };
    let whole = client_hello(&config);
    let mut early = dial(&server.at);
    early.write_all(&client_flags()).unwrap();
    let mut slow = dial_and_ask(&server.at);
    slow.write_all(&whole[..whole.len() / 2]).unwrap();
    let mut half = dial_and_ask(&server.at);
    half.write_all(&whole).unwrap();
    // The server's part has come, so it has seen ours.
    half.read_exact(&mut [0; 5]).unwrap();
    flush();
    server.pass(Duration::from_secs(29));
    flush();
    server.pass(Duration::from_secs(2));
    assert!(hung_up(&mut early) && hung_up(&mut slow) && hung_up(&mut half));
    flush();
    server.stop();
}

#[test]
fn who_does_not_read_holds_nobody_up() {
    let pki = Pki::new();
    let server = serve(&pki);
    let config = pki.any_client();
    let mut sitters = Vec::new();
    for _ in 0..3 {
        let mut sitter = open(&server.at, &config, false).unwrap();
        sitter.write_all(&request(command::READ, 0, 1, 0, 32 << 20)).unwrap();
        sitter.read_exact(&mut [0; 1000]).unwrap();
        sitters.push(sitter);
    }
    let mut good = open(&server.at, &config, false).unwrap();
    good.write_all(&request(command::READ, 0, 1, 0, 1 << 20)).unwrap();
    good.read_exact(&mut vec![0; (1 << 20) + 16]).unwrap();
    // One of them goes on and gets the rest.
    sitters[0].read_exact(&mut vec![0; (32 << 20) + 16 - 1000]).unwrap();
    server.stop_impatiently();
}

#[test]
fn damage_on_the_way_ends_the_connection() {
    let pki = Pki::new();
    let server = serve(&pki);
    let mut client = open(&server.at, &pki.any_client(), false).unwrap();
    client.conn.writer().write_all(&request(command::FLUSH, 0, 1, 0, 0)).unwrap();
    let mut bytes = Vec::new();
    client.conn.write_tls(&mut bytes).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    client.sock.write_all(&bytes).unwrap();
    assert!(hung_up(&mut client.sock));
    assert_eq!(server.stop().requests, 0);
}

/// A client that has been told to begin.
pub(super) fn asked_in(turns: &mut Turns) -> UnixStream {
    let mut socket = UnixStream::connect(&turns.path).unwrap();
    socket.write_all(&ask()).unwrap();
    turns.settle();
    let mut said = vec![0; asked().len()];
    socket.read_exact(&mut said).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

#[test]
fn the_end_is_seen_with_the_last_bytes_of_a_handshake() {
    let pki = Pki::new();
    let mut turns = Turns::with(Ram::new(1 << 20, 512), pki.options(false));
    let config = pki.any_client();
    // Bytes and end are there before the server looks, and come as one event.
    let mut socket = asked_in(&mut turns);
    socket.write_all(&client_hello(&config)[..100]).unwrap();
    drop(socket);
    turns.settle();
    assert_eq!(turns.nbd.connections(), 0, "in the middle");

    let (mut socket, mut session) = (asked_in(&mut turns), session(&config));
    session.write_tls(&mut socket).unwrap();
    turns.settle();
    while session.is_handshaking() {
        session.read_tls(&mut socket).unwrap();
        session.process_new_packets().unwrap();
    }
    while session.wants_write() {
        session.write_tls(&mut socket).unwrap();
    }
    drop(socket);
    turns.settle();
    assert_eq!(turns.nbd.connections(), 0, "after it");
}

#[test]
fn handshakes_take_turns() {
    let pki = Pki::new();
    let mut turns = Turns::with(Ram::new(1 << 20, 512), pki.options(false));
    let config = pki.any_client();
    let mut clients = (0..3).map(|_| asked_in(&mut turns)).collect::<Vec<_>>();
    for socket in &mut clients {
        socket.write_all(&client_hello(&config)).unwrap();
    }
    let mut answered = 0;
    while answered < clients.len() {
        assert!(turns.turn(), "there is more to do");
        let more = clients.iter().filter(|socket| (&mut &**socket).read(&mut [0; 65536]).is_ok()).count();
        assert!(more <= 1, "{more} in one turn");
        answered += more;
    }
}
