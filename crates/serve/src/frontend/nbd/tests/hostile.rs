// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that mean harm or are broken: no panic, no leak, no more than the bounds.

use std::collections::BTreeMap;

use flashfront_device::Share;
use proptest::prelude::*;

use super::super::wait::Wait;
use super::super::{CONNECTION_BYTES_MAX, REQUESTS_MAX};
use super::ram::Ram;
use super::talk::{Talk, client_flags, context_data, hello_of, info_data, replies, request, request_of};
use flashfront_nbd_proto::server::Security;
use flashfront_nbd_proto::wire::{self, Replies, command, option};

/// Longer than any answer that must be kept for a client that reads nothing.
const UNREAD_MAX: usize = 80 << 10;

/// A disk whose buffers don't last for everything.
fn ram() -> Ram {
    let mut ram = Ram::new(4 << 20, 512);
    ram.buffers.budget_bytes = 80 << 20;
    ram
}

/// RAM of which a half is slow, and what waits for that soon finds no buffers. As in the daemon
/// each share has room for the longest request by itself.
fn slow_ram() -> Ram {
    let mut ram = ram();
    (ram.buffers.budget_bytes, ram.buffers.passing_budget_bytes) = (33 << 20, 2 << 20);
    ram.slow = Some(0..1024);
    ram
}

/// Says `bytes` while reading, executing and cutting as `whims` tell; then hangs up.
fn torment(mut talk: Talk, bytes: &[u8], whims: &[u8]) {
    let mut rest = bytes;
    for &whim in whims.iter().cycle().take(400) {
        let wait = talk.connection.advance(&mut talk.ram, whim & 0x80 == 0);
        assert!(talk.ram.queue.len() <= REQUESTS_MAX * 64);
        let buffers = &talk.ram.buffers;
        assert!(buffers.held_bytes + buffers.passing_bytes <= CONNECTION_BYTES_MAX);
        if whim & 1 == 0 {
            talk.execute(usize::from(whim >> 1));
        }
        if whim & 16 == 0 {
            talk.connection.take_back(&mut talk.ram);
        }
        let share = if whim & 32 == 0 { Share::Waiting } else { Share::Passing };
        talk.connection.resume(share, true, &mut talk.ram);
        talk.connection.fetch_again(&mut talk.ram);
        if whim & 2 == 0 {
            talk.read(usize::from(whim) * 64, &mut || 1000);
        }
        if wait == Wait::Tls && !talk.connection.has_output() {
            talk.connection.enter_tls();
        }
        if wait == Wait::Input && !rest.is_empty() {
            let cut = usize::from(whim >> 2) * usize::from(whim >> 2) * 4;
            rest = &rest[talk.say(rest, cut)..];
        }
    }
    if let Some(whim) = whims.first()
        && whim & 4 == 0
    {
        talk.connection.finish_up(&mut talk.ram);
        for _ in 0..1000 {
            talk.execute(usize::MAX);
            talk.read(usize::MAX, &mut || usize::MAX);
            talk.connection.resume(Share::Waiting, true, &mut talk.ram);
            talk.connection.fetch_again(&mut talk.ram);
        }
        assert!(talk.connection.is_over());
        assert_eq!(talk.ram.buffers.held_bytes + talk.ram.buffers.passing_bytes, 0);
    }
    talk.hang_up();
}

/// A request: command, flags, cookie, offset, length.
type Asked = (u16, u16, u64, u64, u64);

/// Something like what a client says: requests with small payload, of any command, some of many
/// mebibytes.
fn stream() -> impl Strategy<Value = Vec<Asked>> {
    let len = prop_oneof![8 => 0u64..20_000, 1 => 0u64..(5 << 20), 1 => any::<u64>()];
    let flags = prop_oneof![4 => 0u16..4, 1 => 0u16..64];
    prop::collection::vec((0u16..9, flags, any::<u64>(), 0u64..(4 << 20), len), 1..40)
}

fn said(replies: Replies, requests: &[Asked]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &(command, flags, cookie, offset, len) in requests {
        bytes.extend(request_of(replies, command, flags, cookie, offset, len));
        if command == command::WRITE {
            bytes.extend(vec![command as u8; (len as usize).min(64 << 10)]);
        }
    }
    bytes
}

fn any_replies() -> impl Strategy<Value = Replies> {
    prop::sample::select(vec![Replies::Simple, Replies::Structured, Replies::Extended])
}

fn whims() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 1..50)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hostile_noise(
        replies in prop::option::of(any_replies()),
        sized in any::<bool>(),
        bytes in prop::collection::vec(any::<u8>(), 0..2000),
        whims in whims(),
    ) {
        let talk = match replies {
            Some(replies) => Talk::started_of(ram(), replies, sized),
            None => Talk::new(ram()),
        };
        torment(talk, &bytes, &whims);
    }

    #[test]
    fn hostile_options(
        options in prop::collection::vec((0u32..14, prop::collection::vec(any::<u8>(), 0..60), any::<u16>()), 0..30),
        requests in stream(),
        whims in whims(),
        security in prop::sample::select(vec![Security::Off, Security::Offered, Security::Required, Security::On]),
    ) {
        let mut bytes = client_flags();
        for (kind, mut data, tweak) in options {
            if (option::INFO..=option::GO).contains(&kind) && tweak & 1 == 0 {
                data = info_data("disk", &[tweak, 3]);
            }
            if (option::LIST_META_CONTEXT..=option::SET_META_CONTEXT).contains(&kind) && tweak & 1 == 0 {
                data = context_data("disk", &["base:allocation", "base:", "x-other:leaf"][..usize::from(tweak) % 4]);
            }
            wire::encode_option(&mut bytes, kind, &data);
            if tweak > 60000 {
                let last = bytes.len() - 1 - usize::from(tweak) % bytes.len();
                bytes[last] ^= tweak as u8;
            }
        }
        bytes.extend(said(Replies::Simple, &requests));
        torment(Talk::secured(ram(), security), &bytes, &whims);
    }

    #[test]
    fn hostile_mutations(
        replies in any_replies(),
        sized in any::<bool>(),
        requests in stream(),
        slow in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3), 0..12),
        whims in whims(),
    ) {
        let mut bytes = [hello_of(replies, sized), said(replies, &requests)].concat();
        for (place, byte, what) in changes {
            let place = place.index(bytes.len());
            match what {
                0 => bytes[place] = byte,
                1 => bytes.insert(place, byte),
                _ if bytes.len() > 1 => drop(bytes.remove(place)),
                _ => {}
            }
        }
        torment(Talk::new(if slow { slow_ram() } else { ram() }), &bytes, &whims);
    }
}

/// Says `bytes` and never reads.
fn say_unread(talk: &mut Talk, mut bytes: &[u8]) -> usize {
    let all = bytes.len();
    loop {
        match talk.connection.advance(&mut talk.ram, true) {
            Wait::Input if !bytes.is_empty() => bytes = &bytes[talk.say(bytes, usize::MAX)..],
            _ if talk.execute(usize::MAX) > 0 => {}
            _ => return all - bytes.len(),
        }
    }
}

#[test]
fn hostile_reader_of_nothing_holds_what_it_may() {
    let mut ram = Ram::new(4 << 20, 512);
    ram.disk.fill(7);
    ram.buffers.passing_budget_bytes = 128 << 20;
    let mut talk = Talk::started(ram, false);
    let all = 1000;
    let bytes = (0..all).flat_map(|cookie| request(command::READ, 0, cookie, 512, 1 << 20));
    let bytes = bytes.collect::<Vec<_>>();
    let taken = say_unread(&mut talk, &bytes);
    // 63 reads of 1 MiB in two pieces of 1 MiB and 4 KiB: one more would be above 64 MiB.
    assert_eq!(talk.ram.requests, 63 * 2);
    let buffers = &talk.ram.buffers;
    assert!(buffers.held_bytes + buffers.passing_bytes <= CONNECTION_BYTES_MAX);
    assert!(buffers.held_bytes_peak <= CONNECTION_BYTES_MAX / 2, "the rest is for what waits for nobody");
    // Once it reads, it gets all of them.
    talk.hear(&bytes[taken..]);
    let reads = (0..all).map(|cookie| (cookie, 1 << 20)).collect::<BTreeMap<_, _>>();
    let heard = replies(&talk.said, false, &reads);
    assert_eq!(heard.len(), 1000);
    assert!(heard.values().all(|heard| heard.error == 0 && heard.data == vec![7; 1 << 20]));
    talk.hang_up();
}

#[test]
fn hostile_reader_of_no_errors_is_stopped_too() {
    let mut talk = Talk::started(Ram::new(4 << 20, 512), true);
    let bytes = request(command::READ, 0, 1, 1, 0).repeat(10_000);
    say_unread(&mut talk, &bytes);
    assert_eq!(talk.connection.advance(&mut talk.ram, true), Wait::Own);
    talk.read(usize::MAX, &mut || usize::MAX);
    assert_eq!(talk.said.len(), REQUESTS_MAX * (26 + "the range is empty".len()));
    talk.hang_up();
}

#[test]
fn hostile_lister_that_does_not_read_is_stopped() {
    let mut talk = Talk::new(Ram::new(4 << 20, 512));
    let mut bytes = client_flags();
    for _ in 0..100_000 {
        wire::encode_option(&mut bytes, option::LIST, &[]);
    }
    say_unread(&mut talk, &bytes);
    talk.read(usize::MAX, &mut || usize::MAX);
    assert!(talk.said.len() < UNREAD_MAX, "{}", talk.said.len());
    talk.hang_up();
}

#[test]
fn hostile_lengths_allocate_nothing() {
    let mut talk = Talk::started(Ram::new(4 << 20, 512), false);
    let len = (32 << 20) + 512;
    let mut bytes = request(command::WRITE, 0, 1, 0, len);
    bytes.resize(bytes.len() + len as usize, 0xff);
    bytes.extend(request(command::READ, 0, 2, 0, u32::MAX));
    bytes.extend(request(command::WRITE, 0, 3, (4 << 20) - 512, 1024));
    bytes.extend([0xff; 1024]);
    bytes.extend(request(command::FLUSH, 0, 4, 0, 0));
    bytes.extend(request(command::WRITE, 0, 5, 0, u32::MAX));
    talk.hear(&bytes);
    let heard = replies(&talk.said, false, &BTreeMap::from([(2, 0)]));
    let errors = heard.values().map(|heard| heard.error).collect::<Vec<_>>();
    assert_eq!(errors, [22, 22, 28, 0, 22]);
    assert_eq!((talk.ram.requests, talk.ram.buffers.held_bytes_peak), (1, 0));
    talk.hang_up();
}

#[test]
fn hostile_magic_ends_this_connection() {
    let mut talk = Talk::started(Ram::new(4 << 20, 512), false);
    talk.hear(&[request(command::READ, 0, 1, 0, 512), vec![0xaa; 28]].concat());
    assert!(talk.connection.is_over());
    assert_eq!(talk.said.len(), 16 + 512, "what came before is still answered");
}
