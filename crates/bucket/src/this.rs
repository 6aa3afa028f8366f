// SPDX-License-Identifier: MIT OR Apache-2.0
//! This process, as a writer of volumes.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use flashfront_object::{Holder, Writer};

/// The identity of this machine (machine-id(5)).
const MACHINE_ID: &str = "/etc/machine-id";

/// The random numbers of all openings of this process.
static OPENINGS: Mutex<BTreeSet<[u8; 16]>> = Mutex::new(BTreeSet::new());

/// Makes a random number of 16 bytes.
#[must_use]
pub fn random_id() -> [u8; 16] {
    let mut id = [0; 16];
    // The kernel has random bytes for all who ask, once it is up.
    let _ = rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty());
    id
}

/// The name of this host.
#[must_use]
pub fn this_host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// What this process would hold a volume by: this machine, and a cache if it has one.
#[must_use]
pub fn this_holder(cache: Option<[u8; 16]>) -> Holder {
    Holder::new(&std::fs::read_to_string(MACHINE_ID).unwrap_or_default(), cache)
}

/// Names this process as a writer, with the UUID of its cache if it has one. `after` is the opening
/// that it may follow.
#[must_use]
pub fn this_writer(cache: Option<[u8; 16]>, after: Option<u32>) -> Writer {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let (id, now) = (random_id(), since.map_or(0, |it| it.as_secs()));
    OPENINGS.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
    Writer { id, host: this_host(), holder: Some(this_holder(cache)), now, after }
}

/// Whether an opening was this process's own, by its random number.
#[must_use]
pub fn is_own(writer: &[u8; 16]) -> bool {
    OPENINGS.lock().unwrap_or_else(PoisonError::into_inner).contains(writer)
}

/// Names a writer for people: its cache, and where that is.
#[must_use]
pub fn who(host: &str, holder: Option<&Holder>) -> String {
    let host = if host.is_empty() { "an unknown host" } else { host };
    let Some(holder) = holder else { return host.to_owned() };
    let is_here = (holder.machine().is_some()).then(|| holder.machine == this_holder(None).machine);
    let place = match is_here {
        Some(true) => format!("this machine ({host})"),
        Some(false) if host == this_host() => format!("another machine with the name {host}"),
        _ => host.to_owned(),
    };
    match holder.cache() {
        Some(cache) => format!("the cache {} on {place}", uuid_text(&cache)),
        None => format!("a daemon or a command without a cache on {place}"),
    }
}

/// A UUID as people write it.
#[must_use]
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
