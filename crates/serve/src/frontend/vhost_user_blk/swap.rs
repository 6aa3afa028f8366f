// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `vhost` crate's handler for a client that another program has talked to (ADR 0070).
//!
//! The handler keeps what the client has said of features, and lets nobody set it. So it hears the
//! same words again by a socket of our own. Then the client's socket takes the place of that one.

#![expect(unsafe_code, reason = "the crate hands its descriptor's number out, and nothing else")]

use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use rustix::io::DupFlags;
use vhost::vhost_user::BackendReqHandler;
use vhost::vhost_user::message::FrontendReq;

use super::broken::Broken;
use super::session::{Said, Session};

/// The flags of a message that wants no acknowledgement: version 1.
const PLAIN: u32 = 1;

/// Lets a handler hear what a client has said of features. `client`: the other end of its socket.
pub(super) fn hear(
    handler: &mut BackendReqHandler<Mutex<Session>>,
    mut client: &UnixStream,
    said: Said,
) -> Result<(), Broken> {
    let asked = said.asked.then_some((FrontendReq::GET_FEATURES, None));
    let features = said.features.map(|bits| (FrontendReq::SET_FEATURES, Some(bits)));
    let protocol = said.protocol.map(|bits| (FrontendReq::SET_PROTOCOL_FEATURES, Some(bits)));
    for (request, bits) in [asked, features, protocol].into_iter().flatten() {
        let body = bits.map(u64::to_ne_bytes);
        let body = body.as_ref().map_or(&[][..], |body| &body[..]);
        let header = [request as u32, PLAIN, body.len() as u32];
        client.write_all(&[header.map(u32::to_ne_bytes).as_flattened(), body].concat())?;
        // The answer, if there is one, is dropped with the socket.
        handler.handle_request().map_err(Broken::Message)?;
    }
    Ok(())
}

/// Lets the handler's socket be the client's from now on.
pub(super) fn swap(handler: &BackendReqHandler<Mutex<Session>>, client: &UnixStream) -> Result<(), Broken> {
    // SAFETY: the handler keeps its number open. This second owner is never dropped.
    let mut own = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(handler.as_raw_fd()) });
    rustix::io::dup3(client, &mut own, DupFlags::CLOEXEC).map_err(std::io::Error::from)?;
    Ok(())
}
