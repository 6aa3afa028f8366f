// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options before and after STARTTLS, without any TLS: bytes in, bytes out.

use std::collections::BTreeMap;

use super::super::super::wait::Wait;
use super::super::protocol::answers_in;
use super::super::ram::Ram;
use super::super::talk::{Talk, client_flags, hello, info_data, replies, request};
use super::client::{ask, asked, options};
use flashfront_nbd_proto::server::Security;
use flashfront_nbd_proto::wire::{self, answer, command, option};

fn talk(security: Security) -> Talk {
    Talk::secured(Ram::new(1 << 20, 512), security)
}

#[test]
fn nothing_goes_before_tls_where_it_is_required() {
    let go = || info_data("disk", &[]);
    for (option, data) in [
        (option::LIST, vec![]),
        (option::INFO, go()),
        (option::GO, go()),
        (option::STRUCTURED_REPLY, vec![]),
        (9, vec![0; 8]),
        (12345, vec![0; (64 << 10) + 1]),
        (option::LIST, vec![1]),
    ] {
        let (kinds, goes_on) = answers_in(talk(Security::Required), &[(option, data), (option::GO, go())]);
        let expected = [(option, answer::TLS_REQUIRED), (option::GO, answer::TLS_REQUIRED)];
        assert_eq!((kinds.as_slice(), goes_on), (expected.as_slice(), true));
    }
    let (kinds, goes_on) = answers_in(talk(Security::Required), &[(option::ABORT, vec![])]);
    assert_eq!((kinds.as_slice(), goes_on), ([(option::ABORT, answer::ACK)].as_slice(), false));
    let (kinds, goes_on) = answers_in(talk(Security::Required), &[(option::EXPORT_NAME, b"disk".to_vec())]);
    assert_eq!((kinds.as_slice(), goes_on), ([].as_slice(), false));
}

#[test]
fn tls_starts_once_and_without_data() {
    for security in [Security::Offered, Security::Required] {
        let (kinds, goes_on) = answers_in(talk(security), &[(option::STARTTLS, vec![1]), (option::STARTTLS, vec![])]);
        let kinds = kinds.into_iter().map(|(_, kind)| kind).collect::<Vec<_>>();
        assert_eq!((kinds.as_slice(), goes_on), ([answer::INVALID, answer::ACK].as_slice(), true));
    }
    let go = (option::GO, info_data("disk", &[]));
    let (kinds, _) = answers_in(talk(Security::On), &[(option::STARTTLS, vec![]), go.clone()]);
    let kinds = kinds.into_iter().map(|(_, kind)| kind).collect::<Vec<_>>();
    assert_eq!(kinds, [answer::INVALID, answer::INFO, answer::INFO, answer::ACK]);
    // Where it is offered it may be done without.
    let (kinds, _) = answers_in(talk(Security::Offered), &[go]);
    assert_eq!(kinds.len(), 3);
}

#[test]
fn what_was_agreed_on_before_is_forgotten() {
    let mut talk = talk(Security::Offered);
    let mut bytes = client_flags();
    wire::encode_option(&mut bytes, option::STRUCTURED_REPLY, &[]);
    talk.hear(&bytes);
    talk.hear(&ask()[4..]);
    assert_eq!(talk.connection.advance(&mut talk.ram, true), Wait::Tls);
    assert!(talk.connection.in_handshake(), "its deadline must go on");
    talk.connection.enter_tls();
    talk.hear(&options(false));
    talk.said.clear();
    talk.hear(&request(command::READ, 0, 1, 0, 512));
    let heard = replies(&talk.said, false, &BTreeMap::from([(1, 512)]));
    assert_eq!(heard[&1].data, [0; 512]);
    talk.hang_up();
}

#[test]
fn the_flags_of_the_client_stay() {
    for (flags, zeroes) in [(1u32, 124), (3, 0)] {
        let mut talk = talk(Security::Required);
        talk.hear(&[&flags.to_be_bytes(), &ask()[4..]].concat());
        talk.connection.enter_tls();
        talk.said.clear();
        let mut bytes = Vec::new();
        wire::encode_option(&mut bytes, option::EXPORT_NAME, b"disk");
        talk.hear(&bytes);
        assert_eq!(talk.said.len(), 10 + zeroes);
        talk.hang_up();
    }
}

#[test]
fn what_comes_before_the_answer_ends_the_connection() {
    for rest in [vec![0x16], hello(true)[4..].to_vec()] {
        let mut talk = talk(Security::Required);
        talk.hear(&[ask(), rest].concat());
        assert!(talk.connection.is_over());
        assert_eq!(talk.said.len(), 18, "no answer to STARTTLS");
        talk.hang_up();
    }
    // However it is cut, all that is needed is taken, and nothing more.
    let mut talk = talk(Security::Required);
    talk.hear_cut(&ask(), || 1);
    assert_eq!(talk.said, asked());
    let left = hello(true);
    talk.hear(&left);
    assert_eq!(talk.connection.advance(&mut talk.ram, true), Wait::Tls, "nothing is taken before TLS");
    assert_eq!((talk.said, talk.ram.requests), (asked(), 0));
}
