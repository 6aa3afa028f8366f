// SPDX-License-Identifier: MIT OR Apache-2.0
//! The NBD protocol without I/O: the server's end and the client's end, bytes in and bytes out.
//!
//! This crate opens no socket, starts no thread and knows no clock. A program that moves bytes asks
//! the crate what they mean. So the crate goes with any loop: blocking, poll, io_uring, async, a
//! simulator. [`blocking`] is a small client over anything that reads and writes, for tools and
//! tests.
//!
//! These parts of the protocol are spoken:
//! - fixed newstyle with GO, INFO, LIST and EXPORT_NAME (a client asks by that where GO is unknown,
//!   or where the server is not fixed newstyle);
//! - TLS as a state;
//! - simple, structured and extended replies, and `base:allocation`;
//! - FUA, TRIM, WRITE_ZEROES with NO_HOLE and FAST_ZERO, CACHE, and block sizes.
//!
//! The source of all numbers is doc/proto.md of github.com/NetworkBlockDevice/nbd.
//!
//! [`uri`] reads the URIs that name an export.
//!
//! # Payload
//!
//! Payload never goes through this crate. Where payload begins, `step` says how many bytes of it
//! are next. The caller takes them from wherever they are: out of its read buffer, or by a receive
//! straight into the place where they belong. Then it calls `payload_taken`. In the other direction
//! this crate writes a header, and the caller sends the payload behind it.
//!
//! # A server
//!
//! For each client there is a [`server::Server`].
//!
//! 1. [`Server::new`](server::Server::new) makes a greeting. Send the bytes that it appends.
//! 2. Receive bytes, and give all bytes that aren't taken yet to
//!    [`Server::step`](server::Server::step). Forget as many as it has taken. Do what it says, and
//!    call it again, until it says [`Need`](server::Step::Need): then receive more.
//! 3. At [`StartTls`](server::Step::StartTls) send what is queued, begin TLS, and call
//!    [`Server::enter_tls`](server::Server::enter_tls).
//! 4. At [`Request`](server::Step::Request) carry the request out, in any order with others. If it
//!    is a write, its payload is next. A server that has enough to do does not call `step` for a
//!    while.
//! 5. Answer each request once, by a [`server::Reply`].
//! 6. At [`End`](server::Step::End) answer the requests under way, and close.
//!
//! `step` looks at no more than [`server::INPUT_BYTES_MIN`] bytes at once. How the bytes were cut
//! on their way makes no difference (test: `any_split_says_the_same`).
//!
//! # A client
//!
//! For each connection there is a [`client::Client`].
//!
//! 1. [`Client::new`](client::Client::new) takes what the client wants of the server.
//! 2. Receive bytes and call [`Client::step`](client::Client::step) as above. After each call send
//!    what it has appended.
//! 3. At [`Opened`](client::Step::Opened) the handshake is over, and
//!    [`Client::info`](client::Client::info) tells what the export is and can do.
//! 4. [`Client::submit`](client::Client::submit) writes a request's header, if the server takes
//!    such a request. Send it, and the payload of a write.
//! 5. [`Data`](client::Step::Data), [`Hole`](client::Step::Hole) and
//!    [`Extents`](client::Step::Extents) bring parts of an answer, [`Answer`](client::Step::Answer)
//!    ends it. Until then nothing is known: the data of a read that fails in the end is of no use.
//! 6. An error of `step` ends the conversation. No byte that follows can be trusted.
//!
//! # Example
//!
//! A server of 4 KiB of RAM and a client, without a socket between them.
//!
//! ```
//! use flashfront_nbd_proto::client::{self, Client, Wanted};
//! use flashfront_nbd_proto::server::{self, Export, Part, Reply, Security, Server};
//! use flashfront_nbd_proto::{Ask, BlockSizes, Request};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let disk = [7_u8; 4096];
//! let sizes = BlockSizes { minimum: 1, preferred: 4096, maximum: 32 << 20 };
//! let (name, description) = ("ram".to_owned(), "4 KiB of RAM".to_owned());
//! let export = Export { name, description, size_bytes: 4096, flags: 0, sizes };
//!
//! // What each of the two has to say, until the other has taken it.
//! let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
//! let mut server = Server::new(Security::Off, &mut to_client);
//! let mut client = Client::new(Wanted::all_of("ram"));
//! let mut read = Vec::new();
//!
//! 'over: loop {
//!     // The server's turn.
//!     loop {
//!         match server.step(&to_server, std::slice::from_ref(&export), &mut to_client) {
//!             server::Step::Took(took) | server::Step::Opened { took, .. } => {
//!                 to_server.drain(..took);
//!             }
//!             server::Step::Request { took, request } => {
//!                 to_server.drain(..took);
//!                 let Request { cookie, offset, len, .. } = request;
//!                 let reply = Reply { replies: server.replies(), cookie, offset };
//!                 let part = Part { start: offset, bytes: len as u32, first: true, last: true };
//!                 reply.data(part, &mut to_client);
//!                 to_client.extend_from_slice(&disk[offset as usize..][..len as usize]);
//!             }
//!             server::Step::Need => break,
//!             step => unreachable!("a client that only reads: {step:?}"),
//!         }
//!     }
//!     // The client's turn.
//!     loop {
//!         match client.step(&to_client, &mut to_server)? {
//!             client::Step::Took(took) => drop(to_client.drain(..took)),
//!             client::Step::Opened(took) => {
//!                 to_client.drain(..took);
//!                 client.submit(Request::new(1, Ask::READ, 512, 512), &mut to_server)?;
//!             }
//!             client::Step::Data { took, .. } => drop(to_client.drain(..took)),
//!             client::Step::Payload(bytes) => {
//!                 read.extend(to_client.drain(..bytes as usize));
//!                 client.payload_taken(bytes);
//!             }
//!             client::Step::Answer { result, .. } => {
//!                 assert_eq!(result, Ok(()));
//!                 break 'over;
//!             }
//!             client::Step::Need => break,
//!             step => unreachable!("a server without holes and TLS: {step:?}"),
//!         }
//!     }
//! }
//! assert_eq!(read, disk[512..1024]);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod blocking;
pub mod client;
mod request;
pub mod server;
mod sizes;
pub mod uri;
pub mod wire;

pub use request::{Ask, Request};
pub use sizes::BlockSizes;
