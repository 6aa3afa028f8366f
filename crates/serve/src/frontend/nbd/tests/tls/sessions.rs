// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients inside TLS over real sockets: all that works without it, and who is let in.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::Arc;

use rustls::{ClientConfig, version};

use super::super::super::Listen;
use super::super::ram::Ram;
use super::super::server::{Order, Server};
use super::super::talk::{replies, request};
use super::client::{enter, hear_options, open, options};
use super::pki::Pki;
use flashfront_nbd_proto::wire::{answer, command};

const DISK_BYTES: u64 = 64 << 20;
const MIB: u32 = 1 << 20;

fn noise(bytes: usize, mut state: u64) -> Vec<u8> {
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

fn serve(pki: &Pki, verify_peer: bool, order: Order, tcp: bool) -> Server {
    let dir = tempfile::tempdir().unwrap();
    let at = if tcp { Listen::parse("tcp:127.0.0.1:0").unwrap() } else { Listen::Unix(dir.path().join("socket")) };
    Server::start_at(Ram::new(DISK_BYTES, 512), order, &at, pki.options(verify_peer), dir)
}

/// Writes all of the disk by requests of 32 MiB, reads it by many at once; what it wrote.
fn work(at: &Listen, config: &Arc<ClientConfig>, structured: bool, seed: u64) -> Vec<u8> {
    let mut client = open(at, config, structured).unwrap();
    let content = noise(DISK_BYTES as usize, seed);
    let mut reads = BTreeMap::new();
    let mut said = vec![0; 16 * 3];
    for (cookie, half) in (1..).zip(content.chunks(32 << 20)) {
        client.write_all(&request(command::WRITE, 0, cookie, (cookie - 1) << 25, 32 << 20)).unwrap();
        client.write_all(half).unwrap();
    }
    client.write_all(&request(command::FLUSH, 0, 3, 0, 0)).unwrap();
    client.read_exact(&mut said).unwrap();
    let heard = replies(&said, structured, &reads);
    assert!(heard.len() == 3 && heard.values().all(|heard| heard.error == 0));

    // As many as a connection may have, of all sizes.
    let head = if structured { 28 } else { 16 };
    let mut bytes = Vec::new();
    let mut expected = BTreeMap::new();
    for cookie in 0..128u64 {
        let len = if cookie % 3 == 0 { MIB } else { 512 + 1536 * cookie as u32 };
        let offset = (cookie * 499_979 * 512) % (DISK_BYTES - u64::from(MIB));
        bytes.extend(request(command::READ, 0, cookie, offset, len));
        reads.insert(cookie, len);
        expected.insert(cookie, &content[offset as usize..][..len as usize]);
    }
    client.write_all(&bytes).unwrap();
    let mut said = vec![0; reads.values().map(|&len| len as usize + head).sum()];
    client.read_exact(&mut said).unwrap();
    for (cookie, heard) in replies(&said, structured, &reads) {
        assert!((heard.error, heard.data.as_slice()) == (0, expected[&cookie]), "{cookie}");
    }
    client.write_all(&request(command::DISCONNECT, 0, 0, 0, 0)).unwrap();
    // The end is said, not only found: the connection was not cut.
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    content
}

#[test]
fn long_and_many_requests_work_in_both_versions() {
    let pki = Pki::new();
    for (version, order, tcp) in [
        (&version::TLS13, Order::Shuffled, true),
        (&version::TLS12, Order::Fifo, true),
        (&version::TLS13, Order::Fifo, false),
    ] {
        let server = serve(&pki, false, order, tcp);
        assert_eq!(server.uri.starts_with("nbds://127.0.0.1:"), tcp, "{}", server.uri);
        let content = work(&server.at, &pki.client(version, None), tcp, 7);
        assert!(server.stop().disk == content);
    }
}

#[test]
fn plain_clients_are_served_by_a_unix_socket_only() {
    let pki = Pki::new();
    let server = serve(&pki, false, Order::Fifo, false);
    let mut plain = super::super::super::connect(&server.at, "disk", true).unwrap();
    plain.write_at(0, &[7; 4096], true).unwrap();
    drop(plain);
    server.stop();

    let server = serve(&pki, false, Order::Fifo, true);
    let refused = super::super::super::connect(&server.at, "disk", true).map(drop);
    assert!(refused.is_err(), "a plain client over TCP");
    open(&server.at, &pki.any_client(), true).unwrap();
    assert_eq!(server.stop().requests, 0);
}

#[test]
fn records_of_one_byte_say_the_same() {
    let pki = Pki::new();
    let server = serve(&pki, false, Order::Fifo, true);
    let mut client = enter(&server.at, &pki.any_client()).unwrap();
    for byte in options(true) {
        client.write_all(&[byte]).unwrap();
    }
    let kinds = hear_options(&mut client).unwrap();
    assert_eq!(kinds.last(), Some(&answer::ACK));
    for byte in [request(command::WRITE, 0, 1, 512, 20480), vec![9; 20480]].concat() {
        client.write_all(&[byte]).unwrap();
    }
    client.read_exact(&mut [0; 16]).unwrap();
    assert_eq!(server.stop().disk[512..][..20480], [9; 20480]);
}

#[test]
fn many_clients_get_in_at_once() {
    let pki = Pki::new();
    let server = serve(&pki, true, Order::Shuffled, true);
    let config = pki.client(&version::TLS13, Some(&pki));
    std::thread::scope(|scope| {
        for number in 0..16u64 {
            let (at, config) = (&server.at, &config);
            scope.spawn(move || {
                let mut client = open(at, config, false).unwrap();
                client.write_all(&request(command::WRITE, 0, 1, number << 20, MIB)).unwrap();
                client.write_all(&vec![number as u8; MIB as usize]).unwrap();
                client.read_exact(&mut [0; 16]).unwrap();
            });
        }
    });
    let disk = server.stop().disk;
    assert!((0..16).all(|number| disk[number << 20..][..1 << 20].iter().all(|&byte| byte == number as u8)));
}

#[test]
fn only_whom_the_authority_knows_is_let_in() {
    let (pki, other) = (Pki::new(), Pki::new());
    let server = serve(&pki, true, Order::Fifo, true);
    for version in [&version::TLS13, &version::TLS12] {
        for stranger in [pki.client(version, None), pki.client(version, Some(&other))] {
            let refused = open(&server.at, &stranger, true).map(drop);
            assert!(refused.is_err(), "{version:?}");
        }
        open(&server.at, &pki.client(version, Some(&pki)), true).unwrap();
    }
    assert_eq!(server.stop().requests, 0);
    // Without --tls-verify-peer no client is asked for a certificate.
    let server = serve(&pki, false, Order::Fifo, true);
    open(&server.at, &pki.client(&version::TLS13, Some(&other)), true).unwrap();
    server.stop();
}
