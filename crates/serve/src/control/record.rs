// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon's end of a recording: sends the requests of a volume to a client until that stops.
//!
//! After the answer [`Response::Recording`] the connection carries frames, 20 a second. A frame has
//! 16 bytes (requests u32, whether it is the last one u32, lost so far u64), then the requests, all
//! little-endian. The client stops by closing its direction; the last frame follows. A client that
//! reads nothing for [`LINE_TIMEOUT`] is left.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use flashfront_engine::OriginId;

use super::{Caller, Command, LINE_TIMEOUT, Response};
use crate::report::counted;
use crate::tap::{Batch, TAPPED_BYTES, TAPS_MAX};

/// Between two frames, if the client says nothing.
const FRAME_EVERY: Duration = Duration::from_millis(50);
/// Bytes of a frame without its requests.
pub(super) const FRAME_BYTES: usize = 16;

/// Serves a recording; `None`: there is none, and the connection goes on with this answer.
pub(super) fn record(stream: &mut UnixStream, caller: &Caller, command: Command) -> io::Result<Option<Response>> {
    let response = caller.call(command);
    let Response::Recording { origin, .. } = &response else { return Ok(Some(response)) };
    let Some(tap) = caller.taps().open(OriginId(*origin)) else {
        let message = format!("{TAPS_MAX} recordings are running already; end one of them first");
        return Ok(Some(Response::Error { message }));
    };
    super::server::send(stream, &response)?;
    stream.set_read_timeout(Some(FRAME_EVERY))?;
    stream.set_write_timeout(Some(LINE_TIMEOUT))?;
    let (mut batch, mut frame) = (Batch::default(), Vec::new());
    loop {
        let is_last = stops(stream)?;
        if is_last {
            // A turn of the pump, so that what it has noted is here.
            let _ = caller.call(Command::Status);
        }
        tap.take(&mut batch);
        put(&batch, is_last, &mut frame);
        stream.write_all(&frame)?;
        if is_last {
            tracing::info!("a recording has ended, with {} lost", counted(batch.lost, "request"));
            return Ok(None);
        }
    }
}

/// Waits for the next frame's time, or for the client's stop.
fn stops(stream: &mut UnixStream) -> io::Result<bool> {
    match stream.read(&mut [0; 64]) {
        // Whatever it says, it stops.
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(error) => Err(error),
    }
}

fn put(batch: &Batch, is_last: bool, frame: &mut Vec<u8>) {
    frame.clear();
    frame.reserve(FRAME_BYTES + batch.requests.len() * TAPPED_BYTES);
    frame.extend_from_slice(&(batch.requests.len() as u32).to_le_bytes());
    frame.extend_from_slice(&u32::from(is_last).to_le_bytes());
    frame.extend_from_slice(&batch.lost.to_le_bytes());
    for request in &batch.requests {
        frame.extend_from_slice(&request.to_bytes());
    }
}
