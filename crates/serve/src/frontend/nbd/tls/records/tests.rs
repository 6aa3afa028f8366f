// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two ends of a session in memory, one of which says what a client may not say, or too much of it.

use super::super::keys::Cipher;
use super::*;

/// A client's end: keys, with which it encrypts whatever a test wants to say.
struct Pair {
    client: Records,
    server: Records,
    /// What the server has said.
    out: Vec<u8>,
}

const ALL: [Suite; 6] = [
    Suite { version: Version::Tls13, cipher: Cipher::Aes128Gcm },
    Suite { version: Version::Tls13, cipher: Cipher::Aes256Gcm },
    Suite { version: Version::Tls13, cipher: Cipher::Chacha20Poly1305 },
    Suite { version: Version::Tls12, cipher: Cipher::Aes128Gcm },
    Suite { version: Version::Tls12, cipher: Cipher::Aes256Gcm },
    Suite { version: Version::Tls12, cipher: Cipher::Chacha20Poly1305 },
];

/// Keys from their record `number` on.
fn keys(suite: Suite, seed: u8, number: u64) -> Keys {
    let bytes = match (suite.version, suite.cipher) {
        (Version::Tls12, Cipher::Aes128Gcm) => 16 + 12,
        (Version::Tls12, _) => 32 + 12,
        (Version::Tls13, Cipher::Aes256Gcm) => 48,
        (Version::Tls13, _) => 32,
    };
    Keys::new(suite, &vec![seed; bytes], number).unwrap()
}

impl Pair {
    fn new(suite: Suite) -> Self {
        Self::at(suite, 0)
    }

    /// A pair whose server has sent `number` records.
    fn at(suite: Suite, number: u64) -> Self {
        let of = |seed, number| keys(suite, seed, number);
        let client = Records::new(of(1, number), of(2, 0), false);
        let server = Records::new(of(2, 0), of(1, number), false);
        Self { client, server, out: Vec::new() }
    }

    /// A record of the client.
    fn says(&mut self, kind: u8, content: &[u8]) -> Vec<u8> {
        let mut record = Vec::new();
        self.client.outgoing.encrypt(kind, &mut record, |out| out.extend_from_slice(content)).unwrap();
        record
    }

    fn hears(&mut self, record: &mut [u8]) -> Result<Record, Fault> {
        let whole = self.server.whole(record)?;
        assert_eq!(whole, Some(record.len()));
        self.server.decrypt(record, &mut self.out)
    }

    fn tells(&mut self, kind: u8, content: &[u8]) -> Result<Record, Fault> {
        let mut record = self.says(kind, content);
        self.hears(&mut record)
    }

    /// The server says something; how many records that takes.
    fn answers(&mut self, content: &[u8]) -> Result<usize, Fault> {
        let mut taken = 0;
        while taken < content.len() {
            taken += self.server.encrypt(&[IoSlice::new(&content[taken..])], &mut self.out)?;
        }
        let (mut records, mut heard) = (0, Vec::new());
        let mut rest = &mut std::mem::take(&mut self.out)[..];
        while let Some(whole) = self.client.whole(rest)? {
            let (record, after) = rest.split_at_mut(whole);
            match self.client.decrypt(record, &mut Vec::new())? {
                Record::Data(at) => heard.extend_from_slice(&record[at]),
                Record::Nothing => {}
                Record::End => return Err(Fault::UsedUp),
            }
            (rest, records) = (after, records + 1);
        }
        assert!(heard == content && rest.is_empty());
        Ok(records)
    }
}

#[test]
fn content_is_cut_into_records_and_comes_as_it_was() {
    for suite in ALL {
        let mut pair = Pair::new(suite);
        assert_eq!(pair.answers(&[7; CONTENT_BYTES_MAX]), Ok(1));
        assert_eq!(pair.answers(&[7; CONTENT_BYTES_MAX + 1]), Ok(2));
        assert_eq!(pair.answers(&(0..100_000).map(|byte| byte as u8).collect::<Vec<_>>()), Ok(7));
    }
}

#[test]
fn a_record_longer_than_allowed_is_refused_by_its_header_or_its_content() {
    for suite in ALL {
        let mut pair = Pair::new(suite);
        let most = (BODY_BYTES_MAX as u16).to_be_bytes();
        assert_eq!(pair.server.whole(&[DATA, 3, 3, most[0], most[1]]), Ok(None));
        assert_eq!(pair.server.whole(&[DATA, 3, 3, most[0], most[1] + 1]), Err(Fault::TooLong));
        assert_eq!(pair.server.whole(&[DATA, 3, 1, 0, 40]), Err(Fault::OutOfPlace));
        assert_eq!(pair.server.whole(&[DATA, 3, 3, 0]), Ok(None), "a part of a header");
        let tls12 = suite.version == Version::Tls12;
        for (kind, fits) in [(20, false), (ALERT, tls12), (HANDSHAKE, tls12), (24, false), (0, false)] {
            assert_eq!(pair.server.whole(&[kind, 3, 3, 0, 40]).is_ok(), fits, "{kind} in {suite:?}");
        }
        let mut over = pair.says(DATA, &[1; CONTENT_BYTES_MAX + 1]);
        assert!(over.len() <= HEADER_BYTES + BODY_BYTES_MAX);
        assert_eq!(pair.hears(&mut over), Err(Fault::TooLong));
        let mut pair = Pair::new(suite);
        for short in 0..40 {
            let mut record = vec![0; HEADER_BYTES + short];
            record[..3].copy_from_slice(&[DATA, 3, 3]);
            record[4] = short as u8;
            assert_eq!(pair.hears(&mut record), Err(Fault::Damaged), "{short} bytes");
        }
    }
}

#[test]
fn what_only_a_handshake_may_say_ends_the_session() {
    let finished = [20, 0, 0, 1, 0];
    let two_updates = [KEY_UPDATE.as_slice(), &[0], &KEY_UPDATE, &[0]].concat();
    for suite in ALL {
        for content in [&finished[..], &two_updates, &KEY_UPDATE[..3], &KEY_UPDATE, &[]] {
            assert_eq!(Pair::new(suite).tells(HANDSHAKE, content), Err(Fault::OutOfPlace), "{content:?}");
        }
        // A kind that does not exist, in TLS 1.3 inside the record.
        if suite.version == Version::Tls13 {
            for kind in [20, 24, 99] {
                assert_eq!(Pair::new(suite).tells(kind, &[1]), Err(Fault::OutOfPlace), "{kind}");
            }
            let update = [KEY_UPDATE.as_slice(), &[2]].concat();
            assert_eq!(Pair::new(suite).tells(HANDSHAKE, &update), Err(Fault::Unreadable));
            // Zeroes alone have no kind.
            assert_eq!(Pair::new(suite).tells(0, &[0; 100]), Err(Fault::OutOfPlace));
        } else {
            let update = [KEY_UPDATE.as_slice(), &[0]].concat();
            assert_eq!(Pair::new(suite).tells(HANDSHAKE, &update), Err(Fault::OutOfPlace));
        }
    }
}

#[test]
fn padding_of_tls_13_is_no_content() {
    let mut pair = Pair::new(ALL[0]);
    // Behind the content stands the kind of content, and then zeroes: here before the kind that
    // the record layer adds, which is zero.
    let Ok(Record::Data(at)) = pair.tells(0, &[&[5; 9][..], &[DATA], &[0; 5000]].concat()) else {
        panic!("no content")
    };
    assert_eq!(at.len(), 9);
}

#[test]
fn alerts_end_the_session_but_for_a_few_warnings() {
    for suite in ALL {
        assert_eq!(Pair::new(suite).tells(ALERT, &[WARNING, CLOSE_NOTIFY]), Ok(Record::End));
        assert_eq!(Pair::new(suite).tells(ALERT, &[FATAL, CLOSE_NOTIFY]), Ok(Record::End));
        assert_eq!(Pair::new(suite).tells(ALERT, &[FATAL, 40]), Err(Fault::GivenUp(40)));
        for content in [&[][..], &[1], &[1, 0, 0]] {
            assert_eq!(Pair::new(suite).tells(ALERT, content), Err(Fault::Unreadable));
        }
        let mut pair = Pair::new(suite);
        for _ in 0..WARNINGS_MAX {
            assert_eq!(pair.tells(ALERT, &[WARNING, USER_CANCELED]), Ok(Record::Nothing));
        }
        assert_eq!(pair.tells(ALERT, &[WARNING, USER_CANCELED]), Err(Fault::GivenUp(USER_CANCELED)));
        let other = Pair::new(suite).tells(ALERT, &[WARNING, 46]);
        let expected = if suite.version == Version::Tls12 { Ok(Record::Nothing) } else { Err(Fault::GivenUp(46)) };
        assert_eq!(other, expected);
        assert!(pair.out.is_empty());
    }
}

#[test]
fn records_without_content_are_few() {
    for suite in ALL {
        let mut pair = Pair::new(suite);
        for _ in 0..3 {
            for _ in 0..EMPTY_MAX {
                assert_eq!(pair.tells(DATA, &[]), Ok(Record::Nothing));
            }
            assert!(matches!(pair.tells(DATA, &[1]), Ok(Record::Data(_))));
        }
        for _ in 0..EMPTY_MAX {
            assert_eq!(pair.tells(DATA, &[]), Ok(Record::Nothing));
        }
        assert_eq!(pair.tells(DATA, &[]), Err(Fault::Flood));
    }
}

#[test]
fn a_client_of_tls_12_is_refused_another_handshake_once() {
    for suite in ALL {
        let mut pair = Pair::new(suite);
        let first = pair.tells(HANDSHAKE, &[CLIENT_HELLO, 0, 0, 0]);
        if suite.version == Version::Tls13 {
            assert_eq!(first, Err(Fault::OutOfPlace));
            continue;
        }
        assert_eq!(first, Ok(Record::Nothing));
        let mut said = std::mem::take(&mut pair.out);
        let (kind, at) = pair.client.incoming.decrypt(&mut said).unwrap();
        assert_eq!((kind, &said[at]), (ALERT, [WARNING, NO_RENEGOTIATION].as_slice()));
        assert!(matches!(pair.tells(DATA, &[1]), Ok(Record::Data(_))));
        assert_eq!(pair.tells(HANDSHAKE, &[CLIENT_HELLO, 0, 0, 0]), Err(Fault::OutOfPlace));
        assert!(pair.out.is_empty());
    }
}

/// However often a client asks for new keys, it is answered once, before the next content.
#[test]
fn keys_change_as_often_as_content_comes_between() {
    for suite in ALL.into_iter().filter(|suite| suite.version == Version::Tls13) {
        let mut pair = Pair::new(suite);
        for asks in [0, 1] {
            let update = [KEY_UPDATE.as_slice(), &[asks]].concat();
            for _ in 0..3 {
                for _ in 0..UPDATES_MAX {
                    assert_eq!(pair.tells(HANDSHAKE, &update), Ok(Record::Nothing));
                    pair.client.outgoing.update().unwrap();
                    assert!(pair.out.is_empty(), "nothing is owed for what is not answered");
                }
                assert!(matches!(pair.tells(DATA, &[1]), Ok(Record::Data(_))));
                assert_eq!(pair.answers(&[1; 100]), Ok(1 + usize::from(asks)));
                assert_eq!(pair.answers(&[1; 100]), Ok(1));
            }
        }
        let update = [KEY_UPDATE.as_slice(), &[0]].concat();
        for _ in 0..UPDATES_MAX {
            assert_eq!(pair.tells(HANDSHAKE, &update), Ok(Record::Nothing));
            pair.client.outgoing.update().unwrap();
        }
        assert_eq!(pair.tells(HANDSHAKE, &update), Err(Fault::Flood));
    }
}

/// A record under the keys of before is no record.
#[test]
fn old_keys_are_forgotten() {
    let mut pair = Pair::new(ALL[0]);
    let update = [KEY_UPDATE.as_slice(), &[0]].concat();
    assert_eq!(pair.tells(HANDSHAKE, &update), Ok(Record::Nothing));
    assert_eq!(pair.tells(DATA, &[1]), Err(Fault::Damaged), "the client has not changed its keys");
}

#[test]
fn used_up_keys_are_changed_in_tls_13_and_end_a_session_of_tls_12() {
    for suite in ALL {
        let most = keys(suite, 1, 0).left();
        let mut pair = Pair::at(suite, most - 3);
        // Two records, and one that tells of other keys or of the end.
        assert_eq!(pair.answers(&[1]), Ok(1));
        assert_eq!(pair.answers(&[2]), Ok(1));
        if suite.version == Version::Tls13 {
            assert_eq!(pair.answers(&[3]), Ok(2));
            assert_eq!(pair.answers(&[4]), Ok(1));
            assert_eq!(pair.server.outgoing.left(), most - 2);
            continue;
        }
        assert_eq!(pair.answers(&[3]), Err(Fault::UsedUp));
        pair.server.give_up(Fault::UsedUp, &mut pair.out);
        let mut said = std::mem::take(&mut pair.out);
        assert_eq!(pair.client.decrypt(&mut said, &mut Vec::new()), Ok(Record::End));
        pair.server.end(&mut pair.out);
        assert!(pair.out.is_empty(), "there is no number left");
    }
}

#[test]
fn secrets_are_shown_to_nobody() {
    for suite in ALL {
        let shown = format!("{:?}", Records::new(keys(suite, 211, 5), keys(suite, 212, 6), false));
        assert!(shown.contains("number: 5") && !shown.contains("211") && !shown.contains("212"), "{shown}");
        for bytes in [0, 15, 27, 29, 31, 33, 43, 45, 47, 49, 1000] {
            assert!(Keys::new(suite, &vec![1; bytes], 0).is_none(), "{bytes} bytes for {suite:?}");
        }
    }
}
