// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metadata contexts, extended headers, requests of any bytes and of any length.

use std::collections::BTreeMap;

use super::super::{CONNECTION_BYTES_MAX, PAYLOAD_BYTES_MAX};
use super::ram::Ram;
use super::talk::{Talk, client_flags, context_data, hello_of, info_data, replies_of, request_of};
use flashfront_nbd_proto::wire::{self, Fields, Replies, answer, chunk, command, command_flag, info, option};

const DISK_BYTES: u64 = 8 << 20;
const GREETING_BYTES: usize = 18;
const ALL: [Replies; 3] = [Replies::Simple, Replies::Structured, Replies::Extended];

/// Returns the answers to options: the option, the kind of answer, and its data.
fn answers(options: &[(u32, Vec<u8>)]) -> Vec<(u32, u32, Vec<u8>)> {
    let mut talk = Talk::new(Ram::new(DISK_BYTES, 512));
    let mut out = client_flags();
    for (option, data) in options {
        wire::encode_option(&mut out, *option, data);
    }
    talk.hear(&out);
    let mut fields = Fields(&talk.said[GREETING_BYTES..]);
    let mut all = Vec::new();
    while fields.u64().is_some() {
        let (option, kind, len) = (fields.u32().unwrap(), fields.u32().unwrap(), fields.u32().unwrap());
        all.push((option, kind, fields.take(len as usize).unwrap().to_vec()));
    }
    talk.hang_up();
    all
}

#[test]
fn contexts_are_listed_and_selected() {
    let (list, set) = (option::LIST_META_CONTEXT, option::SET_META_CONTEXT);
    let structured = (option::STRUCTURED_REPLY, vec![]);
    // How often the context is told, and under which number.
    for (option, queries, told) in [
        (list, &[][..], Some(0)),
        (list, &["base:"], Some(0)),
        (list, &["base:allocation"], Some(0)),
        (list, &["x-any:", "base:other", "base:allocation", "base:"], Some(0)),
        (list, &["x-any:"], None),
        (list, &["allocation", ""], None),
        (set, &[], None),
        (set, &["base:"], None),
        (set, &["base:allocation"], Some(1u32)),
        (set, &["x-any:leaf", "base:allocation", "base:allocation"], Some(1)),
        (set, &["base:allocations", "qemu:allocation-depth"], None),
    ] {
        let heard = answers(&[structured.clone(), (option, context_data("disk", queries))]);
        let context =
            told.map(|id| (option, answer::META_CONTEXT, [&id.to_be_bytes(), &b"base:allocation"[..]].concat()));
        let expected: Vec<_> = context.into_iter().chain([(option, answer::ACK, Vec::new())]).collect();
        assert_eq!(heard[1..], expected, "{option} {queries:?}");
    }
    // A query that doesn't end, and a query that is too long.
    let cut = context_data("disk", &["base:allocation"]);
    let long = context_data("disk", &[&"x".repeat(4097)]);
    for data in [cut[..cut.len() - 1].to_vec(), long, [context_data("disk", &[]), vec![0]].concat()] {
        assert_eq!(answers(&[structured.clone(), (set, data)])[1].1, answer::INVALID);
    }
}

#[test]
fn the_last_selection_counts_and_only_for_its_export() {
    let set = |name: &str, queries: &[&str]| (option::SET_META_CONTEXT, context_data(name, queries));
    let allocation = &["base:allocation"][..];
    for (options, selected) in [
        (vec![set("disk", allocation)], true),
        (vec![set("", allocation)], true),
        (vec![set("disk", allocation), set("disk", &[])], false),
        (vec![set("disk", allocation), set("none", allocation)], false),
        (vec![set("disk", allocation), (option::SET_META_CONTEXT, vec![1])], false),
        (vec![set("disk", allocation), (option::SET_META_CONTEXT, vec![0; (64 << 10) + 1])], false),
        (vec![], false),
    ] {
        let mut out = client_flags();
        wire::encode_option(&mut out, option::STRUCTURED_REPLY, &[]);
        for (option, data) in &options {
            wire::encode_option(&mut out, *option, data);
        }
        wire::encode_option(&mut out, option::GO, &info_data("disk", &[]));
        let mut talk = Talk::new(Ram::new(DISK_BYTES, 512));
        talk.hear(&out);
        talk.said.clear();
        talk.hear(&request_of(Replies::Structured, command::BLOCK_STATUS, 0, 1, 0, 4096));
        let heard = replies_of(&talk.said, Replies::Structured, &BTreeMap::new());
        assert_eq!(heard[&1].error, if selected { 0 } else { 22 }, "{options:?}");
        talk.hang_up();
    }
}

#[test]
fn extended_headers_are_agreed_on_once_and_leave_no_way_back() {
    let kinds = |options: &[(u32, Vec<u8>)]| answers(options).iter().map(|it| it.1).collect::<Vec<_>>();
    let (structured, extended) = ((option::STRUCTURED_REPLY, vec![]), (option::EXTENDED_HEADERS, vec![]));
    assert_eq!(kinds(&[structured.clone(), extended.clone()]), [answer::ACK, answer::ACK]);
    assert_eq!(kinds(&[extended.clone(), extended.clone()]), [answer::ACK, answer::INVALID]);
    assert_eq!(kinds(&[extended, structured]), [answer::ACK, answer::EXTENDED_HEADERS_REQUIRED]);
    // No client may use the old way to an export then.
    let mut talk = Talk::new(Ram::new(DISK_BYTES, 512));
    let mut out = client_flags();
    wire::encode_option(&mut out, option::EXTENDED_HEADERS, &[]);
    wire::encode_option(&mut out, option::EXPORT_NAME, b"disk");
    talk.hear(&out);
    assert!(talk.connection.is_over());
}

#[test]
fn extents_end_with_the_range_and_with_the_volume() {
    for replies in [Replies::Structured, Replies::Extended] {
        let mut ram = Ram::new(DISK_BYTES, 512);
        ram.disk[8192..8193].fill(1);
        let mut talk = Talk::started_of(ram, replies, true);
        let mut extents = |flags, offset, len| {
            talk.said.clear();
            talk.hear(&request_of(replies, command::BLOCK_STATUS, flags, 1, offset, len));
            let heard = replies_of(&talk.said, replies, &BTreeMap::new());
            assert_eq!(heard[&1].error, 0);
            let mut fields = Fields(&heard[&1].data);
            assert_eq!(fields.u32(), Some(1));
            if replies == Replies::Structured {
                return fields
                    .0
                    .chunks(8)
                    .map(|it| (u64::from(it[2]) << 8 | u64::from(it[3]), it[7]))
                    .collect::<Vec<_>>();
            }
            assert_eq!(fields.u32().unwrap() as usize * 16, fields.0.len());
            fields.0.chunks(16).map(|it| (u64::from(it[6]) << 8 | u64::from(it[7]), it[15])).collect::<Vec<_>>()
        };
        assert_eq!(extents(0, 0, 16384), [(8192, 3), (4096, 0), (4096, 3)]);
        assert_eq!(extents(command_flag::REQ_ONE, 0, 16384), [(8192, 3)]);
        // Any byte.
        assert_eq!(extents(0, 8191, 2), [(1, 3), (1, 0)]);
        assert_eq!(extents(0, 8193, 4096), [(4095, 0), (1, 3)]);
        assert_eq!(extents(command_flag::REQ_ONE, 12287, 4096), [(1, 0)]);
        assert_eq!(extents(0, DISK_BYTES - 1, 1), [(1, 3)]);
        talk.hang_up();
    }
}

#[test]
fn a_status_request_may_name_its_contexts() {
    let mut talk = Talk::started_of(Ram::new(DISK_BYTES, 512), Replies::Extended, true);
    let payload = |len: u64, ids: &[u32]| {
        let mut payload = len.to_be_bytes().to_vec();
        ids.iter().for_each(|id| payload.extend(id.to_be_bytes()));
        payload
    };
    for (cookie, (payload, error)) in [
        (payload(DISK_BYTES, &[1]), 0),
        (payload(DISK_BYTES, &[2]), 22),
        (payload(DISK_BYTES, &[]), 22),
        (payload(DISK_BYTES, &[1, 1]), 22),
        (payload(DISK_BYTES + 1, &[1]), 22),
    ]
    .into_iter()
    .enumerate()
    {
        talk.said.clear();
        let (flags, len) = (command_flag::PAYLOAD_LEN, payload.len() as u64);
        let mut bytes = request_of(Replies::Extended, command::BLOCK_STATUS, flags, cookie as u64, 0, len);
        bytes.extend(payload);
        // The next request is understood, whatever became of this one.
        bytes.extend(request_of(Replies::Extended, command::FLUSH, 0, 99, 0, 0));
        talk.hear_cut(&bytes, || 7);
        let heard = replies_of(&talk.said, Replies::Extended, &BTreeMap::new());
        assert_eq!((heard[&(cookie as u64)].error, heard[&99].error), (error, 0));
    }
    talk.hang_up();
}

#[test]
fn a_payload_beyond_the_maximum_ends_an_extended_connection() {
    for command in [command::WRITE, command::TRIM] {
        let mut talk = Talk::started_of(Ram::new(DISK_BYTES, 512), Replies::Extended, true);
        let len = u64::from(PAYLOAD_BYTES_MAX) + 1;
        talk.hear(&request_of(Replies::Extended, command, command_flag::PAYLOAD_LEN, 1, 0, len));
        assert!(talk.connection.is_over());
        talk.hang_up();
    }
}

#[test]
fn ranges_of_more_than_four_gibibytes_are_one_request_of_the_engine() {
    let mut ram = Ram::new(DISK_BYTES, 512);
    ram.exports[0].size_bytes = 1 << 44;
    let mut talk = Talk::started_of(ram, Replies::Extended, true);
    let mut bytes = request_of(Replies::Extended, command::TRIM, 0, 1, 512, (1 << 44) - 1024);
    bytes.extend(request_of(Replies::Extended, command::WRITE_ZEROES, 0, 2, 0, 1 << 44));
    bytes.extend(request_of(Replies::Extended, command::BLOCK_STATUS, 0, 3, 0, 1 << 44));
    talk.say(&bytes, usize::MAX);
    talk.connection.advance(&mut talk.ram, true);
    let sectors: Vec<_> = talk.ram.queue.iter().map(|it| (it.lba.0, it.sectors)).collect();
    assert_eq!(sectors, [(1, (1 << 35) - 2), (0, 1 << 35), (0, 1 << 35)]);
    assert!(talk.ram.buffers.held_bytes <= 16 << 10);
    talk.ram.queue.clear();
}

/// A read of a whole disk that is longer than a buffer, and writes of it, by clients that never
/// asked for a maximum.
#[test]
fn clients_that_ask_for_no_maximum_have_none() {
    let disk_bytes = (72 << 20) + 512;
    for replies in ALL {
        // With extended headers every client must use them for all its requests.
        let longest = if replies == Replies::Extended { 32 << 20 } else { disk_bytes - 1 };
        let mut ram = Ram::new(disk_bytes, 512);
        ram.buffers.budget_bytes = CONNECTION_BYTES_MAX + (1 << 20);
        let mut talk = Talk::started_of(ram, replies, false);
        let payload: Vec<u8> = (0..longest).map(|at| (at % 251) as u8).collect();
        let mut bytes = request_of(replies, command::WRITE, 0, 1, 1, longest);
        bytes.extend(&payload);
        talk.hear(&bytes);
        let mut bytes = request_of(replies, command::READ, 0, 2, 0, 512);
        bytes.extend(request_of(replies, command::READ, 0, 3, 1, disk_bytes - 1));
        bytes.extend(request_of(replies, command::CACHE, 0, 4, 3, disk_bytes - 3));
        bytes.extend(request_of(replies, command::READ, 0, 5, disk_bytes - 1, 1));
        talk.hear_cut(&bytes, || 3 << 20);
        let reads = BTreeMap::from([(2, 512), (3, disk_bytes - 1), (5, 1)]);
        let heard = replies_of(&talk.said, replies, &reads);
        assert!(heard.values().all(|heard| heard.error == 0));
        assert!(heard[&3].data[..longest as usize] == payload, "{replies:?}");
        assert!(talk.ram.buffers.held_bytes_peak <= CONNECTION_BYTES_MAX);
        let ram = talk.hang_up();
        assert!(ram.disk[1..=longest as usize] == payload && ram.disk[0] == 0);
    }
}

#[test]
fn clients_that_asked_for_a_maximum_are_held_to_it() {
    for replies in [Replies::Simple, Replies::Structured] {
        let mut talk = Talk::started_of(Ram::new(72 << 20, 512), replies, true);
        let len = u64::from(PAYLOAD_BYTES_MAX) + 1;
        let mut bytes = request_of(replies, command::READ, 0, 1, 0, len);
        bytes.extend(request_of(replies, command::CACHE, 0, 2, 0, len));
        bytes.extend(request_of(replies, command::WRITE, 0, 3, 0, len));
        bytes.resize(bytes.len() + len as usize, 7);
        bytes.extend(request_of(replies, command::WRITE_ZEROES, 0, 4, 0, len));
        bytes.extend(request_of(replies, command::READ, 0, 5, 0, len - 1));
        talk.hear(&bytes);
        let heard = replies_of(&talk.said, replies, &BTreeMap::from([(1, len), (5, len - 1)]));
        let errors: Vec<_> = heard.values().map(|heard| heard.error).collect();
        assert_eq!(errors, [22, 22, 22, 0, 0]);
        talk.hang_up();
    }
}

#[test]
fn a_long_read_that_fails_in_the_middle_ends_as_its_replies_can() {
    for replies in ALL {
        let mut ram = Ram::new(72 << 20, 512);
        // In the third window.
        ram.bad = Some(40_000..40_001);
        let mut talk = Talk::started_of(ram, replies, false);
        let mut bytes = request_of(replies, command::READ, 0, 1, 1, (72 << 20) - 1);
        bytes.extend(request_of(replies, command::FLUSH, 0, 2, 0, 0));
        talk.hear(&bytes);
        if replies == Replies::Simple {
            // It has said that all is well, and can't take that back.
            assert!(talk.connection.is_over());
            assert!(talk.said.len() < 40_000 * 512);
        } else {
            let heard = replies_of(&talk.said, replies, &BTreeMap::from([(1, (72 << 20) - 1)]));
            assert_eq!((heard[&1].error, heard[&2].error), (5, 0));
        }
        talk.hang_up();
    }
}

#[test]
fn a_long_read_ends_with_its_connection() {
    for replies in ALL {
        for windows in 0..3 {
            for answered in [false, true] {
                let mut talk = Talk::started_of(Ram::new(72 << 20, 512), replies, false);
                talk.say(&request_of(replies, command::READ, 0, 1, 0, 72 << 20), usize::MAX);
                talk.connection.advance(&mut talk.ram, true);
                for _ in 0..windows {
                    talk.execute(usize::MAX);
                    talk.connection.advance(&mut talk.ram, true);
                }
                if answered {
                    talk.execute(usize::MAX);
                }
                talk.connection.finish_up(&mut talk.ram);
                talk.execute(usize::MAX);
                talk.read(usize::MAX, &mut || usize::MAX);
                assert!(talk.connection.is_over(), "{replies:?} {windows} {answered}");
                talk.hang_up();
            }
        }
    }
}

#[test]
fn zeroes_are_sent_as_holes_to_who_takes_chunks() {
    let mut ram = Ram::new(DISK_BYTES, 512);
    // Data of two blocks; zeroes too short for a hole of their own; data up to the middle of a
    // block.
    ram.disk[4096..12288].fill(1);
    ram.disk[12288 + 8192..12288 + 12288].fill(2);
    ram.disk[(1 << 20) + 65536 - 1] = 3;
    let len = 2 << 20;
    let expected = ram.disk[1..=len].to_vec();
    let mut talk = Talk::started_of(ram, Replies::Structured, true);
    talk.hear(&request_of(Replies::Structured, command::READ, 0, 1, 1, len as u64));
    assert!(talk.said.len() < 64 << 10, "{} bytes for two MiB of zeroes, nearly", talk.said.len());
    let heard = replies_of(&talk.said, Replies::Structured, &BTreeMap::from([(1, len as u64)]));
    assert!(heard[&1].data == expected);
    // In one chunk if so asked for.
    talk.said.clear();
    talk.hear(&request_of(Replies::Structured, command::READ, command_flag::DF, 1, 1, len as u64));
    assert_eq!(talk.said.len(), 28 + len);
    // A byte is no hole.
    talk.said.clear();
    talk.hear(&request_of(Replies::Structured, command::READ, 0, 1, 0, 1));
    assert_eq!((talk.said.len(), talk.said[7]), (29, chunk::OFFSET_DATA as u8));
    talk.hang_up();
}

#[test]
fn errors_tell_where_and_in_words() {
    let mut ram = Ram::new(DISK_BYTES, 512);
    ram.bad = Some(5000..5001);
    let mut talk = Talk::started_of(ram, Replies::Structured, true);
    talk.hear(&request_of(Replies::Structured, command::READ, 0, 1, 0, 4 << 20));
    let mut fields = Fields(&talk.said[4..]);
    assert_eq!((fields.u16(), fields.u16()), (Some(chunk::DONE), Some(chunk::ERROR_OFFSET)));
    // The piece of 1 MiB in which it is.
    assert_eq!(talk.said[talk.said.len() - 8..], (2u64 << 20).to_be_bytes());
    talk.hang_up();
}

#[test]
fn the_greetings_of_all_kinds_of_clients_are_answered() {
    for replies in ALL {
        for sized in [false, true] {
            let mut talk = Talk::new(Ram::new(DISK_BYTES, 512));
            talk.hear(&hello_of(replies, sized));
            let flags = u16::from_be_bytes(talk.said[talk.said.len() - 20 - 34 - 2..][..2].try_into().unwrap());
            let chunks = flags & (1 << 7) != 0;
            assert_eq!(chunks, replies != Replies::Simple, "{flags:b}");
            assert_eq!(flags & (1 << 12) != 0, replies == Replies::Extended, "{flags:b}");
            talk.hang_up();
        }
    }
    assert_eq!(info::DESCRIPTION, 2);
}
