// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stale guard: was an origin changed behind the cache's back?
//!
//! Origins are never marked. So their size, serial number and a hash of samples are kept in the
//! superblock at a clean stop and compared at the next start. After a crash the daemon's own last
//! writes are not in that hash. Then a record of what sampled places may hold is compared
//! ([`Watch`]). When the log is replayed, the cache's clean blocks are compared
//! (`daemon::compare`). [`Change`] remembers changes that are known by other means.
//!
//! A volume in an object store needs no samples: the number of its newest object tells its content.

use std::io;
use std::path::Path;

use flashfront_device::real::{DeviceFile, Mark, OpenBy, ReadAt, fingerprint, has_content};
use flashfront_engine::OriginId;
use flashfront_engine::format::OriginRecord;

mod change;
mod keeper;
mod openings;
mod record;
mod samples;
mod sampling;
mod served;
mod watched;

pub use change::{Change, ChangeError, How};
pub(crate) use change::{about, all_remembered, remember, remembered, settle};
pub(crate) use openings::{Found, forget as forget_openings, remember_opening};
pub(crate) use served::{Served, remember_ended, remember_served, served_by};
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

/// Writes the mark of a volume in an object store into its record. Says whether it is one.
///
/// The mark tells the content, and the number of the opening tells what this daemon is about to
/// write from what others may write.
pub fn record_mark(device: &DeviceFile, record: &mut OriginRecord) -> bool {
    let Some(mark) = device.mark() else { return false };
    record.fingerprint = content(&mark);
    record.changed_ns = mark.opening.unwrap_or(0).into();
    true
}

/// The other writer that holds a volume in an object store, as far as the store knows.
///
/// The daemon of this cache may have died with the volume open, and so may a start that was cut
/// off. They are no others.
pub(crate) fn other_writer(device: &DeviceFile, cache: Option<[u8; 16]>, record: &OriginRecord) -> Option<OpenBy> {
    device.link()?.store?.open_by.filter(|it| !it.is_of(cache, record.changed_ns))
}

fn content(mark: &Mark) -> u64 {
    let bytes = [&mark.volume[..], &mark.epoch.to_le_bytes(), &mark.sequence.to_le_bytes()].concat();
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &bytes)
}

/// Compares a volume in an object store with its record. What an opening of the record's daemon
/// has made is that daemon's own, and after a crash it may be any of that.
pub(crate) fn compare_mark(mark: &Mark, record: &OriginRecord, same_place: bool, clean: bool) -> Verdict {
    let own = content(mark) == record.fingerprint || !clean && u64::from(mark.epoch) == record.changed_ns;
    match (same_place, own) {
        (false, _) => Verdict::Other,
        (true, true) => Verdict::Unchanged,
        (true, false) => Verdict::Changed,
    }
}

/// Whether another writer has opened an origin in an object store.
pub(crate) fn is_fenced(device: &DeviceFile) -> bool {
    device.link().and_then(|it| it.store?.fenced).is_some()
}

/// Writes what can be known of an origin now into its record. What was written to the origin before
/// is durable then, so that no power cut undoes what the record says.
///
/// # Errors
/// When the device can't be read.
pub fn record(device: &DeviceFile, record: &mut OriginRecord) -> io::Result<()> {
    // The superblock is durable at once. If the file's inode were not, a power cut would leave it
    // with an older time of change. The next start would take the origin for changed.
    let synced = if is_fenced(device) { Ok(()) } else { device.sync_all() };
    // A writer that had nothing to send may find out only now that it was overtaken.
    if is_fenced(device) {
        // The mark tells what this daemon has brought there, and nothing comes after it.
        record_mark(device, record);
        return Ok(());
    }
    synced?;
    record.identity = identity(device)?;
    if record_mark(device, record) {
        return Ok(());
    }
    let print = fingerprint(device)?;
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
    if let Some(mark) = device.mark() {
        return Ok(compare_mark(&mark, record, same_place, clean));
    }
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

/// What an origin's samples say after a crash.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sampled {
    /// The samples are what the last daemon may have left there.
    Same,
    /// Some sample is something else; the place, if it is known.
    Changed { offset: Option<u64> },
    /// Nothing tells what the last daemon left.
    Unknown { why: String },
}

/// What the daemons of an opening may have left on an origin.
enum Left {
    /// The samples that are in its record.
    Samples(Vec<record::Sample>),
    /// No daemon has written it since the superblock got its record of it.
    AsRecorded,
}

impl Left {
    /// Finds what the last opening left, which may be any of `last`.
    fn find(state: Option<&Path>, uuid: &[u8; 16], id: OriginId, last: &[u64]) -> Result<Self, String> {
        let unknown = |why: &str| Err(why.to_owned());
        let openings = openings::load(state, uuid).filter(|it| last.contains(&it.last));
        let record = match record::load(state, uuid, id) {
            Err(error) => return unknown(&format!("the record of its samples can't be used ({error})")),
            Ok(record) => record,
        };
        let counts = |epoch| last.contains(&epoch) || openings.is_some_and(|it| (it.first..=it.last).contains(&epoch));
        match record {
            Some(record) if counts(record.epoch) => Ok(Self::Samples(record.samples)),
            _ if openings.is_some_and(|it| it.as_recorded) => Ok(Self::AsRecorded),
            Some(_) => unknown("the state folder has a record of its samples of another opening only"),
            None => unknown("the state folder has no record of its samples"),
        }
    }

    fn compare(&self, record: &OriginRecord, size_bytes: u64, read: &mut ReadAt<'_>) -> Sampled {
        let changed = match self {
            Self::Samples(samples) => sampling::changed(size_bytes, read, samples).map(Some),
            Self::AsRecorded => match has_content(size_bytes, read, record.fingerprint) {
                Err(error) => return Sampled::Unknown { why: format!("its samples can't be read ({error})") },
                Ok(same) => (!same).then_some(None),
            },
        };
        changed.map_or(Sampled::Same, |offset| Sampled::Changed { offset })
    }
}

/// Compares an origin with what the cache's last daemon may have left there; `epoch`: of its
/// opening.
pub(crate) fn compare_samples(
    state: Option<&Path>,
    origin: &DeviceFile,
    record: &OriginRecord,
    uuid: &[u8; 16],
    epoch: u64,
) -> Sampled {
    // What is remembered of an opening comes before the superblock: the next one may have been cut
    // off between the two.
    match Left::find(state, uuid, record.id, &[epoch, epoch + 1]) {
        Err(why) => Sampled::Unknown { why },
        Ok(left) => left.compare(record, origin.geometry().size_bytes, &mut |at, into| origin.read_at(at, into)),
    }
}

/// Whether the origin holds something that this opening, which serves it, has not left there.
pub(crate) fn is_changed(
    state: Option<&Path>,
    record: &OriginRecord,
    uuid: &[u8; 16],
    epoch: u64,
    read: &mut ReadAt<'_>,
) -> Option<Option<u64>> {
    let left = Left::find(state, uuid, record.id, &[epoch]).ok()?;
    match left.compare(record, record.size_bytes, read) {
        Sampled::Changed { offset } => Some(offset),
        Sampled::Same | Sampled::Unknown { .. } => None,
    }
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
