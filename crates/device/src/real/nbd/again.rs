// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connects to a server that went away, and looks whether its export is what it was.

use std::time::Instant;

use super::connection::Connection;
use super::dial::{DialError, LIMIT, Server};
use super::geometry_of;
use crate::Geometry;
use crate::real::lock::Access;
use crate::real::remote::LinkWatch;

/// Why a server that is there again is not used.
#[derive(Debug)]
pub(super) enum Refused {
    /// There is no connection.
    Dial(DialError),
    /// The export is another one.
    Changed(String),
}

/// Connects again, and looks whether the export is what it was.
pub(super) fn again(
    watch: Option<&LinkWatch>,
    server: &Server,
    (geometry, access): (Geometry, Access),
) -> Result<Vec<Connection>, Refused> {
    let mut first = server.dial().map_err(Refused::Dial)?;
    let info = first.info();
    if info.size_bytes < geometry.size_bytes {
        let (now, before) = (info.size_bytes, geometry.size_bytes);
        return Err(Refused::Changed(format!("the export came back with {now} bytes, and it had {before}")));
    }
    let now = geometry_of(&info, access).map_err(|error| Refused::Changed(error.what))?;
    if now.logical_block_bytes > geometry.logical_block_bytes {
        let (now, before) = (now.logical_block_bytes, geometry.logical_block_bytes);
        return Err(Refused::Changed(format!("the export came back with blocks of {now} bytes, and it had {before}")));
    }
    if let Some(watch) = watch {
        let mut error = None;
        let result = (watch.check)(&mut |offset, into| {
            let read = first.read_now(offset, into, Instant::now() + LIMIT);
            read.map_err(|lost| {
                error.get_or_insert(lost.to_string());
                std::io::Error::other("the connection was lost")
            })
        });
        // What could not be read proves nothing.
        if let Some(what) = error {
            return Err(Refused::Dial(DialError { what, todo: "see the server's log" }));
        }
        result.map_err(Refused::Changed)?;
    }
    let further = server.dial_further(&info);
    Ok(std::iter::once(first).chain(further).collect())
}
