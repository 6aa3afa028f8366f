// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a client and a server don't believe, and what they don't send.

use flashfront_nbd_proto::client::{self, Broken, Client, Misuse, Step, Wanted};
use flashfront_nbd_proto::server::{self, Security};
use flashfront_nbd_proto::wire::{
    self, ChunkHeader, Replies, SimpleReply, answer, chunk, encode_answer, encode_option, export_flag, info, option,
};
use flashfront_nbd_proto::{Ask, BlockSizes, Request};

use super::disk::Disk;

const FLAGS: u16 = export_flag::HAS_FLAGS | export_flag::SEND_FLUSH | export_flag::SEND_WRITE_ZEROES;

/// A client that has opened an export of 8192 bytes with `flags` and blocks of `minimum` bytes.
fn opened(replies: Replies, flags: u16, minimum: u32) -> Client {
    let mut client = Client::new(Wanted { replies, ..Wanted::all_of("x") });
    let mut said = b"NBDMAGICIHAVEOPT\0\x03".to_vec();
    match replies {
        Replies::Simple => {}
        Replies::Structured => encode_answer(&mut said, option::STRUCTURED_REPLY, answer::ACK, &[]),
        Replies::Extended => encode_answer(&mut said, option::EXTENDED_HEADERS, answer::ACK, &[]),
    }
    if replies != Replies::Simple {
        encode_answer(&mut said, option::SET_META_CONTEXT, answer::META_CONTEXT, b"\0\0\0\x05base:allocation");
        encode_answer(&mut said, option::SET_META_CONTEXT, answer::ACK, &[]);
    }
    let export = [&info::EXPORT.to_be_bytes()[..], &8192_u64.to_be_bytes(), &flags.to_be_bytes()].concat();
    encode_answer(&mut said, option::GO, answer::INFO, &export);
    let mut sizes = info::BLOCK_SIZE.to_be_bytes().to_vec();
    [minimum, 4096, 4096].iter().for_each(|size| sizes.extend(size.to_be_bytes()));
    encode_answer(&mut said, option::GO, answer::INFO, &sizes);
    encode_answer(&mut said, option::GO, answer::ACK, &[]);
    let mut out = Vec::new();
    loop {
        match client.step(&said, &mut out).expect("a sound handshake") {
            Step::Took(took) => drop(said.drain(..took)),
            Step::Opened(_) => return client,
            step => panic!("{step:?}"),
        }
    }
}

fn read() -> Request {
    Request { cookie: 1, ask: Ask::READ, offset: 1024, len: 1024, fua: false }
}

/// What the client says of a reply to a read of 1024 bytes at 1024, or to a question for extents.
fn heard(replies: Replies, ask: Ask, said: &[u8]) -> Result<Vec<Step>, Broken> {
    let mut client = opened(replies, FLAGS | export_flag::SEND_DF, 1);
    client.submit(Request { ask, ..read() }, &mut Vec::new()).expect("the request is in order");
    let (mut rest, mut steps) = (said, Vec::new());
    loop {
        let step = client.step(rest, &mut Vec::new())?;
        match &step {
            Step::Need => return Ok(steps),
            Step::Payload(left) => {
                let here = (*left as usize).min(rest.len());
                if here == 0 {
                    return Ok(steps);
                }
                rest = &rest[here..];
                client.payload_taken(here as u64);
                continue;
            }
            Step::Took(took)
            | Step::Data { took, .. }
            | Step::Hole { took, .. }
            | Step::Extents { took, .. }
            | Step::Answer { took, .. } => rest = &rest[*took..],
            Step::StartTls(_) | Step::Opened(_) => panic!("{step:?}"),
        }
        steps.push(step);
    }
}

fn piece(replies: Replies, done: bool, kind: u16, cookie: u64, payload: &[u8]) -> Vec<u8> {
    let mut said = Vec::new();
    ChunkHeader { done, kind, cookie, offset: 1024, len: payload.len() as u32 }.encode(replies, &mut said);
    said.extend(payload);
    said
}

/// The payload of a chunk with data.
fn data(at: u64, bytes: usize) -> Vec<u8> {
    [&at.to_be_bytes()[..], &vec![7; bytes]].concat()
}

#[test]
fn a_client_believes_no_answer_that_is_not_whole() {
    let structured = |done, kind, payload: &[u8]| piece(Replies::Structured, done, kind, 1, payload);
    let hole = |at: u64, bytes: u32| [&at.to_be_bytes()[..], &bytes.to_be_bytes()].concat();
    let half = structured(false, chunk::OFFSET_DATA, &data(1024, 512));
    let broken = [
        ("a part is missing", structured(true, chunk::OFFSET_DATA, &data(1024, 1023))),
        ("nothing comes", structured(true, chunk::NONE, &[])),
        ("twice", [half.clone(), structured(true, chunk::OFFSET_DATA, &data(1024, 512))].concat()),
        ("in part twice", [half.clone(), structured(true, chunk::OFFSET_HOLE, &hole(1535, 513))].concat()),
        ("behind the end", structured(true, chunk::OFFSET_DATA, &data(1025, 1024))),
        ("before the start", structured(false, chunk::OFFSET_HOLE, &hole(1023, 2))),
        ("of no bytes", structured(false, chunk::OFFSET_HOLE, &hole(1024, 0))),
        ("a hole that is too long to be told", structured(false, chunk::OFFSET_HOLE, &[0; 13])),
        ("no end", structured(false, chunk::NONE, &[])),
        ("extents of a read", structured(true, chunk::BLOCK_STATUS, &[0; 12])),
        ("an unknown kind", structured(true, 77, &[])),
        ("an error without a number", structured(true, chunk::ERROR_PLAIN, &[0; 6])),
        ("an error that is cut", structured(true, chunk::ERROR_PLAIN, &[0, 0, 0, 5, 0, 9])),
        ("another request's", piece(Replies::Structured, true, chunk::OFFSET_DATA, 2, &data(1024, 1024))),
        ("extended", piece(Replies::Extended, true, chunk::OFFSET_DATA, 1, &data(1024, 1024))),
        ("simple", [&wire::SIMPLE_MAGIC.to_be_bytes()[..], &[0; 4], &1_u64.to_be_bytes(), &[0; 1024]].concat()),
        ("no magic", vec![0; 20]),
    ];
    for (what, said) in broken {
        assert!(heard(Replies::Structured, Ask::READ, &said).is_err(), "{what}");
    }
    let rest = structured(true, chunk::OFFSET_HOLE, &hole(1536, 512));
    let steps = heard(Replies::Structured, Ask::READ, &[half, rest].concat()).expect("a whole answer");
    assert!(matches!(steps.last(), Some(Step::Answer { result: Ok(()), .. })), "{steps:?}");
    let parts = [
        structured(false, chunk::OFFSET_DATA, &data(1024, 512)),
        structured(true, chunk::OFFSET_DATA, &data(1536, 512)),
    ];
    assert!(heard(Replies::Structured, Ask::Read { whole: true }, &parts.concat()).is_err(), "DF in parts");
}

#[test]
fn a_client_believes_no_extents_that_it_did_not_ask_for() {
    let status = Ask::Status { one: false };
    let list = |id: u32, numbers: &[u32]| {
        let numbers: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
        [&id.to_be_bytes()[..], &numbers].concat()
    };
    let said = |done, payload: &[u8]| piece(Replies::Structured, done, chunk::BLOCK_STATUS, 1, payload);
    let broken = [
        said(true, &list(6, &[1024, 0])),
        said(true, &list(5, &[])),
        said(true, &list(5, &[1024])),
        said(true, &list(5, &[0, 0])),
        [said(false, &list(5, &[1024, 0])), said(true, &list(5, &[1024, 0]))].concat(),
        piece(Replies::Structured, true, chunk::NONE, 1, &[]),
    ];
    for said in broken {
        assert!(heard(Replies::Structured, status, &said).is_err(), "{said:?}");
    }
    let extended = |count: u32, bytes: usize| {
        let payload = [&5_u32.to_be_bytes()[..], &count.to_be_bytes(), &vec![1; bytes]].concat();
        heard(Replies::Extended, status, &piece(Replies::Extended, true, chunk::BLOCK_STATUS_EXTENDED, 1, &payload))
    };
    assert!(extended(2, 16).is_err(), "another count than there are");
    assert!(extended(2, 32).is_ok());
}

#[test]
fn a_client_sends_no_request_that_the_server_would_refuse() {
    let mut out = Vec::new();
    let mut client = opened(Replies::Structured, FLAGS, 512);
    let with = |ask: Ask, offset: u64, len: u64, fua: bool| Request { cookie: 9, ask, offset, len, fua };
    for (request, misuse) in [
        (with(Ask::READ, 0, 0, false), Misuse::Range),
        (with(Ask::READ, 8192, 512, false), Misuse::Range),
        (with(Ask::READ, u64::MAX - 511, 512, false), Misuse::Range),
        (with(Ask::READ, 0, 8192, false), Misuse::TooLong(4096)),
        (with(Ask::READ, 1, 512, false), Misuse::Unaligned(512)),
        (with(Ask::Flush, 0, 512, false), Misuse::Range),
        (with(Ask::Write, 0, 512, true), Misuse::NotOffered),
        (with(Ask::Trim, 0, 512, false), Misuse::NotOffered),
        (with(Ask::Read { whole: true }, 0, 512, false), Misuse::NotOffered),
        (with(Ask::Zeroes { may_discard: true, fast: true }, 0, 512, false), Misuse::NotOffered),
    ] {
        assert_eq!(client.submit(request, &mut out), Err(misuse), "{request:?}");
    }
    assert_eq!(client.submit(with(Ask::ZEROES, 0, 8192, false), &mut out), Ok(()));
    assert_eq!(client.submit(with(Ask::READ, 0, 512, false), &mut out), Err(Misuse::Cookie(9)));
    let mut read_only = opened(Replies::Simple, FLAGS | export_flag::READ_ONLY, 1);
    assert_eq!(read_only.submit(with(Ask::Write, 0, 1, false), &mut out), Err(Misuse::ReadOnly));
    assert_eq!(read_only.submit(with(Ask::Status { one: true }, 0, 1, false), &mut out), Err(Misuse::NotOffered));
    read_only.disconnect(&mut out);
    assert_eq!(read_only.submit(with(Ask::READ, 0, 1, false), &mut out), Err(Misuse::NotOpen));
}

#[test]
fn a_broken_conversation_stays_broken() {
    let mut client = opened(Replies::Simple, FLAGS, 1);
    client.submit(read(), &mut Vec::new()).expect("the request is in order");
    let broken = client.step(&[0; 16], &mut Vec::new()).expect_err("no magic");
    let mut reply = Vec::new();
    SimpleReply { error: 0, cookie: 1 }.encode(&mut reply);
    assert_eq!(client.step(&reply, &mut Vec::new()), Err(broken));
    assert_eq!(client.submit(Request { cookie: 2, ..read() }, &mut Vec::new()), Err(Misuse::NotOpen));
}

/// Somebody on the way can say something before TLS, to be taken for the other end's first words
/// inside TLS.
#[test]
fn nothing_that_came_before_tls_is_believed_inside() {
    let mut client = Client::new(Wanted { tls: true, ..Wanted::all_of("x") });
    client.step(b"NBDMAGICIHAVEOPT\0\x03", &mut Vec::new()).expect("a greeting");
    let mut said = Vec::new();
    encode_answer(&mut said, option::STARTTLS, answer::ACK, &[]);
    encode_answer(&mut said, option::EXTENDED_HEADERS, answer::ACK, &[]);
    assert!(client.step(&said, &mut Vec::new()).is_err());

    let mut out = Vec::new();
    let mut disk = Disk::new(Security::Required, &mut out);
    let mut said = 3_u32.to_be_bytes().to_vec();
    encode_option(&mut said, option::STARTTLS, &[]);
    encode_option(&mut said, option::GO, b"\0\0\0\x03ram\0\0");
    disk.take(&mut said, &mut out);
    assert!(disk.ended && !disk.opened);
}

#[test]
fn a_client_that_wants_tls_goes_on_with_nothing_else() {
    let mut client = Client::new(Wanted { tls: true, ..Wanted::all_of("x") });
    client.step(b"NBDMAGICIHAVEOPT\0\x03", &mut Vec::new()).expect("a greeting");
    let mut said = Vec::new();
    encode_answer(&mut said, option::STARTTLS, answer::UNSUPPORTED, b"no");
    assert!(matches!(client.step(&said, &mut Vec::new()), Err(Broken::Refused { .. })));
}

#[test]
fn a_server_ends_with_a_client_that_is_out_of_step() {
    let mut server = server::Server::new(Security::Off, &mut Vec::new());
    let mut out = Vec::new();
    assert_eq!(server.step(&u32::MAX.to_be_bytes(), &[], &mut out), server::Step::End);
    assert_eq!(server.step(&3_u32.to_be_bytes(), &[], &mut out), server::Step::End);
}

/// Says that to a client, byte by byte; what opened, and what the client said.
fn greeted_by(said: &[u8], wanted: Wanted) -> Result<(client::ExportInfo, Vec<u8>), Broken> {
    let (mut client, mut out, mut from) = (Client::new(wanted), Vec::new(), 0);
    for to in 0..=said.len() {
        loop {
            match client.step(&said[from..to], &mut out)? {
                Step::Need => break,
                Step::Took(took) => from += took,
                Step::Opened(took) => {
                    assert_eq!(from + took, said.len(), "all that belongs to the handshake is taken");
                    return Ok((*client.info().expect("it is open"), out));
                }
                step => panic!("{step:?}"),
            }
        }
    }
    Err(Broken::Protocol("the server says no more"))
}

/// Old servers don't know GO, or answer no option at all: nbd-server before 3.16, qemu before 2.9.
#[test]
fn a_server_without_go_is_given_the_name() {
    let size_and_flags = [&8192_u64.to_be_bytes()[..], &FLAGS.to_be_bytes()].concat();
    let wanted = Wanted { replies: Replies::Structured, ..Wanted::all_of("old") };
    let mut asked = Vec::new();
    encode_option(&mut asked, option::EXPORT_NAME, b"old");

    let mut said = b"NBDMAGICIHAVEOPT\0\x03".to_vec();
    encode_answer(&mut said, option::STRUCTURED_REPLY, answer::UNSUPPORTED, &[]);
    encode_answer(&mut said, option::GO, answer::UNSUPPORTED, b"what?");
    let (info, out) = greeted_by(&[said, size_and_flags.clone()].concat(), wanted.clone()).expect("it opens");
    assert_eq!((info.size_bytes, info.flags, info.sizes.maximum), (8192, FLAGS, BlockSizes::UNTOLD.maximum));
    assert!(out.ends_with(&asked), "{out:?}");

    // Not fixed, with and without the zeroes.
    let plain = [b"NBDMAGICIHAVEOPT\0\x02", &size_and_flags[..]].concat();
    let (info, out) = greeted_by(&plain, wanted.clone()).expect("it opens");
    assert_eq!((info.size_bytes, out), (8192, [&2_u32.to_be_bytes()[..], &asked].concat()));
    let padded = [b"NBDMAGICIHAVEOPT\0\0", &size_and_flags[..], &[0; 124]].concat();
    let (info, out) = greeted_by(&padded, wanted.clone()).expect("it opens");
    assert_eq!((info.size_bytes, out), (8192, [&0_u32.to_be_bytes()[..], &asked].concat()));

    // Nobody may take TLS away by greeting as an old server.
    let tls = Wanted { tls: true, ..wanted };
    assert!(matches!(greeted_by(&plain, tls), Err(Broken::Protocol(_))));
}
