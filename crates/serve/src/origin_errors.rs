// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of origins: how often they failed since the start, and why they refuse dirty data now.

use flashfront_engine::{DeviceError, Op, OriginId};

/// I/Os of an origin that failed, of clients and of destage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginErrors {
    /// Reads.
    pub reads: u64,
    /// Writes, with all else that changes something or makes it durable: zeroes, discards, flushes.
    pub writes: u64,
}

/// The errors of all origins.
#[derive(Debug, Default)]
pub(crate) struct AllOriginErrors {
    counts: Vec<(OriginId, OriginErrors)>,
    /// The last error of each origin, and the number of blocks that had been destaged by then.
    refused: Vec<(OriginId, DeviceError, u64)>,
}

impl AllOriginErrors {
    /// An origin failed to carry out an I/O.
    pub(crate) fn count(&mut self, origin: OriginId, op: Op) {
        let at = self.counts.iter().position(|it| it.0 == origin).unwrap_or_else(|| {
            self.counts.push((origin, OriginErrors::default()));
            self.counts.len() - 1
        });
        let counts = &mut self.counts[at].1;
        *(if op == Op::Read { &mut counts.reads } else { &mut counts.writes }) += 1;
    }

    /// Goes on from what a daemon before this one had counted.
    pub(crate) fn go_on(&mut self, origin: OriginId, before: OriginErrors) {
        if before != OriginErrors::default() {
            self.counts.push((origin, before));
        }
    }

    pub(crate) fn of(&self, origin: OriginId) -> OriginErrors {
        self.counts.iter().find(|it| it.0 == origin).map_or_else(OriginErrors::default, |it| it.1)
    }

    /// Notes that an origin refused dirty data when `destaged` blocks had been destaged.
    pub(crate) fn refused(&mut self, origin: OriginId, error: DeviceError, destaged: u64) {
        self.refused.retain(|it| it.0 != origin);
        self.refused.push((origin, error, destaged));
    }

    /// Why an origin refuses dirty data, unless some was destaged since.
    pub(crate) fn why(&self, origin: OriginId, destaged: u64) -> Option<DeviceError> {
        self.refused.iter().find(|it| it.0 == origin && it.2 == destaged).map(|it| it.1)
    }
}

/// Where an origin is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Site {
    /// A device or a file of this machine.
    Here,
    /// The export of an NBD server.
    Server,
    /// A volume in an object store.
    Store,
}

/// Advises about an error of the origin with this path.
pub(crate) fn advice(error: DeviceError, site: Site, path: &str) -> String {
    match error {
        DeviceError::Io | DeviceError::NoSpace if site == Site::Store => {
            format!("see `flashfront object check {path} --data`")
        }
        DeviceError::Gone | DeviceError::TimedOut if site == Site::Store => format!(
            "see whether the store can be reached (flashfront object info {path}); it is used again when it answers"
        ),
        error => fixed(error, site).to_owned(),
    }
}

/// The advice that names no device.
fn fixed(error: DeviceError, site: Site) -> &'static str {
    let is_export = site == Site::Server;
    match error {
        DeviceError::ReadOnly if site == Site::Store => {
            "another writer has opened the volume, or this daemon may not write it: `status` says who"
        }
        DeviceError::Unsupported if site == Site::Store => "the object store does not know this operation",
        DeviceError::Io if is_export => "look for it in the log of the NBD server, and in that of its machine",
        DeviceError::NoSpace if is_export => "make room where the NBD server keeps the export",
        DeviceError::ReadOnly if is_export => {
            "let the NBD server take writes again; its log, or that of its machine, says why it takes none"
        }
        DeviceError::Unsupported if is_export => "the NBD server does not know this operation",
        DeviceError::Gone | DeviceError::TimedOut if is_export => {
            "see whether the NBD server runs and can be reached (nbdinfo URI); it is used again when it answers"
        }
        DeviceError::Io => "look for it in the kernel's log (dmesg), and at the disk's health (smartctl -a)",
        DeviceError::NoSpace => "make room on its file system (df), or enlarge the thin volume or the quota",
        DeviceError::ReadOnly => {
            "make it writable again: mount its file system read-write (a file system goes read-only after an error: \
             dmesg), or blockdev --setrw"
        }
        DeviceError::Unsupported => "its file system or driver does not know this operation",
        DeviceError::Gone => "look for it in the kernel's log (dmesg); a device that comes back needs a new start",
        DeviceError::TimedOut => "look for it in the kernel's log (dmesg); it is used again when it answers",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_refuses_until_something_is_destaged() {
        let mut errors = AllOriginErrors::default();
        errors.refused(OriginId(0), DeviceError::NoSpace, 7);
        errors.refused(OriginId(0), DeviceError::Io, 7);
        assert_eq!(errors.why(OriginId(0), 7), Some(DeviceError::Io));
        assert_eq!((errors.why(OriginId(0), 8), errors.why(OriginId(1), 7)), (None, None));
    }

    #[test]
    fn nobody_looks_for_an_error_of_a_server_in_this_machines_log() {
        use DeviceError::{Gone, Io, NoSpace, ReadOnly, TimedOut, Unsupported};
        for error in [Io, NoSpace, ReadOnly, Unsupported, Gone, TimedOut] {
            let said = [advice(error, Site::Server, ""), advice(error, Site::Store, "s3://b/d")];
            assert!(said[0].contains("NBD server") && !said[1].contains("NBD server"), "{said:?}");
            let said = said.join(" ");
            for tool in ["dmesg", "smartctl", "df", "blockdev"] {
                assert!(!said.contains(tool), "{said}");
            }
        }
    }

    #[test]
    fn each_origin_has_its_counts() {
        let mut errors = AllOriginErrors::default();
        for (origin, op) in [(0, Op::Read), (1, Op::Write), (1, Op::Flush), (1, Op::Punch), (0, Op::Read)] {
            errors.count(OriginId(origin), op);
        }
        let counts = [0, 1, 2].map(|origin| errors.of(OriginId(origin)));
        assert_eq!(counts.map(|it| (it.reads, it.writes)), [(2, 0), (0, 3), (0, 0)]);
    }
}
