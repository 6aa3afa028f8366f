// SPDX-License-Identifier: MIT OR Apache-2.0
//! The records of a TLS session after its handshake, in both directions.
//!
//! rustls makes the handshake; from there on records are made and read here, as rustls's session
//! can't be given to another process (ADR 0085). A client may send content, alerts, and in TLS 1.3
//! requests to change keys (KeyUpdate). All else ends the session.
//!
//! Bounds: [`EMPTY_MAX`] records in a row without content, and [`UPDATES_MAX`] changes of keys
//! without content between them. However many times a client asks for new keys, it is answered by
//! one record before the next content (tests: `records`).

use std::io::IoSlice;
use std::ops::Range;

use super::fault::Fault;
use super::keys::{BODY_BYTES_MAX, CONTENT_BYTES_MAX, DATA, HEADER_BYTES, HEADER_VERSION, Keys, Suite, Version};

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const WARNING: u8 = 1;
const FATAL: u8 = 2;
const CLOSE_NOTIFY: u8 = 0;
const USER_CANCELED: u8 = 90;
const NO_RENEGOTIATION: u8 = 100;
const CLIENT_HELLO: u8 = 1;
/// A KeyUpdate, but for its last byte: whether the other side is to change its keys, too.
const KEY_UPDATE: [u8; 4] = [24, 0, 0, 1];

/// Records without content that may follow each other, as rustls allows.
const EMPTY_MAX: u8 = 32;
/// Changes of keys without content between them, as rustls allows.
const UPDATES_MAX: u8 = 32;
/// Warnings that are passed over, as by rustls.
const WARNINGS_MAX: u8 = 4;

/// What a record was.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// Content, in these bytes of the record.
    Data(Range<usize>),
    /// Nothing for the connection.
    Nothing,
    /// The client will send nothing more.
    End,
}

/// Records that a client may not send without end.
#[derive(Debug, Default)]
struct Tally {
    empty: u8,
    updates: u8,
    warnings: u8,
    /// A client of TLS 1.2 asked for another handshake, and was refused.
    refused: bool,
}

/// Both directions of a session.
#[derive(Debug)]
pub(super) struct Records {
    incoming: Keys,
    outgoing: Keys,
    /// The client wants to get new keys before the next content.
    owes_update: bool,
    tally: Tally,
}

impl Records {
    pub(super) fn new(incoming: Keys, outgoing: Keys, owes_update: bool) -> Self {
        Self { incoming, outgoing, owes_update, tally: Tally::default() }
    }

    pub(super) fn suite(&self) -> Suite {
        self.incoming.suite()
    }

    pub(super) fn incoming(&self) -> &Keys {
        &self.incoming
    }

    pub(super) fn outgoing(&self) -> &Keys {
        &self.outgoing
    }

    pub(super) fn owes_update(&self) -> bool {
        self.owes_update
    }

    /// Returns the length of the first record, if `bytes` has it whole.
    pub(super) fn whole(&self, bytes: &[u8]) -> Result<Option<usize>, Fault> {
        let Some(&[kind, major, minor, high, low]) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let fits = match self.suite().version {
            Version::Tls12 => matches!(kind, ALERT | HANDSHAKE | DATA),
            Version::Tls13 => kind == DATA,
        };
        if !fits || [major, minor] != HEADER_VERSION {
            return Err(Fault::OutOfPlace);
        }
        let body = usize::from(u16::from_be_bytes([high, low]));
        if body > BODY_BYTES_MAX {
            return Err(Fault::TooLong);
        }
        let whole = HEADER_BYTES + body;
        Ok((bytes.len() >= whole).then_some(whole))
    }

    /// Decrypts a whole record in place. `out` takes an answer, if there is one.
    pub(super) fn decrypt(&mut self, record: &mut [u8], out: &mut Vec<u8>) -> Result<Record, Fault> {
        let (kind, at) = self.incoming.decrypt(record)?;
        let content = &record[at.clone()];
        self.tally.empty = if content.is_empty() { self.tally.empty + 1 } else { 0 };
        if self.tally.empty > EMPTY_MAX {
            return Err(Fault::Flood);
        }
        match (kind, content) {
            (DATA, []) => Ok(Record::Nothing),
            (DATA, _) => {
                self.tally.updates = 0;
                Ok(Record::Data(at))
            }
            (ALERT, &[level, alert]) => self.hear_alert(level, alert),
            (ALERT, _) => Err(Fault::Unreadable),
            (HANDSHAKE, content) => self.hear_handshake(content, out),
            _ => Err(Fault::OutOfPlace),
        }
    }

    fn hear_alert(&mut self, level: u8, alert: u8) -> Result<Record, Fault> {
        if alert == CLOSE_NOTIFY {
            return Ok(Record::End);
        }
        let may_go_on = self.suite().version == Version::Tls12 || alert == USER_CANCELED;
        if level != WARNING || !may_go_on || self.tally.warnings == WARNINGS_MAX {
            return Err(Fault::GivenUp(alert));
        }
        self.tally.warnings += 1;
        Ok(Record::Nothing)
    }

    /// Hears a message of the handshake's kind. It must be a record's only one, as keys change
    /// with it.
    fn hear_handshake(&mut self, content: &[u8], out: &mut Vec<u8>) -> Result<Record, Fault> {
        match (self.suite().version, content) {
            (Version::Tls12, [CLIENT_HELLO, ..]) if !self.tally.refused => {
                self.tally.refused = true;
                self.outgoing.encrypt(ALERT, out, |out| out.extend([WARNING, NO_RENEGOTIATION]))?;
            }
            (Version::Tls13, [head @ .., asks]) if *head == KEY_UPDATE => {
                if *asks > 1 {
                    return Err(Fault::Unreadable);
                }
                if self.tally.updates == UPDATES_MAX {
                    return Err(Fault::Flood);
                }
                self.tally.updates += 1;
                self.incoming.update()?;
                self.owes_update |= *asks == 1;
            }
            _ => return Err(Fault::OutOfPlace),
        }
        Ok(Record::Nothing)
    }

    /// Encrypts what fits in one record, and appends it to `out`. Returns how many bytes that were.
    pub(super) fn encrypt(&mut self, from: &[IoSlice<'_>], out: &mut Vec<u8>) -> Result<usize, Fault> {
        // The last record of keys says that others follow, or that nothing does.
        let last = self.outgoing.left() <= 1;
        match self.suite().version {
            Version::Tls12 if last => return Err(Fault::UsedUp),
            Version::Tls13 if last || self.owes_update => self.update(out)?,
            Version::Tls12 | Version::Tls13 => {}
        }
        let mut room = CONTENT_BYTES_MAX;
        self.outgoing.encrypt(DATA, out, |out| {
            for slice in from {
                let part = &slice[..slice.len().min(room)];
                out.extend_from_slice(part);
                room -= part.len();
            }
        })?;
        Ok(CONTENT_BYTES_MAX - room)
    }

    /// Goes on with new keys, and tells the client.
    fn update(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
        self.outgoing.encrypt(HANDSHAKE, out, |out| {
            out.extend(KEY_UPDATE);
            out.push(0);
        })?;
        self.owes_update = false;
        self.outgoing.update()
    }

    /// Tells the client that nothing more comes.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        self.alert(WARNING, CLOSE_NOTIFY, out);
    }

    /// Tells the client why the session is given up.
    pub(super) fn give_up(&mut self, fault: Fault, out: &mut Vec<u8>) {
        match fault.alert() {
            Some(alert) => self.alert(FATAL, alert, out),
            None if fault == Fault::UsedUp => self.end(out),
            None => {}
        }
    }

    /// Without a key for it, the end of the connection must tell.
    fn alert(&mut self, level: u8, alert: u8, out: &mut Vec<u8>) {
        let _ = self.outgoing.encrypt(ALERT, out, |out| out.extend([level, alert]));
    }
}

#[cfg(test)]
mod tests;
