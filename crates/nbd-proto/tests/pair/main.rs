// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client and the server in memory, and all the ways in which bytes can be cut between them.

mod disk;
mod guest;
mod hostile;

use std::collections::BTreeMap;

use flashfront_nbd_proto::client::Wanted;
use flashfront_nbd_proto::server::Security;
use flashfront_nbd_proto::wire::Replies;

use disk::Disk;
use guest::{Guest, Heard, assert_right, script};

const ALL: [Replies; 3] = [Replies::Simple, Replies::Structured, Replies::Extended];

fn wanted(replies: Replies, tls: bool) -> Wanted {
    Wanted { tls, replies, ..Wanted::all_of("ram") }
}

/// All that each of the two said.
struct Said {
    server: Vec<u8>,
    client: Vec<u8>,
    heard: BTreeMap<u64, Heard>,
}

/// Both ends talk until nothing moves; each transfer, either way, has at most `cut` bytes.
fn talk(replies: Replies, tls: bool, cut: usize) -> Said {
    let (mut server_out, mut client_out) = (Vec::new(), Vec::new());
    let (mut server_in, mut client_in) = (Vec::new(), Vec::new());
    let (mut server, mut client) = (Vec::new(), Vec::new());
    let security = if tls { Security::Required } else { Security::Off };
    let mut disk = Disk::new(security, &mut server_out);
    let mut guest = Guest::new(wanted(replies, tls), script(replies != Replies::Simple));
    loop {
        let before = server.len() + client.len();
        let moved: Vec<u8> = server_out.drain(..cut.min(server_out.len())).collect();
        server.extend(&moved);
        client_in.extend(moved);
        let moved: Vec<u8> = client_out.drain(..cut.min(client_out.len())).collect();
        client.extend(&moved);
        server_in.extend(moved);
        if guest.take(&mut client_in, &mut client_out) {
            guest.client.enter_tls(&mut client_out);
        }
        if disk.take(&mut server_in, &mut server_out) && server_out.is_empty() {
            disk.server.enter_tls();
        }
        if server.len() + client.len() == before && client_out.is_empty() {
            disk.carry_out(&mut server_out);
            if server_out.is_empty() {
                break;
            }
        }
    }
    assert_eq!(guest.client.outstanding(), 0);
    assert_eq!(guest.client.replies(), replies);
    Said { server, client, heard: guest.heard }
}

#[test]
fn the_client_and_the_server_understand_each_other() {
    for replies in ALL {
        for tls in [false, true] {
            assert_right(&talk(replies, tls, usize::MAX).heard, replies != Replies::Simple);
        }
    }
}

/// Transfers of all lengths up to 64 bytes, and each place where a stream can be cut in two.
#[test]
fn any_split_says_the_same() {
    for replies in ALL {
        let whole = talk(replies, false, usize::MAX);
        for cut in 1..=64 {
            let said = talk(replies, false, cut);
            assert_eq!((said.client, said.heard), (whole.client.clone(), whole.heard.clone()), "{replies:?} {cut}");
        }
        for cut in 0..whole.client.len() {
            let mut out = Vec::new();
            let mut disk = Disk::new(Security::Off, &mut out);
            let mut input = whole.client[..cut].to_vec();
            disk.take(&mut input, &mut out);
            input.extend(&whole.client[cut..]);
            disk.take(&mut input, &mut out);
            disk.carry_out(&mut out);
            assert_eq!(out, whole.server, "{replies:?}: the server, cut at {cut}");
        }
        for cut in 0..whole.server.len() {
            let mut out = Vec::new();
            let mut guest = Guest::new(wanted(replies, false), script(replies != Replies::Simple));
            let mut input = whole.server[..cut].to_vec();
            guest.take(&mut input, &mut out);
            input.extend(&whole.server[cut..]);
            guest.take(&mut input, &mut out);
            assert_eq!((&out, &guest.heard), (&whole.client, &whole.heard), "{replies:?}: the client, cut at {cut}");
        }
    }
}

#[test]
fn a_server_that_knows_less_is_taken_as_it_is() {
    // Answers "unsupported" to all options but GO.
    let mut client = flashfront_nbd_proto::client::Client::new(Wanted::all_of("ram"));
    let mut out = Vec::new();
    let greeting = b"NBDMAGICIHAVEOPT\0\x03";
    assert_eq!(client.step(greeting, &mut out), Ok(flashfront_nbd_proto::client::Step::Took(18)));
    for option in [11, 8] {
        let mut answer = Vec::new();
        flashfront_nbd_proto::wire::encode_answer(&mut answer, option, 1 << 31 | 1, b"no");
        client.step(&answer, &mut out).unwrap();
    }
    let mut answers = Vec::new();
    let size_and_flags = [&[0, 0], &4096_u64.to_be_bytes()[..], &1_u16.to_be_bytes()].concat();
    flashfront_nbd_proto::wire::encode_answer(&mut answers, 7, 3, &size_and_flags);
    let info = answers.len();
    flashfront_nbd_proto::wire::encode_answer(&mut answers, 7, 1, &[]);
    assert_eq!(client.step(&answers, &mut out), Ok(flashfront_nbd_proto::client::Step::Took(info)));
    assert_eq!(client.step(&answers[info..], &mut out), Ok(flashfront_nbd_proto::client::Step::Opened(20)));
    assert_eq!((client.replies(), client.contexts().len()), (Replies::Simple, 0));
    assert_eq!(client.info().map(|info| info.sizes.minimum), Some(512));
}
