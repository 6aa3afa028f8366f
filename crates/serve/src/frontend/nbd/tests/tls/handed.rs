// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions that are written down and taken up, at any moment, under a client of rustls. Records
//! that were changed, lost, repeated or swapped on their way.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::{AlertDescription, ClientConfig, ClientConnection, Error, SupportedCipherSuite, version};

use super::super::super::stream::Socket;
use super::super::super::tls::{Tls, TlsStream};
use super::client::session;
use super::pki::Pki;
use crate::upgrade::Parcel;

/// The three of each version.
fn suites() -> Vec<SupportedCipherSuite> {
    let all = rustls::crypto::ring::ALL_CIPHER_SUITES.iter().copied();
    let fits = |suite: &SupportedCipherSuite| !format!("{suite:?}").contains("ECDHE_RSA");
    all.filter(fits).collect()
}

/// A number that follows from the one before.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.below(256) as u8).collect()
    }
}

/// A client of rustls, and a server's stream.
struct Pair {
    client: ClientConnection,
    /// The client's end of the socket.
    far: UnixStream,
    server: TlsStream,
    /// What the client has encrypted, and the socket has not taken.
    cipher: Vec<u8>,
}

impl Pair {
    fn new(pki: &Pki, suite: SupportedCipherSuite) -> Self {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        far.set_nonblocking(true).unwrap();
        let tls = Tls::load(pki.dir(), false).unwrap();
        let server = tls.start(Socket::Unix(mio::net::UnixStream::from_std(near))).unwrap();
        let mut pair = Self { client: session(&only(pki, suite)), far, server, cipher: Vec::new() };
        while pair.server.is_handshaking() || pair.client.is_handshaking() {
            pair.encrypt();
            pair.carry(usize::MAX);
            assert_eq!(pair.receive(1), b"");
            pair.server.flush().unwrap();
            pair.hear().unwrap();
        }
        assert_eq!(pair.client.negotiated_cipher_suite(), Some(suite));
        pair
    }

    /// Encrypts what the client has said.
    fn encrypt(&mut self) {
        while self.client.wants_write() {
            self.client.write_tls(&mut self.cipher).unwrap();
        }
    }

    fn say(&mut self, content: &[u8]) {
        self.client.writer().write_all(content).unwrap();
        self.encrypt();
    }

    /// Gives the socket no more than `most` bytes of that.
    fn carry(&mut self, most: usize) {
        let most = most.min(self.cipher.len());
        match self.far.write(&self.cipher[..most]) {
            Ok(bytes) => drop(self.cipher.drain(..bytes)),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }

    /// What the server receives in at most so many bytes.
    fn receive(&mut self, most: usize) -> Vec<u8> {
        self.try_receive(most).unwrap().unwrap_or_default()
    }

    /// None: the client has ended.
    fn try_receive(&mut self, most: usize) -> Result<Option<Vec<u8>>, ErrorKind> {
        let mut bytes = vec![0; most];
        let (one, two) = bytes.split_at_mut(most / 3);
        match self.server.receive(&mut [IoSliceMut::new(one), IoSliceMut::new(two)]) {
            Ok(0) => Ok(None),
            Ok(count) => {
                bytes.truncate(count);
                Ok(Some(bytes))
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Ok(Some(Vec::new()))
            }
            Err(error) => Err(error.kind()),
        }
    }

    /// What the server has sent, as far as the client understands it.
    fn hear(&mut self) -> Result<Vec<u8>, Error> {
        let mut heard = Vec::new();
        while matches!(self.client.read_tls(&mut self.far), Ok(1..)) {
            self.client.process_new_packets()?;
            let mut part = [0; 1 << 15];
            while let Ok(bytes @ 1..) = self.client.reader().read(&mut part) {
                heard.extend_from_slice(&part[..bytes]);
            }
        }
        Ok(heard)
    }

    /// Another process goes on with the session.
    fn hand_over(&mut self) {
        let mut parcel = Parcel::default();
        let saved = serde_json::to_string(&self.server.save(&mut parcel).unwrap()).unwrap();
        let shown = format!("{parcel:?}");
        assert!(shown.contains("Parcel") && !shown.contains("bytes"), "{shown}");
        let socket = UnixStream::from(self.server.socket().as_fd().try_clone_to_owned().unwrap());
        let socket = Socket::Unix(mio::net::UnixStream::from_std(socket));
        self.server = TlsStream::take_up(socket, &serde_json::from_str(&saved).unwrap(), &parcel).unwrap();
    }

    /// Asks for nothing, and hears the alert with which the server has given up.
    fn alert(&mut self) -> AlertDescription {
        match self.hear() {
            Err(Error::AlertReceived(alert)) => alert,
            other => panic!("no alert: {other:?}"),
        }
    }
}

/// A client that offers one suite.
fn only(pki: &Pki, suite: SupportedCipherSuite) -> Arc<ClientConfig> {
    let provider = CryptoProvider { cipher_suites: vec![suite], ..rustls::crypto::ring::default_provider() };
    let versions = if suite.tls13().is_some() { [&version::TLS13] } else { [&version::TLS12] };
    let builder = ClientConfig::builder_with_provider(Arc::new(provider)).with_protocol_versions(&versions).unwrap();
    Arc::new(builder.with_root_certificates(pki.roots()).with_no_client_auth())
}

#[test]
fn a_session_goes_on_after_any_cut() {
    let pki = Pki::new();
    for (nth, suite) in suites().into_iter().enumerate() {
        let mut unsent = 0;
        for seed in 0..4 {
            let (mut pair, mut dice) = (Pair::new(&pki, suite), Dice(seed * 100 + nth as u64));
            let (mut said, mut received, mut sent, mut heard) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
            let mut moves = [0; 2];
            for _ in 0..400 {
                match dice.below(8) {
                    0 if pair.cipher.len() < 200_000 => {
                        let count = 1 + dice.below(40_000);
                        let content = dice.bytes(count);
                        pair.say(&content);
                        said.extend(content);
                    }
                    0 | 1 => pair.carry(1 + dice.below(30_000)),
                    2 | 3 => {
                        let most = 1 + dice.below(20_000);
                        received.extend(pair.receive(most));
                    }
                    4 => {
                        let count = 1 + dice.below(150_000);
                        let content = dice.bytes(count);
                        let (one, two) = content.split_at(dice.below(content.len()));
                        let taken = pair.server.send(&[IoSlice::new(one), IoSlice::new(two)]).unwrap_or(0);
                        sent.extend_from_slice(&content[..taken]);
                    }
                    5 if suite.tls13().is_some() && dice.below(4) == 0 => {
                        pair.client.refresh_traffic_keys().unwrap();
                        pair.encrypt();
                        moves[0] += 1;
                    }
                    5 if dice.below(2) == 0 => heard.extend(pair.hear().unwrap()),
                    5 | 6 => drop(pair.server.flush()),
                    _ => {
                        moves[1] += 1;
                        unsent += u32::from(pair.server.holds_output());
                        pair.hand_over();
                    }
                }
            }
            while received.len() < said.len() || heard.len() < sent.len() {
                pair.encrypt();
                pair.carry(usize::MAX);
                received.extend(pair.receive(1 << 16));
                drop(pair.server.flush());
                heard.extend(pair.hear().unwrap());
            }
            assert!(received == said && heard == sent, "{suite:?}, seed {seed}");
            assert!(moves[1] > 20 && (moves[0] > 0) == suite.tls13().is_some(), "{moves:?}");
            assert!(said.len() > 100_000 && sent.len() > 100_000);
        }
        assert!(unsent > 0, "a full socket at no hand-over");
    }
}

#[test]
fn records_that_were_changed_lost_repeated_or_swapped_end_the_session() {
    let pki = Pki::new();
    for suite in suites() {
        for harm in 0..6 {
            let mut pair = Pair::new(&pki, suite);
            pair.hand_over();
            let records: Vec<Vec<u8>> = (1..4)
                .map(|nth| {
                    pair.say(&[nth; 1000]);
                    std::mem::take(&mut pair.cipher)
                })
                .collect();
            let [one, two, three] = &records[..] else { panic!("three records") };
            // A byte of what is encrypted, of the tag, or of the header.
            let changed = |at: usize| {
                let mut two = two.clone();
                two[at] ^= 1;
                [one.clone(), two].concat()
            };
            let bytes = match harm {
                0 => changed(two.len() / 2),
                1 => changed(two.len() - 1),
                2 => changed(0),
                3 => [one, three].map(Vec::as_slice).concat(),
                4 => [one, one].map(Vec::as_slice).concat(),
                _ => [one, three, two].map(Vec::as_slice).concat(),
            };
            pair.cipher = bytes;
            pair.carry(usize::MAX);
            // What came before it is served, and nothing of it is.
            assert_eq!(pair.try_receive(1000), Ok(Some(vec![1; 1000])), "{suite:?}, harm {harm}");
            assert_eq!(pair.try_receive(1000), Err(ErrorKind::InvalidData), "{suite:?}, harm {harm}");
            let expected = match harm {
                2 if suite.tls13().is_some() => AlertDescription::UnexpectedMessage,
                _ => AlertDescription::BadRecordMac,
            };
            assert_eq!(pair.alert(), expected, "{suite:?}, harm {harm}");
            assert_eq!(pair.try_receive(1000), Err(ErrorKind::InvalidData), "it is over");
            assert!(pair.server.send(&[IoSlice::new(&[1])]).is_err());
        }
    }
}

#[test]
fn a_session_of_another_program_that_makes_no_sense_is_refused() {
    let pki = Pki::new();
    let pair = Pair::new(&pki, suites()[0]);
    let mut parcel = Parcel::default();
    let saved = serde_json::to_value(pair.server.save(&mut parcel).unwrap()).unwrap();
    let long = serde_json::to_value(parcel.put_bytes(|out| out.extend([0; 70_000]))).unwrap();
    let take_up = |saved: serde_json::Value| {
        let (near, _) = UnixStream::pair().unwrap();
        let socket = Socket::Unix(mio::net::UnixStream::from_std(near));
        TlsStream::take_up(socket, &serde_json::from_value(saved).unwrap(), &parcel).map(drop)
    };
    assert!(take_up(saved.clone()).is_ok());
    for (key, value) in [
        ("raw", long.clone()),
        ("plain", long),
        ("suite", serde_json::json!({"version": "tls13", "cipher": "aes128_gcm"})),
    ] {
        let mut other = saved.clone();
        assert!(!other[key].is_null(), "{key}: {other}");
        other[key] = value;
        assert!(take_up(other).is_err(), "{key}");
    }
}

#[test]
fn the_end_is_said_and_heard_over_a_hand_over() {
    let pki = Pki::new();
    for suite in suites() {
        let mut pair = Pair::new(&pki, suite);
        pair.say(b"last words");
        pair.client.send_close_notify();
        pair.encrypt();
        pair.carry(usize::MAX);
        assert_eq!(pair.receive(4), b"last");
        pair.hand_over();
        assert!(pair.server.may_have_more());
        assert_eq!(pair.receive(1000), b" words");
        pair.hand_over();
        assert_eq!(pair.try_receive(1000), Ok(None));
        pair.server.say_goodbye();
        assert_eq!(pair.hear(), Ok(Vec::new()));
        assert!(pair.client.process_new_packets().unwrap().peer_has_closed());
    }
}

#[test]
fn a_record_that_is_cut_off_is_not_delivered() {
    let pki = Pki::new();
    for suite in suites() {
        let mut pair = Pair::new(&pki, suite);
        pair.say(&[7; 1000]);
        pair.carry(900);
        assert_eq!(pair.receive(2000), b"");
        pair.hand_over();
        assert_eq!(pair.receive(2000), b"");
        pair.far.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(pair.try_receive(2000), Ok(None), "{suite:?}");
    }
}
