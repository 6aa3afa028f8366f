// SPDX-License-Identifier: MIT OR Apache-2.0
//! This process, as a writer of volumes.

use flashfront_object::Writer;

/// Makes a random number of 16 bytes.
#[must_use]
pub fn random_id() -> [u8; 16] {
    let mut id = [0; 16];
    // The kernel has random bytes for all who ask, once it is up.
    let _ = rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty());
    id
}

/// Names this process as a writer.
#[must_use]
pub fn this_writer() -> Writer {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Writer { id: random_id(), host, now: since.map_or(0, |it| it.as_secs()) }
}
