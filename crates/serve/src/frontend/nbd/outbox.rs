// SPDX-License-Identifier: MIT OR Apache-2.0
//! The outbox of one client, in order: header bytes, and payload in its buffers.
//!
//! Payload is never copied; one vectored write takes up to [`SLICES_MAX`] pieces of both kinds. The
//! outbox holds at most the replies of the requests that a connection may have. Payload that is not
//! sent can be taken back ([`Outbox::take_back`]). It is read once more when the client takes it.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use flashfront_engine::{BLOCK_BYTES, Buf, Memory, Span};

/// Slices of one write. The kernel takes 1024; 64 are two reads of 32 MiB or 32 small ones.
const SLICES_MAX: usize = 64;
/// Sent header bytes are dropped when there are more than this.
const HEAD_KEEP_BYTES: usize = 16 << 10;

/// Header bytes and then, perhaps, payload.
#[derive(Debug)]
struct Item {
    head: usize,
    data: Option<Data>,
    /// The buffer of which no later item has a part, and its bytes.
    frees: Option<(Buf, u32)>,
    /// The request that is answered when this is sent.
    answers: Option<u16>,
}

/// Payload of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Data {
    pub(super) place: u16,
    /// First byte on the export, and how many.
    pub(super) from: u64,
    pub(super) len: u32,
    at: At,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Here(Span),
    /// Taken back.
    Away,
    /// The payload was asked for again, under this slot.
    Asked(u16),
}

impl Data {
    pub(super) fn here(place: u16, from: u64, span: Span) -> Self {
        Self { place, from, len: span.len, at: At::Here(span) }
    }

    fn span(&self) -> Option<Span> {
        if let At::Here(span) = self.at { Some(span) } else { None }
    }
}

/// Something that became free by sending.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// A buffer of this many bytes.
    Buf(Buf, u32),
    /// The place of a request.
    Answer(u16),
}

/// The bytes to be sent.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    items: VecDeque<Item>,
    heads: Vec<u8>,
    /// Bytes at the front of `heads` that are sent.
    heads_sent: usize,
    /// Bytes at the front of the first item's data that are sent.
    data_sent: usize,
    /// Bytes of payload that are here, sent or not.
    here_bytes: u64,
    /// Items without their payload, which was taken back.
    lacking: usize,
    /// Grows whenever the socket takes something.
    progress: u64,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether the first thing to be sent is here.
    pub(super) fn can_send(&self) -> bool {
        let ready = |item: &Item| item.head > 0 || item.data.is_none_or(|data| data.span().is_some());
        self.items.front().is_some_and(ready)
    }

    /// Bytes of payload that are here for the client.
    pub(super) fn here_bytes(&self) -> u64 {
        self.here_bytes
    }

    /// Whether payload is away: what is behind that can't be sent.
    pub(super) fn is_lacking(&self) -> bool {
        self.lacking > 0
    }

    /// Grows whenever the socket takes something.
    pub(super) fn progress(&self) -> u64 {
        self.progress
    }

    /// Header bytes not sent yet.
    pub(super) fn head_bytes(&self) -> usize {
        self.heads.len() - self.heads_sent
    }

    /// Appends what `fill` appends; it belongs to no request.
    pub(super) fn say<T>(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        self.push(fill, None, None, None)
    }

    /// Appends header bytes, and then the payload at `data`.
    ///
    /// `frees` is the buffer that is free when the payload is sent; the last item of a request
    /// `answers` it.
    pub(super) fn push<T>(
        &mut self,
        fill: impl FnOnce(&mut Vec<u8>) -> T,
        data: Option<Data>,
        frees: Option<(Buf, u32)>,
        answers: Option<u16>,
    ) -> T {
        self.here_bytes += data.map_or(0, |data| u64::from(data.len));
        let before = self.heads.len();
        let result = fill(&mut self.heads);
        let head = self.heads.len() - before;
        if head > 0 || data.is_some() || answers.is_some() {
            self.items.push_back(Item { head, data, frees, answers });
        }
        result
    }

    /// Calls `send` with the next bytes; tells how many of them it took, and how many it was
    /// offered.
    pub(super) fn send(
        &self,
        memory: &dyn Memory,
        send: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<(usize, usize)> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut count = 0;
        let mut offered = 0;
        let mut run = self.heads_sent..self.heads_sent;
        let mut data_skip = self.data_sent;
        for item in &self.items {
            // Heads of neighbours without payload are neighbours too, and one slice.
            run.end += item.head;
            let Some(data) = item.data else { continue };
            // Nothing behind it can be sent before it.
            let Some(span) = data.span() else { break };
            if count + 2 > SLICES_MAX {
                run.end -= item.head;
                break;
            }
            if !run.is_empty() {
                offered += run.len();
                slices[count] = IoSlice::new(&self.heads[run.clone()]);
                count += 1;
            }
            run.start = run.end;
            let data = &memory.bytes(span)[data_skip..];
            data_skip = 0;
            offered += data.len();
            slices[count] = IoSlice::new(data);
            count += 1;
        }
        if !run.is_empty() && count < SLICES_MAX {
            offered += run.len();
            slices[count] = IoSlice::new(&self.heads[run]);
            count += 1;
        }
        Ok((send(&slices[..count])?, offered))
    }

    /// Notes that `bytes` more are sent; tells what became free.
    pub(super) fn sent(&mut self, mut bytes: usize, mut freed: impl FnMut(Sent)) {
        self.progress += bytes as u64;
        while let Some(item) = self.items.front_mut() {
            let head = item.head.min(bytes);
            item.head -= head;
            self.heads_sent += head;
            bytes -= head;
            if item.head > 0 {
                break;
            }
            if let Some(data) = item.data {
                let Some(span) = data.span() else { break };
                let data = (span.len as usize - self.data_sent).min(bytes);
                self.data_sent += data;
                bytes -= data;
                if self.data_sent < span.len as usize {
                    break;
                }
                self.data_sent = 0;
                self.here_bytes -= u64::from(span.len);
            }
            if let Some((buf, bytes)) = item.frees {
                freed(Sent::Buf(buf, bytes));
            }
            if let Some(place) = item.answers {
                freed(Sent::Answer(place));
            }
            self.items.pop_front();
        }
        if self.heads_sent == self.heads.len() {
            self.heads.clear();
            self.heads_sent = 0;
        } else if self.heads_sent > HEAD_KEEP_BYTES {
            self.heads.drain(..self.heads_sent);
            self.heads_sent = 0;
        }
    }

    /// Appends to `out` all that is to be sent. Not while payload is away.
    pub(super) fn copy(&self, memory: &dyn Memory, out: &mut Vec<u8>) {
        let (mut head, mut skip) = (self.heads_sent, self.data_sent);
        for item in &self.items {
            out.extend_from_slice(&self.heads[head..head + item.head]);
            head += item.head;
            if let Some(span) = item.data.and_then(|data| data.span()) {
                out.extend_from_slice(&memory.bytes(span)[std::mem::take(&mut skip)..]);
            }
        }
    }

    /// Drops everything unsent; tells what became free.
    pub(super) fn clear(&mut self, mut freed: impl FnMut(Sent)) {
        for item in self.items.drain(..) {
            item.frees.into_iter().for_each(|(buf, bytes)| freed(Sent::Buf(buf, bytes)));
            item.answers.into_iter().for_each(|place| freed(Sent::Answer(place)));
        }
        self.heads.clear();
        self.heads_sent = 0;
        self.data_sent = 0;
        self.here_bytes = 0;
        self.lacking = 0;
    }

    /// Gives up all payload, which must be asked for again.
    ///
    /// The rest of a block that is sent in part is kept. So a client never gets one half of a block
    /// from before a write and the other half from after it.
    pub(super) fn take_back(&mut self, memory: &dyn Memory, mut freed: impl FnMut(Buf, u32)) {
        let mut sent = std::mem::take(&mut self.data_sent) as u32;
        self.here_bytes = 0;
        for item in &mut self.items {
            if let Some(data) = &mut item.data
                && let At::Here(span) = data.at
            {
                let at = span.offset() + sent;
                let block_end = at.next_multiple_of(BLOCK_BYTES as u32);
                let kept = if sent > 0 { (block_end - at).min(span.len - sent) } else { 0 };
                if kept > 0 {
                    debug_assert_eq!(item.head, 0, "payload is sent behind its header");
                    let rest = memory.bytes(Span::new(span.buf(), at, kept));
                    self.heads.splice(self.heads_sent..self.heads_sent, rest.iter().copied());
                    item.head = kept as usize;
                }
                let gone = sent + kept;
                (data.from, data.len, data.at) = (data.from + u64::from(gone), data.len - gone, At::Away);
                if data.len == 0 {
                    item.data = None;
                } else {
                    self.lacking += 1;
                }
                sent = 0;
            }
            if let Some((buf, bytes)) = item.frees.take() {
                freed(buf, bytes);
            }
        }
    }

    /// Gives up the payload behind the first that is away and not asked for again: nothing of it
    /// can be sent before that has come.
    pub(super) fn take_back_behind(&mut self, mut freed: impl FnMut(Buf, u32)) {
        let away = |item: &Item| item.data.is_some_and(|data| data.at == At::Away);
        let Some(first) = self.items.iter().position(away) else { return };
        for item in self.items.iter_mut().skip(first + 1) {
            if let Some(data) = &mut item.data
                && let At::Here(span) = data.at
            {
                data.at = At::Away;
                self.here_bytes -= u64::from(span.len);
                self.lacking += 1;
            }
            if let Some((buf, bytes)) = item.frees.take() {
                freed(buf, bytes);
            }
        }
    }

    /// Finds the first payload that was taken back and is not asked for again, if fewer than
    /// `within_bytes` are sent before it.
    pub(super) fn first_away(&self, within_bytes: u64) -> Option<Data> {
        let mut before = 0;
        for data in self.items.iter().filter_map(|item| item.data) {
            if data.at == At::Away {
                return (before < within_bytes).then_some(data);
            }
            before += u64::from(data.len);
        }
        None
    }

    /// Payload that was taken back is asked for again, under this slot.
    pub(super) fn ask(&mut self, data: Data, slot: u16) {
        let same = |it: &&mut Item| it.data == Some(data);
        if let Some(data) = self.items.iter_mut().find(same).and_then(|item| item.data.as_mut()) {
            data.at = At::Asked(slot);
        }
    }

    /// Notes that an answer is there, in a buffer of this many bytes; or it must be asked for again
    /// once more. Returns false if the payload is not wanted any more.
    pub(super) fn arrived(&mut self, place: u16, slot: u16, there: Option<(Span, u32)>) -> bool {
        let asked = |it: &&mut Item| it.data.is_some_and(|data| data.place == place && data.at == At::Asked(slot));
        let Some(item) = self.items.iter_mut().find(asked) else { return false };
        let Some(data) = &mut item.data else { return false };
        data.at = At::Away;
        if let Some((span, bytes)) = there {
            data.at = At::Here(span);
            item.frees = Some((span.buf(), bytes));
            self.here_bytes += u64::from(span.len);
            self.lacking -= 1;
        }
        true
    }
}
