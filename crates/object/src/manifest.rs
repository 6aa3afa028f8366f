// SPDX-License-Identifier: MIT OR Apache-2.0
//! A manifest: which objects count, and in which order.

use crate::form::Form;
use crate::holder::Holder;
use crate::name::Stamp;
use crate::wire::{Put, Take, is_sealed};

/// All versions begin so, with two digits behind, and have length and checksum at these places.
const KIND: &[u8; 6] = b"FFMANI";
const VERSION: &[u8; 2] = b"02";
const LENGTH_AT: usize = 8;
const CRC_AT: usize = 12;
const FLAGS_AT: usize = 60;
const OPEN: u32 = 1;
const COMPRESSED: u32 = 2;
const ENCRYPTED: u32 = 4;
const SINGLE_WRITER: u32 = 8;
const HOLDER: u32 = 16;
const OWES: u32 = 32;
/// The tail is in short numbers, and roots may be. Older manifests have no such flag.
const SHORT: u32 = 64;
const KNOWN: u32 = OPEN | COMPRESSED | ENCRYPTED | SINGLE_WRITER | HOLDER | OWES | SHORT;

/// A checkpoint, as a manifest names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointRef {
    pub(crate) stamp: Stamp,
    /// Bytes of the object.
    pub(crate) bytes: u64,
    /// Where its root is, how long, and its checksum.
    pub(crate) root_at: u64,
    pub(crate) root_bytes: u32,
    pub(crate) root_crc: u32,
    /// The first manifest with it.
    pub(crate) since: u64,
    pub(crate) born: u64,
}

/// An object with data that came after the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailEntry {
    /// Its number.
    pub stamp: Stamp,
    /// Bytes of its head.
    pub head: u32,
    /// Its bytes.
    pub bytes: u64,
    /// A manifest that is not after the first one with it.
    pub born: u64,
}

/// A state that is kept under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name.
    pub name: String,
    /// The manifest of the state.
    pub manifest: u64,
    /// The wish that took it.
    pub wish: u64,
}

/// Why a manifest can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManifestFault {
    /// Torn, or harmed: what is wrong. Such a manifest is nobody's, and its number is used up.
    Torn(String),
    /// Whole, with something that this version of the program does not know. The manifest counts,
    /// and must not be passed over.
    Foreign(String),
}

/// A manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The volume's random number.
    pub volume: [u8; 16],
    /// Its number.
    pub number: u64,
    /// The opening that wrote it.
    pub epoch: u32,
    /// A random number of that opening.
    pub writer: [u8; 16],
    /// Whether a writer has the volume open.
    pub is_open: bool,
    /// The writer has closed the volume, and its cache holds writes that the store lacks.
    pub owes: bool,
    /// How extents are stored.
    pub form: Form,
    /// Whether the store knows no conditions, so that nothing keeps a second writer out.
    pub single_writer: bool,
    /// Sectors of the volume.
    pub sectors: u64,
    /// The last sequence that is used up.
    pub sequence: u64,
    /// All objects of the manifests from here on are there.
    pub kept: u64,
    /// The last wish that was granted.
    pub wishes: u64,
    /// Seconds since 1970, for people; 0 if nobody knew.
    pub written: u64,
    /// The writer's host, for people.
    pub host: String,
    /// The writer's machine and cache; `None`: the program that wrote it did not say.
    pub holder: Option<Holder>,
    pub(crate) checkpoint: Option<CheckpointRef>,
    /// Objects with data after the checkpoint, in order.
    pub tail: Vec<TailEntry>,
    /// States that are kept.
    pub snapshots: Vec<Snapshot>,
}

impl Manifest {
    /// Returns the number of the newest object that it names. It tells the content of one state
    /// from that of all others: whoever changes the content makes a new object.
    #[must_use]
    pub fn newest(&self) -> Stamp {
        let checkpoint = self.checkpoint.map(|it| it.stamp);
        self.tail.last().map(|it| it.stamp).or(checkpoint).unwrap_or_default()
    }

    /// Names its writer, for people.
    #[must_use]
    pub fn by(&self) -> String {
        let host = if self.host.is_empty() { "an unknown host" } else { &self.host };
        format!("{host}, epoch {}", self.epoch)
    }

    /// The first manifest of an empty volume.
    #[must_use]
    pub fn first(volume: [u8; 16], writer: [u8; 16], sectors: u64, written: u64, host: &str) -> Self {
        Self {
            volume,
            number: 1,
            epoch: 1,
            writer,
            is_open: false,
            owes: false,
            form: Form::default(),
            single_writer: false,
            sectors,
            sequence: 0,
            kept: 1,
            wishes: 0,
            written,
            host: host.to_owned(),
            holder: None,
            checkpoint: None,
            tail: Vec::new(),
            snapshots: Vec::new(),
        }
    }

    /// Writes it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut put = Put::default();
        put.bytes(KIND)
            .bytes(VERSION)
            .u32(0)
            .u32(0)
            .bytes(&self.volume)
            .u64(self.number)
            .u32(self.epoch)
            .bytes(&self.writer);
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        let form = flag(self.form.compressed, COMPRESSED) | flag(self.form.key.is_some(), ENCRYPTED);
        let holder = flag(self.holder.is_some(), HOLDER) | flag(self.owes, OWES);
        put.u32(flag(self.is_open, OPEN) | flag(self.single_writer, SINGLE_WRITER) | form | holder | SHORT);
        put.u64(self.sectors).u64(self.sequence).u64(self.kept).u64(self.wishes).u64(self.written).text(&self.host);
        match &self.checkpoint {
            None => _ = put.u32(0),
            Some(it) => {
                put.u32(it.stamp.epoch).u64(it.stamp.sequence).u64(it.bytes).u64(it.root_at);
                put.u32(it.root_bytes).u32(it.root_crc).u64(it.since).u64(it.born);
            }
        }
        put.count(self.tail.len());
        let (mut stamp, mut born) = (Stamp::default(), 0);
        for it in &self.tail {
            put.step(stamp.epoch.into(), it.stamp.epoch.into()).step(stamp.sequence, it.stamp.sequence);
            put.short(it.head.into()).short(it.bytes).step(born, it.born);
            (stamp, born) = (it.stamp, it.born);
        }
        put.count(self.snapshots.len());
        for it in &self.snapshots {
            put.text(&it.name).u64(it.manifest).u64(it.wish);
        }
        self.form.key.into_iter().for_each(|key| _ = put.u64(key));
        self.holder.into_iter().for_each(|it| _ = put.bytes(&it.machine).bytes(&it.cache));
        let len = u32::try_from(put.0.len()).expect("bug: a manifest of 4 GiB");
        put.0[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&len.to_le_bytes());
        put.seal(CRC_AT)
    }

    /// Reads it, and verifies it.
    ///
    /// # Errors
    /// [`ManifestFault`].
    pub fn decode(bytes: &[u8]) -> Result<Self, ManifestFault> {
        let torn = |what: String| Err(ManifestFault::Torn(what));
        let foreign = |what: String| Err(ManifestFault::Foreign(what));
        let mut take = Take(bytes);
        if take.bytes(KIND.len()).is_none_or(|kind| kind != KIND) {
            return torn("it does not begin as a manifest".to_owned());
        }
        let version = take.bytes(VERSION.len()).unwrap_or_default();
        let len = take.u32().unwrap_or(0) as usize;
        if len != bytes.len() {
            return torn(format!("it has {} bytes and says {len}", bytes.len()));
        }
        if !is_sealed(bytes, CRC_AT) {
            return torn("its checksum is wrong".to_owned());
        }
        // The checksum is right, so another program wrote what this one does not know.
        if version != VERSION {
            return foreign(format!("format version {}", version.escape_ascii()));
        }
        match bytes.get(FLAGS_AT..FLAGS_AT + 4).and_then(|flags| Take(flags).u32()) {
            Some(flags) if flags & !KNOWN != 0 => return foreign(format!("flags {:#x}", flags & !KNOWN)),
            _ => {}
        }
        let _ = take.u32();
        Self::fields(&mut take).map_or_else(|| foreign("other fields".to_owned()), Ok)
    }

    fn fields(take: &mut Take<'_>) -> Option<Self> {
        let (volume, number, epoch, writer) = (take.array()?, take.u64()?, take.u32()?, take.array()?);
        let flags = take.u32()?;
        let (is_open, single_writer) = (flags & OPEN != 0, flags & SINGLE_WRITER != 0);
        let (sectors, sequence, kept) = (take.u64()?, take.u64()?, take.u64()?);
        let (wishes, written, host) = (take.u64()?, take.u64()?, take.text()?);
        let checkpoint = match take.u32()? {
            0 => None,
            epoch => {
                let (sequence, bytes, root_at) = (take.u64()?, take.u64()?, take.u64()?);
                let (root_bytes, root_crc, since, born) = (take.u32()?, take.u32()?, take.u64()?, take.u64()?);
                let stamp = Stamp { epoch, sequence };
                Some(CheckpointRef { stamp, bytes, root_at, root_bytes, root_crc, since, born })
            }
        };
        let tail = if flags & SHORT == 0 { tail_of_older(take)? } else { tail_of(take)? };
        let snapshot =
            |take: &mut Take<'_>| Some(Snapshot { name: take.text()?, manifest: take.u64()?, wish: take.u64()? });
        let count = take.count(20)?;
        let snapshots = (0..count).map(|_| snapshot(take)).collect::<Option<_>>()?;
        let key = if flags & ENCRYPTED == 0 { None } else { Some(take.u64()?) };
        let form = Form { compressed: flags & COMPRESSED != 0, key };
        let holder = match flags & HOLDER {
            0 => None,
            _ => Some(Holder { machine: take.array()?, cache: take.array()? }),
        };
        let all = Self {
            volume,
            number,
            epoch,
            writer,
            is_open,
            owes: flags & OWES != 0,
            form,
            single_writer,
            sectors,
            sequence,
            kept,
            wishes,
            written,
            host,
            holder,
            checkpoint,
            tail,
            snapshots,
        };
        take.0.is_empty().then_some(all)
    }
}

fn tail_of(take: &mut Take<'_>) -> Option<Vec<TailEntry>> {
    let count = take.count(5)?;
    let (mut stamp, mut born) = (Stamp::default(), 0);
    let mut next = || {
        stamp = Stamp { epoch: take.step_u32(stamp.epoch)?, sequence: take.step(stamp.sequence)? };
        let (head, bytes) = (take.short_u32()?, take.short()?);
        born = take.step(born)?;
        Some(TailEntry { stamp, head, bytes, born })
    };
    (0..count).map(|_| next()).collect()
}

/// The tail as manifests without the flag have it.
fn tail_of_older(take: &mut Take<'_>) -> Option<Vec<TailEntry>> {
    let count = take.count(32)?;
    let mut next = || {
        let stamp = Stamp { epoch: take.u32()?, sequence: take.u64()? };
        Some(TailEntry { stamp, head: take.u32()?, bytes: take.u64()?, born: take.u64()? })
    };
    (0..count).map(|_| next()).collect()
}

#[cfg(test)]
mod tests;
