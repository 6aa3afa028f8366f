// SPDX-License-Identifier: MIT OR Apache-2.0
use std::collections::BTreeSet;

use super::*;

const OLD: [u8; 32] = [1; 32];
const NEW: [u8; 32] = [2; 32];

fn former(compressed: bool, keys: &[[u8; 32]]) -> Former {
    let keys = Keys::new(keys);
    Former::new(Form { compressed, key: keys.first() }, keys, [7; 16])
}

/// Text that compresses, and bytes that don't.
fn contents() -> [Vec<u8>; 2] {
    let mut state = 9_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    [b"flashfront".iter().copied().cycle().take(4096).collect(), (0..4096).map(|_| random()).collect()]
}

#[test]
fn an_extent_is_read_as_it_was_stored_in_each_form() {
    for (compressed, keys) in [(false, &[][..]), (true, &[]), (false, &[NEW]), (true, &[NEW, OLD])] {
        let mut former = former(compressed, keys);
        let is_framed = !former.is_plain();
        for (nth, content) in contents().iter().enumerate() {
            let stored = former.store(40, content).into_owned();
            let saves = compressed && nth == 0;
            assert_eq!(stored.len() < content.len(), saves, "{} bytes", stored.len());
            assert!(stored.len() as u64 <= content.len() as u64 + FRAME_BYTES_MAX);
            assert_eq!(former.content(is_framed, (40, 8), &stored).unwrap(), content.as_slice());
            assert!(former.content(is_framed, (40, 7), &stored).is_err(), "another length");
        }
    }
}

#[test]
fn a_changed_or_moved_extent_is_refused_and_so_is_a_wrong_key() {
    for compressed in [false, true] {
        let mut writes = former(compressed, &[OLD]);
        for content in contents() {
            let stored = writes.store(40, &content).into_owned();
            assert!(!stored.windows(10).any(|it| it == b"flashfront"), "content shows");
            for at in 0..stored.len() {
                let mut harmed = stored.clone();
                harmed[at] ^= 0x10;
                assert!(writes.content(true, (40, 8), &harmed).is_err(), "byte {at}");
            }
            for len in 0..64 {
                assert!(writes.content(true, (40, 8), &stored[..len]).is_err());
            }
            assert!(writes.content(true, (48, 8), &stored).is_err(), "another place");
            let told = former(compressed, &[NEW]).content(true, (40, 8), &stored).unwrap_err();
            assert!(told.contains(&format!("{:016x}", number_of(&OLD))), "{told}");
            let rotated = former(compressed, &[NEW, OLD]);
            assert_eq!(rotated.content(true, (40, 8), &stored).unwrap(), content.as_slice());
        }
    }
}

#[test]
fn no_nonce_is_used_twice() {
    let mut former = former(false, &[NEW]);
    let (content, mut seen) = ([5; 512], BTreeSet::new());
    former.count = (1 << 32) - 50;
    for _ in 0..100 {
        let stored = former.store(0, &content).into_owned();
        assert_eq!(former.content(true, (0, 1), &stored).unwrap(), content.as_slice());
        assert!(seen.insert(stored[33..].to_vec()), "the same bytes are encrypted to the same bytes");
    }
    let other = Former::new(former.form, former.keys.clone(), [8; 16]);
    for (opening, sealed) in [(&former.opening, [0; 8]), (&other.opening, [0; 8])] {
        let mut body = sealed.to_vec();
        derived(&NEW, opening, 0).seal_in_place_append_tag(nonce(0), Aad::empty(), &mut body).unwrap();
        assert!(seen.insert(body), "two openings have one key");
    }
}

#[test]
fn keys_are_read_from_text_and_never_shown() {
    let text = format!("# newest first\n\n{}\n  {}  \n", "02".repeat(32), "01".repeat(32));
    let keys = Keys::parse(&text).unwrap();
    assert_eq!(keys.first(), Some(number_of(&NEW)));
    assert!(keys.has(number_of(&OLD)) && !keys.has(0));
    let shown = format!("{keys:?}");
    assert!(!shown.contains("0101") && !shown.contains("0202"), "{shown}");
    assert_eq!(Keys::parse("# nothing\n").unwrap_err(), 0);
    assert_eq!(Keys::parse(&format!("{}\nabc", "01".repeat(32))).unwrap_err(), 2);
    assert_eq!(Keys::parse(&"0g".repeat(32)).unwrap_err(), 1);
}
