// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stale guard: was an origin changed behind the cache's back?
//!
//! Origins are never marked. So their size, serial number and a hash of samples are kept in the
//! superblock at a clean stop and compared at the next start. After a crash the daemon's own last
//! writes are not in that hash. Then a record of what sampled places may hold is compared
//! ([`Watch`]). When the log is replayed, the cache's clean blocks are compared
//! (`daemon::compare`). [`Change`] remembers changes that are known by other means.

use std::io;
use std::path::Path;

use flashfront_device::real::{DeviceFile, ReadAt, fingerprint};
use flashfront_engine::OriginId;
use flashfront_engine::format::OriginRecord;

mod change;
mod record;
mod samples;
mod served;
mod watched;

pub use change::{Change, ChangeError, How};
pub(crate) use change::{remember, remembered, settle};
pub(crate) use served::{Served, remember_served, served_by};
pub(crate) use watched::Watch;

/// Bytes of an identity in a record.
const IDENTITY_BYTES: usize = 64;
/// The start of a longer identity that is kept; then come a `~` and 16 digits.
const START_BYTES: usize = IDENTITY_BYTES - 17;

/// The verdict of the guard.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The origin is as it was.
    Unchanged,
    /// The last stop wasn't clean; the content can't be compared.
    Unknown,
    /// The origin is the device that it was, with other content.
    Changed,
    /// Another device.
    Other,
}

/// Tells an origin from others across restarts: by the serial number of a block device, by the
/// inode of a file. Empty if nothing does.
///
/// # Errors
/// The device can't be asked.
pub fn identity(device: &DeviceFile) -> io::Result<String> {
    if let Some(serial) = &device.identity().serial {
        return Ok(fitted(serial));
    }
    // Of an export nothing tells who it is: its content must.
    Ok(device.inode()?.map(|inode| format!("inode {inode}")).unwrap_or_default())
}

/// Fits a serial number into a record.
///
/// Of a long one the start is kept for people, and a hash of it all, as its end tells it from
/// others. An NVMe disk without an id of its own is called by vendor, serial number and model. The
/// namespace comes last, and behind it the number of a partition.
fn fitted(serial: &str) -> String {
    if serial.len() <= IDENTITY_BYTES {
        return serial.to_owned();
    }
    let hash = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, serial.as_bytes());
    let start: String = serial.chars().map(|char| if char.is_ascii() { char } else { '?' }).take(START_BYTES).collect();
    format!("{start}~{hash:016x}")
}

/// The serial number as it was recorded before: cut, so that all partitions of a disk could look
/// alike.
fn cut(serial: &str) -> String {
    serial.chars().take(IDENTITY_BYTES).collect()
}

/// Whether the recorded identity may be that of the device, which has `serial` as its number, if it
/// has one.
fn is_recorded(identity: &str, serial: Option<&str>, recorded: &str) -> bool {
    let unknown = identity.is_empty() || recorded.is_empty();
    unknown || identity == recorded || serial.is_some_and(|serial| cut(serial) == recorded)
}

/// Whether two recorded identities may be of one device, in doubt: one may be cut, and the other
/// have a hash.
fn may_be_same(one: &str, other: &str) -> bool {
    let is_hashed = |it: &str| it.len() == IDENTITY_BYTES && it.as_bytes()[START_BYTES] == b'~';
    let is_cut = |it: &str| it.chars().count() == IDENTITY_BYTES && !is_hashed(it);
    let doubtful = is_hashed(one) && is_cut(other) || is_cut(one) && is_hashed(other);
    one == other || doubtful && one.as_bytes()[..START_BYTES] == other.as_bytes()[..START_BYTES]
}

/// Writes what can be known of an origin now into its record.
///
/// # Errors
/// When the device can't be read.
pub fn record(device: &DeviceFile, record: &mut OriginRecord) -> io::Result<()> {
    let print = fingerprint(device)?;
    record.identity = identity(device)?;
    record.fingerprint = print.content;
    record.changed_ns = print.changed_ns.unwrap_or(0);
    Ok(())
}

/// Compares an origin with its record; `clean`: the last stop was.
///
/// # Errors
/// When the device can't be read.
pub fn compare(device: &DeviceFile, record: &OriginRecord, clean: bool) -> io::Result<Verdict> {
    let identity = identity(device)?;
    let same_place = is_recorded(&identity, device.identity().serial.as_deref(), &record.identity);
    if device.is_block_device() && !same_place {
        return Ok(Verdict::Other);
    }
    if !clean {
        // A file may have been moved or restored; without the hash nothing speaks for it.
        return Ok(if same_place { Verdict::Unknown } else { Verdict::Other });
    }
    let print = fingerprint(device)?;
    let same_content = print.is_content(record.fingerprint);
    let untouched = print.changed_ns.unwrap_or(0) == record.changed_ns;
    Ok(match (same_place, same_content) {
        // A copy or a restored backup has another inode, and its own time.
        (false, true) => Verdict::Unchanged,
        (false, false) => Verdict::Other,
        (true, true) if untouched => Verdict::Unchanged,
        (true, _) => Verdict::Changed,
    })
}

/// What the record of an origin's samples says after a crash.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sampled {
    /// This many places hold what the last daemon may have left there.
    Same { places: usize },
    /// A place that holds something else.
    Changed { offset: u64 },
    /// The last opening has no record.
    Unknown { why: String },
}

/// Compares an origin with the record of its samples; `epoch`: of the cache's last opening.
pub(crate) fn compare_samples(
    state: Option<&Path>,
    origin: &DeviceFile,
    id: OriginId,
    uuid: &[u8; 16],
    epoch: u64,
) -> Sampled {
    let unknown = |why: &str| Sampled::Unknown { why: why.to_owned() };
    let record = match record::load(state, uuid, id) {
        Err(error) => return unknown(&format!("the record of its samples can't be used ({error})")),
        Ok(None) => return unknown("the state folder has no record of its samples"),
        Ok(Some(record)) => record,
    };
    // The record comes before the superblock: the next opening may have been cut off between the
    // two.
    if ![epoch, epoch + 1].contains(&record.epoch) {
        return unknown("the state folder has a record of its samples of another opening only");
    }
    let places = record.samples.len();
    match watched::changed(origin.geometry().size_bytes, &mut |at, into| origin.read_at(at, into), &record.samples) {
        Some(offset) => Sampled::Changed { offset },
        None => Sampled::Same { places },
    }
}

/// The first place of the origin that holds nothing of what the record of this opening allows,
/// which is kept while it is served. `None` without a record.
pub(crate) fn first_changed(
    state: Option<&Path>,
    id: OriginId,
    uuid: &[u8; 16],
    epoch: u64,
    size_bytes: u64,
    read: &mut ReadAt<'_>,
) -> Option<u64> {
    let record = record::load(state, uuid, id).ok()??;
    (record.epoch == epoch).then(|| watched::changed(size_bytes, read, &record.samples))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_and_namespaces_of_a_long_serial_number_differ() {
        // An EBS volume.
        let disk = |space: u32| {
            let (number, model) = ("766f6c3061626364656630313233343536373839", "416d617a6f6e20456c6173746963");
            format!("nvme.1d0f-{number}-{model}-{space:08x}")
        };
        let all = [disk(1), disk(2), format!("{}-part1", disk(1)), format!("{}-part2", disk(1))];
        for (at, one) in all.iter().enumerate() {
            assert!(
                one.len() > IDENTITY_BYTES
                    && fitted(one).len() <= IDENTITY_BYTES
                    && one.starts_with(&fitted(one)[..47])
            );
            for (nth, other) in all.iter().enumerate() {
                assert_eq!(is_recorded(&fitted(one), Some(one), &fitted(other)), at == nth, "{one} {other}");
                assert_eq!(may_be_same(&fitted(one), &fitted(other)), at == nth, "{one} {other}");
                // In a record of before they can't be told apart.
                assert!(is_recorded(&fitted(one), Some(one), &cut(other)));
                assert!(may_be_same(&fitted(one), &cut(other)) && may_be_same(&cut(other), &fitted(one)));
            }
        }
        let another = disk(1).replace("3132", "3133");
        assert!(!is_recorded(&fitted(&disk(1)), Some(&disk(1)), &cut(&another)));
    }

    #[test]
    fn what_fits_is_kept_as_it_is() {
        let longest = "x".repeat(IDENTITY_BYTES);
        for serial in ["eui.0025385b71b0a4c1", "S4EVNX0N-part12", &longest] {
            assert_eq!(fitted(serial), serial);
            assert!(!is_recorded(serial, Some(serial), "another") && is_recorded(serial, Some(serial), ""));
        }
        assert!(is_recorded("", None, "inode 5") && !is_recorded("inode 6", None, "inode 5"));
        let odd = "\u{20ac}".repeat(IDENTITY_BYTES);
        assert!(fitted(&odd).len() == IDENTITY_BYTES && is_recorded(&fitted(&odd), Some(&odd), &fitted(&odd)));
    }
}
