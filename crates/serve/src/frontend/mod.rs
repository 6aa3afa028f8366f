// SPDX-License-Identifier: MIT OR Apache-2.0
//! Front-ends: how clients reach the cache. And what a front-end may ask of the pump.
//!
//! A front-end runs in the pump's thread or in a [carrier](crate::carrier)'s, which it can't tell
//! apart; some protocols have threads of their own besides (`inlet`). A front-end owns its sockets
//! and its protocol; it turns what clients say into [`Request`]s and replies into bytes, and
//! decides nothing about caching. The pump calls [`Frontend`], the front-end calls back through
//! [`Core`]. After any number of `ready`, `reply`, `replied` and `room` the pump calls `turn_end`
//! once, before it waits again.

use std::io;
use std::time::Instant;

use flashfront_device::Share;
use flashfront_engine::{Buf, Memory, OriginId, Request, RequestError, RequestId, Time};
use mio::{Registry, Token, event::Event};

pub(crate) mod bell;
pub(crate) mod desk;
pub(crate) mod ended;
#[cfg(feature = "fuse")]
pub mod fuse;
mod guests;
mod holding;
#[cfg(any(feature = "fuse", feature = "ublk"))]
mod inlet;
pub mod nbd;
mod piece;
pub(crate) mod prefetch;
#[cfg(feature = "ublk")]
pub mod ublk;
pub mod vhost_user_blk;
mod visit;
mod waiting;

use crate::upgrade::Parcel;
pub use guests::Guests;

/// A volume that clients can open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The name clients ask for.
    pub name: String,
    /// The origin it shows.
    pub origin: OriginId,
    /// The size, a multiple of `block_bytes`.
    pub size_bytes: u64,
    /// The alignment of requests: 512 or 4096.
    pub block_bytes: u32,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether a discard of whole blocks leaves zeroes on the origin.
    pub discard_zeroes: bool,
    /// Its clients.
    pub guests: Guests,
}

impl Export {
    /// A volume that can be written in sectors of 512 bytes.
    #[must_use]
    pub fn new(name: &str, origin: OriginId, size_bytes: u64) -> Self {
        let (name, guests) = (name.to_owned(), Guests::default());
        Self { name, origin, size_bytes, block_bytes: 512, read_only: false, discard_zeroes: false, guests }
    }
}

/// The volume of an origin, in a list that is sorted by them.
#[must_use]
pub fn export_of(exports: &[Export], origin: OriginId) -> Option<&Export> {
    exports.binary_search_by_key(&origin, |export| export.origin).ok().map(|at| &exports[at])
}

/// The pump, or the carrier, as a front-end that runs in it may use it.
///
/// The buffer budget behind [`Core::alloc`] must be at least [`nbd::BUFFER_BYTES_MIN`], or the
/// longest request waits forever.
pub trait Core {
    /// The volumes on offer, sorted by their origins.
    fn exports(&self) -> &[Export];

    /// The payload bytes of the buffers given out by [`Core::alloc`].
    fn memory(&mut self) -> &mut dyn Memory;

    /// Takes a buffer of at least `bytes` (a multiple of 4096, at most 1 MiB) for a request to this
    /// origin.
    ///
    /// The buffer is for a request that may wait for the origin, else for a request that ends by
    /// itself. `None` when the budget of the front-ends is used up: then [`Frontend::room`] is
    /// called later.
    fn alloc(&mut self, bytes: u32, origin: OriginId) -> Option<Buf>;

    /// A buffer of one share only; of any, where there are no shares.
    fn alloc_of(&mut self, _share: Share, bytes: u32, origin: OriginId) -> Option<Buf> {
        self.alloc(bytes, origin)
    }

    /// Whether a request with this buffer may wait for an origin. A request that may not can be
    /// answered by [`Frontend::refused`].
    fn may_wait(&self, _buf: Buf) -> bool {
        true
    }

    /// Bytes of the buffers for requests that end by themselves. A request that needs more of them
    /// can't be such a request.
    fn passing_bytes(&self) -> u64 {
        u64::MAX
    }

    /// Gives a buffer of [`Core::alloc`] back; front-ends that wait for one are called.
    fn free(&mut self, buf: Buf);

    /// Gives a buffer back that was of no use, as others with it were not to be had.
    ///
    /// No front-end is called. There is no more room than before, and a request that waits for all
    /// of them would call itself for ever.
    fn put_back(&mut self, buf: Buf) {
        self.free(buf);
    }

    /// Whether a request of any front-end waits for buffers. Then buffers that are held without
    /// need are in the way.
    fn is_short(&self) -> bool {
        false
    }

    /// The time of the turn, of the clock that [`Request::since`] is of: when the turn's events
    /// were found.
    fn now(&self) -> Time {
        Time(0)
    }

    /// A moment that another thread has noted, in the same clock.
    fn time_of(&self, _moment: Instant) -> Time {
        Time(0)
    }

    /// Reads of clients of that origin, so far, that needed the origin itself.
    fn missed(&self, _origin: OriginId) -> u64 {
        0
    }

    /// Hands a request to the engine. The answer comes through [`Frontend::reply`], exactly once
    /// and never from inside this call. Ids are below 2^32, so that the pump can use the upper
    /// half to tell its front-ends apart.
    fn submit(&mut self, request: Request);

    /// Hands on a request of a front-end in another thread, to whose arena the buffer belongs, and
    /// whether it may wait for an origin.
    fn submit_carried(&mut self, request: Request, _may_wait: bool) {
        self.submit(request);
    }
}

/// The poll tokens that belong to one front-end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenRange {
    /// The first.
    pub first: usize,
    /// How many.
    pub count: usize,
}

impl TokenRange {
    /// The token at `index` of the range; `None` beyond its end.
    #[must_use]
    pub fn get(self, index: usize) -> Option<Token> {
        (index < self.count).then(|| Token(self.first + index))
    }

    /// The place of `token` in the range; `None` if it lies outside.
    #[must_use]
    pub fn index(self, token: Token) -> Option<usize> {
        token.0.checked_sub(self.first).filter(|&index| index < self.count)
    }
}

/// A protocol that clients speak.
pub trait Frontend {
    /// The address at which clients find the front-end.
    fn uri(&self) -> String;

    /// The address at which clients find this volume; `None` if they don't find it here.
    fn uri_of(&self, _export: &Export) -> Option<String> {
        None
    }

    /// The only volume that clients find here; `None`: there may be several.
    fn only(&self) -> Option<OriginId> {
        None
    }

    /// Other volumes are on offer from now on ([`Core::exports`]).
    fn exports_changed(&mut self, _exports: &[Export]) {}

    /// How many poll tokens it needs at most.
    fn tokens_max(&self) -> usize;

    /// Called once, before anything else.
    ///
    /// # Errors
    /// When the poller refuses, or `tokens` has fewer than [`Frontend::tokens_max`].
    fn register(&mut self, registry: &Registry, tokens: TokenRange) -> io::Result<()>;

    /// Whether clients can't be served yet, though everything was registered: then turns go on
    /// until they can.
    ///
    /// # Errors
    /// They never will.
    fn starting(&mut self) -> io::Result<bool> {
        Ok(false)
    }

    /// Something happened to one of its tokens. May submit.
    fn ready(&mut self, event: &Event, registry: &Registry, core: &mut dyn Core);

    /// The engine has answered. Does not submit.
    fn reply(&mut self, id: RequestId, result: Result<(), RequestError>, core: &mut dyn Core);

    /// A request that would wait for its origin was not handed to the engine, as its buffer is for
    /// requests that end by themselves. It holds nothing from here on until it has a buffer of
    /// [`Share::Waiting`]. Does not submit.
    fn refused(&mut self, id: RequestId, core: &mut dyn Core);

    /// Acts on the answers of the engine, which are all here for now.
    ///
    /// It is for a front-end that does better to see several answers together. It does not submit.
    fn replied(&mut self, _core: &mut dyn Core) {}

    /// Notes that buffers were freed elsewhere: [`Core::alloc`] may succeed again.
    fn room(&mut self, core: &mut dyn Core);

    /// Ends a turn of the loop.
    ///
    /// It sends queued output (one system call per connection), and watches timeouts. It goes on
    /// with clients that had to wait, which may submit. `true`: don't wait for events before the
    /// next `turn_end`. Either there is more to do, or something was submitted, or
    /// [`Frontend::starting`] has changed.
    fn turn_end(&mut self, now: Time, registry: &Registry, core: &mut dyn Core) -> bool;

    /// When `turn_end` wants to be called at the latest.
    fn next_timer(&self) -> Option<Time>;

    /// Takes no more connections and no more requests; what is in flight is finished and
    /// answered, then the connections are closed.
    fn stop(&mut self, registry: &Registry, core: &mut dyn Core);

    /// Whether nothing is in flight and nothing is left to be sent.
    fn idle(&self) -> bool;

    /// Clients connected now.
    fn clients(&self) -> usize;

    /// Clients so far that were turned away, since all places were taken.
    fn clients_refused(&self) -> u64 {
        0
    }

    /// Clients that may hold data which they have not written yet.
    fn holders(&self) -> usize {
        self.clients()
    }

    /// Says why its clients can't be handed over to another program; `None`: they can.
    fn stays(&self) -> Option<String> {
        Some(format!("{}: its clients can't be handed over", self.uri()))
    }

    /// Begins no new request, and accepts no client, until [`Frontend::release`]. Requests that
    /// were taken are finished. `forced`: connections inside TLS are closed.
    fn hold(&mut self, _forced: bool, _core: &mut dyn Core) {}

    /// Whether nothing is under way any more that can't be handed over.
    fn held(&self) -> bool {
        self.idle()
    }

    /// Goes on with clients that were held.
    fn release(&mut self) {}

    /// Puts copies of the listening socket and of each conversation into the parcel. From then on
    /// nothing is sent, either, until [`Frontend::release`].
    ///
    /// # Errors
    /// A descriptor can't be copied.
    fn hand_over(&mut self, _parcel: &mut Parcel, _core: &mut dyn Core) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Another program has the listening socket: dropping this one leaves the socket's file.
    fn leave(&mut self) {}
}
