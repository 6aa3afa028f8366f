// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client with a list of requests, which it says at once; it notes what it hears.

use std::collections::BTreeMap;

use flashfront_nbd_proto::client::{Client, Extent, Failure, Step, Wanted};
use flashfront_nbd_proto::wire::Errno;
use flashfront_nbd_proto::{Ask, Request};

use super::disk::DISK_BYTES;

/// What is known of a request's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) data: Vec<u8>,
    pub(crate) extents: Vec<Extent>,
    pub(crate) result: Option<Result<(), Failure>>,
}

/// The client's end of a connection.
pub(crate) struct Guest {
    pub(crate) client: Client,
    script: Vec<(Request, Vec<u8>)>,
    pub(crate) heard: BTreeMap<u64, Heard>,
    data_at: (u64, usize),
}

impl Guest {
    pub(crate) fn new(wanted: Wanted, script: Vec<(Request, Vec<u8>)>) -> Self {
        Self { client: Client::new(wanted), script, heard: BTreeMap::new(), data_at: (0, 0) }
    }

    /// Takes what has come, as far as it means something. Tells whether TLS is to begin.
    pub(crate) fn take(&mut self, input: &mut Vec<u8>, out: &mut Vec<u8>) -> bool {
        loop {
            match self.client.step(input, out).expect("the server keeps to the protocol") {
                Step::Need => return false,
                Step::Took(took) => drop(input.drain(..took)),
                Step::StartTls(took) => {
                    input.drain(..took);
                    return true;
                }
                Step::Opened(took) => {
                    input.drain(..took);
                    assert_eq!(self.client.info().map(|info| info.size_bytes), Some(DISK_BYTES as u64));
                    for (request, payload) in std::mem::take(&mut self.script) {
                        self.client.submit(request, out).expect("the request is in order");
                        out.extend(payload);
                    }
                }
                Step::Data { took, cookie, at, len: _ } => {
                    input.drain(..took);
                    self.data_at = (cookie, self.place(cookie, at));
                }
                Step::Payload(_) if input.is_empty() => return false,
                Step::Payload(left) => {
                    let here = (left as usize).min(input.len());
                    let (cookie, at) = self.data_at;
                    let data = &mut self.heard.get_mut(&cookie).expect("a read").data;
                    data[at..at + here].copy_from_slice(&input[..here]);
                    input.drain(..here);
                    self.client.payload_taken(here as u64);
                    self.data_at.1 += here;
                }
                Step::Hole { took, cookie, at, len } => {
                    input.drain(..took);
                    let at = self.place(cookie, at);
                    let data = &mut self.heard.get_mut(&cookie).expect("a read").data;
                    assert_eq!(data[at..at + len as usize], vec![0xee; len as usize], "a hole over data");
                    data[at..at + len as usize].fill(0);
                }
                Step::Extents { took, cookie, context, extents } => {
                    input.drain(..took);
                    assert_eq!(self.client.contexts()[context].name, "base:allocation");
                    self.heard.entry(cookie).or_default().extents.extend(extents);
                }
                Step::Answer { took, cookie, result } => {
                    input.drain(..took);
                    let heard = self.heard.entry(cookie).or_default();
                    assert_eq!(heard.result, None, "{cookie} was answered twice");
                    heard.result = Some(result);
                }
            }
        }
    }

    fn place(&mut self, cookie: u64, at: u64) -> usize {
        let request = self.client.request(cookie).expect("an answer to a request");
        let heard = self.heard.entry(cookie).or_default();
        heard.data.resize(request.len as usize, 0xee);
        (at - request.offset) as usize
    }
}

/// A script with all commands that go with what a client agrees on; and the expected results.
pub(crate) fn script(chunks: bool) -> Vec<(Request, Vec<u8>)> {
    let mut script = Vec::new();
    let mut add = |ask: Ask, offset: u64, len: u64, fua: bool| {
        let cookie = 0x0102_0304_0506_0700 + script.len() as u64;
        let payload = if ask == Ask::Write { vec![0x33; len as usize] } else { Vec::new() };
        script.push((Request { cookie, ask, offset, len, fua }, payload));
    };
    add(Ask::READ, 700, 1000, false);
    add(Ask::Write, 100, 300, true);
    add(Ask::READ, 0, 600, false);
    add(Ask::Zeroes { may_discard: false, fast: false }, 128, 16, true);
    add(Ask::Zeroes { may_discard: true, fast: true }, 128, 16, false);
    add(Ask::READ, 120, 40, false);
    add(Ask::Trim, 2048, 512, false);
    add(Ask::Flush, 0, 0, false);
    add(Ask::READ, 3500, 500, false);
    if chunks {
        add(Ask::Read { whole: true }, 1000, 700, false);
        add(Ask::Status { one: false }, 500, 3000, false);
        add(Ask::Status { one: true }, 1024, 600, false);
    }
    script
}

/// What the answers must be.
pub(crate) fn assert_right(heard: &BTreeMap<u64, Heard>, chunks: bool) {
    let at = |nth: u64| &heard[&(0x0102_0304_0506_0700 + nth)];
    let content = |at: usize| if (1024..2048).contains(&at) { 0 } else { at as u8 | 1 };
    let errno = |nth: u64| at(nth).result.clone().expect("an answer").expect_err("a failure").errno;
    assert_eq!(heard.len(), if chunks { 12 } else { 9 });
    assert_eq!(at(0).data, (700..1700).map(content).collect::<Vec<u8>>());
    let written = |at: usize| if (100..400).contains(&at) { 0x33 } else { content(at) };
    assert_eq!(at(2).data, (0..600).map(written).collect::<Vec<u8>>());
    let zeroed = |at: usize| if (128..144).contains(&at) { 0 } else { written(at) };
    assert_eq!(at(5).data, (120..160).map(zeroed).collect::<Vec<u8>>());
    for nth in [0, 1, 2, 3, 5, 6, 7] {
        assert_eq!(at(nth).result, Some(Ok(())), "{nth}");
    }
    assert_eq!((errno(4), errno(8)), (Errno::ENOTSUP, Errno::EIO));
    if chunks {
        let failure = at(8).result.clone().expect("an answer").expect_err("a failure");
        assert_eq!((failure.at, failure.text.as_str()), (Some(3584), "this part is bad"));
        assert_eq!(at(9).data, (1000..1700).map(content).collect::<Vec<u8>>());
        let extents = |nth: u64| at(nth).extents.iter().map(|it| (it.bytes, it.is_zero())).collect::<Vec<_>>();
        assert_eq!(extents(10), [(524, false), (1536, true), (940, false)]);
        assert_eq!(extents(11), [(600, true)]);
    }
}
