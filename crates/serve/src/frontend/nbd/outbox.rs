// SPDX-License-Identifier: MIT OR Apache-2.0
//! What waits to be sent to one client, in order: header bytes, and payload in its buffers.
//!
//! Payload is never copied; one vectored write takes up to [`SLICES_MAX`] pieces of both kinds.
//! Bounded by what is put in: at most the replies of the requests a connection may have.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use flashfront_engine::{Buf, Memory, Span};

/// Slices of one write. The kernel takes 1024; 64 are two reads of 32 MiB or 32 small ones.
const SLICES_MAX: usize = 64;
/// Sent header bytes are dropped when there are more than this.
const HEAD_KEEP_BYTES: usize = 16 << 10;

/// Header bytes and then, perhaps, payload.
#[derive(Debug)]
struct Item {
    head: usize,
    data: Option<Span>,
    /// The buffer of which no later item has a part, and its bytes.
    frees: Option<(Buf, u32)>,
    /// The request that is answered when this is sent.
    answers: Option<u16>,
}

/// What became free by sending.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// A buffer of so many bytes.
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
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Header bytes not sent yet.
    pub(super) fn head_bytes(&self) -> usize {
        self.heads.len() - self.heads_sent
    }

    /// Appends what `fill` appends; it belongs to no request.
    pub(super) fn say<T>(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        self.push(fill, None, None, None)
    }

    /// Appends header bytes, then the payload at `data`, after which `frees` is a buffer of no more use; the last item of
    /// a request `answers` it.
    pub(super) fn push<T>(
        &mut self,
        fill: impl FnOnce(&mut Vec<u8>) -> T,
        data: Option<Span>,
        frees: Option<(Buf, u32)>,
        answers: Option<u16>,
    ) -> T {
        let before = self.heads.len();
        let result = fill(&mut self.heads);
        let head = self.heads.len() - before;
        if head > 0 || data.is_some() || answers.is_some() {
            self.items.push_back(Item { head, data, frees, answers });
        }
        result
    }

    /// Calls `send` with what is next; tells how many bytes it took, and how many it was offered.
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
            let Some(span) = item.data else { continue };
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
        while let Some(item) = self.items.front_mut() {
            let head = item.head.min(bytes);
            item.head -= head;
            self.heads_sent += head;
            bytes -= head;
            if item.head > 0 {
                break;
            }
            if let Some(span) = item.data {
                let data = (span.len as usize - self.data_sent).min(bytes);
                self.data_sent += data;
                bytes -= data;
                if self.data_sent < span.len as usize {
                    break;
                }
                self.data_sent = 0;
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

    /// Drops everything unsent; tells what became free.
    pub(super) fn clear(&mut self, mut freed: impl FnMut(Sent)) {
        for item in self.items.drain(..) {
            item.frees.into_iter().for_each(|(buf, bytes)| freed(Sent::Buf(buf, bytes)));
            item.answers.into_iter().for_each(|place| freed(Sent::Answer(place)));
        }
        self.heads.clear();
        self.heads_sent = 0;
        self.data_sent = 0;
    }
}
