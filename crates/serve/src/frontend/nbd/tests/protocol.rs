// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocol without I/O: what is said to what, and that cutting the bytes changes nothing.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::super::Export;
use super::ram::Ram;
use super::talk::{
    Heard, Talk, client_flags, context_data, hello, hello_of, info_data, replies, replies_of, request, request_of,
};
use flashfront_nbd_proto::wire::{self, Fields, Replies, answer, command, command_flag, info, option};

const DISK_BYTES: u64 = 8 << 20;
const GREETING_BYTES: usize = 18;

fn ram() -> Ram {
    Ram::new(DISK_BYTES, 512)
}

/// The kinds of the answers to `options`, and whether the connection goes on.
fn answers(ram: Ram, options: &[(u32, Vec<u8>)]) -> (Vec<(u32, u32)>, bool) {
    answers_in(Talk::new(ram), options)
}

/// The answers in another conversation at its beginning.
pub(super) fn answers_in(mut talk: Talk, options: &[(u32, Vec<u8>)]) -> (Vec<(u32, u32)>, bool) {
    let mut out = client_flags();
    for (option, data) in options {
        wire::encode_option(&mut out, *option, data);
    }
    talk.hear(&out);
    let mut fields = Fields(&talk.said[GREETING_BYTES..]);
    let mut kinds = Vec::new();
    while !fields.0.is_empty() {
        assert_eq!(fields.u64(), Some(wire::OPTION_REPLY_MAGIC));
        kinds.push((fields.u32().unwrap(), fields.u32().unwrap()));
        let len = fields.u32().unwrap();
        fields.take(len as usize).unwrap();
    }
    let goes_on = !talk.connection.is_over();
    talk.hang_up();
    (kinds, goes_on)
}

#[test]
fn the_greeting_is_fixed_newstyle() {
    let mut talk = Talk::new(ram());
    talk.hear(&[]);
    assert_eq!(talk.said, b"NBDMAGICIHAVEOPT\0\x03");
}

#[test]
fn unknown_client_flags_end_the_connection() {
    let mut talk = Talk::new(ram());
    talk.hear(&8u32.to_be_bytes());
    assert!(talk.connection.is_over());
}

#[test]
fn options_are_answered_by_kind() {
    let go = |name: &str, wanted: &[u16]| (option::GO, info_data(name, wanted));
    let ok = [(option::GO, answer::INFO), (option::GO, answer::INFO), (option::GO, answer::ACK)];
    let (kinds, goes_on) = answers(ram(), &[go("disk", &[])]);
    assert_eq!((kinds.as_slice(), goes_on), (ok.as_slice(), true));
    // The empty name is the default export.
    assert_eq!(answers(ram(), &[go("", &[])]).0, ok);
    assert_eq!(answers(ram(), &[go("", &[info::NAME, info::DESCRIPTION, 77])]).0.len(), 5);

    // Each of these is answered with one error, and the handshake goes on.
    let malformed = info_data("disk", &[])[..7].to_vec();
    let trailing = [info_data("disk", &[]), vec![0]].concat();
    let long_name = info_data(&"x".repeat(4097), &[]);
    for (option, data, kind) in [
        (option::GO, info_data("none", &[]), answer::UNKNOWN),
        (option::GO, malformed, answer::INVALID),
        (option::INFO, trailing, answer::INVALID),
        (option::INFO, long_name, answer::INVALID),
        (option::GO, u32::MAX.to_be_bytes().to_vec(), answer::INVALID),
        (option::LIST, vec![1], answer::INVALID),
        (option::STRUCTURED_REPLY, vec![1], answer::INVALID),
        (option::STARTTLS, vec![], answer::UNSUPPORTED),
        (option::EXTENDED_HEADERS, vec![1], answer::INVALID),
        (option::LIST_META_CONTEXT, vec![0; 7], answer::INVALID),
        (option::LIST_META_CONTEXT, vec![0; 9], answer::INVALID),
        (option::LIST_META_CONTEXT, context_data("none", &[]), answer::UNKNOWN),
        // No structured replies were agreed on.
        (option::SET_META_CONTEXT, context_data("disk", &["base:allocation"]), answer::INVALID),
        (4, vec![0; 8], answer::UNSUPPORTED),
        (12345, vec![0; 64 << 10], answer::UNSUPPORTED),
        (12345, vec![0; (64 << 10) + 1], answer::TOO_BIG),
        (option::GO, vec![0; 1 << 20], answer::TOO_BIG),
    ] {
        let (kinds, goes_on) = answers(ram(), &[(option, data), go("disk", &[])]);
        let expected = [&[(option, kind)], ok.as_slice()].concat();
        assert_eq!((kinds, goes_on), (expected, true));
    }

    let (kinds, goes_on) = answers(ram(), &[(option::ABORT, vec![])]);
    assert_eq!((kinds.as_slice(), goes_on), ([(option::ABORT, answer::ACK)].as_slice(), false));
}

#[test]
fn all_exports_are_listed_and_none_is_the_default() {
    let mut two = ram();
    let other = Export { name: "other".to_owned(), ..two.exports[0].clone() };
    two.exports.push(other);
    let list = [answer::SERVER, answer::SERVER, answer::ACK].map(|kind| (option::LIST, kind));
    let options = [(option::LIST, vec![]), (option::GO, info_data("", &[]))];
    let (kinds, _) = answers(two, &options);
    assert_eq!(kinds, [list.as_slice(), &[(option::GO, answer::UNKNOWN)]].concat());
}

#[test]
fn block_sizes_are_told_and_need_not_be_asked_for() {
    for block_bytes in [512, 4096] {
        for wanted in [&[][..], &[info::BLOCK_SIZE]] {
            let mut talk = Talk::new(Ram::new(DISK_BYTES, block_bytes));
            let mut out = client_flags();
            wire::encode_option(&mut out, option::GO, &info_data("disk", wanted));
            talk.hear(&out);
            let said = talk.said.clone();
            // Any byte, best by blocks, at most 32 MiB.
            let sizes = b"\0\x03\0\0\0\x01\0\0\x10\0\x02\0\0\0";
            assert!(said.windows(sizes.len()).any(|window| window == sizes), "{said:?}");
            talk.hear(&request(command::READ, 0, 1, 1, 1));
            assert_eq!(talk.said[said.len()..].len(), 17);
            talk.hang_up();
        }
    }
}

#[test]
fn export_name_starts_without_words() {
    for (flags, zeroes) in [(1u32, 124), (3, 0)] {
        let mut talk = Talk::new(ram());
        let mut out = flags.to_be_bytes().to_vec();
        wire::encode_option(&mut out, option::EXPORT_NAME, b"disk");
        out.extend(request(command::FLUSH, 0, 7, 0, 0));
        talk.hear(&out);
        let mut fields = Fields(&talk.said[GREETING_BYTES..]);
        assert_eq!(fields.u64(), Some(DISK_BYTES));
        // HAS_FLAGS, FLUSH, FUA, TRIM, WRITE_ZEROES, CAN_MULTI_CONN, CACHE, FAST_ZERO.
        assert_eq!(fields.u16(), Some(0b1101_0110_1101));
        assert_eq!(fields.take(zeroes), Some(vec![0; zeroes].as_slice()));
        assert_eq!(fields.u32(), Some(wire::SIMPLE_MAGIC));
        talk.hang_up();
    }
    // An answer to an option would be taken for the size.
    for name in [b"none".to_vec(), vec![b'x'; (64 << 10) + 1]] {
        let mut talk = Talk::new(ram());
        let mut out = client_flags();
        wire::encode_option(&mut out, option::EXPORT_NAME, &name);
        talk.hear(&out);
        assert!(talk.connection.is_over());
        assert_eq!(talk.said.len(), GREETING_BYTES);
    }
}

/// Returns the answer that the protocol prescribes for one request of an export of `DISK_BYTES`.
fn expected(disk: &mut [u8], said: &Said, replies: Replies, sized: bool) -> Heard {
    let fail = |error| Heard { error, data: Vec::new() };
    let extended = replies == Replies::Extended;
    let known = match said.command {
        command::READ if replies != Replies::Simple => command_flag::FUA | command_flag::DF,
        command::WRITE if extended => command_flag::FUA | command_flag::PAYLOAD_LEN,
        command::WRITE_ZEROES => command_flag::FUA | command_flag::NO_HOLE | command_flag::FAST_ZERO,
        command::BLOCK_STATUS if replies != Replies::Simple => command_flag::FUA | command_flag::REQ_ONE,
        _ => command_flag::FUA,
    };
    let selected = said.command != command::BLOCK_STATUS || replies != Replies::Simple;
    if said.command > command::BLOCK_STATUS || !selected || said.flags & !known != 0 {
        return fail(22);
    }
    if said.command == command::FLUSH {
        return fail(if said.offset == 0 && said.len == 0 { 0 } else { 22 });
    }
    if said.len == 0 {
        return fail(22);
    }
    let end = u128::from(said.offset) + u128::from(said.len);
    if end > u128::from(DISK_BYTES) {
        let grows = matches!(said.command, command::WRITE | command::WRITE_ZEROES);
        return fail(if grows { 28 } else { 22 });
    }
    assert!(!sized || said.len <= 32 << 20, "the disk is smaller");
    if said.command == command::WRITE_ZEROES && said.flags & command_flag::FAST_ZERO != 0 {
        return fail(95);
    }
    let (start, end) = (said.offset as usize, end as usize);
    let mut heard = fail(0);
    match said.command {
        command::READ => heard.data = disk[start..end].to_vec(),
        command::WRITE => disk[start..end].copy_from_slice(&said.payload()),
        command::WRITE_ZEROES => disk[start..end].fill(0),
        command::TRIM if start.next_multiple_of(512) < end / 512 * 512 => {
            disk[start.next_multiple_of(512)..end / 512 * 512].fill(0);
        }
        command::BLOCK_STATUS => heard.data = status(disk, said, extended),
        _ => {}
    }
    heard
}

/// The body of a reply to BLOCK_STATUS.
fn status(disk: &[u8], said: &Said, extended: bool) -> Vec<u8> {
    let end = (said.offset + u64::from(said.len)) as usize;
    let mut extents: Vec<(u64, bool)> = Vec::new();
    let mut at = said.offset as usize;
    while at < end {
        let next = ((at / 4096 + 1) * 4096).min(end);
        let block = &disk[at / 4096 * 4096..(at / 4096 + 1) * 4096];
        let hole = block.iter().all(|byte| *byte == 0);
        match extents.last_mut() {
            Some((bytes, last)) if *last == hole => *bytes += (next - at) as u64,
            _ => extents.push(((next - at) as u64, hole)),
        }
        at = next;
    }
    extents.truncate(if said.flags & command_flag::REQ_ONE != 0 { 1 } else { 512 });
    let mut body = 1u32.to_be_bytes().to_vec();
    if extended {
        body.extend((extents.len() as u32).to_be_bytes());
    }
    for (bytes, hole) in extents {
        let state = if hole { 3u32 } else { 0 };
        if extended {
            body.extend(bytes.to_be_bytes());
            body.extend(u64::from(state).to_be_bytes());
        } else {
            body.extend((bytes as u32).to_be_bytes());
            body.extend(state.to_be_bytes());
        }
    }
    body
}

#[derive(Clone, Debug)]
struct Said {
    command: u16,
    flags: u16,
    offset: u64,
    len: u32,
    fill: u8,
}

impl Said {
    fn payload(&self) -> Vec<u8> {
        if self.command != command::WRITE {
            return Vec::new();
        }
        (0..self.len).map(|at| (at / 512) as u8 ^ self.fill).collect()
    }
}

fn said() -> impl Strategy<Value = Said> {
    let command = prop_oneof![8 => 0u16..2, 4 => 3u16..9, 1 => Just(999u16)];
    let flags = prop_oneof![8 => Just(0u16), 4 => 0u16..32, 1 => any::<u16>()];
    let sector = prop_oneof![8 => 0u64..256, 4 => 0u64..17000, 1 => any::<u64>()];
    let sectors = prop_oneof![8 => 0u32..40, 2 => 0u32..600, 1 => 2000u32..5000];
    let odd = prop_oneof![1 => Just((0u64, 0u32)), 1 => (0u64..512, 0u32..512)];
    (command, flags, sector, sectors, odd, any::<u8>()).prop_map(|(command, flags, sector, sectors, odd, fill)| {
        let flush = command == command::FLUSH && fill < 200;
        Said {
            command,
            flags,
            offset: if flush { 0 } else { sector.wrapping_mul(512).wrapping_add(odd.0) },
            len: if flush { 0 } else { sectors * 512 + odd.1 },
            fill,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_split_says_the_same(
        all in prop::collection::vec(said(), 1..40),
        replies in prop::sample::select(vec![Replies::Simple, Replies::Structured, Replies::Extended]),
        sized in any::<bool>(),
        cuts in prop::collection::vec(prop_oneof![4 => 1usize..40, 4 => 1usize..9000, 1 => 1usize..400_000], 1..30),
    ) {
        let mut bytes = hello_of(replies, sized);
        let mut disk = vec![0; DISK_BYTES as usize];
        let mut reads = BTreeMap::new();
        let mut wanted = BTreeMap::new();
        for (cookie, said) in (1 << 40..).zip(&all) {
            let mut said = said.clone();
            if replies == Replies::Extended {
                // A client that sets the flag otherwise has no payload to send.
                said.flags &= !command_flag::PAYLOAD_LEN;
                // A write should, and qemu's do not.
                let says_so = said.command == command::WRITE && said.fill % 4 > 0;
                said.flags |= if says_so { command_flag::PAYLOAD_LEN } else { 0 };
            }
            let said = &said;
            bytes.extend(request_of(replies, said.command, said.flags, cookie, said.offset, said.len.into()));
            bytes.extend(said.payload());
            wanted.insert(cookie, expected(&mut disk, said, replies, sized));
            if said.command == command::READ {
                reads.insert(cookie, u64::from(said.len));
            }
        }
        let mut handshake = Talk::new(ram());
        handshake.hear(&hello_of(replies, sized));

        let mut cut = cuts.iter().copied().cycle();
        let mut whole = Talk::new(ram());
        whole.hear(&bytes);
        let mut pieces = Talk::new(ram());
        pieces.hear_cut(&bytes, || cut.next().unwrap());
        for talk in [whole, pieces] {
            let (start, rest) = talk.said.split_at(handshake.said.len());
            prop_assert_eq!(start, handshake.said.as_slice());
            prop_assert!(replies_of(rest, replies, &reads) == wanted);
            let ram = talk.hang_up();
            prop_assert!(ram.disk == disk);
        }
    }
}

#[test]
fn byte_by_byte_is_the_same_too() {
    let mut bytes = hello(true);
    let write = Said { command: command::WRITE, flags: 0, offset: 1536, len: 20480, fill: 9 };
    bytes.extend(request(write.command, 0, 1, write.offset, write.len));
    bytes.extend(write.payload());
    bytes.extend(request(command::READ, 0, 2, 1024, 8192));
    let mut whole = Talk::new(ram());
    whole.hear(&bytes);
    let mut single = Talk::new(ram());
    single.hear_cut(&bytes, || 1);
    assert!(whole.said == single.said);
    assert_eq!(&single.hang_up().disk[1536..][..20480], write.payload());
}

#[test]
fn replies_are_these_bytes() {
    let mut talk = Talk::started(ram(), false);
    talk.hear(&request(command::READ, 0, 0x0102, 0, 512));
    let head = b"\x67\x44\x66\x98\0\0\0\0\0\0\0\0\0\0\x01\x02";
    assert_eq!(talk.said, [head.as_slice(), &[0; 512]].concat());

    let mut talk = Talk::started(ram(), true);
    talk.hear(&request(command::READ, 0, 0x0102, 512, 512));
    let head = b"\x66\x8e\x33\xef\0\x01\0\x01\0\0\0\0\0\0\x01\x02\0\0\x02\x08\0\0\0\0\0\0\x02\0";
    assert_eq!(talk.said, [head.as_slice(), &[0; 512]].concat());
    talk.said.clear();
    talk.hear(&request(command::READ, 0, 3, 1, 0));
    let error = b"\x66\x8e\x33\xef\0\x01\x80\x01\0\0\0\0\0\0\0\x03\0\0\0\x18\0\0\0\x16\0\x12the range is empty";
    assert_eq!(talk.said, error);

    let mut talk = Talk::started_of(ram(), Replies::Extended, true);
    talk.hear(&request_of(Replies::Extended, command::READ, 0, 0x0102, 0x2000, 0x8000));
    let head = b"\x6e\x8a\x27\x8c\0\x01\0\x02\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0\x20\0\0\0\0\0\0\0\0\x0c";
    assert_eq!(talk.said, [head.as_slice(), b"\0\0\0\0\0\0\x20\0\0\0\x80\0"].concat(), "nothing but zeroes: a hole");
}

#[test]
fn a_read_only_export_refuses_every_change() {
    let mut ram = ram();
    ram.exports[0].read_only = true;
    let mut talk = Talk::started(ram, false);
    let mut bytes = Vec::new();
    for (cookie, command) in [command::WRITE, command::TRIM, command::WRITE_ZEROES].iter().enumerate() {
        bytes.extend(request(*command, 0, cookie as u64, 0, 512));
        if *command == command::WRITE {
            bytes.extend([1; 512]);
        }
    }
    bytes.extend(request(command::FLUSH, 0, 3, 0, 0));
    talk.hear(&bytes);
    let errors = replies(&talk.said, false, &BTreeMap::new());
    let errors = errors.values().map(|heard| heard.error).collect::<Vec<_>>();
    assert_eq!(errors, [1, 1, 1, 0]);
    assert_eq!(talk.ram.requests, 1);
}

#[test]
fn one_bad_sector_fails_the_long_request_that_has_it() {
    for structured in [false, true] {
        let mut ram = ram();
        ram.bad = Some(5000..5001);
        let mut talk = Talk::started(ram, structured);
        talk.hear(&request(command::READ, 0, 1, 0, 4 << 20));
        talk.hear(&request(command::READ, 0, 2, 0, 2 << 20));
        talk.hear(&[request(command::WRITE, 0, 3, 0, 3 << 20), vec![5; 3 << 20]].concat());
        let reads = BTreeMap::from([(1, 4 << 20), (2, 2 << 20)]);
        let heard = replies(&talk.said, structured, &reads);
        let errors = heard.values().map(|heard| heard.error).collect::<Vec<_>>();
        assert_eq!(errors, [5, 0, 5]);
        talk.hang_up();
    }
}

#[test]
fn requests_are_cut_at_one_mebibyte_of_whole_blocks() {
    let mut talk = Talk::started(Ram::new(64 << 20, 512), false);
    talk.say(&request(command::READ, 0, 1, 3584, 32 << 20), usize::MAX);
    talk.connection.advance(&mut talk.ram, true);
    let parts = talk.ram.queue.iter().map(|it| (it.lba.0, it.sectors)).collect::<Vec<_>>();
    assert_eq!(parts.len(), 33);
    assert_eq!((parts[0], parts[1], parts[32]), ((7, 2041), (2048, 2048), (65536, 7)));
    assert!(parts.windows(2).all(|two| two[0].0 + two[0].1 == two[1].0));
    talk.hang_up();
}

#[test]
fn what_was_asked_before_a_goodbye_is_answered() {
    let mut talk = Talk::started(ram(), false);
    let mut bytes = request(command::READ, 0, 1, 0, 512);
    bytes.extend(request(command::DISCONNECT, 0, 2, 0, 0));
    bytes.extend(request(command::READ, 0, 3, 0, 512));
    talk.say(&bytes, usize::MAX);
    talk.connection.advance(&mut talk.ram, true);
    assert!(!talk.connection.is_over());
    talk.execute(usize::MAX);
    talk.read(usize::MAX, &mut || usize::MAX);
    assert_eq!(talk.said.len(), 16 + 512);
    assert!(talk.connection.is_over());
}

#[test]
fn flags_reach_the_engine() {
    let mut talk = Talk::started(ram(), false);
    let mut bytes = request(command::WRITE, command_flag::FUA, 1, 0, 512);
    bytes.extend([1; 512]);
    bytes.extend(request(command::WRITE_ZEROES, command_flag::NO_HOLE, 2, 0, 512));
    bytes.extend(request(command::WRITE_ZEROES, 0, 3, 0, 1 << 20));
    talk.say(&bytes, usize::MAX);
    talk.connection.advance(&mut talk.ram, true);
    let ops = talk.ram.queue.iter().map(|it| format!("{:?} {}", it.op, it.fua)).collect::<Vec<_>>();
    let zeroes = ["WriteZeroes { may_discard: false } false", "WriteZeroes { may_discard: true } false"];
    assert_eq!(ops, ["Write true", zeroes[0], zeroes[1]]);
    talk.hang_up();
}
