// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients inside TLS that are held, and handed to another program: in a handshake, in the middle
//! of a write, and between two requests.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustls::{ClientConfig, ClientConnection, version};

use super::super::ram::Ram;
use super::super::talk::request;
use super::super::turns::Turns;
use super::client::{options, session};
use super::harm::asked_in;
use super::pki::Pki;
use crate::frontend::Frontend;
use flashfront_nbd_proto::wire::command;

/// A client whose turns are the test's.
struct Client {
    socket: UnixStream,
    session: ClientConnection,
    /// What it has heard.
    heard: Vec<u8>,
    ended: bool,
}

impl Client {
    /// A client that was told to begin with TLS.
    fn asked(turns: &mut Turns, config: &Arc<ClientConfig>) -> Self {
        Self { socket: asked_in(turns), session: session(config), heard: Vec::new(), ended: false }
    }

    /// A client with the export.
    fn open(turns: &mut Turns, config: &Arc<ClientConfig>) -> Self {
        let mut client = Self::asked(turns, config);
        client.say(turns, &options(false));
        assert!(!client.session.is_handshaking() && !client.heard.is_empty());
        client.heard.clear();
        client
    }

    fn send(&mut self) {
        while self.session.wants_write() {
            self.session.write_tls(&mut self.socket).unwrap();
        }
    }

    /// Says that as soon as the handshake allows it, and hears what comes back.
    fn say(&mut self, turns: &mut Turns, bytes: &[u8]) {
        self.session.writer().write_all(bytes).unwrap();
        loop {
            self.send();
            turns.settle();
            if !self.hear() {
                return;
            }
        }
    }

    /// Hears what is there; says whether that was anything.
    fn hear(&mut self) -> bool {
        match self.session.read_tls(&mut self.socket) {
            Ok(0) => self.ended = true,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(_) => self.ended = true,
        }
        self.session.process_new_packets().unwrap();
        let mut part = [0; 1 << 15];
        while let Ok(bytes @ 1..) = self.session.reader().read(&mut part) {
            self.heard.extend_from_slice(&part[..bytes]);
        }
        !self.ended
    }
}

fn turns(pki: &Pki) -> Turns {
    Turns::with(Ram::new(1 << 20, 512), pki.options(false))
}

/// Both versions of TLS.
fn configs(pki: &Pki) -> [Arc<ClientConfig>; 2] {
    [pki.client(&version::TLS13, None), pki.client(&version::TLS12, None)]
}

#[test]
fn a_client_goes_on_in_another_program_and_in_the_next() {
    let pki = Pki::new();
    for config in configs(&pki) {
        let mut turns = turns(&pki);
        let mut client = Client::open(&mut turns, &config);
        for round in 1..4 {
            turns.hold(false);
            assert!(turns.nbd.held());
            // What it asks for meanwhile is not begun, wherever it waits.
            let write = [request(command::WRITE, 0, round, 0, 4096), vec![round as u8; 4096]].concat();
            client.say(&mut turns, &write);
            assert!(client.heard.is_empty());
            turns = turns.hand_over();
            turns.settle();
            turns.execute(1);
            client.say(&mut turns, &request(command::READ, 0, 100 + round, 0, 4096));
            turns.execute(1);
            client.say(&mut turns, &[]);
            assert_eq!(client.heard.len(), 16 + 16 + 4096, "round {round}");
            assert!(client.heard[32..].iter().all(|byte| *byte == round as u8));
            client.heard.clear();
        }
        client.say(&mut turns, &request(command::DISCONNECT, 0, 0, 0, 0));
        assert_eq!(turns.nbd.connections(), 0);
        client.hear();
        assert!(client.session.process_new_packets().unwrap().peer_has_closed(), "the end is said");
    }
}

#[test]
fn a_write_that_has_come_in_part_is_finished_first() {
    let pki = Pki::new();
    for config in configs(&pki) {
        let mut turns = turns(&pki);
        let mut client = Client::open(&mut turns, &config);
        client.say(&mut turns, &[request(command::WRITE, 0, 1, 0, 40960), vec![7; 10_000]].concat());
        turns.hold(false);
        assert!(!turns.nbd.held());
        client.say(&mut turns, &[[7; 30_960].as_slice(), &request(command::READ, 0, 2, 0, 512)].concat());
        turns.execute(1);
        client.say(&mut turns, &[]);
        assert_eq!((turns.nbd.held(), client.heard.len()), (true, 16), "the read is not begun");
        turns = turns.hand_over();
        turns.settle();
        turns.execute(1);
        client.say(&mut turns, &[]);
        assert_eq!((client.heard.len(), client.heard.last()), (16 + 16 + 512, Some(&7)));
    }
}

#[test]
fn a_handshake_is_waited_for_and_goes_on_meanwhile() {
    let pki = Pki::new();
    for config in configs(&pki) {
        for cut in [0, 3, 100] {
            let mut turns = turns(&pki);
            let mut client = Client::asked(&mut turns, &config);
            let mut bytes = Vec::new();
            client.session.write_tls(&mut bytes).unwrap();
            client.socket.write_all(&bytes[..cut]).unwrap();
            turns.settle();
            turns.hold(false);
            assert!(!turns.nbd.held(), "a handshake can't be handed over");
            client.socket.write_all(&bytes[cut..]).unwrap();
            client.say(&mut turns, &options(false));
            assert!(!client.session.is_handshaking() && client.heard.is_empty());
            assert!(turns.nbd.held());
            turns = turns.hand_over();
            client.say(&mut turns, &[]);
            assert!(!client.heard.is_empty(), "its options are answered");
        }
    }
}

#[test]
fn clients_inside_tls_are_closed_if_that_is_said() {
    let pki = Pki::new();
    let mut turns = turns(&pki);
    let [config, other] = configs(&pki);
    let mut clients =
        [Client::open(&mut turns, &config), Client::open(&mut turns, &other), Client::asked(&mut turns, &config)];
    // And a client without TLS, which stays.
    let mut plain = UnixStream::connect(&turns.path).unwrap();
    turns.settle();
    assert_eq!(turns.nbd.connections(), 4);
    turns.hold(true);
    assert!(turns.nbd.held());
    assert_eq!(turns.nbd.connections(), 1);
    for client in &mut clients {
        while client.hear() {}
        assert!(client.ended);
    }
    let mut turns = turns.hand_over();
    turns.settle();
    assert_eq!(turns.nbd.connections(), 1);
    plain.read_exact(&mut [0; 18]).unwrap();
}

#[test]
fn clients_that_were_held_in_vain_go_on() {
    let pki = Pki::new();
    for config in configs(&pki) {
        let mut turns = turns(&pki);
        let mut client = Client::open(&mut turns, &config);
        let mut late = Client::asked(&mut turns, &config);
        turns.hold(false);
        client.say(&mut turns, &request(command::FLUSH, 0, 1, 0, 0));
        assert!(client.heard.is_empty());
        turns.nbd.release();
        turns.settle();
        turns.execute(1);
        client.say(&mut turns, &[]);
        assert_eq!(client.heard.len(), 16);
        late.say(&mut turns, &options(false));
        assert!(!late.heard.is_empty());
    }
}
